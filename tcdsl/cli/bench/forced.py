"""A forced choice: one more call of each case, beside the default one and by turns with it.

    --force threads=128               every kernel whose template has a "threads"
    --force S0+S1:threads=128         one kernel, by its statements; also template=column
    --force code.early=false          what is chosen of a kernel's code beside its loops
    --choices FILE                    as Executable.choices has them: tcdsl show --stage choices

What is forced stands for itself: the other values of a configuration are those of the fastest
candidate that agrees with it, by the predicted times; without these, of the first.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import tcdsl
from tcdsl.lang.syntax.spelling import did_you_mean, nearest_first
from tcdsl.library import Case, source_for
from tcdsl.options import BAD_ARGUMENT, Options, text_of_choices
from tcdsl.records import dataclass

FORCED = "forced"  # the column of the table
CODE = "code."  # before the keys of what is chosen of a kernel's code

Values = Mapping[str, Any]
Candidates = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Force:
    """One ``--force``; *kernel* is empty for all that have *key*."""

    kernel: str
    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Forced:
    """What ``--choices`` and ``--force`` ask for."""

    choices: str = ""
    forces: tuple[Force, ...] = ()

    def options(self, case: Case, inputs: Mapping[str, Any], dtype: str, target: str) -> Options:
        """Return the options of the forced call.

        :raises OptionError: no candidate of a kernel agrees with what is forced.
        """
        function = tcdsl.define(source_for(case, dtype))[case.def_name]
        values = list(inputs.values())
        given = Options(choices=self.choices)
        executable = function.compile(*values, target=target, options=given)
        forced = with_forces(executable.choices, executable.candidates, self.forces)
        return Options(choices=json.dumps(forced))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--force`` and ``--choices`` to *parser*."""
    parser.add_argument(
        "--force", action="append", default=[], metavar="[KERNEL:]KEY=VALUE",
        help="also time this choice, by turns with the default; several times",
    )  # fmt: skip
    add_choices_argument(parser)


def add_choices_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--choices`` to *parser*."""
    parser.add_argument(
        "--choices", metavar="FILE",
        help="make the kernels that FILE says: tcdsl show --stage choices",
    )  # fmt: skip


def chosen_forced(arguments: argparse.Namespace) -> Forced | None:
    """Return what the command line forces, None if nothing."""
    if not arguments.force and arguments.choices is None:
        return None
    return Forced(read_choices(arguments.choices), tuple(map(force_of, arguments.force)))


def read_choices(path: str | None) -> str:
    """Return the choices in the file *path*, "" for None.

    :raises OptionError: (TC064) it cannot be read; (TC060) it has no choices.
    """
    if path is None:
        return ""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise BAD_ARGUMENT(
            argument="--choices", what=f"{path!r} cannot be read: {reason}",
            advice="write it with tcdsl show --stage choices",
        ) from None  # fmt: skip
    return text_of_choices(text)


def force_of(text: str) -> Force:
    """Return what ``[KERNEL:]KEY=VALUE`` means; a value is a number, a name, or other JSON."""
    where, equals, value = text.partition("=")
    kernel, _, key = where.rpartition(":")
    if not (equals and key and value):
        raise BAD_ARGUMENT(
            argument="--force", what=f"{text!r} has no meaning",
            advice="write --force KEY=VALUE or --force KERNEL:KEY=VALUE, as in threads=128",
        )  # fmt: skip
    parsed: Any = value
    with suppress(ValueError):
        parsed = json.loads(value)
    return Force(kernel, key, parsed)


def with_forces(
    choices: Mapping[str, Any], candidates: Candidates, forces: Sequence[Force]
) -> dict[str, Any]:
    """Return *choices* with the kernels that *forces* are about as these say.

    :raises OptionError: (TC064) there is no such kernel, key or candidate.
    """
    kernels = [dict(kernel) for kernel in choices["kernels"]]
    wanted: dict[str, dict[str, Any]] = {}
    for force in forces:
        for name in _kernels_of(force, kernels, candidates):
            wanted.setdefault(name, {})[force.key] = force.value
    found = [
        _fastest(kernel, wanted[kernel["kernel"]], candidates)
        if kernel["kernel"] in wanted
        else kernel
        for kernel in kernels
    ]
    return {**choices, "kernels": found}


def _kernels_of(force: Force, kernels: Sequence[Values], candidates: Candidates) -> list[str]:
    """Return the names of the kernels that *force* is about."""
    names = [kernel["kernel"] for kernel in kernels]
    if force.kernel and force.kernel not in names:
        advice = did_you_mean(force.kernel, names) or f"there are {', '.join(names)}"
        raise _bad(f"there is no kernel {force.kernel!r}", advice)
    if force.kernel:
        return [force.kernel]
    own = {
        kernel["kernel"]: [f"{CODE}{key}" for key in kernel.get("code", ())] for kernel in kernels
    }
    has = {c["kernel"] for c in candidates if force.key in ("template", *c.get("config", ()))}
    has |= {name for name, keys in own.items() if force.key in keys}
    if not has:
        keys = {key for c in candidates for key in c.get("config", ())}
        keys |= {key for keys in own.values() for key in keys}
        near = nearest_first(force.key, {"template", *keys})
        advice = f"there are {', '.join(near)}" if keys else "try the target cuda"
        raise _bad(f"no kernel has {force.key!r} to choose", advice)
    return [name for name in names if name in has]


def _fastest(kernel: Values, wanted: Values, candidates: Candidates) -> dict[str, Any]:
    """Return the choice for *kernel* that has the values *wanted*."""
    code = {k.removeprefix(CODE): value for k, value in wanted.items() if k.startswith(CODE)}
    if len(code) == len(wanted):
        return {**kernel, "code": {**kernel.get("code", {}), **code}}
    template = wanted.get("template", kernel["template"])
    config = {k: v for k, v in wanted.items() if k != "template" and not k.startswith(CODE)}
    known = [
        c
        for c in candidates
        if c["kernel"] == kernel["kernel"] and c["template"] == template
        if not ("why_not" in c or "code_change" in c)
    ]
    agreeing = [c for c in known if config.items() <= c["config"].items()]
    if not agreeing:
        text = ", ".join(f"{key}={value}" for key, value in wanted.items())
        raise _bad(
            f"kernel {kernel['kernel']} has no candidate with {text}", _allowed(known, config)
        )
    best = min(agreeing, key=lambda c: float(c.get("predicted_us", inf)))
    found = {"kernel": kernel["kernel"], "template": template, **best["config"]}
    return {**found, "code": code} if code else found


def _allowed(known: Candidates, config: Values) -> str:
    """Return what the keys of *config* may be."""
    if not known:
        return "its other candidates, and why there are none: tcdsl show --stage candidates"
    found = {key: {str(c["config"][key]): 0 for c in known if key in c["config"]} for key in config}
    allowed = [f"{key} may be {', '.join(v)}" for key, v in found.items() if v]
    return "; ".join(allowed) or f"it has {', '.join(known[0]['config'])}"


def _bad(what: str, advice: str) -> Exception:
    return BAD_ARGUMENT(argument="--force", what=what, advice=advice)
