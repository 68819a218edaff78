"""The package list of setup.cfg, and what the tools that read other files must agree on."""

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


@pytest.mark.parametrize("suffix", [".tc", ".lark", ".h", ".cuh", ".cpp", ".mplstyle"])
def test_every_data_file_is_shipped(setup_cfg: ConfigParser, suffix: str) -> None:
    data = dict(setup_cfg["options.package_data"])
    shipped = {
        path
        for package, patterns in data.items()
        if package != "*"
        for pattern in patterns.split()
        for path in _folder(package).glob(pattern)
    }
    present = {*(ROOT / "tcdsl").rglob(f"*{suffix}"), *(ROOT / "grammar").rglob(f"*{suffix}")}
    assert present
    assert present <= shipped


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
