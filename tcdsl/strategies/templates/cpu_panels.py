"""Large contractions on a CPU: packed panels around the register tile (panels.py).

Small products stay as they are (``cpu_tile``): their operands lie in caches, and copies would
take as long as the product.
"""

from collections.abc import Iterator
from math import prod

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.machine import Cpu
from tcdsl.costmodel.panels import Blocking, Product, blockings, work_on_panels
from tcdsl.costmodel.register_tiles import registers_of
from tcdsl.lang.comprehension import Cast, Expr, Load, Operator, children
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.index_classes import why_not_merged
from tcdsl.rewrites.scop.packing import Factor
from tcdsl.rewrites.scop.rfactor import why_not_rfactored
from tcdsl.strategies.blocking import Class, Dots, Panels
from tcdsl.strategies.contraction import dots_of, find_contraction, has_operands_to_copy
from tcdsl.strategies.implicit_product import factors_of, stride_of
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.template import Template

ACCUMULATORS = cpu_thresholds.ACCUMULATORS
LEAST_USES, NARROW_USES = cpu_thresholds.PANEL_USES, cpu_thresholds.NARROW_USES
LEAST_TERMS, WINDOW_USES = cpu_thresholds.PANEL_TERMS, cpu_thresholds.WINDOW_USES
MOST_WITHIN = cpu_thresholds.PANEL_WINDOW
DOT_COLUMNS = 16  # that the device library's functions have, or a multiple


@dataclass(frozen=True, slots=True)
class CpuPanelsConfig:
    """Of rows, columns and terms: what is in a block of the caches; of the first two, a tile."""

    tile: tuple[int, int]
    block: tuple[int, int, int]
    is_shared: bool  # whether all columns are packed before


@dataclass(frozen=True, slots=True)
class _Found:
    """The indices of a contraction, and their extents."""

    lead: str
    rows: str
    columns: str
    terms: str
    around: tuple[str, ...]
    column_around: tuple[str, ...]  # those of *around* that the columns' factor depends on
    within: tuple[str, ...]
    factors: tuple[int, int]
    is_along_terms: bool
    is_apart: bool
    is_copied: bool  # whether tiles would read copies of operands
    is_guarded: bool
    column_stride: int
    dots: Dots | None  # the instruction that multiplies several narrow terms
    extents: dict[str, int]


def why_not(problem: Problem) -> str | None:
    """Return why there is no contraction that is worth packing, or None."""
    found = _found(problem)
    if isinstance(found, str):
        return found
    is_long = prod(found.extents[i] for i in found.within) > MOST_WITHIN
    if is_long and not found.is_guarded and found.dots is None:
        return "it has several reduced indices, as convolutions do: tiles take no longer"
    is_window = found.dots is not None and bool(found.within)
    if found.extents[found.terms] < LEAST_TERMS and not is_window:
        return "it has few terms"
    uses = min(found.extents[found.rows], found.extents[found.columns])
    least = LEAST_USES if found.dots is None else NARROW_USES
    least = WINDOW_USES if is_window else least
    # Where tiles would hold partial sums, in lanes, copies are worth more.
    if uses < least and (not found.is_apart or found.is_copied):
        return "what is copied would be used a few times"
    return None


def _seconds(product: Product, blocking: Blocking, cpu: Cpu) -> float:
    return estimate(work_on_panels(product, blocking, cpu), cpu).seconds


@analysis
def _found(problem: Problem) -> _Found | str:
    lead = find_contraction(problem.group, problem.shapes)
    if lead is None:
        return "no one member is a product that reuses its operands"
    shape = problem.shapes[lead]
    statement = shape.statement
    if shape.has_open or why_not_merged(statement) is not None or statement.conditions:
        return "its instances are no product of ranges whose ends are numbers"
    reduction = statement.reduction
    if reduction is None or reduction.operator is not Operator.ADD:
        return "it is no sum"
    if not problem.options.vectorise or reduction.dtype.name.startswith("compensated"):
        return "its sums are not added in vectors"
    if (reason := why_not_rfactored(statement)) is not None:
        return reason
    factors = factors_of(statement)
    if factors is None or not all(map(_is_plain, factors)):
        return "its terms are not products of two elements"
    for name in problem.group.members:
        if name != lead and (reason := _why_not_after(problem, lead, name)):
            return reason
    return _classified(problem, lead, factors)


def _is_plain(factor: Factor) -> bool:
    """Return whether nothing but one conversion is done to the element of *factor*."""
    return all(dtype == factor.expr.dtype for dtype in _conversions(factor.expr))


def _conversions(expr: Expr) -> Iterator[object]:
    if isinstance(expr, Cast):
        yield expr.dtype
    if not isinstance(expr, Load):
        for child in children(expr):
            if child.dtype.is_float or isinstance(expr, Cast):
                yield from _conversions(child)


def _why_not_after(problem: Problem, lead: str, name: str) -> str | None:
    """Return why the member *name* does not follow the sums of *lead* result by result."""
    scop, shape = problem.scop, problem.shapes[name]
    if scop.position(name) < scop.position(lead):
        return f"{name} comes before it"
    if shape.statement.kind is not Kind.ASSIGN:
        return f"{name} adds up what it reads"
    own = problem.shapes[lead]
    left = [d for d, role in enumerate(own.roles) if role is Role.PARALLEL]
    dims = {axis[lead]: axis[name] for axis in problem.group.axes}
    if any(d not in dims for d in left) or len(shape.extents) != len(left):
        return f"{name} has other indices"
    if any(shape.extents[dims[d]] != own.extents[d] or shape.lower[dims[d]] for d in left):
        return f"{name} has other ranges"
    return None if why_not_merged(shape.statement) is None else f"{name} has other instances"


def _classified(problem: Problem, lead: str, factors: tuple[Factor, Factor]) -> _Found | str:
    shape = problem.shapes[lead]
    names = shape.statement.indices
    extents = dict(zip(names, shape.extents, strict=True))
    result = dict(zip(names, shape.strides[0], strict=True))
    left = [i for i, r in zip(names, shape.roles, strict=True) if r is Role.PARALLEL]
    reduced = [i for i, r in zip(names, shape.roles, strict=True) if r is Role.REDUCED]
    own = [
        [i for i in left if i in factors[n].indices and i not in factors[1 - n].indices]
        for n in (0, 1)
    ]
    if not all(own) or not reduced:
        return "each factor has no index of its own"
    near = [min(own[n], key=lambda i: (extents[i] < 16, result[i])) for n in (0, 1)]
    columns = min((0, 1), key=lambda n: (extents[near[n]] < 16, result[near[n]]))
    row = max(own[1 - columns], key=lambda i: extents[i])
    term = max(reduced, key=lambda i: extents[i])
    pair = (row, near[columns])
    row_factor = factors[1 - columns]
    array = problem.scop.arrays[row_factor.load.tensor]
    strides = stride_of(array, row_factor, term), stride_of(array, row_factor, row)
    column_array = problem.scop.arrays[factors[columns].load.tensor]
    around = tuple(i for i in left if i not in pair)
    return _Found(
        lead, *pair, term, around, tuple(i for i in around if i in factors[columns].indices),
        tuple(i for i in reduced if i != term), (1 - columns, columns),
        0 < strides[0] <= strides[1],
        stride_of(column_array, factors[columns], near[columns]) != 1,
        has_operands_to_copy(problem.scop, shape, problem.cpu),
        any(factor.condition is not None for factor in factors),
        stride_of(column_array, factors[columns], term),
        dots_of(shape, problem.cpu), extents,
    )  # fmt: skip


def space(problem: Problem) -> Iterator[CpuPanelsConfig]:
    """Yield the configurations, those with the least estimated time first."""
    product = _product(problem)
    found = sorted(
        blockings(product, problem.cpu),
        key=lambda blocking: _seconds(product, blocking, problem.cpu),
    )
    found_ = _found(problem)
    assert not isinstance(found_, str), "why_not"
    extent = found_.extents[found_.terms]
    for one in found:
        steps = -(-product.terms // one.terms)
        terms = -(-extent // steps)
        whole = 1 if found_.dots is None else found_.dots.together
        block = one.rows, one.columns, -(-terms // whole) * whole
        yield CpuPanelsConfig(product.tile, block, one.is_shared)


@analysis
def _product(problem: Problem) -> Product:
    """Return the product that the estimate knows, for a tile of whole vectors."""
    found = _found(problem)
    assert not isinstance(found, str), "why_not"
    shape = problem.shapes[found.lead]
    reduction = shape.statement.reduction
    assert reduction is not None
    size, extents = reduction.dtype.size_bytes, found.extents
    width = problem.cpu.vector_bytes // size
    columns = 2 * width if extents[found.columns] > width else width
    if found.dots is not None:
        columns = max(columns, DOT_COLUMNS)
    most = min(extents[found.rows], ACCUMULATORS[registers_of(problem.cpu)] * width // columns)
    rows = min(
        range(max(1, most // 2), most + 1),
        key=lambda n: (-(-extents[found.rows] // n) * (n + 2), -n),
    )
    return Product(
        extents[found.rows], extents[found.columns],
        extents[found.terms] * prod(extents[i] for i in found.within),
        prod(extents[i] for i in found.around), (rows, columns), size,
        prod(extents[i] for i in found.column_around),
        1 if found.dots is None else found.dots.at_once,
    )  # fmt: skip


def schedule(problem: Problem, config: CpuPanelsConfig) -> Schedule:
    """Return the schedule of the contraction on panels."""
    found = _found(problem)
    assert not isinstance(found, str), "why_not"
    extents = found.extents
    (mr, nr), (mc, nc, kc) = config.tile, config.block
    panels = Panels(
        found.lead,
        Class(found.rows, extents[found.rows], mr, mc),
        Class(found.columns, extents[found.columns], nr, nc),
        Class(found.terms, extents[found.terms], kc, kc),
        found.factors, found.is_along_terms, config.is_shared, found.around,
        found.within, found.is_apart and found.column_stride == 1, found.dots,
    )  # fmt: skip
    why = (
        f"contraction: panels of {found.rows} % {mr} and {found.columns} % {nr}, blocks of"
        f" {mc} x {nc} results and {kc} terms",
    )
    blocking = Blocking(mc, nc, kc, config.is_shared)
    work = work_on_panels(_product(problem), blocking, problem.cpu)
    return Schedule(problem.group.members, (), {}, why=why, panels=panels, work=work)


TEMPLATE = Template("cpu_panels", CpuPanelsConfig, why_not, space, schedule)
