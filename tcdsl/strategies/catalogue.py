"""All templates, and the choice among them.

The first template that applies makes the kernel, with the first configuration of its space: both
orders are by what measurements favour.
"""

from collections.abc import Iterator
from typing import Any

from tcdsl.costmodel.chip import Chip
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.template import Choice, Template
from tcdsl.strategies.templates import (
    column,
    column_cluster,
    cpu_row,
    cpu_stencil,
    cpu_tile,
    elementwise,
    private,
    ragged,
    ragged_long,
    row,
    row_cluster,
    row_column,
    row_split,
    stencil,
    tile_mma,
    tile_simt,
)

_GPU = (
    stencil.TEMPLATE,
    tile_mma.TEMPLATE,
    tile_simt.TEMPLATE,
    row_split.TEMPLATE,
    row_column.TEMPLATE,
    ragged_long.TEMPLATE,
    ragged.TEMPLATE,
    row_cluster.TEMPLATE,
    row.TEMPLATE,
    column_cluster.TEMPLATE,
    column.TEMPLATE,
    elementwise.TEMPLATE,
)
GPU_TEMPLATES = (private.over(_GPU), *_GPU)
CPU_TEMPLATES = (cpu_stencil.TEMPLATE, cpu_tile.TEMPLATE, cpu_row.TEMPLATE)
TEMPLATES: tuple[Template[Any], ...] = (*GPU_TEMPLATES, *CPU_TEMPLATES)


def templates_for(problem: Problem) -> tuple[Template[Any], ...]:
    """Return the templates of the problem's machine."""
    return GPU_TEMPLATES if isinstance(problem.machine, Chip) else CPU_TEMPLATES


def likeliest(problem: Problem) -> Choice:
    """Return the choice that measurements favour; every problem has one."""
    return next(choices(problem))


def choices(problem: Problem) -> Iterator[Choice]:
    """Yield every choice for *problem*, the likeliest first."""
    fitting = [t for t in templates_for(problem) if t.why_not(problem) is None]
    for template in sorted(fitting, key=lambda template: not template.is_likely(problem)):
        yield from (Choice(template, config) for config in template.space(problem))


def reasons(problem: Problem) -> dict[str, str]:
    """Return why templates do not apply to *problem*, by their names."""
    found = ((template.name, template.why_not(problem)) for template in templates_for(problem))
    return {name: reason for name, reason in found if reason is not None}
