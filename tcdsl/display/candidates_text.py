"""What each kernel was chosen from, as text: for ``explain()``, and as a table for a terminal.

    S0+S1+S2: 13 weighed
      chosen     65.8 us  memory   row: threads 512, vector 4, keep 2
      or         65.3 us  memory   row: threads 256, vector 4, keep 4
      not row_split: its rows are in no chunks

Times are the cost model's estimates; the word after them says what limits a kernel.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import comb
from typing import Any

from tcdsl.records import dataclass

Candidate = Mapping[str, Any]

MOST_OTHERS = 3  # candidates that explain() shows beside the chosen one
NOTHING = "nothing was weighed: each kernel has one form on this target"


@dataclass(frozen=True, slots=True)
class Chip:
    """The rates that bound every kernel."""

    name: str
    bytes_per_s: float
    operations_per_s: float


@dataclass(frozen=True, slots=True)
class Weighing:
    """What was weighed for one plan.

    *apart*: pairs of kernels, and why they are two; *rewrites*: each with its site and its result.
    """

    chip: Chip | None = None
    candidates: tuple[Candidate, ...] = ()
    apart: tuple[tuple[str, str, str], ...] = ()
    rewrites: tuple[tuple[str, str, str], ...] = ()
    launches: tuple[Candidate, ...] = ()  # of kernels that share a launch, or might

    def of(self, kernel: str) -> list[Candidate]:
        """Return the candidates of *kernel*: configurations, and why there are no others."""
        return configurations(c for c in self.candidates if c["kernel"] == kernel)

    def codes_of(self, kernel: str) -> list[Candidate]:
        """Return the candidates of *kernel* that have other code than the chosen one."""
        own = (candidate for candidate in self.candidates if candidate["kernel"] == kernel)
        return [candidate for candidate in own if "code_change" in candidate]


def configurations(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the *candidates* that differ in more than the code of the chosen one."""
    return [candidate for candidate in candidates if "code_change" not in candidate]


def read_weighing(text: str) -> Weighing:
    """Return what the stage "candidates" says (``strategies.decided``)."""
    lines = [json.loads(line) for line in text.splitlines()]
    chips = [
        Chip(line["chip"], line["bytes_per_s"], line["operations_per_s"])
        for line in lines
        if "chip" in line
    ]
    return Weighing(
        chips[0] if chips else None,
        tuple(line for line in lines if "kernel" in line),
        tuple(pair for line in lines if "separate" in line for pair in _pairs(line)),
        tuple(
            (line["rewrite"], line["site"], line["result"]) for line in lines if "rewrite" in line
        ),
        tuple(_as_kernel(line) for line in lines if "launch" in line),
    )


def _pairs(line: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the first kernel of *line* with each of the others, and why they are two."""
    one, *others = line["separate"]
    around = f" (around {line['around']})" if "around" in line else ""
    yield from ((one, f"{other}{around}", line["why_not"]) for other in others)


def _as_kernel(line: Mapping[str, Any]) -> Candidate:
    """Return *line* of a launch as that of a kernel."""
    return {"kernel": line["launch"], **{k: v for k, v in line.items() if k != "launch"}}


def config_text(config: Mapping[str, Any], varying: Collection[str] = ()) -> str:
    """Return *config* for people: its first value, and those *varying* or neither 0 nor 1."""
    shown = [
        f"{name} {value}"
        for position, (name, value) in enumerate(config.items())
        if position == 0 or name in varying or value not in (0, 1, None, "", (), [])
    ]
    return ", ".join(shown)


def varying_in(candidates: Iterable[Candidate]) -> set[str]:
    """Return the names of what differs between *candidates* of one template."""
    seen: dict[tuple[str, str], set[Any]] = {}
    for candidate in candidates:
        for name, value in candidate.get("config", {}).items():
            seen.setdefault((candidate["template"], name), set()).add(repr(value))
    return {name for (_, name), values in seen.items() if len(values) > 1}


def choice_text(kernel: Mapping[str, Any]) -> str:
    """Return an entry of ``Executable.choices`` for people."""
    others = ("kernel", "template", "code")
    config = {key: value for key, value in kernel.items() if key not in others}
    return ", ".join(filter(None, (f"template {kernel['template']}", config_text(config))))


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return those of *candidates* that fit: the chosen one, then the fastest first."""
    fitting = [candidate for candidate in candidates if "why_not" not in candidate]
    return sorted(fitting, key=lambda c: (not c["is_chosen"], c.get("predicted_us", 0.0)))


def explained(kernels: Sequence[Mapping[str, Any]], weighing: Weighing) -> list[str]:
    """Return what ``explain()`` says of *kernels*, which are those of ``Executable.choices``."""
    lines = []
    everywhere = _of_all_kernels(weighing)
    for kernel in kernels:
        own = weighing.of(kernel["kernel"])
        if not own:
            lines.append(f"{kernel['kernel']}: {choice_text(kernel)}")
            continue
        lines.append(f"{kernel['kernel']}: {len(in_order(own))} weighed")
        lines += [f"  {line}" for line in _timed_lines(in_order(own), own)]
        lines += [
            f"  not {', '.join(names)}: {reason}"
            for reason, names in reasons(own)
            if reason not in everywhere
        ]
    lines += [f"not {', '.join(names)}: {reason}" for reason, names in everywhere.items()]
    lines += apart_lines(weighing)
    return lines


def _timed_lines(ordered: Sequence[Candidate], own: Sequence[Candidate]) -> list[str]:
    varying = varying_in(own)
    has_times = any("predicted_us" in candidate for candidate in ordered)
    shown = ordered[: MOST_OTHERS + 1 if has_times else 1]
    width = _limiter_width(shown)
    lines = [
        f"{'chosen' if candidate['is_chosen'] else 'or':<6} {timed_text(candidate, varying, width)}"
        for candidate in shown
    ]
    left = len(ordered) - len(lines)
    return [*lines, f"or one of {left} more: see Executable.candidates"] if left else lines


def _of_all_kernels(weighing: Weighing) -> dict[str, list[str]]:
    """Return the reasons, with their templates, that all of several kernels share."""
    kernels = dict.fromkeys(str(c["kernel"]) for c in weighing.candidates)
    found = [dict(reasons(weighing.of(kernel))) for kernel in kernels]
    if len(found) < 2:
        return {}
    return {r: names for r, names in found[0].items() if all(o.get(r) == names for o in found)}


def apart_lines(weighing: Weighing) -> list[str]:
    """Return why kernels are not one, each reason with its pairs; and what became of rewrites."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for one, other, reason in weighing.apart:
        pairs.setdefault(reason, []).append((one, other))
    lines = [f"separate  {_pairs_text(found)}: {reason}" for reason, found in pairs.items()]
    lines += launch_lines(weighing.launches)
    return [*lines, *(f"rewrite  {w} of {site}: {result}" for w, site, result in weighing.rewrites)]


def launch_lines(launches: Iterable[Candidate]) -> list[str]:
    """Return which kernels share a launch, and why others do not, each reason with its pairs."""
    best: dict[str, Candidate] = {}
    for one in launches:
        before = best.get(one["kernel"])
        if before is None or _order(one) < _order(before):
            best[one["kernel"]] = one
    said: dict[str, list[str]] = {}
    for name, one in best.items():
        said.setdefault(_said(one), []).append(name)
    return [f"launch  {_some(names)}: {what}" for what, names in said.items()]


def _order(launch: Candidate) -> tuple[bool, float]:
    return not launch.get("is_chosen", False), launch.get("predicted_us", 0.0)


def _said(launch: Candidate) -> str:
    """Return what became of *launch*."""
    if "why_not" in launch:
        return f"not {launch['template']}: {launch['why_not']}"
    config = config_text(launch["config"])
    what = f"{launch['template']}: {config}" if config else launch["template"]
    if "predicted_us" not in launch:
        return what if launch["is_chosen"] else f"not {what}: nobody predicts its time"
    time = f"{launch['predicted_us']:.3g} us"
    if launch["is_chosen"]:
        return f"{what}, {time}"
    return f"not {what}: {time}, separate {launch.get('separate_us', 0.0):.3g} us"


def _pairs_text(pairs: Sequence[tuple[str, str]]) -> str:
    """Return *pairs* of kernels for people: where they are all that some kernels have, these."""
    kernels = list(dict.fromkeys(kernel for pair in pairs for kernel in pair))
    if len(kernels) > 2 and len(pairs) == comb(len(kernels), 2):
        return f"any two of {_some(kernels, 'more')}"
    return _some([f"{one} | {other}" for one, other in pairs])


def _some(names: Sequence[str], others: str = "more pairs") -> str:
    left = len(names) - MOST_OTHERS
    more = [f"{left} {others}"] if left > 0 else []
    return ", ".join([*names[:MOST_OTHERS], *more])


def timed_text(candidate: Candidate, varying: Collection[str], limiter_width: int = 8) -> str:
    """Return the time, the limiter and the configuration of *candidate*."""
    config = config_text(candidate["config"], varying)
    if "predicted_us" not in candidate:
        return f"{candidate['template']}: {config}"
    time_us, limiter = candidate["predicted_us"], candidate["limiter"]
    return f"{time_us:8.1f} us  {limiter:<{limiter_width}} {candidate['template']}: {config}"


def _limiter_width(candidates: Iterable[Candidate]) -> int:
    """Return how wide the column of limiters is: configurations begin below one another."""
    return max([8, *(len(c.get("limiter", "")) for c in candidates)])


def times_of_codes(weighing: Weighing, kernel: str) -> list[tuple[str, str]]:
    """Return the times of *kernel* with other code, each with the values that have it, key by key.

    A value may go with another one only, which follows it.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for one in weighing.codes_of(kernel):
        (key, value), *given_up = one["code_change"].items()
        others = f" ({', '.join(f'{k} {json.dumps(v)}' for k, v in given_up)})" if given_up else ""
        time = f"{one['predicted_us']:.1f} us" if "predicted_us" in one else one["why_not"]
        found.setdefault(time, {}).setdefault(key, []).append(json.dumps(value) + others)
    return [
        (time, "; ".join(f"{key} {', '.join(values)}" for key, values in own.items()))
        for time, own in found.items()
    ]


def reasons(candidates: Iterable[Candidate]) -> list[tuple[str, list[str]]]:
    """Return why templates make no candidate, each reason with the templates that have it."""
    refused = [c for c in candidates if "why_not" in c and "config" not in c]
    found: dict[str, list[str]] = {}
    for candidate in refused:
        found.setdefault(candidate["why_not"], []).append(candidate["template"])
    return list(found.items())


def candidates_text(weighing: Weighing) -> str:
    """Return all candidates as a table for a terminal; below them, the chosen one's other code."""
    lines = []
    for kernel in dict.fromkeys(str(c["kernel"]) for c in weighing.candidates):
        own = weighing.of(kernel)
        varying = varying_in(own)
        lines.append(f"kernel {kernel}")
        ordered = in_order(own)
        width = _limiter_width(ordered)
        lines += [f"  {_mark(c)} {timed_text(c, varying, width)}" for c in ordered]
        lines += [
            f"    not {c['template']}: {config_text(c['config'], varying)}: {c['why_not']}"
            for c in own
            if "why_not" in c and "config" in c
        ]
        lines += [f"    code {time}  {what}" for time, what in times_of_codes(weighing, kernel)]
        lines += [f"    not {', '.join(names)}: {reason}" for reason, names in reasons(own)]
    lines += apart_lines(weighing)
    return "\n".join(lines) or NOTHING


def _mark(candidate: Candidate) -> str:
    return "*" if candidate["is_chosen"] else " "
