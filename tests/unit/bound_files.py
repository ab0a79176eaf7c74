"""A kernel and its reference, written to files and bound: what the tests of binding share."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from pytest_kernelopt.core.reference.binding import bind
from pytest_kernelopt.core.reference.module import load_reference
from pytest_kernelopt.core.reference.problem import Problem
from pytest_kernelopt.core.spec import load
from pytest_kernelopt.core.spec.model import Case

HEAD = """\
import torch
from torch import Tensor
from jaxtyping import Bool, Complex64, Float, Float16, Float32, Int, Int8
"""


class Files:
    """Writes a kernel and its reference, and binds them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cuda(self, parameters: str, reference: str | None, **how) -> Problem:
        kernel = self.folder / "op.cu"
        kernel.write_text(f'#include <cuda_fp16.h>\nextern "C" void solve({parameters}) {{}}\n')
        return self._bind(kernel, reference, how)

    def triton(self, source: str, reference: str | None, **how) -> Problem:
        kernel = self.folder / "op_triton.py"
        kernel.write_text(dedent(source))
        return self._bind(kernel, reference, how)

    def _bind(self, kernel: Path, reference: str | None, how: dict) -> Problem:
        options = {name: how.pop(name) for name in ("ptr_size", "setup_shapes") if name in how}
        path = self.folder / "op_ref.py"
        if reference is not None:
            path.write_text(HEAD + dedent(reference))
        loaded = load_reference(path) if reference is not None else None
        return bind(load(kernel), loaded, Case(tuple(how.items())), **options)


def tensors(problem: Problem) -> dict[str, tuple[str, str, tuple[int, ...]]]:
    return {t.name: (t.role, t.dtype, t.shape) for t in problem.tensors}


def scalars(problem: Problem) -> dict[str, object]:
    return {a.name: a.value for a in problem.arguments if a.kind == "scalar"}


SOFTMAX = 'def reference(x: Float[Tensor, "rows cols"]) -> Float[Tensor, "rows cols"]:\n    return torch.softmax(x, -1)\n'
