"""The environment report: is what the collected kernels need here, and what mends what isn't.

``run`` tries things for real (it compiles, imports torch in a process of its own, profiles) and takes some ten seconds;
``header`` only looks and takes some ten milliseconds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from .. import device, environment, nvml
from ..errors import Unavailable
from ..folders import cache_folder
from ..toolchain import Target, Toolchain
from .render import render, write

if TYPE_CHECKING:
    from ..records import Check, Gpu, Preflight
    from ..spec.model import KernelSpec
    from .context import Context

__all__ = ["header", "render", "run", "write"]


def run(
    specs: Sequence[KernelSpec],
    *,
    refused: Sequence[str] = (),
    toolchain: Toolchain | None = None,
    gpu: int | None = None,
    arch: str | None = None,
    cache: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Preflight:
    """Check everything. ``gpu`` and ``arch`` are those of the options, ``cache`` the cache folder, ``refused`` the sentences
    on files that can't be taken as kernels.

    What one of ``specs`` can't do without is ``required``: a GPU and torch always, nvcc and a host compiler for ``.cu``,
    CUTLASS and Triton for theirs. With no specs, what all three backends need. KernelError for a GPU that isn't there.
    """
    from ..records import Preflight
    from .context import Context

    environ = os.environ if environ is None else environ
    toolchain = Toolchain.find(environ=environ) if toolchain is None else toolchain
    try:
        found, why = device.find(gpu, environ), ""
    except Unavailable as error:
        found, why = None, str(error)
    with tempfile.TemporaryDirectory(prefix="kopt-preflight-") as folder:
        context = Context(
            specs=specs,
            refused=refused,
            backends=frozenset(spec.backend for spec in specs) or frozenset(("cuda", "cutlass", "triton")),
            toolchain=toolchain,
            target=_target(arch, found),
            gpu=found,
            why_no_gpu=why,
            torch=environment.torch(),
            environ=environ,
            cache=cache_folder(environ) if cache is None else cache,
            folder=Path(folder),
        )
        checks = tuple(check(context) for check in _checks())
    return Preflight(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        ready=not any(check.required and check.status == "missing" for check in checks),
        environment=environment.describe(found, toolchain),
        checks=checks,
    )


def _checks() -> Sequence[Callable[[Context], Check]]:
    from . import machine, tools

    return (
        machine.gpu,
        machine.capability,
        tools.nvcc,  # leaves a program for those below that run one
        machine.driver,
        machine.torch,
        machine.triton,
        tools.host_compiler,
        tools.python_headers,
        tools.cutlass,
        tools.ncu,
        tools.compute_sanitizer,
        machine.clocks,
        machine.other_processes,
        machine.disk,
        machine.cache_folder,
        machine.references,
    )


def header(
    *,
    toolchain: Toolchain | None = None,
    gpu: int | None = None,
    arch: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[str]:
    """Two lines for pytest's header: the GPU, or what is done without one; and the versions."""
    environ = os.environ if environ is None else environ
    toolchain = Toolchain.find(environ=environ) if toolchain is None else toolchain
    return [f"kernelopt: {_hardware(gpu, arch, environ)}", f"kernelopt: {_versions(toolchain)}"]


def _hardware(index: int | None, arch: str | None, environ: Mapping[str, str]) -> str:
    listed = nvml.listed()
    # GPUs of one kind look the same whichever is used: no need to start the driver to know their order
    alike = listed and index is None and "CUDA_VISIBLE_DEVICES" not in environ and len({(g.name, g.driver) for g in listed}) == 1
    gpu: Gpu | nvml.Listed | None = listed[0] if alike else device.select(index, environ)
    if gpu is None:
        target = Target.parse(arch) if arch else Target()
        doing = f"Triton runs in the interpreter, .cu files are only compiled ({target.arch})"
        return f"no GPU ({device.why_none(environ)}): {doing}"
    target = _target(arch, gpu)
    return f"{gpu.name} ({target.arch}, driver {gpu.driver})"


def _versions(toolchain: Toolchain) -> str:
    torch = environment.torch()
    found = {
        "nvcc": toolchain.nvcc.version if toolchain.nvcc else None,
        "torch": torch.version if torch else None,
        "triton": environment.version("triton"),
        "CUTLASS": toolchain.cutlass.version if toolchain.cutlass else None,
    }
    return ", ".join(f"{name} {version}" if version else f"no {name}" for name, version in found.items())


def _target(arch: str | None, gpu: Gpu | nvml.Listed | None) -> Target:
    if arch:
        return Target.parse(arch)
    return Target.for_gpu(gpu.capability) if gpu else Target()
