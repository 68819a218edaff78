"""Predicted times beside measured ones: of the kernels that the compiler chooses, for an H200.

    python benchmarks/predictions.py                   what docs/performance_gpu.md measured
    python benchmarks/predictions.py --only 'softmax*' --worst 20

Needs no GPU: the driver compiles as far as text, for the cost model's chip.  A program's time is
the sum of its kernels'; last blocks belong to the kernel before them.  What is compared are the
tables of the page, made by an older tree in places: kernels whose choice has changed since say
little of the model.
"""

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from candidates_again import plan_of
from candidates_lines import rank_correlation

from tcdsl.costmodel.chip import load_chip

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance_gpu.md"
FIRST, LAST = "## Every case", "## Other types"
LONG_US = 40  # from when on a launch and latencies are a small part
IN_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3}


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of the page."""

    case: str
    dtype: str
    sizes: str
    us: float

    @property
    def label(self) -> str:
        return f"{self.case} {self.dtype} {self.sizes}"


def measured() -> Iterator[Measured]:
    """Yield the rows of the page's table of every case."""
    text = PAGE.read_text(encoding="utf-8")
    for line in text[text.index(FIRST) : text.index(LAST)].splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) > 5 and "=" in cells[2]:
            number, unit = cells[4].split()
            dtype = cells[1].split()[0]  # what may follow names the run that a line is of
            yield Measured(cells[0], dtype, cells[2], float(number) * IN_US[unit])


def predicted_us(row: Measured) -> float:
    """Return the time that the cost model predicts for the kernels of *row*."""
    sizes = {name: int(value) for name, value in (pair.split("=") for pair in row.sizes.split())}
    plan = plan_of(row.case, row.dtype, sizes, load_chip("h200"))
    chosen = (c for one in plan.weighed for c in one.candidates() if c.get("is_chosen"))
    return sum(float(candidate.get("predicted_us", 0.0)) for candidate in chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*", help="programs, with * and ?")
    parser.add_argument("--worst", type=int, default=8, help="that many on either side")
    args = parser.parse_args()
    rows = [row for row in measured() if fnmatchcase(row.label, f"{args.only}")]
    found = [(row, predicted_us(row)) for row in rows]
    found = [(row, us) for row, us in found if us]
    times = [row.us for row, _ in found], [us for _, us in found]
    print(f"{len(found)} programs, rank correlation {rank_correlation(*times):.3f}")
    for title, least in (("all", 0), (f"from {LONG_US} us on", LONG_US)):
        ratios = [us / row.us for row, us in found if row.us >= least]
        deciles = statistics.quantiles(ratios, n=10)
        print(f"{title}: predicted / measured {statistics.median(ratios):.2f} at the median,"
              f" {deciles[0]:.2f} and {deciles[-1]:.2f} at the outer tenths")  # fmt: skip
    long = sorted(
        ((us / row.us, row) for row, us in found if row.us >= LONG_US), key=lambda pair: pair[0]
    )
    for ratio, row in [*long[: args.worst], *long[-args.worst :]]:
        print(f"{ratio:6.2f} {row.us:8.1f} us  {row.label}")


if __name__ == "__main__":
    main()
