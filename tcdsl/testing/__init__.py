"""Testing kernels: against the NumPy reference within a derived bound, on random inputs.

comparison            check, compare, poisoned
inputs                arguments for a function, drawn by Hypothesis
random_programs       whole programs, drawn by Hypothesis
random_graphs         graphs of broadcasts and reductions, likewise
random_contractions   sums of products and what surrounds them, likewise
fuzz                  functions and programs, with shrinking and saving
cases                 saved cases

What draws needs Hypothesis: ``pip install 'tcdsl[testing]'``.
"""

from tcdsl.runtime.documented import names_of_module
from tcdsl.testing.cases import array, replay, save_case
from tcdsl.testing.comparison import check, compare, poisoned
from tcdsl.testing.fuzz import fuzz, fuzz_programs
from tcdsl.testing.inputs import inputs_for
from tcdsl.testing.random_contractions import contractions
from tcdsl.testing.random_graphs import graphs
from tcdsl.testing.random_programs import programs


def __dir__() -> list[str]:
    return names_of_module(globals())


__all__ = [
    "array", "check", "compare", "contractions", "fuzz", "fuzz_programs", "graphs", "inputs_for",
    "poisoned", "programs", "replay", "save_case",
]  # fmt: skip
