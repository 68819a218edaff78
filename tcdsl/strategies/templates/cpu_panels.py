"""Large contractions on a CPU: packed panels around the register tile (panels.py).

Small products stay as they are (``cpu_tile``): their operands lie in caches, and copies would
take as long as the product.
"""

from collections.abc import Iterator, Mapping, Sequence
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
from tcdsl.rewrites.scop.index_classes import merged_index, why_not_merged
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
LINE_BYTES = cpu_thresholds.LINE_BYTES
LEAST_TERMS, WINDOW_USES = cpu_thresholds.PANEL_TERMS, cpu_thresholds.WINDOW_USES
TAPS_USES = cpu_thresholds.TAPS_USES
MOST_WITHIN = cpu_thresholds.PANEL_WINDOW
DOT_COLUMNS = 16  # that the device library's functions have, or a multiple


MERGED = ("", "rows", "terms")  # which class of indices is counted by one


@dataclass(frozen=True, slots=True)
class CpuPanelsConfig:
    """Of rows, columns and terms: what is in a block of the caches; of the first two, a tile."""

    tile: tuple[int, int]
    block: tuple[int, int, int]
    is_shared: bool  # whether all columns are packed before
    merged: str = ""  # the class whose indices are counted by one: "rows", "terms" or none


@dataclass(frozen=True, slots=True)
class _Found:
    """The indices of a contraction, and their extents."""

    lead: str
    rows: tuple[str, ...]
    columns: str
    terms: tuple[str, ...]
    around: tuple[str, ...]
    column_around: tuple[str, ...]  # those of *around* that the columns' factor depends on
    within: tuple[str, ...]
    factors: tuple[int, int]
    is_along_terms: bool
    is_apart: bool
    is_copied: bool  # whether tiles would read copies of operands
    is_guarded: bool
    column_stride: int
    is_one_by_one: tuple[bool, bool]  # whether elements of rows, and columns, are copied alone
    dots: Dots | None  # the instruction that multiplies several narrow terms
    extents: dict[str, int]

    def extent(self, *indices: str) -> int:
        """Return how many values *indices* have together."""
        return prod(self.extents[index] for index in indices)

    @property
    def is_transposed(self) -> bool:
        """Whether terms of a column are neighbours in memory, and columns are not."""
        return self.is_apart and self.column_stride == 1

    @property
    def is_merged(self) -> bool:
        """Whether one index counts the values of several."""
        return len(self.rows) > 1 or len(self.terms) > 1


def why_not(problem: Problem) -> str | None:
    """Return why there is no contraction that is worth packing, or None."""
    reasons = [_why_not(problem, merged) for merged in MERGED]
    return None if None in reasons else reasons[0]


@analysis
def _why_not(problem: Problem, merged: str) -> str | None:
    """Return why panels are not worth while with one index for those of the class *merged*."""
    found = _found(problem, merged)
    if isinstance(found, str):
        return found
    is_long = found.extent(*found.within) > MOST_WITHIN
    if is_long and not (found.is_guarded or found.is_merged) and found.dots is None:
        return "it has several reduced indices, as convolutions do: tiles take no longer"
    is_window = found.dots is not None and bool(found.within)
    # All terms of a window are added to a tile's sums before these are stored.
    counted = (*found.terms, *(found.within if len(found.rows) > 1 else ()))
    if found.extent(*counted) < LEAST_TERMS and not is_window:
        return "it has few terms"
    uses = min(found.extent(*found.rows), found.extents[found.columns])
    least = LEAST_USES if found.dots is None else NARROW_USES
    least = WINDOW_USES if is_window else least
    is_of_taps = len(found.rows) > 1 and bool(found.within)
    # Of transposed columns tiles read a copy whose terms are side by side, which is as fast.
    if is_of_taps and not found.is_transposed and registers_of(problem.cpu) == 16:
        least = min(least, TAPS_USES)
    # Where tiles would hold partial sums, in lanes, copies are worth more.
    if uses < least and (not found.is_apart or found.is_copied):
        return "what is copied would be used a few times"
    return None


def _seconds(product: Product, blocking: Blocking, cpu: Cpu) -> float:
    return estimate(work_on_panels(product, blocking, cpu), cpu).seconds


@analysis
def _found(problem: Problem, merged: str) -> _Found | str:
    """Return the contraction, one index for those of the class *merged*, or why there is none."""
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
    return _classified(problem, lead, factors, merged)


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


def _classified(
    problem: Problem, lead: str, factors: tuple[Factor, Factor], merged: str
) -> _Found | str:
    shape = problem.shapes[lead]
    names = shape.statement.indices
    extents = dict(zip(names, shape.extents, strict=True))
    result = dict(zip(names, shape.strides[0], strict=True))
    left, reduced = (
        [i for i, role in zip(names, shape.roles, strict=True) if role is wanted]
        for wanted in (Role.PARALLEL, Role.REDUCED)
    )
    own = [
        [i for i in left if i in factors[n].indices and i not in factors[1 - n].indices]
        for n in (0, 1)
    ]
    if not all(own) or not reduced:
        return "each factor has no index of its own"
    near = [min(own[n], key=lambda i: (extents[i] < 16, result[i])) for n in (0, 1)]
    columns = min((0, 1), key=lambda n: (extents[near[n]] < 16, result[near[n]]))
    several = [sum(extents[i] > 1 for i in indices) for indices in (*own, reduced)]
    if merged == "rows":  # of the columns one index is in the panels
        columns = min((columns, 1 - columns), key=lambda n: several[n])
    if {"": 2, "rows": several[1 - columns], "terms": several[2]}[merged] < 2:
        return f"its {merged} have one index"
    strides = [
        {i: stride_of(problem.scop.arrays[factor.load.tensor], factor, i) for i in names}
        for factor in factors
    ]
    nearest = {i: min((own[i] for own in strides if own[i]), default=0) for i in reduced}
    rows = _counted(own[1 - columns], extents, result, merged == "rows")
    terms = _counted(reduced, extents, nearest, merged == "terms")
    of_rows, of_columns = strides[1 - columns], strides[columns]
    around = tuple(i for i in left if i not in (*rows, near[columns]))
    is_apart = of_columns[near[columns]] != 1
    one_by_one = {
        "": (False, False), "rows": (of_rows[terms[-1]] != 1, False),
        "terms": (of_rows[rows[-1]] != 1, is_apart),
    }  # fmt: skip
    return _Found(
        lead, tuple(rows), near[columns], tuple(terms), around,
        tuple(i for i in around if i in factors[columns].indices),
        tuple(i for i in reduced if i not in terms), (1 - columns, columns),
        merged != "terms" and 0 < of_rows[terms[-1]] <= of_rows[rows[-1]], is_apart,
        has_operands_to_copy(problem.scop, shape, problem.cpu),
        any(factor.condition is not None for factor in factors), of_columns[terms[-1]],
        one_by_one[merged], dots_of(shape, problem.cpu), extents,
    )  # fmt: skip


def _counted(
    indices: Sequence[str], extents: Mapping[str, int], apart: Mapping[str, int], is_merged: bool
) -> list[str]:
    """Return the indices that one counts: the longest, or all, the nearest in memory fastest."""
    if not is_merged:
        return [max(indices, key=lambda i: extents[i])]
    return sorted(indices, key=lambda i: (extents[i] > 1, -apart[i]))


def space(problem: Problem) -> Iterator[CpuPanelsConfig]:
    """Yield the configurations, those with the least estimated time first."""
    found = [
        (_seconds(product, blocking, problem.cpu), config)
        for merged in MERGED
        if _why_not(problem, merged) is None
        for product in [_product(problem, merged)]
        for blocking in blockings(product, problem.cpu)
        for config in [_config(problem, product, blocking, merged)]
    ]
    yield from (config for _, config in sorted(found, key=lambda pair: pair[0]))


def _config(problem: Problem, product: Product, blocking: Blocking, merged: str) -> CpuPanelsConfig:
    found = _of(problem, merged)
    steps = -(-product.terms // blocking.terms)
    terms = -(-found.extent(*found.terms) // steps)
    whole = 1 if found.dots is None else found.dots.together
    block = blocking.rows, blocking.columns, -(-terms // whole) * whole
    return CpuPanelsConfig(product.tile, block, blocking.is_shared, merged)


def _of(problem: Problem, merged: str) -> _Found:
    found = _found(problem, merged)
    assert not isinstance(found, str), "why_not"
    return found


@analysis
def _product(problem: Problem, merged: str) -> Product:
    """Return the product that the estimate knows, for a tile of whole vectors."""
    found = _of(problem, merged)
    shape = problem.shapes[found.lead]
    reduction = shape.statement.reduction
    assert reduction is not None
    size, n_rows, n_columns = (
        reduction.dtype.size_bytes, found.extent(*found.rows), found.extents[found.columns],
    )  # fmt: skip
    strides = dict(zip(shape.statement.indices, shape.strides[0], strict=True))
    nearest = min(strides[index] for index in (found.rows[-1], found.columns))
    width = problem.cpu.vector_bytes // size
    columns = 2 * width if n_columns > width else width
    if found.dots is not None:
        columns = max(columns, DOT_COLUMNS)
    most = min(n_rows, ACCUMULATORS[registers_of(problem.cpu)] * width // columns)
    rows = min(range(max(1, most // 2), most + 1), key=lambda n: (-(-n_rows // n) * (n + 2), -n))
    return Product(
        n_rows, n_columns, found.extent(*found.terms, *found.within), found.extent(*found.around),
        (rows, columns), size, found.extent(*found.column_around),
        1 if found.dots is None else found.dots.at_once, found.is_one_by_one,
        0 if nearest == 1 else min(LINE_BYTES, size * nearest) - size,
    )  # fmt: skip


def schedule(problem: Problem, config: CpuPanelsConfig) -> Schedule:
    """Return the schedule of the contraction on panels."""
    found = _of(problem, config.merged)
    (mr, nr), (mc, nc, kc) = config.tile, config.block
    taken = problem.shapes[found.lead].statement.indices
    rows, columns, terms = (
        Class(merged_index(indices, found.extents, taken), tile, block)
        for indices, tile, block in ((found.rows, mr, mc), ((found.columns,), nr, nc),
                                     (found.terms, kc, kc))
    )  # fmt: skip
    panels = Panels(
        found.lead, rows, columns, terms, found.factors, found.is_along_terms, config.is_shared,
        found.around, found.within, found.is_transposed, found.dots,
    )  # fmt: skip
    why = (
        f"contraction: panels of {rows.index} % {mr} and {columns.index} % {nr}, blocks of"
        f" {mc} x {nc} results and {kc} terms",
    )
    blocking = Blocking(mc, nc, kc, config.is_shared)
    work = work_on_panels(_product(problem, config.merged), blocking, problem.cpu)
    return Schedule(problem.group.members, (), {}, why=why, panels=panels, work=work)


TEMPLATE = Template("cpu_panels", CpuPanelsConfig, why_not, space, schedule)
