"""All templates, and the choice among them.

The least estimated time decides; of times that are alike the first.  Templates, and configurations
of a space, are in the order of what measurements favour.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from math import inf
from typing import Any

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.estimate import Estimate
from tcdsl.costmodel.machine import Machine
from tcdsl.costmodel.work import AnyWork
from tcdsl.records import dataclass
from tcdsl.strategies.alternatives import least_of
from tcdsl.strategies.estimated import estimated, seconds_of
from tcdsl.strategies.lesser_sizes import at_lesser_sizes, excesses, has_open_sum
from tcdsl.strategies.problem import Problem, Scheme, nameless_analysis, own_analysis
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.template import Choice, Template
from tcdsl.strategies.templates import (
    column,
    column_cluster,
    cpu_isl_band,
    cpu_loops,
    cpu_panels,
    cpu_row,
    cpu_stencil,
    cpu_tile,
    elementwise,
    isl_band,
    last_block,
    private,
    product_chain,
    ragged,
    ragged_long,
    row,
    row_cluster,
    row_column,
    row_split,
    serial,
    stencil,
    tile_implicit,
    tile_mma,
    tile_simt,
    transpose,
)

BRIEF_SECONDS = gpu_thresholds.BRIEF_TILE_SECONDS
BRIEF_CHAIN_SECONDS = gpu_thresholds.BRIEF_CHAIN_SECONDS
SPEEDUP = gpu_thresholds.SPEEDUP_OVER_BRIEF_TILES
ALIKE = 1.02  # times that differ by less are the same, as far as the estimate can tell
ALIKE_ON_CPU = 1.2  # the same on a CPU, whose estimate knows less

TILES = (
    stencil.TEMPLATE, product_chain.TEMPLATE, tile_implicit.TEMPLATE, tile_mma.TEMPLATE,
    tile_simt.TEMPLATE,
)  # fmt: skip
RAGGED = (ragged_long.TEMPLATE, ragged.TEMPLATE)
_GPU: tuple[Template[Any], ...] = (
    *TILES,
    row_split.TEMPLATE,
    row_column.TEMPLATE,
    *RAGGED,
    transpose.TEMPLATE,
    row_cluster.TEMPLATE,
    row.TEMPLATE,
    column_cluster.TEMPLATE,
    column.TEMPLATE,
    elementwise.TEMPLATE,
)
PRIVATE = private.over(_GPU)
LOOPS = (serial.TEMPLATE, isl_band.TEMPLATE)  # of other origin than a problem's axes
GPU_TEMPLATES: tuple[Template[Any], ...] = (*LOOPS, PRIVATE, *_GPU)
LAST: tuple[Template[Any], ...] = (last_block.TEMPLATE,)
CPU_LOOPS = (cpu_isl_band.TEMPLATE, cpu_loops.TEMPLATE)  # of other origin, too
CPU_TEMPLATES: tuple[Template[Any], ...] = (
    cpu_stencil.TEMPLATE,
    cpu_panels.TEMPLATE,
    cpu_tile.TEMPLATE,
    cpu_row.TEMPLATE,
    *CPU_LOOPS,
)
BRIEF_TILES = (product_chain.TEMPLATE, tile_simt.TEMPLATE)  # those of tensor cores are as fast
LIKELIEST = (*LOOPS, PRIVATE, *TILES, *RAGGED, *LAST)  # of whose spaces the first is taken
TEMPLATES: tuple[Template[Any], ...] = (*GPU_TEMPLATES, *LAST, *CPU_TEMPLATES)


def templates_of(machine: Machine) -> tuple[Template[Any], ...]:
    """Return the templates that make kernels for *machine*."""
    return (*GPU_TEMPLATES, *LAST) if isinstance(machine, Chip) else CPU_TEMPLATES


def templates_for(problem: Problem) -> tuple[Template[Any], ...]:
    """Return the templates of the problem's machine; of what is left to last blocks, theirs."""
    if problem.finish is not None:
        return LAST
    if isinstance(problem.machine, Chip):
        return GPU_TEMPLATES
    is_asked = problem.scheme not in (None, Scheme.AUTO)
    return CPU_LOOPS if is_asked else CPU_TEMPLATES


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice, the schedule of it, what it costs in countable things, and in time."""

    choice: Choice
    schedule: Schedule
    work: AnyWork
    estimate: Estimate


@own_analysis
def candidates(problem: Problem) -> tuple[Candidate, ...]:
    """Return every choice for *problem*, the likeliest first."""
    pairs = ((choice, choice.schedule(problem)) for choice in choices(problem))
    return tuple(
        Candidate(choice, schedule, *estimated(problem, schedule)) for choice, schedule in pairs
    )


def fastest(problem: Problem) -> Choice:
    """Return the choice with the least estimated time; of those alike the likeliest.

    Tiles, and copies of results, are worth while wherever they apply, and first in their spaces is
    the fastest of them.  Where they are not likely the others decide among themselves.
    What rows of data cost, nobody knows before; isl's loops, and last blocks, have not been timed.
    """
    for template in templates_for(problem):
        if template in LOOPS and template.why_not(problem) is None:
            return Choice(template, next(template.space(problem)))
    return _fastest(problem)


@nameless_analysis
def _fastest(problem: Problem) -> Choice:
    """Return the same where no template applies that the scheme asks for (LOOPS)."""
    every = choices(problem)
    if not isinstance(problem.machine, Chip):
        return _fastest_on_cpu(problem)
    first = next(every)
    lesser = at_lesser_sizes(problem)
    if lesser is not None and first.template not in LIKELIEST:
        if has_open_sum(problem):
            return _fastest_of_open_sums(problem, lesser, _others(problem))
        return _fastest_at_both(problem, lesser, _others(problem))
    if first.template in BRIEF_TILES and problem.chunks is None and not problem.is_ragged:
        return _unless_brief(problem, None if has_open_sum(problem) else lesser, first)
    if first.template in LIKELIEST:
        return first
    return _least(problem, [c for c in chain((first,), every) if c.template not in LIKELIEST])


def _fastest_on_cpu(problem: Problem) -> Choice:
    """Return the first choice that takes about the least time, of the likeliest of each template.

    Where sizes are open, that is at what they count as (``locality.OPEN_EXTENT``).
    """
    every = _likeliest(problem)
    if len(every) == 1:
        return every[0]
    times = [seconds_of(problem, one.template.schedule(problem, one.config)) for one in every]
    most = ALIKE_ON_CPU * min(times)
    return next(one for one, seconds in zip(every, times, strict=True) if seconds <= most)


def _likeliest(problem: Problem) -> list[Choice]:
    """Return the first choice of each template that applies.

    Configurations of one template the estimate does not tell apart: of a convolution of
    4 x 9 x 9 x 1024 it took one of 7.9 ms, where the first takes 6.1.
    """
    return [
        Choice(template, config)
        for template in templates_for(problem)
        if template.why_not(problem) is None
        for config in islice(template.space(problem), 1)
    ]


def _least(problem: Problem, every: Sequence[Choice]) -> Choice:
    """Return the first of *every* that takes about the least time."""
    schedules = [choice.template.schedule(problem, choice.config) for choice in every]
    found = least_of(problem, schedules, ALIKE)
    assert found is not None, "no bound rules all out"
    return every[found[0]]


def _others(problem: Problem) -> list[Choice]:
    """Return the choices among which times decide."""
    return [choice for choice in choices(problem) if choice.template not in LIKELIEST]


def _fastest_at_both(problem: Problem, lesser: Problem, every: Iterable[Choice]) -> Choice:
    """Return which of *every* is the closest to the fastest at the greatest sizes and at *lesser*.

    Of one that is not for lesser sizes only the time at the greatest is weighed.
    """
    every = list(every)
    found = excesses([_times(problem, lesser, choice) for choice in every])
    most = ALIKE * min(found)
    return next(choice for choice, excess in zip(every, found, strict=True) if excess <= most)


def _fastest_of_open_sums(problem: Problem, lesser: Problem, every: Sequence[Choice]) -> Choice:
    """Return the same of sums over an open size.

    Where chunks of them are the fastest at the greatest sizes they are taken: these are dealt to as
    many blocks at any size, and nothing else would be at a lesser one.
    """
    fastest_ = _least(problem, every)
    if _has_chunks(fastest_):
        return fastest_
    return _fastest_at_both(problem, lesser, [one for one in every if not _has_chunks(one)])


def _has_chunks(choice: Choice) -> bool:
    is_chunked = choice.template in (column.TEMPLATE, row.TEMPLATE) and choice.config.chunk > 0
    return is_chunked or choice.template is row_column.TEMPLATE


def _unless_brief(problem: Problem, lesser: Problem | None, tiles: Choice) -> Choice:
    """Return *tiles*, unless these are brief, and something else takes half of their time or less.

    Tiles of a few steps wait for latencies, which rows hide behind one another: products of float32
    of 128 x 32 x 256 take 4.2 to 8.4 us, in tiles 8.4 to 9.4 (H200).  Predicted to be twice as fast
    some are slower (257 x 129 x 33, transposed: 10.1 for 9.9).  So do chains of products: of theirs
    the times decide which, where sizes are open.
    """
    is_chain = tiles.template is product_chain.TEMPLATE
    if lesser is None:
        return tiles if is_chain else _unless_others_are_quick(problem, tiles)
    seconds, at_lesser = _times(problem, lesser, tiles)
    if seconds > (BRIEF_CHAIN_SECONDS if is_chain else BRIEF_SECONDS):
        return tiles
    if is_chain:
        alike = (choice for choice in choices(problem) if choice.template is tiles.template)
        return _fastest_at_both(problem, lesser, alike)
    every = _others(problem)
    if not every:
        return tiles
    other = _fastest_at_both(problem, lesser, every)
    # Where a kernel for a lesser size would have no tiles, theirs take no longer than at the
    # greatest sizes, and nothing speaks for them.
    of_tiles = seconds / SPEEDUP, seconds if at_lesser == inf else at_lesser / SPEEDUP
    excess, excess_of_tiles = excesses([_times(problem, lesser, other), of_tiles])
    return other if excess <= excess_of_tiles else tiles


def _unless_others_are_quick(problem: Problem, tiles: Choice) -> Choice:
    """Return the same at fixed sizes, where bounds mostly say that nothing else is so fast."""
    seconds = seconds_of(problem, tiles.template.schedule(problem, tiles.config))
    if seconds > BRIEF_SECONDS:
        return tiles
    every = _others(problem)
    schedules = [choice.template.schedule(problem, choice.config) for choice in every]
    found = least_of(problem, schedules, ALIKE, seconds / SPEEDUP)
    return tiles if found is None or SPEEDUP * found[1] > seconds else every[found[0]]


def _times(problem: Problem, lesser: Problem | None, choice: Choice) -> tuple[float, float]:
    """Return the seconds of *choice* for both; inf where it is not for lesser sizes.

    Tiles are for a problem iff they are among those offered.
    """
    template, config = choice.template, choice.config
    seconds = seconds_of(problem, template.schedule(problem, config))
    if lesser is None or template.why_not(lesser) is not None:
        return seconds, inf
    if template in LIKELIEST and config not in _space(lesser, template):
        return seconds, inf
    return seconds, seconds_of(lesser, template.schedule(lesser, config))


@own_analysis
def _space(problem: Problem, template: Template[Any]) -> frozenset[Any]:
    """Return the configurations of *template* for *problem*, to ask whether one is among them."""
    return frozenset(template.space(problem))


def choices(problem: Problem) -> Iterator[Choice]:
    """Yield every choice for *problem*, the likeliest first."""
    fitting = [t for t in templates_for(problem) if t.why_not(problem) is None]
    for template in sorted(fitting, key=lambda template: not template.is_likely(problem)):
        yield from (Choice(template, config) for config in template.space(problem))


def reasons(problem: Problem) -> dict[str, str]:
    """Return why templates do not apply to *problem*, by their names."""
    found = ((template.name, template.why_not(problem)) for template in templates_for(problem))
    return {name: reason for name, reason in found if reason is not None}
