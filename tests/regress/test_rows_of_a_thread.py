"""A thread with several rows keeps them in registers only if its loops tell them apart.

What it reads, rows i % 8 = t, lies in a box of all rows.  The loops of its copy told i / 8 alone,
so that isl printed a loop over eight rows that was in no table, below no mark.
"""

from collections.abc import Callable

import pytest

from tcdsl.options import Options

ROWS = """def f(float(M,N) x) -> (y) {
    s(i) +=! x(i,j)
    y(i,j) = x(i,j) - s(i)
}"""


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_several_rows_of_a_thread(check_emulated: Callable[..., None]) -> None:
    check_emulated([(ROWS, [(65, 16)])], options=Options(tile=(100,)))
