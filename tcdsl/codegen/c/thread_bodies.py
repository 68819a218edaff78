"""Bodies of parallel loops as functions: there, arrays are restricted parameters too.

    #pragma omp parallel for                        static void tcdsl_thread0(
    for (c0 = 0; c0 <= 511; c0 += 1) {                  const float *restrict x,
      for (c1 = 0; c1 <= 999; c1 += 1) {                float *restrict y, const int64_t c0)
        y[c0 * 1000 + c1] = f(x[...]);     --->     {
      }                                               for (c1 = 0; c1 <= 999; c1 += 1) { ... }
    }                                               }
                                                    #pragma omp parallel for
                                                    for (c0 = 0; c0 <= 511; c0 += 1) {
                                                      tcdsl_thread0(x, y, c0);
                                                    }

The compiler makes a function of a parallel region itself, to which it passes the variables in a
structure: ``restrict`` is lost there, and each statement loads and computes again what another one
has in common with it.

Legal iff the body changes no variable of the code around it, and needs none but parameters,
constants and local arrays: these are what a call can pass.  The promise of ``restrict`` holds for a
call if it holds for the whole function, and threads never access what another one stores in the
same region (``poly/verify``).

Worth while where an iteration is long beside a call, which takes some nanoseconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from tcdsl.codegen.ast.build import call
from tcdsl.codegen.ast.nodes import (
    Assign,
    Binary,
    Declare,
    Evaluate,
    For,
    If,
    Literal,
    Name,
    Node,
    Scope,
)
from tcdsl.codegen.ast.text import text
from tcdsl.codegen.ast.walk import inner, mentioned, walk_nodes
from tcdsl.records import dataclass

LEAST_STORES = 512  # of an iteration: some 30 vectors, ten times a call
Known = Mapping[str, str | None]  # names in sight, as parameters; None: a call cannot pass it


@dataclass(frozen=True, slots=True)
class ThreadBody:
    """A function that is the body of a parallel loop."""

    name: str
    parameters: tuple[str, ...]
    body: tuple[Node, ...]


def with_thread_bodies(nodes: Iterable[Node], known: Known) -> tuple[list[Node], list[ThreadBody]]:
    """Return *nodes* with calls as the bodies of parallel loops, and the functions that they call.

    :arg known: the parameters of the function whose body *nodes* are, by name.
    """
    functions: list[ThreadBody] = []
    return _rewritten(nodes, dict(known), functions), functions


def _rewritten(
    nodes: Iterable[Node], known: dict[str, str | None], functions: list[ThreadBody]
) -> list[Node]:
    found: list[Node] = []
    for node in nodes:
        match node:
            case For(body=body):
                inside = {**known, node.variable: f"const {text(node.type)} {node.variable}"}
                if node.collapsed:
                    own: Sequence[Node] = _called(node, inside, functions)
                else:
                    own = _rewritten(body, inside, functions)
                found.append(replace(node, body=tuple(own)))
            case Scope(body=body):
                own = _rewritten(body, dict(known), functions)
                found.append(replace(node, body=tuple(own)))
            case If(then=then, otherwise=otherwise):
                parts = (
                    tuple(_rewritten(part, dict(known), functions)) for part in (then, otherwise)
                )
                then, otherwise = parts
                found.append(replace(node, then=then, otherwise=otherwise))
            case Declare():
                known |= _declared(node)
                found.append(node)
            case _:
                found.append(node)
    return found


def _declared(node: Declare) -> dict[str, str | None]:
    """Return what *node* declares, as parameters: constants, and arrays by their addresses."""
    found: dict[str, str | None] = {}
    kind = text(node.type)
    for variable in node.variables:
        if variable.size is not None or variable.pointer:
            found[variable.name] = f"{node.before}{kind} *restrict {variable.name}"
        else:
            is_constant = node.before == "const "
            found[variable.name] = f"const {kind} {variable.name}" if is_constant else None
    return found


def _called(node: For, known: Known, functions: list[ThreadBody]) -> tuple[Node, ...]:
    """Return the body of the parallel loop *node*, or of the last of those that are collapsed."""
    if node.collapsed > 1:
        (following,) = node.body
        assert isinstance(following, For), "loops that are collapsed have nothing between them"
        known = {**known, following.variable: f"const {text(following.type)} {following.variable}"}
        following = replace(following, collapsed=node.collapsed - 1)
        body = _called(following, known, functions)
        return (replace(following, body=body, collapsed=0),)
    free = sorted(_free(node.body) & known.keys(), key=list(known).index)
    parameters = [parameter for name in free if (parameter := known[name]) is not None]
    if len(parameters) < len(free) or _stores(node.body) < LEAST_STORES:
        return node.body
    name = f"tcdsl_thread{len(functions)}"
    functions.append(ThreadBody(name, tuple(parameters), node.body))
    return (Evaluate(call(name, *free)),)


def _free(nodes: Sequence[Node]) -> set[str]:
    """Return the names in *nodes* that they do not declare."""
    found = set(mentioned(nodes))
    for node in walk_nodes(nodes):
        match node:
            case Declare(variables=variables):
                found -= {variable.name for variable in variables}
            case For(variable=variable):
                found.discard(variable)
    return found


def _stores(nodes: Iterable[Node]) -> float:
    """Return how many assignments *nodes* run; infinity where bounds are no numbers."""
    total = 0.0
    for node in nodes:
        match node:
            case Assign():
                total += 1
            case For():
                total += _trips(node) * _stores(node.body)
            case _:
                total += _stores(inner(node))
    return total


def _trips(node: For) -> float:
    """Return the iterations of *node*; infinity where its bounds are no numbers."""
    match node.first, node.condition, node.step:
        case Literal(first), Binary("<=" | "<" as op, Name(), Literal(last)), Literal(step):
            return max(0, (int(last) + (op == "<=") - int(first)) / int(step))
        case Literal(first), Binary("<=" | "<" as op, Name(), Literal(last)), None:
            return max(0, int(last) + (op == "<=") - int(first))
        case _:
            return inf
