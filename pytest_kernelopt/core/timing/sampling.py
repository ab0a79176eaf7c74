"""Device time of single calls, taken in the child that makes them.

A sample is: wait for the device; marker; put back what the call changes; flush L2 (cold) and wait; spin, which hides the
launch; the call; wait for the device. The time of the call is the span from the first start to the last end of every kernel, copy
and fill that the device ran between the spin and the next marker, on whatever stream, as CUPTI recorded it (through
torch's profiler). CUDA events round the same call and the host's clock are taken beside it as witnesses.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import Unavailable
from ..isolate import memory, worker
from ..isolate.child import ChildState

# what CUPTI records beside work: waiting
_NOT_WORK = ("Context Sync", "Event Sync", "Stream Sync", "Stream Wait", "Device Sync")
_MOST_NAMES = 16

Target = tuple[Callable[[], Any], Callable[[], None]]


def open_clock(state: ChildState) -> None:
    """Set up what every round needs. Called before the candidate's code is loaded: the timing functions are bound here."""
    state.objects["clock"] = Clock()


def use_calls(state: ChildState, *, restore: list[str]) -> None:
    """Time the calls that ``worker.prepare`` bound. ``restore`` names tensors whose content is put back before each call."""
    state.objects["targets"] = targets_of(state.objects["calls"], state.objects["sets"], restore)


def targets_of(calls: list[Callable[[], Any]], sets: list[dict[str, Any]], restore: list[str]) -> list[Target]:
    return [(call, _restorer(views, restore)) for call, views in zip(calls, sets, strict=True)]


def _restorer(views: dict[str, Any], names: list[str]) -> Callable[[], None]:
    kept = [(views[name], views[name].clone()) for name in names]

    def restore() -> None:
        for tensor, value in kept:
            tensor.copy_(value)

    return restore


def sample(
    state: ChildState, *, count: int, cold: bool, spin_ns: int, first: int = 0, cupti: bool = True, deliver: bool = False
) -> dict[str, Any]:
    """``count`` samples over the sets in turn, from set ``first`` on. All times in nanoseconds.

    With ``deliver``, what the last call on each set handed back is copied to the referee's memory afterwards.

    Returns ``spans`` (device time of each call; empty without ``cupti``); the witnesses ``events``, ``wall`` (until the device
    was done) and ``enqueue`` (until the call and its events were enqueued); ``host`` (the call alone); ``kernels`` (names of
    what ran, most frequent first); ``launch_error``.
    """
    clock: Clock = state.objects["clock"]
    results: dict[int, Any] | None = {} if deliver else None
    times = clock.sample(Round(state.objects["targets"], count, cold, spin_ns, first, results), cupti=cupti)
    for index, result in (results or {}).items():
        worker.take_returned(state, result, index)
    return {**times, "launch_error": worker.last_error(state)}


def has_cupti(state: ChildState) -> bool:
    """Whether CUPTI records what this child's device does. Asked where no candidate's code is: it could lie."""
    clock: Clock = state.objects["clock"]
    return clock.has_cupti()


def sampler_of(function: Callable[[], Any], *, cold: bool) -> tuple[Callable[..., dict[str, Any]], bool]:
    """For any callable of this very process: ``sampler(count=, spin_ns=, first=, cupti=)``, and whether CUPTI can be had."""
    clock = Clock()
    target: Target = (function, lambda: None)

    def sampler(*, count: int, spin_ns: int, first: int = 0, cupti: bool = True) -> dict[str, Any]:
        return {**clock.sample(Round([target], count, cold, spin_ns, first), cupti=cupti), "launch_error": None}

    return sampler, clock.has_cupti()


@dataclass
class Round:
    """``count`` calls over ``targets`` in turn. ``results``, where given, keeps what the last call on each returned."""

    targets: list[Target]
    count: int
    cold: bool
    spin_ns: int
    first: int = 0
    results: dict[int, Any] | None = None


class Clock:
    """The functions that a round uses, bound when the clock is made, so that later patches of torch or time miss them."""

    def __init__(self) -> None:
        import torch

        from . import device_kernels

        self.flush = device_kernels.Flush()
        self.host_ns = time.perf_counter_ns
        self.synchronize = torch.cuda.synchronize
        self.event: Any = torch.cuda.Event
        self.elapsed: Any = torch.cuda.Event.elapsed_time
        self.record: Any = torch.cuda.Event.record
        self.begin, self.spin = device_kernels.begin, device_kernels.spin
        self.reset_persisting = memory.driver().cuCtxResetPersistingL2Cache
        self.begin_name, self.spin_name = device_kernels.BEGIN, device_kernels.SPIN
        # not torch.profiler.profile: its first use imports 900 modules, four seconds in every process
        self.profile: Any = torch.autograd.profiler.profile
        self.on_device = torch._C._autograd.DeviceType.CUDA
        self.begin()
        self.spin(0)
        self.synchronize()

    def sample(self, asked: Round, *, cupti: bool) -> dict[str, Any]:
        collecting = gc.isenabled()
        gc.disable()  # a collection in the middle of a call would be timed as its enqueueing
        try:
            if not cupti:
                return {"spans": [], "kernels": [], **self._loop(asked)}
            with self.profile(use_cpu=False, use_device="cuda", use_kineto=True) as profiler:
                witnesses = self._loop(asked)
            return {**self._spans(profiler.kineto_results, asked.count), **witnesses}
        finally:
            if collecting:
                gc.enable()

    def has_cupti(self) -> bool:
        try:
            self.sample(Round([(self.flush, lambda: None)], 2, False, 10_000), cupti=True)
        except (Unavailable, RuntimeError):  # RuntimeError: another use of torch's profiler is under way
            return False
        return True

    def _loop(self, asked: Round) -> dict[str, Any]:
        pairs = [(self.event(enable_timing=True), self.event(enable_timing=True)) for _ in range(asked.count)]
        wall, enqueue, host = [], [], []
        for index, (start, end) in enumerate(pairs):
            which = (asked.first + index) % len(asked.targets)
            call, restore = asked.targets[which]
            self.begin()
            restore()
            if asked.cold:
                self.reset_persisting()
                self.flush()
            self.synchronize()  # else a kernel on a stream of its own could start before the spin, and be missed
            self.spin(asked.spin_ns)
            before = self.host_ns()
            self.record(start)
            called = self.host_ns()
            result = call()
            host.append(self.host_ns() - called)
            self.record(end)
            enqueue.append(self.host_ns() - before)
            self.synchronize()
            wall.append(self.host_ns() - before)
            if asked.results is not None:
                asked.results[which] = result
            del result  # so that the next call finds the allocator as this one did
        self.begin()
        self.synchronize()
        return {"events": [self.elapsed(a, b) * 1e6 for a, b in pairs], "wall": wall, "enqueue": enqueue, "host": host}

    def _spans(self, results: Any, count: int) -> dict[str, Any]:
        """Cut the device's timeline at the markers: each call owns what started between its spin and the next marker."""
        records = sorted((e.start_ns(), e.duration_ns(), e.name()) for e in results.events() if e.device_type() == self.on_device)
        spans: list[int] = []
        names: dict[str, int] = {}
        marks: list[str] = []
        first, last = -1, -1
        for start, duration, name in records:
            if name in (self.begin_name, self.spin_name):
                if marks and name == self.begin_name:
                    spans.append(last - first)
                marks.append(name)
                first, last = -1, -1
            elif marks and marks[-1] == self.spin_name and not name.startswith(_NOT_WORK):
                first = start if first < 0 else first
                last = max(last, start + duration)
                names[name] = names.get(name, 0) + 1
        if marks != [self.begin_name, self.spin_name] * count + [self.begin_name]:
            raise Unavailable(
                f"CUPTI recorded {len(spans)} of {count} calls: another profiler (ncu, nsys) holds it, or the driver forbids it"
            )
        return {"spans": spans, "kernels": sorted(names, key=lambda name: -names[name])[:_MOST_NAMES]}
