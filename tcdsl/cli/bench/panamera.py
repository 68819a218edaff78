"""The single reductions that Panamera's authors timed, beside CUB and cuDNN as they did.

PACT 2022, doi:10.1145/3559009.3569656: on a V100, with CUB 1.8 and cuDNN 7.6.4, their code was 3.5
times as fast as CUB (2.1 without CUB's copies of columns to rows) and 33.7 times as fast as cuDNN.
These are means over sums, maxima and conjunctions, of float32 and int32 in the shapes below, of
float16 and bool in smaller ones.  Here columns are copied too; bools have the shapes below; and a
disjunction of columns stands for the conjunction that the library does not have.  PyTorch's copies
of columns to rows are far from what memory allows: CUB's factor without them says more.
"""

from collections.abc import Sequence

from tcdsl.cli.bench.measured import Measured
from tcdsl.cli.bench.report import mean, ratio_text, sizes_text, time_text
from tcdsl.cli.console import markdown_table
from tcdsl.library.cub_peers import ROWS
from tcdsl.records import dataclass
from tcdsl.runtime.timing import format_us

TYPES = ("float32", "int32", "bool")
_ALL_SHAPES = "all of them"
_ABOUT = """\
Single reductions compared with CUB and cuDNN. CUB reduces rows: PyTorch first copies columns to
rows, and CUB's time includes the copy. The paper's factors are from a V100, CUB 1.8 and cuDNN
7.6.4, and also count smaller types, float16 and bool."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library, the first of *peers* that was timed, and the paper's mean factor over it."""

    name: str
    peers: tuple[str, ...]
    factor: float

    def time_us(self, one: Measured) -> float | None:
        """Return its time, None if there is none."""
        return next((one.row.times_us[p] for p in self.peers if p in one.row.times_us), None)

    def ratio(self, one: Measured) -> float | None:
        """Return its time over tcdsl's."""
        return one.over_tcdsl(self.time_us(one))


LIBRARIES = (
    Library("CUB", ("cub",), 3.5),
    Library("CUB without copies", (ROWS, "cub"), 2.1),  # the same where nothing is copied
    Library("cuDNN", ("cudnn",), 33.7),
)


@dataclass(frozen=True, slots=True)
class Shapes:
    """What the paper has of one direction: the library's cases, their sizes."""

    direction: str
    cases: tuple[str, ...]
    sizes: tuple[str, ...]


SHAPES = (
    Shapes("all", ("all_sum", "all_max", "all_and"),
           ("N=128", "N=65536", "N=1048576", "N=16226304")),
    Shapes("rows", ("row_sum", "row_max", "row_and"),
           ("M=768 N=768", "M=768 N=21128", "M=256 N=802816")),
    Shapes("columns", ("column_sum", "column_max", "column_or"),
           ("M=768 N=768", "M=21128 N=768", "M=802816 N=256")),
)  # fmt: skip


def direction_of(one: Measured) -> str | None:
    """Return the direction of a row that the paper has, or None."""
    sizes = sizes_text(one.row.sizes)
    for shapes in SHAPES:
        if one.row.case in shapes.cases and sizes in shapes.sizes and one.row.dtype in TYPES:
            return shapes.direction
    return None


def panamera_section(rows: Sequence[Measured]) -> str:
    """Return the factors and the times, "" where neither CUB nor cuDNN was timed."""
    found = [
        one for one in rows
        if direction_of(one) and any(library.time_us(one) for library in LIBRARIES)
    ]  # fmt: skip
    if not found:
        return ""
    tables = factors_table(found), panamera_table(found)
    return "\n\n".join(("### Panamera's shapes", _ABOUT, *tables))


def factors_table(rows: Sequence[Measured]) -> str:
    """Return the mean factors over each library, the paper's beside them."""
    header = ("shapes", "library", "cases", "its time / tcdsl", "in the paper")
    directions = {_ALL_SHAPES: list(rows)} | {
        shapes.direction: [one for one in rows if direction_of(one) == shapes.direction]
        for shapes in SHAPES
    }
    body = []
    for direction, chosen in directions.items():
        for library in LIBRARIES:
            ratios = [ratio for one in chosen if (ratio := library.ratio(one)) is not None]
            paper = f"{library.factor}" if direction == _ALL_SHAPES else ""
            found = ratio_text(mean(ratios))
            body.append((direction, library.name, str(len(ratios)), found, paper))
    return markdown_table(header, body, n_left=2)


def panamera_table(rows: Sequence[Measured]) -> str:
    """Return the times of *rows*, and the factors over each library."""
    names = [library.name for library in LIBRARIES]
    header = ("shapes", "case", "type", "sizes", "tcdsl", *names,
              *(f"{name} / tcdsl" for name in names))  # fmt: skip
    body = []
    for one in rows:
        times = [library.time_us(one) for library in LIBRARIES]
        body.append((
            direction_of(one) or "", one.row.case, one.row.dtype, sizes_text(one.row.sizes),
            time_text(one.row, "tcdsl"), *(format_us(t) if t else "-" for t in times),
            *(ratio_text(library.ratio(one)) for library in LIBRARIES),
        ))  # fmt: skip
    return markdown_table(header, body, n_left=4)
