"""What a benchmark found: a table, and a roofline drawn without any library or by matplotlib.

The roofline (Williams, Waterman, Patterson, Communications of the ACM 52(4), 2009,
doi:10.1145/1498765.1498785) has the intensity, operations a byte, to the right and operations a
second upwards, both as logarithms; no program of this intensity can be above the roof.
"""

import math
from typing import TYPE_CHECKING, Any

from tcdsl.display.html import Child, Html, mime_bundle, table, tag
from tcdsl.display.svg import circle, drawing, label, line, rect
from tcdsl.frontends.ceilings import Ceilings
from tcdsl.records import dataclass
from tcdsl.runtime.timing import Timing, format_us

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Measurement:
    """The time of one of those that were compared."""

    name: str
    timing: Timing


@dataclass(frozen=True, slots=True)
class Measurements:
    """The times of a call and of its peers, tcdsl's first.

    *least_bytes* are those of all inputs and outputs, once; *operations* those of the program as
    written.  *ceilings* are None where there is nothing to compare with.
    """

    title: str
    target: str
    rows: tuple[Measurement, ...]
    least_bytes: int
    operations: int
    ceilings: Ceilings | None
    notes: tuple[str, ...] = ()

    @property
    def times_us(self) -> dict[str, float]:
        """The medians, by name."""
        return {row.name: row.timing.median_us for row in self.rows}

    @property
    def floor_us(self) -> float | None:
        """The least time: to move the bytes or to compute, whichever takes longer."""
        if self.ceilings is None:
            return None
        return self.ceilings.floor_us(self.least_bytes, self.operations)

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / max(self.least_bytes, 1)

    def rate_gbs(self, name: str) -> float:
        """Return the least bytes over the time of *name*, in GB/s."""
        return self.least_bytes / max(self.times_us[name], 1e-9) * 1e-3

    def rate_gflops(self, name: str) -> float:
        """Return the operations over the time of *name*, in GFLOP/s."""
        return self.operations / max(self.times_us[name], 1e-9) * 1e-3

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Return the roofline, drawn by matplotlib on *axes* or on new ones."""
        from tcdsl.frontends.roofline import plot  # matplotlib is an extra

        return plot(self, axes)

    # --- as text and in notebooks ------------------------------------------------------------

    def __repr__(self) -> str:
        rows = self._cells()
        widths = [max(map(len, column)) for column in zip(self._head(), *rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if position else cell.ljust(width)
                for position, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (self._head(), *rows)
        ]
        return "\n".join([f"{self.title} on {self.target}", *lines, *self._remarks()])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        body: list[Child] = [
            tag("p", tag("strong", self.title), f" on {self.target}"),
            tag("div", [self._table(), roofline_svg(self)], class_="row"),
            [tag("p", remark, class_="note") for remark in self._remarks()],
        ]
        return mime_bundle(body, repr(self))

    def _table(self) -> Html:
        head, *rows = [
            [cells[0], *(tag("span", cell, class_="number") for cell in cells[1:])]
            for cells in (self._head(), *self._cells())
        ]
        return table(head, rows)

    def _head(self) -> tuple[str, ...]:
        known = ("of the floor",) if self.floor_us else ()
        return ("", "median", "spread", "GB/s", "GFLOP/s", *known, "time / tcdsl's")

    def _cells(self) -> list[tuple[str, ...]]:
        ours = self.rows[0].timing.median_us
        return [
            (
                row.name, format_us(row.timing.median_us), f"± {100 * row.timing.spread:.0f} %",
                f"{self.rate_gbs(row.name):.3g}", f"{self.rate_gflops(row.name):.3g}",
                *((f"{self.floor_us / row.timing.median_us:.2f}",) if self.floor_us else ()),
                f"{row.timing.median_us / max(ours, 1e-9):.2f}",
            )
            for row in self.rows
        ]  # fmt: skip

    def _remarks(self) -> list[str]:
        remarks = list(self.notes)
        if self.ceilings is not None and self.floor_us:
            c = self.ceilings
            is_bytes = self.least_bytes / c.copy_gbs >= self.operations / c.peak_gflops
            reason = "to move each input and output once" if is_bytes else "to compute"
            remarks.insert(
                0,
                f"floor: {format_us(self.floor_us)} {reason} "
                f"({self.least_bytes:,} bytes at {c.copy_gbs:.3g} GB/s, as a copy of as many; "
                f"{self.operations:,} operations at {c.peak_gflops:.4g} GFLOP/s)",
            )
        return remarks


# --- the drawing -------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 420.0, 240.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 402.0, 14.0, 204.0
_PAINTS = ("block", "unroll", "parallel", "vector", "lanes", "thread", "last")


@dataclass(frozen=True, slots=True)
class Scale:
    """The part of the plane that is drawn, from the least to the greatest power of ten."""

    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, intensity: float, gflops: float) -> tuple[float, float]:
        """Return where a point is in the drawing."""
        (x0, x1), (y0, y1) = self.x, self.y
        right = (math.log10(intensity) - x0) / (x1 - x0)
        up = (math.log10(gflops) - y0) / (y1 - y0)
        return _LEFT + right * (_RIGHT - _LEFT), _BOTTOM - up * (_BOTTOM - _TOP)


def scale_of(found: Measurements, ceilings: Ceilings) -> Scale:
    """Return what shows all points, the ridge of the roof, and a little around them."""
    ridge = ceilings.peak_gflops / ceilings.copy_gbs
    rates = [found.rate_gflops(row.name) for row in found.rows]
    x0 = math.floor(math.log10(min(found.intensity, ridge)) - 0.5)
    x1 = math.ceil(math.log10(max(found.intensity, ridge)) + 0.5)
    y0 = math.floor(math.log10(min([*rates, ceilings.roof_gflops(10.0**x0)])) - 0.1)
    y1 = math.ceil(math.log10(max([*rates, ceilings.peak_gflops])) + 0.1)
    return Scale((x0, x1), (y0, y1))


def roofline_svg(found: Measurements) -> Html | None:
    """Return the roofline; None for programs without arithmetic, which it says nothing of."""
    ceilings = found.ceilings
    if ceilings is None or not found.operations or not found.least_bytes:
        return None
    scale = scale_of(found, ceilings)
    ridge = ceilings.peak_gflops / ceilings.copy_gbs
    low, high = 10.0 ** scale.x[0], 10.0 ** scale.x[1]
    roof = [scale.at(x, ceilings.roof_gflops(x)) for x in (low, ridge, high)]
    title = f"Roofline of {found.title}: operations a second over operations a byte"
    return drawing(
        _WIDTH, _HEIGHT + 16 * ((len(found.rows) + 1) // 2), title,
        _grid(scale),
        line(roof[0], roof[1], "ink", stroke_width=1.6),
        line(roof[1], roof[2], "ink", stroke_width=1.6),
        label((roof[2][0] - 4, roof[2][1] - 5), f"{ceilings.peak_gflops:.3g} GFLOP/s",
              "muted", 10, "end"),
        label(((roof[0][0] + roof[1][0]) / 2 + 8, (roof[0][1] + roof[1][1]) / 2 + 12),
              f"{ceilings.copy_gbs:.3g} GB/s", "muted", 10),
        line(scale.at(found.intensity, 10.0 ** scale.y[0]),
             scale.at(found.intensity, ceilings.roof_gflops(found.intensity)),
             "line", stroke_dasharray="3 3"),
        [_point(found, scale, number) for number in range(len(found.rows))],
    )  # fmt: skip


def _grid(scale: Scale) -> list[Html]:
    """Return the frame, a line for each power of ten, and what the axes are."""
    parts = [rect((_LEFT, _TOP), (_RIGHT - _LEFT, _BOTTOM - _TOP), stroke="line")]
    for power in range(int(scale.x[0]), int(scale.x[1]) + 1):
        x, _ = scale.at(10.0**power, 10.0 ** scale.y[0])
        parts.append(line((x, _TOP), (x, _BOTTOM), "line", stroke_width=0.5))
        parts.append(label((x, _BOTTOM + 13), f"{10.0**power:g}", "muted", 10, "middle"))
    for power in range(int(scale.y[0]), int(scale.y[1]) + 1):
        _, y = scale.at(10.0 ** scale.x[0], 10.0**power)
        parts.append(line((_LEFT, y), (_RIGHT, y), "line", stroke_width=0.5))
        parts.append(label((_LEFT - 5, y + 3), f"{10.0**power:g}", "muted", 10, "end"))
    parts.append(label(((_LEFT + _RIGHT) / 2, _BOTTOM + 28), "operations a byte", "muted",
                       10, "middle"))  # fmt: skip
    parts.append(label((12, (_TOP + _BOTTOM) / 2), "GFLOP/s", "muted", 10, "middle",
                       transform=f"rotate(-90 12 {(_TOP + _BOTTOM) / 2:g})"))  # fmt: skip
    return parts


def _point(found: Measurements, scale: Scale, number: int) -> list[Html]:
    """Return the disc of a row, and its line of the legend."""
    name = found.rows[number].name
    paint = _PAINTS[number % len(_PAINTS)]
    at = _LEFT + (number % 2) * 185, _HEIGHT + 8 + 16 * (number // 2)
    return [
        circle(scale.at(found.intensity, found.rate_gflops(name)), 4.5, paint),
        circle((at[0], at[1] - 3.5), 4.5, paint),
        label((at[0] + 10, at[1]), name if len(name) < 28 else name[:26] + "…"),
    ]
