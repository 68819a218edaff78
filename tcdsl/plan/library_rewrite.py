"""A library's call as a rewrite: a product of matrices becomes one, if that is predicted to pay.

    y(m,n) = relu(C(m,n))       {C y}   95 us   our kernel, with what follows it
    C = A B                     {C} {y} 71 us   a call of cuBLASLt, and what follows in another

Convolutions and their gradients become calls of cuDNN alike.

It costs the fusion of the statement with others, which the predicted times of all kernels weigh.
Considered under ``Options(libraries=True)`` alone, and where the process has the library already
(``Chip.libraries``).  The estimate of a call is costmodel/library_products.
"""

from dataclasses import replace
from functools import partial

from tcdsl.costmodel import convolutions
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.convolutions import Convolution
from tcdsl.options import Options
from tcdsl.plan.rewrites import Rewrite
from tcdsl.poly.scop import Kind, Scop
from tcdsl.strategies.asked import asked_for
from tcdsl.strategies.library_kernels import TEMPLATE, computed_by

CUBLAS = "cublas"


def library_rewrites(options: Options, gpu: Chip) -> tuple[Rewrite, ...]:
    """Return the rewrite for each library that statements may become calls of."""
    if options.libraries is not True or options.summation != "plain":
        return ()
    asked = asked_for(options)

    def why_not(library: str, scop: Scop, name: str) -> str | None:
        if name in asked:
            return "other choices are asked for"
        if scop.by_name[name].is_promoted:
            return "libraries leave all of a sum to tensor cores, which truncate"
        product = computed_by(library, scop, scop.by_name[name])
        if isinstance(product, Convolution):
            return convolutions.why_not_surely(product)
        return product if isinstance(product, str) else None

    return tuple(
        Rewrite(library, _products, partial(why_not, library), partial(_called, library))
        for library in gpu.libraries
    )


def with_asked_calls(scop: Scop, options: Options) -> Scop:
    """Return *scop* with the calls that ``Options.choices`` ask for."""
    if not options.libraries:
        return scop
    for name, wanted in asked_for(options).items():
        if wanted["template"] == TEMPLATE and name in scop.by_name:
            scop = _called(str(wanted.get("library", CUBLAS)), scop, name)
    return scop


def _products(scop: Scop) -> list[str]:
    return [s.name for s in scop.statements if s.kind is Kind.UPDATE and not s.library]


def _called(library: str, scop: Scop, name: str) -> Scop:
    """Return *scop* with the statement *name* a call of *library*, unless it is one."""
    statements = (
        replace(s, library=s.library or library) if s.name == name else s for s in scop.statements
    )
    return scop.with_statements(tuple(statements))
