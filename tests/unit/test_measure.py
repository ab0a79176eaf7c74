"""How much is sampled, and which clocks are believed: with samplers that make the times up, and a clock that they move."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from pytest_kernelopt.core.errors import KernelError
from pytest_kernelopt.core.records import Conditions
from pytest_kernelopt.core.timing import measure, statistics
from pytest_kernelopt.core.timing.measure import Plan, Series

OVERHEAD = 0.004  # seconds of a hand-over to another process


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(measure, "time", found)
    return found


class Sampler:
    """Calls of ``ms`` each with noise (a share), twice as slow at first and less so for ``warm`` calls.

    ``change`` gives other values to what is answered.
    """

    def __init__(self, clock: Clock, ms: float, *, noise: float = 0.0, warm: int = 0, **change: Any) -> None:
        self.clock = clock
        self.ms = ms
        self.noise = noise
        self.warm = warm
        self.change = change
        self.calls = 0
        self.asked: list[dict[str, Any]] = []
        self.random = random.Random(7)

    def __call__(self, *, count: int, spin_ns: int, first: int, cupti: bool) -> dict[str, Any]:
        self.asked.append({"count": count, "spin_ns": spin_ns, "first": first, "cupti": cupti})
        spans = []
        for _ in range(count):
            self.calls += 1
            slow = 1 + max(0.0, 1 - self.calls / self.warm) if self.warm else 1.0
            spans.append(1e6 * self.ms * slow * math.exp(self.noise * self.random.gauss(0, 1)))
        self.clock.now += OVERHEAD + sum(spans) / 1e9 + count * 20e-6
        data: dict[str, Any] = {
            "spans": spans if cupti else [],
            "events": [span + 3000 for span in spans],
            "wall": [span + 20_000 + spin_ns for span in spans],
            "enqueue": [25_000.0] * count,
            "host": [15_000.0] * count,
            "kernels": ["softmax"],
            "launch_error": None,
        }
        return data | {name: change(data) for name, change in self.change.items() if callable(change)}


def plan(**change: Any) -> Plan:
    return Plan(**{"cache": "cold", "warmup_ms": 20.0, "repeat": None, "max_time": 3.0, **change})


def test_sampling_stops_when_the_median_is_known(clock: Clock) -> None:
    quiet, noisy = (Series(Sampler(clock, 0.05, noise=noise)) for noise in (0.001, 0.08))
    assert measure.run(quiet, None, plan())[0] is False
    assert measure.run(noisy, None, plan())[0] is False
    assert len(quiet.samples) < len(noisy.samples)
    for series in (quiet, noisy):
        assert len(series.samples) >= 30
        assert not statistics.wants_more(series.samples)


def test_a_noise_without_end_ends_at_the_cap(clock: Clock) -> None:
    series = Series(Sampler(clock, 1.0, noise=0.3))
    cap_reached, seconds = measure.run(series, None, plan(max_time=0.5))
    assert cap_reached
    assert 0.5 < seconds < 0.7
    assert len(series.samples) > 100


@pytest.mark.parametrize("repeat", [1, 2, 7, 50, 333])
def test_a_number_of_samples_that_is_asked_for_is_taken_exactly(clock: Clock, repeat: int) -> None:
    kernel, reference = Series(Sampler(clock, 0.05, noise=0.3)), Series(Sampler(clock, 0.1))
    cap_reached, _ = measure.run(kernel, reference, plan(repeat=repeat))
    assert not cap_reached
    assert len(kernel.samples) == repeat
    assert len(kernel.rounds) == len(reference.rounds)


def test_the_two_are_sampled_in_turn_abba(clock: Clock) -> None:
    order: list[str] = []

    def noted(name: str, sampler: Sampler) -> measure.Sampler:
        return lambda **how: (order.append(name), sampler(**how))[1]

    kernel = Series(noted("A", Sampler(clock, 0.2, noise=0.01)))
    reference = Series(noted("B", Sampler(clock, 0.3, noise=0.01)))
    measure.run(kernel, reference, plan())
    turns = len(kernel.rounds)
    assert turns % 2 == 0
    assert "".join(order).endswith("ABBA" * (turns // 2))


def test_warm_up_goes_on_until_the_times_settle(clock: Clock) -> None:
    sampler = Sampler(clock, 0.5, warm=100)
    series = Series(sampler)
    series.warm_up(1.0)
    assert series.settled
    assert sampler.calls > 110
    assert series.samples == []


def test_warm_up_takes_as_long_as_is_asked_for_and_ends_where_nothing_settles(clock: Clock) -> None:
    steady = Series(Sampler(clock, 0.1))
    steady.warm_up(400.0)
    assert 0.4 <= clock.now < 0.5
    start = clock.now
    restless = Series(Sampler(clock, 5.0, noise=0.5))
    restless.warm_up(1.0)
    assert clock.now - start < 2.5
    if not restless.settled:
        record = _timing(restless, clock)
        assert any("not settled" in note for note in record.notes)


@pytest.mark.parametrize("reference_s", [0.4, 5.0, 30.0])
def test_a_slow_reference_is_sampled_few_times_and_does_not_stretch_the_whole(clock: Clock, reference_s: float) -> None:
    kernel, slow = Series(Sampler(clock, 0.05, noise=0.001)), Sampler(clock, 1e3 * reference_s)
    reference = Series(slow)
    _, seconds = measure.run(kernel, reference, plan(max_time=3.0))
    assert seconds <= 3.0 + 2 * reference_s + 1
    assert clock.now <= 6.0 + 4 * reference_s
    assert 1 <= len(reference.samples) == len(reference.rounds) == len(kernel.rounds) <= 20
    record = measure.timing("n1", kernel, reference, plan(), cap_reached=True, conditions=Conditions())
    assert record.reference_ms == pytest.approx(1e3 * reference_s)
    assert record.speedup == pytest.approx(1e3 * reference_s / 0.05, rel=0.01)
    assert record.speedup_interval is not None
    assert record.speedup_interval[0] <= record.speedup <= record.speedup_interval[1]


def test_a_kernel_slower_than_the_cap_is_sampled_once(clock: Clock) -> None:
    series = Series(Sampler(clock, 10_000.0))
    cap_reached, _ = measure.run(series, None, plan(max_time=3.0))
    assert cap_reached
    assert len(series.samples) == 1
    assert clock.now < 25


def test_the_spin_hides_the_launch_and_the_sets_are_not_taken_in_one_order(clock: Clock) -> None:
    sampler = Sampler(clock, 0.05, noise=0.01, enqueue=lambda data: [400_000.0] * len(data["events"]))
    series = Series(sampler)
    measure.run(series, None, plan())
    assert sampler.asked[-1]["spin_ns"] >= 400_000
    assert len({asked["first"] for asked in sampler.asked}) > 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"spans": lambda d: [0.0] * len(d["spans"])}, "timed calls did nothing on the GPU", id="idle"),
        pytest.param({"spans": lambda d: [*d["spans"][:-1], 0.0]}, "1 of .* timed calls did nothing", id="one idle"),
        pytest.param({"spans": lambda d: [-s for s in d["spans"]]}, "did nothing on the GPU|no numbers", id="negative"),
        pytest.param({"spans": lambda d: [float("nan")] * len(d["spans"])}, "did nothing on the GPU|no numbers", id="nan"),
        pytest.param({"spans": lambda d: [float("inf")] * len(d["spans"])}, "times that are no numbers", id="inf"),
        pytest.param({"spans": lambda d: [1e4 * s for s in d["spans"]]}, "the clock says .* something changed it", id="too long"),
        pytest.param({"events": lambda d: [s / 2 for s in d["events"]]}, "the clocks contradict each other", id="events"),
        pytest.param({"spans": lambda d: [s / 50 for s in d["spans"]]}, "does not hold all that the call did", id="cut timeline"),
        pytest.param({"launch_error": lambda d: {"code": 1, "text": "invalid argument"}}, "invalid argument", id="launch"),
    ],
)
def test_a_clock_that_its_witnesses_contradict_is_an_error(clock: Clock, change: dict[str, Any], words: str) -> None:
    with pytest.raises(KernelError, match=words):
        measure.run(Series(Sampler(clock, 0.05, **change)), None, plan())


def test_an_answer_that_goes_wrong_late_is_an_error_too(clock: Clock) -> None:
    sampler = Sampler(clock, 0.05, noise=0.05)
    sampler.change["spans"] = lambda d: [0.0] * len(d["spans"]) if sampler.calls > 200 else d["spans"]
    with pytest.raises(KernelError, match="did nothing on the GPU"):
        measure.run(Series(sampler), None, plan())


def _timing(series: Series, clock: Clock) -> Any:
    cap_reached, _ = measure.run(series, None, plan())
    return measure.timing("n1", series, None, plan(), cap_reached=cap_reached, conditions=Conditions(), verified=True, seed=5)


def test_the_record_holds_what_was_sampled(clock: Clock) -> None:
    series = Series(Sampler(clock, 0.05, noise=0.002))
    record = _timing(series, clock)
    assert record.samples_ms == tuple(series.samples)
    assert record.samples == len(series.samples)
    assert record.min_ms <= record.p10_ms <= record.median_ms <= record.p90_ms
    assert record.interval_ms[0] < record.median_ms < record.interval_ms[1]
    assert record.median_ms == pytest.approx(0.05, rel=0.01)
    assert record.events_median_ms == pytest.approx(0.053, rel=0.01)
    assert record.wall_median_ms == pytest.approx(0.07, rel=0.01)
    assert (record.clock, record.cache, record.settled, record.cap_reached) == ("cupti", "cold", True, False)
    assert (record.kernels, record.notes, record.seed, record.launch_bound) == (("softmax",), (), 5, False)
    assert record.speedup is None


def test_without_cupti_events_are_the_clock_and_the_record_says_so(clock: Clock) -> None:
    sampler = Sampler(clock, 0.05, noise=0.002)
    record = _timing(Series(sampler, cupti=False), clock)
    assert record.clock == "events"
    assert record.median_ms == pytest.approx(0.053, rel=0.01)
    assert any("timed by CUDA events" in note for note in record.notes)
    assert not any(asked["cupti"] for asked in sampler.asked)
    by_cupti = _timing(Series(Sampler(clock, 0.05, noise=0.002)), clock)
    assert _width(record) > 2 * _width(by_cupti), "events of two processes agree less well"


def _width(record: Any) -> float:
    return float(record.interval_ms[1] - record.interval_ms[0])


def test_work_that_events_do_not_see_contradicts_the_hosts_wait(clock: Clock) -> None:
    sampler = Sampler(clock, 0.05, wall=lambda d: [5e6 for _ in d["wall"]])
    with pytest.raises(KernelError, match="works outside of its stream"):
        measure.run(Series(sampler, cupti=False), None, plan())


def test_a_call_that_waits_for_the_device_and_then_works_on_the_host_is_believed(clock: Clock) -> None:
    slow_end = {"events": lambda d: [s + 400_000 for s in d["spans"]], "enqueue": lambda d: [4e6 for _ in d["spans"]]}
    assert measure.run(Series(Sampler(clock, 0.05, noise=0.002, **slow_end)), None, plan())[0] is False


def test_few_samples_are_said_to_be_too_few(clock: Clock) -> None:
    series = Series(Sampler(clock, 0.05))
    asked = plan(repeat=3)
    measure.run(series, None, asked)
    record = measure.timing("n1", series, None, asked, cap_reached=False, conditions=Conditions(), verified=True, seed=0)
    assert any("3 samples are too few" in note for note in record.notes)


def test_what_disturbed_the_gpu_is_noted(clock: Clock) -> None:
    series = Series(Sampler(clock, 0.05))
    measure.run(series, None, plan())
    for seen, words in (
        (Conditions(other_processes=2), "2 other processes"),
        (Conditions(throttle_reasons=("software thermal slowdown",)), "thermal"),
    ):
        record = measure.timing("n1", series, None, plan(), cap_reached=False, conditions=seen, verified=True, seed=0)
        assert any(words in note for note in record.notes)
    calm = Conditions(throttle_reasons=("software power cap",), other_processes=0)
    assert not measure.timing("n1", series, None, plan(), cap_reached=False, conditions=calm, verified=True, seed=0).notes
