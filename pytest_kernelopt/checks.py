"""The test functions of every kernel file. ``collect.KernelFile`` shows this module to pytest as the kernel's own.

No fixtures here (a module's fixtures would win over a user's conftest), and no marks: ``--strict-markers`` would refuse
``benchmark`` where pytest-benchmark is switched off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .clock import clock
from .core.errors import KernelError
from .verdict import Check, short_of_a_verdict

if TYPE_CHECKING:
    from .core.records import Timing
    from .core.spec.model import Case


def build(_kopt_check: Check) -> None:
    """Does it compile for the target arch."""
    with short_of_a_verdict():
        _kopt_check.build()


def not_a_kernel(request: pytest.FixtureRequest) -> None:
    """The build item of a file that can't be taken as a kernel: why."""
    pytest.fail(request.node.kernel_file.problem, pytrace=False)


def correctness(_kopt_check: Check, _kopt_case: Case) -> None:
    """Is it equal to the reference, and honestly so."""
    with short_of_a_verdict():
        _kopt_check.verify(_kopt_case)


def benchmark(_kopt_check: Check, _kopt_case: Case, benchmark: Any) -> None:
    """How fast is it; also in pytest-benchmark's table and files."""
    with short_of_a_verdict():
        try:
            timing = _kopt_check.time(_kopt_case)
        except KernelError as error:
            _leave_without_result(benchmark, error)
            raise
    benchmark.extra_info.update(_extra_info(_kopt_check, timing))
    benchmark.name = f"{_kopt_check.spec.path.name}::{benchmark.name}"  # its table would show every kernel by one name
    samples = [ms / 1e3 for ms in timing.samples_ms]
    benchmark.pedantic(clock.replay(samples), setup=clock.rewind, rounds=len(samples))


def benchmark_alone(_kopt_check: Check, _kopt_case: Case) -> None:
    """How fast is it, in a session without pytest-benchmark's fixture."""
    with short_of_a_verdict():
        _kopt_check.time(_kopt_case)


def _leave_without_result(benchmark: Any, error: KernelError) -> None:
    """Show pytest-benchmark a round that raised: it warns of a fixture that was never used, and leaves this one out."""

    def round_that_raises() -> None:
        raise error

    try:
        benchmark.pedantic(round_that_raises)
    except KernelError:
        return


def _extra_info(check: Check, timing: Timing) -> dict[str, Any]:
    gpu = check.environment().gpu
    figures = ("cache", "clock", "verified", "interval_ms", "gb_per_s", "tflop_per_s", "reference_ms", "speedup", "suspicious")
    info = {name: value for name in figures if (value := getattr(timing, name)) is not None}
    return info | {"gpu": gpu.name if gpu else None}
