"""Kernels written in the tests, and one evaluator that builds, verifies and times them.

Test modules declare their kernels when they are imported, so that a session can compile all of them at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_kernelopt.core import nvml
from pytest_kernelopt.core import spec as kernels
from pytest_kernelopt.core.errors import KernelError, Unavailable
from pytest_kernelopt.core.evaluate import Evaluator
from pytest_kernelopt.core.records import Correctness, Gpu, Timing
from pytest_kernelopt.core.spec.model import Case, KernelSpec

N = 100_003  # no multiple of a block: 391 blocks of 256 threads, 93 of them beyond the end

TWICE_REF = f"""\
from jaxtyping import Float
from torch import Tensor

cases = [{{"n": {N}}}]

def reference(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return 2 * x
"""
TWICE = "if (i < n) y[i] = 2 * x[i];"
LAUNCH = "kernel<<<(n + 255) / 256, 256>>>(x, y, n);"
TRITON_TWICE = """\
import triton
import triton.language as tl

@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

"""
TRITON_LAUNCH = "twice[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)"


def cuda_text(body: str = TWICE, host: str = LAUNCH, *, head: str = "", returns: str = "void") -> str:
    """A ``.cu`` of one kernel over x, y and n, with ``i`` the thread's number."""
    return f"""\
#include <cuda_runtime.h>
{head}
__global__ void kernel(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
extern "C" {returns} solve(const float* x, float* y, int n) {{
    {host}
}}
"""


def triton_text(host: str = TRITON_LAUNCH, *, head: str = "", kernel: str = TRITON_TWICE) -> str:
    body = "\n    ".join(host.splitlines())
    return f"{head}\n{kernel}def run_kernel(x, y, n):\n    {body}\n"


@dataclass(frozen=True)
class Source:
    """A kernel file with its reference, in a folder of their own."""

    name: str
    text: str
    reference: str = TWICE_REF

    @property
    def ref_name(self) -> str:
        return f"{Path(self.name).stem}_ref.py"


DECLARED: list[Source] = []


def declare(name: str, text: str, reference: str = TWICE_REF) -> Source:
    source = Source(name, text, reference)
    DECLARED.append(source)
    return source


def cuda(name: str, body: str = TWICE, host: str = LAUNCH, *, head: str = "", returns: str = "void") -> Source:
    return declare(f"{name}.cu", cuda_text(body, host, head=head, returns=returns))


def triton(name: str, host: str = TRITON_LAUNCH, *, head: str = "") -> Source:
    return declare(f"{name}_triton.py", triton_text(host, head=head))


RIGHT = cuda("right")


class Workshop:
    """Where the declared kernels lie, and what is asked of them."""

    def __init__(self, folder: Path, evaluator: Evaluator) -> None:
        self.folder = folder
        self.evaluator = evaluator
        self._specs: dict[Source, KernelSpec] = {}

    @property
    def gpu(self) -> Gpu:
        assert self.evaluator.gpu is not None
        return self.evaluator.gpu

    def spec(self, source: Source) -> KernelSpec:
        if source not in self._specs:
            folder = self.folder / f"k{len(self._specs)}"
            folder.mkdir()
            (folder / source.ref_name).write_text(source.reference, encoding="utf-8")
            (folder / source.name).write_text(source.text, encoding="utf-8")
            self._specs[source] = kernels.load(folder / source.name)
        return self._specs[source]

    def build_all(self) -> None:
        """Compile every declared ``.cu`` side by side; what does not compile says so to the test that wants it."""
        specs = [self.spec(source) for source in DECLARED if source.name.endswith(".cu")]
        assert self.evaluator.toolchain.nvcc, "no nvcc"
        assert self.evaluator.cache.root
        assert self.evaluator.target.arch

        def build(spec: KernelSpec) -> None:
            with contextlib.suppress(KernelError, Unavailable):
                self.evaluator.build(spec)

        with ThreadPoolExecutor(max(2, min(16, os.cpu_count() or 2))) as pool:
            list(pool.map(build, specs))

    def case(self, source: Source, dims: dict[str, Any]) -> Case:
        return Case(tuple(dims.items())) if dims else self.spec(source).cases[0]

    def verify(self, source: Source, **dims: Any) -> Correctness:
        """The verdict on a kernel, found anew."""
        spec = self.spec(source)
        self.evaluator.forget(spec.path)
        return self.evaluator.verify(spec, self.case(source, dims))

    def time(self, source: Source, **dims: Any) -> Timing:
        """The time of a verified kernel in a fresh process."""
        spec, case = self.spec(source), self.case(source, dims)
        verdict = self.evaluator.verify(spec, case)
        assert verdict.verdict == "passed", verdict.message
        self.evaluator.stage.drop_candidate()
        return self.evaluator._time(spec, case)

    @contextlib.contextmanager
    def changed(self, **settings: Any) -> Iterator[None]:
        """Other settings of the evaluator for a while."""
        before = self.evaluator.settings
        self.evaluator.settings = dataclasses.replace(before, **settings)
        try:
            yield
        finally:
            self.evaluator.settings = before

    def beside(self, **settings: Any) -> Evaluator:
        """An evaluator that knows nothing yet, as that of the next session, with the processes of this one."""
        other = Evaluator(dataclasses.replace(self.evaluator.settings, **settings))
        other.__dict__["stage"] = self.evaluator.stage
        return other

    def used_memory(self) -> int:
        """Bytes in use on the GPU, by everybody."""
        handle = nvml.handle(self.gpu.uuid)
        info = nvml.ask(lambda n: n.nvmlDeviceGetMemoryInfo(handle))
        if info is None:
            pytest.skip("NVML does not tell the memory in use")
        return int(info.used)


def eventually(what: Callable[[], bool], seconds: float) -> bool:
    """Whether it becomes true in time."""
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def processes_with(token: str) -> list[int]:
    """The processes that were started with this text in their environment."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            environ = Path(entry.path, "environ").read_bytes()
            state = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue  # it ended meanwhile, or is another user's
        if token.encode() in environ and state != "Z":
            found.append(int(entry.name))
    return found
