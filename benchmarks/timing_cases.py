"""The kernels of ``timing_truth.py``: files of examples/ at chosen dims, and one that does nothing."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path
from typing import Any

from pytest_kernelopt.core import spec as kernels
from pytest_kernelopt.core.evaluate import Evaluator
from pytest_kernelopt.core.reference.problem import Problem
from pytest_kernelopt.core.spec.model import Case, KernelSpec

EXAMPLES = Path(__file__).parent.parent / "examples"
EMPTY = "empty"
Job = dict[str, Any]  # one kernel at one case, as JSON for timing_launcher.py

# from 3 us to 5 ms on an H200; the first six are those of --quick
CASES = (
    ("02_softmax/softmax.cu", "rows=64,cols=1024"),
    ("02_softmax/softmax_triton.py", "rows=256,cols=1024"),
    ("02_softmax/softmax_cutlass.cu", "rows=1024,cols=1024"),
    ("02_softmax/softmax.cu", "rows=4096,cols=1024"),
    ("04_rmsnorm_bf16/rmsnorm_triton.py", "rows=4096,cols=4096"),
    ("02_softmax/softmax.cu", "rows=16384,cols=4096"),
    ("01_vector_add/vector_add_triton.py", "n=2**20"),
    ("01_vector_add/vector_add.cu", "n=2**24"),
    ("05_layernorm/layernorm.cu", "rows=8192,cols=2048"),
    ("02_softmax/softmax_triton.py", "rows=8192,cols=4096"),
    ("08_int8_matmul/int8_matmul_triton.py", "m=2048,n=2048,k=2048"),
    ("03_gemm_fp16/gemm_cutlass.cu", "m=4096,n=4096,k=4096"),
    ("03_gemm_fp16/gemm.cu", "m=4096,n=4096,k=4096"),
    ("03_gemm_fp16/gemm_naive.cu", "m=2048,n=2048,k=1024"),
    ("03_gemm_fp16/gemm_sm90_cutlass.cu", "m=2048,n=2048,k=2048"),  # half a minute of building, beside the rest
)
AGAINST_THEMSELVES = (0, 3, 5)  # of CASES: about 4, 25 and 150 us


class Subject:
    """One kernel at one case."""

    def __init__(self, path: str, dims: str) -> None:
        self.spec: KernelSpec = kernels.load(EXAMPLES / path)
        self.case: Case = kernels.parse_dims(dims)
        self.name = f"{self.spec.path.name} {self.case.id}"
        self.library: concurrent.futures.Future[Path | None]
        self.processes: dict[str, list[dict[str, Any]]] = {"cold": [], "warm": []}
        self.result: dict[str, Any] = {"name": self.name, "backend": self.spec.backend, "case": self.case.id}

    def job(self, evaluator: Evaluator) -> Job:
        with evaluator.stage.turn():
            problem = evaluator.stage.bind(self.spec, self.case, ptr_size=None, setup=None)
        library = self.library.result()
        return {
            "name": self.name,
            "path": str(self.spec.path),
            "library": None if library is None else str(library),
            "entry": self.spec.entry,
            "returns_status": self.spec.returns_status,
            "reference": str(self.spec.reference.path) if self.spec.reference else None,
            "dims": [list(pair) for pair in self.case.dims],
            "problem": problem.to_json(),
        }


def empty_job(folder: Path, evaluator: Evaluator) -> Job:
    """A kernel that does nothing, built as every other one."""
    path = folder / "empty.cu"
    path.write_text('__global__ void nothing() {}\nextern "C" void solve() { nothing<<<1, 32>>>(); }\n', encoding="utf-8")
    spec = kernels.load(path)
    library = str(evaluator._library(spec))
    problem = Problem(tensors=(), arguments=(), verified=False).to_json()
    return {
        "name": EMPTY, "path": str(path), "library": library, "entry": "solve", "returns_status": False, "reference": None,
        "dims": [], "problem": problem,
    }  # fmt: skip
