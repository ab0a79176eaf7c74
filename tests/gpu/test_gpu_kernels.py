"""Verdicts on small CUDA and Triton kernels, right and wrong, on the device."""

from __future__ import annotations

import pytest
from workshop import LAUNCH, RIGHT, TWICE, N, Source, Workshop, cuda, declare, triton

HOLDS = f"output 'y' (float32 [{N}])"

WRONG_TAIL = cuda("wrong_tail", "if (i < n) y[i] = (i < n - 1 ? 2 : 3) * x[i];")
NEVER = cuda("never", host="(void)n;")
PARTLY = cuda("partly", host="kernel<<<n / 256, 256>>>(x, y, n);")
PAST_THE_END = cuda("past_the_end", "y[i] = i < n ? 2 * x[i] : 1.0f;")
BEFORE_THE_START = cuda("before_the_start", f"{TWICE} if (i == 0) y[-1] = 1.0f;")
CHANGES_INPUT = cuda("changes_input", "if (i < n) { y[i] = 2 * x[i]; const_cast<float*>(x)[i] = 0; }")
ACCUMULATES = cuda("accumulates", "if (i < n) y[i] += 2 * x[i];")
TOO_MUCH_SHARED = cuda("too_much_shared", host="kernel<<<(n + 255) / 256, 256, 300 << 10>>>(x, y, n);")
TOO_MANY_THREADS = cuda("too_many_threads", host="kernel<<<(n + 2047) / 2048, 2048>>>(x, y, n);")
STATUS = cuda("status", host=f"{LAUNCH} return 7;", returns="int")
NAN = cuda("nan", 'if (i < n) y[i] = i % 2 ? 2 * x[i] : nanf("");')
ZEROS = cuda("zeros", "if (i < n) y[i] = 0;")
RIGHT_STATUS = cuda("right_status", host=f"{LAUNCH} return cudaGetLastError();", returns="cudaError_t")
RIGHT_TRITON = triton("right")

STREAM = declare(
    "stream.cu",
    """\
#include <cuda_runtime.h>
__global__ void kernel(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = 2 * x[i];
}
extern "C" void solve(const float* x, float* y, int n, cudaStream_t stream) { kernel<<<64, 128, 0, stream>>>(x, y, n); }
""",
)


@pytest.mark.parametrize("source", [RIGHT, RIGHT_STATUS, RIGHT_TRITON, STREAM], ids=lambda source: source.name)
def test_a_right_kernel_passes_on_the_device(workshop: Workshop, source: Source) -> None:
    verdict = workshop.verify(source)
    assert verdict.verdict == "passed", verdict.message
    assert verdict.mode == "device"
    assert len(verdict.seeds) >= 3
    assert [output.name for output in verdict.outputs] == ["y"]


@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 1 << 22])
def test_a_right_kernel_passes_at_every_size(workshop: Workshop, n: int) -> None:
    assert workshop.verify(RIGHT, n=n).verdict == "passed"


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        (WRONG_TAIL, "wrong values", f"{HOLDS}: 1 of {N} elements wrong"),
        (ZEROS, "wrong values", "elements wrong"),  # COR-01: zeros are no answer
        (NAN, "wrong values", "NaN"),  # COR-07
        (NEVER, "never written", f"output 'y' was never written ({N} of {N} elements)"),
        (PARTLY, "partly written", f"{N % 256} of {N} elements of output 'y' were never written"),  # COR-05
        (PAST_THE_END, "out of bounds write", f"wrote {(256 - N % 256) * 4} bytes past the end of 'y'"),  # COR-19
        (BEFORE_THE_START, "out of bounds write", "wrote 4 bytes before the start of 'y'"),
        (CHANGES_INPUT, "changed its input", "changed its input 'x'"),  # COR-03
        (ACCUMULATES, "accumulates into its output", "accumulates into its output 'y'"),
        (TOO_MUCH_SHARED, "launch failed", "invalid argument (CUDA error 1)"),
        (TOO_MANY_THREADS, "launch failed", "a CUDA call or launch in it failed: invalid"),  # COR-17
        (STATUS, "error status", "it returned the status 7"),
    ],
    ids=lambda value: value.name if isinstance(value, Source) else "",
)
def test_a_wrong_kernel_fails_for_what_is_wrong_with_it(workshop: Workshop, source: Source, kind: str, text: str) -> None:
    verdict = workshop.verify(source)
    assert (verdict.verdict, verdict.kind) == ("failed", kind), verdict.message
    assert text in (verdict.message or "")
    assert verdict.failing_seed == 0


def test_a_failure_names_the_first_wrong_element_with_both_values(workshop: Workshop) -> None:
    verdict = workshop.verify(WRONG_TAIL)
    (output,) = verdict.outputs
    assert output.first_wrong == (N - 1,)
    assert output.got is not None
    assert output.want is not None
    assert float(output.got) == pytest.approx(1.5 * float(output.want))
    message = verdict.message or ""
    assert f"first wrong: [{N - 1}]" in message
    assert "wrong_tail_ref.py" in message
    assert output.picture, "a picture shows where the errors lie"


def test_outputs_and_reference_agree_as_cpu_tensors(workshop: Workshop) -> None:
    spec = workshop.spec(RIGHT)
    got, want = workshop.evaluator.run(spec, spec.cases[0]), workshop.evaluator.expected(spec, spec.cases[0])
    assert list(got) == list(want) == ["y"]
    assert got["y"].device.type == "cpu"
    assert bool((got["y"] == want["y"]).all())
