"""A roofline of candidates: the bytes that each moves in a second, over its operations a byte.

    bytes/s |  ________          the memory's rate; beyond the ridge, operations take longer
            |   o      \\         discs: candidates at their predicted times, the chosen one filled
            |   o       \\
            +-------------- operations a byte

What is far below the roof is limited by neither: by latency, idle multiprocessors, or the cache.
After S. Williams, A. Waterman, D. Patterson, Roofline, CACM 52(4), 2009,
doi:10.1145/1498765.1498785; with bytes in place of operations on the vertical axis, for most of
what is weighed moves memory.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, log10

from tcdsl.display.candidates_text import Candidate, Chip
from tcdsl.display.html import Html
from tcdsl.display.svg import Point, circle, drawing, label, line, rect, shape
from tcdsl.records import dataclass

WIDTH, HEIGHT = 420.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 406.0, 12.0, 188.0
NEAR = 3.0  # pixels: discs that are closer are drawn once


@dataclass(frozen=True, slots=True)
class Scale:
    """The part of the plane that is drawn, between powers of ten."""

    x: Point
    y: Point

    def at(self, intensity: float, bytes_per_s: float) -> Point:
        """Return where a point is in the drawing."""
        (x0, x1), (y0, y1) = self.x, self.y
        right = (log10(intensity) - x0) / (x1 - x0)
        up = (log10(bytes_per_s) - y0) / (y1 - y0)
        return LEFT + right * (RIGHT - LEFT), BOTTOM - up * (BOTTOM - TOP)


def roofline(chip: Chip, candidates: Sequence[Candidate]) -> Html | None:
    """Return the roofline of *chip* with *candidates*; None where none moves and computes."""
    shown = [c for c in candidates if c["moved_bytes"] and c["operations"]]
    if not shown:
        return None
    points = [(c["operations"] / c["moved_bytes"], _rate(c)) for c in shown]
    scale = _scale(chip, points)
    low, high = 10.0 ** scale.x[0], 10.0 ** scale.x[1]
    ridge = chip.operations_per_s / chip.bytes_per_s
    corners = [scale.at(x, _roof(chip, x)) for x in (low, ridge, high)]
    discs: dict[tuple[int, int], Html] = {}
    for candidate, point in reversed(list(zip(shown, points, strict=True))):
        x, y = scale.at(*point)
        place = round(x / NEAR), round(y / NEAR)
        discs.pop(place, None)  # so that the chosen one, which comes last, is drawn above others
        discs[place] = _disc((x, y), is_chosen=candidate["is_chosen"])
    return drawing(
        WIDTH, HEIGHT, f"Roofline of {chip.name}: bytes a second over operations a byte",
        _grid(scale),
        [line(a, b, "ink", stroke_width=1.6) for a, b in pairwise(corners)],
        label((corners[0][0] + 6, corners[0][1] - 5), f"{_si(chip.bytes_per_s)}B/s", "muted", 10),
        label((RIGHT - 4, corners[1][1] - 5), f"{_si(chip.operations_per_s)} operations/s",
              "muted", 10, "end"),
        list(discs.values()),
        _legend(),
    )  # fmt: skip


def _rate(candidate: Candidate) -> float:
    return float(candidate["moved_bytes"] / (1e-6 * candidate["predicted_us"]))


def _roof(chip: Chip, intensity: float) -> float:
    return min(chip.bytes_per_s, chip.operations_per_s / intensity)


def _scale(chip: Chip, points: Sequence[Point]) -> Scale:
    """Return what shows all *points*, the ridge, and a little around them."""
    ridge = chip.operations_per_s / chip.bytes_per_s
    xs = [ridge, *(x for x, _ in points)]
    x0, x1 = floor(log10(min(xs)) - 0.3), ceil(log10(max(xs)) + 0.3)
    rates = [chip.bytes_per_s, _roof(chip, 10.0**x1), *(y for _, y in points)]
    y0, y1 = floor(log10(min(rates)) - 0.1), ceil(log10(max(rates)) + 0.1)
    return Scale((x0, x1), (y0, y1))


def _disc(at: Point, *, is_chosen: bool) -> Html:
    if is_chosen:
        return circle(at, 5, "good")
    return shape("circle", ("ground", "tile"), cx=at[0], cy=at[1], r=3.5, stroke_width=1.4)


def _legend() -> list[Html]:
    y = HEIGHT - 4
    return [
        _disc((LEFT + 4, y - 3.5), is_chosen=True), label((LEFT + 14, y), "chosen"),
        _disc((LEFT + 74, y - 3.5), is_chosen=False), label((LEFT + 84, y), "other candidates"),
    ]  # fmt: skip


def _grid(scale: Scale) -> list[Html]:
    """Return the frame, a line for each power of ten, and what the axes are."""
    parts = [rect((LEFT, TOP), (RIGHT - LEFT, BOTTOM - TOP), stroke="line")]
    for power in range(int(scale.x[0]), int(scale.x[1]) + 1):
        x, _ = scale.at(10.0**power, 10.0 ** scale.y[0])
        parts.append(line((x, TOP), (x, BOTTOM), "line", stroke_width=0.5))
        parts.append(label((x, BOTTOM + 13), f"{10.0**power:g}", "muted", 10, "middle"))
    for power in range(int(scale.y[0]), int(scale.y[1]) + 1):
        _, y = scale.at(10.0 ** scale.x[0], 10.0**power)
        parts.append(line((LEFT, y), (RIGHT, y), "line", stroke_width=0.5))
        parts.append(label((LEFT - 5, y + 3), f"{_si(10.0**power)}B/s", "muted", 10, "end"))
    middle = (LEFT + RIGHT) / 2
    return [*parts, label((middle, BOTTOM + 26), "operations a byte", "muted", 10, "middle")]


def _si(value: float) -> str:
    """Return *value* with the prefix of its thousands: ``4.04 T``."""
    for power, prefix in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {prefix}"
    return f"{value:.3g} "
