"""How many folds a block waits for."""

from tcdsl.strategies import catalogue
from tcdsl.strategies.fold_costs import Folds, fold_cycles, folds_of
from tests.strategies.test_templates import problems_of

ROWS_AND_COLUMNS = """def f(float(M,N) x) -> (y, d) {
    s(i) +=! x(i,j)
    y(i,j) = x(i,j) * s(i)
    d(j) +=! x(i,j) * y(i,j)
}"""


def test_sums_that_a_thread_has_for_itself_are_no_folds() -> None:
    """All threads of a block add up a row; each has columns of its own.  A warp has no barrier."""
    (problem,) = problems_of(ROWS_AND_COLUMNS, [(4096, 512)])
    found = {}
    for choice in catalogue.choices(problem):
        if choice.template.name == "row_column" and choice.as_data()["cluster"] == 1:
            schedule = choice.schedule(problem)
            assert schedule.threads["S2"] == ()
            found[schedule.threads["S0"][0][1]] = folds_of(problem, schedule)
    assert found[128] == Folds(over_blocks=1, cycles=fold_cycles(128))
    assert found[32] == Folds(cycles=fold_cycles(32))
