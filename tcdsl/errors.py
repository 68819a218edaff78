"""The error catalogue: every message a user can meet, its code, and what to do about it.

An error is raised by naming its catalogue entry::

    raise UNKNOWN_NAME(source, span, name="tmep", close="temp")

Codes: TC01x parsing, TC02x and TC03x semantics, TC04x ranges, TC05x shapes and arguments, TC06x
options, TC065 to TC069 targets, TC07x compilation, TC08x launches, TC09x our own bugs.
"""

import os
import sys
import warnings
from dataclasses import field
from typing import Any

from tcdsl.records import dataclass
from tcdsl.source import NOWHERE, Source, Span


class TCError(Exception):
    """What went wrong, where in the user's program, and what to do.

    ``code`` is the catalogue's ("TC021"), ``line`` and ``column`` count from 1 (None without a
    position), ``hint`` says what to do (or None); ``others`` holds further errors of the same
    program, reported together with this one.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "TC090",
        source: Source | None = None,
        span: Span | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.source = source
        self.span = span
        self.hint = hint
        self.others: tuple[TCError, ...] = ()

    @property
    def line(self) -> int | None:
        """The line of the program's text, from 1; None without a position."""
        return self._position()[0]

    @property
    def column(self) -> int | None:
        """The column in that line, in characters, from 1; None without a position."""
        return self._position()[1]

    def _position(self) -> tuple[int, int] | tuple[None, None]:
        if self.source is None or self.span is None:
            return None, None
        return self.source.position(self.span.start)

    def _own_text(self) -> str:
        parts = [f"error[{self.code}]: {self.message}"]
        if self.source is not None and self.span is not None:
            line, column = self.source.position(self.span.start)
            parts[0] = f"{self.source.name}:{line}:{column}: {parts[0]}"
            parts.append(self.source.excerpt(self.span))
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)

    def __dir__(self) -> list[str]:
        """Return what docs/api.md describes, and what Python has of every exception."""
        return sorted({*object.__dir__(self)} - {"source", "span"})

    def __str__(self) -> str:
        return "\n\n".join(error._own_text() for error in (self, *self.others))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return what notebooks show of an error that is a value: of one that was caught."""
        from tcdsl.display.error import error_bundle  # a higher layer, which only notebooks need

        return error_bundle(self)


class ParseError(TCError):
    """The text is not in the language."""


class SemanticError(TCError):
    """The program is well formed but means nothing: names, types, ranks, assignments."""


class RangeError(TCError):
    """An index's range cannot be inferred, or an access is out of bounds."""


class ShapeError(TCError):
    """The arrays of a call do not fit the program, or one another."""


class OptionError(TCError):
    """An option, a setting or a command-line argument has no meaning."""


class TargetError(TCError):
    """The target is unknown, missing on this machine, or does not fit the arrays."""


class CompileError(TCError):
    """A compiler outside tcdsl failed or is missing."""


class LaunchError(TCError):
    """The generated code ran and reported a fault, such as a gathered index out of range."""


class InternalError(TCError):
    """A bug in tcdsl; the message names a file that reproduces it."""


class EmulationError(InternalError):
    """The emulator found a defect in generated CUDA; *kind* is "race", "out_of_bounds", ..."""

    kind = ""


class TCWarning(UserWarning):
    """Something worked, but not as well as it should; says what to do."""


def warn(message: str) -> None:
    """Issue a TCWarning at the line that called tcdsl, however deep inside tcdsl this is."""
    package = os.path.dirname(os.path.abspath(__file__)) + os.sep
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, TCWarning, stacklevel=level)


CATALOGUE: dict[str, "Entry"] = {}


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of the catalogue; *message* and *hint* are format strings."""

    code: str
    kind: type[TCError]
    message: str
    hint: str | None = field(default=None)

    def __post_init__(self) -> None:
        assert self.code not in CATALOGUE, f"two messages have the code {self.code}"
        CATALOGUE[self.code] = self

    def __call__(
        self,
        source: Source | None = None,
        span: Span | None = None,
        *,
        hint: str | None = None,
        **values: Any,
    ) -> TCError:
        """Return the error, to be raised; *hint* replaces the entry's own."""
        chosen = hint if hint is not None else self.hint
        return self.kind(
            self.message.format(**values),
            code=self.code,
            source=source,
            span=None if span == NOWHERE else span,
            hint=chosen.format(**values) if hint is None and chosen is not None else chosen,
        )


def combined(errors: list[TCError]) -> TCError:
    """Return one error that reports all of *errors*, which must not be empty, in source order."""
    ordered = sorted(errors, key=lambda error: error.span.start if error.span else 0)
    first = ordered[0]
    first.others = tuple(ordered[1:])
    return first


# --- parsing -------------------------------------------------------------------------------
SYNTAX = Entry("TC010", ParseError, "expected {expected}, found {found}")
BAD_CHARACTER = Entry(
    "TC011", ParseError, "the character {char!r} has no meaning here",
    "remove it; # starts a comment",
)  # fmt: skip
EMPTY_PROGRAM = Entry(
    "TC012", ParseError, "the program defines nothing",
    "write at least one 'def name(...) -> (...) {{ ... }}'",
)  # fmt: skip
TOO_LARGE = Entry("TC013", ParseError, "the program is too large: {what} (limit {limit})")
TOO_DEEP = Entry(
    "TC014", ParseError, "the expression is nested too deeply (limit {limit})",
    "split it into several statements; in a + b + c + ... every term is one level",
)  # fmt: skip
BAD_NUMBER = Entry("TC015", ParseError, "{text} does not fit {dtype}", "{advice}")
BAD_IDENTIFIER = Entry("TC016", ParseError, "{what}", "{advice}")
BAD_SUFFIX = Entry(
    "TC017", ParseError, "{text} is not a number: {what}",
    "the suffixes are i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2",
)  # fmt: skip
EINSUM_SUBSCRIPTS = Entry("TC018", ParseError, "einsum: {what}", "{advice}")

# --- semantics -----------------------------------------------------------------------------
UNKNOWN_NAME = Entry("TC020", SemanticError, "unknown {what} {name!r}")
DUPLICATE_NAME = Entry("TC021", SemanticError, "{name!r} is defined twice", "rename one of them")
WRONG_RANK = Entry(
    "TC022", SemanticError,
    "{name!r} has {declared} dimension{s} but is used with {used} subscript{t}",
)  # fmt: skip
OPERAND_TYPE = Entry("TC023", SemanticError, "{what} does not take {types}", "{advice}")
WRONG_ARITY = Entry("TC024", SemanticError, "{name!r} takes {expected}, got {got}")
TWO_VALUES = Entry("TC025", SemanticError, "two values for {element}: {why}", "{advice}")
NEVER_ASSIGNED = Entry(
    "TC026", SemanticError, "{name!r} is returned but never assigned",
    "assign it, or remove it from the results",
)  # fmt: skip
READ_BEFORE_WRITTEN = Entry(
    "TC027", SemanticError, "{name!r} is read before it is written{where}", "{advice}"
)
ASSIGNED_PARAMETER = Entry(
    "TC028", SemanticError, "the parameter {name!r} is assigned but not returned",
    "name it among the results too: a call returns it anew, or updates an array that is also out=",
)  # fmt: skip
CYCLE = Entry("TC029", SemanticError, "{what} defined through itself: {cycle}", "{advice}")
BAD_CALL = Entry("TC030", SemanticError, "call of {name!r}: {what}", "{advice}")
BAD_CLAUSE = Entry("TC031", SemanticError, "where clause: {what}", "{advice}")
REDUCTION_TYPE = Entry(
    "TC032", SemanticError, "'{op}' cannot reduce into {target!r}, which is {dtype}", "{advice}"
)
OWN_ELEMENT = Entry(
    "TC033", SemanticError,
    "{element} reads an element that the reduction over {indices} is still changing",
    "the order of reduced indices is free: read from a copy, or reduce into a temporary",
)  # fmt: skip
UNKNOWN_TYPE = Entry(
    "TC034", SemanticError, "the type of {name!r} cannot be inferred",
    "write its type where it is returned, as in 'float {name}', or cast the value",
)  # fmt: skip
ARG_REDUCTION = Entry("TC035", SemanticError, "'{op}' {what}", "{advice}")
UNBOUND_SIZE = Entry(
    "TC036", SemanticError, "the size {name!r} of {tensor!r} is the size of no input",
    "use a size of an input, make it a parameter (size {name}), or leave the dimensions out: they "
    "are inferred",
)  # fmt: skip
BAD_SUBSCRIPT = Entry("TC037", SemanticError, "{what}", "{advice}")
NAME_CLASH = Entry(
    "TC038", SemanticError, "{name!r} is both {one} and {other}", "rename one of them"
)
DECLARATION_MISMATCH = Entry(
    "TC039", SemanticError, "{name!r} is declared as {one} here and as {other} as a parameter",
    "declare it once: a returned parameter needs no type",
)  # fmt: skip
NOT_THE_LIBRARYS = Entry("TC094", SemanticError, "'<=> {call}': {what}", "{advice}")
NOT_DIFFERENTIABLE = Entry("TC093", SemanticError, "no derivative of {name!r}: {what}", "{advice}")

# --- ranges --------------------------------------------------------------------------------
AMBIGUOUS = Entry("TC040", RangeError, "cannot infer the range of {indices}: {why}", "{advice}")
OUT_OF_BOUNDS = Entry(
    "TC041", RangeError,
    "{access} is out of bounds for all sizes: subscript {position} runs over [{first}, {last}], "
    "but dimension {position} of {tensor!r} is [{lower}, {upper})", "{advice}",
)  # fmt: skip
NOT_COVERED = Entry(
    "TC042", RangeError, "no statement writes {element} of {name!r}{where}", "{advice}"
)
EXTENT_UNKNOWN = Entry(
    "TC043", RangeError,
    "the extent of dimension {position} of {tensor!r} cannot be inferred from {element}",
    "{advice}",
)  # fmt: skip
NEGATIVE_RANGE = Entry(
    "TC044", RangeError, "the range of {index!r} is [{lower}, {upper}), which ends before it "
    "starts{where}", "{advice}",
)  # fmt: skip
OUT_OF_BOUNDS_AT = Entry(
    "TC045", RangeError,
    "{access} is out of bounds{where}: subscript {position} runs over [{first}, {last}], but "
    "dimension {position} of {tensor!r} is [{lower}, {upper})", "{advice}",
)  # fmt: skip
TOO_COMPLEX = Entry(
    "TC046", RangeError, "the ranges of {name!r} are too complicated to infer",
    "split the statement, or give the ranges: 'where i in 0:N'",
)  # fmt: skip

# --- shapes: sizes of a call -----------------------------------------------------------------
SIZE_DISAGREES = Entry(
    "TC050", ShapeError,
    "the size {size} is {one} in dimension {one_dim} of {one_tensor!r}, but {other} in dimension "
    "{other_dim} of {other_tensor!r}", "the two dimensions are declared to be equal",
)  # fmt: skip
RANK_DISAGREES = Entry(
    "TC051", ShapeError, "{tensor!r} is declared with {declared} dimension{s}, but the array has "
    "{got}: its shape is {shape}",
)  # fmt: skip
EXTENT_DISAGREES = Entry(
    "TC052", ShapeError,
    "dimension {dim} of {tensor!r} is declared to be {declared}, but the array's is {got}",
)  # fmt: skip
EXTENTS_DIFFER = Entry(
    "TC053", ShapeError, "{what} must be equal{where}, but are {one} and {other}", "{advice}"
)
INDEX_TOO_LARGE = Entry(
    "TC092", ShapeError, "{text} takes the value {value}{where}, which is no int32", "{advice}"
)
MISSING_INPUT = Entry(
    "TC054", ShapeError, "there is no array for {tensor!r}", "the inputs are {names}"
)

# --- shapes and arguments: arrays of a call ----------------------------------------------------
UNSUPPORTED_DTYPE = Entry(
    "TC055", ShapeError, "{what} has the type {dtype}, which the language does not have",
    "{advice}",
)  # fmt: skip
NOT_AN_ARRAY = Entry("TC056", ShapeError, "{what} is {found}, not an array", "{advice}")
WRONG_DTYPE = Entry(
    "TC057", ShapeError, "{what} is declared {declared} but the array's type is {found}",
    "nothing is converted silently: convert the array, or change the declaration",
)  # fmt: skip
BAD_OUT = Entry("TC058", ShapeError, "{what} cannot be written: {why}", "{advice}")
BAD_SCALAR = Entry("TC059", ShapeError, "{what} is declared {declared}: {why}", "{advice}")

OUT_REQUIRED = Entry(
    "TC049", ShapeError, "{name!r} is read, kept or updated before it is written: 'out' is missing",
    "give out= an array that holds its first values, or initialise it with '=' or '+=!'",
)  # fmt: skip
BAD_ARGUMENTS = Entry(
    "TC048", ShapeError, "{name!r} takes {expected} argument{s}, got {got}", "it is {signature}"
)
BAD_NAMED = Entry("TC068", ShapeError, "{name!r}: {what} argument {wrong}", "it is {signature}")
UNKNOWN_DEF = Entry("TC047", SemanticError, "the program has no def {name!r}")

BAD_SIZE = Entry(
    "TC078", ShapeError, "the size {name}: {why}", "give an integer of at least 0: {name}=10"
)

# --- targets -------------------------------------------------------------------------------
UNKNOWN_TARGET = Entry(
    "TC065", TargetError, "there is no target {target!r}{why}", "the targets are {known}"
)
TARGET_MISSING = Entry("TC067", TargetError, "the target {target!r} is not available: {why}",
                       "use target='cpu', and see 'tcdsl doctor'")  # fmt: skip
LIBRARY_MISSING = Entry(
    "TC095", TargetError, "the program names {library}, which is not available: {why}", "{advice}"
)
MIXED_DEVICES = Entry(
    "TC089", TargetError, "the arguments are on several devices: {places}",
    "move all of them to one device; Python numbers may stay where they are",
)  # fmt: skip
FORKED = Entry(
    "TC082", TargetError, "this process was forked from one that used CUDA, where no GPU works",
    "start processes by 'spawn': multiprocessing.get_context('spawn')",
)  # fmt: skip

# --- settings ------------------------------------------------------------------------------
BAD_SETTING = Entry(
    "TC062", OptionError, "the environment variable {name} has the value {value!r}: {what}",
    "set it to {values}, or unset it",
)  # fmt: skip

# --- targets: where arrays are -------------------------------------------------------------
WRONG_DEVICE = Entry(
    "TC066", TargetError, "{what} is on {device}, which the target {target!r} cannot read",
    "move all arrays to one device, or choose the target of theirs",
)  # fmt: skip

# --- compilers -----------------------------------------------------------------------------
NO_COMPILER = Entry("TC070", CompileError, "there is no usable C compiler: {why}", "{advice}")
COMPILATION_FAILED = Entry(
    "TC071", CompileError, "{compiler} rejected the generated code: {message}",
    "the generated code is kept in {path}",
)  # fmt: skip
COMPILATION_TIMED_OUT = Entry(
    "TC072", CompileError, "{compiler} took longer than {limit_s:g} s and was stopped",
    "the generated code is kept in {path}; fewer fused statements compile faster",
)  # fmt: skip
LOAD_FAILED = Entry("TC073", CompileError, "the compiled code cannot be loaded: {why}")
NO_CUDA_COMPILER = Entry(
    "TC074", CompileError, "there is no usable compiler for CUDA: {why}", "{advice}"
)
CUDA_REJECTED = Entry(
    "TC075", CompileError, "{compiler} rejected the generated CUDA: {message}",
    "the generated CUDA is kept in {path}",
)  # fmt: skip
UNKNOWN_ARCH = Entry(
    "TC076", CompileError, "{compiler} makes no code for {arch}: it knows {known}", "{advice}"
)
COMPILER_CRASHED = Entry(
    "TC077", InternalError, "{compiler} crashed: {message}",
    "its input is kept in {path}; it lacks memory, or has a bug: another version of it may work",
)  # fmt: skip

# --- memory of a call ----------------------------------------------------------------------
OUT_OF_RANGE = Entry(
    "TC080", LaunchError,
    "index {index} of {tensor!r} is out of range: the extent is {extent}{origin}",
    "check the values that the subscript reads, or guard it with a condition",
)  # fmt: skip
DATA_RANGE = Entry(
    "TC079", LaunchError, "the range '{clause}' {what}",
    "check the tensors that its bounds read: where a range is not empty, all of it must exist",
)  # fmt: skip
WRONG_STRIDES = Entry(
    "TC081", LaunchError, "{what} has other strides than this code reads, which overlap",
    "it was compiled for a broadcast array: compile again for this one",
)  # fmt: skip
OUT_OF_MEMORY = Entry(
    "TC083", LaunchError, "{what} needs {size_bytes} bytes, which this machine cannot give"
)

# --- launches on a GPU -----------------------------------------------------------------------
NO_DEVICE_MEMORY = Entry(
    "TC084", LaunchError,
    "{what} needs {size_bytes} bytes on {device}, of whose memory {free_bytes} bytes are free",
    "free arrays there, or compute in pieces; the inputs are as they were",
)  # fmt: skip
CONTEXT_LOST = Entry(
    "TC085", LaunchError, "the CUDA context of this process is lost ({why})",
    "no CUDA call works in this process any more: start a new one; an earlier launch went wrong, "
    "of this library or another: TCDSL_DEBUG=1 waits for every launch and names the first",
)  # fmt: skip
LAUNCH_LIMITS = Entry(
    "TC086", LaunchError, "kernel {kernel!r} cannot be launched on {device}: {why}", "{advice}"
)
WHILE_CAPTURING = Entry(
    "TC087", LaunchError, "a CUDA graph is being captured, and this call would have to {what}",
    "{advice}",
)  # fmt: skip
CUDA_FAILED = Entry("TC088", LaunchError, "{call} failed: {why}", "see 'tcdsl doctor'")

# --- our own bugs --------------------------------------------------------------------------
INTERNAL = Entry(
    "TC090", InternalError, "internal error in {where}: {what}",
    "this is a bug in tcdsl; {repro} reproduces it",
)  # fmt: skip
EMULATION_FINDING = Entry(
    "TC091", EmulationError, "the emulated kernel {kernel!r}{thread}: {what}{where}",
    "this is a bug in tcdsl; it happens with the seed {seed}",
)  # fmt: skip
