"""What a notebook shows of a program and of its defs: signatures, shapes, ranges, the text.

    conv(float32(H, W) image, float32(KH, KW) weight) -> (float32(H - KH + 1, W - KW + 1) out)
        out(h, w) +=! ...      h in 0:H - KH + 1    w in ...    kh in 0:KH  reduced   ...

All extents and bounds are the inferred ones, as functions of the sizes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tcdsl.display.highlight import highlighted_tc
from tcdsl.display.html import Child, Html, badge, block, code, details, mime_bundle, table, tag
from tcdsl.lang.comprehension import Comprehension, Statement, Tensor
from tcdsl.lang.ranges.size_functions import text as size_text
from tcdsl.lang.syntax.ast import Assign
from tcdsl.lang.syntax.printer import print_statement, untyped_statement
from tcdsl.lang.types.signature import shape_texts

MAX_OPEN = 8  # statements of a def that is shown unfolded


def program_bundle(defs: Sequence[Comprehension], text: str) -> dict[str, Any]:
    """Return the display of a program of *defs* that reads *text*."""
    is_short = len(defs) == 1 and len(defs[0].statements) <= MAX_OPEN
    parts: list[Child] = [_folded(c, is_open=is_short) for c in defs]
    parts.append(details("text", block(highlighted_tc(text.strip("\n")))))
    return mime_bundle(parts, "\n".join(c.signature for c in defs))


def function_bundle(c: Comprehension) -> dict[str, Any]:
    """Return the display of one def."""
    return mime_bundle([_headline(c), _facts(c)], c.signature)


def _folded(c: Comprehension, *, is_open: bool) -> Html:
    return details(code(highlighted_tc(c.signature)), _facts(c), is_open=is_open)


def _headline(c: Comprehension) -> Html:
    return tag("p", code(highlighted_tc(c.signature)))


def _facts(c: Comprehension) -> Html:
    return tag("div", [_tensors(c), _statements(c)], class_="row")


def _tensors(c: Comprehension) -> Html:
    has_origin = any(_origin(tensor) for tensor in c.tensors.values())
    head = ["tensor", "", "type", "shape"] + ["begins at"] * has_origin
    rows = []
    for tensor in c.tensors.values():
        shape = " x ".join(shape_texts(tensor)) or "a number"
        row: list[Child] = [code(tensor.name), _role(tensor), str(tensor.dtype), shape]
        rows.append(row + [_origin(tensor)] * has_origin)
    return table(head, rows)


def _role(tensor: Tensor) -> Html:
    if tensor.is_input:
        return badge("input, updated" if tensor.is_output else "input", "argument")
    if tensor.is_output:
        return badge("output, given" if tensor.needs_out else "output", "good")
    return badge("temporary")


def _origin(tensor: Tensor) -> str:
    """Return where the tensor's indices begin, if that is not 0."""
    origin = [size_text(start) for start in tensor.origin]
    return ", ".join(origin) if any(start != "0" for start in origin) else ""


def _statements(c: Comprehension) -> Html:
    return table(["statement", "ranges"], ([_written(c, s), _ranges(s)] for s in c.statements))


def _written(c: Comprehension, statement: Statement) -> Html:
    """Return the statement as the user wrote it; one that was inlined as it is now."""
    written = c.source.text[statement.span.start : statement.span.end]
    if not written or "\n" in written or not written.startswith(statement.target):
        tree = untyped_statement(statement)
        assert isinstance(tree, Assign)
        written = print_statement(tree)
    return code(highlighted_tc(written))


def _ranges(statement: Statement) -> Html:
    if not statement.ranges:
        return tag("span", "once" if not statement.indices else "", class_="note")
    return tag("div", list(_range_lines(statement)))


def _range_lines(statement: Statement) -> Iterator[Html]:
    for index, (lower, upper) in zip(statement.indices, statement.ranges, strict=True):
        text = f"{index} in {size_text(lower)}:{size_text(upper)}"
        is_reduced = index in statement.reduced
        reduced = [" ", badge("reduced", "relaxed")] if is_reduced else None
        yield tag("div", code(text), reduced, class_="range")
    yield from _limits(statement)


def _limits(statement: Statement) -> Iterable[Html]:
    """Return what else must hold: ranges that depend on other indices, and conditions."""
    domain = statement.domain
    if domain is not None and not domain.is_box():
        constraints = domain.to_str().partition(" : ")[2].removesuffix(" }").strip()
        return [tag("div", code(constraints), class_="note")] if constraints else []
    return []
