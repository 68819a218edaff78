"""The choice for a kernel: what is asked for, or the likeliest; and what else there is.

What is asked for must be in the space that the problem has: options filter it, and so does the
device.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from math import inf
from types import MappingProxyType
from typing import Any

from tcdsl.costmodel.chip import Unit
from tcdsl.costmodel.machine import Machine
from tcdsl.costmodel.work import AnyWork
from tcdsl.strategies import catalogue
from tcdsl.strategies.asked import Asked, misfit
from tcdsl.strategies.catalogue import Candidate, candidates, fastest
from tcdsl.strategies.code_choices import code_data, codes_beside
from tcdsl.strategies.estimated import estimated
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.template import Choice, Template

NO_CONFIG = ("kernel", "template", "code")
NOTHING_OF_CODE: Mapping[str, Any] = MappingProxyType({})


def choice_for(problem: Problem, asked: Asked) -> Choice:
    """Return the choice for *problem*: what is asked for, or else the likeliest.

    :raises OptionError: (TC060) what is asked for does not fit, and why.
    """
    name = "+".join(problem.group.members)
    wanted = asked.get(name)
    if wanted is None:
        return fastest(problem)
    data = {key: value for key, value in wanted.items() if key not in NO_CONFIG}
    template = _template(problem, name, wanted["template"])
    if reason := template.why_not(problem):
        raise misfit(name, f"template {template.name!r} does not apply: {reason}")
    known = [field.name for field in fields(template.config)]
    for key in data:
        if key not in known:
            raise misfit(name, f"{template.name} has no {key!r}; it has {', '.join(known)}")
    config = _completed(list(template.space(problem)), data)
    if isinstance(config, str):
        raise misfit(name, config)
    return Choice(template, config, wanted.get("code", {}))


def _completed(space: Sequence[Any], data: Mapping[str, Any]) -> Any:
    """Return the configuration of *space* with the values *data*, or as text why there is none.

    Values that are not given are those of the favoured one, the first; where these do not go with
    the others, those of the first that has what is given.
    """
    if not space:
        return "it has no configuration for this"
    by_text = {_text(asdict(config)): config for config in space}
    own = {**asdict(space[0]), **data}
    if _text(own) in by_text:
        return by_text[_text(own)]
    for config in space:
        values = asdict(config)
        if _text({key: values[key] for key in data}) == _text(data):
            return config
    return _why_not_in(own, [asdict(config) for config in space], data)


def _text(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _template(problem: Problem, kernel: str, name: str) -> Template[Any]:
    by_name = {template.name: template for template in catalogue.templates_of(problem.machine)}
    if name in by_name:
        return by_name[name]
    meant = get_close_matches(name, by_name, n=1)
    hint = f"did you mean {meant[0]!r}?" if meant else f"there are {', '.join(by_name)}"
    if any(template.name == name for template in catalogue.TEMPLATES):
        there = ", ".join(by_name)
        raise misfit(kernel, f"template {name!r} is for another target; for this are {there}")
    raise misfit(kernel, f"there is no template {name!r} to choose; {hint}")


def _why_not_in(
    own: Mapping[str, Any], space: Sequence[Mapping[str, Any]], data: Mapping[str, Any]
) -> str:
    """Return which value of *own* is in no configuration of *space* with the others as given."""
    for key in data:
        if _text({key: own[key]}) not in {_text({key: config[key]}) for config in space}:
            allowed = _listed(config[key] for config in space)
            return f"{key}={own[key]!r} is none of {allowed}"
    for key in data:
        alike = [c[key] for c in space if _text({**c, key: own[key]}) == _text(own)]
        if alike:
            return f"{key}={own[key]!r} does not go with the others, {_listed(alike)} would"
    return f"{dict(own)} is no configuration of it"


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(repr, sorted(dict.fromkeys(values))))


# --- what else there was -----------------------------------------------------------------------


def candidates_of(
    problem: Problem, chosen: Mapping[str, Any], code: Mapping[str, Any] = NOTHING_OF_CODE
) -> list[dict[str, Any]]:
    """Return a candidate for *problem* of each configuration, and why other templates make none.

    Of a candidate: ``template``, ``config``, ``code``, ``predicted_us``, ``limiter``,
    ``moved_bytes`` (from and to memory), ``operations``, ``is_chosen``; of a template that does not
    apply: ``template`` and ``why_not``.

    :arg code: of the *chosen* one; others have their default.
    """
    found = []
    for candidate in candidates(problem):
        is_chosen = candidate.choice.as_data() == chosen
        made = _with(problem, candidate, code) if is_chosen and code else candidate
        found.append({**_as_data(problem, made), "is_chosen": is_chosen})
    reasons = catalogue.reasons(problem)
    return found + [{"template": name, "why_not": reason} for name, reason in reasons.items()]


def codes_of(
    problem: Problem, chosen: Mapping[str, Any], code: Mapping[str, Any], fixed: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the *chosen* candidate for *problem* with every other value of one key of its *code*.

    As :func:`candidates_of`; ``code_change`` has what differs from *code*.

    :arg fixed: keys that mean nothing where the kernel stands.
    """
    found = []
    for candidate in [c for c in candidates(problem) if c.choice.as_data() == chosen]:
        for other in codes_beside(problem, candidate.schedule, code):
            change = {key: value for key, value in other.items() if code[key] != value}
            if change.keys().isdisjoint(fixed):
                made = _as_data(problem, _with(problem, candidate, other))
                found.append({**made, "code_change": change, "is_chosen": False})
    return found


def _with(problem: Problem, candidate: Candidate, code: Mapping[str, Any]) -> Candidate:
    """Return *candidate* with the values *code* of its code."""
    made = replace(candidate.schedule, code=replace(candidate.schedule.code, **code))
    return Candidate(candidate.choice, made, *estimated(problem, made))


def _as_data(problem: Problem, candidate: Candidate) -> dict[str, Any]:
    data, predicted, work = candidate.choice.as_data(), candidate.estimate, candidate.work
    own: dict[str, Any] = {"template": data.pop("template"), "config": data}
    if problem.finish is None:  # else a part of the kernel before
        own["code"] = code_data(candidate.schedule.code, problem.machine)
    if predicted.seconds == inf:
        return {**own, "why_not": predicted.why_not or "it does not fit"}
    return {
        **own, "predicted_us": 1e6 * predicted.seconds, "limiter": predicted.limiter,
        "moved_bytes": work.dram_bytes, "operations": _operations(work, problem.machine),
    }  # fmt: skip


def _operations(work: AnyWork, machine: Machine) -> float:
    """Return the operations of *work*, each as many float32 ones as take its time."""
    one = machine.rate(Unit.FMA_F32)
    rates = ((count, machine.rate(unit)) for unit, count in work.operations)
    return sum(count * one / rate for count, rate in rates if rate)
