"""The glue on the real evaluator: nvcc and Triton's interpreter, so that it is the same on every machine."""

from __future__ import annotations

import shutil

import pytest
from project import Project

from pytest_kernelopt.core.records import Results

CUDA = """\
__global__ void add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
extern "C" void solve(const float* x, const float* y, float* out, int n) {
    add<<<(n + 255) / 256, 256>>>(x, y, out, n);
}
"""
TRITON = """\
import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)

def run_kernel(x, y, out, n):
    add[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
"""
REFERENCE = """\
from jaxtyping import Float
from torch import Tensor

cases = [{"n": 1000}, {"n": 37}]

def reference(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x + y
"""
TESTS = """
import pytest
import torch

@pytest.mark.kernel("add_triton.py")
def test_outputs(kernel, case, kopt_reference):
    torch.testing.assert_close(kernel.run(case), kopt_reference(case))

@pytest.mark.kernel("add_triton.py", n=77)
def test_time(kernel, case, kopt_timing):
    assert kopt_timing(kernel, case).median_ms > 0
"""
CRASH = "import os\n\ndef run_kernel(x, y, out, n):\n    os._exit(3)\n"

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")


@pytest.fixture
def real(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Kernels of which one is right, one wrong, one not C++ and one ends its process; without a GPU, whatever is here."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("KOPT_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    wrong = TRITON.replace("mask=mask)\n\n", "mask=mask & (i < n - 1))\n\n")
    sources = {"add.cu": CUDA, "broken.cu": CUDA.replace("threadIdx.x", "threadIdx_x")}
    sources |= {"add_triton.py": TRITON, "wrong_triton.py": wrong, "crash_triton.py": CRASH}
    for name, text in sources.items():
        project.write(f"kernels/{name}", text)
        project.write(f"kernels/{name.split('.')[0].split('_')[0]}_ref.py", REFERENCE)
    project.write("test_mine.py", TESTS.replace('kernel("', 'kernel("kernels/'))
    return project


def run(project: Project, *args: str) -> pytest.RunResult:
    return project.pytester.runpytest_subprocess("-p", "no:hypothesispytest", "-rs", *args)


def test_without_a_gpu_every_kernel_has_its_own_result(real: Project) -> None:
    before = sorted((real.path / "kernels").iterdir())
    result = run(real, "--kopt-json=r.json", "-W", "error")
    # crash_triton.py is built ahead of time by running its launches, so it ends that process first
    failed = {"broken.cu": 4, "wrong_triton.py": 3, "crash_triton.py": 4}
    results = Results.model_validate(real.json("r.json"))
    outcomes = {id: item["outcome"] for id, item in results.items.items()}
    assert {
        name: sum(o == "failed" for id, o in outcomes.items() if id.startswith(f"kernels/{name}")) for name in failed
    } == failed
    result.assert_outcomes(failed=11, passed=7, skipped=5)
    result.stdout.fnmatch_lines(
        [
            'broken.cu does not build: broken.cu(2): error: identifier "threadIdx_x" is undefined',
            "wrong_triton.py: * at n1000, seed 0",
            "kernels/add.cu*n1000*12 regs*skipped*skipped*",
            "kernels/add_triton.py*n1000*interpreted*skipped*",
            "SKIPPED [[]3[]] kernels/add.cu:5: *only be compiled here*",
        ]
    )
    assert sorted((real.path / "kernels").iterdir()) == before


def test_the_same_with_xdist(real: Project) -> None:
    run(real, "-n2").assert_outcomes(failed=11, passed=7, skipped=5)


def test_preflight_only_says_that_a_machine_without_a_gpu_is_not_ready(real: Project) -> None:
    result = run(real, "--kopt-preflight-only")
    assert result.ret == 10
    assert real.json("preflight_check.json")["ready"] is False
    assert "GPU" in (real.path / "preflight_check.md").read_text()
