"""The slots of folds over threads: how much shared memory they are, and who has some of its own.

All folds of a kind put their values into the same slots, so that a fold over a cluster waits, at a
barrier of all its blocks, until everyone has read what the one before has left there.  Those that
are *numbered* have slots of their own, and wait for what is put there and for nothing else::

    tc_cluster_begin();                           tc_cluster_begin<2>();
    tc_fold_xc<tc_op_max_f32, 512, 1, 4>(a)  -->  tc_fold_xc<tc_op_max_f32, 512, 1, 4, 0>(a)
    tc_fold_xc<tc_op_add_f32, 512, 1, 4>(b)       tc_fold_xc<tc_op_add_f32, 512, 1, 4, 1>(b)

Numbers are given in the order in which folds run.  Legal iff all blocks of a cluster meet the same
folds, and nobody writes to a slot that is still to be read.  So it is if every block calls each of
them exactly once, that is where the loops over blocks and threads around the fold have one turn,
and of the other loops, but for the one whose iterations one call folds (``fold_lanes``),

    { block -> [values of the loops] }    is a function on the whole grid.

Where it has several values, of serial loops that are the same for all blocks of a cluster, folds
are called in *turns*, and each has two sets of slots, one for every second turn::

    for i in the cluster's rows               tc_cluster_begin<1, true>();
      s = tc_fold_xc<.., 512, 1, 2>(a)  -->   .. tc_fold_xc<.., 512, 1, 2, 0>(a, turns)

Who writes to a set again has waited for the fold of the turn between, to which every warp of every
block gives what it has after it has read: so along x, or x and y, alone.

Of an open size the grid is that of the call: of all statements of the kernel, along each axis.

isl must print the call in one place, too: no loop around sets iterations apart, and the instances
are one basic set.  A kernel numbers all its folds over clusters or none, for there is no arrival at
the cluster's barrier left that another could wait for; so it has no wide barrier either.  Values
have 4 bytes or more, which the asynchronous stores move, and all slots fit into shared memory.

One fold alone has no number: on an H200 rmsnorm of (4096, 65536) float32 takes 613 us with one and
565 without, for a reason not found (bfloat16: 286 and 291); kernels with two folds gain 4 to 20 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from typing import NamedTuple

import islpy as isl

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import WARP
from tcdsl.costmodel.shared_memory import STATIC_BYTES, column_slots, row_slots
from tcdsl.lang.comprehension import Operator
from tcdsl.poly.loop_tree import MAPPED, RANK, Loop, LoopKind, X, Y, values_of
from tcdsl.poly.scop import Kind, Statement
from tcdsl.records import dataclass
from tcdsl.schedule.cross_thread import is_replicated
from tcdsl.schedule.fold_lanes import has_all_lanes, short_loop_around, why_not_at_once
from tcdsl.schedule.joint_folds import joint_folds
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import Placements, Space

MOST_NUMBERED = 16  # what the device library has room for
MOST_LANES_BYTES = gpu_thresholds.FOLD_LANES_BYTES
_COUNTER_BYTES = 8  # of what counts the bytes that are put into the slots of one number
_STORE_BYTES = 4  # the least that an asynchronous store moves
_ALIGNMENT = 16


class Slots(NamedTuple):
    """The slots that one fold has of its own."""

    number: int
    in_turns: bool  # two sets, for every second turn


@dataclass(frozen=True, slots=True)
class FoldSlots:
    """How the folds of one kernel are called, by their statements."""

    lanes: Mapping[str, Loop]  # the loop all of whose iterations one call may fold
    numbers: Mapping[str, int]  # of those with slots of their own, from 0 on in their order
    in_turns: bool = False  # whether these have two sets, and are called in turns
    joint: Mapping[str, str] = field(default_factory=dict)  # the next fold that a call folds, too

    def own(self, name: str) -> Slots | None:
        """Return the slots of the fold *name* alone, None if it has those of all of its kind."""
        number = self.numbers.get(name)
        return None if number is None else Slots(number, self.in_turns)


def fold_slots(mapped: Mapped, placements: Placements, shared_bytes: int = 0) -> FoldSlots:
    """Return how the folds of the kernel of *mapped* are called: lanes first, then numbers.

    :arg shared_bytes: what a block may have with what its launch asks for; 0: as much as that is.
    """
    room = STATIC_BYTES
    if shared_bytes:
        room = min(room, shared_bytes - array_bytes(mapped, placements, is_dynamic=True))
    slots = FoldSlots({}, {})
    folds = _folds(mapped)
    for fold in folds:
        loop = short_loop_around(mapped, fold)
        if loop is None or why_not_at_once(mapped, placements, fold, loop) is not None:
            continue
        more = FoldSlots({**slots.lanes, fold.name: loop}, {})
        if _fits(mapped, placements, more, room):
            slots = more
    more = replace(slots, joint=joint_folds(mapped, placements, slots.lanes))
    if _fits(mapped, placements, more, room):
        slots = more
    of_clusters = [fold for fold in folds if RANK in mapped.fold_axes(fold)]
    for in_turns in (False, True):
        if why_not_numbered(mapped, of_clusters, slots.lanes, in_turns=in_turns) is None:
            numbers = {fold.name: number for number, fold in enumerate(of_clusters)}
            numbered = replace(slots, numbers=numbers, in_turns=in_turns)
            return numbered if _fits(mapped, placements, numbered, room) else slots
    return slots


def _folds(mapped: Mapped) -> list[Statement]:
    """Return the folds over threads, in the order in which they run."""
    statements = [mapped.scop.by_name[name] for name in mapped.paths]
    return [s for s in statements if s.kind is Kind.FOLD and mapped.fold_axes(s)]


# --- numbers --------------------------------------------------------------------------------


def why_not_numbered(
    mapped: Mapped,
    folds: Sequence[Statement],
    lanes: Mapping[str, Loop],
    *,
    in_turns: bool = False,
) -> str | None:
    """Return why *folds*, all those over clusters of the kernel, have no slots of their own.

    :arg lanes: the loops whose iterations one call of a fold folds.
    :arg in_turns: there are two sets of slots, for every second turn.
    """
    if not (1 if in_turns else 2) <= len(folds) <= MOST_NUMBERED:
        return f"{len(folds)} folds are over clusters"
    if any(mapped.scop.by_name[name].is_wide for name in mapped.paths):
        return "there is a barrier of the cluster"
    for fold in folds:
        assert fold.reduction is not None
        # The index of a pair is large enough.
        is_small = fold.reduction.dtype.size_bytes < _STORE_BYTES
        if is_small and not fold.reduction.operator.is_arg:
            return f"the values of {fold.name} are too small to be stored asynchronously"
        if in_turns and 0 not in mapped.fold_axes(fold):
            return f"not every warp gives something to {fold.name}"
        if reason := _why_not_once(mapped, fold, lanes.get(fold.name), in_turns):
            return reason
    return None


def _why_not_once(
    mapped: Mapped, fold: Statement, lanes: Loop | None, in_turns: bool
) -> str | None:
    """Return why not every block calls *fold* in one place of the text, and once there, or None.

    Or, *in_turns*, several times, as often as the other blocks of its cluster.
    """
    path = mapped.paths[fold.name]
    if any(loop.kind is LoopKind.LAST for loop in path):
        return f"one of the blocks runs {fold.name}"
    if any(not loop.has_one_iteration for loop in path if loop.kind in MAPPED):
        return f"blocks or threads run {fold.name} in turns"
    blocks = [loop for loop in path if loop.kind is LoopKind.BLOCK]
    others = [loop for loop in path if loop.kind not in MAPPED and loop is not lanes]
    block, other = (values_of(mapped.scop, fold.name, loops) for loops in (blocks, others))
    is_once = block.reverse().apply_range(other).is_single_valued()
    if in_turns and (is_once or any(loop.kind is not LoopKind.SERIAL for loop in others)):
        return f"a block runs {fold.name} once, or unrolled"
    if not in_turns and not is_once:
        return f"a block runs {fold.name} several times"
    if not block.range().is_equal(_grid(mapped, blocks)):
        return f"some blocks do not run {fold.name}"
    if lanes is not None and not has_all_lanes(mapped, lanes):
        return f"some lanes of {fold.name} are guarded"
    instances = values_of(mapped.scop, fold.name, path).range().coalesce()
    if instances.n_basic_set() > 1 or any(_is_split(loop) for loop in path):
        return f"{fold.name} may be printed twice"
    return None


def _grid(mapped: Mapped, blocks: Sequence[Loop]) -> isl.Set:
    """Return the values of *blocks* in a launch: all below their widths, of open sizes the call's.

    Whatever else a grid has are whole clusters that have nothing to do.
    """
    box = isl.Set("{ [] }")
    context = mapped.scop.context
    for loop in blocks:
        values = isl.Set(f"{{ [x] : 0 <= x < {loop.width} }}").intersect_params(context)
        if context.dim(isl.dim_type.param):
            own = (values_of(mapped.scop, name, [loop]).range() for name in _on(mapped, loop))
            values = reduce(isl.Set.union, own).coalesce()
        box = box.flat_product(values)
    return box.intersect_params(context)


def _on(mapped: Mapped, loop: Loop) -> list[str]:
    """Return the statements that *loop* is around."""
    return [name for name, path in mapped.paths.items() if loop in path]


def _is_split(loop: Loop) -> bool:
    """Return whether some iterations of *loop* get a loop of their own."""
    return not (isinstance(loop.limit, int) and loop.limit == 0)


# --- bytes ----------------------------------------------------------------------------------


def static_bytes(mapped: Mapped, placements: Placements, slots: FoldSlots) -> int:
    """Return a block's shared memory but for what a launch asks for: arrays, slots, counters."""
    arrays = array_bytes(mapped, placements, is_dynamic=False)
    counters = 2 * _COUNTER_BYTES * MOST_NUMBERED if slots.numbers else 0
    return arrays + counters + sum(_slot_bytes(mapped, placements, slots).values())


def array_bytes(mapped: Mapped, placements: Placements, *, is_dynamic: bool) -> int:
    """Return the bytes of a block's arrays that the launch asks for, or of the others."""
    statements = [mapped.scop.by_name[name] for name in mapped.paths]
    touched = {access.array for s in statements for access in (*s.writes, *s.reads)}
    return sum(
        _aligned(placement.elements() * mapped.scop.arrays[placement.array].dtype.size_bytes)
        for placement in placements.values()
        if placement.array in touched
        and placement.space is Space.SHARED
        and placement.is_dynamic == is_dynamic
    )


def _fits(mapped: Mapped, placements: Placements, slots: FoldSlots, room: int) -> bool:
    """Return whether *room* is enough for a block, and lanes leave some of it to others."""
    sizes = _slot_bytes(mapped, placements, slots)
    lanes_bytes = sum(size for call, size in sizes.items() if call.lanes > 1)
    is_modest = lanes_bytes <= MOST_LANES_BYTES
    return is_modest and static_bytes(mapped, placements, slots) <= room


@dataclass(frozen=True, slots=True)
class _Call:
    """A template of the device library with its arguments: all calls of it have the same slots."""

    axes: tuple[int, ...]
    operator: Operator
    types: tuple[str, ...]  # of the value, and of the index that an arg fold finds
    lanes: int
    is_first: bool = False  # the first threads alone get the result
    number: int | None = None


def _slot_bytes(mapped: Mapped, placements: Placements, slots: FoldSlots) -> dict[_Call, int]:
    """Return the bytes of the slots of every call that the kernel may have."""
    sizes = {}
    for fold in _folds(mapped):
        axes = mapped.fold_axes(fold)
        is_first = axes == (1,) and not is_replicated(fold, placements)
        number = slots.numbers.get(fold.name)
        for lanes in _lanes_of_calls(fold, slots):
            call, size_bytes = _call(mapped, fold, lanes)
            sets = 2 if slots.in_turns and number is not None else 1
            sizes[replace(call, is_first=is_first, number=number)] = sets * size_bytes
    return sizes


def _call(mapped: Mapped, fold: Statement, lanes: int) -> tuple[_Call, int]:
    """Return a call of *fold* for all threads, and the bytes of its slots."""
    reduction, axes = fold.reduction, mapped.fold_axes(fold)
    assert reduction is not None
    dtypes = [reduction.dtype]
    if reduction.operator.is_arg:
        dtypes.append(mapped.scop.arrays[fold.parts[0].array].dtype)
    value_bytes = len(dtypes) * max(dtype.size_bytes for dtype in dtypes)
    size_bytes = sum(_aligned(value_bytes * lanes * n) for n in _slot_counts(mapped, axes))
    return _Call(axes, reduction.operator, tuple(d.name for d in dtypes), lanes), size_bytes


def slot_bytes_at_most(mapped: Mapped) -> int:
    """Return what folds of one value each may take, whoever gets the results: no arrays are placed.

    Folds down columns for the first threads alone have slots of their own.
    """
    sizes = dict(_call(mapped, fold, 1) for fold in _folds(mapped))
    return sum(size * (2 if call.axes == (1,) else 1) for call, size in sizes.items())


def slot_bytes_of_each(mapped: Mapped) -> int:
    """Return what folds of one value each take if all have slots of their own, and are counted."""
    each = sum(_call(mapped, fold, 1)[1] for fold in _folds(mapped))
    return max(slot_bytes_at_most(mapped), each + 2 * _COUNTER_BYTES * MOST_NUMBERED)


def _lanes_of_calls(fold: Statement, slots: FoldSlots) -> tuple[int, ...]:
    """Return how many lanes calls of *fold* have: where lanes are guarded, one after all."""
    if fold.name in slots.joint:
        return 1, 2
    loop = slots.lanes.get(fold.name)
    if loop is None or loop.extent is None:
        return (1,)
    return (loop.extent,) if fold.name in slots.numbers else (1, loop.extent)


def _slot_counts(mapped: Mapped, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many slots each array of them has that a fold over *axes* takes."""
    x, y, _ = mapped.block
    return {
        (X,): (row_slots(x, y),),
        (Y,): (column_slots(x, y),),
        (X, Y): (row_slots(x * y, 1),),
        (X, RANK): (mapped.cluster * x // WARP,),
        (X, Y, RANK): (mapped.cluster * x * y // WARP,),
        (Y, RANK): (column_slots(x, y), mapped.cluster * x),
        (RANK,): (mapped.cluster,),
    }[axes]


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNMENT) * _ALIGNMENT
