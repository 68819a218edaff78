"""The entry of a plan's C: where its arrays are in memory, and the call of its kernels on them.

    int32_t tcdsl_entry(void *const *pointers, const int64_t *integers, int64_t *fault)
    {
      tcdsl_kernels(pointers[0], (void *)((char *)pointers[1] + 64), integers, fault);
      return fault[0] != 0;
    }

The kernels are not inlined: gcc makes use of ``restrict`` on parameters, but not on variables, nor
on the parameters of a function that it has inlined.

Legal iff no element that the kernels store is accessed through another parameter (C11, 6.7.3.1):

- an argument is one array of the scop, input and output alike, and has one parameter; none is
  another view (``Array.memory``) of it;
- a result overlaps no other argument: a call whose ``out=`` does goes through a copy, unless it is
  that argument itself (``Executable._safe_result``), and results of one call share no memory
  (``Results.views``); inputs may overlap one another, for nothing stores them;
- scratch arrays are disjoint parts of the workspace, which is of this call alone;
- the integers are constants of the plan, and the fault record is of this call alone.

The other threads of a parallel loop access the same arrays by the same parameters.
"""

from collections.abc import Iterator, Sequence

from tcdsl.codegen.ast.build import binary, call, cast, chain, index, paren
from tcdsl.codegen.ast.nodes import Code, Evaluate, Node
from tcdsl.codegen.ast.text import Line, lines, text
from tcdsl.codegen.c.expressions import c_type
from tcdsl.codegen.c.size_texts import SizeTexts
from tcdsl.codegen.c.thread_bodies import ThreadBody
from tcdsl.codegen.names import Names
from tcdsl.poly.scop import Array, Scop

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
_REST = {  # after the arrays
    "integers": "const int64_t *restrict integers", "fault": "int64_t *restrict fault",
}  # fmt: skip


def places_of(
    arguments: Sequence[Array], scratch: Sequence[Array], sizes: SizeTexts
) -> tuple[dict[str, Code], int | Code]:
    """Return where the arrays in memory are, by name, and the workspace's size in bytes."""
    places: dict[str, Code] = {
        array.name: index("pointers", position) for position, array in enumerate(arguments)
    }
    start = cast("char *", index("pointers", len(arguments)))
    offset, opened = 0, list[Code]()
    # First what has a known offset: the others' offsets are functions of the integers.
    for array in sorted(scratch, key=lambda array: array.size_bytes() is None):
        place = chain("+", [start, offset, *opened])
        places[array.name] = cast("void *", paren(place))
        size = array.size_bytes()
        if size is None:
            opened.append(_aligned_bytes(array, sizes))
        else:
            offset += -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
    return places, chain("+", [offset, *opened]) if opened else offset


def _aligned_bytes(array: Array, sizes: SizeTexts) -> Code:
    """Return the bytes of *array*, rounded up to a whole number of cache lines, above 0."""
    size = binary(sizes.elements(array), "*", array.dtype.size_bytes)
    whole = paren(binary(binary(size, "/", ALIGNMENT), "+", 1))
    return binary(whole, "*", ALIGNMENT)


def parameters_of(scop: Scop, arrays: Sequence[Array], names: Names) -> dict[str, str]:
    """Return the parameters of the kernels by their names: *arrays*, the integers, the fault."""
    written = {access.array for s in scop.statements for access in s.writes}
    found = {}
    for array in arrays:
        assert not array.memory, f"{array.name} is another view of {array.memory}"
        const = "" if array.name in written else "const "
        name = names.of("array", array.name)
        found[name] = f"{const}{c_type(array.dtype)} *restrict {name}"
    return found | _REST


def function_lines(function: ThreadBody) -> Iterator[Line]:
    """Yield the lines of *function*, which is not inlined."""
    yield Line(f"static __attribute__((noinline)) void {function.name}(")
    *others, last = function.parameters
    yield from (Line(f"    {parameter},") for parameter in others)
    yield from (Line(f"    {last})"), Line("{"))
    yield from lines(function.body, 1)
    yield from (Line("}"), Line(""))


def entry_lines(declared: Sequence[Node], places: Sequence[Code]) -> list[Line]:
    """Return the lines of the entry, which calls the kernels on the arrays at *places*."""
    called: Node = Evaluate(call("tcdsl_kernels", *places, "integers", "fault"))
    head = "int32_t tcdsl_entry(void *const *pointers, const int64_t *integers, int64_t *fault)"
    inside = lines((*declared, called), 1)
    return [Line(head), Line("{"), *inside, Line("  return fault[0] != 0;"), Line("}")]


def workspace_function(sizes: SizeTexts, size: Code) -> str:
    """Return the C of ``tcdsl_workspace``: the bytes that a call with *integers* needs."""
    return "\n".join([
        "", "int64_t tcdsl_workspace(const int64_t *integers)", "{",
        *(line.text for line in lines(sizes.declarations(), 1)),
        f"  return {text(size)};", "}", "",
    ])  # fmt: skip
