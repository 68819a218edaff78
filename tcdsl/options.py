"""What a user may ask of one compilation."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from difflib import get_close_matches
from inspect import signature
from typing import Any, Literal

from tcdsl.errors import Entry, OptionError
from tcdsl.records import dataclass

BAD_OPTION = Entry("TC060", OptionError, "option {name!r}: {what}", "{advice}")
UNKNOWN_OPTION = Entry("TC061", OptionError, "there is no option {name!r}")
# What options and their values were called before: their names of today.
RENAMED = {"open_sizes": "dynamic_sizes", "finish": "cross_block", "check_gathers": "check_indices"}
_RENAMED_VALUES = {("scheduler", "textual"): "source_order", ("cross_block", "auto"): "ordered"}
NOT_OPTIONS = Entry(
    "TC063", OptionError, "the text is not that of options: {why}",
    "give what Options.to_json() returned",
)  # fmt: skip
CHOICES_FORMAT, CHOICES_VERSION = "tcdsl choices", 2
# What version 1 called templates of a CPU: what is chosen of a kernel with that name today.
_TEMPLATES_OF_VERSION_1 = {
    "isl": {"template": "cpu_isl_band"},
    "as written": {"template": "cpu_loops", "order": "as written"},
}
# Of the command line, and of the magics of notebooks.
BAD_ARGUMENT = Entry("TC064", OptionError, "{argument}: {what}", "{advice}")


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of one compilation; the defaults need no tuning.

    dynamic_sizes: size symbols that stay open, so that one kernel serves all their values.  On a
        GPU one serves the values of a class: 1, 2 to 16, 17 to 64, 65 to 256, 257 to 1024, ...
    tile: tile sizes of the outer loops, outermost first; () lets the cost model choose.  On a CPU
        tiles run one after another; on a GPU each block computes one tile, of a few iterations per
        thread at most (with scheduler="isl" of any number).  Contractions choose their own tiles
        unless scheduler="isl".
    threads: CPU threads, 0 for all that are available.  Ignored on a GPU.
    fuse: "max" fuses wherever it is legal and profitable, "none" gives each statement its own
        kernel.
    coalesce: rewrite adjacent indices over contiguous dimensions as one.
    reassociate: split sums of products of three and more factors into products of two, in the order
        that costs least, where that saves at least half of the work; on a GPU also multiply sums
        with what all of their terms are multiplied by, and sum several products each by itself,
        where that is predicted to be faster.
    vectorise: use vector instructions; on a GPU, load and store several neighbours at once.
    deterministic: bit-identical results from run to run, for a given number of threads or a given
        GPU.  It affects floating-point sums by atomics on a GPU, where iterations scatter into one
        element: these are then added in order, by fewer threads.
    cross_block: how the blocks of a GPU that share a sum combine their parts: "ordered", the last
        of them adds all parts in a fixed order; "atomic", each adds its own by atomics, in no fixed
        order (floating-point sums then differ in the last bits from run to run, unless
        deterministic).
    fast_math: let the compiler reassociate and contract floating-point arithmetic.  On a GPU also
        approximate division, roots and functions.  The target "emulate" never does.
    check_indices: check gathered and scattered indices while running.
    scheduler: "auto" aligns loops, and uses isl's scheduler where recurrences in several dimensions
        leave no parallelism otherwise; "isl" always uses isl's, on a GPU except for sums that it
        would assign to one thread; "source_order" keeps the loops as written, on a GPU the
        statements: each has its own kernel, mapped as with "auto".
    summation: "compensated" also accumulates the rounding errors of a floating-point sum and adds
        them at the end: the result is that of twice the precision, rounded once.  It costs some six
        operations per term.  Not for scattered sums and recurrences, not with fast_math; blocks
        combine their parts as with "ordered".
    precision: of products of float32, and of float8, that a sum adds up: "float32", errors of fused
        multiply-adds at most (tensor cores may make long sums, each product as three of parts of
        the factors; infinities, NaN and sums of integers are as ever); "ieee", fused multiply-adds
        alone; or "tf32", which lets tensor cores round the factors to 11 bits (a product is off by
        2^-10 of itself at most; infinities and NaN stay) and is several times as fast; or
        "float16x3", which lets them multiply scaled parts of float16, three products for one, where
        that is predicted to be faster (a product of x and y is off by 2^-20 of itself and 2^-37 of
        the product of the largest x and y; infinities and NaN stay); or "bfloat16", which lets
        factors of float32 be rounded to bfloat16, 8 bits, where the other one is of float32 or
        bfloat16 and it is predicted to be faster (a product is off by 2^-8 of itself for each
        factor that is rounded; infinities and NaN stay), as PyTorch does in backward passes of
        layers of bfloat16; or "float8", which lets tensor cores add up products of float8 with some
        13 bits after the point of the largest, 128 terms at a time (a product is off by 2^-5 of
        itself at most), at twice the rate; else they do so of float16, exactly. Ignored on a CPU.
    libraries: "named" lets a library compute the statements that name it (``<=> cublas(A, B)``);
        True also other products of matrices, and convolutions, on a GPU, where the call is
        predicted to be faster and the process has cuBLASLt or cuDNN loaded (``import torch`` does
        that); False none: tcdsl compiles all statements itself.
    choices: what Executable.choices returned, for the same kernels again; kernels that it does not
        name are chosen as ever.  Also as the argument *choices* of Function.compile.
    """

    dynamic_sizes: tuple[str, ...] = ()
    tile: tuple[int, ...] = ()
    threads: int = 0
    fuse: Literal["max", "none"] = "max"
    coalesce: bool = True
    reassociate: bool = True
    vectorise: bool = True
    deterministic: bool = False
    cross_block: Literal["ordered", "atomic"] = "ordered"
    fast_math: bool = False
    check_indices: bool = True
    scheduler: Literal["auto", "isl", "source_order"] = "auto"
    summation: Literal["plain", "compensated"] = "plain"
    precision: Literal["float32", "ieee", "tf32", "float16x3", "bfloat16", "float8"] = "float32"
    libraries: bool | Literal["named"] = "named"
    choices: str = ""

    def __new__(cls, *args: Any, **named: Any) -> "Options":
        """Refuse names that are no options before Python does, whose error lists none."""
        require_known(named)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            # By identity of types too: 1 equals True, and would be another key of the same code.
            value = getattr(self, name)
            if not any(type(value) is type(one) and value == one for one in allowed):
                raise BAD_OPTION(name=name, what=f"{value!r} is not one of its values",
                                 advice=_advice_on_value(name, value, allowed))  # fmt: skip
        for name in ("dynamic_sizes", "tile"):
            given = getattr(self, name)
            if not isinstance(given, (tuple, list)):
                kind, example = _ELEMENTS[name]
                example = f"({given!r},)" if isinstance(given, kind) else example
                raise BAD_OPTION(name=name, what=f"{given!r} is not a tuple",
                                 advice=f"write {name}={example}")  # fmt: skip
            object.__setattr__(self, name, tuple(given))
        if not all(isinstance(size, str) for size in self.dynamic_sizes):
            what = f"{self.dynamic_sizes!r} has what is no name"
            raise BAD_OPTION(name="dynamic_sizes", what=what, advice="give names of size symbols")
        if any(type(size) is not int or size < 1 for size in self.tile):
            raise BAD_OPTION(name="tile", what=f"{self.tile!r} has what is no size",
                             advice="give positive integers, outermost loop first")  # fmt: skip
        if type(self.threads) is not int or self.threads < 0:
            raise BAD_OPTION(name="threads", what=f"{self.threads!r} is no number of threads",
                             advice="give 0 for all there are, or a positive integer")  # fmt: skip

        object.__setattr__(self, "choices", text_of_choices(self.choices))
        if self.fast_math and self.summation == "compensated":
            raise BAD_OPTION(name="summation", what="fast_math may take what is lost for 0",
                             advice="drop fast_math, or sum without compensation")  # fmt: skip

    def __repr__(self) -> str:
        return f"Options({', '.join(changed(self))})"

    def to_json(self) -> str:
        """Return the options as JSON, the same text for equal options."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Options":
        """Return the options that :meth:`to_json` wrote.

        :raises OptionError: (TC063) *text* is no such text; (TC061) it names no option; (TC060) an
            option has no such value.
        """
        try:
            values: dict[str, Any] = json.loads(text)
        except (ValueError, TypeError) as error:
            raise NOT_OPTIONS(why=str(error)) from None
        if not isinstance(values, dict):
            raise NOT_OPTIONS(why=f"it is of type {type(values).__name__}")
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
        return cls(**plain)


def text_of_choices(given: object) -> str:
    """Return *given*, choices as data or as JSON, as the one text that equal choices have.

    :raises OptionError: (TC060) they are none.
    """
    data = given
    if isinstance(given, str):
        if not given:
            return ""
        try:
            data = json.loads(given)
        except ValueError as error:
            if given.endswith(".json"):
                advice = f"give the file's text: open({given!r}).read()"
                raise _not_choices(f"{given!r} is a path", advice) from None
            raise _not_choices(f"the text is no JSON: {error}") from None
    if not isinstance(data, Mapping) or data.get("format") != CHOICES_FORMAT:
        raise _not_choices(f'it has no "format": "{CHOICES_FORMAT}"')
    version = data.get("version")
    if type(version) is not int or not 1 <= version <= CHOICES_VERSION:
        raise _not_choices(f"it is of version {version!r}, and 1 to {CHOICES_VERSION} can be read")
    kernels = data.get("kernels")
    if not isinstance(kernels, list) or not all(map(_is_choice, kernels)):
        raise _not_choices('"kernels" is no list of objects with "kernel" and "template"')
    if version == 1:
        data = _of_today(data)
    names = [one["kernel"] for one in kernels]
    if twice := [name for name in names if names.count(name) > 1]:
        raise _not_choices(f"kernel {twice[0]} is there more than once")
    try:
        return json.dumps(data, sort_keys=True)
    except TypeError as error:
        raise _not_choices(f"it is no plain data: {error}") from None


def _of_today(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return choices of version 1 as of this version: those for a GPU are the same."""
    kernels = data["kernels"]
    if data.get("target", "cpu") == "cpu":
        kernels = [{**one, **_TEMPLATES_OF_VERSION_1.get(one["template"], {})} for one in kernels]
    return {**data, "version": CHOICES_VERSION, "kernels": kernels}


def _is_choice(given: object) -> bool:
    named = ("kernel", "template")
    if not isinstance(given, Mapping) or not isinstance(given.get("code", {}), Mapping):
        return False
    return all(isinstance(given.get(key), str) for key in named)


def _not_choices(what: str, advice: str = "give what Executable.choices returned") -> OptionError:
    error = BAD_OPTION(name="choices", what=what, advice=advice)
    assert isinstance(error, OptionError)
    return error


def _show_fields() -> None:
    """Let ``Options?`` and the documentation show the fields: ``__new__`` takes any names."""
    shown = signature(Options.__init__)
    without_self = list(shown.parameters.values())[1:]
    Options.__signature__ = shown.replace(  # type: ignore[attr-defined]
        parameters=without_self, return_annotation=Options
    )


_show_fields()


def option_names() -> list[str]:
    """Return the names of the options, in their order."""
    return [field.name for field in fields(Options)]


def changed(options: Options) -> list[str]:
    """Return what differs from the defaults, as it is written: ``tile=(32, 32)``."""
    pairs = [(field, getattr(options, field.name)) for field in fields(Options)]
    return [f"{field.name}={value!r}" for field, value in pairs if value != field.default]


def require_known(names: Iterable[str]) -> None:
    """Raise UNKNOWN_OPTION unless each of *names* is that of an option."""
    known = option_names()
    for name in names:
        if name in RENAMED:
            raise UNKNOWN_OPTION(name=name, hint=f"it is called {RENAMED[name]} now")
        if name not in known:
            meant = [f"did you mean {one!r}?" for one in get_close_matches(name, known, n=1)]
            listed = f"the options are {', '.join(known)}"
            raise UNKNOWN_OPTION(name=name, hint=" ".join([*meant, listed]))


def _advice_on_value(name: str, value: object, allowed: tuple[Any, ...]) -> str:
    if isinstance(value, str) and (now := _RENAMED_VALUES.get((name, value))):
        return f"it is called {now!r} now"
    return f"use one of {', '.join(map(repr, allowed))}"


# Of the tuples: what is in them, and an example.
_ELEMENTS: dict[str, tuple[type, str]] = {
    "dynamic_sizes": (str, "('M',)"), "tile": (int, "(32, 32)"),
}  # fmt: skip

CHOICES: dict[str, tuple[Any, ...]] = {
    "fuse": ("max", "none"),
    "scheduler": ("auto", "isl", "source_order"),
    "cross_block": ("ordered", "atomic"),
    "summation": ("plain", "compensated"),
    "precision": ("float32", "ieee", "tf32", "float16x3", "bfloat16", "float8"),
    "coalesce": (True, False),
    "reassociate": (True, False),
    "vectorise": (True, False),
    "deterministic": (True, False),
    "fast_math": (True, False),
    "check_indices": (True, False),
    "libraries": ("named", True, False),
}


def is_reassociated(options: Options) -> bool:
    """Return whether sums of products may be taken in other ways than as written."""
    is_plain = options.summation == "plain" and options.scheduler != "source_order"
    return options.reassociate and is_plain
