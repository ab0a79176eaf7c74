"""Kernels that end, block or spoil their process: each costs its own item and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from workshop import LAUNCH, RIGHT, TWICE, Source, Workshop, cuda, declare, eventually, triton

from pytest_kernelopt.core import device

MIB = 1 << 20

ILLEGAL = cuda("illegal", f"{TWICE} if (i == 0) *reinterpret_cast<volatile float*>(8) = 1.0f;")
TRAP = cuda("trap", f"{TWICE} if (i == 0) __trap();")
SEGFAULT = cuda("segfault", host=f"{LAUNCH} *reinterpret_cast<volatile int*>(8) = n;")
ABORT = cuda("abort", host="std::abort();", head="#include <cstdlib>")
EXIT = cuda("exit", host="_exit(5);", head="#include <unistd.h>")
# deaf to SIGTERM, and in the driver when the time is up (PYT-13)
HANG = cuda(
    "hang",
    "while (*reinterpret_cast<const volatile float*>(x) != 123456.0f) {}",
    f"signal(SIGTERM, SIG_IGN); {LAUNCH} cudaDeviceSynchronize();",
    head="#include <csignal>",
)
HOST_HANG = cuda("host_hang", host="volatile int n_ = n; while (n_) {}")
CHILDREN = cuda(
    "children",
    host=f'{LAUNCH} if (fork() == 0) {{ execlp("sleep", "sleep", "3217", nullptr); _exit(1); }}',
    head="#include <unistd.h>",
)
EXIT_TRITON = triton("exit", "os._exit(3)", head="import os")
SYS_EXIT_TRITON = triton("sys_exit", "sys.exit(3)", head="import sys")
RAISES_TRITON = triton("raises", "raise ValueError('no such block')")
IMPORT_ERROR_TRITON = declare("import_error_triton.py", "import no_such_module\n\ndef run_kernel(x, y, n):\n    pass\n")

# One name, two kernels (CMP-21); helpers of one name, and one named like a function of libc (CMP-23)
SAME_NAME = declare(
    "same_name.cu",
    """\
#include <cuda_runtime.h>
template <int F> __global__ void scaled(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (F == 2 ? 3 : 0) * x[i];
}
void launch(const float* x, float* y, int n) { scaled<2><<<(n + 255) / 256, 256>>>(x, y, n); }
extern "C" void solve(const float* x, float* y, int n) { launch(x, y, n); }
""",
    "from jaxtyping import Float\nfrom torch import Tensor\n\ncases = [{'n': 1000}]\n\n"
    'def reference(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:\n    return 3 * x\n',
)
OTHER_OF_THAT_NAME = declare(
    "other_of_that_name.cu",
    """\
#include <cuda_runtime.h>
extern "C" int hcreate(size_t size) { return static_cast<int>(size) + 1; }
template <int F> __global__ void scaled(const float* x, float* y, int n, int factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
void launch(const float* x, float* y, int n) { scaled<2><<<(n + 255) / 256, 256>>>(x, y, n, hcreate(1)); }
extern "C" void solve(const float* x, float* y, int n) { launch(x, y, n); }
""",
)


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        (ILLEGAL, "CUDA error", "illegal memory access"),
        (TRAP, "CUDA error", "CUDA error"),
        (SEGFAULT, "crashed", "crashed with signal 11 (SIGSEGV)"),
        (ABORT, "crashed", "crashed with signal 6 (SIGABRT)"),
        (EXIT, "exited", "exit status 5"),
        (EXIT_TRITON, "exited", "exit status 3"),
        (SYS_EXIT_TRITON, "raised", "sys_exit_triton.py:"),
        (RAISES_TRITON, "raised", "ValueError: no such block"),
        (IMPORT_ERROR_TRITON, "does not load", "import_error_triton.py:1: ModuleNotFoundError"),
    ],
    ids=lambda value: value.name if isinstance(value, Source) else "",
)
def test_a_kernel_that_ends_its_process_fails_and_the_next_is_unharmed(
    workshop: Workshop, source: Source, kind: str, text: str
) -> None:
    verdict = workshop.verify(source)
    assert (verdict.verdict, verdict.kind) == ("failed", kind), verdict.message
    assert text in (verdict.message or "")
    assert workshop.verify(RIGHT).verdict == "passed"


@pytest.mark.parametrize("source", [HANG, HOST_HANG], ids=lambda source: source.name)
def test_a_kernel_that_hangs_is_killed_in_time(workshop: Workshop, source: Source) -> None:
    before = time.monotonic()
    with workshop.changed(timeout=3.0):
        verdict = workshop.verify(source)
    assert (verdict.verdict, verdict.kind) == ("failed", "hung"), verdict.message
    assert "did not finish within 3 s and was killed" in (verdict.message or "")
    assert time.monotonic() - before < 20, "killed, gone, and its GPU memory free"
    assert workshop.verify(RIGHT).verdict == "passed"


def test_what_a_kernel_started_ends_with_it(workshop: Workshop) -> None:
    assert workshop.verify(CHILDREN).verdict == "passed"
    assert eventually(lambda: bool(_sleepers()), 5)
    workshop.evaluator.stage.drop_candidate()
    assert eventually(lambda: not _sleepers(), 5), _sleepers()


def _sleepers() -> list[str]:
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if Path(entry.path, "cmdline").read_bytes() == b"sleep\x003217\x00":
                    found.append(entry.name)
            except OSError:
                continue
    return found


@pytest.mark.parametrize("order", [(SAME_NAME, OTHER_OF_THAT_NAME), (OTHER_OF_THAT_NAME, SAME_NAME)], ids=["one", "other"])
def test_kernels_and_helpers_of_one_name_stay_apart(workshop: Workshop, order: tuple[Source, Source]) -> None:
    for source in order:
        verdict = workshop.verify(source)
        assert verdict.verdict == "passed", verdict.message


def test_memory_stays_level_over_many_items(workshop: Workshop) -> None:
    """PYT-19: items of mixed sizes, with the process that owns their memory, this one and the GPU watched."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        pytest.skip("other workers use the same GPU's memory")
    sizes = [1, 1000, 1 << 16, 1 << 20, 3_000_001, 1 << 24]
    levels = []
    for index in range(60):
        assert workshop.verify(RIGHT, n=sizes[index % len(sizes)]).verdict == "passed"
        if index % len(sizes) == len(sizes) - 1:
            levels.append((workshop.used_memory(), _resident(os.getpid()), sum(map(_resident, device.family()))))
    for what, first, last in zip(("the GPU", "this process", "it and its children"), levels[1], levels[-1], strict=True):
        assert last - first < 64 * MIB, f"{what} took {(last - first) / MIB:.0f} MiB in 48 items: {levels}"


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0  # it ended meanwhile
