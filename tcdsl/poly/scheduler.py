"""Schedules from isl: bands of loops that the dependences allow, for programs that nothing fits.

    C(i,j) = C(i-1,j) + C(i,j-1)    --->    band[i, j]  permutable, no member coincident
    O(i) +=! x(i,j)                         band[i, j]  permutable, i coincident
                                              { O_init where j = 0; O }

isl finds affine functions whose differences along the dependences are never negative (validity),
zero where it can (coincidence: such a loop may run in parallel), and small along the flow of data
(proximity).  Relaxed dependences, between the updates of one accumulator, constrain only
coincidence: the order of the updates is free, but they may not run at the same time.

The result is plain data; strategies/generic tiles it and maps it.  Method: Bondhugula et al., PLDI
2008, doi:10.1145/1375581.1375595, as isl implements it; Verdoolaege and Janssens, "Scheduling for
PPCG", KU Leuven CW 706, 2017.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import islpy as isl

from tcdsl.poly.dependences import Dependence, Dependences
from tcdsl.poly.isl_utils import isl_options
from tcdsl.poly.loop_tree import AffineCoordinate, AnyCoordinate, Coordinate
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """One loop of a band: a function of each statement's iterators."""

    coordinates: Mapping[str, AnyCoordinate]
    is_coincident: bool  # no dependence that the loops outside leave has a distance along it


@dataclass(frozen=True, slots=True)
class Band:
    """Loops directly inside one another; *is_permutable*: in any order, and in tiles."""

    members: tuple[Member, ...]
    is_permutable: bool
    body: "Scheduled"


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of the program in order."""

    children: tuple["Scheduled", ...]


@dataclass(frozen=True, slots=True)
class Instances:
    """Statements all of whose loops are open; in textual order."""

    statements: tuple[str, ...]


Scheduled = Band | Parts | Instances


def schedule_by_isl(scop: Scop, dependences: Dependences, names: Sequence[str]) -> Scheduled:
    """Return isl's schedule of the statements *names*.

    A parallel outer loop is wanted first.  Where isl must give up deep bands for it (and what it
    finds then is one serial loop around everything), permutable bands are wanted instead: in tiles
    they have parallel wavefronts.
    """
    constraints = _constraints(scop, dependences, names)
    wide = _compute(scop, constraints, names, outer_coincidence=1)
    if all(_is_parallelisable(band) for band in _outermost(wide)):
        return wide
    deep = _compute(scop, constraints, names, outer_coincidence=0)
    return deep if all(_is_parallelisable(band) for band in _outermost(deep)) else wide


def _is_parallelisable(band: Band) -> bool:
    if any(member.is_coincident for member in band.members):
        return True
    return band.is_permutable and len(band.members) > 1


def _outermost(scheduled: Scheduled) -> Iterator[Band]:
    match scheduled:
        case Band():
            yield scheduled
        case Parts(children=children):
            for child in children:
                yield from _outermost(child)


def _constraints(
    scop: Scop, dependences: Dependences, names: Sequence[str]
) -> isl.ScheduleConstraints:
    """Return what isl is to respect: see the module's docstring."""
    domain = isl.UnionSet.empty(scop.context.get_space())
    for name in names:
        domain = domain.union(isl.UnionSet.from_set(scop.by_name[name].domain))
    inside = [e for e in dependences.edges if e.source in names and e.sink in names]
    strict = [e for e in inside if not e.is_relaxed]
    return (
        isl.ScheduleConstraints.on_domain(domain)
        .set_validity(_union(scop, strict))
        .set_coincidence(_union(scop, inside))
        .set_proximity(_union(scop, [e for e in strict if e.is_flow]))
    )


def _union(scop: Scop, edges: Iterable[Dependence]) -> isl.UnionMap:
    union = isl.UnionMap.empty(scop.context.get_space())
    for edge in edges:
        union = union.union(isl.UnionMap.from_map(edge.relation))
    return union


def _compute(
    scop: Scop,
    constraints: isl.ScheduleConstraints,
    names: Sequence[str],
    *,
    outer_coincidence: int,
) -> Scheduled:
    with isl_options(
        schedule_outer_coincidence=outer_coincidence,
        schedule_maximize_coincidence=1,
        schedule_maximize_band_depth=1,
    ):
        root = constraints.copy().compute_schedule().get_root()
    scheduled = _convert(scop, root.child(0))
    # isl drops statements without instances; every kernel runs all of its own.
    lost = [name for name in names if name not in set(_statements(scheduled))]
    return Parts((scheduled, *(Instances((name,)) for name in lost))) if lost else scheduled


def _statements(scheduled: Scheduled) -> Iterator[str]:
    match scheduled:
        case Band(body=body):
            yield from _statements(body)
        case Parts(children=children):
            for child in children:
                yield from _statements(child)
        case Instances(statements=statements):
            yield from statements


def _convert(scop: Scop, node: isl.ScheduleNode) -> Scheduled:
    """Return the tree below *node* as plain data."""
    kind, kinds = isl.schedule_node_type(node.get_type()), isl.schedule_node_type
    if kind == kinds.leaf:
        return Instances(_active(scop, node))
    if kind in (kinds.sequence, kinds.set):
        children = [_convert(scop, node.child(i).child(0)) for i in range(node.n_children())]
        return Parts(tuple(children))
    assert kind == kinds.band, f"isl's scheduler made a {kind} node"
    if node.band_n_member() == 0:
        return _convert(scop, node.child(0))
    members = tuple(_member(node, position) for position in range(node.band_n_member()))
    return Band(members, bool(node.band_get_permutable()), _convert(scop, node.child(0)))


def _active(scop: Scop, node: isl.ScheduleNode) -> tuple[str, ...]:
    """Return the statements with instances at *node*, in textual order."""
    sets = node.get_domain().get_set_list()
    names = [sets.get_at(i).get_tuple_name() for i in range(sets.n_set())]
    return tuple(sorted(names, key=scop.position))


def _member(node: isl.ScheduleNode, position: int) -> Member:
    functions = node.band_get_partial_schedule().get_at(position).get_pw_aff_list()
    coordinates = {}
    for i in range(functions.n_pw_aff()):
        function = functions.get_at(i)
        name = function.get_domain_space().get_tuple_name(isl.dim_type.set)
        coordinates[name] = coordinate_of(function)
    return Member(coordinates, bool(node.band_member_get_coincident(position)))


def coordinate_of(function: isl.PwAff) -> AnyCoordinate:
    """Return an affine *function* with integer coefficients as a coordinate."""
    assert function.isa_aff(), "isl's scheduler gave a statement a function in pieces"
    aff = function.as_aff()
    assert aff.dim(isl.dim_type.div) == 0, "isl's scheduler gave a statement a quotient"
    n_params = aff.dim(isl.dim_type.param)
    assert not aff.involves_dims(isl.dim_type.param, 0, n_params), "a schedule depends on a size"
    terms = []
    for dim in range(aff.dim(isl.dim_type.in_)):
        factor = aff.get_coefficient_val(isl.dim_type.in_, dim).to_python()
        if factor:
            terms.append((factor, Coordinate(dim)))
    shift = -aff.get_constant_val().to_python()
    if len(terms) == 1 and terms[0][0] == 1:
        return Coordinate(terms[0][1].position, shift)
    return AffineCoordinate(tuple(terms), shift)
