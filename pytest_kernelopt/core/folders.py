"""Where the plugin keeps what outlives a session, and how a file gets there whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """``KOPT_CACHE_DIR``, else the user's cache folder of this platform. Not made here."""
    environ = os.environ if environ is None else environ
    if named := environ.get("KOPT_CACHE_DIR"):
        return Path(named).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("pytest-kernelopt")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new and never a part, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    """The process's file mode mask, read without changing it: setting it, even for a moment, would reach other threads."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("Umask:")[2].split()[0], 8)
    except (OSError, IndexError, ValueError):
        return 0o022
