"""Blocks with copies of what they update at scattered elements, in shared memory.

    t(x(i)) += f(i)       blocks over many tiles of i, one after another; p = 0 in shared memory,
                          p(x(i)) += f(i) by atomics there; t(e) += p(e) by one atomic a block

The loops are those of another template; a block takes *per_block* iterations of its loop over
blocks.  Worth while where a copy fits, and updates of the same elements are so many that they wait
for one another in memory (costmodel/atomics).

Or the copies are in memory, which blocks take in turn: the kernel is as it was, but that updates
collide more rarely, and another one adds the copies up.  Floats, for which shared memory has no
instruction, may be better off so.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from math import inf, prod
from typing import Any

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.prefetches import bytes_ahead
from tcdsl.records import dataclass
from tcdsl.strategies.alternatives import least_of
from tcdsl.strategies.estimated import seconds_of
from tcdsl.strategies.private_results import (
    chunks_in_memory,
    chunks_of,
    copy_elements,
    in_turns,
    scattered_members,
    tiles_in_turn,
    why_no_copies,
    widths_of,
)
from tcdsl.strategies.problem import Problem, nameless_analysis
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.template import Template

FOLD_BYTES = 16  # a thread, of each reduction that a block folds (schedule/promotion)
MOST_BASES = 6  # configurations of the other template, and one without vectors
LEAST_THREADS = 4  # times fewer threads of a row than its likeliest has
BLOCKS_EACH = (1, 2, 3, 4, 6, 8)  # of a multiprocessor: copies that are added up
IN_MEMORY = (16, 64, 256)  # copies
MOST_BYTES = gpu_thresholds.COPIES_CACHE
WORTH = gpu_thresholds.COPIES_TIME


@dataclass(frozen=True, slots=True)
class PrivateConfig:
    """The template whose loops they are, with its configuration; iterations of a block, or copies.

    *in_memory*: so many copies; 0: each block has one in shared memory.
    """

    base: str
    of: tuple[tuple[str, Any], ...]
    per_block: int
    in_memory: int = 0


def over(bases: Sequence[Template[Any]]) -> Template[PrivateConfig]:
    """Return the template of copies in kernels of *bases*, in the order of the catalogue."""
    made = _Private(tuple(bases))
    return Template("private", PrivateConfig, made.why_not, made.space, made.schedule)


@dataclass(frozen=True, eq=False)
class _Private:
    bases: tuple[Template[Any], ...]

    def why_not(self, problem: Problem) -> str | None:
        """Return why blocks have no copies of results, or None."""
        scop, members = problem.scop, problem.group.members
        if not scattered_members(scop, members):
            return "no results are scattered"
        if problem.options.tile or problem.chunks is not None or problem.is_ragged:
            return "tiles are asked for, blocks share its rows, or data say how long these are"
        seconds, config, plain = _likeliest(problem, self)
        if config is None:
            return "no copy of a result fits a block's shared memory"
        if seconds > WORTH * plain:
            return f"copies would take {1e6 * seconds:.3g} us, updates of memory {1e6 * plain:.3g}"
        return None

    def space(self, problem: Problem) -> Iterator[PrivateConfig]:
        """Yield the configurations, first the one with the least estimated time."""
        _, likeliest, _ = _likeliest(problem, self)
        if likeliest is not None:
            yield likeliest
        timed = ((seconds_of(problem, s), c) for c, s in self.schedules(problem) if c is not None)
        for seconds, config in sorted(timed, key=lambda pair: pair[0]):
            if seconds < inf and config != likeliest:
                yield config

    def schedule(self, problem: Problem, config: PrivateConfig) -> Schedule:
        """Return the schedule of the base, its blocks with copies and several tiles each."""
        (base,) = (base for base in self.bases if base.name == config.base)
        made = base.schedule(problem, base.config(**dict(config.of)))
        found = _with_copies(problem, made, config.per_block, config.in_memory)
        assert found is not None, "why_not"
        return found

    def schedules(self, problem: Problem) -> Iterator[tuple[PrivateConfig | None, Schedule]]:
        """Yield schedules of the base, with no configuration, each before those with copies."""
        fitting = [base for base in self.bases if base.why_not(problem) is None]
        base = min(fitting, key=lambda base: not base.is_likely(problem))
        for config in _few(base.space(problem)):
            made = base.schedule(problem, config)
            yield None, made
            if why_no_copies(made) is not None:
                continue
            own = tuple(asdict(config).items())
            ways = [(n, 0) for n in _per_block(problem, made)] + [(1, n) for n in IN_MEMORY]
            for per_block, in_memory in ways:
                schedule = _with_copies(problem, made, per_block, in_memory)
                if schedule is not None:
                    yield PrivateConfig(base.name, own, per_block, in_memory), schedule


@nameless_analysis
def _likeliest(problem: Problem, private: _Private) -> tuple[float, PrivateConfig | None, float]:
    """Return the least estimated time, the configuration that takes it, and the base's least."""
    every = list(private.schedules(problem))
    plain = least_of(problem, [schedule for config, schedule in every if config is None])
    copied = [(config, schedule) for config, schedule in every if config is not None]
    found = least_of(problem, [schedule for _, schedule in copied])
    without = inf if plain is None else plain[1]
    if found is None or found[1] == inf:
        return inf, None, without
    return found[1], copied[found[0]][0], without


def _few(space: Iterable[Any]) -> list[Any]:
    """Return the first configurations of *space*, and one with which neighbours are threads'.

    Rows of very few threads, which load lines of memory piece by piece, are left out, and so are
    those that are read again where the likeliest keeps them.
    """
    every = list(space)
    most, keep = getattr(every[0], "threads", 0), min(getattr(every[0], "keep", 0), 1)
    first = [
        config
        for config in every[:MOST_BASES]
        if LEAST_THREADS * getattr(config, "threads", 0) >= most
        and getattr(config, "keep", 0) >= keep
    ]
    scalar = [c for c in every if getattr(c, "vector", 1) == 1]
    return list(dict.fromkeys((*first, *scalar[:1])))


def _per_block(problem: Problem, schedule: Schedule) -> list[int]:
    """Return how many iterations a block may take of the loop over blocks that is longest."""
    names = scattered_members(problem.scop, schedule.members)
    tiles = max(tiles_in_turn(problem.scop, schedule, name) for name in names)
    if not tiles:
        return [1]
    waves = (each * problem.gpu.multiprocessors for each in BLOCKS_EACH)
    return list(dict.fromkeys(-(-tiles // blocks) for blocks in waves))


def _with_copies(
    problem: Problem, schedule: Schedule, per_block: int, in_memory: int
) -> Schedule | None:
    """Return *schedule* with copies of those results that fit, None if none does."""
    names = scattered_members(problem.scop, schedule.members)
    if in_memory:
        schedule = _in_memory(problem, schedule, names, in_memory)
        where = "in memory, added up by another kernel"
    else:
        schedule = _in_shared_memory(problem, schedule, names, per_block)
        where = "in shared memory, added up by atomics"
    if not schedule.private:
        return None
    copies = max(prod(p.extent for p in partials) for partials in schedule.private.values())
    why = f"copies of the results of {', '.join(schedule.private)}: {copies} of them {where}"
    return replace(schedule, why=(*schedule.why, why))


def _in_memory(problem: Problem, schedule: Schedule, names: Sequence[str], copies: int) -> Schedule:
    scop, private = problem.scop, {}
    for name in names:
        partials = chunks_in_memory(scop, schedule, name, copies)
        size = scop.arrays[scop.by_name[name].write.array].size_bytes() or 0
        if partials and copies * size <= MOST_BYTES * problem.gpu.l2_bytes:
            private[name] = partials
    return replace(schedule, private=private, is_summed=True)


def _in_shared_memory(
    problem: Problem, schedule: Schedule, names: Sequence[str], per_block: int
) -> Schedule:
    scop = problem.scop
    lead = max(names, key=lambda name: tiles_in_turn(scop, schedule, name))
    schedule = in_turns(scop, schedule, lead, per_block)
    left = problem.gpu.static_shared_bytes_per_block - _fold_bytes(schedule)
    private = {}
    for name in sorted(names, key=lambda name: copy_elements(scop, schedule, name)):
        reduction = scop.by_name[name].reduction
        assert reduction is not None, "why_not_private"
        size = copy_elements(scop, schedule, name) * reduction.dtype.size_bytes
        left -= -(-size // 16) * 16
        if left >= 0:
            private[name] = chunks_of(scop, schedule, name)
    ahead = bytes_ahead(problem.gpu) if schedule.persistent else 0
    return replace(schedule, private=private, code=replace(schedule.code, prefetch_bytes=ahead))


def _fold_bytes(schedule: Schedule) -> int:
    """Return the shared memory that folds may take (schedule/promotion), last blocks' included."""
    parts = list(schedule.partials.values())
    folds = sum(any(p.is_lane for p in partials) for partials in parts)
    chunked = sum(any(not p.is_lane for p in partials) for partials in parts)
    folds += chunked if schedule.layout is not None else 0
    return FOLD_BYTES * (folds + 1) * prod(widths_of(schedule).values()) if folds else 0
