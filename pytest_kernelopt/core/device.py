"""The GPUs of this machine, as CUDA counts them, and the state that one is in. No CUDA context, no torch.

CUDA's driver names and orders the devices (in a short process of its own, which obeys CUDA_VISIBLE_DEVICES as CUDA does);
NVML, matched by UUID, says how they are.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from . import nvml
from .errors import KernelError, Unavailable

if TYPE_CHECKING:
    from .records import Conditions, Gpu

_PROBE_SECONDS = 60.0  # the driver of a machine without persistence mode wakes every GPU first
_NO_DEVICE = 100
_REMEDIES = {
    3: "the driver is being unloaded",
    802: "the system is not ready: on an NVSwitch machine nvidia-fabricmanager must be running",
    803: "driver library and kernel module are of different versions: reboot, or restart the container",
    804: "the CUDA compatibility package does not support this GPU: remove it from LD_LIBRARY_PATH",
}
_HOST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel


def gpus(environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """The GPUs that a process with this environment sees, ``index`` being that of ``cuda:<index>``; [] when there are none."""
    devices, _ = _probe(_relevant(environ))
    if not devices:
        return []
    from .records import Gpu

    driver = nvml.driver_version() or _kernel_module_version()
    return [
        Gpu(
            index=index,
            name=device["name"],
            uuid=nvml.full_uuid(device["uuid"]),
            capability=(device["major"], device["minor"]),
            driver=driver,
            memory_bytes=device["memory_bytes"],
            l2_bytes=device["l2_bytes"],
            sm_count=device["sm_count"],
        )
        for index, device in enumerate(devices)
    ]


def find(index: int | None = None, environ: Mapping[str, str] | None = None) -> Gpu:
    """The GPU to use: number ``index`` of the visible ones, else the first; ``Unavailable`` says why there is none."""
    visible = gpus(environ)
    if not visible:
        raise Unavailable(why_none(environ))
    if index is not None and not 0 <= index < len(visible):
        shown = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in visible)
        raise KernelError(f"--kopt-gpu {index}: no such GPU; this process sees {shown}")
    return visible[index or 0]


def select(index: int | None = None, environ: Mapping[str, str] | None = None) -> Gpu | None:
    """As ``find``, with None for a machine without a usable GPU."""
    try:
        return find(index, environ)
    except Unavailable:
        return None


def why_none(environ: Mapping[str, str] | None = None) -> str:
    """One sentence on why no GPU is visible."""
    environ = os.environ if environ is None else environ
    _, error = _probe(_relevant(environ))
    code = error["code"] if error else _NO_DEVICE
    if code == 0:
        if Path("/proc/driver/nvidia/version").exists():
            return "the NVIDIA kernel driver is loaded but libcuda.so.1 is not found: start the container with --gpus all"
        return "no NVIDIA driver: libcuda.so.1 is not found"
    if code == -1 or error is None:
        return error["name"] if error else "the NVIDIA driver finds no GPU"
    closed = [path for path in sorted(Path("/dev").glob("nvidia[0-9c]*")) if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        return f"permission: this user may not open {closed[0]}"
    if code == _NO_DEVICE:
        hidden = environ.get("CUDA_VISIBLE_DEVICES")
        return "the NVIDIA driver finds no GPU" if hidden is None else f"CUDA_VISIBLE_DEVICES={hidden!r} leaves no GPU visible"
    remedy = _REMEDIES.get(code)
    return f"the CUDA driver does not start: {error['name']} ({code})" + (f": {remedy}" if remedy else "")


def conditions(uuid: str, ours: Collection[int] | None = None) -> Conditions:
    """Clocks, throttle reasons and other users of the GPU now.

    ``ours`` are the PIDs that are no strangers: when None, this process and all that descend from it.
    """
    from .records import Conditions

    device = nvml.handle(uuid)
    if device is None:
        return Conditions()
    sm, memory = nvml.clocks(device)
    return Conditions(
        sm_clock_mhz=sm,
        memory_clock_mhz=memory,
        throttle_reasons=nvml.throttle_reasons(device),
        other_processes=_others(nvml.compute_pids(device), family() if ours is None else set(ours)),
    )


def disturbances(seen: Conditions) -> tuple[str, ...]:
    """What makes times taken then doubtful, in words. A power limit is part of a GPU and no disturbance."""
    found = [reason for reason in seen.throttle_reasons if "thermal" in reason or "hardware" in reason]
    if seen.other_processes:
        found.append("1 other process on it" if seen.other_processes == 1 else f"{seen.other_processes} other processes on it")
    return tuple(found)


class Monitor:
    """Watches a GPU from a thread while something runs on it: ``with Monitor(uuid) as m: ...``, then ``m.conditions``.

    ``every`` is the time between two looks in seconds. Clocks are the medians of the looks, with the SM clock's extremes
    beside it; throttle reasons are all that were seen at any look.
    """

    def __init__(self, uuid: str, *, ours: Collection[int] | None = None, every: float = 0.02) -> None:
        from .records import Conditions

        self.conditions = Conditions()
        self._uuid = uuid
        self._ours = ours
        self._every = every
        self._over = threading.Event()
        self._looks: list[tuple[int | None, int | None]] = []
        self._reasons: dict[str, None] = {}
        self._thread: threading.Thread | None = None

    @property
    def undisturbed(self) -> bool:
        """Whether no other process was there, and nothing but its power limit held the GPU back."""
        return not disturbances(self.conditions)

    def __enter__(self) -> Monitor:
        device = nvml.handle(self._uuid)
        if device is not None:
            self._thread = threading.Thread(target=self._watch, args=(device,), daemon=True, name="kernelopt-monitor")
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        from .records import Conditions

        if self._thread is None:
            return
        self._over.set()
        self._thread.join()
        sm = [look[0] for look in self._looks if look[0] is not None]
        memory = [look[1] for look in self._looks if look[1] is not None]
        self.conditions = Conditions(
            sm_clock_mhz=round(median(sm)) if sm else None,
            sm_clock_min_mhz=min(sm, default=None),
            sm_clock_max_mhz=max(sm, default=None),
            memory_clock_mhz=round(median(memory)) if memory else None,
            throttle_reasons=tuple(self._reasons),
            other_processes=conditions(self._uuid, self._ours).other_processes,
        )

    def _watch(self, device: Any) -> None:
        while True:
            self._looks.append(nvml.clocks(device))
            self._reasons.update(dict.fromkeys(nvml.throttle_reasons(device)))
            if self._over.wait(self._every):
                return


def family() -> set[int]:
    """This process and all that descend from it."""
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text(errors="replace")
            except OSError:
                continue  # it ended while we looked
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= grown
    return found


def _others(pids: set[int] | None, ours: set[int]) -> int | None:
    """How many PIDs are not ours; None where NVML counts in another PID namespace, so that ours can't be told from others."""
    if not pids:
        return None if pids is None else 0
    if not pids & ours and _pid_namespace() != _HOST_PID_NAMESPACE:
        return None
    return len(pids - ours)


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _relevant(environ: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    environ = os.environ if environ is None else environ
    return tuple(sorted(environ.items()))


@functools.lru_cache(maxsize=8)
def _probe(environ: tuple[tuple[str, str], ...]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The devices of ``cuda_probe`` and its error; code -1 is a probe that did not answer."""
    script = Path(__file__).with_name("cuda_probe.py")
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(script)],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return [], {"code": -1, "name": f"the CUDA driver did not answer within {_PROBE_SECONDS:.0f} s"}
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        return [], {"code": -1, "name": f"the CUDA driver cannot be asked: {error}"}
    return answer["devices"], answer["error"]


def _kernel_module_version() -> str:
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return "unknown"
