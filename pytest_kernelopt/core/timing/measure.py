"""A kernel's time at one case, beside its reference's: rounds of samples from two processes in turn, until they suffice.

The parent's side. It decides how much is sampled, computes every figure and checks the clock against its witnesses.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..build.resources import shorten
from ..device import disturbances
from . import statistics, witnesses

if TYPE_CHECKING:
    from ..records import Conditions, Timing

Sampler = Callable[..., dict[str, Any]]
"""``sampler(count=, spin_ns=, first=, cupti=)``: what ``sampling.sample`` returns, from the process that is timed."""

_FEWEST_FOR_INTERVAL = 6  # 2 * 0.5**5 > 5 %: the extremes of five samples miss the median more often than that
_ROUND_SECONDS = 0.03  # of samples in one turn: long against a hand-over between processes, short against drift
_MOST_A_ROUND = 50
_MOST_SAMPLES = 2000
_FEWEST_ROUNDS = 6
_SETTLING_SECONDS = 2.0
_LONGEST_NAME = 120  # of a kernel: a CUTLASS instance has thousands of characters
_SLOW_MS = 50.0  # a call: ten of them say no more than two about whether the clocks have settled
_LEAST_SPIN_NS = 25_000
_CALIBRATING = 5  # calls from which the spin is learnt
_MOST_SPIN_NS = 3_000_000


_RANDOM = random.SystemRandom()  # not the user's generator, and not to be foreseen


@dataclass(frozen=True)
class Plan:
    """What is asked for: milliseconds of warm-up at least, a fixed number of samples or None, seconds of sampling at most."""

    cache: Literal["cold", "warm"]
    warmup_ms: float
    repeat: int | None
    max_time: float


@dataclass
class Series:
    """The samples of one of the two, in milliseconds, round by round, beside them the witnesses' (``wall`` without the spin).

    ``cupti``: the clock; without it, events are.
    """

    sampler: Sampler
    rounds: list[list[float]] = field(default_factory=list)
    events: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    host_ns: float = 0.0
    kernels: dict[str, None] = field(default_factory=dict)
    spin_ns: int = 0
    cupti: bool = True
    round_size: int = 1
    settled: bool = False
    _last: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def samples(self) -> list[float]:
        return [value for values in self.rounds for value in values]

    def take(self, count: int, *, keep: bool = True) -> list[float]:
        """Sample once and check the clock."""
        start = time.monotonic()
        data = self.sampler(count=count, spin_ns=self.spin_ns, first=_RANDOM.randrange(1 << 16), cupti=self.cupti)
        seconds = max(time.monotonic() - start, 1e-9)
        values = [ns / 1e6 for ns in (data["spans"] if self.cupti else data["events"])]
        witnesses.check(values, data, seconds, spin_ns=self.spin_ns, cupti=self.cupti)
        self.round_size = max(1, min(_MOST_A_ROUND, int(_ROUND_SECONDS * count / seconds)))
        self._last = data
        if keep:
            self.rounds.append(values)
            self.events += [ns / 1e6 for ns in data["events"]]
            self.wall += [max(0, ns - self.spin_ns) / 1e6 for ns in data["wall"]]
            self.kernels.update(dict.fromkeys(data["kernels"]))
        return values

    def warm_up(self, least_ms: float) -> None:
        """Call until the times of two windows agree and ``least_ms`` have passed, two seconds at most."""
        start = time.monotonic()
        self.spin_ns = 0
        values = self.take(1, keep=False)
        while True:
            passed = time.monotonic() - start
            self.settled = statistics.settled(values, window=10 if values[-1] < _SLOW_MS else 2)
            if (self.settled and passed * 1e3 >= least_ms) or passed > max(_SETTLING_SECONDS, least_ms / 1e3):
                return
            values += self.take(min(self.round_size, _CALIBRATING) if self.spin_ns == 0 else self.round_size, keep=False)
            if self.spin_ns == 0:
                self._calibrate()

    def _calibrate(self) -> None:
        """Set the spin to twice what the host needs to enqueue a call, learnt without one: a call that waits for the device
        inside would wait for the spin too."""
        self.host_ns = statistics.median(self._last["host"])
        self.spin_ns = int(min(_MOST_SPIN_NS, max(_LEAST_SPIN_NS, 2 * statistics.median(self._last["enqueue"]))))


def run(
    kernel: Series, reference: Series | None, plan: Plan, *, watched: AbstractContextManager[Any] | None = None
) -> tuple[bool, float]:
    """Fill both series: ABBA turns until the kernel's median is known, or time is up. (cap reached, seconds).

    ``watched`` is entered after the warm-up, so that what it sees belongs to the samples.
    """
    for series in filter(None, (kernel, reference)):
        series.warm_up(plan.warmup_ms)
    with watched or nullcontext():
        return _turns(kernel, reference, plan)


def _turns(kernel: Series, reference: Series | None, plan: Plan) -> tuple[bool, float]:
    start = time.monotonic()
    turn = 0
    while True:
        pair = [kernel] if reference is None else [kernel, reference]
        for series in pair if turn % 2 == 0 else reversed(pair):
            count = series.round_size
            if plan.repeat is not None and series is kernel:
                count = max(1, min(count, -(-plan.repeat // 2), plan.repeat - len(kernel.samples)))
            series.take(count)
        turn += 1
        passed = time.monotonic() - start
        if plan.repeat is not None:
            if len(kernel.samples) >= plan.repeat:
                return False, passed
        elif turn >= _FEWEST_ROUNDS and turn % 2 == 0 and not statistics.wants_more(kernel.samples):
            return False, passed
        if passed > plan.max_time or (plan.repeat is None and len(kernel.samples) >= _MOST_SAMPLES):
            return True, passed


def timing(
    case: str, kernel: Series, reference: Series | None, plan: Plan, *, cap_reached: bool, conditions: Conditions, **known: Any
) -> Timing:
    """The record of what the series hold."""
    from ..records import Timing

    figures = statistics.summary(kernel.samples)
    bias = statistics.PROCESS_BIAS if kernel.cupti else statistics.EVENTS_BIAS
    notes = list(known.pop("notes", ()))
    if not kernel.cupti:
        notes.append("timed by CUDA events, since CUPTI could not be had: a few microseconds too high, and less repeatable")
    disturbed = disturbances(conditions)
    if disturbed:
        notes.append(f"the GPU was not undisturbed while this was timed: {', '.join(disturbed)}")
    if figures.samples < _FEWEST_FOR_INTERVAL:
        notes.append(f"{figures.samples} samples are too few for a 95 % interval: it shows no more than what was seen")
    if not kernel.settled:
        notes.append("not settled: the times still moved after the warm-up")
    compared: dict[str, Any] = {}
    if reference is not None:
        low, high = statistics.ratio_interval(reference.rounds, kernel.rounds)
        compared = {
            "reference_ms": statistics.median(reference.samples),
            "speedup": statistics.ratio(reference.rounds, kernel.rounds),
            "speedup_interval": (low * (1 - bias), high * (1 + bias)),
        }
    return Timing(
        case=case,
        median_ms=figures.median_ms,
        interval_ms=statistics.widen(figures.interval_ms, bias),
        p10_ms=figures.p10_ms,
        p90_ms=figures.p90_ms,
        min_ms=figures.min_ms,
        mean_ms=figures.mean_ms,
        samples=figures.samples,
        samples_ms=tuple(kernel.samples),
        cache=plan.cache,
        clock="cupti" if kernel.cupti else "events",
        settled=kernel.settled,
        cap_reached=cap_reached,
        launch_bound=kernel.host_ns / 1e6 > figures.median_ms,
        events_median_ms=statistics.median(kernel.events),
        wall_median_ms=statistics.median(kernel.wall),
        kernels=tuple(shorten(name)[:_LONGEST_NAME] for name in kernel.kernels),
        conditions=conditions,
        notes=tuple(notes),
        **compared,
        **known,
    )
