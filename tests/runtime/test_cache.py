"""The disk cache: what it keeps, whom it trusts, and what it survives."""

import errno
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import stat
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tcdsl.errors import TCWarning
from tcdsl.runtime import cache as cache_module
from tcdsl.runtime.cache import (
    Cache,
    Entry,
    decode,
    default_cache,
    encode,
    key_of,
    why_not_trusted,
)

KEY = key_of(program="p")
CODE = bytes(range(256)) * 5
MANIFEST = {"entry": "f", "n": [1, 2]}
FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def warn_again() -> Iterator[None]:
    cache_module._warned.clear()
    yield
    cache_module._warned.clear()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def only_entry(root: Path) -> Path:
    (path,) = (root / "entries").glob("*/*")
    return path


# --- keeping -------------------------------------------------------------------------------


def test_what_is_stored_is_found(root: Path) -> None:
    cache = Cache(root)
    assert cache.get(KEY) is None
    assert cache.put(KEY, CODE, MANIFEST)
    assert cache.get(KEY) == Entry(CODE, MANIFEST)
    assert Cache(root).get(KEY) == Entry(CODE, MANIFEST)
    assert cache.get(key_of(program="q")) is None
    stats = cache.stats()
    assert (stats.entries, stats.hits, stats.misses, stats.stores) == (1, 1, 2, 1)
    assert stats.size_bytes == only_entry(root).stat().st_size and stats.problem is None


def test_the_order_of_a_manifest_is_kept(root: Path) -> None:
    cache = Cache(root)
    stages = {"scop": "1", "code": "2", "a": "3"}
    assert cache.put(KEY, CODE, {"stages": stages})
    found = Cache(root).get(KEY)
    assert found is not None and list(found.manifest["stages"]) == list(stages)


def test_a_look_makes_nothing_and_counts_nothing(root: Path) -> None:
    cache = Cache(root)
    assert cache.peek(KEY) is None and not root.exists() and Cache(None).peek(KEY) is None
    cache.put(KEY, CODE, MANIFEST)
    assert cache.peek(KEY) == Entry(CODE, MANIFEST) and cache.peek(key_of(program="q")) is None
    assert (cache.stats().hits, cache.stats().misses) == (0, 0)
    only_entry(root).write_bytes(b"defect")
    assert cache.peek(KEY) is None
    root.chmod(0o777)
    with pytest.warns(TCWarning, match="can be written by others"):
        assert Cache(root).peek(KEY) is None


def test_modes_are_private_whatever_the_umask(root: Path) -> None:
    before = os.umask(0)
    try:
        Cache(root).put(KEY, CODE, MANIFEST)
    finally:
        os.umask(before)
    for path in (root, root / "entries", root / "work", only_entry(root).parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(only_entry(root).stat().st_mode) == 0o600


def test_nothing_is_left_in_the_work_folder(root: Path) -> None:
    Cache(root).put(KEY, CODE, MANIFEST)
    assert list((root / "work").iterdir()) == []


def test_storing_again_replaces(root: Path) -> None:
    cache = Cache(root)
    cache.put(KEY, CODE, MANIFEST)
    cache.put(KEY, b"new", {})
    assert cache.get(KEY) == Entry(b"new", {})
    assert cache.stats().entries == 1


def test_empty_code(root: Path) -> None:
    cache = Cache(root)
    cache.put(KEY, b"", {"identity": "gcc"})
    assert cache.get(KEY) == Entry(b"", {"identity": "gcc"})


def test_clear(root: Path) -> None:
    cache = Cache(root)
    cache.put(KEY, CODE, MANIFEST)
    cache.put(key_of(program="q"), CODE, MANIFEST)
    (root / "work" / "left").write_bytes(b"x")
    assert cache.clear() == 2
    assert cache.stats().entries == 0 and cache.get(KEY) is None
    assert list((root / "work").iterdir()) == []


def test_switched_off() -> None:
    cache = Cache(None)
    assert not cache.put(KEY, CODE, MANIFEST)
    assert cache.get(KEY) is None and cache.clear() == 0
    assert cache.stats().problem == "it is switched off"
    with pytest.raises(OSError, match="switched off"), cache.work_folder():
        pass


def test_the_oldest_go_when_the_bound_is_exceeded(root: Path) -> None:
    cache = Cache(root, limit_bytes=10 * len(encode(KEY, CODE, {})))
    keys = [key_of(n=n) for n in range(12)]
    for age, key in enumerate(keys):
        cache.put(key, CODE, {})
        os.utime(cache._path(key), (1e9 + age, 1e9 + age))
    cache.get(keys[0])  # used: now the youngest
    assert cache.prune() == 4
    assert [key in (p.name for p in (root / "entries").glob("*/*")) for key in keys] == (
        [True] + [False] * 4 + [True] * 7
    )
    assert cache.prune() == 0


def test_stores_prune_by_themselves(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_PRUNE_EVERY", 4)
    cache = Cache(root, limit_bytes=5 * len(CODE))
    for n in range(33):
        cache.put(key_of(n=n), CODE, {})
    assert cache.stats().entries < 10


def test_work_folders_are_private_and_removed(root: Path) -> None:
    with Cache(root).work_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "x").write_text("x")
    assert not folder.exists()


def test_default_cache_follows_the_settings(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_CACHE", "on")
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(root))
    assert default_cache().root == root and default_cache() is default_cache()
    monkeypatch.setenv("TCDSL_CACHE", "off")
    assert default_cache().root is None
    monkeypatch.setenv("TCDSL_CACHE", "on")
    monkeypatch.delenv("TCDSL_CACHE_DIR")
    assert default_cache().root is not None and default_cache().root != root


# --- keys ----------------------------------------------------------------------------------


def test_keys_depend_on_every_part_and_on_no_order() -> None:
    assert key_of(a=1, b=[2]) == key_of(b=[2], a=1)
    others = [key_of(a=1), key_of(a="1"), key_of(a=1.5), key_of(b=1), key_of(a=None), key_of()]
    assert len(set(others)) == len(others)
    assert len(KEY) == 64


@pytest.mark.parametrize("bad", [float("nan"), {1, 2}, b"x", object()])
def test_keys_are_json(bad: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        key_of(a=bad)


# --- defects are misses (row 37) -----------------------------------------------------------


def test_every_truncation_is_a_miss() -> None:
    data = encode(KEY, CODE[:100], MANIFEST)
    assert decode(KEY, data) is not None
    assert all(decode(KEY, data[:n]) is None for n in range(len(data)))
    assert decode(KEY, data + b"x") is None


def test_every_flipped_bit_is_a_miss() -> None:
    data = encode(KEY, CODE[:40], MANIFEST)
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        assert decode(KEY, bytes(flipped)) is None


def sealed(head: bytes, code: bytes = b"") -> bytes:
    """Return a file with a right checksum around any head."""
    body = head + b"\n" + code
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    "head",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000,
        json.dumps({"format": 0, "key": KEY, "size": 0, "manifest": {}}).encode(),
        json.dumps({"format": 2, "key": "other", "size": 0, "manifest": {}}).encode(),
        json.dumps({"format": 2, "key": KEY, "size": 1, "manifest": {}}).encode(),
        json.dumps({"format": 2, "key": KEY, "size": 0, "manifest": []}).encode(),
        json.dumps({"format": 2, "key": KEY, "size": 0}).encode(),
    ],
)  # fmt: skip
def test_garbage_with_a_right_checksum_is_a_miss(head: bytes) -> None:
    assert decode(KEY, sealed(head)) is None


def test_a_defect_is_removed_and_replaced(root: Path) -> None:
    cache = Cache(root)
    cache.put(KEY, CODE, MANIFEST)
    path = only_entry(root)
    path.write_bytes(path.read_bytes()[:-7])
    assert cache.get(KEY) is None
    assert not path.exists()
    cache.put(KEY, CODE, MANIFEST)
    assert cache.get(KEY) == Entry(CODE, MANIFEST)


def test_an_entry_under_another_key_is_a_miss(root: Path) -> None:
    cache = Cache(root)
    cache.put(KEY, CODE, MANIFEST)
    other = KEY[:2] + "0" * 62
    only_entry(root).rename(root / "entries" / KEY[:2] / other)
    assert cache.get(other) is None


@pytest.mark.parametrize("kind", ["symlink", "folder", "fifo", "writable"])
def test_an_entry_that_is_no_file_of_ours_alone_is_a_miss(
    root: Path, tmp_path: Path, kind: str
) -> None:
    cache = Cache(root)
    cache.put(KEY, CODE, MANIFEST)
    path = only_entry(root)
    if kind == "writable":
        path.chmod(0o666)
    else:
        path.rename(tmp_path / "elsewhere")
        if kind == "symlink":
            path.symlink_to(tmp_path / "elsewhere")
        elif kind == "folder":
            path.mkdir()
        else:
            os.mkfifo(path)
    assert cache.get(KEY) is None


# --- whom it trusts, and where it cannot be (row 36) ---------------------------------------


def refused(cache: Cache) -> str:
    """Use *cache*, which must refuse with one warning; return the warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert cache.get(KEY) is None
            assert not cache.put(KEY, CODE, MANIFEST)
    (warning,) = caught
    assert warning.category is TCWarning
    return str(warning.message)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_a_folder_that_others_can_write_is_refused(root: Path, mode: int) -> None:
    Cache(root).put(KEY, CODE, MANIFEST)
    root.chmod(mode)
    assert "chmod go-w" in refused(Cache(root))


def test_an_entries_folder_that_others_can_write_is_refused(root: Path) -> None:
    Cache(root).put(KEY, CODE, MANIFEST)
    (root / "entries").chmod(0o777)
    assert "chmod go-w" in refused(Cache(root))


def test_a_folder_of_another_user_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(root).put(KEY, CODE, MANIFEST)
    monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
    assert "another user" in refused(Cache(root))


def test_a_folder_that_others_can_swap_is_refused(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    Cache(above / "cache").put(KEY, CODE, MANIFEST)
    above.chmod(0o777)
    assert "can be written by everyone" in refused(Cache(above / "cache"))
    above.chmod(0o1777)
    assert why_not_trusted(above / "cache") is None


def test_a_symlink_to_an_open_folder_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    root.symlink_to(tmp_path / "open")
    assert "chmod go-w" in refused(Cache(root))


def test_a_symlink_to_a_private_folder_is_used(root: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    root.symlink_to(tmp_path / "private")
    assert Cache(root).put(KEY, CODE, MANIFEST)
    assert Cache(root).get(KEY) == Entry(CODE, MANIFEST)


def test_a_file_in_the_place_of_the_folder(root: Path) -> None:
    root.write_text("not a folder")
    assert "cannot be made" in refused(Cache(root))
    assert "cannot be made" in refused(Cache(root / "below"))


def test_a_folder_that_cannot_be_looked_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is too long; one below a folder of which another user may not know what it has.

    ``Path.is_dir`` raises there: a program could not even be defined.
    """
    long = Cache(root / ("x" * 300))
    assert long.peek(KEY) is None and "cannot be made" in refused(long)

    def locked(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "stat", locked)
    assert Cache(root).peek(KEY) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_or_read_only_disk_costs_one_warning(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    cache = Cache(root)
    cache.put(KEY, CODE, MANIFEST)

    def no_space(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.warns(TCWarning, match=os.strerror(number)) as caught:
        for n in range(3):
            assert not cache.put(key_of(n=n), CODE, MANIFEST)
    assert len(caught) == 1
    assert cache.get(KEY) == Entry(CODE, MANIFEST)  # what is there is still used
    assert list((root / "work").iterdir()) == []
    with pytest.raises(OSError, match="cannot be written"), cache.work_folder():
        pass


def test_a_read_only_folder_is_still_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(root).put(KEY, CODE, MANIFEST)
    monkeypatch.setattr(os, "access", lambda *_: False)
    cache = Cache(root)
    with pytest.warns(TCWarning, match="cannot be stored") as caught:
        assert cache.get(KEY) == Entry(CODE, MANIFEST)
        assert not cache.put(KEY, CODE, MANIFEST)
    assert len(caught) == 1


def test_a_folder_removed_while_in_use(root: Path) -> None:
    cache = Cache(root)
    cache.put(KEY, CODE, MANIFEST)
    shutil.rmtree(root)
    assert cache.get(KEY) is None
    with pytest.warns(TCWarning):
        assert not cache.put(KEY, CODE, MANIFEST)
    assert cache.prune() == 0 and cache.clear() == 0


# --- many processes, killed ones (row 38) --------------------------------------------------


def test_leftovers_of_the_killed_are_removed_when_old(root: Path) -> None:
    Cache(root).put(KEY, CODE, MANIFEST)
    old, young, folder = (root / "work" / name for name in ("old", "young", "folder"))
    old.write_bytes(b"x")
    young.write_bytes(b"x")
    folder.mkdir()
    (folder / "kernel.c").write_text("x")
    for path in (old, folder):
        os.utime(path, (time.time() - 7200,) * 2)
    Cache(root).get(KEY)
    assert [path.exists() for path in (old, folder, young)] == [False, False, True]


def store_and_check(root: Path, seed: int) -> None:
    shuffled = random.Random(seed).sample(range(8), 8)
    cache = Cache(root)
    for n in shuffled:
        code = bytes([n]) * 20_000
        assert cache.put(key_of(n=n), code, {"n": n})
        assert cache.get(key_of(n=n)) == Entry(code, {"n": n})


@pytest.mark.slow
def test_sixteen_processes_at_once(root: Path) -> None:
    processes = [FORK.Process(target=store_and_check, args=(root, seed)) for seed in range(16)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 16
    assert Cache(root).stats().entries == 8
    assert list((root / "work").iterdir()) == []


def store_for_ever(root: Path) -> None:
    cache = Cache(root)
    for n in range(10**9):
        cache.put(key_of(n=n % 5), bytes([n % 5]) * 300_000, {"n": n % 5})


@pytest.mark.slow
def test_a_process_killed_while_writing_tears_no_entry(root: Path) -> None:
    for round_ in range(6):
        process = FORK.Process(target=store_for_ever, args=(root,))
        process.start()
        time.sleep(0.05 + 0.011 * round_)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(10)
        cache = Cache(root)
        for n in range(5):
            entry = cache.get(key_of(n=n))
            assert entry is None or entry == Entry(bytes([n]) * 300_000, {"n": n})
        for path in (root / "entries").glob("*/*"):
            assert decode(path.name, path.read_bytes()) is not None
    Cache(root, stale_after_s=0.0).get(KEY)
    assert list((root / "work").iterdir()) == []
