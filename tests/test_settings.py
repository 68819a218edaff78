"""The environment variables: defaults, values, and values without meaning."""

import os
from dataclasses import fields
from pathlib import Path

import pytest

from tcdsl.errors import OptionError
from tcdsl.settings import (
    VARIABLES,
    Settings,
    describe_variables,
    reader,
    settings,
    unknown_variables,
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TCDSL_"):
            monkeypatch.delenv(name)


def test_defaults() -> None:
    found = settings()
    assert found.target is None and found.cache_dir is None and found.dump is None
    assert found.cache is True and found.debug is False
    assert found.cc == () and found.cflags == () and found.threads == 0
    assert found.isl_operations > 0


def test_every_variable_has_a_field_and_a_description() -> None:
    assert {variable.field for variable in VARIABLES} == {f.name for f in fields(Settings)}
    text = describe_variables()
    for variable in VARIABLES:
        assert variable.name in text and variable.doc in text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("TARGET", "cpu", "cpu"),
        ("TARGET", " reference ", "reference"),
        ("TARGET", "", None),
        ("CACHE", "off", False),
        ("CACHE", "0", False),
        ("CACHE", "YES", True),
        ("CC", "ccache gcc-12", ("ccache", "gcc-12")),
        ("CC", "'/a b/cc'", ("/a b/cc",)),
        ("CXX", "clang++ -m64", ("clang++", "-m64")),
        ("CFLAGS", "-g -DX=1", ("-g", "-DX=1")),
        ("CACHE_DIR", "/somewhere", Path("/somewhere")),
        ("DUMP", "~/dump", Path.home() / "dump"),
        ("THREADS", "3", 3),
        ("DEBUG", "1", True),
        ("ISL_OPERATIONS", "0", 0),
    ],
)
def test_values(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object) -> None:
    monkeypatch.setenv(f"TCDSL_{name}", text)
    assert getattr(settings(), name.lower()) == value


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        ("TARGET", "gpu", "cuda, cpu, emulate, reference"),
        ("CACHE", "maybe", "on or off"),
        ("DEBUG", "2", "on or off"),
        ("THREADS", "-1", "a whole number"),
        ("THREADS", "1.5", "a whole number"),
        ("THREADS", "²", "a whole number"),
        ("ISL_OPERATIONS", "many", "a whole number"),
        ("CC", "'gcc", "a command"),
        ("CFLAGS", '"-g', "flags"),
    ],
)
def test_a_value_without_meaning_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, advice: str
) -> None:
    monkeypatch.setenv(f"TCDSL_{name}", text)
    with pytest.raises(OptionError, match=f"TCDSL_{name}") as caught:
        settings()
    assert caught.value.code == "TC062"
    assert repr(text) in str(caught.value) and advice in (caught.value.hint or "")


def test_braces_in_a_value_are_no_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_TARGET", "{x}")
    with pytest.raises(OptionError, match=r"\{x\}"):
        settings()


def test_the_environment_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    first = settings()
    assert settings() is first
    monkeypatch.setenv("TCDSL_THREADS", "7")
    assert settings().threads == 7
    monkeypatch.delenv("TCDSL_THREADS")
    assert settings() == first


def test_misspelt_variables_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_CAHCE_DIR", "x")
    monkeypatch.setenv("TCDSL_QQQ", "x")
    assert unknown_variables() == {"TCDSL_CAHCE_DIR": "TCDSL_CACHE_DIR", "TCDSL_QQQ": None}


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_reader_follows_the_environment(monkeypatch: pytest.MonkeyPatch, is_plain: bool) -> None:
    if is_plain:  # an interpreter whose os.environ is made otherwise
        monkeypatch.setattr(os, "environ", dict(os.environ))
    read = reader("TCDSL_TARGET")
    assert read() is None
    monkeypatch.setitem(os.environ, "TCDSL_TARGET", "cpu")
    first = read()
    monkeypatch.setitem(os.environ, "TCDSL_TARGET", "cuda")
    assert None is not first != read() is not None
    monkeypatch.delitem(os.environ, "TCDSL_TARGET")
    assert read() is None
