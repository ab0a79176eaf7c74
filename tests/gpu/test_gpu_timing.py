"""The clock on the device: kernels that are hard to time, and kernels that would rather not be timed. Reports TIM-01 to 23."""

from __future__ import annotations

import shutil
import statistics

import pytest
from workshop import LAUNCH, TWICE, Workshop, cuda, cuda_text, declare, triton

from pytest_kernelopt.core.errors import KernelError

SPIN_US = 250
SPIN = (
    "unsigned long long start, now; "
    'asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start)); '
    f'do {{ asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); }} while (now - start < {SPIN_US}000); '
)
OWN = """\
static cudaStream_t own() {
    static cudaStream_t stream = nullptr;
    if (!stream) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    return stream;
}"""
BUSY = cuda("busy", f"{SPIN} {TWICE}")
OWN_STREAM = cuda("own_stream", f"{SPIN} {TWICE}", "kernel<<<(n + 255) / 256, 256, 0, own()>>>(x, y, n);", head=OWN)
COMPUTE = cuda("compute", "if (i < n) { float v = 0; for (int k = 0; k < 20000; ++k) v = fmaf(v, 0.5f, x[i]); y[i] = v; }")
PLAIN = cuda("plain")
COPY_A, COPY_B = declare("copy_a.cu", cuda_text()), declare("copy_b.cu", cuda_text())
TRITON_PLAIN = triton("plain")
TWO_KERNELS = cuda("two_kernels", f"{SPIN} {TWICE}", f"{LAUNCH} {LAUNCH}")

EVERY_EIGHTH = triton(
    "every_eighth",
    "global calls\ncalls += 1\nif calls % 8 == 1:\n    twice[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)",
    head="calls = 0",
)
IDLE_LATER = cuda("idle_later", host=f"static int calls = 0; if (++calls <= 6 || calls % 8 == 0) {{ {LAUNCH} }}")
LAZY_LATER = cuda(
    "lazy_later", host=f"static int calls = 0; if (++calls > 6 && calls % 8) n = 0; {LAUNCH.replace('n + 255', 'n + 256')}"
)
FORGES_MARKERS = declare(
    "forges_markers.cu",
    f"""\
#include <cuda_runtime.h>
extern "C" __global__ void kopt_begin() {{}}
extern "C" __global__ void kopt_spin() {{}}
__global__ void kernel(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {SPIN} if (i < n) y[i] = 2 * x[i];
}}
extern "C" void solve(const float* x, float* y, int n) {{
    kopt_spin<<<1, 1>>>();
    kopt_begin<<<1, 1>>>();
    kernel<<<(n + 255) / 256, 256>>>(x, y, n);
    kopt_spin<<<1, 1>>>();
}}
""",
)
CACHES = declare(
    "caches.cu",
    """\
#include <cuda_runtime.h>
constexpr int kSlots = 8, kKeys = 16, kMost = 1 << 17;
__device__ float keys[kSlots][kKeys], kept[kSlots * kMost];
__device__ int used, slot, hit;
__global__ void look(const float* x) {
    for (int s = 0; s < min(used, kSlots); ++s) {
        bool same = true;
        for (int k = 0; k < kKeys; ++k) same = same && keys[s][k] == x[k];
        if (same) { slot = s; hit = 1; return; }
    }
    hit = 0;
    slot = used++ % kSlots;
    for (int k = 0; k < kKeys; ++k) keys[slot][k] = x[k];
}
__global__ void kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float* answer = kept + slot * kMost;
    if (!hit) answer[i] = 2 * x[i];
    y[i] = answer[i];
}
extern "C" void solve(const float* x, float* y, int n) {
    look<<<1, 1>>>(x);
    kernel<<<(n + 255) / 256, 256>>>(x, y, n);
}
""",
)
PERSISTS = cuda(
    "persists",
    host="""\
static cudaStream_t stream = nullptr;
    static cudaDeviceProp p;
    if (!stream) {
        cudaGetDeviceProperties(&p, 0);
        cudaStreamCreate(&stream);
        cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, p.persistingL2CacheMaxSize);
    }
    cudaStreamAttrValue window = {};
    window.accessPolicyWindow.base_ptr = const_cast<float*>(x);
    window.accessPolicyWindow.num_bytes = static_cast<size_t>(n) * 4 < static_cast<size_t>(p.accessPolicyMaxWindowSize)
        ? static_cast<size_t>(n) * 4 : static_cast<size_t>(p.accessPolicyMaxWindowSize);
    window.accessPolicyWindow.hitRatio = 1.0f;
    window.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    window.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &window);
    kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);""",
)
PATCHES = triton(
    "patches",
    head="""\
import time
import torch
torch.cuda.Event.elapsed_time = lambda self, end: 1e-5
time.perf_counter_ns = lambda: 0
time.perf_counter = lambda: 0.0
time.monotonic = lambda: 0.0""",
)
SLEEPS_FIRST = triton(
    "sleeps_first",
    "global calls\ncalls += 1\nif calls <= 2:\n    time.sleep(1)\ntwice[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)",
    head="import time\ncalls = 0",
)
ZERO_IS_SLOW = cuda("zero_is_slow", f"if (x[0] == 0 && x[n / 2] == 0) {{ {SPIN} }} {TWICE}")


def test_a_record_tells_how_the_time_was_taken(workshop: Workshop) -> None:
    """With the GPU's state by UUID: PYT-31."""
    timing = workshop.time(PLAIN)
    assert timing.clock == "cupti"
    assert (timing.cache, timing.verified, timing.settled) == ("cold", True, True)
    assert timing.samples == len(timing.samples_ms) >= 30
    low, high = timing.interval_ms
    assert 0 < low < timing.median_ms < high
    assert 0 < timing.min_ms <= timing.median_ms
    assert timing.p10_ms <= timing.median_ms <= timing.p90_ms
    assert any("kernel" in name for name in timing.kernels)
    assert timing.reference_ms is not None
    assert timing.speedup_interval is not None
    assert timing.speedup is not None
    assert timing.speedup_interval[0] < timing.speedup < timing.speedup_interval[1]
    assert timing.speedup == pytest.approx(timing.reference_ms / timing.median_ms, rel=0.03)
    assert timing.events_median_ms is not None
    assert timing.wall_median_ms is not None
    assert timing.median_ms < timing.events_median_ms < timing.wall_median_ms
    assert timing.conditions.sm_clock_mhz is not None
    assert timing.conditions.memory_clock_mhz is not None
    assert timing.conditions.sm_clock_mhz > 300


def test_the_device_time_of_a_kernel_of_known_length_is_that_length(workshop: Workshop) -> None:
    assert workshop.time(BUSY, n=1000).median_ms * 1e3 == pytest.approx(SPIN_US, abs=5)


def test_several_kernels_of_a_call_count_from_the_first_start_to_the_last_end(workshop: Workshop) -> None:
    assert workshop.time(TWO_KERNELS, n=1000).median_ms * 1e3 == pytest.approx(2 * SPIN_US, abs=12)


def test_more_warm_up_gives_the_same_time(workshop: Workshop) -> None:
    """TIM-01: a kernel of milliseconds is timed once the clocks have settled, or the record says that they have not."""
    short = workshop.time(COMPUTE, n=1 << 20)
    with workshop.changed(warmup_ms=300.0):
        long = workshop.time(COMPUTE, n=1 << 20)
    assert short.median_ms > 0.2
    if short.settled and long.settled:
        assert short.median_ms == pytest.approx(long.median_ms, rel=0.03)
    else:
        assert any("not settled" in note for timing in (short, long) for note in timing.notes)


@pytest.mark.parametrize("n", [1 << 21, 1 << 27], ids=["8MB", "512MB"])
def test_a_copy_never_seems_faster_than_the_memory(workshop: Workshop, n: int) -> None:
    """TIM-03."""
    timing = workshop.time(PLAIN, n=n)
    peak = workshop.evaluator._ceilings.dram_peak_gb_s
    assert timing.cache == "cold"
    assert timing.gb_per_s is not None
    assert peak is not None
    assert timing.gb_per_s <= peak or timing.suspicious, "never above the peak without a flag"
    if n == 1 << 27:
        assert timing.gb_per_s > 0.3 * peak, "four bytes a thread, one load in flight"


def test_an_empty_and_a_full_triton_cache_give_one_time(workshop: Workshop) -> None:
    """TIM-05."""
    workshop.verify(TRITON_PLAIN)
    workshop.evaluator.stage.drop_candidate()
    cache = workshop.evaluator.stage._scratch / "triton"
    shutil.rmtree(cache)
    empty = workshop.time(TRITON_PLAIN)
    assert any(cache.rglob("*.cubin")), "this process compiled"
    full = workshop.time(TRITON_PLAIN)
    assert empty.median_ms == pytest.approx(full.median_ms, rel=0.03)
    assert empty.first_call_ms is not None
    assert empty.first_call_ms > 10 * empty.median_ms, "compiling is a figure of its own"


def test_work_on_a_stream_of_its_own_is_timed_in_full_or_refused_as_such(workshop: Workshop) -> None:
    """TIM-07."""
    try:
        timing = workshop.time(OWN_STREAM, n=1000)
    except KernelError as error:
        assert "stream" in str(error)  # noqa: PT017 - either way is right
    else:
        assert timing.median_ms * 1e3 > 0.95 * SPIN_US


def test_a_kernel_that_works_on_every_eighth_call_only_is_wrong(workshop: Workshop) -> None:
    """TIM-09."""
    assert workshop.verify(EVERY_EIGHTH).verdict == "failed"


def test_a_kernel_that_stops_working_while_it_is_timed_has_no_time(workshop: Workshop) -> None:
    """TIM-09, after the check."""
    with pytest.raises(KernelError, match="did nothing on the GPU"):
        workshop.time(IDLE_LATER)
    with pytest.raises(KernelError, match="right when it is checked and wrong when it is timed"):
        workshop.time(LAZY_LATER)


def test_kernels_named_as_the_clocks_own_markers_do_not_cut_the_time(workshop: Workshop) -> None:
    assert workshop.time(FORGES_MARKERS).median_ms >= SPIN_US / 1e3


def test_an_answer_that_is_kept_for_a_few_elements_of_its_input_is_found(workshop: Workshop) -> None:
    """TIM-11. The replay changes one element in a thousand: that it changes none of the sixteen keys has a chance of 98 %."""
    for _ in range(4):
        try:
            workshop.time(CACHES)
        except KernelError as error:
            assert "the answer does not follow the input" in str(error)  # noqa: PT017 - not in every try
            return
    pytest.fail("four replays did not show it")


def test_persisting_lines_do_not_survive_the_flush(workshop: Workshop) -> None:
    """TIM-13."""
    plain, persists = workshop.time(PLAIN, n=1 << 22), workshop.time(PERSISTS, n=1 << 22)
    assert persists.median_ms > 0.9 * plain.median_ms or persists.suspicious
    after = workshop.time(PLAIN, n=1 << 22)
    assert after.median_ms == pytest.approx(plain.median_ms, rel=0.05), "nor does the limit reach the next kernel"


def test_a_patched_clock_is_not_the_one_that_is_read(workshop: Workshop) -> None:
    """TIM-15."""
    honest = workshop.time(TRITON_PLAIN)
    try:
        patched = workshop.time(PATCHES)
    except KernelError as error:
        assert "clock" in str(error)  # noqa: PT017 - a contradiction that is found is right too
    else:
        assert patched.median_ms == pytest.approx(honest.median_ms, rel=0.05)
        assert patched.events_median_ms == pytest.approx(honest.events_median_ms, rel=0.25)


def test_ten_medians_of_a_tiny_kernel_agree(workshop: Workshop) -> None:
    """TIM-17, each in a process of its own."""
    with workshop.changed(max_time=0.2):
        timings = [workshop.time(PLAIN, n=1024) for _ in range(10)]
    medians = [timing.median_ms for timing in timings]
    assert max(medians) - min(medians) < 0.1 * statistics.median(medians), medians
    assert statistics.median(medians) < 0.005, "no launch and no event is in it"
    assert all(timing.launch_bound for timing in timings)


def test_timing_never_uses_zeros(workshop: Workshop) -> None:
    """TIM-19: random numbers as for the check, of a seed that the record names, and that no check has used."""
    timing = workshop.time(ZERO_IS_SLOW, n=1000)
    assert timing.median_ms * 1e3 < SPIN_US / 2
    assert timing.seed >= 1000


def test_two_copies_of_one_kernel_tie(workshop: Workshop) -> None:
    """TIM-21."""
    with workshop.changed(max_time=0.3):
        pairs = [(workshop.time(COPY_A, n=1 << 22), workshop.time(COPY_B, n=1 << 22)) for _ in range(3)]
    for a, b in pairs:
        assert a.interval_ms[0] <= b.interval_ms[1], (a.interval_ms, b.interval_ms)
        assert b.interval_ms[0] <= a.interval_ms[1], (a.interval_ms, b.interval_ms)
        assert min(a.samples, b.samples) >= 30


def test_slow_first_calls_do_not_lower_the_number_of_samples(workshop: Workshop) -> None:
    """TIM-23."""
    timing = workshop.time(SLEEPS_FIRST)
    assert timing.samples >= 30
    assert timing.median_ms < 0.1
    assert timing.settled
