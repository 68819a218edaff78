"""Semantic analysis: from the syntax tree to typed comprehensions with ranges.

    ast.Program  --->  one Comprehension per def, calls inlined, ranges inferred

Defs are analysed (definition) when they are first needed, since a call may precede the def that it
calls.  All errors of a program are reported together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

from tcdsl.errors import CYCLE, DUPLICATE_NAME, TCError, combined
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.fresh_names import fresh_name
from tcdsl.lang.syntax import ast
from tcdsl.lang.syntax.limits import children, expressions
from tcdsl.lang.types.definition import Definition, assigned_names
from tcdsl.lang.types.dtypes import DType
from tcdsl.lang.types.elaborate import FollowOnError
from tcdsl.records import dataclass
from tcdsl.source import Source, Span

HEADERLESS_NAME = "compute"


def analyse(program: ast.Program) -> tuple[Comprehension, ...]:
    """Return the comprehensions of *program*, one per def, in order.

    :raises TCError: the first error; its ``others`` are all further ones of the program.
    """
    analysis = _Program(program)
    for definition in program.defs:
        analysis.analyse(definition.name)
    if analysis.errors:
        raise combined(analysis.errors)
    return tuple(analysis.done[definition.name] for definition in program.defs)


def analyse_statements(
    statements: Sequence[ast.Stmt], source: Source, inputs: Mapping[str, tuple[DType, int]]
) -> Comprehension:
    """Return the comprehension of a program without a header.

    *inputs* gives the type and the rank of each; every dimension has its own size, ``A_0``, and
    dimensions that one index subscripts must be equal.
    Results are the assigned tensors that no later statement reads (if all are, the last one), and
    the inputs that are assigned, in order of first assignment.

    :raises TCError: as :func:`analyse`.
    """
    written = _written_names(statements)
    params = tuple(
        ast.Param(name, dtype, tuple(_fresh_size(f"{name}_{d}", written) for d in range(rank)))
        for name, (dtype, rank) in inputs.items()
    )
    returns = tuple(ast.Param(name, None, ()) for name in _results(statements, inputs))
    definition = ast.Def(HEADERLESS_NAME, params, returns, tuple(statements), has_header=False)
    return analyse(ast.Program((definition,), source))[0]


def _written_names(statements: Sequence[ast.Stmt]) -> set[str]:
    """Return every identifier in *statements*."""
    names: set[str] = set()
    for statement in statements:
        names.update(assigned_names(statement))
        if isinstance(statement, ast.Assign):
            names.update(_clause_names(statement))
        stack = list(expressions(statement))
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Name | ast.Apply):
                names.add(node.id)
            stack.extend(children(node))
    return names


def _clause_names(statement: ast.Assign) -> set[str]:
    lets = {clause.name for clause in statement.clauses if isinstance(clause, ast.Let)}
    return lets | {clause.index for clause in statement.clauses if isinstance(clause, ast.InRange)}


def _fresh_size(name: str, taken: set[str]) -> str:
    name = fresh_name(name, taken)
    taken.add(name)
    return name


def _results(statements: Sequence[ast.Stmt], inputs: Mapping[str, object]) -> list[str]:
    """Return the names that a program without a header gives back."""
    last_read: dict[str, int] = {}
    last_assigned: dict[str, int] = {}
    for position, statement in enumerate(statements):
        for name in _written_names((statement,)) - set(assigned_names(statement)):
            last_read[name] = position
        for name in assigned_names(statement):
            last_assigned[name] = position
    unread = [
        name
        for name in last_assigned
        if name in inputs or last_read.get(name, -1) <= last_assigned[name]
    ]
    return unread or list(last_assigned)[-1:]


# --- a program -----------------------------------------------------------------------------
@dataclass(slots=True)
class _Program:
    """The defs of a program, analysed when first needed: a call may precede its def."""

    program: ast.Program
    done: dict[str, Comprehension] = field(default_factory=dict)
    errors: list[TCError] = field(default_factory=list)
    defs: dict[str, ast.Def] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)
    _active: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for definition in self.program.defs:
            if definition.name in self.defs:
                span, name = definition.name_span, definition.name
                self.errors.append(DUPLICATE_NAME(self.program.source, span, name=name))
            self.defs.setdefault(definition.name, definition)

    def analyse(self, name: str) -> Comprehension | None:
        """Return the comprehension of the def *name*, or None if it has errors (which are kept)."""
        if name in self.done or name in self._failed:
            return self.done.get(name)
        self._active.append(name)
        try:
            self.done[name] = self._comprehension(name)
        except TCError as error:
            self._failed.add(name)
            self.errors += [error, *error.others]
            error.others = ()
        except FollowOnError:
            self._failed.add(name)
        finally:
            self._active.pop()
        return self.done.get(name)

    def _comprehension(self, name: str) -> Comprehension:
        defs = frozenset(self.defs)
        found = Definition(self.program.source, self.defs[name], defs, self.callee)
        return found.comprehension()

    def callee(self, name: str, span: Span) -> Comprehension:
        """Return the def *name* as called at *span* from the active one."""
        if name in self._active:
            cycle = [*self._active[self._active.index(name) :], name]
            raise CYCLE(
                self.program.source, span, what="a def is", cycle=" -> ".join(cycle),
                advice="calls are inlined, so a def must not call itself, even through others",
            )  # fmt: skip
        found = self.analyse(name)
        if found is None:
            raise FollowOnError
        return found
