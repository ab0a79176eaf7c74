"""What a GPU can do at most: memory, L2 and matmul rates, measured once per GPU, driver and torch, and kept in a file.

``measure`` runs in a GPU child; torch is imported inside it only. Everything else is the parent's.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..folders import write_whole

if TYPE_CHECKING:
    from ..isolate.child import ChildState
    from ..records import Gpu

SCHEMA = 1
_RUN_MS = 12.0  # one timed run: long enough for events to be exact, short enough for three seconds in all
_RUNS = 3
_L2_BYTES_PER_CLOCK = 64  # the port of one SM to the L2, Volta to Hopper


@dataclass(frozen=True)
class Ceilings:
    """Rates in GB/s (1e9 bytes) and TFLOP/s (1e12); None or absent where it could not be measured, never 0.

    ``dram_copy_gb_s`` counts bytes read plus bytes written. ``tflops`` are torch.matmul's on normally distributed numbers, by
    torch dtype, with ``tf32`` beside ``float32``. The peaks bound what any kernel could do: ``dram_peak_gb_s`` is memory clock
    x 2 x bus width, ``l2_peak_gb_s`` what the SMs' ports take at the highest clock, ``tflops_peak`` the same matmuls on zeros,
    which draw little power and so run at the highest clocks.
    """

    dram_read_gb_s: float | None = None
    dram_copy_gb_s: float | None = None
    l2_gb_s: float | None = None
    tflops: Mapping[str, float] = field(default_factory=dict)
    dram_peak_gb_s: float | None = None
    l2_peak_gb_s: float | None = None
    tflops_peak: Mapping[str, float] = field(default_factory=dict)

    @property
    def dram_gb_s(self) -> float | None:
        """The highest memory rate that was measured."""
        return max(filter(None, (self.dram_read_gb_s, self.dram_copy_gb_s)), default=None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ceilings:
        return cls(**{f.name: data[f.name] for f in fields(cls) if f.name in data})


def path_for(folder: Path, gpu: Gpu, torch_version: str) -> Path:
    """The file of this GPU, driver and torch, in the cache folder."""
    name = re.sub(r"[^\w.+-]", "_", f"{gpu.uuid}-{gpu.driver}-torch{torch_version}")
    return folder / "ceilings" / f"{name}.json"


def load(path: Path) -> Ceilings | None:
    """What was measured before; None where there is no such file, or one that is damaged or of another schema."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Ceilings.from_json(data["ceilings"]) if data["schema_version"] == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(path: Path, ceilings: Ceilings) -> None:
    write_whole(path, json.dumps({"schema_version": SCHEMA, "ceilings": ceilings.to_json()}, indent=1) + "\n")


def obtain(
    folder: Path, gpu: Gpu, torch_version: str, measured: Callable[[], Mapping[str, Any]], *, undisturbed: Callable[[], bool]
) -> Ceilings:
    """The ceilings of this GPU: from the file, else by ``measured`` (which calls ``measure`` in a child).

    They are kept where ``undisturbed`` then says so: those of a busy or throttled GPU would make honest kernels look too
    fast ever after. A cache folder that can't be written to costs the next session three seconds and is no error.
    """
    path = path_for(folder, gpu, torch_version)
    known = load(path)
    if known is None:
        known = Ceilings.from_json(measured())
        with contextlib.suppress(OSError):
            if undisturbed():
                save(path, known)
    return known


def measure(state: ChildState) -> dict[str, Any]:
    """Measure everything on the GPU of this child; about two seconds. The arguments of ``Ceilings``, as JSON."""
    import torch

    settings = torch.backends.cuda.matmul
    before = torch.get_float32_matmul_precision(), settings.allow_fp16_accumulation
    try:
        _wake_clocks(torch)
        found = {**_memory(torch), **_matmuls(torch), **_peaks(torch)}
    finally:
        torch.set_float32_matmul_precision(before[0])
        settings.allow_fp16_accumulation = before[1]
        torch.cuda.empty_cache()
    return Ceilings.from_json(found).to_json()


def _wake_clocks(torch: Any) -> None:
    a = torch.zeros(4096, 4096, dtype=torch.float16, device="cuda")
    _best_ms(torch, lambda: a @ a, run_ms=60.0, runs=1)


def _best_ms(torch: Any, call: Callable[[], object], *, run_ms: float = _RUN_MS, runs: int = _RUNS) -> float:
    """The least time of one call, in ms: events round runs of many calls, so that neither launch nor event weighs."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(calls: int) -> float:
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / calls

    once(1)  # loads the kernels
    calls = max(1, min(1000, round(run_ms / max(once(1), 1e-3))))
    return min(once(calls) for _ in range(runs))


def _memory(torch: Any) -> dict[str, float]:
    """DRAM and L2 rates. The buffers are 1 GiB, or a sixth of the free memory where that is less."""
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    free, _ = torch.cuda.mem_get_info()
    count = min(1 << 30, free // 6) // 4
    found = {}
    if count * 4 > 4 * l2:
        source = torch.zeros(count, device="cuda")
        target = torch.empty_like(source)
        found["dram_copy_gb_s"] = 2 * count * 4 / _best_ms(torch, lambda: target.copy_(source)) / 1e6
        read_ms = min(_best_ms(torch, read) for read in (source.sum, source.amax))
        found["dram_read_gb_s"] = count * 4 / read_ms / 1e6
        del source, target
    if l2:
        # rows that are all the same memory, each summed from end to end: the L2 answers all but the first
        width = l2 // 4 // 4
        rows = min((2**31 - 1) // width, 4096)
        small = torch.zeros(width, device="cuda").expand(rows, width)
        found["l2_gb_s"] = rows * width * 4 / _best_ms(torch, lambda: small.sum(dim=1)) / 1e6
    return found


def _matmuls(torch: Any) -> dict[str, dict[str, float]]:
    """TFLOP/s by dtype, on random numbers and on zeros; a dtype that torch or the GPU doesn't do is absent."""
    rates: dict[str, dict[str, float]] = {"tflops": {}, "tflops_peak": {}}
    for name in ("float64", "float32", "tf32", "float16", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2"):
        try:
            for kind, filled in (("tflops", True), ("tflops_peak", False)):
                rates[kind][name] = _matmul_tflops(torch, name, filled=filled)
        except (RuntimeError, AttributeError):  # not supported, or not enough memory
            continue
    return rates


def _matmul_tflops(torch: Any, name: str, *, filled: bool) -> float:
    best = 0.0
    for size in (2048, 4096, 8192):
        multiply = _multiplication(torch, name, size, filled)
        ms = _best_ms(torch, multiply)
        best = max(best, 2 * size**3 / ms / 1e9)
        if ms * 8 > 3 * _RUN_MS:  # the next size takes eight times as long
            break
    return best


def _multiplication(torch: Any, name: str, size: int, filled: bool) -> Callable[[], object]:
    """A square matmul of one dtype. The right side is column-major, which int8 and fp8 ask for and the others take as well."""
    dtype = torch.float32 if name == "tf32" else getattr(torch, name)
    left, right = (_matrix(torch, dtype, size, filled) for _ in range(2))
    right = right.t()
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    torch.backends.cuda.matmul.allow_fp16_accumulation = not filled  # a kernel may; torch does not by default
    if name == "int8":
        return lambda: torch._int_mm(left, right)
    if name.startswith("float8"):
        if name == "float8_e5m2":  # two e5m2 factors are not supported; one is, at the rate of the format
            right = right.to(torch.float8_e4m3fn)
        scale = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(left, right, scale, scale, out_dtype=torch.bfloat16)
    out = torch.empty(size, size, dtype=dtype, device="cuda")
    return lambda: torch.mm(left, right, out=out)


def _matrix(torch: Any, dtype: Any, size: int, filled: bool) -> Any:
    if not filled:
        return torch.zeros(size, size, dtype=dtype, device="cuda")
    if dtype == torch.int8:
        return torch.randint(-128, 128, (size, size), dtype=dtype, device="cuda")
    return torch.randn(size, size, device="cuda").to(dtype)


def _peaks(torch: Any) -> dict[str, float]:
    """The bounds that follow from clocks and widths, where the driver tells them."""
    from .. import cuda_probe

    devices = cuda_probe.describe()["devices"]
    number = torch.cuda.current_device()
    if number >= len(devices):
        return {}
    device = devices[number]
    found = {}
    if device["memory_clock_khz"] and device["memory_bus_bits"]:
        found["dram_peak_gb_s"] = 2 * device["memory_clock_khz"] * device["memory_bus_bits"] / 8 / 1e6
    if device["clock_khz"] and device["sm_count"]:
        found["l2_peak_gb_s"] = device["sm_count"] * _L2_BYTES_PER_CLOCK * device["clock_khz"] / 1e6
    return found
