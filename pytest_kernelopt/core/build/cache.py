"""Finished builds, found again by their content. Safe for several processes, for a kill at any moment and for a full disk.

    <root>/<k>/<key>/      one build: the library, the source as it was compiled, and entry.json, which is written last
    <root>/<k>/<key>.lock  held while that build is made (a lock of the operating system: it goes with its process)
    <root>/sessions/<id>/  one process: its lock, the keys it uses, and its unfinished files

An entry without a valid entry.json does not exist. An entry that a living session uses is never evicted.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Unavailable
from ..folders import cache_folder

if TYPE_CHECKING:
    from ..records import Build

SCHEMA = 1
MAX_BYTES = 4 << 30
_YOUNG_SECONDS = 60.0


# Runs ``triton.compile_launches`` in an "aot" child, on a case that the caller bound: path, entry, arch, scratch -> its result.
Ahead = Callable[[str, str, str, str], dict[str, Any]]


@dataclass(frozen=True)
class Artifact:
    """A finished build. ``path`` is the shared library; None for Triton, which is compiled again where it runs."""

    path: Path | None
    record: Build


def content_key(parts: Iterable[bytes | str]) -> str:
    """sha256 over all parts in order, each with its length, so that no two lists of parts give one text."""
    digest = hashlib.sha256(f"kopt {SCHEMA}".encode())
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


class Cache:
    """A folder of builds: ``root``, else ``KOPT_CACHE_DIR``, else the user's cache folder, bounded at ``max_bytes``.

    Where the folder can't be written, builds go to a temporary one that ends with this process, and ``note`` says so.
    """

    def __init__(self, root: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.note = ""
        self._keys: set[str] = set()
        wanted = (root or cache_folder()).absolute()
        try:
            self.root, self._session = wanted, _open_session(wanted)
        except OSError as error:
            try:
                temporary = tempfile.mkdtemp(prefix="kopt-cache-")
                self.root, self._session = Path(temporary), _open_session(Path(temporary))
            except OSError as second:
                raise Unavailable(
                    f"no folder to build in: {wanted} ({error.strerror}), temporary ({second.strerror})"
                ) from second
            atexit.register(shutil.rmtree, temporary, ignore_errors=True)
            self.note = f"cache folder {wanted} is not writable ({error.strerror}): builds are kept for this session only"

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A new empty folder on the cache's file system, removed afterwards; a later session clears it after a kill."""
        folder = Path(tempfile.mkdtemp(prefix="t", dir=self._session))
        owner = os.getpid()
        try:
            yield folder
        finally:
            if os.getpid() == owner:  # a process forked off this one leaves by the same way
                shutil.rmtree(folder, ignore_errors=True)

    def get_or_build(self, key: str, build: Callable[[Path], tuple[str, Build]], *, wait: float) -> Artifact:
        """The entry of ``key``, built by ``build`` when there is none.

        ``build`` gets the entry's final folder, empty, and returns the library's name in it and the record. When it
        raises, nothing is kept. While another process builds the same key this one waits, at most ``wait`` seconds.
        """
        from filelock import FileLock, Timeout

        folder = self.root / key[:2] / key
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock", timeout=wait):
                self._use(key)
                if found := self._read(folder):
                    return found
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                try:
                    artifact = self._store(folder, *build(folder))
                except BaseException:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
        except Timeout:
            raise Unavailable(f"another process has been building this kernel for {wait:.0f} s ({folder}.lock)") from None
        except OSError as error:
            raise Unavailable(f"cache folder {self.root}: {error.strerror or error}{_remedy(error)}") from error
        self.evict()
        return artifact

    def evict(self) -> None:
        """Remove what dead sessions left, half-written entries, and the entries used longest ago until ``max_bytes`` hold."""
        in_use = set(self._keys)
        for session in (self.root / "sessions").iterdir():
            if session == self._session:
                continue
            if _is_young(session) or _is_alive(session):
                in_use.update(_read_text(session / "keys").split())
            else:
                shutil.rmtree(session, ignore_errors=True)
        entries = []
        for folder in self.root.glob("??/*/"):
            entry = folder / "entry.json"
            with contextlib.suppress(OSError):  # removed by another process meanwhile
                used = (entry if entry.exists() else folder).stat().st_mtime
                size = sum(f.stat().st_size for f in folder.iterdir() if f.is_file())
                entries.append((used if entry.exists() else 0.0, size, folder))
        total = sum(size for _, size, _ in entries)
        for used, size, folder in sorted(entries):
            if used and total <= self.max_bytes:
                break
            if folder.name not in in_use and self._remove(folder, used):
                total -= size

    def _remove(self, folder: Path, used: float) -> bool:
        """Unless it is being built, or was used since ``used`` was read: a session that came meanwhile keeps it."""
        from filelock import FileLock, Timeout

        entry = folder / "entry.json"
        with contextlib.suppress(Timeout, OSError), FileLock(f"{folder}.lock", timeout=0):
            if (entry.stat().st_mtime if entry.exists() else 0.0) == used:
                entry.unlink(missing_ok=True)  # first: a kill half-way leaves no entry
                shutil.rmtree(folder, ignore_errors=True)
                return True
        return False

    def _use(self, key: str) -> None:
        if key not in self._keys:
            self._keys.add(key)
            with contextlib.suppress(OSError), (self._session / "keys").open("a") as file:
                file.write(f"{key}\n")

    def _read(self, folder: Path) -> Artifact | None:
        """The entry, or None when it is missing, half-written, of another schema, or its library is not what was built."""
        from pydantic import ValidationError

        from ..records import Build

        try:
            entry = json.loads((folder / "entry.json").read_bytes())
            library = folder / entry["library"]
            if entry["schema"] != SCHEMA or entry["sha256"] != hashlib.sha256(library.read_bytes()).hexdigest():
                return None
            record = Build.model_validate(entry["record"])
            with contextlib.suppress(OSError):
                os.utime(folder / "entry.json")
        except (OSError, ValueError, KeyError, TypeError, ValidationError):
            return None
        return Artifact(library, self._noted(record.model_copy(update={"cached": True, "seconds": 0.0})))

    def _store(self, folder: Path, library: str, record: Build) -> Artifact:
        digest = hashlib.sha256((folder / library).read_bytes()).hexdigest()
        entry = {"schema": SCHEMA, "library": library, "sha256": digest, "record": record.model_dump(mode="json")}
        half = folder / f"entry.{uuid.uuid4().hex}"
        half.write_text(json.dumps(entry, indent=1), encoding="utf-8")
        half.replace(folder / "entry.json")
        return Artifact(folder / library, self._noted(record))

    def _noted(self, record: Build) -> Build:
        return record.model_copy(update={"notes": (*record.notes, self.note)}) if self.note else record


def _open_session(root: Path) -> Path:
    """A folder for this process with a lock that the operating system releases when the process, and what it forked, ends.

    The descriptor stays open on purpose and is not closed in a forked child by any destructor.
    """
    session = root / "sessions" / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    session.mkdir(parents=True, mode=0o700)
    descriptor = os.open(session / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    (session / "keys").touch()
    atexit.register(_close_session, session, os.getpid())
    return session


def _close_session(session: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(session, ignore_errors=True)


def _is_alive(session: Path) -> bool:
    try:
        descriptor = os.open(session / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_young(path: Path) -> bool:
    """Too new to judge: its lock may not be taken yet."""
    try:
        return time.time() - path.stat().st_mtime < _YOUNG_SECONDS
    except OSError:
        return True


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ": free some space, or set KOPT_CACHE_DIR elsewhere"
    return ": set KOPT_CACHE_DIR to a folder that can be written"
