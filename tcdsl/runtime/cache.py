"""The disk cache of compiled code: one file an entry, and any defect is a miss.

    root/                 mode 0700; $TCDSL_CACHE_DIR, or the user's cache folder
      entries/ab/ab12...  manifest (one line of JSON), code, SHA-256 of both
      work/               files being written, folders of compilers at work

An entry is written to ``work/``, flushed to the disk and renamed: readers see all of it or nothing,
whoever is killed when.  Processes that write the same entry at once write the same bytes, and the
last rename wins.  What is left in ``work/`` by the killed is removed when it is an hour old.

Code from the cache runs with the user's rights, so nothing is loaded from a folder that others
can write or own.  A cache that does not work (read-only, full, refused) costs one warning and
no more.  Entries hold no pickle.  The oldest ones go when all of them exceed the size bound.
"""

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from tcdsl.errors import TCWarning
from tcdsl.records import dataclass
from tcdsl.settings import settings

FORMAT = 2
LIMIT_BYTES = 1 << 30
STALE_AFTER_S = 3600.0
_DIGEST_BYTES = hashlib.sha256().digest_size
_PRUNE_EVERY = 64  # stores: pruning lists the whole cache
_PRUNE_TO = 0.8  # of the bound, so that the next store does not prune again
_TOUCH_AFTER_S = 3600.0  # an entry's time of last use is this exact: reading rarely writes
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Entry:
    """What was stored under a key."""

    code: bytes
    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The state of a cache; *hits*, *misses* and *stores* are this process's."""

    root: Path | None
    entries: int
    size_bytes: int
    limit_bytes: int
    hits: int
    misses: int
    stores: int
    problem: str | None  # why it is not used, or None


def key_of(**parts: Any) -> str:
    """Return the SHA-256 (hex) of *parts*, which must be JSON: the key of what they determine."""
    text = json.dumps(
        parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


class Cache:
    """A folder of entries; a *root* of None keeps nothing."""

    def __init__(
        self,
        root: Path | None,
        *,
        limit_bytes: int = LIMIT_BYTES,
        stale_after_s: float = STALE_AFTER_S,
    ) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self.stale_after_s = stale_after_s
        self.hits = self.misses = self.stores = 0
        # Why it is not read, or not written; what is checked is checked once.
        self._problem: str | None = "it is switched off" if root is None else None
        self._cannot_store = False
        self._is_checked = root is None

    @property
    def may_store(self) -> bool:
        """Whether nothing is known that keeps an entry from being stored."""
        return self._is_usable() and not self._cannot_store

    def get(self, key: str) -> Entry | None:
        """Return the entry of *key*, or None if there is none that is whole."""
        entry = self._read(key) if self._is_usable() else None
        if entry is None:
            self.misses += 1
        else:
            self.hits += 1
        return entry

    def peek(self, key: str) -> Entry | None:
        """Return what :meth:`get` does, but make no folder for it, and count nothing."""
        # (Path.is_dir raises where a folder above cannot be searched, or a name is too long.)
        is_there = self.root is not None and os.path.isdir(self.root / "entries")
        return self._read(key) if is_there and self._is_usable() else None

    def put(self, key: str, code: bytes, manifest: Mapping[str, Any]) -> bool:
        """Store *code* and *manifest* (JSON) under *key*; return whether that worked."""
        data = encode(key, code, manifest)
        if not self.may_store:
            return False
        try:
            self._write(self._path(key), data)
        except OSError as error:
            self._refuse_stores(error)
            return False
        self.stores += 1
        if self.stores % _PRUNE_EVERY == 1:
            self.prune()
        return True

    def clear(self) -> int:
        """Remove all entries and leftovers; return how many entries there were."""
        if not self._is_usable():
            return 0
        removed = sum(_remove(path) for path, _ in self._entries())
        self._sweep(older_than_s=0.0)
        return removed

    def stats(self) -> CacheStats:
        """Return the state of the cache; its cost is linear in the number of entries."""
        entries = list(self._entries()) if self._is_usable() else []
        return CacheStats(
            self.root, len(entries), sum(info.st_size for _, info in entries),
            self.limit_bytes, self.hits, self.misses, self.stores, self._problem,
        )  # fmt: skip

    def prune(self) -> int:
        """Remove the entries unused for longest until the size bound holds; return how many."""
        entries = sorted(self._entries(), key=lambda entry: entry[1].st_mtime)
        excess = sum(info.st_size for _, info in entries) - self.limit_bytes
        if excess <= 0:
            return 0
        excess += int((1 - _PRUNE_TO) * self.limit_bytes)
        removed = 0
        for path, info in entries:
            if excess <= 0:
                break
            excess -= info.st_size
            removed += _remove(path)
        return removed

    @contextmanager
    def work_folder(self) -> Iterator[Path]:
        """Give a new private folder for a compiler; it is removed at the end, or later if killed.

        :raises OSError: if the cache is not usable or its disk is full.
        """
        if not self._is_usable() or self._cannot_store:
            raise OSError(self._problem or "the cache cannot be written")
        folder = self._work / _unique_name()
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    # --- files -----------------------------------------------------------------------------

    @property
    def _work(self) -> Path:
        assert self.root is not None
        return self.root / "work"

    def _path(self, key: str) -> Path:
        assert self.root is not None and key.isalnum(), "keys come from key_of"
        return self.root / "entries" / key[:2] / key

    def _read(self, key: str) -> Entry | None:
        path = self._path(key)
        try:
            data, info = _read_own_file(path)
        except OSError:
            return None
        entry = decode(key, data)
        if entry is None:
            _remove(path)  # a defect: what is compiled now takes its place
        elif time.time() - info.st_mtime > _TOUCH_AFTER_S:
            with suppress(OSError):
                os.utime(path)
        return entry

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        temporary = self._work / _unique_name()
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                # Without it a crash of the machine may leave the name with nothing behind it.
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            _remove(temporary)
            raise

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        assert self.root is not None
        for folder in _scan(self.root / "entries"):
            for path in _scan(folder):
                with suppress(OSError):
                    yield path, path.lstat()

    def _sweep(self, older_than_s: float) -> None:
        """Remove what killed processes have left in the work folder."""
        limit = time.time() - older_than_s
        for path in _scan(self._work):
            with suppress(OSError):
                if path.lstat().st_mtime <= limit:
                    _remove_all(path)

    # --- trust -----------------------------------------------------------------------------

    def _refuse_stores(self, error: OSError) -> None:
        """Store nothing more: full and read-only disks stay so.  Reading goes on."""
        self._cannot_store = True
        _warn(f"compiled code cannot be stored in {self.root}: {error.strerror}")

    def _is_usable(self) -> bool:
        if not self._is_checked:
            self._is_checked = True
            self._problem = self._prepare()
            if self._problem is not None:
                _warn(f"working without the cache of compiled code: {self._problem}")
        return self._problem is None

    def _prepare(self) -> str | None:
        """Make the folders; return why the cache cannot be used, or None."""
        assert self.root is not None
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            return f"{self.root} cannot be made: {error.strerror}"
        if reason := why_not_trusted(self.root):
            return reason
        try:
            for folder in (self.root / "entries", self._work):
                folder.mkdir(mode=0o700, exist_ok=True)
                if reason := _why_not_ours(folder):
                    return reason
            self._sweep(self.stale_after_s)
            if not os.access(self._work, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            if not os.path.isdir(self.root / "entries"):
                return f"{self.root} cannot be written: {error.strerror}"
            # A read-only folder with entries can still be read.
            self._refuse_stores(error)
        return None


def why_not_trusted(root: Path) -> str | None:
    """Return why code in *root* may come from another user, or None if it may not.

    The folder must be ours alone; and no other user may be able to put another one in its place,
    so the folders above it must belong to us or to the system, and if all may write there, the
    sticky bit must keep them from renaming what is not theirs.
    """
    resolved = root.resolve()
    try:
        if reason := _why_not_ours(resolved):
            return reason
        for folder in resolved.parents:
            info = folder.stat()
            if info.st_uid not in (0, os.geteuid()):
                return f"{folder}, above it, belongs to another user"
            if info.st_mode & stat.S_IWOTH and not info.st_mode & stat.S_ISVTX:
                return f"{folder}, above it, can be written by everyone"
    except OSError as error:
        return f"{root} cannot be examined: {error.strerror}"
    return None


def _why_not_ours(folder: Path) -> str | None:
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode):
        return f"{folder} is not a folder"
    if info.st_uid != os.geteuid():
        return f"{folder} belongs to another user"
    if info.st_mode & _OTHERS_WRITE:
        return f"{folder} can be written by others; use chmod go-w"
    return None


def _read_own_file(path: Path) -> tuple[bytes, os.stat_result]:
    """Return the contents of *path* if it is a plain file that only we can write.

    :raises OSError: if it is not.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        is_ours = info.st_uid == os.geteuid() and not info.st_mode & _OTHERS_WRITE
        if not (stat.S_ISREG(info.st_mode) and is_ours):
            raise PermissionError(f"{path} is not a file of ours alone")
        return file.read(), info


# --- the file format -----------------------------------------------------------------------


def encode(key: str, code: bytes, manifest: Mapping[str, Any]) -> bytes:
    """Return the file of an entry: a line of JSON, *code*, and the SHA-256 of both."""
    head = {"format": FORMAT, "key": key, "size": len(code), "manifest": dict(manifest)}
    # Not sorted: the stages of a compilation stand in the order in which they were made.
    body = json.dumps(head, allow_nan=False).encode() + b"\n" + code
    return body + hashlib.sha256(body).digest()


def decode(key: str, data: bytes) -> Entry | None:
    """Return the entry in *data*, or None if it is not whole, or is another key's or format's."""
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        return None
    line, _, code = body.partition(b"\n")
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        return None
    expected = {"format": FORMAT, "key": key, "size": len(code)}
    if not isinstance(head, dict) or any(head.get(k) != v for k, v in expected.items()):
        return None
    manifest = head.get("manifest")
    return Entry(code, manifest) if isinstance(manifest, dict) else None


# --- small tools ---------------------------------------------------------------------------


def _unique_name() -> str:
    # The process number is for people who look; the random part makes it unique, also on NFS.
    return f"{os.getpid()}-{secrets.token_hex(8)}"


def _scan(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _remove_all(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        _remove(path)


_warned: set[str] = set()


def _warn(message: str) -> None:
    """Warn once a process, whatever the warning filters are."""
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, TCWarning, stacklevel=4)


# --- the cache of this process -------------------------------------------------------------


def default_cache() -> Cache:
    """Return the cache that the settings ask for, the same object for the same settings."""
    chosen = settings()
    return _cache_at(chosen.cache_dir or _user_folder()) if chosen.cache else _cache_at(None)


@lru_cache(maxsize=16)
def _cache_at(root: Path | None) -> Cache:
    return Cache(root)


@lru_cache(maxsize=1)
def _user_folder() -> Path:
    import platformdirs  # 3 ms that only a compilation should pay

    return Path(platformdirs.user_cache_dir("tcdsl", appauthor=False))
