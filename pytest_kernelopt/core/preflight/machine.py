"""GPU, driver, torch, Triton, folders, references: what a run finds around it."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .. import device, environment, nvml
from ..toolchain import Target
from .context import Context, first_line, result
from .tools import driver_runs_it

if TYPE_CHECKING:
    from ..records import Check

_LEAST_TORCH = (2, 11)
_TRITON = ((3, 6), (3, 10))  # from, below
_LITTLE_BYTES, _LEAST_BYTES = 2 << 30, 200 << 20
_IMPORT_SECONDS = 180.0
_TORCH_REMEDY = "pip install --force-reinstall torch, and not from a CPU-only index"
_IMPORT = """
import json, sys, torch
cuda = torch.cuda.is_available() if sys.argv[1] == "gpu" else False
print(json.dumps({"cuda": cuda, "archs": torch.cuda.get_arch_list() if cuda else []}))
"""


def gpu(context: Context) -> Check:
    found = context.gpu
    if found is None:
        remedy = "on a machine with an NVIDIA GPU: install its driver, and check with nvidia-smi"
        if "CUDA_VISIBLE_DEVICES" in context.why_no_gpu:
            remedy = "unset CUDA_VISIBLE_DEVICES"
        return result("GPU", "missing", context.why_no_gpu, remedy, required=True)
    detail = (
        f"cuda:{found.index} {found.name}, {found.memory_bytes / 2**30:.0f} GiB, {found.sm_count} SMs, "
        f"L2 {found.l2_bytes / 2**20:.0f} MiB, {found.uuid}"
    )
    return result("GPU", "ok", detail, required=True)


def capability(context: Context) -> Check:
    name, found = "compute capability", context.gpu
    if found is None:
        return result(name, "warning", f"no GPU: kernels are compiled for {context.target.arch}", "choose with --kopt-arch")
    own = Target.for_gpu(found.capability)
    detail = f"{found.capability[0]}.{found.capability[1]}: kernels are compiled for {context.target.arch}"
    if found.capability < (7, 5):
        return result(name, "missing", f"{detail}; Triton and CUDA 13 need 7.5 or above", "use a newer GPU", required=True)
    if context.target.number != own.number:
        return result(name, "missing", f"{detail}, which this GPU can't run", f"--kopt-arch {own.arch}", required=True)
    return result(name, "ok", detail, required=True)


def driver(context: Context) -> Check:
    """The driver against the toolkit: by version, and by running what was compiled."""
    name, nvcc = "driver", context.toolchain.nvcc
    if context.gpu is None:
        return result(name, "missing", context.why_no_gpu, "install the NVIDIA driver", required=True)
    highest = nvml.driver_cuda()
    detail = f"driver {context.gpu.driver}" + (f", CUDA up to {highest[0]}.{highest[1]}" if highest else "")
    toolkit = environment.release(nvcc.version) if nvcc else ()
    if highest and toolkit and toolkit[0] > highest[0]:
        remedy = f"update the driver, or use a CUDA {highest[0]} toolkit"
        return result(name, "missing", f"{detail}; nvcc is {toolkit[0]}.{toolkit[1]}", remedy, required=context.needs_nvcc)
    built_for = environment.release(context.torch.cuda) if context.torch and context.torch.cuda else ()
    if highest and built_for and built_for[0] > highest[0]:
        remedy = f"update the driver, or install a torch that is built for CUDA {highest[0]}"
        return result(name, "missing", f"{detail}; torch is built for CUDA {built_for[0]}.{built_for[1]}", remedy, required=True)
    if context.program and (wrong := driver_runs_it(context, context.program)):
        return result(name, "missing", f"{detail}; a compiled kernel does not run: {wrong}", "update the driver", required=True)
    ran = "; a compiled kernel runs" if context.program else ""
    return result(name, "ok", f"{detail}{ran}", required=True)


def torch(context: Context) -> Check:
    """The build by its metadata, and whether it can be imported and sees the GPU, in a process of its own."""
    name, found = "torch", context.torch
    if found is None:
        return result(name, "missing", "torch is not installed", "pip install 'torch>=2.11'", required=True)
    build = f"for CUDA {found.cuda}" if found.cuda else "CPU build"
    detail = f"torch {found.version}, {build}"
    if environment.release(found.version) < _LEAST_TORCH:
        return result(name, "missing", f"{detail}; 2.11 or above is needed", "pip install -U torch", required=True)
    if context.gpu is not None and found.cuda is None:
        return result(name, "missing", f"{detail}, on a machine with a GPU", _TORCH_REMEDY, required=True)
    mode = "gpu" if context.gpu else "cpu"
    status, output = context.execute([sys.executable, "-c", _IMPORT, mode], seconds=_IMPORT_SECONDS)
    last = output.strip().splitlines()[-1:] or [""]
    if status != 0 or not last[0].startswith("{"):
        detail = f"{detail}; it can't be imported: {last[0] or first_line(output, status)}"
        return result(name, "missing", detail, _TORCH_REMEDY, required=True)
    if context.gpu is None:
        return result(name, "ok", f"{detail}, imports", required=True)
    seen = json.loads(last[0])
    if not seen["cuda"]:
        return result(name, "missing", f"{detail}, does not see the GPU", _TORCH_REMEDY, required=True)
    return result(name, "ok", f"{detail}, sees the GPU", required=True)


def triton(context: Context) -> Check:
    name, required = "Triton", "triton" in context.backends
    found = environment.version("triton")
    pinned = context.torch.triton if context.torch else None
    if found is None:
        package = f"triton=={pinned}" if pinned else "'triton>=3.6,<3.10'"
        return result(name, "missing", "triton is not installed", f"pip install {package}", required=required)
    if not _TRITON[0] <= environment.release(found)[:2] < _TRITON[1]:
        detail = f"triton {found}; 3.6 to 3.9 are supported"
        return result(name, "missing", detail, "pip install 'triton>=3.6,<3.10'", required=required)
    status, output = context.execute([sys.executable, "-c", "import triton.language"], seconds=_IMPORT_SECONDS)
    if status != 0:
        last = output.strip().splitlines()[-1:] or [first_line(output, status)]
        return result(
            name,
            "missing",
            f"triton {found} can't be imported: {last[0]}",
            f"pip install --force-reinstall triton=={found}",
            required=required,
        )
    if pinned and pinned != found:
        detail = f"triton {found}, but this torch was made with {pinned}"
        return result(name, "warning", detail, f"pip install triton=={pinned}", required=required)
    return result(name, "ok", f"triton {found}", required=required)


def clocks(context: Context) -> Check:
    name = "clocks"
    if context.gpu is None:
        return result(name, "warning", "no GPU")
    handle = nvml.handle(context.gpu.uuid)
    sm, memory = nvml.clocks(handle) if handle is not None else (None, None)
    if sm is None or memory is None:
        _, why = nvml.library()
        return result(name, "warning", f"the clocks can't be read: {why or 'the driver does not tell them'}", "check nvidia-smi")
    most, most_memory = nvml.max_clocks(handle)
    detail = f"SM {sm} MHz now, at most {most or '?'}; memory {memory} MHz, at most {most_memory or '?'}"
    reasons = nvml.throttle_reasons(handle)
    if reasons:
        return result(name, "warning", f"{detail}; held back by {', '.join(reasons)}", "nvidia-smi -q -d PERFORMANCE,CLOCK")
    return result(name, "ok", detail)


def other_processes(context: Context) -> Check:
    name = "other processes"
    if context.gpu is None:
        return result(name, "warning", "no GPU")
    others = device.conditions(context.gpu.uuid).other_processes
    if others is None:
        return result(name, "ok", "can't be told apart here (container, or no NVML)")
    if others:
        remedy = (
            "end them or choose another GPU with --kopt-gpu: nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv"
        )
        return result(name, "warning", f"{others} other process(es) use this GPU: times will be disturbed", remedy)
    return result(name, "ok", "none on this GPU")


def disk(context: Context) -> Check:
    place = next(p for p in (context.cache, *context.cache.parents) if p.exists())
    free = shutil.disk_usage(place).free
    detail = f"{free / 2**30:.1f} GiB free for the cache ({place})"
    remedy = "free some space, or set KOPT_CACHE_DIR to a larger disk"
    if free < _LEAST_BYTES:
        return result("disk", "missing", detail, remedy, required=True)
    return result("disk", "ok" if free >= _LITTLE_BYTES else "warning", detail, None if free >= _LITTLE_BYTES else remedy)


def cache_folder(context: Context) -> Check:
    """Builds fall back to a temporary folder, so this one is no obstacle."""
    try:
        context.cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=context.cache, prefix=".preflight-"):
            return result("cache folder", "ok", f"{context.cache} can be written to")
    except OSError as error:
        detail = f"{context.cache} can't be written to ({error.strerror}): every session builds anew"
        return result("cache folder", "warning", detail, "set KOPT_CACHE_DIR to a folder of yours")


def references(context: Context) -> Check:
    """A kernel without a reference is built and timed, and its correctness skipped."""
    name = "references"
    if context.refused:
        total = f"{len(context.refused)} of {len(context.refused) + len(context.specs)} files can't be taken as kernels"
        return result(name, "missing", f"{total}: {context.refused[0]}", "mend what the sentence says", required=True)
    if not context.specs:
        return result(name, "warning", "no kernel was collected", "name a folder or file: pytest kernels/ --kopt-preflight-only")
    without = [spec for spec in context.specs if spec.reference is None]
    total = f"{len(context.specs)} kernel" + ("s" if len(context.specs) > 1 else "")
    if not without:
        return result(name, "ok", f"{total}, each with its reference")
    shown = ", ".join(spec.path.name for spec in without[:5]) + (f" and {len(without) - 5} more" if len(without) > 5 else "")
    wanted = without[0].looked_for[-1] if without[0].looked_for else f"{without[0].path.stem}_ref.py"
    detail = f"{len(without)} of {total} without a reference, so unverified: {shown}"
    return result(name, "warning", detail, f"write {Path(wanted).name} beside it")
