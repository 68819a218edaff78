"""Templates: families of kernels, what may be chosen of each, and the choice.

    problem --why_not--> a reason | None        does the template apply, and is it worth while?
            --is_likely--> bool                 are others slower, where it applies?
            --space-->   configurations         legal ones only, the likeliest first
            --schedule(config)--> Schedule        decides nothing

Each module of ``templates`` has one, with these functions.  A configuration is a frozen
dataclass of numbers and names, so that it can be written down, compared, and asked for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Generic, TypeVar

from tcdsl.records import dataclass
from tcdsl.strategies.code_choices import code_for
from tcdsl.strategies.lowering import Chunk, Lane, Lowering, grid_in_memory_order
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.requested import resized
from tcdsl.strategies.schedule import Schedule, Tile

Config = TypeVar("Config")


@dataclass(frozen=True, slots=True, eq=False)
class Template(Generic[Config]):
    """See the module's docstring."""

    name: str
    config: type[Config]
    why_not: Callable[[Problem], str | None]
    space: Callable[[Problem], Iterator[Config]]
    schedule: Callable[[Problem, Config], Schedule]
    is_likely: Callable[[Problem], bool] = lambda _: True

    def is_wanted(self, problem: Problem) -> bool:
        """Return whether it applies to *problem*, and others are slower."""
        return self.why_not(problem) is None and self.is_likely(problem)


@dataclass(frozen=True, slots=True)
class Choice:
    """A template and one of its configurations; *code*: what is asked of the kernel's code."""

    template: Template[Any]
    config: Any
    code: Mapping[str, Any] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """Return the choice as plain data."""
        return {"template": self.template.name, **asdict(self.config)}

    def schedule(self, problem: Problem) -> Schedule:
        """Return the schedule of *problem* that is chosen."""
        made = self.template.schedule(problem, self.config)
        code = code_for(problem, made, self.code)
        return replace(made, template=self.template.name, config=self.as_data(), code=code)


def assembled(
    problem: Problem,
    tiles: Sequence[Tile],
    lanes: Mapping[str, Lane],
    chunk: Chunk | None = None,
    why: Sequence[str] = (),
    *,
    is_in_memory_order: bool = False,
) -> Schedule:
    """Return the schedule of blocks and threads along *tiles* and *lanes*, in tiles as asked.

    :arg tiles: of the shared parallel axes, innermost first.
    :arg lanes: member -> its own axis along threads.
    :arg is_in_memory_order: neighbouring blocks are neighbours along the innermost axis.
    """
    if problem.options.tile:
        tiles, asked = resized(problem, tiles, lanes)
        why = (*why, *asked)
    grid = grid_in_memory_order(tiles, problem.gpu) if is_in_memory_order else None
    made = Lowering(problem.group, problem.shapes, problem.gpu, tiles, lanes, chunk, grid)
    return made.schedule(why)
