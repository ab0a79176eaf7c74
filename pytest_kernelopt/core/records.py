"""Everything that is written to disk or put in a report, as versioned pydantic models.

Times are in milliseconds unless a name says otherwise, sizes in bytes, clocks in MHz, rates in GB/s (1e9) and TFLOP/s (1e12).
A field that could not be had is None; it is never 0 in place of unknown.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1

Verdict = Literal["passed", "failed", "error", "unavailable", "unverified"]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Gpu(Record):
    """A GPU as its driver names it; ``l2_bytes`` and ``sm_count`` are those of the device properties."""

    index: int
    name: str
    uuid: str
    capability: tuple[int, int]
    driver: str
    memory_bytes: int
    l2_bytes: int
    sm_count: int


class KernelResources(Record):
    """What one compiled kernel takes. ``config`` names the autotune config; dynamic shared memory is known for Triton only."""

    name: str
    arch: str
    registers: int | None = None
    stack_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    config: str | None = None


class Build(Record):
    """One build. ``key`` is the content hash it is cached by; ``seconds`` is 0 when it came from the cache."""

    backend: str
    arch: str
    compiler: str
    flags: tuple[str, ...] = ()
    key: str
    seconds: float
    cached: bool
    binary_bytes: int | None = None
    kernels: tuple[KernelResources, ...] = ()
    notes: tuple[str, ...] = ()


class OutputReport(Record):
    """How one output compared.

    ``worst_ratio`` is the largest error over its bound: above 1 is wrong. It is None for exact types and where the error
    has no measure (a NaN on one side). ``notes`` are sentences on what else was seen (how many NaN, a likely cause).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    wrong: int
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    worst_ratio: float | None = None
    first_wrong: tuple[int, ...] | None = None
    got: str | None = None
    want: str | None = None
    picture: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Correctness(Record):
    """The verdict on one case. ``kind`` names the failure (``wrong values``, ``out of bounds write``, ...)."""

    case: str
    verdict: Verdict
    mode: Literal["device", "interpreter"]
    seeds: tuple[int, ...]
    tolerance: str = ""
    kind: str | None = None
    message: str | None = None
    failing_seed: int | None = None
    outputs: tuple[OutputReport, ...] = ()
    warnings: tuple[str, ...] = ()


class Conditions(Record):
    """The GPU while it was timed."""

    sm_clock_mhz: int | None = None
    sm_clock_min_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    other_processes: int | None = None


class Timing(Record):
    """Device time per call of one case.

    ``interval_ms`` is the 95 % interval of the median: order statistics of the samples, widened by the bias that each
    process carries. ``samples_ms`` are all samples in the order taken. ``settled``: two windows of the warm-up agreed within
    1 %. ``cap_reached``: time or samples ran out before the interval was as narrow as wanted. ``launch_bound``: the host
    takes longer to enqueue a call than the device to run it. ``first_call_ms`` is the host time of the first call (JIT and
    tuning included), ``compile_s`` the build's seconds, or those of Triton's first call. ``events_median_ms`` and
    ``wall_median_ms`` are the witnesses: events round a call, and the host's wait for it, both without what hides the launch.
    ``floor_ms`` is the estimated least time at the GPU's measured ceilings, to which the percentages refer too. ``speedup``
    is reference over kernel, ``speedup_interval`` its 99 % interval.
    """

    case: str
    median_ms: float
    interval_ms: tuple[float, float]
    p10_ms: float
    p90_ms: float
    min_ms: float
    mean_ms: float
    samples: int
    samples_ms: tuple[float, ...] = Field(repr=False)
    cache: Literal["cold", "warm"]
    clock: Literal["cupti", "events"]
    settled: bool
    cap_reached: bool
    launch_bound: bool = False
    verified: bool = True
    seed: int = 0
    compile_s: float | None = None
    first_call_ms: float | None = None
    events_median_ms: float | None = None
    wall_median_ms: float | None = None
    kernels: tuple[str, ...] = ()
    conditions: Conditions = Conditions()
    gb_per_s: float | None = None
    tflop_per_s: float | None = None
    bandwidth_percent: float | None = None
    compute_percent: float | None = None
    floor_ms: float | None = None
    suspicious: str | None = None
    reference_ms: float | None = None
    speedup: float | None = None
    speedup_interval: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()


class Evaluation(Record):
    """One version of one kernel with all that was found out about it; ``id`` is the rootdir-relative node id of the file."""

    id: str
    backend: str
    source_sha256: str
    reference_sha256: str | None = None
    build: Build | None = None
    build_error: str | None = None
    correctness: tuple[Correctness, ...] = ()
    timing: tuple[Timing, ...] = ()


class Environment(Record):
    """The machine and the versions that the figures belong to."""

    python: str
    platform: str
    pytest: str
    plugin: str
    torch: str | None = None
    triton: str | None = None
    cuda_toolkit: str | None = None
    gpu: Gpu | None = None


class Results(Record):
    """The content of ``--kopt-json``."""

    schema_version: int = SCHEMA
    created: str
    environment: Environment
    exit_status: int
    evaluations: tuple[Evaluation, ...] = ()
    items: dict[str, dict[str, object]] = Field(default_factory=dict)


class Check(Record):
    """One line of the preflight: ``remedy`` is the command or step that mends it."""

    name: str
    status: Literal["ok", "warning", "missing"]
    detail: str
    remedy: str | None = None
    required: bool = False


class Preflight(Record):
    """The content of ``preflight_check.json``."""

    schema_version: int = SCHEMA
    created: str
    ready: bool
    environment: Environment
    checks: tuple[Check, ...] = ()
