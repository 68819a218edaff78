"""Which elements have surely been written, statement by statement.

    C(i) = A(i) where i in 0:1          defines C[0]
    C(i) = C(i-1) + A(i) where i in 1:N reads C[i-1]: C[0], or written by an earlier instance

A plain ``=`` surely writes the image of its domain if its conditions are affine, nothing otherwise.
``op=!`` first writes the identity to the box of its image (the whole box if the left side is
data-dependent).  ``op=`` needs every element that it updates.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field

import islpy as isl

from tcdsl.lang.comprehension import Comprehension, Expr, Index, Load, Statement, walk
from tcdsl.lang.ranges.boxes import Boxes
from tcdsl.lang.ranges.elements import box_set, element_map
from tcdsl.lang.ranges.linear import Interval, is_same_interval
from tcdsl.lang.ranges.reads import Read, index_names, reads
from tcdsl.lang.ranges.rounds import Space
from tcdsl.lang.ranges.size_functions import SizeSpace
from tcdsl.records import dataclass
from tcdsl.source import Span


@dataclass(slots=True, eq=False)
class Definedness:
    """The elements written so far, for the sizes in *assumed*."""

    comprehension: Comprehension
    boxes: Boxes
    spaces: Mapping[str, Space]
    assumed: isl.Set
    # Tensors whose whole box is written: most are, after one statement, without asking isl.
    _whole: set[str] = field(init=False)
    _written: dict[str, isl.Set] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._whole = {t.name for t in self.comprehension.tensors.values() if t.is_input}

    def hole(self, tensor: str) -> isl.Set | None:
        """Return the elements of *tensor* that are not surely written, or None: there are none."""
        if tensor in self._whole:
            return None
        whole = self._box(tensor)
        return whole.subtract(self._written[tensor]) if tensor in self._written else whole

    # --- reads -----------------------------------------------------------------------------
    def undefined_reads(self, statement: Statement) -> Iterator[tuple[str, Span, str]]:
        """Yield (tensor, span, remark) for every read of elements that may be unwritten.

        The remark is empty or begins with a blank.  Each tensor is yielded once; from then on it
        counts as written.
        """
        if _keeps(statement) and self._is_missing(statement, self._updated(statement)):
            yield statement.target, statement.target_span, " (it is updated, not initialised)"
            self._whole.add(statement.target)
        for read in reads(statement):
            tensor = read.load.tensor
            if not read.happens or tensor in self._whole:
                continue
            if self._is_missing(statement, self._unwritten_read(statement, read), tensor):
                yield tensor, read.load.span, ""
                self._whole.add(tensor)

    def _is_missing(
        self, statement: Statement, elements: isl.Set | None, tensor: str | None = None
    ) -> bool:
        """Return whether some of *elements* (None: any of the box) may be unwritten."""
        name = statement.target if tensor is None else tensor
        hole = self.hole(name)
        if hole is None:
            return False
        missing = hole if elements is None else elements.intersect(hole)
        return not missing.intersect_params(self.assumed).is_empty()

    def _updated(self, statement: Statement) -> isl.Set | None:
        """Return the elements that ``op=`` continues from, None if data-dependent."""
        written = element_map(self._space(statement), statement.target, statement.subscripts)
        assert statement.domain is not None
        return None if written is None else statement.domain.apply(written)

    def _unwritten_read(self, statement: Statement, read: Read) -> isl.Set | None:
        """Return the elements read, less those that an earlier instance has written."""
        space = self._space(statement)
        touched = element_map(space, read.load.tensor, read.load.subscripts)
        if touched is None:
            return None
        assert statement.domain is not None
        touched = touched.intersect_domain(statement.domain.intersect(space.guarded(read.guards)))
        if read.load.tensor == statement.target and self._is_exact(statement):
            touched = touched.subtract(self._earlier_writes(statement))
        return touched.range()

    def _earlier_writes(self, statement: Statement) -> isl.Map:
        """Return ``{ S[i] -> T[e] : an instance of smaller left-hand indices has written e }``."""
        space = self._space(statement)
        writes = element_map(space, statement.target, statement.subscripts)
        assert writes is not None and statement.domain is not None
        earlier = isl.Map.lex_gt_first(space.builder.space.map_from_set(), statement.n_left)
        return earlier.apply_range(writes.intersect_domain(statement.domain))

    # --- writes ----------------------------------------------------------------------------
    def write(self, statement: Statement) -> None:
        """Record what the instances of *statement* surely write."""
        if statement.target in self._whole:
            return
        if statement.reduction is None and self._is_exact(statement):
            self._write_image(statement, self.boxes.images[statement.name])

    def initialise(self, statement: Statement) -> None:
        """Record what *statement*, if it is an ``op=!``, writes before its first instance runs."""
        tensor = statement.target
        if tensor in self._whole or not _initialises(statement):
            return
        image = self.boxes.images[statement.name]
        known = [interval for interval in image if interval is not None]
        if is_data_dependent(statement):
            self._whole.add(tensor)
        elif len(known) < len(image):
            pass  # such as O(N*i): its hull is known when the sizes are
        elif self._is_whole(tensor, known):
            self._whole.add(tensor)
        else:
            self._record(tensor, box_set(tensor, known, self._sizes))

    def _write_image(self, statement: Statement, image: tuple[Interval | None, ...]) -> None:
        tensor = statement.target
        known = [interval for interval in image if interval is not None]
        if _covers_its_box(statement) and self._is_whole(tensor, known):
            self._whole.add(tensor)
            return
        elements = self._updated(statement)
        assert elements is not None
        self._record(tensor, elements)

    def _record(self, tensor: str, elements: isl.Set) -> None:
        before = self._written.get(tensor)
        self._written[tensor] = elements if before is None else before.union(elements).coalesce()

    def _is_whole(self, tensor: str, image: list[Interval]) -> bool:
        box = self.boxes.known[tensor]
        return all(is_same_interval(a, b) for a, b in zip(image, box, strict=True))

    def _is_exact(self, statement: Statement) -> bool:
        """Return whether it is known which instances run and what they write."""
        if statement.data_ranges:
            return False
        builder = self._space(statement).builder
        if any(builder.truth(condition).exact is None for condition in statement.conditions):
            return False
        return all(builder.affine(subscript) is not None for subscript in statement.subscripts)

    def _box(self, tensor: str) -> isl.Set:
        return box_set(tensor, self.boxes.known[tensor], self._sizes)

    def _space(self, statement: Statement) -> Space:
        return self.spaces[statement.name]

    @property
    def _sizes(self) -> SizeSpace:
        return self.boxes.sizes


def is_data_dependent(statement: Statement) -> bool:
    """Return whether the left side reads a tensor."""
    return any(isinstance(node, Load) for s in statement.subscripts for node in walk(s))


def _initialises(statement: Statement) -> bool:
    return statement.reduction is not None and statement.reduction.initialise


def _keeps(statement: Statement) -> bool:
    return statement.reduction is not None and not statement.reduction.initialise


def _covers_its_box(statement: Statement) -> bool:
    """Return whether the image is a full box: distinct plain indices, no cut."""
    dependent = any(index_names(b.lower, b.upper) for b in statement.explicit)
    if statement.conditions or statement.data_ranges or dependent:
        return False
    plain = [s.name for s in statement.subscripts if isinstance(s, Index)]
    return len(plain) == len(statement.subscripts) == len(set(plain))


def is_injective(space: Space) -> bool:
    """Return whether no two instances write one element; data-dependent ones count as distinct.

    (Their order is defined, so the last value wins.)
    """
    statement = space.statement
    plain = {s.name for s in statement.subscripts if isinstance(s, Index)}
    if plain >= set(statement.indices):
        return True
    written = element_map(space, statement.target, statement.subscripts)
    assert statement.domain is not None
    return written is None or bool(written.intersect_domain(statement.domain).is_injective())


def own_element_read(space: Space) -> Expr | None:
    """Return a read of the target that may meet the element that its own instance updates."""
    statement = space.statement
    assert statement.domain is not None
    for read in reads(statement):
        if read.load.tensor != statement.target or not read.happens:
            continue
        own = element_map(space, statement.target, statement.subscripts)
        other = element_map(space, statement.target, read.load.subscripts)
        if own is None or other is None:
            return read.load
        where = statement.domain.intersect(space.guarded(read.guards))
        if not own.intersect(other).intersect_domain(where).is_empty():
            return read.load
    return None
