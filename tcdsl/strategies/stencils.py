"""Whether chains of stencils are computed in overlapped tiles, and of what sizes on a CPU.

    as written    a kernel for each stage; what lies between goes through memory
    in tiles      one kernel, a thread a tile; what lies between stays in the cache of a core,
                  and the halos are computed again

Tiles pay where the time for what goes through memory, written and read by each kernel that needs
it, is more than that for what is computed again: both are counts of bytes and operations, at the
rates of the machine.  A plan in tiles is taken only if every array of the tiles is local in it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.machine import Cpu
from tcdsl.options import Options
from tcdsl.poly.isl_utils import points_of_box
from tcdsl.poly.loop_tree import statements_of
from tcdsl.poly.scop import Scop, Stage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.overlapped_tiles import with_overlapped_tiles
from tcdsl.rewrites.scop.periodic_halos import with_periodic_halos
from tcdsl.rewrites.scop.stencil_chains import Chain, chains_of, stages_of, steps_of
from tcdsl.rewrites.scop.windows import why_not_window, with_windows
from tcdsl.schedule.placement import MAX_LOCAL_BYTES
from tcdsl.schedule.plan import Kernel, Plan
from tcdsl.schedule.trace import record, recorded, repeat
from tcdsl.strategies.asked import asked_for

OUTER = cpu_thresholds.STENCIL_ROWS
INNER = cpu_thresholds.STENCIL_VALUES
MOST_CACHE = cpu_thresholds.STENCIL_CACHE
ROW_SECONDS = cpu_thresholds.LOOP_START_SECONDS
CALL_OPERATIONS = cpu_thresholds.CALL_OPERATIONS
PIECE_STEPS = (2, 3, 4, 6)  # of the pieces that a long chain is cut into


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes of a chain's tiles, what they save, and what they cost, in seconds."""

    sizes: tuple[int, ...]
    saved: float
    again: float

    @property
    def gain(self) -> float:
        return self.saved - self.again


Tilings = Callable[[Scop, Chain, Plan], Iterable[Tiling]]


def stencils_of(scop: Scop) -> tuple[Scop, tuple[Chain, ...]]:
    """Return the chains of stencils, and *scop* with their windows as statements, and halos."""
    windows = [s.name for s in scop.statements if why_not_window(scop, s) is None]
    chains = chains_of(with_periodic_halos(with_windows(scop, windows)))
    members = {name for chain in chains for name in chain.members}
    inside = {name for chain in chains for name in chain.inside}
    used = [name for name in windows if name in members]
    found = with_periodic_halos(with_windows(scop, used) if used else scop, inside)
    return found, chains_of(found)


def with_tiles(
    scop: Scop,
    options: Options,
    plan: Callable[[Scop, Options], Plan],
    tilings: Tilings,
) -> Plan:
    """Return the plan of *scop* with its chains of stencils in tiles where that takes less time.

    :arg tilings: those of a chain that are worth trying, given the plan without tiles.
    """
    windowed, chains = stencils_of(scop)
    if not chains:
        return plan(scop, options)
    with recorded() as steps:
        plain = plan(scop, replace(options, choices=""))
    tiled, notes = windowed, []
    for chain in chains:
        for piece, best in _best_pieces(windowed, chain, lambda c: tilings(windowed, c, plain)):
            notes.append((piece, explained(piece, best.sizes)))
            tiled = with_overlapped_tiles(tiled, piece, best.sizes)
    if notes:
        with recorded() as tiled_steps:
            record("overlapped tiles", tiled, notes=[note for _, note in notes])
            found = plan(tiled, replace(options, choices=""))
        if why_not_local(found) is None and not _asks_for_plain(options, plain, found):
            found = found if not options.choices else plan(tiled, options)
            repeat(tiled_steps)
            return with_reasons(found, notes)
    if options.choices:
        return plan(scop, options)
    repeat(steps)
    return plain


def _best_pieces(
    scop: Scop, chain: Chain, tilings: Callable[[Chain], Iterable[Tiling]]
) -> list[tuple[Chain, Tiling]]:
    """Return the pieces of *chain* that are worth tiles, cut where that saves the most."""
    found: list[tuple[Chain, Tiling]] = []
    most = 0.0
    for pieces in _cuts(scop, chain):
        weighed = [(c, max(tilings(c), key=lambda t: t.gain, default=None)) for c in pieces]
        taken = [(c, best) for c, best in weighed if best is not None and best.gain > 0]
        gain = sum(best.gain for _, best in taken)
        if gain > most:
            found, most = taken, gain
    return found


def _cuts(scop: Scop, chain: Chain) -> Iterator[tuple[Chain, ...]]:
    """Yield *chain*, and it in pieces of so many steps: of a long one every step grows the halo."""
    yield (chain,)
    steps = steps_of(scop, chain)
    for length in PIECE_STEPS:
        if length < max(steps.values()):
            apart = [name for name in chain.inside if steps[name] % length == 0]
            pieces = chains_of(scop, apart)
            yield tuple(piece for piece in pieces if set(piece.members) <= set(chain.members))


def _asks_for_plain(options: Options, plain: Plan, tiled: Plan) -> bool:
    """Return whether choices are asked for of a kernel that only the plan as written has."""
    names = {kernel.name for kernel in tiled.kernels}
    return any(k.name in asked_for(options) and k.name not in names for k in plain.kernels)


def why_not_local(plan: Plan) -> str | None:
    """Return which array of a tile is not local in *plan*, or None."""
    for overlapped in plan.scop.overlapped:
        for name in overlapped.tiled.values():
            if name in plan.scop.arrays and name not in plan.placements:
                return f"{name} would be in memory"
    return None


def explained(chain: Chain, sizes: Sequence[int]) -> str:
    """Return a sentence about *chain* in tiles of *sizes*."""
    reaches = zip(*chain.reach.values(), strict=True)
    grown = [max(high - low for low, high in along) for along in reaches]
    tile, halo = (" x ".join(map(str, numbers)) for numbers in (sizes, grown))
    return f"{len(chain.members)} stages in overlapped tiles of {tile}, the first grown by {halo}"


def with_reasons(plan: Plan, notes: Sequence[tuple[Chain, str]]) -> Plan:
    """Return *plan*, whose kernels say which chains they have in tiles."""

    def with_reason(kernel: Kernel) -> Kernel:
        names = set(statements_of(kernel.tree))
        own = [note for chain, note in notes if set(chain.members) & names]
        return replace(kernel, why=(*own, *kernel.why)) if own else kernel

    return replace(plan, kernels=tuple(map(with_reason, plan.kernels)))


def cpu_tilings(scop: Scop, chain: Chain, plain: Plan, cpu: Cpu) -> Iterator[Tiling]:
    """Yield the tilings of *chain* whose tiles fit the cache of a core."""
    saved = _seconds_of_memory(scop, chain, plain, cpu)
    stages = stages_of(scop, chain)
    for sizes in _sizes(chain):
        held = [_tile_bytes(scop, chain, name, sizes) for name in chain.inside]
        if max(held) > MAX_LOCAL_BYTES or sum(held) > MOST_CACHE * cpu.l2_bytes:
            continue
        tiles = [-(-e // size) for e, size in zip(chain.extents, sizes, strict=True)]
        if prod(tiles) < cpu_thresholds.TILES_A_THREAD * cpu.threads:
            continue
        yield Tiling(sizes, saved, _seconds_again(scop, stages, sizes, cpu))


def _sizes(chain: Chain) -> Iterator[tuple[int, ...]]:
    """Yield the sizes of tiles that are worth trying: long along the last axis."""
    *outer, inner = chain.extents
    choices = [_up_to(OUTER, extent) for extent in outer]
    yield from product(*choices, _up_to(INNER, inner))


def _up_to(sizes: Sequence[int], extent: int) -> list[int]:
    """Return those of *sizes* that are no larger than *extent*, at least one."""
    smaller = [size for size in sizes if size < extent]
    return [*smaller, extent] if extent <= max(sizes) else smaller


def _tile_bytes(scop: Scop, chain: Chain, name: str, sizes: Sequence[int]) -> int:
    """Return the bytes of what a tile has of the array *name*, with all along inner axes."""
    array, axes, reach = scop.arrays[name], chain.axes[name], chain.reach[name]
    elements = prod(size + high - low for size, (low, high) in zip(sizes, reach, strict=True))
    first = min(axes.index(axis) for axis in chain.stencil)
    for axis, extent in list(zip(axes, array.shape, strict=True))[first:]:
        if axis not in chain.stencil:
            assert isinstance(extent, int), "open sizes have no chains"
            elements *= extent
    return elements * array.dtype.size_bytes


def _seconds_of_memory(scop: Scop, chain: Chain, plain: Plan, cpu: Cpu) -> float:
    """Return the time for what goes between the stages through memory, 0 if caches hold it."""
    moved, held = 0, 0
    for name in chain.inside:
        if name in plain.placements:
            continue
        size = scop.arrays[name].size_bytes() or 0
        users = [
            kernel
            for kernel in plain.kernels
            if any(
                access.array == name
                for n in statements_of(kernel.tree)
                for access in (*plain.scop.by_name[n].writes, *plain.scop.by_name[n].reads)
            )
        ]
        moved += len(users) * size + (size if name not in chain.stored else 0)
        held += size
    if held <= cpu.l2_bytes * cpu.threads:
        return 0.0  # it stays where it is
    return moved / cpu.dram_copy_bytes_per_s


def _seconds_again(
    scop: Scop,
    stages: Mapping[str, Stage],
    sizes: Sequence[int],
    cpu: Cpu,
) -> float:
    """Return the time for what is computed again, and for beginning more and shorter rows."""
    rate = cpu.fma_f32_per_s / 2 * cpu.threads
    total, rows = 0.0, 0.0
    for name, stage in stages.items():
        extents = zip(sizes, stage.reach, strict=True)
        grown = [(size + high - low) / size for size, (low, high) in extents]
        instances = points_of_box(scop.by_name[name].domain) or 0
        operations = stage.operations + len(stage.reads) + CALL_OPERATIONS * stage.calls
        total += (prod(grown) - 1) * instances * operations
        rows += prod(grown[:-1]) * instances / sizes[-1]
    return total / rate + ROW_SECONDS * rows / cpu.threads
