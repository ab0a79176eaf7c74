"""NVML behind functions that answer None instead of raising: what can't be read is absent, never a guess.

NVML counts GPUs by PCI bus and ignores CUDA_VISIBLE_DEVICES, so everything here is asked by UUID.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# nvmlClocksEventReasons of nvml.h; "GPU idle" (0x1) and "none" (0) are no reasons of slowness
_REASONS = {
    0x2: "application clocks setting",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}


@dataclass(frozen=True)
class Listed:
    """A GPU that the driver manages, visible to CUDA or not; ``index`` is nvidia-smi's."""

    index: int
    name: str
    uuid: str
    capability: tuple[int, int]
    driver: str


@functools.cache
def library() -> tuple[Any, str | None]:
    """pynvml, initialised once for the process, and None; or None and the reason why there is no NVML."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the retired package "pynvml" has the same module name
            import pynvml
    except ImportError as error:
        return None, f"nvidia-ml-py cannot be imported: {error}"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"NVML does not start: {error}"
    return pynvml, None


def ask(read: Callable[[Any], Any]) -> Any:
    """``read(pynvml)``, or None where this GPU, driver or user can't have it."""
    pynvml, _ = library()
    if pynvml is None:
        return None
    try:
        return read(pynvml)
    except (pynvml.NVMLError, UnicodeDecodeError, AttributeError):  # AttributeError: an older nvidia-ml-py lacks the call
        return None


def listed() -> list[Listed]:
    """Every GPU of the machine, in PCI order; empty where NVML is not to be had."""
    count = ask(lambda n: n.nvmlDeviceGetCount()) or 0
    found = (ask(functools.partial(_listed, index=index)) for index in range(count))
    return [gpu for gpu in found if gpu is not None]


def _listed(pynvml: Any, *, index: int) -> Listed:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Listed(
        index=index,
        name=pynvml.nvmlDeviceGetName(handle),
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        capability=tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        driver=pynvml.nvmlSystemGetDriverVersion(),
    )


def driver_version() -> str | None:
    version = ask(lambda n: n.nvmlSystemGetDriverVersion())
    return None if version is None else str(version)


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA that the driver runs, as (major, minor)."""
    number = ask(lambda n: n.nvmlSystemGetCudaDriverVersion())
    return None if number is None else (number // 1000, number % 1000 // 10)


def full_uuid(bare: str) -> str:
    """The UUID with its prefix: ``MIG-`` when NVML knows it as an instance, else ``GPU-``."""
    return f"MIG-{bare}" if ask(lambda n: n.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")) is not None else f"GPU-{bare}"


def handle(uuid: str) -> Any:
    """NVML's handle of the GPU; of the whole GPU for a MIG instance, which has no clocks of its own."""
    found = ask(lambda n: n.nvmlDeviceGetHandleByUUID(uuid))
    if found is not None and uuid.startswith("MIG-"):
        return ask(lambda n: n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found))
    return found


def clocks(device: Any) -> tuple[int | None, int | None]:
    """SM and memory clock in MHz, now."""
    sm = ask(lambda n: n.nvmlDeviceGetClockInfo(device, n.NVML_CLOCK_SM))
    memory = ask(lambda n: n.nvmlDeviceGetClockInfo(device, n.NVML_CLOCK_MEM))
    return sm, memory


def max_clocks(device: Any) -> tuple[int | None, int | None]:
    """The highest SM and memory clock in MHz that the GPU is made for."""
    sm = ask(lambda n: n.nvmlDeviceGetMaxClockInfo(device, n.NVML_CLOCK_SM))
    memory = ask(lambda n: n.nvmlDeviceGetMaxClockInfo(device, n.NVML_CLOCK_MEM))
    return sm, memory


def throttle_reasons(device: Any) -> tuple[str, ...]:
    """Why the clocks are below their maximum now; also empty where the driver doesn't say."""
    mask = ask(lambda n: n.nvmlDeviceGetCurrentClocksEventReasons(device))
    if mask is None:  # its name before driver 535
        mask = ask(lambda n: n.nvmlDeviceGetCurrentClocksThrottleReasons(device))
    return tuple(name for bit, name in _REASONS.items() if (mask or 0) & bit)


def compute_pids(device: Any) -> set[int] | None:
    """PIDs with a compute context on the GPU; in a container the numbers may be those of the host."""
    processes = ask(lambda n: n.nvmlDeviceGetComputeRunningProcesses(device))
    return None if processes is None else {int(p.pid) for p in processes}
