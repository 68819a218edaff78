from collections.abc import Callable
from pathlib import Path

import pytest

from tcdsl.cli.cache import contents_text
from tcdsl.runtime.cache import CacheStats, default_cache, key_of

Tcdsl = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_it_says_what_is_held_and_where(tcdsl: Tcdsl, folder: Path) -> None:
    default_cache().put(key_of(a=1), b"code", {})
    assert tcdsl("cache") == (0, f"{folder}: 1 entry, 0.0 of 1024 MiB\n", "")


def test_path_prints_the_folder_alone(tcdsl: Tcdsl, folder: Path) -> None:
    assert tcdsl("cache", "--path") == (0, f"{folder}\n", "")


def test_clear_removes_every_entry(tcdsl: Tcdsl) -> None:
    default_cache().put(key_of(a=1), b"code", {})
    default_cache().put(key_of(a=2), b"code", {})
    assert tcdsl("cache", "--clear")[:2] == (0, "removed 2 entries, 0.0 of 1024 MiB\n")
    assert default_cache().stats().entries == 0


def test_a_cache_switched_off_is_said(tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_CACHE", "off")
    code, printed, _ = tcdsl("cache")
    assert code == 1
    assert "switched off" in printed


def test_sizes_are_in_mebibytes() -> None:
    stats = CacheStats(Path("x"), 12, 3 << 20, 1 << 30, 0, 0, 0, None)
    assert contents_text(stats) == "12 entries, 3.0 of 1024 MiB"
