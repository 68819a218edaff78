"""Tiles by way of shared memory where results have other neighbours in memory than what is read.

T(n,h,w,c) = I(n,c,h,w)      tiles of 64 (h,w) x 64 c: loaded along (h,w), stored along c
"""

from collections.abc import Iterator

from tcdsl.costmodel.chip import WARP
from tcdsl.costmodel.work import Chain, Work
from tcdsl.records import dataclass
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Schedule, Transposition
from tcdsl.strategies.template import Template
from tcdsl.strategies.transposition import Sides, sides_of

SIZES = (64, 32, 16)  # of a tile, along either side
THREADS = (256, 128)
STORING = 4  # threads of a warp that follow one another along the result: whole sectors
ACCESS, ELEMENT = 10, 2  # instructions of a load or store with its address, and of an element
CONFLICTS = 2  # reads of columns that meet one bank
WORD = 4


@dataclass(frozen=True, slots=True)
class TransposeConfig:
    """Tiles of *read* x *written* neighbours, and the threads of a block."""

    read: int
    written: int
    threads: int


def why_not(problem: Problem) -> str | None:
    """Return why nothing is transposed by way of shared memory, or None."""
    sides = sides_of(problem)
    return sides if isinstance(sides, str) else None


def space(problem: Problem) -> Iterator[TransposeConfig]:
    """Yield the configurations."""
    sides = sides_of(problem)
    assert not isinstance(sides, str), "why_not"
    for read in _sizes(sides.read.extent):
        for written in _sizes(sides.written.extent):
            for threads in THREADS:
                yield TransposeConfig(read, written, threads)


def _sizes(extent: int) -> Iterator[int]:
    """Yield the sizes of tiles along *extent* values, the least only where it holds them all."""
    *large, least = SIZES
    yield from large
    if extent <= least:
        yield least


def schedule(problem: Problem, config: TransposeConfig) -> Schedule:
    """Return the schedule that *config* asks for."""
    sides = sides_of(problem)
    assert not isinstance(sides, str), "why_not"
    how = _how(sides, config)
    why = (
        f"tiles of {config.read} along ({', '.join(sides.read.indices)}), neighbours of what is"
        f" read, x {config.written} along ({', '.join(sides.written.indices)}), neighbours of the"
        " result",
    )
    members = problem.group.members
    return Schedule(
        members, (), dict.fromkeys(members, ()), why=why, work=_work(problem, sides, config),
        transposition=how,
    )  # fmt: skip


def _how(sides: Sides, config: TransposeConfig) -> Transposition:
    width, stored = sides.widths
    warps = config.threads // WARP
    load = width, max(min(WARP, config.read // width), -(-WARP * warps // config.written))
    store = stored, min(WARP, max(STORING, WARP * warps // config.read), config.written // stored)
    return Transposition((config.read, config.written), config.threads, load, store)


def _work(problem: Problem, sides: Sides, config: TransposeConfig) -> Work:
    """Return what the kernel costs.

    Warps load along *read* and store along *written*: there tiles are whole, for lanes outside the
    result are idle; lines outside it, the other way, are left out by whole warps.
    """
    scop, statement = problem.scop, problem.shapes[problem.lead].statement
    batch = 1 if sides.batch is None else sides.batch.extent
    along = -(-sides.read.extent // config.read)
    across = -(-sides.written.extent // config.written)
    loaded = float(batch) * along * config.read * sides.written.extent
    stored = float(batch) * across * config.written * sides.read.extent
    names = {load.tensor for load in sides.loads}
    element_bytes = sum(scop.arrays[name].dtype.size_bytes for name in names)
    read = {access.array for access in statement.reads}
    read_bytes = float(sum(scop.arrays[name].size_bytes() or 0 for name in read))
    written_bytes = float(scop.arrays[statement.write.array].size_bytes() or 0)
    width, stored_at_once = sides.widths
    instructions = loaded * ACCESS * len(names) * 2 / width  # from memory, and to shared memory
    instructions += stored * (ACCESS / stored_at_once + ELEMENT * len(names))
    tile_bytes = config.read * config.written * element_bytes
    return Work(
        batch * along * across, config.threads,
        shared_bytes=tile_bytes,
        read_bytes=read_bytes, written_bytes=written_bytes,
        shared_traffic_bytes=loaded * element_bytes + stored * CONFLICTS * WORD * len(names),
        instructions=instructions,
        in_flight_bytes=max(1.0, tile_bytes / config.threads),
        chain=Chain(dram_loads=1, block_barriers=1),
        is_tiled=True,
        is_programmatic=problem.gpu.overlaps_kernels,
    )  # fmt: skip


TEMPLATE = Template("transpose", TransposeConfig, why_not, space, schedule)
