"""Public reports of area signature, as far as they need a GPU; the rest is in tests/unit/test_reports_signature.py."""

from __future__ import annotations

import pytest
from workshop import RIGHT, Workshop, declare

from pytest_kernelopt.core.errors import KernelError

HEAD = "import torch\nfrom jaxtyping import Float, Int32\nfrom torch import Tensor\n\n"
EMBED = """\
#include <cuda_runtime.h>
__global__ void embed(const int* ids, const float* table, float* out, int width, int vocabulary) {
    const int id = ids[blockIdx.x];
    if (id < vocabulary) out[blockIdx.x * width + threadIdx.x] = table[id * width + threadIdx.x];
}
extern "C" void solve(const int* token_ids, const float* table, float* output, int T, int width, int vocabulary) {
    embed<<<T, width>>>(token_ids, table, output, width, vocabulary);
}
"""
EMBED_REF = (
    HEAD
    + """\
cases = [{"T": 1000, "width": 64, "vocabulary": 3}]

def reference(token_ids: Int32[Tensor, "T"], table: Float[Tensor, "vocabulary width"]) -> Float[Tensor, "T width"]:
    return table[token_ids]
"""
)
RANGE = """
def make_inputs(*, seed, device, T, vocabulary):
    generator = torch.Generator(device).manual_seed(seed)
    return {"token_ids": torch.randint(vocabulary, (T,), generator=generator, device=device)}
"""
OUT_OF_RANGE = declare("out_of_range.cu", EMBED, EMBED_REF)
IN_RANGE = declare("in_range.cu", EMBED, EMBED_REF + RANGE)
HALVES = declare(
    "halves.cu",
    """\
#include <cuda_runtime.h>
__global__ void step(const float* x, float* y, float beta, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + beta * y[i];
}
extern "C" void solve(const float* x, float* y, float beta, int n) { step<<<(n + 255) / 256, 256>>>(x, y, beta, n); }
""",
    HEAD
    + """\
cases = [{"n": 100_003, "beta": 0.5}]

def reference(x: Float[Tensor, "n"], y: Float[Tensor, "n"], beta: float) -> Float[Tensor, "n"]:
    return x + beta * y
""",
)


def test_an_index_out_of_range_is_laid_to_the_inputs_and_costs_one_item(workshop: Workshop) -> None:
    """SIG-11: the reference trips an assert on the device, which spoils its context for good."""
    with pytest.raises(KernelError, match=r"out_of_range_ref\.py:.*define make_inputs\(\) if they are indices"):
        workshop.verify(OUT_OF_RANGE)
    assert workshop.verify(RIGHT).verdict == "passed"
    verdict = workshop.verify(IN_RANGE)
    assert verdict.verdict == "passed", verdict.message


def test_what_is_read_and_written_has_its_start_value_before_every_timed_call(workshop: Workshop) -> None:
    """SIG-03: thousands of calls would halve it to nothing; the replay after timing compares the last answers."""
    timing = workshop.time(HALVES)
    assert timing.verified
    assert timing.samples >= 30
