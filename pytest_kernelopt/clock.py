"""Device time into pytest-benchmark's statistics, by its public interface alone.

pytest-benchmark reads a timer before and after every round. Give it a clock that only moves when a round is played back,
by that round's device time, and its samples are exactly the ones that were measured on the GPU:

    @pytest.mark.benchmark(timer=clock.gpu_seconds)
    benchmark.pedantic(clock.replay(samples), setup=clock.rewind, rounds=len(samples))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class ReplayClock:
    """A clock that stands still but for what is replayed on it. Seconds."""

    def __init__(self) -> None:
        self._now = 0.0

    def gpu_seconds(self) -> float:
        """The time now; ``gpu_seconds`` is the name that pytest-benchmark's JSON gives for its timer."""
        return self._now

    def rewind(self) -> None:
        """Back to zero before each round: a sum of samples would round, ``sample - 0.0`` does not."""
        self._now = 0.0

    def replay(self, samples: Iterable[float]) -> Callable[[], None]:
        """A function whose n-th call takes ``samples[n]`` seconds on this clock."""
        left = iter(samples)

        def play() -> None:
            self._now += next(left)

        return play


clock = ReplayClock()
