"""What must agree before a round of samples is believed: the device's timeline, events round each call, the host's clock."""

from __future__ import annotations

import math
from typing import Any

from ..errors import KernelError
from . import statistics

_FEWEST = 5  # samples whose medians are held against each other: a single one may meet a pause of the host
_EVENT_SLACK_MS = 0.03  # events round an enqueued call read a few microseconds too much
_HOST_SLACK_MS = 0.1  # the host's own latency in waiting for the device


def check(values: list[float], data: dict[str, Any], seconds: float, *, spin_ns: int, cupti: bool) -> None:
    """KernelError where a clock can't be believed. ``values`` are the samples in ms, ``data`` the whole reply of
    ``sampling.sample``, ``seconds`` what the round took by the parent's clock.
    """
    if not all(math.isfinite(value) for value in values):
        raise KernelError("the clock gave times that are no numbers: something in the kernel's process changed it")
    idle = sum(1 for value in values if not value > 0)
    if idle:
        what = "the work of a call must be done in that call, and be over with the stream it was given"
        raise KernelError(f"{idle} of {len(values)} timed calls did nothing on the GPU: {what}")
    if sum(values) / 1e3 > seconds:
        took = f"calls that took {seconds * 1e3:.3f} ms in all"
        raise KernelError(f"the clock says {sum(values):.3f} ms for {took}: something changed it")
    if data["launch_error"]:
        raise KernelError(f"a timed call failed: {data['launch_error']['text']}")
    median = statistics.median(values)
    if cupti:
        _events_agree(median, data, spin_ns, len(values))
    else:
        _host_agrees(median, data, spin_ns, len(values))


def _events_agree(median: float, data: dict[str, Any], spin_ns: int, count: int) -> None:
    """Events may not read less than the timeline: then work runs where they don't see it. And where the host had enqueued
    the whole call before the device came to it, they may not read much more: then the timeline lacks work of the call."""
    events = statistics.median(data["events"]) / 1e6
    both = f"{median:.4f} ms on the device's timeline, {events:.4f} ms between events"
    if events < 0.9 * median - 0.002:
        raise KernelError(f"the clocks contradict each other ({both}): the kernel works outside of its call or its stream")
    enqueued = statistics.median(data["enqueue"]) < spin_ns
    if count >= _FEWEST and enqueued and events > 1.1 * median + _EVENT_SLACK_MS:
        raise KernelError(f"the clocks contradict each other ({both}): the timeline does not hold all that the call did")


def _host_agrees(median: float, data: dict[str, Any], spin_ns: int, count: int) -> None:
    """With events as the clock, work on streams that they don't see shows in how long the host waited."""
    waited = statistics.median([w - max(spin_ns, e) for w, e in zip(data["wall"], data["enqueue"], strict=True)]) / 1e6
    if count >= _FEWEST and waited > 1.5 * median + _HOST_SLACK_MS:
        raise KernelError(
            f"the clocks contradict each other ({median:.4f} ms between events, {waited:.4f} ms until the device was done): "
            "the kernel works outside of its stream"
        )
