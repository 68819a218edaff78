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


def __dir__() -> list[str]:
    """Return what docs/api.md describes, and what Python has of every module."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


__all__ = ["Case", "Family", "case", "cases", "load", "source_for"]
