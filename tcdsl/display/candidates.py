"""What each kernel was chosen from, on a page: a table with predicted times, and a roofline."""

from collections.abc import Sequence

from tcdsl.display.candidates_text import (
    NOTHING,
    Candidate,
    Weighing,
    apart_lines,
    config_text,
    in_order,
    reasons,
    times_of_codes,
    varying_in,
)
from tcdsl.display.html import Child, Html, code, details, join, table, tag
from tcdsl.display.rooflines import roofline

MOST_ROWS = 8  # that are not folded


def candidates_section(weighing: Weighing) -> Html:
    """Return a table of the candidates of each kernel, and why other kernels were not made."""
    kernels = dict.fromkeys(str(c["kernel"]) for c in weighing.candidates)
    parts: list[Child] = [_kernel(kernel, weighing) for kernel in kernels]
    apart = [tag("li", line) for line in apart_lines(weighing)]
    if not parts and not apart:
        parts.append(tag("p", NOTHING, class_="note"))
    return join(*parts, tag("ul", apart) if apart else None)


def _kernel(kernel: str, weighing: Weighing) -> Html:
    own = weighing.of(kernel)
    ordered = in_order(own)
    varying = varying_in(own)
    rows = [
        [
            tag("span", "chosen" if c["is_chosen"] else "", class_="ink-good"),
            c["template"],
            config_text(c["config"], varying),
            tag("span", f"{c['predicted_us']:.1f}" if "predicted_us" in c else "", class_="number"),
            c.get("limiter", ""),
        ]
        for c in ordered
    ]
    unfit = [
        ["", c["template"], config_text(c["config"], varying), "", c["why_not"]]
        for c in own
        if "why_not" in c and "config" in c
    ]
    head = ["", "template", "configuration", "predicted us", "limiter"]
    few, many = rows[:MOST_ROWS], [*rows[MOST_ROWS:], *unfit]
    others = [[", ".join(names), reason] for reason, names in reasons(own)]
    more = details(f"{len(many)} more", table(head, many)) if many else None
    codes = [[time, what] for time, what in times_of_codes(weighing, kernel)]
    others_of_code = details("other code", table(["predicted", "change"], codes)) if codes else None
    refused = details("templates that do not apply", table(["", ""], others)) if others else None
    timed = [tag("div", table(head, few), more), _drawing(weighing, ordered)]
    return tag(
        "div", tag("h3", code(kernel)), tag("div", timed, class_="row"), others_of_code, refused
    )


def _drawing(weighing: Weighing, timed: Sequence[Candidate]) -> Html | None:
    return roofline(weighing.chip, timed) if weighing.chip is not None else None
