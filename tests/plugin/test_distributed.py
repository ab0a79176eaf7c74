"""One GPU for each xdist worker, and no more workers than is sensible."""

from __future__ import annotations

import re

import pytest
from project import FIRST, Project

SHOW = "import os\ndef test_it(): print('VISIBLE', os.environ.get('CUDA_VISIBLE_DEVICES'))\n"
CONFTEST = """
import os
AT_LOAD = os.environ.get("CUDA_VISIBLE_DEVICES")  # set before the first conftest is loaded

def pytest_runtest_setup(item):
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == AT_LOAD
"""
# GPUs of another machine, for a machine without any
GPUS = """
from types import SimpleNamespace as Gpu
from pytest_kernelopt.core import device, nvml
nvml.listed = lambda: [Gpu(uuid=f"GPU-{n}", name="A", driver="1", capability=(9, 0)) for n in range(COUNT)]
device.gpus = lambda environ=None: [Gpu(uuid=f"GPU-{n}") for n in reversed(range(COUNT))]
"""


def visible(result: pytest.RunResult) -> set[str]:
    return set(re.findall(r"VISIBLE (\S+)", result.stdout.str()))


def project_of_tests(project: Project, gpus: int) -> None:
    project.write("conftest.py", CONFTEST)
    project.write("faked_gpus.py", GPUS.replace("COUNT", str(gpus)))
    for number in range(8):
        project.write(f"test_{number}.py", SHOW)


@pytest.mark.parametrize(
    ("outer", "gpus", "expected"),
    [
        ("2,5", 8, {"2", "5"}),  # the caller's choice is a limit
        ("3", 8, {"3"}),
        ("GPU-a, GPU-b", 0, {"GPU-a", "GPU-b"}),
        (None, 2, {"GPU-0", "GPU-1"}),
        (None, 1, {"None"}),  # nothing to spread
        (None, 0, {"None"}),
        ("-1", 2, {"-1"}),
    ],
)
def test_workers_take_the_visible_gpus_in_turn(
    project: Project, monkeypatch: pytest.MonkeyPatch, outer: str | None, gpus: int, expected: set[str]
) -> None:
    project_of_tests(project, gpus)
    if outer is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", outer)
    result = project.spread("-p", "faked_gpus", "--dist=load", "--maxschedchunk=1")
    result.assert_outcomes(passed=8)
    assert visible(result) == expected


def test_a_gpu_that_was_chosen_is_every_workers(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project_of_tests(project, 2)
    assert visible(project.spread("-p", "faked_gpus", "--kopt-gpu=1", "--maxschedchunk=1")) == {"None"}


def test_a_worker_that_was_restarted_has_its_gpu_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    project_of_tests(project, 0)
    project.write("test_crash.py", "import os\ndef test_it(): os._exit(1)\n")
    result = project.spread("--maxschedchunk=1")
    result.stdout.fnmatch_lines(["*worker 'gw?' crashed while running 'test_crash.py::test_it'*"])
    assert visible(result) == {"2", "5"}


@pytest.mark.parametrize(
    ("args", "workers"),
    [(["softmax.cu"], 2), ([f"softmax.cu::benchmark[{FIRST}]"], 2), (["softmax.cu", "test_0.py"], None), ([], None)],
)
def test_n_auto_is_the_number_of_gpus_where_only_kernels_are_named(
    project: Project, args: list[str], workers: int | None
) -> None:
    """PYT-29, the part that is not the GPU's lock: no 64 contexts on one GPU. The rest of a suite keeps its cores."""
    import psutil

    project_of_tests(project, 2)
    project.cuda()
    result = project.start("-p", "faked_gpus", "-n", "auto", *args)
    assert result.ret == 0
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    result.stdout.fnmatch_lines([f"created: {workers or cores}/{workers or cores} worker*"])


def test_n_auto_without_a_gpu_is_xdists_own(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "3")
    project_of_tests(project, 0)
    project.cuda()
    project.start("-p", "faked_gpus", "-n", "auto", "softmax.cu").stdout.fnmatch_lines(["created: 3/3 workers"])
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    project.start("-p", "faked_gpus", "-n", "auto", "softmax.cu").assert_outcomes(passed=4)


@pytest.mark.parametrize("dist", ["load", "loadfile", "loadscope", "worksteal"])
def test_every_way_of_spreading_runs_every_item_once(project: Project, dist: str) -> None:
    project.cuda()
    project.triton()
    project.spread(f"--dist={dist}").assert_outcomes(passed=8)
