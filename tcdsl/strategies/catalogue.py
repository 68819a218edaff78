"""All templates, and the choice among them.

The first template that applies makes the kernel, with the first configuration of its space: both
orders are by what measurements favour.
"""

from collections.abc import Iterator

from tcdsl.strategies.problem import Problem
from tcdsl.strategies.template import Choice
from tcdsl.strategies.templates import (
    column,
    column_cluster,
    elementwise,
    ragged,
    ragged_long,
    row,
    row_cluster,
    row_column,
    row_split,
)

TEMPLATES = (
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


def likeliest(problem: Problem) -> Choice:
    """Return the choice that measurements favour; every problem has one."""
    return next(choices(problem))


def choices(problem: Problem) -> Iterator[Choice]:
    """Yield every choice for *problem*, the likeliest first."""
    for template in TEMPLATES:
        if template.why_not(problem) is None:
            yield from (Choice(template, config) for config in template.space(problem))


def reasons(problem: Problem) -> dict[str, str]:
    """Return why templates do not apply to *problem*, by their names."""
    found = ((template.name, template.why_not(problem)) for template in TEMPLATES)
    return {name: reason for name, reason in found if reason is not None}
