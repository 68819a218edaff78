"""Files that a user asks for by path; errors say why one cannot be written, and what to do.

report("no/such/page.html")   --->   TC064, "make the folder no/such first"
"""

from os import PathLike, fspath
from pathlib import Path

from tcdsl.options import BAD_ARGUMENT


def path_of(path: object, argument: str) -> Path:
    """Return *path* as a ``Path``.

    :arg argument: what the user calls it, for errors.
    :raises OptionError: (TC064) it is no path.
    """
    text = fspath(path) if isinstance(path, str | PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise BAD_ARGUMENT(
            argument=argument, what=f"{path!r} is no path", advice="give the path as a string"
        )
    return Path(text)


def write_file(path: object, text: str, argument: str) -> Path:
    """Write *text* to *path*, in UTF-8; return the path.

    :raises OptionError: (TC064) it is no path, or no file can be written there.
    """
    target = path_of(path, argument)
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BAD_ARGUMENT(
            argument=argument, what=f"{target} cannot be written: {error.strerror}",
            advice=_advice(error, target),
        ) from None  # fmt: skip
    return target


def make_folder(path: object, argument: str) -> Path:
    """Return the folder *path*, made if it is not there.

    :raises OptionError: (TC064) it is no path, or cannot be made.
    """
    folder = path_of(path, argument)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BAD_ARGUMENT(
            argument=argument, what=f"the folder {folder} cannot be made: {error.strerror}",
            advice="name a folder in one that you may write to",
        ) from None  # fmt: skip
    return folder


def _advice(error: OSError, path: Path) -> str:
    match error:
        case FileNotFoundError():
            return f"make the folder {path.parent} first, or name a file in one that exists"
        case IsADirectoryError():
            return f"{path} is a folder: name a file in it"
        case NotADirectoryError():
            return f"{path.parent} is no folder: name a file in one that exists"
        case PermissionError():
            return "name a file that you may write, in a folder of your own"
        case _:
            return "name another file"
