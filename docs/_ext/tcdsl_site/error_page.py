"""The page of errors: its sections, their examples, and what running those prints.

    ### TC026                          ### TC026 SemanticError
    A result that ...                  `{name!r} is returned but never assigned`
    ```tc                      --->    A result that ...
    def f(...) ...                     ```tc ... ```
    ```                                ```text  <tc>:1:23: error[TC026]: ...  ```

The page says what an error means, shows a program that raises it, and what to do; class, message
and output come from the catalogue and from running the program, so that they stay true.
"""

import contextlib
import importlib
import importlib.util
import io
import os
import pkgutil
import re
import shlex
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pygments.token import Error

import tcdsl
from tcdsl.errors import CATALOGUE, Entry, TCError
from tcdsl.lang.syntax.pygments_lexer import TcLexer

_SECTION = re.compile(r"^### (TC\d{3})\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^```(tc|python|sh)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
# What `completed` writes: the class and message under a heading, the output under an example.
_CLASS = re.compile(r"\A`\w+`(?:: `.*`)?\n\n")
_OUTPUT = re.compile(
    r"\n(?:```text\n.*?^```|\*\(.*no output is shown\.\)\*)\n", re.DOTALL | re.MULTILINE
)
_NEEDS = re.compile(r"<!-- needs: (.*?) -->\n")
_FOLDERS = re.compile(r"(?<![\w<])/(?:[\w.+-]+/)+(?=[\w.+-])")
_KEPT_FILE = re.compile(r"(tcdsl-(?:failed-|\w+-)?)\w{8}(?=\.\w+)")  # a random name
_VERSION = re.compile(r"(NVRTC) \d[\d.]*")


@dataclass(frozen=True, slots=True)
class Example:
    """A program of the page; *needs* says what a machine must have (or lack) for it, or is ""."""

    code: str
    language: str
    text: str
    needs: str


def examples(page: str) -> dict[str, Example]:
    """Return the example of each section of *page*, by code, in order."""
    found = {}
    for code, body in _SECTION.findall(page):
        assert code not in found, f"two sections for {code}"
        language, text = _FENCE.findall(body)[0]
        needs = _NEEDS.search(body)
        found[code] = Example(code, language, text, needs[1] if needs else "")
    return found


def catalogue() -> Mapping[str, Entry]:
    """Return all entries: those of errors.py, and those that stand beside what raises them."""
    for module in pkgutil.walk_packages(tcdsl.__path__, "tcdsl."):
        if module.name.rpartition(".")[2] != "__main__" and _has_entries(module.name):
            importlib.import_module(module.name)
    return CATALOGUE


def _has_entries(name: str) -> bool:
    """Return whether the module's text makes an entry; others may need what is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return False
    with open(spec.origin, encoding="utf-8") as file:
        return "Entry(" in file.read()


def why_not_here(example: Example) -> str | None:
    """Return why *example* cannot be run on this machine, or None if it can."""
    match example.needs:
        case "":
            return None
        case "no GPU":
            return "there is a GPU" if tcdsl.cuda.is_available() else None
        case "NVRTC":
            from tcdsl.runtime.nvrtc import why_no_cuda_compiler

            return why_no_cuda_compiler()
        case needs:
            return f"it needs {needs}"


def raised(example: Example) -> TCError | None:
    """Run *example* in a folder of its own; return the error that it ends in, if it does."""
    with _sandbox(), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those before an internal error tell what is tried next
        try:
            _run(example)
        except TCError as error:
            return error
    return None


def _run(example: Example) -> None:
    if example.language == "tc":
        tcdsl.define(example.text)
    elif example.language == "sh":
        from tcdsl.cli.main import run_command

        run_command(shlex.split(example.text)[1:])
    else:
        prelude = "import numpy as np\nimport tcdsl\n"
        exec(compile(prelude + example.text, f"<{example.code}>", "exec"), {})


@contextlib.contextmanager
def _sandbox() -> Iterator[None]:
    """Give an environment and a working folder that may be spoilt."""
    before, home = dict(os.environ), os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder  # what errors keep goes with the folder
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(home)
            tempfile.tempdir = None
            os.environ.clear()
            os.environ.update(before)


def completed(page: str) -> str:
    """Return *page* with class, message and output put into its sections, in the old ones' place.

    What this machine cannot run keeps the output that it has.
    """
    entries, programs = catalogue(), examples(page)

    def section(match: re.Match[str]) -> str:
        code, body = match[1], _CLASS.sub("", match[2])
        entry, example = entries[code], programs[code]
        head = f"### {code}\n`{entry.kind.__name__}`{_as_code(entry.message)}\n\n"
        fence = _FENCE.search(body)
        assert fence is not None
        rest = body[fence.end() :]
        old = _OUTPUT.match(rest)
        output = _output(example) or (old[0] if old else "")
        return head + body[: fence.end()] + output + rest[old.end() if old else 0 :]

    return _SECTION.sub(section, page)


def with_known_languages(page: str) -> str:
    """Return *page*, programs that the lexer cannot colour being plain text: some are wrong in
    their very characters.
    """

    def section(match: re.Match[str]) -> str:
        code, body = match[1], match[2]
        is_coloured = _is_coloured(programs[code])
        body = body if is_coloured else body.replace("```tc\n", "```text\n", 1)
        return f"### {code}\n{body}"

    programs = examples(page)
    return _SECTION.sub(section, page)


def _is_coloured(example: Example) -> bool:
    """Return whether the lexer knows all of a program."""
    tokens = TcLexer().get_tokens(example.text) if example.language == "tc" else []
    return not any(kind is Error for kind, _ in tokens)


def _as_code(message: str) -> str:
    """Return a format string as code, ``<name>`` for what is filled in; "" if that is all."""
    plain = re.sub(r"{(\w\w+)[^{}]*}", r"<\1>", re.sub(r"{\w}", "(s)", message))
    return f": `{plain}`" if re.search(r"\w", re.sub(r"<\w+>", "", plain)) else ""


def _output(example: Example) -> str:
    """Return what running *example* prints, or "" if it cannot run here."""
    if "GPU" in example.needs and example.needs != "no GPU":
        return f"\n*(This needs {example.needs}: no output is shown.)*\n"
    if why_not_here(example):
        return ""
    error = raised(example)
    assert error is not None and error.code == example.code, f"{example.code}: got {error}"
    return f"\n```text\n{lasting_text(error)}\n```\n"


def lasting_text(error: TCError) -> str:
    """Return the text of *error* without what differs from run to run, or between machines."""
    text = _FOLDERS.sub(".../", str(error))
    return _VERSION.sub(r"\1 ...", _KEPT_FILE.sub(r"\1*", text))


def overview(page: str) -> str:
    """Return a table of all codes: class, and the first sentence of the section."""
    sections = _SECTION.findall(page)
    meanings = {code: _meaning(_CLASS.sub("", body)) for code, body in sections}
    rows = [
        f"| [{code}](#{code.lower()}) | `{entry.kind.__name__}` | {meanings[code]} |"
        for code, entry in sorted(catalogue().items())
    ]
    return "\n".join(["| code | class | meaning |", "|---|---|---|", *rows]) + "\n"


def _meaning(body: str) -> str:
    text = " ".join(body.partition("\n\n")[0].split())
    return re.split(r"(?<=[.:]) (?=[A-Z(])", text)[0].rstrip(":")
