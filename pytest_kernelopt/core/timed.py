"""A kernel that gave the right answers, timed at one case beside its reference, and its answers while it was timed checked."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from . import device
from .errors import KernelError
from .isolate import replies
from .isolate.runner import ChildFailure
from .reference.problem import Problem
from .timing import floors, measure, sampling
from .timing.ceilings import Ceilings
from .verify import check, referee
from .verify.check import Trial

if TYPE_CHECKING:
    from .records import Gpu, Timing

_SETS = 3  # groups of arguments that timed calls take in turn
_MOST_MEMORY = 0.25  # share of the GPU's memory that all of them may take
_SEED = 1_000  # timed inputs are none that correctness has seen


def time_trial(trial: Trial, plan: measure.Plan, gpu: Gpu, ceilings: Ceilings, seed: int, *, verified: bool) -> Timing:
    """Map, fill, call once, sample both in turn, check. KernelError for a clock or an answer that is not to be believed."""
    sets = _sets(trial.problem, plan, gpu)
    trial.map(sets)
    trial.fill(0, seed + _SEED, "A")
    trial.call()
    for index in range(sets):  # after the call: what it changed in place has its start value again
        trial.fill(index, seed + _SEED + index, "A")
    _use_calls(trial)
    cold = plan.cache == "cold"
    cupti = bool(trial.judge.ask(sampling.has_cupti))
    kernel = measure.Series(functools.partial(_sample, trial, cold=cold), cupti=cupti)
    reference = None
    if trial.spec.reference is not None:
        changed = trial.judge.ask(referee.use_reference)
        trial.judge.ask(sampling.use_calls, restore=changed)
        reference = measure.Series(functools.partial(trial.judge.ask, sampling.sample, cold=cold), cupti=cupti)
    monitor = device.Monitor(gpu.uuid)
    cap_reached, _ = measure.run(kernel, reference, plan, watched=monitor)
    if verified:
        check.check_timed(trial, sets, seed + 2 * _SEED, functools.partial(_call_each, trial, kernel, sets))
    about: dict[str, Any] = {"conditions": monitor.conditions, "verified": verified, "seed": seed + _SEED}
    record = measure.timing(trial.case.id, kernel, reference, plan, cap_reached=cap_reached, **about)
    return _against_ceilings(record, trial, plan, gpu, ceilings)


def _sets(problem: Problem, plan: measure.Plan, gpu: Gpu) -> int:
    one = sum(floors.tensor_bytes(tensor) for tensor in problem.tensors)
    rotates = plan.cache == "cold" and one * _SETS <= gpu.memory_bytes * _MOST_MEMORY  # warm: the same data again
    return _SETS if rotates else 1


def _sample(trial: Trial, *, count: int, **order: Any) -> dict[str, Any]:
    """Samples of the candidate, for ``measure.Series``. KernelError also where CUPTI fails there and not in the referee."""
    try:
        reply = trial.candidate.call(sampling.sample, timeout=trial.judging.timeout, count=count, **order)
        return replies.samples(reply, count)
    except ChildFailure as failure:
        raise KernelError(f"{trial.spec.path.name} at {trial.case.id}: {trial.no_return(failure).message}") from None


def _use_calls(trial: Trial) -> None:
    """Time the candidate's calls, with what they change in place put back to its content of now before each."""
    changed = [tensor.name for tensor in trial.problem.tensors if tensor.role == "inout"]
    trial.candidate.call(sampling.use_calls, timeout=trial.judging.timeout, restore=changed)


def _call_each(trial: Trial, kernel: measure.Series, sets: int) -> None:
    """One timed call on each set, as it is now."""
    _use_calls(trial)
    kernel.sampler(count=sets, spin_ns=0, first=0, cupti=kernel.cupti, deliver=True)


def _against_ceilings(record: Timing, trial: Trial, plan: measure.Plan, gpu: Gpu, ceilings: Ceilings) -> Timing:
    """The record with its rates; KernelError for a time that is too short to be true."""
    about = (trial.problem, plan.cache, ceilings, gpu.l2_bytes, trial.judging.compute)
    judgement = floors.judge(record.median_ms, *about)
    if judgement.kind == "impossible":
        raise KernelError(f"{trial.spec.path.name} at {trial.case.id}: {judgement.sentence}")
    rates = floors.rates(record.median_ms, *about)
    notes = record.notes
    if rates.bandwidth_percent and rates.bandwidth_percent > 100 and not judgement.kind:
        stays = f"results of up to {gpu.l2_bytes / 1e6:.0f} MB may still be in the L2 when a call ends"
        notes = (*notes, f"{rates.gb_per_s:.0f} GB/s is more than DRAM gives: {stays}")
    return record.model_copy(
        update={
            "notes": notes,
            "floor_ms": judgement.floor_ms,
            "suspicious": judgement.sentence,
            "gb_per_s": rates.gb_per_s,
            "tflop_per_s": rates.tflop_per_s,
            "bandwidth_percent": rates.bandwidth_percent,
            "compute_percent": rates.compute_percent,
        }
    )
