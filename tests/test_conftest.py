"""What the tests' own machinery refuses."""

import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
import pytest

@pytest.mark.slow_but({named})
@pytest.mark.parametrize("x", [1, 2], ids=["one", "two"])
def test_it(x):
    pass
"""


@pytest.mark.slow_but("one-OK")
@pytest.mark.parametrize(
    ("named", "status", "said"),
    [
        ('"one"', pytest.ExitCode.OK, "1 passed, 1 deselected"),
        ('"one", "tow"', pytest.ExitCode.INTERRUPTED, "slow_but: test_it has no case ['tow']"),
    ],
    ids=["one-OK", "unknown"],
)
def test_a_fast_case_that_is_none_is_an_error(
    tmp_path: Path, named: str, status: int, said: str
) -> None:
    file = tmp_path / "test_cases.py"
    file.write_text(CASES.format(named=named))
    words = (
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest", "-m", "not slow",
        f"--rootdir={tmp_path}", str(file),
    )  # fmt: skip
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, *words], cwd=root, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stdout
