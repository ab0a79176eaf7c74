"""Host memory that two processes share; that of a GPU is tested in tests/gpu."""

from __future__ import annotations

import fcntl
import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from evaluating import Kernels, kernels

from pytest_kernelopt.core.errors import Unavailable
from pytest_kernelopt.core.isolate import memory
from pytest_kernelopt.core.spec.model import Case

KERNEL = "def run_kernel(x, y):\n    y.copy_(2 * x)\n"


@pytest.fixture
def block() -> Iterator[memory.OwnedHostBlock]:
    found = memory.allocate(5_000_000, "cpu")
    assert isinstance(found, memory.OwnedHostBlock)
    yield found
    found.free()


def mapped(block: memory.OwnedHostBlock) -> tuple[memory.MappedBlock, int]:
    fds: list[int] = []
    description = block.describe(fds)
    return memory.MappedBlock(description, fds), fds[0]


@pytest.mark.parametrize(("asked", "pages"), [(0, 1), (1, 1), (2 << 20, 1), ((2 << 20) + 1, 2)])
def test_a_block_is_whole_pages(asked: int, pages: int) -> None:
    block = memory.allocate(asked, "cpu")
    assert block.nbytes == block.bytes.numel() == pages * memory.PAGE
    block.free()


def test_writes_show_on_both_sides(block: memory.OwnedHostBlock) -> None:
    other, fd = mapped(block)
    os.close(fd)
    block.bytes[17] = 1
    other.bytes[block.nbytes - 1] = 2
    assert (other.bytes[17].item(), block.bytes[block.nbytes - 1].item()) == (1, 2)
    other.unmap()


def test_who_has_the_descriptor_can_neither_cut_nor_extend_the_block(block: memory.OwnedHostBlock) -> None:
    other, fd = mapped(block)
    for size in (0, block.nbytes * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    os.close(fd)
    other.unmap()


def test_a_tensor_that_is_kept_outlives_its_block() -> None:
    block = memory.allocate(100, "cpu")
    kept = block.bytes[:10]
    kept.fill_(3)
    block.free()
    assert kept.tolist() == [3] * 10


@pytest.mark.parametrize(
    ("dtype", "shape"), [("float32", [3, 5]), ("bool", []), ("complex128", [2]), ("float8_e5m2", [7]), ("int64", [0, 4])]
)
def test_a_view_is_a_tensor_at_its_place(block: memory.OwnedHostBlock, dtype: str, shape: list[int]) -> None:
    itemsize = getattr(torch, dtype).itemsize
    nbytes = torch.Size(shape).numel() * itemsize
    view = memory.view(block, {"dtype": dtype, "shape": shape, "strides": None, "offset": 4096, "nbytes": nbytes})
    assert (view.dtype, list(view.shape), view.is_contiguous()) == (getattr(torch, dtype), shape, True)
    assert view.storage_offset() * itemsize == 4096


def test_memory_that_is_not_there_is_unavailable_and_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for size in (1 << 62, 1 << 70):
        with pytest.raises(Unavailable, match="not enough memory"):
            memory.OwnedHostBlock(size)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before - 1, limit[1]))
    try:
        with pytest.raises(Unavailable, match="Too many open files"):
            memory.OwnedHostBlock(4096)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernels]:
    with kernels(tmp_path_factory.mktemp("cache"), trials=1) as found:
        yield found


def shared_maps(process: psutil.Process) -> int:
    return Path(f"/proc/{process.pid}/maps").read_text().count("memfd:kopt")


def test_two_hundred_cases_leave_nothing_behind(many: Kernels, tmp_path: Path) -> None:
    spec = many.write(tmp_path, KERNEL)
    levels = []
    for count in range(1, 203):
        assert many.ask(spec, Case((("n", count * 100),))).verdict == "passed"
        if count in (2, 202):
            processes = many.processes()
            gc.collect()
            own = len(os.listdir("/proc/self/fd"))
            levels.append(
                (own, *((p.pid, p.num_fds(), shared_maps(p)) for p in processes), [p.memory_info().rss for p in processes])
            )
    assert levels[0][:-1] == levels[1][:-1]
    assert all(maps == 0 for _, _, maps in levels[0][1:-1])
    assert all(after - before < 20 << 20 for before, after in zip(levels[0][-1], levels[1][-1], strict=True))


def test_no_memory_outlives_a_case_that_fails(many: Kernels, tmp_path: Path) -> None:
    wrong = many.write(tmp_path / "wrong", "def run_kernel(x, y):\n    raise ValueError\n")
    reference = "import torch\n" + 'def reference(x: Float[Tensor, "30"]) -> Float[Tensor, "30"]:\n    return x[:4]\n'
    mistaken = many.write(tmp_path / "mistaken", KERNEL, reference)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        assert many.ask(wrong).verdict == "failed"
        with pytest.raises(Exception, match="shape"):
            many.ask(mistaken)
    assert [shared_maps(process) for process in many.processes()] == [0] * len(many.processes())
    assert len(os.listdir("/proc/self/fd")) <= before
