"""What users ask of kernels, as data: which template, and which configuration.

    exe.choices   {"format": "tcdsl choices", "version": 2, "target": "cuda", "kernels": [
                     {"kernel": "S0+S1", "template": "row", "threads": 128, "vector": 4, ...}, ...]}

A kernel is named by its statements.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tcdsl.errors import OptionError
from tcdsl.options import BAD_OPTION, CHOICES_FORMAT, CHOICES_VERSION, Options
from tcdsl.schedule.plan import Weighed

Asked = Mapping[str, Mapping[str, Any]]  # kernel -> template and configuration
NOTHING_ASKED: Asked = {}


def asked_for(options: Options) -> Asked:
    """Return what *options* ask for, kernel by kernel."""
    if not options.choices:
        return {}
    return {one["kernel"]: one for one in json.loads(options.choices)["kernels"]}


def data_of(weighed: Iterable[Weighed], target: str) -> dict[str, Any]:
    """Return the choices of a plan as plain data."""
    kernels = [{"kernel": one.kernel, **one.choice} for one in weighed]
    return {
        "format": CHOICES_FORMAT, "version": CHOICES_VERSION, "target": target, "kernels": kernels,
    }  # fmt: skip


def require_followed(asked: Asked, weighed: Iterable[Weighed]) -> None:
    """Raise unless the kernels of a plan are made as *asked*.

    :raises OptionError: (TC060) there is no such kernel, it has another template, or its template
        has no such thing to choose.
    """
    there = {one.kernel: one.choice for one in weighed}
    for name, wanted in asked.items():
        if name not in there:
            others = f"there are {', '.join(there)}" if there else "nothing is computed"
            raise misfit(name, f"there is no such kernel; {others}")
        made = there[name]
        if wanted["template"] != made["template"]:
            what = f"it is made by template {made['template']!r}, not {wanted['template']!r}"
            raise misfit(name, what)
        if unknown := sorted(wanted.keys() - made.keys() - {"kernel"}):
            raise misfit(name, f"template {made['template']!r} has no {unknown[0]!r} to choose")


def misfit(kernel: str, what: str) -> OptionError:
    """Return the error for choices of *kernel* that do not fit."""
    advice = "give what Executable.choices returned for this program and these sizes, or one of"
    error = BAD_OPTION(
        name="choices", what=f"kernel {kernel}: {what}", advice=f"{advice} Executable.candidates"
    )
    assert isinstance(error, OptionError)
    return error
