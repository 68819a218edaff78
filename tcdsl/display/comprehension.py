"""A comprehension beside its canonical form: statements, ranges and tensors before and after."""

from collections.abc import Mapping

from tcdsl.display.highlight import highlighted_tc
from tcdsl.display.html import Anchors, Child, Html, badge, block, code, join, table, tag
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.ranges.open_sizes import AnySpecialisation, Extent, OpenRange
from tcdsl.lang.syntax.printer import print_statement, untyped_statement
from tcdsl.rewrites.comprehension.canonical_form import canonical_form, merge_texts
from tcdsl.rewrites.comprehension.merging import Coalesced
from tcdsl.source import Span


def source_block(c: Comprehension, anchors: Anchors, targets: Mapping[str, str]) -> Html:
    """Return the user's text of *c*, each statement a link.

    :arg targets: the statements that link somewhere, and the ids there.
    """
    text = c.source.text
    spans = statement_spans(c)
    start = min([c.span.start, *(span.start for span in spans)]) if spans else c.span.start
    end = max([c.span.end, *(span.end for span in spans)])
    start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    end = line_end if line_end >= 0 else len(text)
    if (closing := _closing_brace(text, end)) is not None:
        end = closing
    parts: list[Child] = []
    at = start
    for span, names in spans.items():
        parts.append(highlighted_tc(text[at : span.start]))
        inner = highlighted_tc(text[span.start : span.end])
        linked = next((name for name in names if name in targets), None)
        link = f"#{targets[linked]}" if linked is not None else None
        element = tag(
            "a" if link else "span", inner, href=link, id=anchors("source", names[0]),
            class_="statement", data_s=" ".join(names),
        )  # fmt: skip
        extra = [tag("span", id=anchors("source", name)) for name in names[1:]]
        parts += [*extra, element]
        at = span.end
    return block([*parts, highlighted_tc(text[at:end])], "source")


def statement_spans(c: Comprehension) -> dict[Span, list[str]]:
    """Return where the statements of *c* stand in its text; what is called twice shares a place."""
    found: dict[Span, list[str]] = {}
    for statement in c.statements:
        if statement.span.end > statement.span.start:
            found.setdefault(statement.span, []).append(statement.name)
    ordered = sorted(found, key=lambda span: (span.start, -span.end))
    kept: dict[Span, list[str]] = {}
    last = -1
    for span in ordered:
        if span.start >= last:
            kept[span] = found[span]
            last = span.end
    return kept


def _closing_brace(text: str, at: int) -> int | None:
    """Return the end of a line after *at* that holds nothing but the def's closing brace."""
    rest = text[at:]
    stripped = rest.lstrip()
    if not stripped.startswith("}"):
        return None
    return at + len(rest) - len(stripped) + 1


def comprehension_section(
    c: Comprehension, special: AnySpecialisation, canonical: Coalesced
) -> Html:
    """Return the statements and tensors of *c*, each beside what coalescing made of it."""
    rows = []
    for position, statement in enumerate(c.statements):
        new = canonical.comprehension.statements[position]
        chains = canonical.chains[position]
        before = special.ranges[position]
        after = canonical.special.ranges[position]
        merges = merge_texts(chains, before)
        form = canonical_form(new, after)
        rows.append([
            badge(statement.name, "muted"),
            [code(print_statement(untyped_statement(statement))), _ranges(before)],
            [code(print_statement(untyped_statement(new))), _ranges(after)]
            if chains else tag("span", "as written", class_="note"),
            [
                tag("strong", form.name),
                tag("div", str(form).partition(": ")[2], class_="note"),
                [tag("div", text) for text in merges],
            ],
        ])  # fmt: skip
    head = ["", "as written", "canonical", "form"]
    notes = [tag("p", text, class_="note") for text in canonical.notes]
    tensors = _tensors(c, special, canonical)
    return join(table(head, rows, "wide"), *notes, tag("h3", "Tensors"), tensors)


def _ranges(ranges: Mapping[str, range | OpenRange]) -> Html:
    """Return the ranges as small text."""
    texts = []
    for name, values in ranges.items():
        if isinstance(values, range):
            texts.append(f"{name} in {values.start}:{values.stop}")
        else:
            texts.append(f"{name} in {extent_text(values.start)}:{extent_text(values.stop)}")
    return tag("div", ", ".join(texts), class_="note")


def extent_text(extent: Extent) -> str:
    """Return a number, or a function of open sizes, as text."""
    if isinstance(extent, int):
        return str(extent)
    text: str = extent.to_str()
    return text.partition("{")[2].removesuffix("}").strip().removeprefix("[(").removesuffix(")]")


def _tensors(c: Comprehension, special: AnySpecialisation, canonical: Coalesced) -> Html:
    rows = []
    for name, tensor in c.tensors.items():
        roles = [word for word, holds in (
            ("input", tensor.is_input), ("output", tensor.is_output)
        ) if holds]  # fmt: skip
        shape, flat = special.shapes[name], canonical.special.shapes[name]
        origin = special.origins[name]
        rows.append([
            code(name),
            " and ".join(roles) or "temporary",
            str(tensor.dtype),
            [shape_text(shape), _origin(origin)],
            shape_text(flat) if len(flat) < len(shape) else tag("span", "the same", class_="note"),
        ])  # fmt: skip
    return table(["tensor", "is", "type", "shape", "canonical shape"], rows)


def _origin(origin: tuple[Extent, ...]) -> Child:
    if all(isinstance(start, int) and start == 0 for start in origin):
        return None
    return tag("span", f" from {shape_text(origin)}", class_="note")


def shape_text(shape: tuple[Extent, ...]) -> str:
    """Return ``64 x 32``; of no dimensions ``scalar``."""
    return " x ".join(map(extent_text, shape)) or "scalar"
