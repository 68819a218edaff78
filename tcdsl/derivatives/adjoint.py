"""The adjoints of all steps of a forward pass, from the last to the first.

    T(l) += e        dX(a) += dT(l) * de/dX(a)      for every read X(a) in e
    copy of T        dT_before(x) += dT(x)          dT cleared before where T was overwritten

What is found here are contributions to adjoint arrays, in order; :mod:`~tcdsl.derivatives.program`
makes them
statements.  Adjoint arrays are named by the versions that they belong to.
"""

from collections.abc import Callable, Iterable
from dataclasses import field, replace

from tcdsl.derivatives import reductions, terms
from tcdsl.derivatives.cancellation import Algebra, Polynomial
from tcdsl.derivatives.contributions import Combination, Contribution
from tcdsl.derivatives.inversion import Sizes, inverted
from tcdsl.derivatives.lines import Instances, Line, fills
from tcdsl.derivatives.names import Names
from tcdsl.derivatives.partials import Partials, partials
from tcdsl.derivatives.recurrences import recurrence
from tcdsl.derivatives.versions import Forward, Step
from tcdsl.lang.comprehension import Call, Cast, Expr, Index, Load, Operator, walk
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import DType, arithmetic
from tcdsl.records import dataclass
from tcdsl.source import Span

Refuse = Callable[[Span, str, str], Exception]  # where, what, advice


@dataclass(frozen=True, slots=True)
class Cleared:
    """``d_version(left) = 0``: what was overwritten passes nothing on."""

    version: str
    left: tuple[Expr, ...]
    instances: Instances


@dataclass(frozen=True, slots=True)
class Recurrence:
    """``d_version(left) += value`` in the order of the left-hand indices."""

    contribution: Contribution

    @property
    def version(self) -> str:
        return self.contribution.version


Event = Contribution | Cleared | Recurrence | Line


def adjoint_name(version: str) -> str:
    """Return the name under which loads refer to the adjoint of *version* until it has one."""
    return f"d {version}"


def undefined_derivative(refuse: Refuse) -> Callable[[Call], Exception]:
    """Return what makes the error for a builtin whose derivative the language cannot express."""

    def undefined(call: Call) -> Exception:
        what = f"the language cannot express the derivative of {call.function}"
        return refuse(call.span, what, f"do not differentiate by what {call.function} "
                      "depends on: name the others in wrt=")  # fmt: skip

    return undefined


@dataclass(slots=True, eq=False)
class Adjoints:
    """The reverse pass: :attr:`events` in the order in which they run."""

    forward: Forward
    sizes: Sizes
    names: Names
    varied: frozenset[str]  # the versions that depend on what is differentiated by
    refuse: Refuse
    reached: set[str]  # the versions that have an adjoint: at first, the results
    events: list[Event] = field(default_factory=list)
    results: frozenset[str] = frozenset()
    _complete: set[str] = field(default_factory=set)
    _assigned: dict[str, Contribution | None] = field(default_factory=dict)
    _algebra: Algebra = field(init=False)
    _sums: dict[Load, Polynomial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.results = frozenset(self.reached)
        self._algebra = Algebra(self._assignment)
        for step in self.forward.steps:
            found = None if step.reduction is None else self._assignment(step.target)
            if found is not None:
                self._note_sum(found, self.forward.versions[step.target].dtype)

    def run(self) -> list[Event]:
        """Return the events of all steps."""
        for step in reversed(self.forward.steps):
            if step.target in self.varied:
                self._combine(step.target)
                if step.target in self.reached:
                    self._step(step)
        for name in self.forward.c.inputs:
            self._combine(name)
        return self.events

    # --- what an adjoint is made of -------------------------------------------------------------
    def _combine(self, version: str) -> None:
        """Write the contributions to *version*, which are complete, as few statements."""
        if version in self._complete:
            return
        self._complete.add(version)
        box = self.forward.versions[version].box
        found = [e for e in self.events if isinstance(e, Contribution) and e.version == version]
        if not found or box is None or not self._may_move(version):
            return
        kept = [e for e in found if not (e.reduced and self._algebra.is_zero([e]))]
        if self._algebra.is_zero(kept):
            kept = []
        self.events = [e for e in self.events if e not in found]
        if not kept:
            if version not in self.results:
                self.reached.discard(version)
            return
        combined = Combination(box, self.names.fresh, self._known_sum)(kept)
        self.events.extend(combined)
        for line in combined:
            if isinstance(line, Line):
                values = line.target, line.subscripts, line.value, line.instances
                self._assigned[line.target] = made = Contribution(*values)
                self._note_sum(made, line.value.dtype)
        (only, *more) = [e for e in combined if isinstance(e, Contribution)]
        is_all = not more and fills(only.left, only.instances.ranges, box)
        if is_all and version not in self.results:
            self._assigned[adjoint_name(version)] = only

    def _may_move(self, version: str) -> bool:
        """Return whether the contributions to *version* may be made last of all events so far."""
        changed: set[str] = set()
        for event in reversed(self.events):
            match event:
                case Cleared() | Recurrence():
                    changed.add(event.version)
                    if event.version == version:
                        return False
                case Contribution(version=target) if target == version:
                    read = {n.tensor for e in (event.value, *event.left) for n in walk(e)
                            if isinstance(n, Load)}  # fmt: skip
                    if not changed.isdisjoint(name.removeprefix("d ") for name in read):
                        return False
        return True

    def _known_sum(self, found: Contribution) -> Load | None:
        """Return a sum that there is already and is *found*, or is a part of it: with more indices.

        The names of indices are those of the statement, for both.
        """
        left = {s.name for s in found.left if isinstance(s, Index)}
        wanted = self._algebra.value(found, found.left)
        if wanted is None:
            return None
        for load, value in self._sums.items():
            names = {s.name for s in load.subscripts if isinstance(s, Index)}
            if load.dtype != found.value.dtype or not names <= found.instances.ranges.keys():
                continue
            if names <= left:
                is_same = value == wanted
            else:
                part = replace(found, left=load.subscripts)
                is_same = left < names and self._algebra.value(part, part.left) == value
            if is_same:
                return load
        return None

    def _note_sum(self, found: Contribution, dtype: DType) -> None:
        """Let later adjoints read the sum *found* instead of computing it again."""
        value = self._algebra.value(found, found.left)
        if value is not None:
            self._sums[Load(found.version, found.left, dtype)] = value

    def _assignment(self, name: str) -> Contribution | None:
        """Return how all elements of *name* get their value, if that is one statement."""
        if name not in self._assigned:
            self._assigned[name] = None
            steps = [step for step in self.forward.steps if step.target == name]
            if len(steps) == 1 and steps[0].copy is None:
                self._assigned[name] = self._assigned_by(steps[0])
        return self._assigned[name]

    def _assigned_by(self, step: Step) -> Contribution | None:
        line, reduction = step.line, step.reduction
        is_sum = reduction is not None and reduction.operator is Operator.ADD
        if reduction is not None and not (is_sum and reduction.initialise):
            return None
        box = self.forward.versions[step.target].box
        if box is None or not fills(line.subscripts, line.instances.ranges, box):
            return None
        if any(isinstance(n, Load) and n.tensor == step.target for n in line.nodes()):
            return None
        found = Contribution(step.target, line.subscripts, line.value, line.instances)
        return found if reduction is not None or not found.reduced else None

    def _step(self, step: Step) -> None:
        reduction = step.reduction
        operator = None if reduction is None else reduction.operator
        if operator is None and self._is_scattered(step):
            found = reductions.last_assignment(
                step, self._seed(step), self.names, self._box_of(step)
            )
            self.events.extend(found.lines)
            self._parts(step, self._partials(step, found.factor))
        elif operator in (None, Operator.ADD):
            self._sum(step)
        elif operator in (Operator.MUL, Operator.MIN, Operator.MAX):
            assert reduction is not None
            rule = reductions.product if operator is Operator.MUL else reductions.extreme
            found = rule(step, self._seed(step), self.names, self._box_of(step))
            self.events.extend(found.lines)
            self._parts(step, self._partials(step, found.factor))
            if found.before is not None and step.copy is not None:
                self._add(self._copied(step), step.copy.subscripts, found.before,
                          step.copy.instances)  # fmt: skip
            if not reduction.initialise:
                return
        if step.copy is not None:
            self._pass_on(step)

    def _box_of(self, step: Step) -> tuple[tuple[Expr, ...], Instances]:
        """Return indices over the box of the target of *step*, and their ranges."""
        line = self.forward.copy(step.target, step.target)
        return line.subscripts, line.instances

    def _copied(self, step: Step) -> str:
        """Return the version that the target of *step* is a copy of at first."""
        assert step.copy is not None
        value = step.copy.value
        load = value.operand if isinstance(value, Cast) else value  # a half type is widened
        assert isinstance(load, Load)
        return load.tensor

    # --- sums and assignments -------------------------------------------------------------------
    def _sum(self, step: Step) -> None:
        self._parts(step, self._partials(step, self._seed(step)))

    def _is_scattered(self, step: Step) -> bool:
        """Return whether several instances of *step* may assign one element."""
        nodes = (node for s in step.line.subscripts for node in walk(s))
        return any(isinstance(node, Load) for node in nodes)

    def _seed(self, step: Step) -> Expr:
        dtype = arithmetic(self.forward.versions[step.target].dtype)
        load = Load(adjoint_name(step.target), step.line.subscripts, dtype)
        return terms.as_type(load, step.line.value.dtype)

    def _partials(self, step: Step, factor: Expr) -> Partials:
        undefined = undefined_derivative(self.refuse)
        found = partials(step.line.value, factor, self._is_active, undefined)
        kept = self._kept_value(step)
        if kept is None:
            return found

        def change(node: Expr) -> Expr:
            return kept if node == step.line.value else node

        return {load: rewrite(value, change) for load, value in found.items()}

    def _kept_value(self, step: Step) -> Load | None:
        """Return the read of what *step* assigned, if its value is worth being read again."""
        line, dtype = step.line, self.forward.versions[step.target].dtype
        is_dear = any(isinstance(node, Call) for node in walk(line.value))
        if not is_dear or step.reduction is not None or dtype != line.value.dtype:
            return None
        writers = [other for other in self.forward.steps if other.target == step.target]
        if any(other.reduction is not None for other in writers):
            return None  # what is added later is no part of the value
        return Load(step.target, line.subscripts, dtype)

    def _is_active(self, load: Load) -> bool:
        return load.dtype.is_float and load.tensor in self.varied

    def _parts(self, step: Step, parts: Partials) -> None:
        own = {load: value for load, value in parts.items() if load.tensor == step.target}
        if own:
            box = self.forward.versions[step.target].box
            found = recurrence(step, own, box, self.sizes, self.names.fresh)
            if isinstance(found, str):
                raise self.refuse(step.statement.span, found, "write it with reads of one "
                                  "element, or assign a tensor of another name")  # fmt: skip
            left, value, instances = found
            self.events.append(Recurrence(Contribution(step.target, left, value, instances)))
        for load, value in parts.items():
            if load not in own:
                self._read(step, load, value)

    def _read(self, step: Step, load: Load, value: Expr) -> None:
        """Add *value* to the adjoint of what *load* reads."""
        box = self.forward.versions[load.tensor].box
        instances = step.line.instances
        preferred = _left_indices(step.line)
        found = inverted(load.subscripts, value, instances, box, preferred, self.sizes)
        if found is None:
            self._add(load.tensor, load.subscripts, value, instances)
        else:
            self._add(load.tensor, found.left, found.value, found.instances)

    def _add(self, version: str, left: Iterable[Expr], value: Expr, instances: Instances) -> None:
        if version not in self.varied or not self.forward.versions[version].dtype.is_float:
            return
        dtype = arithmetic(self.forward.versions[version].dtype)
        value = terms.as_type(value, dtype)
        self.events.append(Contribution(version, tuple(left), value, instances))
        self.reached.add(version)

    # --- copies ---------------------------------------------------------------------------------
    def _pass_on(self, step: Step) -> None:
        """Give the version before what was not overwritten."""
        before = self._copied(step)
        if before not in self.varied:
            return
        if not (step.reduction is not None and not step.reduction.initialise):
            self._clear(step)
        assert step.copy is not None
        dtype = arithmetic(self.forward.versions[step.target].dtype)
        value = Load(adjoint_name(step.target), step.copy.subscripts, dtype)
        self._add(before, step.copy.subscripts, value, step.copy.instances)

    def _clear(self, step: Step) -> None:
        line = step.line
        if step.reduction is not None:  # op=! writes the whole box of its left side
            image = self.forward.image_box(step.statement)
            if image is None:
                left, instances = self._box_of(step)
            else:
                left, instances = image
            self.events.append(Cleared(step.target, left, instances))
            return
        self.events.append(Cleared(step.target, line.subscripts, line.instances))


def _left_indices(line: Line) -> tuple[str, ...]:
    reduced = set(line.reduced)
    return tuple(index for index in line.instances.ranges if index not in reduced)
