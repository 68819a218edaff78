"""Declarations of shared variables, as references to memory that the emulator manages.

    __shared__ float tile[8][33];    --->  static emu_tag tile_tag; typedef float tile_type[8][33];
                                           tile_type &tile = *(tile_type *)emu_shared_variable(
                                               &tile_tag, sizeof(tile_type), ...);
    extern __shared__ double all[];  --->  double *const all = (double *)emu_dynamic_shared();

on one line, so that line numbers stay.  A tag is static: each declaration, in each instance of a
template, has one.  This is the only change to the text that NVRTC gets.
"""

import re

_DYNAMIC = re.compile(r"extern\s+__shared__\s+(?P<declared>[^;]*?)\s*(?P<name>\w+)\s*\[\s*\]\s*;")
_STATIC = re.compile(
    r"(?:\bstatic\s+)?(?P<before>alignas\s*\([^;]*\)\s*)?__shared__\s(?P<declared>[^;]*);"
)
_ALIGNMENT = re.compile(r"(?:alignas|__align__)\s*\(")


def replace_shared(text: str, *, as_statics: bool = False) -> str:
    """Return *text* with its shared variables in the emulator's memory.

    :arg as_statics: make static variables of them instead, for the address sanitizer.
    """
    text = _DYNAMIC.sub(_dynamic, text)
    return _STATIC.sub(lambda match: _static(match, as_statics), text)


def _dynamic(match: re.Match[str]) -> str:
    _, dtype = _without_alignment(match["declared"])
    before = match.string[: match.start()]
    # A pointer at file scope is read like any variable: it must lie among the constants.
    is_local = before.count("{") > before.count("}")
    if is_local:
        return f"{dtype} *const {match['name']} = ({dtype} *)emu_dynamic_shared();"
    return f"static emu_dynamic_array<{dtype}> {match['name']};"


def _static(match: re.Match[str], as_statics: bool) -> str:
    alignment, declared = _without_alignment((match["before"] or "") + match["declared"])
    first, *others = _split(declared)
    dtype, name, extents = _declarator(first)
    variables = [(name, extents)]
    variables += [(name, extents) for _, name, extents in map(_declarator, others)]
    make = _as_static if as_statics else _as_reference
    return " ".join(make(dtype, name, extents, alignment) for name, extents in variables)


def _as_static(dtype: str, name: str, extents: str, alignment: str) -> str:
    aligned = f"alignas({alignment}) " if alignment else ""
    return f"{aligned}static {dtype} {name}{extents};"


def _as_reference(dtype: str, name: str, extents: str, alignment: str) -> str:
    type_, tag = f"{name}_emu_type", f"{name}_emu_tag"
    return (
        f"static emu_tag {tag}; typedef {dtype} {type_}{extents}; "
        f"{type_} &{name} = *({type_} *)emu_shared_variable(&{tag}, sizeof({type_}), "
        f'{alignment or f"alignof({type_})"}, sizeof({dtype}), "{name}");'
    )


def _without_alignment(declared: str) -> tuple[str, str]:
    """Return what ``alignas(...)`` of *declared* asks for, or "", and the rest."""
    match = _ALIGNMENT.search(declared)
    if match is None:
        return "", declared.strip()
    end = _closing(declared, match.end())
    inside = declared[match.end() : end]
    return inside, (declared[: match.start()] + declared[end + 1 :]).strip()


def _closing(text: str, start: int) -> int:
    """Return where the parenthesis that was opened before *start* is closed."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise AssertionError(f"a parenthesis in {text!r} is not closed")


def _split(declared: str) -> list[str]:
    """Split at commas outside brackets: ``A<int, 2> a[4], b`` -> ``A<int, 2> a[4]``, ``b``."""
    pieces, depth = [""], 0
    for character in declared:
        depth += {"(": 1, "[": 1, "<": 1, ")": -1, "]": -1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces


def _declarator(declared: str) -> tuple[str, str, str]:
    """``typename Op::type pieces[N][2]`` -> ``typename Op::type``, ``pieces``, ``[N][2]``."""
    match = re.fullmatch(r"\s*(.*?)(\w+)\s*((?:\[.*\])?)\s*", declared, re.DOTALL)
    assert match is not None, f"{declared!r} declares no shared variable"
    return match[1].strip(), match[2], match[3]
