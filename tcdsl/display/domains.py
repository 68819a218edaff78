"""Iteration domains in two dimensions: points, dependences as arrows, tiles as lines.

    n ^   . . . .       A domain of up to some hundred points is drawn point by point, larger ones
      |   . . . .       as their outline.  A statement with more dimensions is seen along the
      |   .>. . .       others: its points are projected onto two.
      +----------> m

Dependences are those of a statement on itself, from each instance to the next that depends on it.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations

import islpy as isl

from tcdsl.display import svg
from tcdsl.display.html import Html, join, tag
from tcdsl.poly.dependences import Dependence
from tcdsl.poly.isl_utils import constant_bounds, val
from tcdsl.poly.loop_tree import Coordinate, Node, loops_around, statements_of
from tcdsl.poly.scop import Statement
from tcdsl.records import dataclass

MAX_POINTS = 20  # along an axis, to be drawn one by one
SIDE = 240.0  # pixels of the longer axis
STRIP = 26.0  # of an axis with one value
MARGIN = (46.0, 16.0, 16.0, 34.0)  # left, top, right, bottom
MAX_ARROWS = 420
SAMPLES = 24  # columns of an outline
MIN_TILE = 5.0  # pixels between lines that can be told apart


@dataclass(frozen=True, slots=True)
class Tiling:
    """Lines at ``shift + size * k``."""

    shift: int
    size: int


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis of a drawing: the values ``low`` to ``high``, on pixels from ``start`` on."""

    name: str
    low: int
    high: int
    start: float
    length: float
    is_up: bool  # larger values are further up

    @property
    def step(self) -> float:
        return self.length / (self.high - self.low + 1)

    def at(self, value: float) -> float:
        """Return the pixel of the middle of *value*."""
        distance = (value - self.low + 0.5) * self.step
        return self.start + self.length - distance if self.is_up else self.start + distance

    def edge(self, value: float) -> float:
        """Return the pixel where *value* begins."""
        return self.at(value - 0.5)


def tilings_of(tree: Node, statement: str) -> dict[int, Tiling]:
    """Return how the loops of *tree* cut the dimensions of *statement*: the coarsest cuts."""
    found: dict[int, Tiling] = {}
    if statement not in statements_of(tree):
        return found
    for loop in loops_around(tree, statement):
        coordinate = loop.coordinates[statement]
        if isinstance(coordinate, Coordinate) and coordinate.div > 1:
            known = found.get(coordinate.position)
            if known is None or known.size < coordinate.div:
                found[coordinate.position] = Tiling(coordinate.shift, coordinate.div)
    return found


def chosen_dims(statement: Statement, dependences: Sequence[Dependence]) -> list[tuple[int, int]]:
    """Return the pairs of dimensions to draw, the most telling first.

    These are the ones along which dependences run, and long ones.
    """
    dims = [d for d in range(len(statement.indices)) if _extent(statement.domain, d) > 1]
    if len(dims) < 2:
        rest = [d for d in range(len(statement.indices)) if d not in dims]
        dims = sorted((dims + rest)[:2])
    moving = {d for d in dims if any(_moves(edge, d) for edge in dependences)}

    def weight(pair: tuple[int, int]) -> tuple[int, int, tuple[int, int]]:
        carried = sum(d in moving for d in pair)
        return -carried, -sum(min(_extent(statement.domain, d), MAX_POINTS) for d in pair), pair

    return sorted(combinations(dims, 2), key=weight)


def _extent(domain: isl.Set, dim: int) -> int:
    bounds = constant_bounds(domain, dim)
    return 0 if bounds is None else bounds[1] - bounds[0] + 1


def _moves(edge: Dependence, dim: int) -> bool:
    bounds = constant_bounds(next_ones(edge).deltas(), dim)
    return bounds is None or bounds != (0, 0)


def next_ones(edge: Dependence) -> isl.Map:
    """Return, for each instance and each way to depend on it, the next instance that does so.

    Of updates whose order is free there is one way, whatever pieces isl has it in.
    """
    if edge.is_relaxed:
        return edge.relation.lexmin()
    # Not coalesced: isl makes one piece of (0, 1) and (1, 0), whose lexmin has one of them only.
    pieces = [isl.Map.from_basic_map(piece).lexmin() for piece in edge.relation.get_basic_maps()]
    return reduce(isl.Map.union, pieces)


def draw_domain(
    statement: Statement,
    dims: tuple[int, int],
    dependences: Sequence[Dependence],
    tilings: Mapping[int, Tiling],
) -> Html | None:
    """Return the drawing of *statement* projected onto *dims*; None: its size is open, or zero.

    :arg dependences: of the statement on itself.
    """
    across, up = dims
    bounds = [constant_bounds(statement.domain, dim) for dim in dims]
    if bounds[0] is None or bounds[1] is None:
        return None
    x, y = _axes([statement.indices[d] for d in dims], (bounds[0], bounds[1]))
    points = _projected(statement.domain, across, up)
    is_small = max(x.high - x.low, y.high - y.low) < MAX_POINTS
    corners = [] if is_small else _outline(points, x, y)
    body = [_ground(corners, x, y)]
    lines, cuts = _tile_lines(x, y, tilings.get(across), tilings.get(up))
    body += [*lines, _labels(x, y)]
    notes = [f"tiles of {text}" for text in cuts]
    for edge in dependences:
        arrows, note = _arrows(edge, dims, x, y, corners)
        body.append(tag("g", arrows))
        if note:
            notes.append(note)
    if is_small:
        body += [svg.circle((x.at(px), y.at(py)), 2.2) for px, py in _points_of(points)]
    hidden = [n for d, n in enumerate(statement.indices) if d not in dims]
    if hidden:
        notes.append(f"seen along {', '.join(hidden)}")
    width = x.start + x.length + MARGIN[2]
    height = y.start + y.length + MARGIN[3]
    title = f"iteration domain of {statement.name} over {x.name} and {y.name}"
    drawn = svg.drawing(round(width), round(height), title, body)
    caption = f"{statement.name}: {x.name} to the right, {y.name} up"
    return tag(
        "figure", drawn, tag("figcaption", "; ".join([caption, *notes]), class_="note"),
    )  # fmt: skip


def _axes(names: Sequence[str], bounds: tuple[tuple[int, int], tuple[int, int]]) -> list[_Axis]:
    """Return both axes, in proportion as far as that can be read."""
    extents = [high - low + 1 for low, high in bounds]
    longest = max(extents)
    lengths = [
        STRIP if n == 1 else min(SIDE, max(SIDE * n / longest, min(SIDE / 4, 14.0 * n)))
        for n in extents
    ]
    return [
        _Axis(name, low, high, start, length, is_up)
        for name, (low, high), start, length, is_up in zip(
            names, bounds, MARGIN[:2], lengths, (False, True), strict=True
        )
    ]


def _projected(domain: isl.Set, across: int, up: int) -> isl.Set:
    """Return { [x, y] }: the points of *domain* seen along all other dimensions."""
    rank = domain.dim(isl.dim_type.set)
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=["x", "y"])
    seen = isl.Map.from_domain_and_range(domain.reset_tuple_id(), isl.Set.universe(space))
    seen = seen.equate(isl.dim_type.in_, across, isl.dim_type.out, 0)
    seen = seen.equate(isl.dim_type.in_, up, isl.dim_type.out, 1)
    assert rank > max(across, up)
    return seen.range().coalesce()


def _points_of(points: isl.Set) -> list[tuple[int, int]]:
    """Return all points of *points*, which are few."""
    found: list[tuple[int, int]] = []

    def visit(point: isl.Point) -> None:
        found.append((_coordinate(point, 0), _coordinate(point, 1)))

    points.foreach_point(visit)
    return sorted(found)


def _coordinate(point: isl.Point, dim: int) -> int:
    value = point.get_coordinate_val(isl.dim_type.set, dim).to_python()
    return int(value)


def _ground(corners: Sequence[svg.Point], x: _Axis, y: _Axis) -> Html:
    """Return the frame, and the outline if there is one."""
    frame = svg.rect((x.start, y.start), (x.length, y.length), fill="panel", stroke="line")
    outline = svg.polygon(corners, "point", "point", fill_opacity=0.18, stroke_opacity=0.7)
    return join(frame, outline if corners else None)


def _outline(points: isl.Set, x: _Axis, y: _Axis) -> list[svg.Point]:
    """Return the corners around *points*: the least and the largest y at some of the x."""
    count = x.high - x.low + 1
    columns = sorted({x.low + round(k * (count - 1) / SAMPLES) for k in range(SAMPLES + 1)})
    lower: list[svg.Point] = []
    upper: list[svg.Point] = []
    for column in columns:
        at = constant_bounds(points.fix_val(isl.dim_type.set, 0, val(column)), 1)
        if at is None:
            continue
        left, right = x.edge(column), x.edge(column + 1)
        middle = (left + right) / 2
        spots = (left, middle, right) if column in (x.low, x.high) else (middle,)
        lower += [(spot, y.edge(at[0])) for spot in spots]
        upper += [(spot, y.edge(at[1] + 1)) for spot in spots]
    return [*lower, *reversed(upper)]


def _labels(x: _Axis, y: _Axis) -> Html:
    base, side = y.start + y.length, x.start
    ends = [
        svg.label((x.at(value), base + 13), str(value), "muted", anchor="middle", size=10)
        for value in dict.fromkeys((x.low, x.high))
    ]
    ends += [
        svg.label((side - 5, y.at(value) + 3.5), str(value), "muted", anchor="end", size=10)
        for value in dict.fromkeys((y.low, y.high))
    ]
    names = [
        svg.label((x.start + x.length / 2, base + 28), x.name, anchor="middle", size=12),
        svg.label((12, y.start + y.length / 2 + 4), y.name, anchor="middle", size=12),
    ]
    return join(ends, names)


def _tile_lines(
    x: _Axis, y: _Axis, across: Tiling | None, up: Tiling | None
) -> tuple[list[Html], list[str]]:
    """Return the lines between tiles, and what they are of, as text."""
    lines: list[Html] = []
    texts = []
    for axis, tiling in ((x, across), (y, up)):
        if tiling is None or tiling.size > axis.high - axis.low:
            continue
        texts.append(f"{tiling.size} {axis.name}")
        first = tiling.shift + -(-(axis.low - tiling.shift) // tiling.size) * tiling.size
        cuts = [v for v in range(first, axis.high + 1, tiling.size) if v > axis.low]
        # Lines that would run together: one in so many is drawn.
        every = max(1, -(-int(MIN_TILE * 100) // max(1, int(tiling.size * axis.step * 100))))
        if every > 1:
            texts[-1] += f" (a line every {every})"
        for cut in cuts[every - 1 :: every]:
            spot = axis.edge(cut)
            if axis is x:
                start, end = (spot, y.start), (spot, y.start + y.length)
            else:
                start, end = (x.start, spot), (x.start + x.length, spot)
            lines.append(svg.line(start, end, "tile", stroke_opacity=0.75))
    return lines, texts


def _arrows(
    edge: Dependence,
    dims: tuple[int, int],
    x: _Axis,
    y: _Axis,
    corners: Sequence[svg.Point],
) -> tuple[list[Html], str]:
    """Return the arrows of *edge*, and what they are as text; none where the view hides it."""
    nearest = next_ones(edge)
    deltas = nearest.deltas()
    spans = [constant_bounds(deltas, dim) for dim in dims]
    if None in spans or all(span == (0, 0) for span in spans):
        return [], ""
    what = "flow" if edge.is_flow else "order"
    paint = "relaxed" if edge.is_relaxed else "flow"
    dashes = "3 2" if edge.is_relaxed else None
    steps = [span for span in spans if span is not None]
    note = f"dependence ({_step_text(steps)}) through {edge.array}, {what}"
    if edge.is_relaxed:
        note = f"updates of {edge.array}, whose order is free"
    if not corners:
        pairs = _pairs(nearest, dims)
        if len(pairs) <= MAX_ARROWS:
            return [
                _short_arrow((x.at(a), y.at(b)), (x.at(c), y.at(d)), paint, dashes)
                for (a, b), (c, d) in pairs
            ], note
    # One arrow a direction, from the middle, as long as can be seen.
    arrows = []
    for piece in nearest.get_basic_maps():
        own = [constant_bounds(isl.Map.from_basic_map(piece).deltas(), dim) for dim in dims]
        dx, dy = (0.0 if span is None else sum(span) / 2 for span in own)
        way = dx * x.step, -dy * y.step
        is_within = abs(way[0]) < x.length / 2 and abs(way[1]) < y.length / 2
        if (dx or dy) and is_within:  # else it leads from one end to the other
            arrows.append(_long_arrow(_middle(corners, x, y), way, paint, dashes))
    return list(dict.fromkeys(arrows)), note


def _middle(corners: Sequence[svg.Point], x: _Axis, y: _Axis) -> svg.Point:
    """Return a point well inside what *corners* surround; without corners, inside the frame."""
    if not corners:
        return x.start + x.length / 2, y.start + y.length / 2
    across, up = zip(*corners, strict=True)
    return sum(across) / len(corners), sum(up) / len(corners)


def _long_arrow(start: svg.Point, way: svg.Point, paint: str, dashes: str | None) -> Html:
    """Return the arrow *way* from *start*, at least as long as can be seen."""
    length = max((way[0] ** 2 + way[1] ** 2) ** 0.5, 1e-6)
    scale = max(1.0, 26.0 / length)
    end = start[0] + way[0] * scale, start[1] + way[1] * scale
    return svg.arrow(start, end, paint, 7, stroke_width=1.6, stroke_dasharray=dashes)


def _short_arrow(start: svg.Point, end: svg.Point, paint: str, dashes: str | None) -> Html:
    """Return an arrow that leaves both of its points to be seen."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    gap = min(3.5, 0.25 * length)
    ux, uy = dx / length * gap, dy / length * gap
    head = min(4.5, 0.4 * length)
    inner = (start[0] + ux, start[1] + uy), (end[0] - ux, end[1] - uy)
    return svg.arrow(*inner, paint, head, stroke_opacity=0.85, stroke_dasharray=dashes)


def _pairs(
    relation: isl.Map, dims: tuple[int, int]
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the ends of the dependences of *relation*, seen along the other dimensions."""
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=["a", "b", "c", "d"])
    pairs = relation.wrap().flatten().reset_tuple_id()
    rank = pairs.dim(isl.dim_type.set) // 2
    seen = isl.Map.from_domain_and_range(pairs, isl.Set.universe(space))
    for out, dim in enumerate((*dims, rank + dims[0], rank + dims[1])):
        seen = seen.equate(isl.dim_type.in_, dim, isl.dim_type.out, out)
    found: set[tuple[tuple[int, int], tuple[int, int]]] = set()

    def visit(point: isl.Point) -> None:
        a, b, c, d = (_coordinate(point, dim) for dim in range(4))
        if (a, b) != (c, d):
            found.add(((a, b), (c, d)))

    seen.range().foreach_point(visit)
    return sorted(found)


def _step_text(spans: Sequence[tuple[int, int]]) -> str:
    return ", ".join(str(low) if low == high else f"{low}..{high}" for low, high in spans)
