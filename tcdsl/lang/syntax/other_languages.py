"""Spellings of Python, C and mathematics that are not the language's, and what is written instead.

    y = sum(x(i))                  y +=! x(i)
    y(i) mean=! x(i,j)             y(i) +=! x(i,j), and divide
    x(i) if x(i) > 0.0 else 0.0    x(i) > 0.0 ? x(i) : 0.0
    where i < N, where i in range(N)    where i in 0:N

Functions and names are looked up when a program means nothing (elaborate, statements); what does
not even parse is recognised from the text around the error (parse_errors).
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from tcdsl.records import dataclass

_REDUCTIONS: Mapping[str, str] = {
    "sum": "+=!", "add": "+=!", "prod": "*=!", "product": "*=!", "mul": "*=!", "amax": "max=!",
    "amin": "min=!", "maximum": "max=!", "minimum": "min=!", "any": "or=!", "all": "and=!",
    "max": "max=!", "min": "min=!", "argmax": "argmax=!", "argmin": "argmin=!", "dot": "+=!",
}  # fmt: skip
_MEANS = frozenset(("mean", "avg", "average"))

TYPES: Mapping[str, str] = {
    "f16": "float16", "fp16": "float16", "f32": "float32", "fp32": "float32", "f64": "float64",
    "fp64": "float64", "bf16": "bfloat16", "long": "int64", "short": "int16", "char": "int8",
    "byte": "uint8", "uint": "uint32", "unsigned": "uint32", "size_t": "uint64", "i8": "int8",
    "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "boolean": "bool", "integer": "int32", "single": "float32",
    "float": "float", "double": "double", "half": "half", "int": "int", "fp8": "float8_e4m3",
    "f8": "float8_e4m3", "float8": "float8_e4m3", "e4m3": "float8_e4m3", "e5m2": "float8_e5m2",
    "fp8_e4m3": "float8_e4m3", "fp8_e5m2": "float8_e5m2", "f8e4m3": "float8_e4m3",
    "f8e5m2": "float8_e5m2", "f8e4m3fn": "float8_e4m3",
}  # fmt: skip

# Functions of one or more arguments: {0} is the first one's text, and so on.
_FORMULAS: Mapping[str, tuple[int, str]] = {
    "clamp": (3, "min(max({0}, {1}), {2})"), "clip": (3, "min(max({0}, {1}), {2})"),
    "maximum": (2, "max({0}, {1})"), "minimum": (2, "min({0}, {1})"),
    "power": (2, "pow({0}, {1})"), "square": (1, "{0} * {0}"), "ln": (1, "log({0})"),
    "sgn": (1, "sign({0})"), "mod": (2, "{0} % {1}"), "floordiv": (2, "{0} / {1}"),
    "negative": (1, "-{0}"), "reciprocal": (1, "1.0 / {0}"), "silu": (1, "{0} * sigmoid({0})"),
    "swish": (1, "{0} * sigmoid({0})"), "softplus": (1, "log1p(exp({0}))"),
    "gelu": (1, "0.5 * {0} * (1.0 + erf({0} * 0.7071067811865476))"),
    "heaviside": (1, "{0} > 0.0 ? 1.0 : 0.0"), "isfinite": (1, "!(isnan({0}) || isinf({0}))"),
    "select": (3, "{0} ? {1} : {2}"), "iif": (3, "{0} ? {1} : {2}"),
    "if": (3, "{0} ? {1} : {2}"), "ifelse": (3, "{0} ? {1} : {2}"),
    "if_else": (3, "{0} ? {1} : {2}"), "logical_not": (1, "!{0}"), "not": (1, "!{0}"),
    "sqr": (1, "{0} * {0}"), "saturate": (1, "min(max({0}, 0.0), 1.0)"),
    "relu6": (1, "min(relu({0}), 6.0)"), "leaky_relu": (2, "{0} > 0.0 ? {0} : {1} * {0}"),
    "elu": (2, "{0} > 0.0 ? {0} : {1} * expm1({0})"), "lerp": (3, "{0} + {2} * ({1} - {0})"),
    "logical_and": (2, "{0} && {1}"), "logical_or": (2, "{0} || {1}"), "expf": (1, "exp({0})"),
    "sqrtf": (1, "sqrt({0})"), "arctan2": (2, "atan2({0}, {1})"), "arctan": (1, "atan({0})"),
    "arcsin": (1, "asin({0})"), "arccos": (1, "acos({0})"), "fmaxf": (2, "fmax({0}, {1})"),
}  # fmt: skip
_BOUNDS = frozenset(("clamp", "clip"))  # of which other languages may have one alone
_STEPS: Mapping[str, str] = {
    "var": "write its steps: s +=! x(i), d(i) = x(i) - s / float(N), v +=! d(i) * d(i), "
    "then v / float(N)",
    "std": "write its steps: s +=! x(i), d(i) = x(i) - s / float(N), v +=! d(i) * d(i), "
    "then sqrt(v / float(N))",
    "softmax": "write its steps: t max=! x(i), e(i) = exp(x(i) - t), s +=! e(i), y(i) = e(i) / s",
    "norm": "write its steps: s +=! x(i) * x(i), then sqrt(s)",
    "matmul": "a matrix product is a sum: C(i, k) +=! A(i, j) * B(j, k)",
    "cumsum": "write a recurrence: y(0) = x(0), then y(i) = y(i - 1) + x(i)",
    "range": "an index takes all values of its range: where i in 0:N",
    "len": "a size is the name in the declaration: N of float(N) x",
    "size": "a size is the name in the declaration: N of float(N) x",
    "shape": "a size is the name in the declaration: N of float(N) x",
    "transpose": "transpose by the order of subscripts: y(j, i) = x(i, j)",
}
_CONSTANTS: Mapping[str, str] = {
    "True": "true", "TRUE": "true", "False": "false", "FALSE": "false", "Inf": "inf",
    "INF": "inf", "INFINITY": "inf", "infinity": "inf", "NaN": "nan", "NAN": "nan",
    "pi": "3.141592653589793", "PI": "3.141592653589793", "M_PI": "3.141592653589793",
}  # fmt: skip


def function_hint(name: str, arguments: Sequence[str]) -> str | None:
    """Return what to write for ``name(arguments)``, if another language has this function.

    :arg arguments: their texts, which may be without subscripts: ``sum(x)``.
    """
    count, formula = _FORMULAS.get(name, (0, ""))
    if count == len(arguments) > 0:
        return f"write {formula.format(*map(_operand, arguments))}"
    if name in _BOUNDS and len(arguments) == 2:
        low = ", ".join(arguments)
        return f"write max({low}) for a lower bound, min({low}) for an upper one"
    term = arguments[0] if arguments and "(" in arguments[0] else None
    if name in _MEANS:
        return (
            f"sum, and divide by the number of terms: t +=! {term or 'x(i)'}, then "
            "t / float(N) (N: the size that is summed over)"
        )
    if name in _REDUCTIONS:
        return (
            f"a reduction is an assignment of its own: t {_REDUCTIONS[name]} {term or 'x(i)'}; "
            "what is not on the left is reduced"
        )
    if formula:
        letters = "abc"[:count]
        return f"{name}({', '.join(letters)}) is written {formula.format(*letters)}"
    return _STEPS.get(name)


def _operand(text: str) -> str:
    """Return *text* so that an operator may stand next to it."""
    return text if re.fullmatch(r"[\w.]+(\([^()]*\))?", text) else f"({text})"


def constant_hint(name: str) -> str | None:
    """Return what to write for the constant *name* of another language, if it is one."""
    return f"write {_CONSTANTS[name]}" if name in _CONSTANTS else None


_OF_THE_CALL = ("out", "target", "options")  # of tcdsl.compute, whose arrays have names, too


def undeclared_tensor_hint(name: str, program: str) -> str:
    """Return what to do about ``name(...)`` of the text *program*, which is no tensor."""
    if re.search(r"\bdef\b", program):
        return "declare it as a parameter, or assign it before"
    if name in _OF_THE_CALL:
        return f"give the tensor another name: {name}= is an argument of the call itself"
    return f"give it with the arrays, {name}=..., or assign it before"


def number_hint(name: str, program: str) -> str:
    """Return what to do about *name* of the text *program*, a number that nobody declared."""
    if hint := constant_hint(name):
        return hint
    if re.search(r"\bdef\b", program):
        return f"if {name} is a number, declare `float {name}` as a parameter"
    if name in _OF_THE_CALL:
        return f"give the number another name: {name}= is an argument of the call itself"
    return f"if {name} is a number, give it with the arrays: {name}=1.0"


def reduction_hint(name: str, target: str) -> str | None:
    """Return what to write for ``target name=! ...``, if it is the name of a reduction."""
    if name in _MEANS:
        return (
            f"sum and divide: {target} +=! ..., then {target} = {target} / float(N), where N is "
            "the size that is summed over"
        )
    if name in _REDUCTIONS:
        return f"write {target} {_REDUCTIONS[name]} ..."
    return None


# --- what does not parse -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where the parser gave up: the text on both sides, and the terminals that it would take."""

    before: str  # what is before the token, some lines
    rest: str  # the token, and what follows it
    accepted: Collection[str]

    @property
    def is_after_a_target(self) -> bool:
        return "REDUCE" in self.accepted

    @property
    def line(self) -> str:
        """The part of its line before the token, from the last brace on."""
        return re.split(r"[\n{}]", self.before)[-1]


def syntax_hint(place: Place) -> str | None:
    """Return what to write instead, or None if this looks like nothing that is known."""
    return next((hint for guess in _GUESSES if (hint := guess(place))), None)


_CONDITIONALS = (
    r"=!?\s*(?P<a>[^=\s][^=]*?)\s*\bif\b(?P<c>.+?)\belse\b(?P<b>.+?)(?:\bwhere\b.*)?$",
    r"=!?\s*if\b(?P<c>.+?)\bthen\b(?P<a>.+?)\belse\b(?P<b>.+?)(?:\bwhere\b.*)?$",
)


def _conditional(place: Place) -> str | None:
    """``a if c else b``, ``if c then a else b``, ``if (c) ...``, ``where(c, a, b)``."""
    if re.match(r"where\s*\(", place.rest) and "FLOAT" in place.accepted:
        return "write c ? a : b for where(c, a, b)"
    if not place.is_after_a_target or not re.search(r"\bif\b", place.line):
        return None
    whole = place.line + re.split(r"[\n{}]", place.rest)[0]
    found = next((m for form in _CONDITIONALS if (m := re.search(form, whole))), None)
    if found is None:
        return "there is no 'if': write c ? a : b, or a condition: where exists c"
    return f"write {found['c'].strip()} ? {found['a'].strip()} : {found['b'].strip()}"


def _loop(place: Place) -> str | None:
    """``for i in 0:N { ... }``."""
    if place.is_after_a_target and re.search(r"\b(for|while)\b[^=]*$", place.line):
        return "there are no loops: an index takes all values of its range, where i in 0:N"
    return None


def _local(place: Place) -> str | None:
    """``let a = 3.0``, ``return y``."""
    if not place.is_after_a_target:
        return None
    if re.search(r"\b(let|var|const|auto)\s*$", place.line):
        value = re.match(r"\w+\s*=\s*[^\s{}]+", place.rest)
        return (
            f"name a value in a clause of its statement: where {value[0] if value else 'a = ...'}"
        )
    if re.search(r"\breturn\s*$", place.line):
        return "the results are those that the header names: -> (y)"
    return None


def _named_reduction(place: Place) -> str | None:
    """``y mean=! x(i)``."""
    if not place.is_after_a_target:
        return None
    word = re.match(r"([A-Za-z]\w*)\s*=(?!=)(!?)", place.rest)
    target = re.search(r"[A-Za-z_]\w*(\s*\([^()]*\))?\s*$", place.line)
    if word is None or target is None:
        return None
    if hint := reduction_hint(word[1], target[0].strip()):
        return hint
    if word[2]:
        known = "+=! *=! min=! max=! and=! or=! argmin=! argmax=!"
        return f"there is no '{word[1]}=!'; the reductions are {known}"
    return None


_BOUND = r"([^,\n{}#]+?)\s*(?=\bwhere\b|[,\n{}#]|$)"


def _comparison(place: Place) -> str | None:
    """``where i < N``, ``where 0 <= i < N``, ``where x(i) > 0.0``, ``where (i < N)``."""
    if {"IN", "ASSIGN"} <= set(place.accepted):
        index = re.search(r"(\w+)\s*$", place.line)
        bound = re.match(rf"(<=|<|>=|>)\s*{_BOUND}", place.rest)
        if index and bound and bound[1] in ("<", "<="):
            end = bound[2] + (" + 1" if bound[1] == "<=" else "")
            return f"write the range: where {index[1]} in 0:{end}"
        test = re.match(rf"(?=[(<>=!]){_BOUND}", place.rest)
        if index and test:
            gap = "" if place.rest.startswith("(") else " "
            return f"a condition follows 'exists': where exists {index[1]}{gap}{test[1]}"
    if "EXISTS" not in place.accepted:
        return None
    if chain := re.match(rf"([\w.]+)\s*(<=?)\s*([A-Za-z_]\w*)\s*(<=?)\s*{_BOUND}", place.rest):
        start = chain[1] + (" + 1" if chain[2] == "<" else "")
        end = chain[5] + (" + 1" if chain[4] == "<=" else "")
        return f"write the range: where {chain[3]} in {start}:{end}"
    test = re.match(_BOUND, place.rest)
    return f"a condition follows 'exists': where exists {test[1]}" if test else None


def _range(place: Place) -> str | None:
    """``i in range(N)``, ``i in N``, ``i in (0, N)``."""
    opened = re.search(r"\bin\s+\(\s*([^,():]+)$", place.line)
    if opened and (end := re.match(r",\s*([^,()]+)\)", place.rest)):
        return f"write the range: in {opened[1].strip()}:{end[1].strip()}"
    if ":" not in place.accepted or "?" in place.line:
        return None
    if call := re.search(r"\bin\s+a?range\s*\(([^()]*)\)\s*$", place.line):
        bounds = [bound.strip() for bound in call[1].split(",")]
        if len(bounds) > 2:
            first, last, step = bounds[:3]
            return (
                f"a range has no step: where i in 0:({last} - {first} + {step} - 1) / {step}, and "
                f"{first} + {step} * i in subscripts"
            )
        return f"write the range: in {':'.join(['0', *bounds][-2:])}"
    if single := re.search(r"\bin\s+([^:,]+?)\s*$", place.line):
        return f"a range has two bounds: in 0:{'N' if single[1] == '0' else single[1]}"
    return None


def _clauses(place: Place) -> str | None:
    """``where i in 0:N and j in 0:M``, ``where ... where ...``."""
    joined = re.search(r"\b(and|&&)\s*$", place.line) and re.match(r"\w+\s+in\b", place.rest)
    again = re.match(r"(in|where)\b", place.rest) and re.search(r"\bwhere\b", place.line)
    if joined or again:
        return "separate the clauses by commas: where i in 0:N, j in 0:M"
    return None


def _arguments(place: Place) -> str | None:
    """``sum(x, axis=1)``, ``cast(x, float)``, ``(int)x(i)``, ``x(:, j)``."""
    if re.search(r"=.*[(,]\s*\w+\s*$", place.line) and re.match(r"=[^=]", place.rest):
        return (
            "functions take no named arguments; what is reduced are the indices that are not on "
            "the left: y(i) +=! x(i, j)"
        )
    converted = re.search(r"\b\w+\s*\(([^(),]+(?:\([^()]*\))?),\s*(\w+)\s*$", place.line)
    if converted and place.rest.startswith(")") and set(place.accepted) == {"("}:
        return f"a type is called as a function: write {converted[2]}({converted[1]})"
    as_in_c = re.search(r"\(\s*(\w+)\s*$", place.line)
    operand = re.match(r"\)\s*(\w+(?:\([^()]*\))?)", place.rest)
    if as_in_c and operand and set(place.accepted) == {"("}:
        return f"a type is called as a function: write {as_in_c[1]}({operand[1]})"
    if place.rest.startswith(":") and "FLOAT" in place.accepted:
        return "there are no slices: an index takes all values of its dimension, as i in x(i)"
    return None


def _declaration(place: Place) -> str | None:
    """``float x(N)``, in a header."""
    declared = re.search(r"[(,]\s*(\w+)\s+(\w+)\s*$", place.line)
    dims = re.match(r"\([^()]*\)", place.rest)
    if declared and dims and "," in place.accepted and "*" not in place.accepted:
        return f"the dimensions stand with the type: {declared[1]}{dims[0]} {declared[2]}"
    return None


def _header(place: Place) -> str | None:
    """``def f(...) -> (y): ...``, ``-> (y(N))``, ``x: float(N)``, ``np.float32(N) x``."""
    if place.rest.startswith(":") and "{" in place.accepted:
        return "the body stands in braces: -> (y) { ... }"
    dims = re.match(r"\([^()]*\)", place.rest)
    result = re.search(r"->\s*\([^()]*?(\w+)\s*$", place.line)
    if dims and result:
        return (
            f"dimensions follow a type: float{dims[0]} {result[1]}; or leave them out: {result[1]}"
        )
    if "DTYPE" not in place.accepted or "FLOAT" in place.accepted:
        return None
    if typed := re.match(r"(\w+)\s*:\s*(\w+(?:\s*\([^()]*\))?)", place.rest):
        return f"the type comes first: {typed[2]} {typed[1]}"
    if module := re.match(r"(?:np|numpy|torch|jnp|tf)\.(\w+)", place.rest):
        return f"a type of the language has no module: write {module[1]}"
    return None


def _product(place: Place) -> str | None:
    """``2x(i)``, ``2 x(i)``, ``x(i)w(i)``."""
    is_call = place.rest.startswith("(") and re.search(r"[=+\-*/(,]\s*\d\w*$", place.line)
    element = r"[A-Za-z_]\w*\s*(?:\([^()]*\))?"
    if is_call or (
        place.is_after_a_target and re.search(rf"[=+\-*/(,]\s*[\d.]+\s+{element}\s*$", place.line)
    ):
        return "write * between the factors of a product: 2 * x(i)"
    two = re.search(rf"=\s*(\w+\s*\([^()]*\))({element})\s*$", place.line)
    if two and place.is_after_a_target:
        one, other = two[1], two[2].strip()
        return f"write an operator between {one} and {other}: {one} * {other}"
    return None


def _sign(place: Place) -> str | None:
    """``x(i), y(i)`` between statements, ``(x, )``, ``|x|``."""
    if place.rest.startswith(",") and "TARGETS_OPEN" in place.accepted:
        return "remove it: statements follow one another without a sign between them"
    if place.rest.startswith(")") and place.before.rstrip().endswith(","):
        return "remove the comma before ')'"
    if place.rest.startswith("|") and "FLOAT" in place.accepted:
        return "an absolute value is fabs(x), of integers abs(x)"
    return None


def _comment(place: Place) -> str | None:
    """``// note``, ``/* note */``."""
    is_start = re.match(r"//|/\*", place.rest)
    if is_start or (place.rest.startswith("*") and place.before.endswith("/")):
        return "a comment begins with #"
    return None


_GUESSES: tuple[Callable[[Place], str | None], ...] = (
    _conditional, _loop, _local, _named_reduction, _clauses, _comparison, _range, _arguments,
    _declaration, _header, _product, _sign, _comment,
)  # fmt: skip
