"""Measured lines with what the present estimate predicts: no GPU is needed.

A line's program is planned again for its chip, without one for a thread of a CPU, and its
candidates are found by their configuration; those that no space has any longer are left out. The
default is then what the compiler takes, or of those that were measured what it would: the first in
its order of those whose predictions are alike, or the first of all where that is in a space of the
likeliest. Spaces change, so that what it takes
of all candidates may not have been measured; the summary has a line without these kernels.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any

from candidates_lines import Line

from tcdsl import library
from tcdsl.costmodel.chip import Chip, chip_stems, load_chip
from tcdsl.costmodel.machine import Cpu
from tcdsl.driver import compile_to_c, compile_to_cuda
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.request import Request
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.schedule.plan import Plan
from tcdsl.source import Source
from tcdsl.strategies.catalogue import ALIKE, LIKELIEST, TEMPLATES

_TEMPLATES = {template.name: template for template in TEMPLATES}
_LIKELIEST = {template.name for template in LIKELIEST}


def chip_of(name: str) -> Chip:
    """Return the chip that is called *name*."""
    return next(chip for chip in map(load_chip, chip_stems()) if chip.name == name)


def plan_of(case_name: str, dtype: str, sizes: Mapping[str, int], chip: Chip | Cpu) -> Plan:
    """Return the plan of a library program for *chip*."""
    case = library.case(case_name)
    comprehension = analyse(parse_program(Source(library.source_for(case, dtype))))[-1]
    special = specialise(comprehension, bind_sizes(comprehension, case.input_shapes(sizes)))
    request = Request(comprehension, special)
    if isinstance(chip, Cpu):
        return compile_to_c(request, chip).plan
    return compile_to_cuda(request, chip).plan


def again(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield *lines* with the present predictions."""
    plans: dict[str, Plan] = {}
    for line in lines:
        if line.program not in plans:
            chip = chip_of(line.chip) if line.chip else Cpu(1)
            plans[line.program] = plan_of(line.case, line.dtype, line.sizes, chip)
        weighed = (w for w in plans[line.program].weighed if w.kernel == line.kernel)
        every = (c for one in weighed for c in (*one.candidates(), *one.codes()))
        known = {_key(c): c for c in every if "predicted_us" in c}
        candidates = tuple(
            {**c, **{name: known[_key(c)][name] for name in ("predicted_us", "limiter")}}
            for c in line.candidates
            if _key(c) in known
        )
        if candidates:
            chosen = {key for key, c in known.items() if c["is_chosen"]}
            own = [c for c in candidates if _key(c) in chosen]
            taken = own[0] if own else _taken(candidates, list(known))
            yield replace(
                line, candidates=candidates, default_us=taken["measured_us"],
                is_default_measured=not chosen.isdisjoint(map(_key, candidates)),
            )  # fmt: skip


def _taken(candidates: Sequence[Mapping[str, Any]], order: Sequence[str]) -> Mapping[str, Any]:
    """Return the candidate that the compiler takes, whose candidates are in *order*."""
    first = json.loads(order[0])[0]
    if first in _LIKELIEST:
        return min(candidates, key=lambda candidate: order.index(_key(candidate)))
    candidates = [c for c in candidates if c["template"] not in _LIKELIEST] or candidates
    least = min(candidate["predicted_us"] for candidate in candidates)
    alike = [c for c in candidates if c["predicted_us"] <= ALIKE * least]
    return min(alike, key=lambda candidate: order.index(_key(candidate)))


def _key(candidate: Mapping[str, Any]) -> str:
    """Return what tells *candidate* from others; what its line did not know yet has its default."""
    name, config = candidate["template"], candidate["config"]
    if template := _TEMPLATES.get(name):
        defaults = {f.name: f.default for f in fields(template.config) if f.default is not MISSING}
        config = {**defaults, **config}
    return json.dumps([name, config, candidate.get("code_change", {})], sort_keys=True)
