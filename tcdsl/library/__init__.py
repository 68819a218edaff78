"""Standard programs as `.tc` text, with their sizes, inputs, references and peers.

from tcdsl import library
library.load("softmax")                            # the program's text
case = library.case("softmax")
inputs = case.make_inputs({"M": 8, "N": 15}, rng)  # random arrays by parameter name
case.reference(inputs)                             # what it must give, from plain NumPy
library.source_for(case, "bfloat16")               # the same program in another element type
"""

from tcdsl.library.case import Case, Family, source_for
from tcdsl.library.catalogue import case, cases, load
from tcdsl.runtime.documented import names_of_module


def __dir__() -> list[str]:
    return names_of_module(globals())


__all__ = ["Case", "Family", "case", "cases", "load", "source_for"]
