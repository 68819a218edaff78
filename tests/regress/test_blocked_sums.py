"""A sum that another sum reads was set aside around that one's loop, so that it was read as 0."""

from collections.abc import Callable

CheckAll = Callable[..., None]

SUM_OF_SUM = """def f(float(N,P,G,D) x) -> (r) {
    m(n,g) +=! x(n,p,g,d)
    v(n,g) +=! x(n,p,g,d) - m(n,g)
    r(n,g) = v(n,g)
}"""
CASES = [(SUM_OF_SUM, [(3, 16, 2, 5)]), (SUM_OF_SUM, [(1, 130, 3, 7)])]


def test_on_the_cpu(check_all: CheckAll) -> None:
    check_all(CASES)


def test_on_the_emulator(check_emulated: CheckAll) -> None:
    check_emulated(CASES)
