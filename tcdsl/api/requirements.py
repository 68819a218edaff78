"""What is required of a call's choices: a target that there is, options, sizes of the program."""

import json
from collections.abc import Mapping

from tcdsl import cuda
from tcdsl.errors import UNKNOWN_TARGET
from tcdsl.lang.syntax.spelling import did_you_mean, other_case
from tcdsl.lang.types.head import Head
from tcdsl.options import BAD_OPTION, Options
from tcdsl.runtime.arrays import NUMPY, PYTHON, ArraySpec
from tcdsl.settings import settings

TARGETS = ("cuda", "cpu", "emulate", "reference")
OF_GPUS = ("cuda", "emulate")  # which make the same kernels


def require_choices(target: object, options: object) -> None:
    """Raise a TCError unless *target* is a name and *options* are ``Options``, or None."""
    if not isinstance(target, str | None):
        require_target(target)
    if not isinstance(options, Options | None):
        raise BAD_OPTION(
            name="options", what=f"it is {shortened(options)}", advice="give tcdsl.Options(...)"
        )


def require_target(target: object) -> None:
    """Raise UNKNOWN_TARGET unless *target* is the name of one."""
    if target not in TARGETS:
        raise UNKNOWN_TARGET(target=target, known=", ".join(TARGETS), why="")


def require_same_kernels(target: str, options: Options) -> None:
    """Raise BAD_OPTION if *options* have choices of a target that makes other kernels."""
    made_for = json.loads(options.choices).get("target") if options.choices else None
    if made_for not in TARGETS or target == "reference":
        return
    if (made_for in OF_GPUS) != (target in OF_GPUS):
        raise BAD_OPTION(
            name="choices", what=f"it is of target {made_for!r}, which makes other kernels",
            advice=f"give what Executable.choices returned for target {target!r}",
        )  # fmt: skip


def require_sizes(c: Head, options: Options) -> None:
    """Raise BAD_OPTION if *options* leave a size open that *c* does not have."""
    for name in options.dynamic_sizes:
        if name not in c.sizes:
            advice = other_case(name, c.sizes) or did_you_mean(name, c.sizes)
            advice = advice or f"the sizes are {', '.join(c.sizes)}"
            what = f"{c.name!r} has no size {name!r}"
            raise BAD_OPTION(name="dynamic_sizes", what=what, advice=advice)


def choose_target(target: str | None, specs: Mapping[str, ArraySpec]) -> str:
    """Return the target: the caller's, else ``TCDSL_TARGET``, else where the arrays are."""
    chosen = settings().target if target is None else target
    if chosen is None:
        devices = {spec.device for spec in specs.values()}
        is_on_gpu = any(device.startswith("cuda") for device in devices)
        chosen = "cuda" if is_on_gpu or (_may_move(specs) and cuda.is_available()) else "cpu"
    require_target(chosen)
    return chosen


def _may_move(specs: Mapping[str, ArraySpec]) -> bool:
    """Return whether all arrays are of libraries that know no devices."""
    return {spec.library for spec in specs.values()} <= {NUMPY, PYTHON}


def shortened(value: object, most: int = 40) -> str:
    """Return the ``repr`` of *value* for a message, on one line of at most *most* characters."""
    line = " ".join(repr(value).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."
