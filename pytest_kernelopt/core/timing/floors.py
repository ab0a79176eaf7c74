"""The time below which a result cannot be, or need not be believed: bytes and operations over the GPU's ceilings.

Two floors. The *hard* floor follows from what the reference declares (``bytes_moved``, ``flops``) and from bounds that no
kernel passes: faster is an error in the kernel or in the declaration. The *estimated* floor takes the tensors as read and
written once and the rates that were measured: faster is suspicious, as a kernel that needs only part of its inputs is too.
Times are in ms, rates in GB/s (1e9) and TFLOP/s (1e12).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..dtypes import DTYPES
from ..reference.problem import Problem, TensorSpec
from .ceilings import Ceilings

CacheMode = Literal["cold", "warm"]
Kind = Literal["impossible", "suspicious"]

MARGIN = 0.05  # measured ceilings are taken this much higher: the error of both measurements
# A library's matmul is no bound on what a kernel can do: on one H200 torch's int8 reached 966 TFLOP/s at most, and a Triton
# kernel 1087. So the hard floor takes the fastest measured type, halved for twice the width and doubled for
# half, as tensor cores are built, and this much more.
_HEADROOM = 1.25
_TENSOR_CORE_BYTES = {"tf32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1}

# The ways in which a dtype's arithmetic can honestly be done, its own first: the dtype whose measured rate counts, and how
# many of its operations one takes. float64 may be 28 products of seven int8 slices (Ozaki's scheme); float32 in full
# precision three tf32 or six bf16 products, and where nothing says full precision, one tf32 product or three of half.
_Ways = tuple[tuple[str, int], ...]
_FP64: _Ways = (("float64", 1), ("int8", 28))
_FP32_FULL: _Ways = (("float32", 1), ("tf32", 3), ("bfloat16", 6))
_FP32: _Ways = (("float32", 1), ("tf32", 1), ("bfloat16", 3), ("float16", 3))
_HALF: _Ways = (("float16", 1), ("bfloat16", 1))
_FP8: _Ways = (("float8_e4m3fn", 1), ("float8_e5m2", 1))
_WAYS: Mapping[str, _Ways] = {
    "float64": _FP64,
    "complex128": _FP64,
    "float32": _FP32,
    "complex64": _FP32,
    "float16": _HALF,
    "bfloat16": _HALF,
    "int8": (("int8", 1),),
    "uint8": (("int8", 1),),
    "float8_e4m3fn": _FP8,
    "float8_e5m2": _FP8,
}
_DECLARED: Mapping[str, _Ways] = {
    **_WAYS,
    **dict.fromkeys(("fp32", "float32", "ieee"), _FP32_FULL),
    "fp64": _FP64,
    "tf32": (("tf32", 1), *_FP32),
    "fp16": _HALF,
    "bf16": _HALF,
}


@dataclass(frozen=True)
class Floor:
    """A least time and the ceiling that sets it, in words."""

    ms: float
    by: str


@dataclass(frozen=True)
class Judgement:
    """``floor_ms`` is the speed of light to show beside a time: the estimated floor. ``sentence`` explains ``kind``."""

    floor_ms: float | None = None
    kind: Kind | None = None
    sentence: str | None = None


@dataclass(frozen=True)
class Rates:
    """What a time amounts to. The percentages are of the measured ceilings: DRAM, or L2 when warm data fits in it."""

    gb_per_s: float | None = None
    tflop_per_s: float | None = None
    bandwidth_percent: float | None = None
    compute_percent: float | None = None


def hard_floor_ms(
    problem: Problem, cache: CacheMode, ceilings: Ceilings, l2_bytes: int, compute: str | None = None
) -> Floor | None:
    """The least time that declared work can take, None when nothing was declared or no ceiling is known.

    ``compute`` is the reference's setting of that name (``tf32``, ``ieee``...): the arithmetic that it asks for.
    """
    floors = []
    if problem.bytes_moved:
        dram = _bound(ceilings.dram_peak_gb_s, ceilings.dram_gb_s)
        l2 = _bound(ceilings.l2_peak_gb_s, ceilings.l2_gb_s)
        floors += _memory_floors(problem, problem.bytes_moved, cache, dram, l2, l2_bytes)
    if problem.flops:
        floors += _compute_floors(problem, (_no_kernel_passes(ceilings),), _HEADROOM, compute)
    return max(floors, key=lambda floor: floor.ms, default=None)


def estimated_floor_ms(
    problem: Problem, cache: CacheMode, ceilings: Ceilings, l2_bytes: int, compute: str | None = None
) -> Floor | None:
    """The time of the work at the measured ceilings: declared, else every tensor read and written once."""
    moved = _moved(problem)
    floors = _memory_floors(problem, moved, cache, ceilings.dram_gb_s, ceilings.l2_gb_s, l2_bytes) if moved else []
    if problem.flops:
        floors += _compute_floors(problem, (ceilings.tflops,), 1.0, compute)
    return max(floors, key=lambda floor: floor.ms, default=None)


def judge(
    median_ms: float, problem: Problem, cache: CacheMode, ceilings: Ceilings, l2_bytes: int, compute: str | None = None
) -> Judgement:
    """Whether a median can be believed."""
    hard = hard_floor_ms(problem, cache, ceilings, l2_bytes, compute)
    estimated = estimated_floor_ms(problem, cache, ceilings, l2_bytes, compute)
    floor_ms = estimated.ms if estimated else None
    if hard and median_ms < hard.ms:
        sentence = (
            f"{_time(median_ms)} is faster than this GPU can be: {hard.by} take at least {_time(hard.ms)}; "
            "either the kernel leaves out work, or the reference declares too many flops or bytes_moved"
        )
        return Judgement(floor_ms, "impossible", sentence)
    if estimated and median_ms < estimated.ms * (1 - MARGIN):
        advice = "" if problem.bytes_moved else "; declare bytes_moved in the reference if the kernel rightly moves less"
        sentence = f"{_time(median_ms)} is below the {_time(estimated.ms)} that {estimated.by} take{advice}"
        return Judgement(floor_ms, "suspicious", sentence)
    return Judgement(floor_ms)


def rates(
    median_ms: float, problem: Problem, cache: CacheMode, ceilings: Ceilings, l2_bytes: int, compute: str | None = None
) -> Rates:
    """GB/s and TFLOP/s of a median, from what is declared or else the tensors' sizes; None where the work is unknown."""
    moved = _moved(problem)
    gb = moved / median_ms / 1e6 if moved else None
    tflop = problem.flops / median_ms / 1e9 if problem.flops else None
    in_l2 = cache == "warm" and sum(map(tensor_bytes, problem.tensors)) <= l2_bytes
    roof = ceilings.l2_gb_s if in_l2 else ceilings.dram_gb_s
    peak = _fastest(problem, (ceilings.tflops,), compute, usual=True)
    return Rates(
        gb_per_s=gb,
        tflop_per_s=tflop,
        bandwidth_percent=100 * gb / roof if gb and roof else None,
        compute_percent=100 * tflop / peak[1] if tflop and peak else None,
    )


def _memory_floors(
    problem: Problem, moved: float, cache: CacheMode, dram: float | None, l2: float | None, l2_bytes: int
) -> list[Floor]:
    """From DRAM: all but what the L2 can keep (cold: results; warm: anything). Through the L2: reads, with writes beside them."""
    written = _written(problem)
    stays = l2_bytes if cache == "warm" else min(l2_bytes, written)
    floors = []
    if dram and moved > stays:
        rest = "" if not stays else " (less what may stay in the L2)"
        floors.append(Floor((moved - stays) / dram / 1e6, f"{_bytes(moved)}{rest} at {dram:.0f} GB/s from DRAM"))
    if l2:
        one_way = max(moved - written, moved / 2)
        floors.append(Floor(one_way / l2 / 1e6, f"{_bytes(one_way)} at {l2:.0f} GB/s through the L2"))
    return floors


def _compute_floors(problem: Problem, tables: tuple[Mapping[str, float], ...], factor: float, compute: str | None) -> list[Floor]:
    fastest = _fastest(problem, tables, compute)
    if fastest is None or not problem.flops:
        return []
    name, tflops = fastest
    return [
        Floor(problem.flops / (tflops * factor) / 1e9, f"{problem.flops:.3g} flops at {tflops * factor:.0f} TFLOP/s ({name})")
    ]


def _no_kernel_passes(ceilings: Ceilings) -> dict[str, float]:
    """Rates by type that bound every kernel's, together with the headroom."""
    measured = {**ceilings.tflops, **{n: max(r, ceilings.tflops.get(n, 0.0)) for n, r in ceilings.tflops_peak.items()}}
    by_byte = max((measured[name] * size for name, size in _TENSOR_CORE_BYTES.items() if name in measured), default=0.0)
    scaled = {name: by_byte / size for name, size in _TENSOR_CORE_BYTES.items() if by_byte}
    return {name: max(measured.get(name, 0.0), scaled.get(name, 0.0)) for name in {*measured, *scaled}}


def _fastest(
    problem: Problem, tables: tuple[Mapping[str, float], ...], compute: str | None, *, usual: bool = False
) -> tuple[str, float] | None:
    """The highest rate at which this problem's arithmetic can honestly be done; None when no rate of it was measured.

    ``usual`` leaves out the ways that stand in for the dtype's own arithmetic.
    """
    if compute is not None and compute in _DECLARED:
        kinds = [_DECLARED[compute]]
    else:
        kinds = [_WAYS[t.dtype] for t in problem.tensors if t.role != "output" and t.dtype in _WAYS]
    ways = {way for kind in kinds for way in kind[: 1 if usual else None]}
    found = [(name, table[name] / cost) for name, cost in sorted(ways) for table in tables if name in table]
    return max(found, key=lambda way: way[1], default=None)


def _bound(peak: float | None, measured: float | None) -> float | None:
    """A rate that nothing passes: the one that follows from clock and width, or the measured one and its error."""
    return max((rate for rate in (peak, measured and measured * (1 + MARGIN)) if rate), default=None)


def _moved(problem: Problem) -> float:
    """Bytes, declared or of the tensors read and written once; 0 when sizes were only guessed."""
    if problem.bytes_moved:
        return problem.bytes_moved
    if problem.guessed_sizes:
        return 0
    return sum(tensor_bytes(t) * (2 if t.role == "inout" else 1) for t in problem.tensors)


def _written(problem: Problem) -> int:
    return sum(tensor_bytes(t) for t in problem.tensors if t.role != "input")


def tensor_bytes(tensor: TensorSpec) -> int:
    """Size of a contiguous tensor in bytes."""
    return math.prod(tensor.shape) * DTYPES[tensor.dtype].itemsize


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def _time(ms: float) -> str:
    return f"{ms * 1e3:.3g} us" if ms < 1 else f"{ms:.4g} ms"
