"""What is printed is not to change with the estimate: kernels are the likeliest ones."""

import pytest

from tests.strategies.waiting_sums import take_the_likeliest


@pytest.fixture(autouse=True)
def _likeliest(monkeypatch: pytest.MonkeyPatch) -> None:
    take_the_likeliest(monkeypatch)
