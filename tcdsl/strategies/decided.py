"""What a plan decided, as texts.

    choices        what Executable.choices returns, as JSON
    candidates     a line of JSON each: the target and its chip's rates; every candidate of
                   Executable.candidates; those for kernels that might share a launch; kernels,
                   the first of them with each of the others, and why they are two, if need be
                   around a third; rewrites that were weighed

The choices are kept with the code.  An estimate takes up to a millisecond, and all of them as long
as planning: the candidates are weighed when somebody reads them, for which code from the disk cache
is planned again.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tcdsl.costmodel.chip import Chip, Unit
from tcdsl.schedule.plan import Plan
from tcdsl.strategies.asked import data_of


def choices_text(plan: Plan, target: str) -> str:
    """Return the choices of *plan* as JSON."""
    shared = [one for one in plan.launches if one.choice]
    return json.dumps(data_of((*plan.weighed, *shared), target), indent=1) + "\n"


def candidates_text(plan: Plan, target: str, chip: Chip | None = None) -> str:
    """Return what was weighed for *plan*, a line each; *chip* is that of a GPU."""
    return "".join(f"{json.dumps(line)}\n" for line in _lines(plan, target, chip))


def _lines(plan: Plan, target: str, chip: Chip | None) -> Iterator[Mapping[str, Any]]:
    yield (
        {"target": target}
        if chip is None
        else {
            "target": target,
            "chip": chip.name,
            "bytes_per_s": chip.dram_copy_bytes_per_s,
            "operations_per_s": chip.rate(Unit.FMA_F32),
        }
    )
    for one in plan.weighed:
        for candidate in (*one.candidates(), *one.codes()):
            yield {"kernel": one.kernel, **candidate}
    for one in plan.launches:
        for candidate in one.candidates():
            yield {"launch": one.kernel, **candidate}
    for pair in plan.apart():
        around = {"around": pair.around} if pair.around else {}
        yield {"separate": [pair.one, *pair.others], "why_not": pair.reason, **around}
    for tried in plan.tried:
        yield {"rewrite": tried.rewrite, "site": tried.site, "result": tried.result}
