"""Calls kernels in a process of its own, for ``timing_truth.py``: under ncu, or timed by other clocks beside ours.

    python timing_launcher.py ncu|clocks|aa JOBS.json OUT.json SECONDS

A job is one kernel at one case: its library or module, its bound problem, its reference. OUT.json is written anew after every
job, so that what was measured before a crash or a kill is there; after SECONDS no further job is begun.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pytest_kernelopt.core.isolate import memory, worker
from pytest_kernelopt.core.isolate.child import ChildState
from pytest_kernelopt.core.reference.inputs import generate
from pytest_kernelopt.core.reference.module import load_reference
from pytest_kernelopt.core.reference.problem import Problem
from pytest_kernelopt.core.spec.model import Case
from pytest_kernelopt.core.timing import device_kernels, measure, sampling
from pytest_kernelopt.core.timing import statistics as intervals
from pytest_kernelopt.core.verify import probes

CALLS = 15  # profiled by ncu
WARMUP = 5
SEED = 1000
BACK_TO_BACK = 20
ROUNDS, ROUND = 6, 10  # of one A/A comparison: turns, calls in a turn
COMPARISONS = 100

Call = Callable[[], Any]


def prepare(job: dict[str, Any]) -> Call:
    """The kernel of a job with its arguments bound, as the plugin's own worker calls it."""
    state = ChildState("gpu", Path.cwd())
    problem = Problem.from_json(job["problem"])
    reference = load_reference(Path(job["reference"])) if job["reference"] else None
    case = Case(tuple((name, value) for name, value in job["dims"]))
    state.objects["sets"] = [_placed(problem, generate(problem, reference, case, SEED, "cuda"))]
    if job["library"]:
        worker.load_library(state, path=job["library"], entry=job["entry"], returns_status=job["returns_status"])
    else:
        worker.load_module(state, path=job["path"], entry=job["entry"], module_name=Path(job["path"]).stem + "_timed")
    worker.prepare(state, arguments=problem.to_json()["arguments"], returned=list(problem.returned))
    call: Call = state.objects["calls"][0]
    for _ in range(WARMUP):
        call()
    torch.cuda.synchronize()
    return call


def _placed(problem: Problem, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors laid out in memory as the referee lays them out.

    So that a difference between the clocks is not one of placement.
    """
    tensors = {}
    for spec in problem.tensors:
        nbytes = torch.Size(spec.shape).numel() * getattr(torch, spec.dtype).itemsize
        offset, total = probes.layout(nbytes)
        layout = {"offset": offset, "nbytes": nbytes, "dtype": spec.dtype, "shape": list(spec.shape), "strides": spec.strides}
        tensors[spec.name] = memory.view(memory.allocate(total, "cuda"), layout)
        if spec.name in values:
            tensors[spec.name].copy_(values[spec.name])
    return tensors


def wake_clocks() -> None:
    """Bring an idle GPU to its working clocks."""
    a = torch.zeros(4096, 4096, dtype=torch.float16, device="cuda")
    out = torch.empty_like(a)
    for _ in range(200):
        torch.mm(a, a, out=out)
    torch.cuda.synchronize()


def profiled(call: Call) -> dict[str, Any]:
    """One marker, then the calls; ncu sees nothing else of this process."""
    cuda: Any = torch.cuda
    runtime = cuda.cudart()
    wake_clocks()
    runtime.cudaProfilerStart()
    device_kernels.begin()
    found: dict[str, Any] = {"marked": True}
    try:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
    except Exception as error:  # the marker is in ncu's list already
        found["error"] = f"{type(error).__name__}: {error}"[:500]
    runtime.cudaProfilerStop()
    return found


def clocked(call: Call) -> dict[str, Any]:
    """Microseconds of a call: our clock in this one process, Triton's do_bench, and twenty launches in a row."""
    wake_clocks()
    found: dict[str, Any] = {}
    for mode in ("cold", "warm"):
        sampler, cupti = sampling.sampler_of(call, cold=mode == "cold")
        series = measure.Series(sampler, cupti=cupti)
        series.warm_up(20.0)
        for _ in range(4):
            series.take(25)
        found[f"ours_{mode}_us"] = 1e3 * intervals.median(series.samples)
        found[f"events_{mode}_us"] = 1e3 * intervals.median(series.events)
    from triton.testing import do_bench

    found["do_bench_us"] = 1e3 * do_bench(call, return_mode="median")
    found["back_to_back_us"] = statistics.median(_back_to_back(call) for _ in range(7))
    return found


def _back_to_back(call: Call) -> float:
    event: Any = torch.cuda.Event
    start, stop = event(enable_timing=True), event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(BACK_TO_BACK):
        call()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1e3 / BACK_TO_BACK


def against_itself(call: Call, until: float) -> dict[str, Any]:
    """How many intervals of a call's time over its own time, each from ABBA turns, include 1."""
    wake_clocks()
    sampler, cupti = sampling.sampler_of(call, cold=True)
    a, b = (measure.Series(sampler, cupti=cupti) for _ in range(2))
    for series in (a, b):
        series.warm_up(50.0)
    found: list[tuple[float, float]] = []
    while len(found) < COMPARISONS and time.monotonic() < until:
        a.rounds, b.rounds = [], []
        for turn in range(ROUNDS):
            for series in (a, b) if turn % 2 == 0 else (b, a):
                series.take(ROUND)
        found.append(intervals.ratio_interval(a.rounds, b.rounds))
    return {
        "tries": len(found),
        "cover_1": sum(low <= 1 <= high for low, high in found),
        "half_width_percent": 50 * statistics.median(high - low for low, high in found) if found else None,
        "median_us": 1e3 * intervals.median(a.samples) if found else None,
        "intervals": found,
    }


def main() -> None:
    mode, jobs_path, out, seconds = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
    until = time.monotonic() + seconds
    jobs = json.loads(jobs_path.read_text(encoding="utf-8"))
    results: dict[str, Any] = {}
    for number, job in enumerate(jobs):
        if time.monotonic() > until:
            results[job["name"]] = {"error": "no time was left"}
            continue
        begun = time.monotonic()
        share = (until - begun) / (len(jobs) - number)
        try:
            call = prepare(job)
            if mode == "ncu":
                result = profiled(call)
            elif mode == "aa":
                result = against_itself(call, begun + share)
            else:
                result = clocked(call)
            results[job["name"]] = result
            del call
        except Exception as error:  # the others are still worth having
            results[job["name"]] = {"error": f"{type(error).__name__}: {error}"[:500]}
        torch.cuda.empty_cache()
        results[job["name"]]["seconds"] = round(time.monotonic() - begun, 3)
        print(f"{mode} {job['name']}: {results[job['name']].get('error', 'done')}", file=sys.stderr, flush=True)
        out.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
