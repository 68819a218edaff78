"""When sums of short runs of neighbours are made of sums of columns.

    m(n,g) +=! x(n,p,g,d)     d: a few neighbours, 40 bytes say, of each p

Who reads one g reads a run of each p: a lookup in the first-level cache or two for few bytes, and
again for what is stored.  As columns all runs of a p are one row of whole vectors; there are four
more launches then, a sum and its fold for each of mean and variance.

Measured on an H200: groupnorm of 8 images of 4096 pixels, 32 groups of 10 channels in float32,
takes 71 us with a cluster for each group, and 56.5 by columns.
"""

from tcdsl.costmodel.chip import Chip
from tcdsl.records import dataclass

SECTORS = 2  # of a run: with more of them nothing is gained
LOOKUPS = 4  # of a run: its first and last line, loaded and stored
LAUNCHES = 4
MOMENTS_LAUNCHES = 2  # as long as a pass that one kernel of small sums takes the place of


@dataclass(frozen=True, slots=True)
class Runs:
    """As many runs of *length* neighbours of *value_bytes* each."""

    count: int
    length: int
    value_bytes: int


def why_in_columns(gpu: Chip, runs: Runs) -> str | None:
    """Return why sums of *runs* should be made of sums of columns, or None."""
    run_bytes = runs.length * runs.value_bytes
    if run_bytes >= SECTORS * gpu.sector_bytes:
        return None
    lookups_s = LOOKUPS * runs.count / gpu.multiprocessors / gpu.clock_hz
    if lookups_s <= LAUNCHES * gpu.launch_s:
        return None
    return f"{runs.count} runs of {run_bytes} bytes"


def why_in_moments(gpu: Chip, pass_bytes: int) -> str | None:
    """Return why mean and squares of such columns should be sums of one pass, or None.

    The sums of its chunks are stored, and one kernel more adds them up.
    """
    pass_s = pass_bytes / gpu.dram_copy_bytes_per_s
    if pass_s <= MOMENTS_LAUNCHES * gpu.launch_s:
        return None
    return f"a pass over {pass_bytes} bytes"
