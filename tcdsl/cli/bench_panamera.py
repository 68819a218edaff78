"""The single reductions that Panamera's authors timed, beside CUB and cuDNN as they did.

PACT 2022, doi:10.1145/3559009.3569656: on a V100, with CUB 1.8 and cuDNN 7.6.4, their code was 3.5
times as fast as CUB (2.1 without CUB's copies of columns to rows) and 33.7 times as fast as cuDNN.
These are means over sums, maxima and conjunctions, of float32 and int32 in the shapes below, of
float16 and bool in smaller ones.  Here columns are copied too; bools have the shapes below; and a
disjunction of columns stands for the conjunction that the library does not have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tcdsl.cli.bench_measured import Measured, mean_ratio
from tcdsl.cli.bench_report import ratio_text, sizes_text, time_text
from tcdsl.cli.console import markdown_table

CUB, CUDNN = "cub", "cudnn"
PAPER: Mapping[str, float] = {CUB: 3.5, CUDNN: 33.7}
TYPES = ("float32", "int32", "bool")
_NAMES: Mapping[str, str] = {CUB: "CUB", CUDNN: "cuDNN"}


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
        if direction_of(one) and any(peer in one.row.times_us for peer in PAPER)
    ]  # fmt: skip
    if not found:
        return ""
    return f"### Panamera's shapes\n\n{factors_table(found)}\n\n{panamera_table(found)}"


def factors_table(rows: Sequence[Measured]) -> str:
    """Return the mean factors over CUB and cuDNN, the paper's beside them."""
    header = ("shapes", "library", "cases", "its time / tcdsl", "in the paper")
    directions = {"all of them": list(rows)} | {
        shapes.direction: [one for one in rows if direction_of(one) == shapes.direction]
        for shapes in SHAPES
    }
    body = []
    for direction, chosen in directions.items():
        for peer, paper in PAPER.items():
            count = sum(one.peer_ratio(peer) is not None for one in chosen)
            beside = f"{paper}" if direction == "all of them" else ""
            body.append((direction, _NAMES[peer], str(count),
                         ratio_text(mean_ratio(chosen, peer)), beside))  # fmt: skip
    return markdown_table(header, body, n_left=2)


def panamera_table(rows: Sequence[Measured]) -> str:
    """Return the times of *rows*, and the factors over either library."""
    header = ("shapes", "case", "type", "sizes", "tcdsl", *_NAMES.values(),
              *(f"{name} / tcdsl" for name in _NAMES.values()))  # fmt: skip
    body = [
        (
            direction_of(one) or "", one.row.case, one.row.dtype, sizes_text(one.row.sizes),
            *(time_text(one.row, name) for name in ("tcdsl", *PAPER)),
            *(ratio_text(one.peer_ratio(peer)) for peer in PAPER),
        )
        for one in rows
    ]  # fmt: skip
    return markdown_table(header, body, n_left=4)
