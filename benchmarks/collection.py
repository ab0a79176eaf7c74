"""How long ``pytest --collect-only`` takes for 1,000 kernel files: goal, under 3 s on 2 cores. Needs no GPU.

    python benchmarks/collection.py [kernels] [runs]

Half of the files are CUDA, half Triton, each with a reference of its own, in folders of 100, as ordinary as kernels are
(a device function, a struct, templates, comments). Results go to ``benchmarks/results/collection.json``.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GOAL_S = 3.0
CUDA = """\
// Row softmax, one block a row. An earlier version was:
// extern "C" void solve(const float* x, float* y, int rows) {{ ... }}
#include <cuda_runtime.h>
#include <cfloat>

#define BLOCK 256  // kopt: tune BLOCK = 64, 128, 256

struct Pair {{ float max, sum; }};

template <typename T> __device__ T reduce(T value, T* scratch) {{
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {{
        if (threadIdx.x < step) scratch[threadIdx.x] = max(scratch[threadIdx.x], scratch[threadIdx.x + step]);
        __syncthreads();
    }}
    return scratch[0];
}}

__global__ void softmax{number}(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {{
    __shared__ float scratch[BLOCK];
    const float* row = x + blockIdx.x * cols;
    float top = -FLT_MAX;
    for (int i = threadIdx.x; i < cols; i += BLOCK) top = fmaxf(top, row[i]);
    top = reduce(top, scratch);
    for (int i = threadIdx.x; i < cols; i += BLOCK) y[blockIdx.x * cols + i] = __expf(row[i] - top);
}}

extern "C" void solve(const float* x, float* y, int rows, int cols, cudaStream_t stream) {{
    softmax{number}<<<rows, BLOCK, 0, stream>>>(x, y, rows, cols);
}}
"""
TRITON = """\
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({{"BLOCK": b}}, num_warps=w) for b in (128, 256) for w in (4, 8)], key=["cols"])
@triton.jit
def softmax{number}(x, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    values = tl.load(x + row * cols + offsets, mask=mask, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * cols + offsets, values / tl.sum(values, axis=0), mask=mask)


def run_kernel(x, y, rows, cols):
    softmax{number}[(rows,)](x, y, cols)
"""
REFERENCE = """\
import torch
from jaxtyping import Float
from torch import Tensor

cases = [{{"rows": 4096, "cols": 2**10}}, {{"rows": 3, "cols": 1000 + {number}}}]
atol, rtol = 1e-5, 1e-4


def reference(x: Float[Tensor, "rows cols"]) -> Float[Tensor, "rows cols"]:
    return torch.softmax(x, dim=-1)
"""


def write_kernels(folder: Path, count: int) -> None:
    for number in range(count):
        place = folder / f"group{number // 100}"
        place.mkdir(exist_ok=True)
        name, text = (f"k{number}_triton.py", TRITON) if number % 2 else (f"k{number}.cu", CUDA)
        (place / name).write_text(text.format(number=number))
        (place / f"k{number}_ref.py").write_text(REFERENCE.format(number=number))


def collect(folder: Path, count: int) -> float:
    environ = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    plugins = ["-p", "pytest_benchmark.plugin", "-p", "pytest_kernelopt.plugin"]
    command = [sys.executable, "-m", "pytest", *plugins, "--collect-only", "-q"]
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if f"{4 * count} tests collected" not in done.stdout:  # build, two correctness, one benchmark
        raise SystemExit(done.stdout[-2000:] + done.stderr)
    return seconds


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        write_kernels(folder, count)
        seconds = [collect(folder, count) for _ in range(runs)]
    median = statistics.median(seconds)
    result = {
        "goal_s": GOAL_S,
        "kernels": count,
        "items": 4 * count,
        "median_s": round(median, 3),
        "all_s": [round(value, 3) for value in seconds],
        "python": platform.python_version(),
        "pytest": pytest.__version__,
        "cores": os.cpu_count(),
        "reached": median < GOAL_S,
    }
    path = ROOT / "benchmarks" / "results" / "collection.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
