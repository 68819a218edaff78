"""Where a kernel's scratch arrays live on a GPU: in registers, in shared memory, or in memory.

Let W = { s[x] -> e } be the accesses to an array, T_a = { s[x] -> t } the thread along axis a.

    private   for every axis, W^-1 . T_a is single valued: one thread touches the element; or all
              writers are uniform along it, so that each thread writes a copy of its own
    shared    otherwise, if one block touches the element, within one iteration of loops that all
              its threads run together, and the block's budget allows it.  Each block of a cluster
              has what its rank touches
    memory    otherwise

Registers have no addresses: a private array that needs an index is kept to a few elements, all its
indices numbers once short loops are unrolled.  Whatever does not fit gives way to the next kind
of memory; nothing fails.  A strategy may ask for shared memory at once (*staged*).  After
Verdoolaege et al., TACO 2013, doi:10.1145/2400682.2400713, section 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from math import prod

import islpy as isl

from tcdsl.costmodel import chip, gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.lang.comprehension import Const, Index, indices_in
from tcdsl.poly.isl_utils import along, constant_bounds, val
from tcdsl.poly.loop_tree import (
    RANK,
    AnyCoordinate,
    Coordinate,
    Loop,
    LoopKind,
    Node,
    positions_of,
    terms_told,
    time_of,
)
from tcdsl.poly.scop import Access, Array, Kind, Scop, Statement, Storage
from tcdsl.schedule.fold_slots import slot_bytes_at_most, slot_bytes_of_each
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import (
    FIXED,
    NO_REQUESTS,
    Layout,
    LocalDim,
    Placement,
    Requests,
    Ring,
    Space,
    Uses,
    accesses_of,
    common_prefix,
    is_digit_of_a_subscript,
    is_known,
    lifetime_depth,
    local_dim,
)

MAX_PRIVATE_BYTES = 512  # of one array in registers: half of those that a thread may have anywhere
FOLD_BYTES = 16  # of a thread's value and its index
MOST_FOLD_BYTES = gpu_thresholds.FOLD_VALUES_BYTES
WORD_BYTES = chip.BANK_BYTES
VECTOR_BYTES = chip.VECTOR_BYTES
_WRITTEN_OUT = (LoopKind.UNROLL, LoopKind.LANES, LoopKind.COLLECTIVE)
_IN_ORDER = (LoopKind.SERIAL, LoopKind.UNROLL)


def promote(
    scop: Scop,
    trees: Sequence[Node],
    gpu: Chip,
    requests: Requests = NO_REQUESTS,
) -> dict[str, Placement]:
    """Return the local arrays of *scop*, whose kernels are *trees*; the others stay in memory.

    Where blocks of several kernels share a launch, each of these has a block's shared memory.
    """
    placements: dict[str, Placement] = {}
    for part in (part for tree in trees for part in Mapped(scop, tree).parts):
        placements |= _Kernel(part, gpu, requests).placements()
    return placements


class _Kernel:
    """Places the arrays that one kernel has for itself."""

    def __init__(
        self,
        mapped: Mapped,
        gpu: Chip,
        requests: Requests,
    ) -> None:
        self.scop = scop = mapped.scop
        self.mapped = mapped
        self.gpu = gpu
        self.staged = {name: own.stages for name, own in requests.items() if own.stages}
        self.held = {name for name, own in requests.items() if own.space is Space.PRIVATE}
        self.large = {name for name, own in requests.items() if own.is_large}
        names = set(mapped.paths)
        self.arrays: dict[str, Uses] = {}
        for array in scop.arrays.values():
            uses = accesses_of(scop, array.name)
            is_own = bool(uses) and {statement.name for statement, _ in uses} <= names
            # Shared memory has an address for what is scattered.
            is_exact = all(a.is_exact or (s.is_atomic and a is s.write) for s, a in uses)
            if array.storage is Storage.SCRATCH and is_own and is_exact:
                self.arrays[array.name] = uses
        scattered = {
            name for name, uses in self.arrays.items() if not all(a.is_exact for _, a in uses)
        }
        self.not_private: set[str] = {*self.staged, *scattered}

    def placements(self) -> dict[str, Placement]:
        """Return the placements, after private arrays gave way until all writers agree."""
        while True:
            private = self._private()
            mixed = {name for name in private if self._has_pinned_writer(name, private)}
            if not mixed:
                return private | self._shared(private)
            self.not_private |= mixed

    def _private(self) -> dict[str, Placement]:
        found = {}
        for name, uses in self.arrays.items():
            if name not in self.not_private and self._is_private(uses):
                placement = self._private_placement(self.scop.arrays[name], uses)
                if placement is not None:
                    found[name] = placement
        return found

    def _has_pinned_writer(self, name: str, private: Mapping[str, Placement]) -> bool:
        """Return whether one thread alone would write copies that all threads read.

        A uniform statement that also writes memory is pinned.
        """
        for statement, access in self.arrays[name]:
            writes_memory = any(write.array not in private for write in statement.writes)
            is_write = any(access is write for write in statement.writes)
            if is_write and writes_memory and self._is_somewhere_uniform(statement):
                return True
        return False

    def _is_somewhere_uniform(self, statement: Statement) -> bool:
        return any(self.mapped.is_uniform(statement.name, axis) for axis in self.mapped.axes)

    def _is_private(self, uses: Uses) -> bool:
        return all(self._is_private_along(uses, axis) for axis in self.mapped.axes)

    def _is_private_along(self, uses: Uses, axis: int) -> bool:
        """Return whether no thread along *axis* sees what another one wrote."""
        own = [use for use in uses if not self.mapped.is_collective_read(*use, axis)]
        mapped = [use for use in own if not self.mapped.is_uniform(use[0].name, axis)]
        if len(mapped) < len(own):
            return not any(
                access is write for statement, access in mapped for write in statement.writes
            )
        loops = {s.name: self._thread_loop(s, axis) for s, _ in mapped}
        if len({loop.width for loop in loops.values()}) == 1 and is_digit_of_a_subscript(
            mapped, {name: loop.coordinates[name] for name, loop in loops.items()}
        ):
            return True
        threads: isl.Map | None = None
        for statement, access in mapped:
            function = self.mapped.thread(statement.name, axis)
            assert function is not None
            one = access.relation.reverse().apply_range(isl.Map.from_pw_aff(function))
            threads = one if threads is None else threads.union(one)
        return threads is None or bool(threads.is_single_valued())

    def _thread_loop(self, statement: Statement, axis: int) -> Loop:
        loop = self.mapped.thread_loop(statement.name, axis)
        assert loop is not None, "uniform"
        return loop

    def _private_placement(self, array: Array, uses: Uses) -> Placement | None:
        outer = self._lifetime(uses)
        if outer is None:
            return None
        ring = self._ring(uses, outer, None) if array.name in self.held else None
        dims: list[LocalDim] = []
        for dim in range(array.rank):
            if ring is not None and ring.dim == dim:
                dims.append(LocalDim(0, ((1, ring.buffers),), ring.buffers))
                continue
            kept = [u for u in uses if not self._is_lane(u, dim) and not _is_operand(u)]
            axes = [a for a in self.mapped.axes if self._all_mapped(kept, a)]
            folds = [s for s, _ in kept if s.kind is Kind.FOLD]
            stride = max(map(self.mapped.fold_stride, folds), default=1)
            fixed = {s.name: self._fixed(s, outer, axes, stride) for s, _ in kept}
            found = local_dim(array, dim, kept, fixed)
            if found is None:
                return None
            dims.append(found)
        loop = outer[-1].name if outer else None
        placement = Placement(array.name, loop, tuple(dims), ring=ring)
        if placement.elements() == 1:
            return placement
        fits = placement.elements() * array.dtype.size_bytes <= MAX_PRIVATE_BYTES
        return placement if fits and self._has_literal_indices(uses, outer, placement) else None

    def _is_lane(self, use: tuple[Statement, Access], dim: int) -> bool:
        """Return whether *use* is a fold's, and *dim* runs over the threads that it folds."""
        statement, access = use
        if statement.kind is not Kind.FOLD:
            return False
        is_part = any(access is part for part in statement.parts)
        return is_part and isinstance(access.subscripts[dim], Const)

    def _all_mapped(self, uses: Uses, axis: int) -> bool:
        """Return whether the thread along *axis* is a coordinate of every use."""
        loops = [self.mapped.thread_loop(statement.name, axis) for statement, _ in uses]
        return all(
            loop is not None and digits_of(loop.coordinates[statement.name], loop.width)
            for loop, (statement, _) in zip(loops, uses, strict=True)
        )

    def _fixed(
        self, statement: Statement, outer: Sequence[Loop], axes: Sequence[int], stride: int
    ) -> list[AnyCoordinate]:
        """Return the coordinates of *statement* that are constant where the array is declared.

        :arg stride: of a fold of threads along x, which tells of them their number modulo that.
        """
        fixed = [loop.coordinates[statement.name] for loop in outer]
        for axis in axes:
            loop = self.mapped.thread_loop(statement.name, axis)
            assert loop is not None
            if loop not in outer:
                digits = digits_of(loop.coordinates[statement.name], loop.width)
                fixed += _below(digits, stride) if stride > 1 and not axis else digits
        return fixed

    def _has_literal_indices(self, uses: Uses, outer: Sequence[Loop], placement: Placement) -> bool:
        """Return whether unrolled loops determine the index, with what is constant."""
        ring = placement.ring
        for statement, access in uses:
            if _is_operand((statement, access)) or self._has_known_digits(
                (statement, access), outer, placement
            ):
                continue
            relation = access.relation if ring is None else _in_turn(access.relation, ring)
            for dim in reversed(range(relation.dim(isl.dim_type.out))):
                if self._is_lane((statement, access), dim):
                    relation = relation.project_out(isl.dim_type.out, dim, 1)
            known: isl.Map | None = None
            for loop in self.mapped.paths[statement.name]:
                is_thread = loop.kind is LoopKind.THREAD
                if loop not in outer and not is_thread and loop.kind not in _WRITTEN_OUT:
                    continue
                space = statement.domain.get_space()
                function = loop.coordinates[statement.name].function(space)
                if is_thread and loop not in outer:  # the turn is not known, the thread is
                    function = function.mod_val(val(loop.width))
                one = isl.Map.from_pw_aff(isl.PwAff.from_aff(function))
                known = one if known is None else known.flat_range_product(one)
            elements = relation.range() if known is None else known.reverse().apply_range(relation)
            is_one = (
                elements.is_singleton()
                if isinstance(elements, isl.Set)
                else elements.is_single_valued()
            )
            if not is_one:
                return False
        return True

    def _has_known_digits(
        self, use: tuple[Statement, Access], outer: Sequence[Loop], placement: Placement
    ) -> bool:
        """Return whether the digits that such loops have show the same, without isl."""
        statement, access = use
        array = self.scop.arrays[access.array]
        known: list[AnyCoordinate] = []
        for loop in self.mapped.paths[statement.name]:
            if loop in outer or loop.kind in _WRITTEN_OUT:
                known.append(loop.coordinates[statement.name])
            elif loop.kind is LoopKind.THREAD:
                known += digits_of(loop.coordinates[statement.name], loop.width)
        return all(
            own == FIXED or self._is_lane(use, dim) or is_known(array, dim, use, known)
            for dim, own in enumerate(placement.dims)
        )

    def _lifetime(self, uses: Uses) -> Sequence[Loop] | None:
        """Return the loops in whose one iteration an element lives, None if it outlives a block."""
        names = sorted({statement.name for statement, _ in uses})
        prefix = common_prefix([self.mapped.paths[name] for name in names])
        outer = prefix[: lifetime_depth(uses, prefix)]
        blocks = {
            loop.name
            for name in names
            for loop in self.mapped.paths[name]
            if loop.kind is LoopKind.BLOCK
        }
        return outer if blocks <= {loop.name for loop in outer} else None

    def _shared(self, private: Mapping[str, Placement]) -> dict[str, Placement]:
        """Return shared arrays, the smallest first, until the block's budget is spent."""
        candidates = []
        for name, uses in self.arrays.items():
            if name in private:
                continue
            placement = self._shared_placement(self.scop.arrays[name], uses)
            if placement is not None:
                size_bytes = placement.elements() * self.scop.arrays[name].dtype.size_bytes
                candidates.append((size_bytes, name, placement))
        left = self.gpu.static_shared_bytes_per_block - self._collective_bytes()
        more = self.gpu.shared_bytes_per_block
        asked = {*self.staged, *self.large}
        sizes = {name: -(-size_bytes // 16) * 16 for size_bytes, name, _ in candidates}
        if self._collective_bytes() or any(name not in asked for name in sizes):
            more -= self.gpu.static_shared_bytes_per_block
        if sum(sizes[name] for name in sizes if name in asked) > more:
            # It gets what folds of one value each leave; those of several at once have no slots.
            left = max(0, min(left, sum(sizes[name] for name in sizes if name not in asked)))
            more = self.gpu.shared_bytes_per_block - left - slot_bytes_of_each(self.mapped)
        found = {}
        for _, name, placement in sorted(candidates, key=lambda c: c[:2]):
            rounded = sizes[name]
            if name in asked and rounded <= more:
                is_staged = name in self.staged
                found[name] = replace(placement, is_staged=is_staged, is_dynamic=True)
                more -= rounded
            elif rounded <= left:
                found[name] = placement
                left -= rounded
        return found

    def _collective_bytes(self) -> int:
        """Return what the folds of the kernel may take of the block's shared memory.

        Those of several values at once have some too, but not before all arrays; those of threads
        of a warp that are some others apart take none.
        """
        statements = (self.scop.by_name[name] for name in self.mapped.paths)
        folds = [s for s in statements if s.kind is Kind.FOLD and self.mapped.fold_stride(s) == 1]
        several = FOLD_BYTES * (len(folds) + 1) if folds else 0
        wanted = min(several * prod(self.mapped.block), MOST_FOLD_BYTES)
        return max(wanted, slot_bytes_at_most(self.mapped)) if folds else 0

    def _has_banks(self, statement: Statement, access: Access) -> bool:
        """Return whether the threads of a warp touch neighbours of a row each, whichever row.

        Rows are then left as long as they are: by padding they would meet in banks by chance.
        """
        loop = self.mapped.thread_loop(statement.name, 0)
        last = access.subscripts[-1]
        if loop is None or not isinstance(last, Index) or loop.width % chip.WARP:
            return False
        coordinate = loop.coordinates[statement.name]
        is_plain = isinstance(coordinate, Coordinate) and coordinate.div == 1
        return is_plain and statement.indices[coordinate.position] == last.name

    def _goes_by_columns(self, uses: Uses, dims: Sequence[LocalDim], *, is_write: bool) -> bool:
        """Return whether neighbouring threads read, or write, elements of different rows."""
        for statement, access in uses:
            loop = self.mapped.thread_loop(statement.name, 0)
            if loop is None or is_write != any(access is write for write in statement.writes):
                continue
            found = positions_of(loop.coordinates[statement.name])
            rows = [s for s, d in zip(access.subscripts[:-1], dims, strict=False) if d.extent > 1]
            if any(statement.indices[at] in indices_in(row) for row in rows for at in found):
                return True
        return False

    def _ring(self, uses: Uses, outer: Sequence[Loop], depth: int | None) -> Ring | None:
        """Return the buffers in turn that hold what an iteration brings for later ones, or None.

        An element lives from one iteration of the *depth* loops inside *outer* to a later one; as
        many buffers as iterations it lives for are enough where each iteration begins with one.

        :arg depth: None for all loops that are no blocks', threads' or vectors'.
        """
        names = sorted({statement.name for statement, _ in uses})
        inside = common_prefix([self.mapped.paths[name] for name in names])[len(outer) :]
        loops = list(takewhile(lambda loop: loop.kind in _IN_ORDER, inside))[:depth]
        if not loops:
            return None
        lives: isl.Map | None = None
        dims = set(range(self.scop.arrays[uses[0][1].array].rank))
        for statement, access in uses:
            time = isl.Map.from_pw_aff(isl.PwAff.from_aff(time_of(loops, statement)))
            one = access.relation.reverse().apply_range(time)
            lives = one if lives is None else lives.union(one)
            if any(access is write for write in statement.writes):
                dims = {dim for dim in dims if _walks(access.relation, dim, time)}
        assert lives is not None
        bounds = constant_bounds(lives.reverse().apply_range(lives).deltas(), 0)
        if bounds is None or not dims:
            return None
        # Several do where a loop around has one iteration, too: of those the elements' come last.
        return Ring(min(dims), bounds[1] + 1, tuple(loop.name for loop in loops))

    def _shared_placement(self, array: Array, uses: Uses) -> Placement | None:
        outer = self._lifetime(uses)
        if outer is None or (RANK in self.mapped.axes and not self._is_private_along(uses, RANK)):
            return None
        outer = list(takewhile(lambda loop: loop.kind is not LoopKind.THREAD, outer))
        buffers = self.staged.get(array.name, 1)
        if buffers > 1:  # roles are iterations apart: an element outlives the one that uses it
            outer = list(takewhile(lambda loop: loop.kind is LoopKind.BLOCK, outer))
        ranks = [RANK] if RANK in self.mapped.axes and self._all_mapped(uses, RANK) else []
        fixed = {s.name: self._fixed(s, outer, ranks, 1) for s, _ in uses}
        depth = None if buffers > 1 else 1
        ring = self._ring(uses, outer, depth) if array.name in self.staged else None
        if ring is not None:
            ring = replace(ring, buffers=max(ring.buffers, buffers))
        dims: list[LocalDim] = []
        for dim in range(array.rank):
            found = local_dim(array, dim, uses, fixed)
            if ring is not None and ring.dim == dim:
                found = LocalDim(0, ((1, 0),), ring.buffers)
            if found is None:
                return None
            dims.append(found)
        loop = outer[-1].name if outer else None
        placement = Placement(array.name, loop, tuple(dims), Space.SHARED, ring=ring)
        if together := max(self.mapped.together(statement.name) for statement, _ in uses):
            layout = Layout.SWIZZLED if together == chip.WARP else Layout.ATOMS
            return replace(placement, layout=layout)
        scattered = [(s, a) for s, a in uses if not a.is_exact and array.rank - 1 not in a.inexact]
        if scattered and all(self._has_banks(*use) for use in scattered):
            return placement
        if scattered or self._goes_by_columns(uses, dims, is_write=False):
            return replace(placement, padding=_padding(array, dims))
        # Rows that are read along stay aligned for vectors: threads write few columns, some rows.
        is_column = self._goes_by_columns(uses, dims, is_write=True)
        # Of a chain's factors threads along y and z read vectors of several rows at once.
        is_column |= array.name in self.staged and array.name in self.large
        vector = VECTOR_BYTES // array.dtype.size_bytes
        return replace(placement, padding=vector if is_column and _padding(array, dims) else 0)


def _is_operand(use: tuple[Statement, Access]) -> bool:
    """Return whether *use* is an instruction's, of all that the threads of a warp have."""
    statement, access = use
    return access.array == statement.register_operand


def _in_turn(elements: isl.Map, ring: Ring) -> isl.Map:
    """Return *elements*, numbered by the buffer of *ring* that they are in."""
    space = elements.range().get_space()
    places = isl.MultiAff.identity_on_domain_space(space)
    place = places.get_at(ring.dim).mod_val(val(ring.buffers))
    return elements.apply_range(isl.Map.from_multi_aff(places.set_at(ring.dim, place)))


def _walks(elements: isl.Map, dim: int, time: isl.Map) -> bool:
    """Return whether dimension *dim* of the *elements* grows by one where *time* does."""
    bounds = constant_bounds(along(elements, dim).reverse().apply_range(time).deltas(), 0)
    return bounds is not None and bounds[0] == bounds[1]


def _padding(array: Array, dims: Sequence[LocalDim]) -> int:
    """Return the elements by which rows grow so that a column's elements are in all banks.

    They are if a row's length is odd: in words, or in elements where these are larger, of which as
    many as fit all banks are read at a time.
    """
    rows = [dim.extent for dim in dims[:-1] if dim.extent > 1]
    row_bytes = dims[-1].extent * array.dtype.size_bytes if dims else 0
    pair_bytes = 2 * max(WORD_BYTES, array.dtype.size_bytes)
    is_column_bound = rows and row_bytes >= pair_bytes and row_bytes % pair_bytes == 0
    return max(1, WORD_BYTES // array.dtype.size_bytes) if is_column_bound else 0


def _below(digits: Sequence[Coordinate], limit: int) -> list[Coordinate]:
    """Return those of *digits*, from the lowest on, that tell a number modulo *limit*."""
    found, place = list[Coordinate](), 1
    for digit in digits:
        if place < limit:
            found.append(digit)
        place *= digit.mod
    return found


def digits_of(coordinate: AnyCoordinate, width: int) -> tuple[Coordinate, ...]:
    """Return what ``coordinate % width`` tells, as coordinates; () if it has no such form."""
    match coordinate:
        case Coordinate(mod=mod):
            if mod == 0 or (mod > width and mod % width == 0):
                return (replace(coordinate, mod=width),)
            return (coordinate,) if mod <= width else ()
        case _:
            terms = terms_told(coordinate)
            return terms if prod(term.mod for term in terms) <= width else ()
