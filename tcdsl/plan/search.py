"""Plan search: from the groups of a greedy planner to those of the least predicted time.

    {a} {b} {c}    9.0 us
    {a b} {c}      6.1 us      {a} {b c}    7.0 us     the best few are kept: a beam
    {a b c}        5.8 us                              until none is better

It begins with the groups that leave blocks alone enough work, or with those that clusters of blocks
would share, whichever are predicted to be faster: between them are plans that are worse than both.
A state's time is the sum of its kernels', each of which is predicted once (``state.Evaluator``).
Why two groups stay two is kept for the user.  The search ends after so many predictions, not after
some time: a plan must not depend on how busy the machine is.  After the exploration of fusion plans
in FusionStitching (Zheng et al., 2020, arXiv:2009.10924), whose evaluator is our one estimate.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tcdsl.costmodel.chip import Chip
from tcdsl.options import Options, is_reassociated
from tcdsl.plan.library_rewrite import library_rewrites
from tcdsl.plan.moves import Merge, NoMerge, alike, all_merged, in_order, merged, merges
from tcdsl.plan.reached import reach
from tcdsl.plan.rewrites import (
    OF_FACTORS,
    REWRITES,
    along_terms,
    in_registers,
    of_parts,
    rewrites_by_options,
)
from tcdsl.plan.state import Evaluator, State
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass
from tcdsl.schedule.fusion import Group
from tcdsl.schedule.plan import Tried
from tcdsl.schedule.trace import Step, record, recorded, repeat
from tcdsl.strategies.catalogue import ALIKE
from tcdsl.strategies.chunked_rows import ChunkedRows
from tcdsl.strategies.gpu_grouping import Grouped, group_for_gpu

BEAM = 3  # states that are kept
WORTH = 0.98  # of the time before: what is rewritten, or split, is to be faster
MOST_SPLIT = 16  # members of a group that is tried in parts
PREDICTIONS = 12  # a statement: of 1 to 2 ms each, less than 20 ms


def groups_of(
    scop: Scop, options: Options, gpu: Chip, chunks: Sequence[ChunkedRows] = ()
) -> Grouped:
    """Partition the statements of *scop* into kernels, what blocks do with *chunks* apart."""
    return searched(group_for_gpu(scop, options, gpu, chunks), options, gpu)


def searched(before: Grouped, options: Options, gpu: Chip) -> Grouped:
    """Return *before*, its groups merged where that is predicted to be faster."""
    if len(before.scop.statements) < 2 or options.fuse == "none":
        return before
    known = Evaluator(before, options, gpu)
    reach((group.members for group in before.groups), before.scop.arrays)
    starts = [known.state(groups) for groups in (before.groups, before.wider) if groups]
    start = min(starts, key=lambda state: state.seconds)
    reach((group.members for group in start.groups), before.scop.arrays)
    most = PREDICTIONS * len(before.scop.statements)
    best, kept = _best(_split(start, known, most), known, most)
    refused = tuple((no.one, no.other.members[0], no.reason) for no in kept)
    found = replace(before, groups=best.groups, refused=(*refused, *before.refused))
    if best.groups != tuple(before.groups):
        names = ["+".join(group.members) for group in best.groups]
        record("plan search", found.scop, notes=names)
    return found


def _split(state: State, known: Evaluator, most: int) -> State:
    """Return *state*, groups that take far too long as those that their members make anew.

    And those with sums of sums, which have only the blocks that the last of them has.
    And parts that have nothing to do with one another as groups whose blocks share a launch.
    """
    found: list[Group] = []
    for group in state.groups:
        is_large = not 1 < len(group.members) <= MOST_SPLIT
        if is_large or known.is_fixed(group):
            found.append(group)
            continue
        apart = known.unrelated(group)
        if len(apart) > 1 and known.seconds_in_one_launch(apart) <= ALIKE * known.seconds(group):
            found += apart
            continue
        if not (known.is_slow(group) or known.has_sums_of_sums(group)):
            found.append(group)
            continue
        parts, _ = _best(known.state(known.parts(group)), known, most, is_whole=False)
        is_better = known.state(parts.groups).seconds < WORTH * known.seconds(group)
        found += parts.groups if is_better else [group]
    if len(found) == len(state.groups):
        return state
    ordered = in_order(found, known)
    return state if ordered is None else known.state(ordered)


def with_rewrites(
    scop: Scop, planned: Callable[[Scop], Grouped], options: Options, gpu: Chip
) -> Grouped:
    """Return the groups that *planned* makes of *scop*, rewritten where that is faster."""
    best = planned(scop)
    tried: list[Tried] = []
    asked = rewrites_by_options(options)
    # A library's call is for the product as it is: of planes it would be none.
    others = (*REWRITES, *library_rewrites(options, gpu), *of_parts(options, gpu))
    along = along_terms(options)
    kept = in_registers(options)
    every = (along, *OF_FACTORS, *asked, along, *others) if options.fuse != "none" else asked
    for rewrite in every:
        if rewrite.is_reassociating and not is_reassociated(options):
            continue
        for site in rewrite.sites(scop):
            if (reason := rewrite.why_not(scop, site)) is not None:
                tried += [Tried(rewrite.name, site, reason)] if rewrite in asked else []
                continue
            is_kept = site in kept and rewrite.stores_factors
            found = rewrite.ways(scop, site, in_registers=is_kept)
            ways = [_made(planned, way, options, gpu) for way in found]
            if not ways:
                continue
            least = min(one.seconds for one in ways)
            way = next(one for one in ways if one.seconds <= ALIKE * least)
            other, seconds = way.grouped, (_seconds(best, options, gpu), way.seconds)
            # What a kernel less neither stores nor loads is only a part of what the estimate knows.
            worth = 1.0 if len(other.groups) < len(best.groups) else WORTH
            is_better = is_kept or seconds[1] < worth * seconds[0]
            tried.append(Tried(rewrite.name, site, _compared(*seconds, is_better=is_better)))
            if is_better:
                record(rewrite.name, scop := way.scop, notes=[site])
                repeat(way.steps)
                best = other
    return replace(best, tried=tuple(tried))


@dataclass(frozen=True, slots=True)
class _Way:
    """What is planned of a rewritten *scop*, and what that recorded."""

    scop: Scop
    grouped: Grouped
    seconds: float
    steps: Sequence[Step]


def _made(planned: Callable[[Scop], Grouped], scop: Scop, options: Options, gpu: Chip) -> _Way:
    with recorded() as steps:
        grouped = planned(scop)
    return _Way(scop, grouped, _seconds(grouped, options, gpu), steps)


def _seconds(grouped: Grouped, options: Options, gpu: Chip) -> float:
    return Evaluator(grouped, options, gpu).state(grouped.groups).seconds


def _compared(before: float, after: float, *, is_better: bool) -> str:
    become = "become" if is_better else "would become"
    return f"{1e6 * before:.3g} us {become} {1e6 * after:.3g} us"


def _best(
    start: State, known: Evaluator, most: int, *, is_whole: bool = True
) -> tuple[State, list[NoMerge]]:
    """Return the state of the least time that is found, and what was kept apart in it.

    :arg most: predictions.
    :arg is_whole: whether *start* has all statements of the scop.
    """
    best, kept, beam = start, list[NoMerge](), [start]
    while beam:
        after: dict[frozenset[tuple[str, ...]], State] = {}
        for state in beam:
            moves = list(merges(state, known))
            if state is best:
                kept = [move for move in moves if isinstance(move, NoMerge)]
            found = [move for move in moves if isinstance(move, Merge)]
            for new in (
                *(merged(state, move, known) for move in found),
                *(all_merged(state, own, known) for own in alike(found) if len(own) > 1),
            ):
                after.setdefault(new.key, new)
        beam = sorted(after.values(), key=lambda state: state.seconds)[:BEAM]
        if beam and beam[0].seconds < best.seconds:
            best = beam[0]
            if is_whole:
                reach((group.members for group in best.groups), known.grouped.scop.arrays)
        if known.predictions > most:
            break
    return best, kept
