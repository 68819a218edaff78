"""The report of ``tcdsl bench``: times, ratios and geometric means, as Markdown and JSON."""

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import geometric_mean

from tcdsl.cli.console import markdown_table
from tcdsl.records import dataclass
from tcdsl.runtime.timing import format_us
from tcdsl.version import __version__

EAGER = ("numpy", "torch")

Key = tuple[str, str, str]  # what names a row: case, sizes, element type


@dataclass(frozen=True, slots=True)
class Launches:
    """What a call does on a GPU: kernels, the shape of the first, and bytes that it cannot save.

    A memset counts as a kernel: it takes its turn on the stream, too.

    *least_bytes* are those of all inputs and outputs, once; of a tensor of which only gathered
    elements are read, these.
    """

    least_bytes: int
    kernels: int
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One case at one choice of sizes: the median time of tcdsl ("tcdsl") and of each peer.

    *first_s* are the seconds of each one's first call, its compilation or loading included.
    """

    case: str
    family: str
    dtype: str
    sizes: Mapping[str, int]
    times_us: Mapping[str, float] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    launches: Launches | None = None
    first_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What names the row."""
        return self.case, sizes_text(self.sizes), self.dtype

    @property
    def label(self) -> str:
        """The row's name in a line of text."""
        return f"{self.case} {sizes_text(self.sizes)} {self.dtype}"

    @property
    def rate_gbs(self) -> float | None:
        """The least bytes of tcdsl's call over its time, in GB/s."""
        if self.launches is None or "tcdsl" not in self.times_us:
            return None
        return self.launches.least_bytes / self.times_us["tcdsl"] * 1e-3

    @property
    def peers_us(self) -> dict[str, float]:
        """The peers' times alone."""
        return {name: time for name, time in self.times_us.items() if name != "tcdsl"}

    def ratio(self, peers: Iterable[str]) -> float | None:
        """Return the time of the best of *peers* over tcdsl's (above 1: tcdsl is faster)."""
        times = [self.peers_us[peer] for peer in peers if peer in self.peers_us]
        return min(times) / self.times_us["tcdsl"] if times and "tcdsl" in self.times_us else None


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Return *sizes* as ``M=64 N=32``."""
    return " ".join(f"{name}={value}" for name, value in sizes.items())


def ratio_text(ratio: float | None) -> str:
    """Return *ratio* with two digits after the point."""
    return "-" if ratio is None else f"{ratio:.2f}"


def times_table(
    rows: Sequence[Row], peers: Sequence[str], copy_rate_gbs: float | None = None
) -> str:
    """Return the table of all *rows*; those of a GPU also tell their rates and launches.

    :arg copy_rate_gbs: what a copy on the GPU moves in a second, read and written.
    """
    has_types = len({row.dtype for row in rows}) > 1
    header = ["case", "sizes", *(("type",) if has_types else ()), "tcdsl", *peers]
    header.append("best peer / tcdsl")
    if copy_rate_gbs is not None:
        header += ["GB/s", "of a copy's", "kernels", "grid", "block"]
    body = []
    for row in rows:
        cells = [row.case, sizes_text(row.sizes), *((row.dtype,) if has_types else ())]
        cells += [time_text(row, name) for name in ("tcdsl", *peers)]
        cells.append(ratio_text(row.ratio(peers)))
        if copy_rate_gbs is not None:
            cells += _launch_cells(row, copy_rate_gbs)
        body.append(cells)
    return markdown_table(header, body, n_left=2 + has_types)


def time_text(row: Row, name: str) -> str:
    """Return the time of *name* in *row*, or a dash."""
    return format_us(row.times_us[name]) if name in row.times_us else "-"


def _launch_cells(row: Row, copy_rate_gbs: float) -> list[str]:
    if row.launches is None or row.rate_gbs is None:
        return ["-"] * 5
    rate, launches = row.rate_gbs, row.launches
    shapes = dim3_text(launches.grid), dim3_text(launches.block)
    return [f"{rate:.0f}", ratio_text(rate / copy_rate_gbs), str(launches.kernels), *shapes]


def dim3_text(extents: Sequence[int]) -> str:
    """Return a grid or block as ``8x4``, without the ones at its end; "-" where there is none."""
    if not extents:
        return "-"
    last = max((axis for axis, extent in enumerate(extents) if extent != 1), default=0)
    return "x".join(map(str, extents[: last + 1]))


def means_table(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """Return the table of geometric means of (peer's time / tcdsl's), a family a row."""
    choices: dict[str, tuple[str, ...]] = {peer: (peer,) for peer in peers}
    if len(peers) > 1:
        choices["best eager"] = tuple(peer for peer in peers if peer in EAGER)
        choices["best"] = tuple(peers)
    families = list(dict.fromkeys(row.family for row in rows))
    body = []
    for family in [*families, "all"]:
        chosen = [row for row in rows if family in (row.family, "all")]
        means = [mean(row.ratio(choice) for row in chosen) for choice in choices.values()]
        body.append((family, str(len(chosen)), *map(ratio_text, means)))
    return markdown_table(("family", "cases", *(f"{name} / tcdsl" for name in choices)), body)


def mean(ratios: Iterable[float | None]) -> float | None:
    """Return the geometric mean of those *ratios* that are known, and not 0."""
    known = [ratio for ratio in ratios if ratio]
    return geometric_mean(known) if known else None


def machine() -> dict[str, str]:
    """Return what the times depend on: processor, threads and versions."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "tcdsl": __version__,
        **{name: version_of(name) for name in ("numpy", "torch")},
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def version_of(package: str) -> str:
    """Return the version of an installed *package*."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def write_json(rows: Sequence[Row], path: Path, about: Mapping[str, str] | None = None) -> None:
    """Write *rows* and the machine, by default this processor, to *path*."""
    report = {"machine": about or machine(), "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
