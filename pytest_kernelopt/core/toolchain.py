"""Where the compilers and tools of this machine are, what versions they have, and for which GPU arch to build.

Nothing here imports torch, Triton or CUTLASS: installed packages are found by their folders only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import KernelError, Unavailable

PREFIXES = (Path("/usr/local"), Path("/opt"))
_NVCC_REMEDY = "install the CUDA toolkit, `pip install 'pytest-kernelopt[nvcc]'`, or name it with --kopt-nvcc"


@dataclass(frozen=True)
class Target:
    """The one GPU arch that is built for, as ptxas names it: ``sm_90a``."""

    arch: str = "sm_90a"

    @classmethod
    def parse(cls, text: str) -> Target:
        """``sm_90``, ``compute_90``, ``90a`` are taken as written; a capability (``9.0``) as :meth:`for_gpu` does."""
        match = re.fullmatch(r"\s*(?:(\d{1,2})\.(\d)|(?:sm_|compute_)?(\d{2,3}[af]?))\s*", text)
        if not match:
            raise KernelError(f"--kopt-arch {text!r}: one arch is expected, such as sm_90a, 90a or 9.0")
        major, minor, number = match.groups()
        return cls.for_gpu((int(major), int(minor))) if major else cls(f"sm_{number}")

    @classmethod
    def for_gpu(cls, capability: tuple[int, int]) -> Target:
        """The arch of a GPU; from 9.0 on with the ``a`` that wgmma, TMA multicast and tcgen05 ask for."""
        return cls(f"sm_{capability[0]}{capability[1]}{'a' if capability >= (9, 0) else ''}")

    @property
    def number(self) -> int:
        """90 for ``sm_90a``: ten times the compute capability."""
        return int(re.sub(r"\D", "", self.arch))

    @property
    def gencode(self) -> tuple[str, str]:
        """nvcc's arguments. SASS for exactly this arch: no PTX, so the driver has nothing to compile at load."""
        return "-gencode", f"arch=compute_{self.arch[3:]},code={self.arch}"


@dataclass(frozen=True)
class Nvcc:
    """``extra`` are the arguments that this copy needs to find its own libraries (the PyPI wheels need ``-L``)."""

    path: Path
    version: str
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cutlass:
    """CUTLASS headers: the folders for ``-I`` and the version that ``cutlass/version.h`` states."""

    include: tuple[Path, ...]
    version: str


@dataclass(frozen=True)
class Toolchain:
    """What was found, once for the session. A tool that is missing is None; ``nvcc_missing`` then says where it was sought."""

    nvcc: Nvcc | None = None
    nvcc_missing: str = ""
    host_compiler: str = ""
    cutlass: Cutlass | None = None
    cuobjdump: Path | None = None
    nvdisasm: Path | None = None
    ncu: Path | None = None
    compute_sanitizer: Path | None = None

    @classmethod
    def find(
        cls,
        *,
        nvcc: str | None = None,
        ncu: str | None = None,
        environ: Mapping[str, str] | None = None,
        prefixes: Sequence[Path] = PREFIXES,
    ) -> Toolchain:
        """Look for everything. ``nvcc`` and ``ncu`` are what the user named; KernelError when that is not there."""
        env = os.environ if environ is None else environ
        compiler, missing = None, ""
        try:
            compiler = find_nvcc(nvcc, environ=env, prefixes=prefixes)
        except Unavailable as error:
            missing = str(error)
        return cls(
            nvcc=compiler,
            nvcc_missing=missing,
            host_compiler=host_compiler(env),
            cutlass=find_cutlass(environ=env, prefixes=prefixes),
            cuobjdump=find_tool("cuobjdump", environ=env, prefixes=prefixes),
            nvdisasm=find_tool("nvdisasm", environ=env, prefixes=prefixes),
            ncu=find_tool("ncu", ncu, option="--kopt-ncu-bin", environ=env, prefixes=prefixes),
            compute_sanitizer=find_tool("compute-sanitizer", environ=env, prefixes=prefixes),
        )

    def require_nvcc(self) -> Nvcc:
        if self.nvcc is None:
            raise Unavailable(self.nvcc_missing or f"nvcc was not found: {_NVCC_REMEDY}")
        return self.nvcc


def find_nvcc(
    explicit: str | None = None, *, environ: Mapping[str, str] | None = None, prefixes: Sequence[Path] = PREFIXES
) -> Nvcc:
    """The nvcc to use: the one named, else PATH, CUDA_HOME, CUDA_PATH, ``<prefix>/cuda*``, the cuda-toolkit wheels.

    Raises KernelError for a named one that does not run, Unavailable with every place that was tried when there is none.
    """
    env = os.environ if environ is None else environ
    if explicit:
        found = shutil.which(explicit, path=env.get("PATH", ""))
        version = found and _nvcc_version(Path(found))
        if not found or not version:
            raise KernelError(f"--kopt-nvcc {explicit}: " + ("it does not run as nvcc" if found else "no such program"))
        return Nvcc(Path(found).absolute(), version, _wheel_flags(Path(found).absolute()))
    tried = []
    for place, path in _nvcc_candidates(env, prefixes):
        if path is None or not _is_program(path):
            tried.append(place)
        elif not (version := _nvcc_version(path)):
            tried.append(f"{place} (is there but does not run)")
        else:
            return Nvcc(path, version, _wheel_flags(path))
    raise Unavailable(f"nvcc was not found (tried {', '.join(tried)}): {_NVCC_REMEDY}")


def _nvcc_candidates(env: Mapping[str, str], prefixes: Sequence[Path]) -> Iterator[tuple[str, Path | None]]:
    found = shutil.which("nvcc", path=env.get("PATH", ""))
    yield "PATH", Path(found) if found else None
    for name in ("CUDA_HOME", "CUDA_PATH"):
        home = env.get(name)
        yield (f"{name}={home}", Path(home, "bin", "nvcc")) if home else (f"{name} (not set)", None)
    for prefix in prefixes:
        installed = _newest_first(prefix, "cuda*/bin/nvcc")
        if not installed:
            yield f"{prefix}/cuda*", None
        for path in installed:
            yield str(path), path
    wheels = [path for folder in _package_folders("nvidia") for path in _newest_first(folder, "cu*/bin/nvcc")]
    if not wheels:
        yield "the cuda-toolkit wheels", None
    for path in wheels:
        yield str(path), path


def _wheel_flags(nvcc: Path) -> tuple[str, ...]:
    """The wheels keep libraries in ``lib`` where nvcc's own profile looks in ``lib64``; older ones, a folder for each part."""
    top = nvcc.parent.parent
    if top.parent.name != "nvidia":
        return ()
    if top.name.startswith("cu1"):
        return (f"-L{top / 'lib'}",)
    folders = [(flag, path) for flag, part in (("-I", "include"), ("-L", "lib")) for path in sorted(top.parent.glob(f"*/{part}"))]
    return tuple(f"{flag}{path}" for flag, path in folders)


def find_cutlass(*, environ: Mapping[str, str] | None = None, prefixes: Sequence[Path] = PREFIXES) -> Cutlass | None:
    """CUTLASS headers: CUTLASS_PATH, then CUTLASS_INCLUDE_DIR; else the newest of the nvidia-cutlass package and ``prefixes``."""
    env = os.environ if environ is None else environ
    for name in ("CUTLASS_PATH", "CUTLASS_INCLUDE_DIR"):
        if env.get(name) and (named := _cutlass_at(Path(env[name]))):
            return named
    roots = [folder / "source" for folder in _package_folders("cutlass_library")]
    roots += [path for prefix in prefixes for path in sorted(prefix.glob("cutlass*"))]
    found = [cutlass for root in roots if (cutlass := _cutlass_at(root))]
    return max(found, key=lambda c: _numbers(c.version), default=None)


def _cutlass_at(root: Path) -> Cutlass | None:
    for include in (root / "include", root):
        header = include / "cutlass" / "version.h"
        if header.is_file():
            text = header.read_text(encoding="utf-8", errors="replace")
            numbers = [re.search(rf"#define\s+CUTLASS_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
            util = include.parent / "tools" / "util" / "include"
            folders = (include.absolute(), *((util.absolute(),) if util.is_dir() else ()))
            return Cutlass(folders, ".".join(m.group(1) if m else "0" for m in numbers))
    return None


def find_tool(
    name: str,
    explicit: str | None = None,
    *,
    option: str = "",
    environ: Mapping[str, str] | None = None,
    prefixes: Sequence[Path] = PREFIXES,
) -> Path | None:
    """A tool beside nvcc (``cuobjdump``, ``ncu``...): named, on PATH, in a toolkit, in NVIDIA's wheels, or Triton's own copy."""
    env = os.environ if environ is None else environ
    path = shutil.which(explicit or name, path=env.get("PATH", ""))
    if explicit and not path:
        raise KernelError(f"{option} {explicit}: no such program")
    if path:
        return Path(path)
    homes = [Path(env[key]) for key in ("CUDA_HOME", "CUDA_PATH") if env.get(key)]
    homes += [p for prefix in prefixes for p in _newest_first(prefix, "cuda*")]
    places = [home / "bin" / name for home in homes] + [home / name / name for home in homes]
    for prefix in prefixes:
        places += [p / name for p in _newest_first(prefix, "nvidia/nsight-compute/*")]
    for folder in _package_folders("nvidia"):
        places += [*_newest_first(folder, f"*/bin/{name}"), *_newest_first(folder, f"*/{name}/{name}")]
    places += [folder / "backends" / "nvidia" / "bin" / name for folder in _package_folders("triton")]
    return next((place for place in places if _is_program(place)), None)


def host_compiler(environ: Mapping[str, str]) -> str:
    """The C++ compiler that nvcc calls, with its version: ``g++ 12.2.0``; empty when there is none."""
    name = environ.get("NVCC_CCBIN") or "g++"
    path = shutil.which(name, path=environ.get("PATH", ""))
    version = _output([path, "-dumpfullversion", "-dumpversion"]).strip() if path else ""
    return f"{Path(name).name} {version}" if version else ""


def tool_version(path: Path) -> str:
    """What ``path --version`` states (``2025.3.1.0``), empty when it states none."""
    match = re.search(r"\b[vV]?(?:ersion )?(\d+\.\d+(?:\.\d+)*)", _output([path, "--version"]))
    return match.group(1) if match else ""


def _nvcc_version(path: Path) -> str:
    match = re.search(r"release (\d+\.\d+)(?:, V([\d.]+))?", _output([path, "--version"]))
    return (match.group(2) or match.group(1)) if match else ""


def _output(command: Sequence[str | Path]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def _package_folders(name: str) -> list[Path]:
    """Where an installed package lies; found without importing it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(p) for p in spec.submodule_search_locations or ()] if spec else []


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _newest_first(folder: Path, pattern: str) -> list[Path]:
    """By the version in the name; a name without one (``/usr/local/cuda``, the administrator's choice) comes first."""
    return sorted(folder.glob(pattern), key=lambda p: _numbers(str(p.relative_to(folder))) or (1 << 30,), reverse=True)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text))
