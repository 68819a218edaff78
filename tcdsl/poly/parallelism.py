"""What each dimension of a statement may do: run in parallel, be reordered, or neither.

    PARALLEL   no dependence of the statement on itself has a distance along the dimension
    REDUCED    only relaxed ones have: instances may run in any order, not at the same time
    ORDERED    a strict one has: a recurrence

Dimensions that are PARALLEL or REDUCED may stand anywhere in the loop nest: a strict dependence
has distance zero along them, so that its sign is decided by the ORDERED ones, which keep their
order.
"""

from enum import StrEnum

from tcdsl.poly.dependences import Dependence, Dependences
from tcdsl.poly.scop import Kind, Statement


class Role(StrEnum):
    """See the module's docstring."""

    PARALLEL = "parallel"
    REDUCED = "reduced"
    ORDERED = "ordered"


def roles_of(statement: Statement, dependences: Dependences) -> tuple[Role, ...]:
    """Return the role of each dimension of *statement*."""
    own = dependences.between(statement.name, statement.name)
    roles = [_role(own, dim) for dim in range(len(statement.indices))]
    if statement.kind is Kind.UPDATE:
        # A reduced index with a single value has no distance either, but names no accumulator.
        for dim in range(statement.n_left, len(roles)):
            roles[dim] = Role.REDUCED if roles[dim] is Role.PARALLEL else roles[dim]
    return tuple(roles)


def _role(own: list[Dependence], dim: int) -> Role:
    moving = [edge for edge in own if not edge.has_equal(dim, dim)]
    if not moving:
        return Role.PARALLEL
    return Role.REDUCED if all(edge.is_relaxed for edge in moving) else Role.ORDERED
