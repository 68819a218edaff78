"""Statements that a library computes: kernels of their own, in whose place its call runs.

C(m,n) +=! A(m,k) * B(k,n) <=> cublas(A, B)

C(m,n) = 0                    the loops as written, on one thread: what dependences, order and
C(m,n) += A(m,k) * B(k,n)     completeness are proved of; the call is printed in their place
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tcdsl.costmodel.library_products import CUDNN, AnyProduct
from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Cpu
from tcdsl.errors import NOT_THE_LIBRARYS
from tcdsl.lang.types.library_calls import operands_of
from tcdsl.poly.loop_tree import sequence
from tcdsl.poly.scop import Scop, Statement
from tcdsl.schedule.fusion import leaders_of
from tcdsl.source import Source
from tcdsl.strategies.convolutions import convolution
from tcdsl.strategies.generic import textual_tree
from tcdsl.strategies.matrix_products import matrix_product, with_initialisation
from tcdsl.strategies.schedule import Schedule

TEMPLATE = "library"
_NOT = ("the product is not a matrix product", "the sum is no convolution")
ADVICE = "drop the '<=>', or compile with Options(libraries=False)"


def library_of(scop: Scop, names: Iterable[str]) -> str:
    """Return the library that is to compute one of *names*, "" if none is."""
    return next((scop.by_name[n].library for n in names if scop.by_name[n].library), "")


def with_libraries(scop: Scop, libraries: Collection[str]) -> Scop:
    """Return *scop* without the libraries that are none of *libraries*, and those of no terms."""
    if not any(statement.library for statement in scop.statements):
        return scop
    found = (
        s if s.library in libraries and not s.domain.is_empty() else replace(s, library="")
        for s in scop.statements
    )
    return scop.with_statements(tuple(found))


def require_products(scop: Scop, source: Source, *, is_plain: bool) -> None:
    """Raise unless what libraries are to compute are products of matrices.

    :arg is_plain: sums are not compensated.
    :raises SemanticError: (TC094) one is none.
    """
    for statement in scop.statements:
        if not statement.library:
            continue
        inits = [scop.by_name[i] for i, lead in leaders_of(scop).items() if lead == statement.name]
        product = product_of(scop, [*inits, statement], statement.library)
        reason = product if isinstance(product, str) else ""
        if not is_plain:
            reason = "its sums are compensated"
        if reason:
            raise NOT_THE_LIBRARYS(
                source, statement.span, call=_call_text(statement),
                what=f"{_NOT[statement.library == CUDNN]} because {reason}", advice=ADVICE,
            )  # fmt: skip


def _call_text(statement: Statement) -> str:
    factors = operands_of(statement.value) if statement.value is not None else None
    return f"{statement.library}({', '.join(f.tensor for f in factors or ())})"


def library_schedule(
    scop: Scop, members: Sequence[str], shapes: Mapping[str, Shape], prefix: str
) -> Schedule:
    """Return the schedule of *members*, one statement that a library computes."""
    (name,) = members
    inits = [init for init, leader in leaders_of(scop).items() if leader == name]
    trees = [
        textual_tree(shapes[own], Cpu(1), f"{prefix}.{number}")
        for number, own in enumerate((*inits, name))
    ]
    library = scop.by_name[name].library
    product = product_of(scop, [scop.by_name[own] for own in (*inits, name)], library)
    what = product if isinstance(product, str) else product.described()
    why = (f"a call of {library} in place of a kernel: {what}",)
    return Schedule(
        (*inits, name), (), {}, why=why, tree=sequence(trees), library=library, template=TEMPLATE
    )  # fmt: skip


def computed_by(library: str, scop: Scop, statement: Statement) -> AnyProduct | str:
    """Return what *library* computes of *statement*, a sum without what it adds to; or why not."""
    return (convolution if library == CUDNN else matrix_product)(scop, statement)


def product_of(scop: Scop, statements: Sequence[Statement], library: str) -> AnyProduct | str:
    """Return what *statements* compute, one update and what initialises it; or why no product."""
    found = with_initialisation(statements)
    if found is None:
        return "what is set to 0 is more than what the product writes"
    update, is_initialised = found
    product = computed_by(library, scop, update)
    if isinstance(product, str):
        return product
    return replace(product, accumulates=not is_initialised)
