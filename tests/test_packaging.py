"""The package list of setup.cfg, and what the tools that read other files must agree on."""

from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def setup_cfg() -> ConfigParser:
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_every_package_is_listed(setup_cfg: ConfigParser) -> None:
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "tcdsl").rglob("__init__.py")
    }
    listed = setup_cfg["options"]["packages"].split()
    assert listed == sorted(listed)
    assert set(listed) == found | {"tcdsl.grammar"}


def test_every_data_file_is_shipped(setup_cfg: ConfigParser) -> None:
    shipped = _shipped(dict(setup_cfg["options.package_data"]))
    assert {path.suffix for path in shipped} >= {".typed", ".tc", ".lark", ".h", ".cuh", ".cpp"}
    assert _data_files() == shipped


def test_a_blank_separates_no_patterns(setup_cfg: ConfigParser) -> None:
    """The test above can fail: this is how the emulator's headers once were left out."""
    data = dict(setup_cfg["options.package_data"])
    on_one_line = {**data, "tcdsl.emulator": " ".join(data["tcdsl.emulator"].split())}
    missing = _data_files() - _shipped(on_one_line)
    assert ROOT / "tcdsl/emulator/emulate.h" in missing


def _shipped(package_data: Mapping[str, str]) -> set[Path]:
    """Return the files that *package_data* names, its patterns read as setuptools reads them."""
    packages = {package: _folder(package) for package in package_data if package != "*"}
    everywhere = _patterns(package_data["*"])
    named = {
        path
        for package, folder in packages.items()
        for pattern in _patterns(package_data[package])
        for path in folder.glob(pattern)
    }
    return named | {path for pattern in everywhere for path in (ROOT / "tcdsl").rglob(pattern)}


def _patterns(text: str) -> list[str]:
    pieces = text.splitlines() if "\n" in text else text.split(",")
    return [piece.strip() for piece in pieces if piece.strip()]


def _data_files() -> set[Path]:
    """Return every file of the packages that is no module of Python."""
    return {
        path
        for folder in (ROOT / "tcdsl", ROOT / "grammar")
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    }


def _folder(package: str) -> Path:
    return ROOT / ("grammar" if package == "tcdsl.grammar" else package.replace(".", "/"))


def test_the_readme_opens_with_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines[:25] if "&&" in line]
    assert commands == [
        "sh .ci/setup demo && .venv/bin/tcdsl demo",
        "sh .ci/setup test && .venv/bin/pytest",
    ]


def test_every_extra_that_setup_is_asked_for_exists(setup_cfg: ConfigParser) -> None:
    extras = dict(setup_cfg["options.extras_require"])
    assert {"cuda", "notebook", "demo", "testing", "docs", "test", "bench"} <= set(extras)
