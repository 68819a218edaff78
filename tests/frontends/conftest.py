"""The check of HTML is that of the displays; shells leave the process as it was."""

import sys
from collections.abc import Iterator

import pytest

from tests.display.conftest import checked

__all__ = ["checked", "main_module"]

MAIN = sys.modules["__main__"]


@pytest.fixture(autouse=True)
def main_module() -> Iterator[None]:
    """IPython's shell takes the place of ``__main__``, of which new processes want the spec."""
    yield
    sys.modules["__main__"] = MAIN
