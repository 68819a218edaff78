"""The operations and instructions of a kernel, counted off its statements' expressions.

    y(i,j) +=! x(i+k,j) * f(k,j)      for each i, j, k: a multiply-add; x and f are loaded,
                                      converted, their addresses and guards computed

A thread with a *register block*, several points i, and the terms k unrolled, does once what depends
on x(i+k,j) alone, and what depends on f(k,j) alone: 4 points and 3 terms are 12 multiply-adds of 6
elements of x and 3 of f.  The part that is left is the number of different elements among all.
"""

from itertools import product
from weakref import WeakKeyDictionary

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Unit
from tcdsl.costmodel.locality import Shape, coefficient_of
from tcdsl.lang.comprehension import Binary, Call, Const, Expr, Load, Select, children, walk
from tcdsl.poly.loop_tree import LoopKind
from tcdsl.poly.scop import Statement
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.schedule import Schedule

INSTRUCTIONS = gpu_thresholds.INSTRUCTIONS_LEFT
PAIR_OPERATIONS = gpu_thresholds.PAIR_OPERATIONS

Loops = tuple[tuple[str, int, int], ...]  # index, step, iterations: unrolled ones of a statement
Blocks = tuple[tuple[str, Loops], ...]  # of each member, where threads have register blocks


def register_blocks(problem: Problem, schedule: Schedule) -> Blocks:
    """Return the unrolled loops of each member, if a thread of *schedule* has several points."""
    if schedule.points == 1:
        return ()
    return tuple((name, unrolled(problem, schedule, name)) for name in problem.group.members)


def unrolled(problem: Problem, schedule: Schedule, name: str) -> Loops:
    """Return the unrolled loops of the member *name*, if a thread has several points."""
    if schedule.points == 1:
        return ()
    indices = problem.shapes[name].statement.indices
    own = [(p.coordinate, p.extent) for p in schedule.remaining[name]
           if p.kind is LoopKind.UNROLL]  # fmt: skip
    return tuple((indices[c.position], c.div, count) for c, count in own)


@analysis
def operations_of(problem: Problem, blocks: Blocks) -> tuple[tuple[Unit, float], ...]:
    """Return the operations of the kernel by the units that run them."""
    found: dict[Unit, float] = {}
    loops = dict(blocks)
    for name in problem.group.members:
        shape = problem.shapes[name]
        simple, calls, _ = _expression(shape, loops.get(name, ()))
        unit = Unit.FMA_F64 if _is_double(problem, shape) else Unit.FMA_F32
        found[unit] = found.get(unit, 0.0) + simple * shape.instances
        if calls:
            found[Unit.SPECIAL] = found.get(Unit.SPECIAL, 0.0) + calls * shape.instances
    return tuple(found.items())


@analysis
def instructions_of(problem: Problem, vector: int, blocks: Blocks) -> float:
    """Return the instructions of all threads: arithmetic, and a share of loads and addresses."""
    total, loops = 0.0, dict(blocks)
    for name in problem.group.members:
        shape, own = problem.shapes[name], loops.get(name, ())
        simple, calls, of_vector = _expression(shape, own)
        places = (a.subscripts for a in (*shape.statement.writes, *shape.statement.reads))
        of_vector += 3 * INSTRUCTIONS * sum(part_left((place,), own) for place in places)
        total += shape.instances * (simple + calls + of_vector / vector)
    return total


# Nodes and calls of values: a search asks for those of a statement in many groups.
_counted: WeakKeyDictionary[Statement, tuple[int, int]] = WeakKeyDictionary()


def _expression(shape: Shape, loops: Loops) -> tuple[float, float, float]:
    """Return the simple operations of an instance, its calls, and what a vector does of indices."""
    statement = shape.statement
    value, reduction = statement.value, statement.reduction
    pairs = PAIR_OPERATIONS if reduction is not None and reduction.operator.is_arg else 0
    if loops and value is not None:
        simple, calls, of_indices = _left(value, loops)
        return simple + 6 * calls + pairs, calls, INSTRUCTIONS * of_indices / 3
    if (known := _counted.get(statement)) is None:
        nodes = list(walk(value)) if value is not None else []
        known = _counted[statement] = len(nodes), sum(isinstance(node, Call) for node in nodes)
    n_nodes, calls = known
    simple = 1 + n_nodes // 3 + 6 * calls + pairs
    return INSTRUCTIONS * simple, INSTRUCTIONS * calls, 0.0


def _left(value: Expr, loops: Loops) -> tuple[float, float, float]:
    """Return what is left of an instance of *value* in *loops*: operations, calls, of indices.

    Indices are in subscripts and in conditions on these: a vector has them once.  A sum of products
    has no addition of its own: it is fused.
    """
    simple = 0.0 if isinstance(value, Binary) and value.op == "*" else 1.0
    calls = of_indices = 0.0
    stack = [(value, 1.0, False)]
    while stack:
        node, around, is_index = stack.pop()
        loaded = tuple(n.subscripts for n in walk(node) if isinstance(n, Load))
        part = min(around, part_left(loaded, loops)) if loaded else around
        if is_index:
            of_indices += part
        elif isinstance(node, Call):
            calls += part
        elif not isinstance(node, Load | Const):
            simple += part
        is_condition = isinstance(node, Select) and not any(
            isinstance(n, Load) for n in walk(node.condition)
        )
        for child in children(node):
            of_condition = is_condition and isinstance(node, Select) and child is node.condition
            stack.append((child, part, is_index or of_condition or isinstance(node, Load)))
    return simple, calls, of_indices


def part_left(places: tuple[tuple[Expr, ...], ...], loops: Loops) -> float:
    """Return the number of different *places* among all iterations of *loops*, for each of these.

    1 where that is not known.
    """
    if not loops:
        return 1.0
    moved = [
        [coefficient_of(subscript, index) for index, _, _ in loops]
        for place in places
        for subscript in place
    ]
    if any(step is None for row in moved for step in row):
        return 1.0
    rows = [[c * step for c, (_, step, _) in zip(row, loops, strict=True) if c is not None]
            for row in moved]  # fmt: skip
    points = list(product(*(range(count) for _, _, count in loops)))
    different = {tuple(sum(map(int.__mul__, row, point)) for row in rows) for point in points}
    return len(different) / len(points)


def _is_double(problem: Problem, shape: Shape) -> bool:
    array = problem.scop.arrays[shape.statement.write.array]
    return array.dtype.is_float and array.dtype.size_bytes == 8
