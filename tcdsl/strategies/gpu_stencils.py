"""Whether chains of stencils are computed in overlapped tiles on a GPU, and of what sizes.

The kernels as written and the one in tiles are predicted alike (costmodel/estimate); tile sizes and
threads are those of the least time.
"""

from collections.abc import Iterator, Mapping
from itertools import product

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.estimate import estimate
from tcdsl.poly.isl_utils import greatest
from tcdsl.poly.scop import Scop, Stage
from tcdsl.rewrites.scop.stencil_chains import Chain, stages_of
from tcdsl.schedule.plan import Plan, Weighed
from tcdsl.strategies.lesser_sizes import excesses, scop_at_lesser_sizes
from tcdsl.strategies.stencil_work import Tiles, configs, rated, stencil_work
from tcdsl.strategies.stencils import Tiling

WORTH = 0.98  # of the time as written, that tiles must be under: estimates err
SIZES = {
    1: ((256, 512, 1024, 2048, 4096),),
    2: ((8, 16, 32, 64), (32, 64, 128, 256)),
    3: ((4, 8, 16), (4, 8, 16), (32, 64)),
}


def gpu_tilings(scop: Scop, chain: Chain, plain: Plan, gpu: Chip) -> Iterator[Tiling]:
    """Yield the best tiling of *chain*, with the time that the kernels of *plain* take for it."""
    if len(chain.stencil) not in SIZES:
        return
    before = _seconds_of(plain, chain)
    if before is None:
        return
    scops = [one for one in (scop, scop_at_lesser_sizes(scop)) if one is not None]
    at_sizes = [(one, stages_of(one, chain)) for one in scops]
    candidates = [
        (tiles, config)
        for sizes in _sizes(chain)
        if (tiles := [_tiles_of(*one, chain, sizes) for one in at_sizes])[0].shared_bytes
        <= gpu.static_shared_bytes_per_block
        for config in configs(tiles[0], gpu)
    ]
    if not candidates:
        return
    times = [tuple(rated(one, config, gpu) for one in tiles) for tiles, config in candidates]
    excess = excesses(times)
    best, config = candidates[excess.index(min(excess))]
    work = stencil_work(best[0], config, gpu)
    yield Tiling(best[0].sizes, WORTH * before, estimate(work, gpu).seconds)


def _tiles_of(
    scop: Scop, stages: Mapping[str, Stage], chain: Chain, sizes: tuple[int, ...]
) -> Tiles:
    """Return *chain*, of these *stages* in *scop*, in tiles of *sizes*."""
    stored = [stage.ends for stage in stages.values() if stage.array in chain.stored]
    extents = [max(greatest(end) or 0 for end in ends) for ends in zip(*stored, strict=True)]
    counts = tuple(-(-e // size) for e, size in zip(extents, sizes, strict=True))
    inside = {name: chain.reach[name] for name in chain.inside}
    return Tiles(stages, scop.arrays, inside, frozenset(chain.stored), sizes, counts)


def _sizes(chain: Chain) -> Iterator[tuple[int, ...]]:
    """Yield sizes of tiles: what is computed, or what is stored, is whole warps along the last."""
    grown = [
        max(high for _, high in along) - min(low for low, _ in along)
        for along in zip(*chain.reach.values(), strict=True)
    ]
    choices = []
    for number, (sizes, extent, halo) in enumerate(
        zip(SIZES[len(chain.stencil)], chain.extents, grown, strict=True)
    ):
        found = {size for size in sizes if size < 2 * extent}
        if number == len(grown) - 1 or len(grown) == 2:
            found |= {size - halo for size in found if size - halo >= size // 2}
        choices.append(sorted(found))
    yield from product(*choices)


def _seconds_of(plain: Plan, chain: Chain) -> float | None:
    """Return the predicted time of the kernels that run *chain*; None if one has none."""
    members = set(chain.members)
    found = [w for w in plain.weighed if members & set(w.kernel.split("+"))]
    seconds = [_predicted(weighed) for weighed in found]
    known = [s for s in seconds if s is not None]
    return sum(known) if known and len(known) == len(seconds) else None


def _predicted(weighed: Weighed) -> float | None:
    """Return the predicted time of what was chosen."""
    chosen = (c for c in weighed.candidates() if c.get("is_chosen") and "predicted_us" in c)
    one = next(chosen, None)
    return None if one is None else float(one["predicted_us"]) * 1e-6
