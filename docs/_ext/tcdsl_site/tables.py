"""Tables of options and of environment variables, from where they are defined."""

import re
from dataclasses import fields

from tcdsl.options import Options
from tcdsl.settings import VARIABLES

_FIELD = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)


def settings() -> str:
    """Return the environment variables as a list."""
    parts = []
    for variable in VARIABLES:
        default = f"`{variable.default}`" if variable.default else "unset"
        parts.append(
            f"- **`{variable.name}`**: {variable.doc}\\\n"
            f"  Values: {variable.values}. Default: {default}.\n"
        )
    return "\n".join(parts)


def option_texts() -> dict[str, str]:
    """Return what the docstring of ``Options`` says of each field."""
    found = _FIELD.findall(Options.__doc__ or "")
    texts = {name: " ".join(text.split()) for name, text in found}
    assert list(texts) == [field.name for field in fields(Options)]
    return texts


def options() -> str:
    """Return the fields of ``Options`` as a list, each with its type and default."""
    texts = option_texts()
    return "\n".join(
        f"- **`{field.name}`**: {texts[field.name][0].upper()}{texts[field.name][1:]}\\\n"
        f"  Type: `{_type_text(field.type)}`. Default: `{field.default!r}`.\n"
        for field in fields(Options)
    )


def _type_text(kind: object) -> str:
    if isinstance(kind, type) and not hasattr(kind, "__args__"):
        return kind.__name__
    return str(kind).replace("typing.", "")
