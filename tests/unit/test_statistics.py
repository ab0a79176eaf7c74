"""The medians and intervals of timing: exact where a table gives the answer, by simulation where coverage is the claim."""

from __future__ import annotations

import math
import random

import pytest

from pytest_kernelopt.core.timing import statistics as st

TICK = 32e-6  # ms: the GPU's clock, 1 % of the simulated kernel's time
TIME = 100 * TICK


def noise(rng: random.Random, rho: float, sigma: float):
    """An endless AR(1) sequence around 0 whose values have the standard deviation sigma."""
    value = rng.gauss(0, sigma)
    while True:
        yield value
        value = rho * value + rng.gauss(0, sigma * math.sqrt(1 - rho * rho))


def ticked(time: float, tick: float) -> float:
    return round(time / tick) * tick if tick else time


def median_coverage(n: int, *, rho: float = 0.0, tick: float = 0.0, sigma: float = 0.004, tries: int = 300) -> float:
    rng = random.Random(12345)
    held = 0
    for _ in range(tries):
        truth = TIME + rng.random() * 2 * TICK
        chain = noise(rng, rho, sigma)
        low, high = st.median_interval([ticked(truth * (1 + next(chain)), tick) for _ in range(n)])
        held += low <= truth <= high
    return held / tries


def ratio_coverage(
    rounds: int, block: int, *, rho: float = 0.0, tick: float = 0.0, sigma: float = 0.004, gap: float = 0.0, tries: int = 300
) -> float:
    """ABBA rounds of four blocks in one continuous noise; ``gap`` is the true difference of A and B."""
    rng = random.Random(54321)
    held = 0
    for _ in range(tries):
        truth = {"A": (TIME + rng.random() * 2 * TICK) * (1 + gap)}
        truth["B"] = truth["A"] / (1 + gap)
        chain = noise(rng, rho, sigma)
        sides: dict[str, list[list[float]]] = {"A": [], "B": []}
        for _ in range(rounds):
            taken: dict[str, list[float]] = {"A": [], "B": []}
            for side in "ABBA":
                taken[side] += [ticked(truth[side] * (1 + next(chain)), tick) for _ in range(block)]
            for side, samples in taken.items():
                sides[side].append(samples)
        low, high = st.ratio_interval(sides["A"], sides["B"])
        held += low <= 1 + gap <= high
    return held / tries


MEDIAN_CASES = {
    "independent-30": {"n": 30},
    "independent-200": {"n": 200},
    "ar1-100": {"n": 100, "rho": 0.6},
    "ar1-400": {"n": 400, "rho": 0.6},
    "tick-200": {"n": 200, "tick": TICK},
    "tick-ar1-200": {"n": 200, "rho": 0.6, "tick": TICK},
    "tick-silent-50": {"n": 50, "tick": TICK, "sigma": 1e-4},
}
RATIO_CASES = {
    "independent": {"rounds": 10, "block": 10},
    "ar1": {"rounds": 10, "block": 10, "rho": 0.6},
    "ar1-short-blocks": {"rounds": 10, "block": 2, "rho": 0.6},
    "ar1-three-rounds": {"rounds": 3, "block": 10, "rho": 0.6},
    "tick": {"rounds": 10, "block": 10, "tick": TICK},
    "tick-ar1": {"rounds": 10, "block": 10, "rho": 0.6, "tick": TICK},
    "tick-hides-a-difference": {"rounds": 10, "block": 10, "rho": 0.6, "tick": TICK, "gap": 0.004},
    "tick-silent": {"rounds": 5, "block": 5, "tick": TICK, "sigma": 1e-4, "gap": 0.004},
    "true-difference": {"rounds": 10, "block": 10, "rho": 0.6, "gap": 0.03},
}


@pytest.mark.parametrize("name", MEDIAN_CASES)
def test_the_interval_of_the_median_holds_it_in_95_of_100_processes(name: str) -> None:
    # 95 % by construction; 2.5 standard deviations of 300 tries below it is the least that luck explains.
    assert median_coverage(**MEDIAN_CASES[name]) >= 0.95 - 2.5 * math.sqrt(0.95 * 0.05 / 300)


@pytest.mark.parametrize("name", RATIO_CASES)
def test_the_interval_of_a_ratio_holds_the_true_ratio_in_95_of_100_comparisons(name: str) -> None:
    assert ratio_coverage(**RATIO_CASES[name]) >= 0.95


def test_a_difference_of_three_percent_is_seen_through_a_tick_of_one_percent() -> None:
    rng = random.Random(7)
    seen = 0
    for _ in range(100):
        chain = noise(rng, 0.6, 0.004)
        a = TIME * 1.03 + rng.random() * TICK
        b = a / 1.03
        rounds = [[[ticked(time * (1 + next(chain)), TICK) for _ in range(20)] for time in (a, b)] for _ in range(10)]
        low, high = st.ratio_interval([r[0] for r in rounds], [r[1] for r in rounds])
        seen += low > 1
        assert high - low < 0.025
    assert seen >= 99


@pytest.mark.parametrize(("n", "rank"), [(5, 0), (6, 1), (9, 2), (10, 2), (15, 4), (20, 6), (30, 10), (100, 40)])
def test_the_ranks_are_those_of_the_published_binomial_tables(n: int, rank: int) -> None:
    assert st._binomial_rank(n, 0.95) == rank
    inside = sum(math.comb(n, i) for i in range(rank, n - rank + 1)) / 2**n
    if rank:
        assert inside >= 0.95


@pytest.mark.parametrize(
    ("confidence", "freedom", "t"),
    [
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 9, 2.262),
        (0.99, 9, 3.250),
        (0.99, 2, 9.925),
        (0.99, 30, 2.750),
        (0.9, 4, 2.132),
    ],
)
def test_students_t_is_that_of_the_tables(confidence: float, freedom: int, t: float) -> None:
    assert st.student_quantile(confidence, freedom) == pytest.approx(t, abs=6e-4)


def test_quantiles_interpolate_and_the_median_of_an_even_number_lies_between() -> None:
    assert st.median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert st.quantile([1.0, 2.0, 3.0, 4.0, 5.0], 0.1) == pytest.approx(1.4)
    assert st.quantile([7.0], 0.9) == 7.0
    with pytest.raises(ValueError, match="no samples"):
        st.median([])


def test_summary_keeps_outliers_and_the_interval_holds_the_median() -> None:
    samples = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 50.0]
    figures = st.summary(samples)
    assert figures.samples == 10
    assert figures.mean_ms == pytest.approx(6.26)
    assert figures.min_ms == 1.0
    assert figures.interval_ms[0] <= figures.median_ms <= figures.interval_ms[1]
    assert figures.p90_ms > figures.p10_ms


def test_samples_that_all_tie_leave_half_a_tick_of_doubt() -> None:
    low, high = st.median_interval([0.004] * 100)
    assert low == pytest.approx(0.004 - TICK / 2)
    assert high == pytest.approx(0.004 + TICK / 2)
    low, high = st.ratio_interval([[0.004] * 10] * 5, [[0.004] * 10] * 5)
    assert low < 0.993
    assert high > 1.007


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_samples_give_a_wide_interval_and_never_none(count: int) -> None:
    samples = [1.0, 1.1, 1.05, 0.98, 1.2][:count]
    low, high = st.median_interval(samples)
    assert low < min(samples)
    assert high > max(samples)


def test_drifting_samples_widen_the_interval_against_the_same_samples_shuffled() -> None:
    rng = random.Random(3)
    chain = noise(rng, 0.95, 0.004)
    samples = [1 + next(chain) for _ in range(400)]
    shuffled = rng.sample(samples, len(samples))
    wide, narrow = st.median_interval(samples), st.median_interval(shuffled)
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


def test_one_round_falls_back_on_the_medians_own_intervals() -> None:
    rng = random.Random(4)
    a, b = ([1 + rng.gauss(0, 0.004) for _ in range(40)] for _ in "ab")
    low, high = st.ratio_interval([a], [b])
    assert low < 1 < high
    assert st.ratio([[2.0, 2.0, 2.0]], [[1.0, 1.0, 1.0]]) == pytest.approx(2)


def test_two_rounds_that_agree_by_luck_claim_little_more_than_they_know() -> None:
    low, high = st.ratio_interval([[1.0, 1.01, 1.02], [1.0, 1.012, 1.021]], [[1.0, 1.011, 1.02], [1.0, 1.01, 1.019]])
    assert low < 0.99
    assert high > 1.01


def test_rounds_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="pairs"):
        st.ratio_interval([[1.0]], [[1.0], [1.0]])


def test_widen_makes_room_for_the_bias_of_a_process_and_a_tick_of_the_clock() -> None:
    assert st.widen((1.0, 2.0), 0.01) == pytest.approx((0.99 - 32e-6, 2.02 + 32e-6), abs=1e-12)


def test_warm_up_is_over_when_two_windows_agree() -> None:
    assert not st.settled([1.0] * 19)
    assert st.settled([2.0] * 5 + [1.0] * 20)
    assert not st.settled([1.1] * 10 + [1.0] * 10)
    # One tick is 1.6 % of 2 us: flipping between two ticks is not a trend.
    assert st.settled([0.002016] * 10 + [0.001984] * 10)
    assert not st.settled([0.00208] * 10 + [0.001984] * 9 + [0.002016])


def test_sampling_goes_on_until_the_interval_is_narrow_and_stops_at_the_tick() -> None:
    rng = random.Random(5)
    assert st.wants_more([1.0] * 29)
    assert not st.wants_more([1.0] * 30)
    assert st.wants_more([1 + rng.gauss(0, 0.05) for _ in range(50)])
    assert not st.wants_more([1 + rng.gauss(0, 0.05) for _ in range(2000)])
    assert not st.wants_more([0.001984, 0.002016] * 30)
