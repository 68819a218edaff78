"""All templates, and the choice among them.

The least estimated time decides; of times that are alike the first.  Templates, and configurations
of a space, are in the order of what measurements favour.
"""

from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import Any

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.estimate import Estimate, estimate
from tcdsl.costmodel.work import Work
from tcdsl.records import dataclass
from tcdsl.strategies.lesser_sizes import at_lesser_sizes
from tcdsl.strategies.problem import Problem, nameless_analysis, own_analysis
from tcdsl.strategies.template import Choice, Template
from tcdsl.strategies.templates import (
    column,
    column_cluster,
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
from tcdsl.strategies.work import seconds_of, work_of

BRIEF_SECONDS = 10e-6  # tiles that take less are weighed by time, where sizes are open
ALIKE = 1.02  # times that differ by less are the same, as far as the estimate can tell

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
CPU_TEMPLATES = (
    cpu_stencil.TEMPLATE,
    cpu_panels.TEMPLATE,
    cpu_tile.TEMPLATE,
    cpu_row.TEMPLATE,
)
LIKELIEST = (*LOOPS, PRIVATE, *TILES, *RAGGED, *LAST)  # of whose spaces the first is taken
TEMPLATES: tuple[Template[Any], ...] = (*GPU_TEMPLATES, *LAST, *CPU_TEMPLATES)


def templates_for(problem: Problem) -> tuple[Template[Any], ...]:
    """Return the templates of the problem's machine; of what is left to last blocks, theirs."""
    if problem.finish is not None:
        return LAST
    return GPU_TEMPLATES if isinstance(problem.machine, Chip) else CPU_TEMPLATES


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice, what it costs in countable things, and in time."""

    choice: Choice
    work: Work
    estimate: Estimate


@own_analysis
def candidates(problem: Problem) -> tuple[Candidate, ...]:
    """Return every choice for *problem* on a GPU, the likeliest first."""
    found = []
    for choice in choices(problem):
        work = work_of(problem, choice.schedule(problem))
        found.append(Candidate(choice, work, estimate(work, problem.gpu)))
    return tuple(found)


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
    first = next(every)
    lesser = at_lesser_sizes(problem) if isinstance(problem.machine, Chip) else None
    if lesser is not None and (first.template not in LIKELIEST or _is_brief(problem, first)):
        return _fastest_at_both(problem, lesser)
    if first.template in LIKELIEST or not isinstance(problem.machine, Chip):
        return first
    least, found = inf, list[tuple[float, Choice]]()
    for choice in chain((first,), every):
        if choice.template not in LIKELIEST:
            sketch = choice.template.schedule(problem, choice.config)
            found.append((seconds_of(problem, sketch, ALIKE * least), choice))
            least = min(least, found[-1][0])
    return next(choice for seconds, choice in found if seconds <= ALIKE * least)


def _is_brief(problem: Problem, choice: Choice) -> bool:
    return seconds_of(problem, choice.template.schedule(problem, choice.config)) < BRIEF_SECONDS


def _fastest_at_both(problem: Problem, lesser: Problem) -> Choice:
    """Return the choice that is the closest to the fastest at the greatest sizes and at *lesser*.

    Of one that is not for lesser sizes only the time at the greatest is weighed.
    """
    found, first = [], next(choices(problem)).template
    for choice in choices(problem):
        template, config = choice.template, choice.config
        if template in LIKELIEST and template is not first:
            continue
        at_lesser = inf
        if _is_for(lesser, choice):
            at_lesser = seconds_of(lesser, template.schedule(lesser, config))
        seconds = seconds_of(problem, template.schedule(problem, config))
        found.append((seconds, at_lesser, choice))
    least = min(seconds for seconds, _, _ in found)
    least_at_lesser = min(at_lesser for _, at_lesser, _ in found)

    def excess(seconds: float, at_lesser: float) -> float:
        return max(seconds / least, 1 if at_lesser == inf else at_lesser / least_at_lesser)

    best = min(excess(*times) for *times, _ in found)
    return next(choice for *times, choice in found if excess(*times) <= ALIKE * best)


def _is_for(problem: Problem, choice: Choice) -> bool:
    """Return whether *choice* may be scheduled for *problem*; tiles must be among those offered."""
    template, config = choice.template, choice.config
    if template.why_not(problem) is not None:
        return False
    return template not in LIKELIEST or config in template.space(problem)


def choices(problem: Problem) -> Iterator[Choice]:
    """Yield every choice for *problem*, the likeliest first."""
    fitting = [t for t in templates_for(problem) if t.why_not(problem) is None]
    for template in sorted(fitting, key=lambda template: not template.is_likely(problem)):
        yield from (Choice(template, config) for config in template.space(problem))


def reasons(problem: Problem) -> dict[str, str]:
    """Return why templates do not apply to *problem*, by their names."""
    found = ((template.name, template.why_not(problem)) for template in templates_for(problem))
    return {name: reason for name, reason in found if reason is not None}
