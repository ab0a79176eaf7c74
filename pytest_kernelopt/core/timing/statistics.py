"""Medians of times and how sure they are. Pure Python; times in milliseconds, in the order taken.

Three things make the times of a kernel worse than independent draws, and each is answered here: neighbours resemble each
other (clocks drift), so intervals grow with the correlation that is found; the GPU's clock ticks every 32 ns, so that small
kernels give many equal samples and no interval may claim more than the tick allows; and every process has a bias of its
own, which no number of samples from it shows (``widen``).

Coverage measured by the simulation in ``tests/unit/test_statistics.py``, 2,000 tries each, noise of 0.4 %, in per cent
(AR(1): rho 0.6; tick: 32 ns on a 3.2 us kernel, 1 %; the true time lies anywhere within the tick):

- ``median_interval`` at 95 %: 97.3 (30 independent samples), 97.3 (200), 95.4 (AR(1), 100), 96.7 (AR(1), 400),
  100 (tick, 200, independent or AR(1)), 100 (50 samples all equal).
- ``ratio_interval`` at 99 %, ten ABBA rounds in one continuous noise: 99.0 (independent), 99.2 (AR(1)), 98.4 (AR(1), blocks
  of two calls), 98.6 (AR(1), three rounds), 100 (tick), 100 (tick with a true difference of 0.4 % inside it),
  99.2 (true difference of 3 %).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

Interval = tuple[float, float]

#: The step of the GPU's clock as CUPTI shows it.
RESOLUTION_MS = 32e-6
#: The largest relative bias of a process seen on one H200.
PROCESS_BIAS = 0.009
#: The same of CUDA events, which carry the launch in them: medians of six processes lay within 3 %.
EVENTS_BIAS = 0.03
FEWEST = 30


@dataclass(frozen=True)
class Summary:
    """The figures of ``records.Timing`` that samples give, in milliseconds."""

    median_ms: float
    interval_ms: Interval
    p10_ms: float
    p90_ms: float
    min_ms: float
    mean_ms: float
    samples: int


def median(samples: Sequence[float]) -> float:
    return quantile(samples, 0.5)


def quantile(samples: Sequence[float], q: float) -> float:
    """The ``q`` quantile with linear interpolation between samples (type 7 of Hyndman and Fan, 1996)."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(samples: Sequence[float], confidence: float = 0.95) -> Summary:
    """All samples count: nothing is trimmed."""
    return Summary(
        median_ms=median(samples),
        interval_ms=median_interval(samples, confidence),
        p10_ms=quantile(samples, 0.1),
        p90_ms=quantile(samples, 0.9),
        min_ms=min(samples),
        mean_ms=math.fsum(samples) / len(samples),
        samples=len(samples),
    )


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval:
    """An interval that holds the median of the distribution with at least this confidence, and the samples' own median.

    From the k-th smallest to the k-th largest sample, k by the binomial distribution, which is exact for independent
    samples of any continuous distribution (David and Nagaraja, Order Statistics, 3rd ed., 7.1). For correlated samples
    the distance from the middle grows with the square root of the correlation time of the samples' signs about their
    median (Sen, J. Multivariate Analysis 2, 1972: the variance of a sample quantile of a mixing sequence is that of the
    mean of its indicators). Both ends move out by half a tick of the clock where samples tie. Fewer than 6 samples
    can't give 95 %: the answer is then all that was seen, moved out by its own width on both sides.
    """
    low, high = _order_interval(samples, confidence)
    slack = _tick(samples) / 2 if _ties(samples) else 0.0
    return low - slack, high + slack


def widen(interval: Interval, process_bias: float = PROCESS_BIAS) -> Interval:
    """Make room for the bias that one process carries, as a share of the time.

    0.9 % is the largest that was seen between processes running the same binary on one H200, most are under 0.4 %. And one
    tick of the clock: where all samples of a small kernel are equal, those of the next process are, a tick away.
    """
    return interval[0] * (1 - process_bias) - RESOLUTION_MS, interval[1] * (1 + process_bias) + RESOLUTION_MS


def settled(samples: Sequence[float], window: int = 10, tolerance: float = 0.01) -> bool:
    """Whether warm-up is over: the medians of the last ``window`` samples and of those before agree within 1 %.

    One tick of the clock apart is agreement too.
    """
    if len(samples) < 2 * window:
        return False
    before, last = median(samples[-2 * window : -window]), median(samples[-window:])
    return abs(last - before) <= max(tolerance * before, 1.001 * RESOLUTION_MS)


def wants_more(samples: Sequence[float], half_width: float = 0.005, confidence: float = 0.95) -> bool:
    """Whether sampling should go on: fewer than 30, or the interval is wider than ``half_width`` of the median a side.

    A width of one tick of the clock is enough too: more samples would not take it away.
    """
    if len(samples) < FEWEST:
        return True
    low, high = _order_interval(samples, confidence)
    return high - low > max(2 * half_width * median(samples), 1.001 * RESOLUTION_MS)


def ratio(a_rounds: Sequence[Sequence[float]], b_rounds: Sequence[Sequence[float]]) -> float:
    """The time of A over that of B: the geometric mean of the ratios of the rounds' medians."""
    logs = _log_ratios(a_rounds, b_rounds)
    return math.exp(math.fsum(logs) / len(logs))


def ratio_interval(
    a_rounds: Sequence[Sequence[float]], b_rounds: Sequence[Sequence[float]], confidence: float = 0.99
) -> Interval:
    """An interval for the time of A over that of B, measured in turn: ``a_rounds[i]`` and ``b_rounds[i]`` belong together.

    A round is one ABBA turn, or one fresh pair of processes: rounds, not samples, are what is replicated. Student's
    interval of the mean of the rounds' log ratios, taken from medians that are interpolated within a tick, so that
    the noise between ticks is used. Both ends move out by what the tick can hide. At 99 %, so that of 100
    comparisons of a kernel with itself at least 95 include 1 practically always. With a single round the answer comes
    from the two medians' own intervals.
    """
    logs = _log_ratios(a_rounds, b_rounds)
    a_all, b_all = [x for r in a_rounds for x in r], [x for r in b_rounds for x in r]
    rounds = len(logs)
    if rounds == 1:
        (a_low, a_high), (b_low, b_high) = median_interval(a_all, confidence), median_interval(b_all, confidence)
        return max(0.0, a_low) / b_high, a_high / b_low if b_low > 0 else math.inf
    mean = math.fsum(logs) / rounds
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (rounds - 1))
    half = student_quantile(confidence, rounds - 1) * deviation / math.sqrt(rounds)
    half += _hidden(a_all) + _hidden(b_all)
    return math.exp(mean - half), math.exp(mean + half)


def student_quantile(confidence: float, freedom: int) -> float:
    """t with probability ``confidence`` between -t and t (Abramowitz and Stegun 26.7.3 and 26.7.4, by bisection)."""
    low, high = 0.0, 1.0
    while _student_inside(high, freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_inside(middle, freedom) < confidence else (low, middle)
    return high


def _student_inside(t: float, freedom: int) -> float:
    angle = math.atan2(t, math.sqrt(freedom))
    cosine2 = math.cos(angle) ** 2
    odd = freedom % 2
    term = total = (math.cos(angle) if odd else 1.0) if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def _log_ratios(a_rounds: Sequence[Sequence[float]], b_rounds: Sequence[Sequence[float]]) -> list[float]:
    if not a_rounds or len(a_rounds) != len(b_rounds):
        raise ValueError(f"rounds must come in pairs: {len(a_rounds)} and {len(b_rounds)}")
    tick_a, tick_b = _tick([x for r in a_rounds for x in r]), _tick([x for r in b_rounds for x in r])
    pairs = zip(a_rounds, b_rounds, strict=True)
    return [math.log(_grouped_median(a, tick_a) / _grouped_median(b, tick_b)) for a, b in pairs]


def _order_interval(samples: Sequence[float], confidence: float) -> Interval:
    """From order statistics alone, without the tick's share."""
    ordered = sorted(samples)
    n = len(ordered)
    k = _binomial_rank(n, confidence)
    if k == 0:
        width = ordered[-1] - ordered[0]
        return max(0.0, ordered[0] - width), ordered[-1] + width
    stretch = math.sqrt(_correlation_time(samples))
    # The rank as a distance from the middle, stretched; never outside the samples.
    k = max(1, math.floor((n + 1) / 2 - stretch * ((n + 1) / 2 - k) + 1e-9))
    return ordered[k - 1], ordered[n - k]


def _binomial_rank(n: int, confidence: float) -> int:
    """The largest k with P(k-th smallest <= median <= k-th largest) >= confidence; 0 where there is none."""
    tail, k = 0.0, 0
    logs = -n * math.log(2)
    while k <= n // 2:
        tail += math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + logs)
        if 2 * tail > 1 - confidence:
            break
        k += 1
    return k


def _correlation_time(samples: Sequence[float]) -> float:
    """1 + 2 (sum of the correlations of the samples' signs about their median), at least 1.

    Summed over pairs of lags while a pair is positive (Geyer, Statistical Science 7, 1992, initial positive sequence).
    """
    middle = median(samples)
    signs = [(x > middle) - (x < middle) for x in samples]
    n = len(signs)
    power = sum(s * s for s in signs)
    if not power:
        return 1.0
    total = 1.0
    for lag in range(1, n // 2, 2):
        pair = sum(sum(map(int.__mul__, signs, signs[k:])) for k in (lag, lag + 1)) / power
        if pair <= 0:
            break
        total += 2 * pair
    return max(1.0, total)


def _tick(samples: Sequence[float]) -> float:
    """The step of the clock: the smallest distance between different samples; the GPU's 32 ns where all are the same."""
    values = sorted(set(samples))
    least = 1e-9 * values[-1]
    gaps = [b - a for a, b in pairwise(values) if b - a > least]
    return min(gaps) if gaps else RESOLUTION_MS


def _ties(samples: Sequence[float]) -> int:
    """How many samples share the most frequent value; 0 where all differ."""
    most = max(len(list(same)) for _, same in groupby(sorted(samples)))
    return most if most > 1 or len(samples) == 1 else 0


def _hidden(samples: Sequence[float]) -> float:
    """What the tick can hide from an interpolated median, as a share of it: half a tick, times the share of ties.

    All equal, the time may be anywhere within half a tick. When noise spreads samples over several ticks, interpolation
    finds the place, and the share goes to nothing with it.
    """
    return _tick(samples) / 2 * _ties(samples) / len(samples) / median(samples)


def _grouped_median(samples: Sequence[float], tick: float) -> float:
    """The median interpolated among the samples that tie with it, as for a histogram with bins one tick wide."""
    ordered = sorted(samples)
    n = len(ordered)
    middle = ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2
    first = bisect_left(ordered, middle)
    same = sum(1 for x in ordered[first:] if x == middle)
    if same < 2:
        return middle
    return middle - tick / 2 + tick * (n / 2 - first) / same
