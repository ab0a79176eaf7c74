"""Versions of what is installed, from the packages' own metadata: nothing is imported and nothing is started."""

from __future__ import annotations

import importlib.util
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .records import Environment, Gpu
    from .toolchain import Toolchain


@dataclass(frozen=True)
class Torch:
    """The installed torch: its version, the CUDA that it was built for (None: a CPU build), the Triton that it asks for."""

    version: str
    cuda: str | None
    triton: str | None


def version(package: str) -> str | None:
    """The version of an installed distribution, None when it isn't there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def torch() -> Torch | None:
    """What torch's own files say of it; None when it isn't installed."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = _read(Path(spec.origin).with_name("version.py"))
    found = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    cuda = re.search(r"^cuda\s*(?::[^=]*)?=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    return Torch(
        version=found.group(1) if found else version("torch") or "unknown",
        cuda=cuda.group(1) if cuda else None,
        triton=_pinned_triton(),
    )


def describe(gpu: Gpu | None, toolchain: Toolchain) -> Environment:
    """The machine and the versions, for a record."""
    from .. import __version__
    from .records import Environment

    found = torch()
    return Environment(
        python=platform.python_version(),
        platform=platform.platform(),
        pytest=version("pytest") or "unknown",
        plugin=__version__,
        torch=found.version if found else None,
        triton=version("triton"),
        cuda_toolkit=toolchain.nvcc.version if toolchain.nvcc else None,
        gpu=gpu,
    )


def release(text: str) -> tuple[int, ...]:
    """``2.13.0+cpu`` as (2, 13, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _pinned_triton() -> str | None:
    try:
        requires = metadata.requires("torch") or []
    except metadata.PackageNotFoundError:
        return None
    pins = (re.match(r"triton\s*\(?==\s*([\w.]+)", line) for line in requires)
    return next((pin.group(1) for pin in pins if pin), None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
