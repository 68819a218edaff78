"""A sum over a dimension of one element has no parts: they would be the result, once more.

The parts' array had that dimension merged with its neighbour, as ``1*j + l``: what was planned for
chunks of such parts looked for an index that was none (KeyError), and the plan was made anew
without fusion.
"""

import warnings

from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import compile_to_cuda
from tcdsl.lang.request import Request
from tests.programs import comprehension_of, specialisation_of

SOURCE = """def f(float16(K,I,J,L) x, float16(K,J) w, bfloat16(J,K) v) -> (t0, t1) {
    t0 max=! float(w(k,j)) - float(v(j,k))
    t1(k,j) +=! x(k,i,j,l)
}"""


def test_they_are_planned_without_a_warning() -> None:
    comprehension = comprehension_of(SOURCE)
    shapes = [(2, 4097, 1000, 1), (2, 1000), (1000, 2)]
    request = Request(comprehension, specialisation_of(comprehension, shapes))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = compile_to_cuda(request, load_chip("h200")).plan
    assert plan.kernels and "S1_part" not in {s.name for s in plan.scop.statements}
