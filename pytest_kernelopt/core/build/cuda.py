"""A ``.cu`` file to a shared library, by nvcc, in the cache's own folders: nothing is written beside the user's files.

The compiler works in the entry's folder, on a copy with a plain ASCII name; the user's folder is reached through the
link ``src`` there, so that no path of the user's comes on nvcc's command line. Its messages are given the user's names back.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BuildError, KernelError, Unavailable
from ..spec.model import KernelSpec
from ..toolchain import Target, Toolchain
from . import cutlass, failures, resources, sources
from .cache import Ahead, Artifact, Cache, content_key

if TYPE_CHECKING:
    from ..records import Build

# -g for the host compiler alone gives the DWARF that the signature is checked with; device code is the same byte for byte.
# Own symbols bind inside the library, so a helper named as one of libc's is the one that is called; undefined ones fail here.
BASE_FLAGS = (
    "-O3", "-std=c++17", "-lineinfo", "-Xptxas", "-v", "-shared", "-Xcompiler", "-fPIC", "-Xcompiler", "-g",
    "-Xcompiler", "-iquote,src", "-Xlinker", "-Bsymbolic", "-Xlinker", "--no-undefined",
)  # fmt: skip
_ENVIRONMENT = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
_FOLDER_FLAG = re.compile(r"(-I|-L|-isystem|--include-path=|--library-path=)(.*)")
_LOG_BYTES = 2 << 20
# Waits for the end of its input, which the system closes when the process that builds dies, then kills its own group.
_WATCHED = 'exec 3<&0 </dev/null; (cat <&3; kill -9 0) >/dev/null 2>&1 & exec "$@" 3<&-'


def build(
    spec: KernelSpec,
    target: Target,
    toolchain: Toolchain,
    cache: Cache,
    *,
    flags: Sequence[str] = (),
    timeout: float = 300.0,
    ahead: Ahead | None = None,
) -> Artifact:
    """The library of a CUDA or CUTLASS kernel, compiled or from the cache.

    ``flags`` are the user's, after those of the file's directive; ``timeout`` is in seconds; ``ahead`` is Triton's alone.
    Raises BuildError with the compiler's cause and log, KernelError when the library is not what the file declares,
    Unavailable without a compiler.
    """
    nvcc = toolchain.require_nvcc()
    extra = _checked((*spec.directives.flags, *flags))
    source = sources.read(spec.path, _include_folders(extra))
    with_cutlass = spec.backend == "cutlass" or source.includes(("cutlass/", "cute/"))
    arguments = (*target.gencode, *BASE_FLAGS, *(cutlass.flags(toolchain) if with_cutlass else ()), *nvcc.extra, *extra)
    compiler = _compiler(toolchain, with_cutlass)
    environment = [os.environ.get(name, "") for name in _ENVIRONMENT]
    key = content_key(
        [source.content, LAST_ERROR.read_bytes(), *_header_parts(source), compiler, *arguments, *environment, spec.entry]
    )

    def make(folder: Path) -> tuple[str, Build]:
        from ..records import Build, KernelResources
        from .dwarf import check_signature

        started = time.monotonic()
        with cache.scratch() as scratch:
            library, log = _compile(_Job(source, arguments, target, toolchain, timeout), folder, scratch)
        notes = cutlass.check_sass(library, source.text, target, toolchain, spec.path.name) if with_cutlass else ()
        notes += resources.advice(log) + check_signature(library, spec)
        listed = resources.read_ptxas(log)
        names = resources.readable_names(tuple(kernel.symbol for kernel in listed))
        record = Build(
            backend=spec.backend,
            arch=target.arch,
            compiler=compiler,
            flags=arguments,
            key=key,
            seconds=time.monotonic() - started,
            cached=False,
            binary_bytes=library.stat().st_size,
            kernels=tuple(KernelResources(**k.record(n)) for k, n in zip(listed, names, strict=True)),
            notes=notes,
        )
        return library.name, record

    return cache.get_or_build(key, make, wait=2 * timeout)


_LEAST_FREE = 1 << 20
LAST_ERROR = Path(__file__).with_name("last_error.cuh")


@dataclass(frozen=True)
class _Job:
    source: sources.Source
    arguments: tuple[str, ...]
    target: Target
    toolchain: Toolchain
    timeout: float


def _compile(job: _Job, folder: Path, scratch: Path) -> tuple[Path, str]:
    """Run nvcc in ``folder``; the library there, which appears at once and whole, and the log with the user's file names."""
    nvcc, user = job.toolchain.require_nvcc(), job.source.path
    name = sources.ascii_name(user)
    (folder / name).write_bytes(job.source.content)
    shutil.copyfile(LAST_ERROR, folder / LAST_ERROR.name)
    (folder / "src").symlink_to(user.parent.absolute(), target_is_directory=True)
    made, log_path = scratch / "out.so", scratch / "log"
    command = [str(nvcc.path), *job.arguments, "-include", LAST_ERROR.name, name, "-o", os.path.relpath(made, folder)]
    environment = {**os.environ, "TMPDIR": os.path.relpath(scratch, folder), "LC_ALL": "C"}
    code = run(command, cwd=folder, environment=environment, log=log_path, timeout=job.timeout)
    log = _users_names(log_path.read_bytes()[:_LOG_BYTES].decode("utf-8", "replace"), name, user)
    if code is None:
        raise BuildError(f"{user.name}: nvcc {nvcc.version} was killed after {job.timeout:g} s (time-out of a build)", log)
    if code != 0 or not made.is_file() or "Cannot find valid GPU for '-arch=native'" in log:
        if shutil.disk_usage(folder).free < _LEAST_FREE:  # where the log has no room either, it does not say so
            raise Unavailable(f"no space left for the build in {folder}: {user.name} was not compiled")
        raise failures.explain(failures.Attempt(log, code, job.target, job.toolchain, user.name))
    library = folder / f"{Path(name).stem}.so"
    made.replace(library)
    return library, log


def run(command: Sequence[str], *, cwd: Path, environment: dict[str, str], log: Path, timeout: float) -> int | None:
    """Run a command with all that it starts in a group of its own; its exit code, None when the time was up.

    The whole group ends with it, on a time-out, on Ctrl-C, and when this process is killed.
    """
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                ["sh", "-c", _WATCHED, "sh", *command],
                cwd=cwd, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Unavailable(f"{command[0]} can't be started: {error.strerror}") from error
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _kill_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin:
        process.stdin.close()


def _users_names(log: str, name: str, user: Path) -> str:
    """The copy's name to the user's, and paths through the ``src`` link to the folder behind it."""
    if name != user.name:
        log = re.sub(rf"(?<![\w./]){re.escape(name)}(?=[(:\"])", lambda _: user.name, log)
    return re.sub(r"(?<![\w./])src/", lambda _: f"{user.parent}/", log)


def _checked(flags: Sequence[str]) -> tuple[str, ...]:
    """The user's flags with folders made absolute, as nvcc runs elsewhere; those that choose the arch are refused."""
    done: list[str] = []
    for flag in flags:
        if re.match(r"(-arch|--gpu-architecture|-gencode|--generate-code|-code|--gpu-code)\b", flag):
            raise KernelError(f"compiler flag {flag}: the arch is given with --kopt-arch, so that it is recorded with the result")
        match = _FOLDER_FLAG.fullmatch(flag)
        if match and match.group(2):
            flag = match.group(1) + os.path.abspath(match.group(2))
        elif done and done[-1] in ("-I", "-L", "-isystem", "-include"):
            flag = os.path.abspath(flag)
        done.append(flag)
    return tuple(done)


def _include_folders(flags: Sequence[str]) -> list[Path]:
    joined = [Path(flag[2:]) for flag in flags if flag.startswith("-I") and len(flag) > 2]
    return joined + [Path(value) for flag, value in itertools.pairwise(flags) if flag in ("-I", "-isystem")]


def _header_parts(source: sources.Source) -> list[bytes]:
    parts: list[bytes] = []
    for path, data in source.headers:
        parts += [os.fsencode(os.path.relpath(path, source.path.parent)), data]
    return parts


def _compiler(toolchain: Toolchain, with_cutlass: bool) -> str:
    versions = [f"nvcc {toolchain.require_nvcc().version}", toolchain.host_compiler or "host compiler unknown"]
    if with_cutlass:
        versions.append(f"CUTLASS {toolchain.cutlass.version}" if toolchain.cutlass else "no CUTLASS headers")
    return ", ".join(versions)


def split_flags(text: str) -> tuple[str, ...]:
    """``--kopt-flags`` as one string, split as a shell does."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise KernelError(f"--kopt-flags {text!r}: {error}") from error
