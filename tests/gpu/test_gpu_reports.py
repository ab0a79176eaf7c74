"""Public reports of areas compile and triton that need a GPU; those of area pytest are in test_gpu_runs and test_gpu_isolation.

Not provoked here: a driver older than the toolkit (CMP-09) can't be had at will; what avoids it is held instead.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from workshop import TRITON_TWICE, TWICE, Source, Workshop, cuda, cuda_text, declare, triton, triton_text

from pytest_kernelopt.core import device, evaluate
from pytest_kernelopt.core import spec as kernels
from pytest_kernelopt.core.errors import BuildError
from pytest_kernelopt.core.evaluate import Evaluator, EvaluatorSettings
from pytest_kernelopt.core.toolchain import Target

PLAIN = cuda("reports_plain")
ARCH_SPECIFIC = cuda("arch_specific", f'asm volatile("wgmma.fence.sync.aligned;"); {TWICE}')
WITH_BOM = declare(
    "bom.cu", "\ufeff" + cuda_text(), "\ufeffcases = [{'n': 1000}]\n\ndef reference(x, y, n):\n    y.copy_(2 * x)\n"
)
WITH_BOM_TRITON = declare("bom_triton.py", "\ufeff" + triton_text())

IN_PLACE_REF = """\
from jaxtyping import Float
from torch import Tensor

cases = [{"n": 100_003}]
inout = ["y"]

def reference(y: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return 2 * y
"""
IN_PLACE = """\
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})], key=["n"]%s)
@triton.jit
def scale(y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(y + i, mask=i < n), mask=i < n)

def run_kernel(y, n):
    scale[lambda config: (triton.cdiv(n, config["BLOCK"]),)](y, n)
"""
TUNED_IN_PLACE = declare("tuned_in_place_triton.py", IN_PLACE % "", IN_PLACE_REF)
TUNED_AND_RESTORED = declare("tuned_and_restored_triton.py", IN_PLACE % ', restore_value=["y"]', IN_PLACE_REF)
RESET_IN_TUNING_ONLY = declare(
    "reset_in_tuning_only_triton.py",
    """\
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 256})], key=["n"], reset_to_zero=["counts"])
@triton.jit
def count(values, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + i, mask=i < n, other=0)
    tl.atomic_add(counts + value, tl.full((BLOCK,), 1, tl.int32), mask=i < n)

def run_kernel(values, counts, n, bins):
    count[lambda config: (triton.cdiv(n, config["BLOCK"]),)](values, counts, n)
""",
    """\
import torch
from jaxtyping import Int32
from torch import Tensor

cases = [{"n": 10_007, "bins": 10}]

def reference(values: Int32[Tensor, "n"], bins: int) -> Int32[Tensor, "bins"]:
    return torch.bincount(values, minlength=bins).to(torch.int32)
""",
)
TOO_MANY_STAGES = declare(
    "too_many_stages_triton.py",
    """\
import triton
import triton.language as tl

@triton.jit
def gemm(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    col = tl.program_id(1) * N + tl.arange(0, N)[None, :]
    depth = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for done in range(0, k, K):
        x = tl.load(a + row * k + done + depth[None, :])
        y = tl.load(b + (done + depth[:, None]) * n + col)
        total = tl.dot(x, y, total)
    tl.store(c + row * n + col, total.to(tl.float16))

def run_kernel(a, b, c, m, n, k):
    gemm[(m // 128, n // 256)](a, b, c, m, n, k, M=128, N=256, K=64, num_stages=7, num_warps=8)
""",
    """\
from jaxtyping import Float16
from torch import Tensor

cases = [{"m": 256, "n": 256, "k": 1024}]

def reference(a: Float16[Tensor, "m k"], b: Float16[Tensor, "k n"]) -> Float16[Tensor, "m n"]:
    return a @ b
""",
)
BYTES_REF = """\
from jaxtyping import Int8
from torch import Tensor

cases = [{"n": 2**31 + 1000}]

def reference(x: Int8[Tensor, "n"]) -> Int8[Tensor, "n"]:
    return x + 1
"""
BYTES = """\
#include <cstdint>
#include <cuda_runtime.h>
__global__ void next(const int8_t* x, int8_t* y, int64_t n) {
    const %s i = blockIdx.x * %s(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = x[i] + 1;
}
extern "C" void solve(const int8_t* x, int8_t* y, int64_t n) { next<<<(n + 255) / 256, 256>>>(x, y, n); }
"""
WIDE_INDEX = declare("wide_index.cu", BYTES % ("int64_t", "int64_t"), BYTES_REF)
NARROW_INDEX = declare("narrow_index.cu", BYTES % ("int", "int"), BYTES_REF)
SETUP = declare(
    "setup_triton.py",
    triton_text(
        head="""\
import torch

def setup(*, seed=None, n):
    torch.manual_seed(seed or 0)
    return {"inputs": {"x": torch.randn(n, device="cuda"), "y": torch.empty(n, device="cuda"), "n": n}, "outputs": ["y"]}
"""
    ),
    "cases = [{'n': 1000}]\n\ndef reference(x):\n    return 2 * x\n",
)
SLOW_TUNING = triton("slow_tuning", "time.sleep(60)", head="import time")


def test_a_library_for_another_gpu_says_so(workshop: Workshop) -> None:
    """CMP-01; and by default it is built for the GPU that it runs on."""
    spec = workshop.spec(PLAIN)
    assert workshop.evaluator.build(spec).arch == Target.for_gpu(workshop.gpu.capability).arch
    older = "sm_75" if workshop.gpu.capability >= (8, 0) else "sm_80"
    other = workshop.beside(arch=older)
    assert other.build(spec).key != workshop.evaluator.build(spec).key
    verdict = other.verify(spec, spec.cases[0])
    assert (verdict.verdict, verdict.kind) == ("failed", "launch failed"), verdict.message
    assert "it was built for another GPU (see --kopt-arch)" in (verdict.message or "")
    assert workshop.verify(PLAIN).verdict == "passed"


def test_instructions_of_one_arch_are_built_by_default_and_otherwise_hinted_at(workshop: Workshop) -> None:
    """CMP-05."""
    if workshop.gpu.capability != (9, 0):
        pytest.skip("the instruction is one of sm_90a")
    verdict = workshop.verify(ARCH_SPECIFIC)
    assert verdict.verdict == "passed", verdict.message
    with pytest.raises(BuildError, match="--kopt-arch sm_90a"):
        workshop.beside(arch="sm_90").build(workshop.spec(ARCH_SPECIFIC))


def test_machine_code_for_this_very_gpu_is_built_and_nothing_is_left_to_the_driver(workshop: Workshop) -> None:
    """CMP-09."""
    flags = workshop.evaluator.build(workshop.spec(PLAIN)).flags
    arch = Target.for_gpu(workshop.gpu.capability).arch
    assert f"arch=compute_{arch[3:]},code={arch}" in flags
    assert not any("code=compute" in flag for flag in flags)


@pytest.mark.parametrize("source", [WITH_BOM, WITH_BOM_TRITON], ids=lambda source: source.name)
def test_a_byte_order_mark_does_no_harm(workshop: Workshop, source: Source) -> None:
    """CMP-15: in a kernel and in a reference."""
    verdict = workshop.verify(source)
    assert verdict.verdict == "passed", verdict.message


@pytest.mark.parametrize("name", ["Radix Sort (cub)/two words.cu", "проект/ядро.cu", "it's/$HOME;x.cu"])
def test_any_path_compiles_and_loads(workshop: Workshop, tmp_path: Path, name: str) -> None:
    """CMP-11, CMP-13."""
    path = tmp_path / name
    path.parent.mkdir()
    path.write_text(cuda_text(), encoding="utf-8")
    path.with_name(f"{path.stem}_ref.py").write_text(PLAIN.reference, encoding="utf-8")
    spec = kernels.load(path)
    assert workshop.evaluator.verify(spec, spec.cases[0]).verdict == "passed"


def _triton_times(factor: int) -> str:
    constant = TRITON_TWICE.replace("@", f"FACTOR = tl.constexpr({factor})\n\n@", 1)
    return triton_text(kernel=constant.replace("2 * tl.load(x + i, mask=i < n)", "tl.load(x + i, mask=i < n) * FACTOR"))


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("edited.cu", cuda_text(), cuda_text(TWICE.replace("2 *", "3 *"))),
        ("edited_triton.py", _triton_times(2), _triton_times(3)),
    ],
    ids=["cuda", "triton"],
)
def test_an_edited_kernel_is_the_one_that_runs(workshop: Workshop, tmp_path: Path, name: str, right: str, wrong: str) -> None:
    """CMP-19, TRI-05: under one path, from wrong to right and from right to wrong."""
    path = tmp_path / name
    path.with_name(f"{path.stem}_ref.py").write_text(PLAIN.reference, encoding="utf-8")
    for text, verdict in ((wrong, "failed"), (right, "passed"), (wrong, "failed")):
        path.write_text(text, encoding="utf-8")
        spec = kernels.load(path)
        workshop.evaluator.forget(path)
        assert workshop.evaluator.verify(spec, spec.cases[0]).verdict == verdict


def test_tuning_in_place_is_found_and_its_remedy_named(workshop: Workshop) -> None:
    """TRI-01."""
    verdict = workshop.verify(TUNED_IN_PLACE)
    assert (verdict.verdict, verdict.kind) == ("failed", "wrong values"), verdict.message
    assert workshop.verify(TUNED_AND_RESTORED).verdict == "passed"
    assert "restore_value" in (verdict.message or "")


def test_a_result_that_is_cleared_in_tuning_only_accumulates(workshop: Workshop) -> None:
    """TRI-03."""
    verdict = workshop.verify(RESET_IN_TUNING_ONLY)
    assert (verdict.verdict, verdict.kind) == ("failed", "accumulates into its output"), verdict.message


def test_too_much_shared_memory_is_named_with_what_was_asked_for_and_the_limit(workshop: Workshop) -> None:
    """TRI-09."""
    verdict = workshop.verify(TOO_MANY_STAGES)
    assert (verdict.verdict, verdict.kind) == ("failed", "resources"), verdict.message
    assert "shared memory" in (verdict.message or "")
    assert "Required" in (verdict.message or "")
    assert workshop.verify(PLAIN).verdict == "passed"


def test_offsets_beyond_two_to_the_31_cost_at_most_the_kernel_that_gets_them_wrong(workshop: Workshop) -> None:
    """TRI-15."""
    if workshop.gpu.memory_bytes < 40 << 30:
        pytest.skip("needs 40 GB of GPU memory")
    with workshop.changed(trials=1):
        assert workshop.verify(NARROW_INDEX).verdict == "failed"
        right = workshop.verify(WIDE_INDEX)
    assert right.verdict == "passed", right.message
    assert right.outputs[0].elements == 2**31 + 1000
    assert workshop.verify(PLAIN).verdict == "passed", "and its memory is free again"


def test_the_second_of_two_gpus_is_the_only_one_a_kernel_sees(workshop: Workshop) -> None:
    """TRI-17."""
    if len(device.gpus()) < 2:
        pytest.skip("there is one GPU: nothing can be taken for another")
    evaluator = Evaluator(EvaluatorSettings(gpu=1))
    try:
        spec = workshop.spec(SETUP)
        assert evaluator.verify(spec, spec.cases[0]).verdict == "passed"
        assert evaluator.gpu is not None
        assert evaluator.gpu.index == 1
    finally:
        evaluator.close()


def test_setup_may_allocate_on_the_device(workshop: Workshop) -> None:
    verdict = workshop.verify(SETUP)
    assert verdict.verdict == "passed", verdict.message


def test_tuning_has_a_limit_of_its_own_and_is_named(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRI-21."""
    monkeypatch.setattr(evaluate, "_FIRST_CALL_SECONDS", 2.0)
    with workshop.changed(timeout=1.0):
        verdict = workshop.verify(SLOW_TUNING)
    assert (verdict.verdict, verdict.kind) == ("failed", "tuning too slow"), verdict.message
    assert "compiling or tuning" in (verdict.message or "")
