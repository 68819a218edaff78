"""The axes of a kernel that is a chain of stencils in overlapped tiles, as templates see them.

h'(t,u) = x(T t+u-1) + x(T t+u) + x(T t+u+1)     tiles   t of both
y(T t+u) = h'(t,u-1) + h'(t,u+1)                 inner   u of both: no axis, they differ by 1
"""

from math import prod

from tcdsl.poly.scop import Overlapped, Scop
from tcdsl.records import dataclass
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.schedule import Axis


@dataclass(frozen=True, slots=True)
class TiledChain:
    """The axes of the tiles, those inside a tile, and others that all members are parallel along.

    Of the latter *outside* are walked around tiles: in memory they are outside of what is inside.
    """

    tiles: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    outside: tuple[Axis, ...]
    along: tuple[Axis, ...]  # the other ones


@analysis
def overlapped_of(problem: Problem) -> Overlapped | None:
    """Return the chain in tiles that has all members of *problem*, if there is one."""
    members = problem.group.members
    chains = (o for o in problem.scop.overlapped if all(name in o.indices for name in members))
    return next(chains, None)


@analysis
def tiled_chain(problem: Problem) -> TiledChain | None:
    """Return the axes of *problem* if its members are a chain in overlapped tiles."""
    overlapped, members = overlapped_of(problem), problem.group.members
    if overlapped is None:
        return None
    tiles, inner = [], []
    for number in range(overlapped.n_axes):
        dims = [
            {
                name: problem.shapes[name].statement.indices.index(index)
                for name in members
                for index in [overlapped.indices[name][number][part]]
            }
            for part in (0, 1)
        ]
        tiles.append(dims[0])
        inner.append(dims[1])
    if any(axis not in problem.parallel for axis in tiles):
        return None
    order = problem.shapes[problem.lead].order
    first = min(order.index(axis[problem.lead]) for axis in inner)
    others = [axis for axis in problem.parallel if axis not in tiles and axis not in inner]
    outside = [axis for axis in others if order.index(axis[problem.lead]) < first]
    return TiledChain(
        tuple(tiles), tuple(inner), tuple(outside),
        tuple(axis for axis in others if axis not in outside),
    )  # fmt: skip


def count(problem: Problem, axes: tuple[Axis, ...]) -> int:
    """Return how many values *axes* have together."""
    return prod(problem.extent(axis) for axis in axes)


def why_not_beside(scop: Scop, group: Group) -> str | None:
    """Return why *group* has members of a chain in tiles and others, or None."""
    members = set(group.members)
    for overlapped in scop.overlapped:
        if members & overlapped.indices.keys() and not members <= overlapped.indices.keys():
            return "a chain of stencils in tiles has a kernel of its own"
    return None
