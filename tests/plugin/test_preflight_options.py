"""--kopt-preflight and --kopt-preflight-only: the glue round ``core.preflight``, which is a stand-in here."""

from __future__ import annotations

import pytest
from project import Project

FAKE = """
import os
import pathlib
from pytest_kernelopt.core import preflight
from pytest_kernelopt.core.records import Check, Environment, Preflight

def run(specs, *, toolchain=None, gpu=None, arch=None, **_):
    names = sorted(spec.path.name for spec in specs)
    ready = os.environ.get("KOPT_FAKE_READY", "1") == "1"
    environment = Environment(python="3", platform="Linux", pytest="9", plugin="0")
    check = Check(name="GPU", status="ok" if ready else "missing", detail=f"for {names}, {arch}", required=True)
    return Preflight(created="now", ready=ready, environment=environment, checks=(check,))

preflight.run = run
"""


@pytest.fixture
def faked(project: Project) -> Project:
    project.write("faked_preflight.py", FAKE)
    project.cuda()
    project.triton()
    return project


def test_preflight_only_reports_and_stops_before_any_item(faked: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    result = faked.start("-p", "faked_preflight", "--kopt-preflight-only", "--kopt-arch=90")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["GPU  ok * for [[]'softmax.cu', 'softmax_triton.py'[]], sm_90", "ready"])
    assert faked.log() in ([], ["closed -"])
    assert faked.json("preflight_check.json")["ready"] is True
    assert (faked.path / "preflight_check.md").exists()
    monkeypatch.setenv("KOPT_FAKE_READY", "0")
    result = faked.start("-p", "faked_preflight", "--kopt-preflight-only")
    assert result.ret == 10
    result.stdout.fnmatch_lines(["not ready: GPU missing"])


def test_preflight_only_without_kernels_is_about_the_machine(project: Project) -> None:
    project.write("faked_preflight.py", FAKE)
    assert project.start("-p", "faked_preflight", "--kopt-preflight-only").ret == 0


def test_preflight_only_is_not_ready_with_a_kernel_that_cannot_be_read(faked: Project) -> None:
    faked.write("broken.cu", 'extern "C" void solve(mystery_t y) {}\n')
    result = faked.start("-p", "faked_preflight", "--kopt-preflight-only")
    assert result.ret == 10
    result.stdout.fnmatch_lines(["broken.cu:1:*mystery_t*"])


def test_preflight_reports_and_goes_on(faked: Project) -> None:
    for args in ((), ("-n2",)):
        result = faked.start("-p", "faked_preflight", "--kopt-preflight", *args)
        result.assert_outcomes(passed=8)
        assert result.stdout.str().count("GPU  ok") == 1
        result.stdout.fnmatch_lines(["GPU  ok * for [[]'softmax.cu', 'softmax_triton.py'[]], None"])
        assert not [line for line in result.outlines if line.startswith("kernelopt:")]  # it says the same, and more


def test_a_collection_error_comes_before_the_preflight(faked: Project) -> None:
    faked.write("helper.cu", "\n")
    result = faked.start("-p", "faked_preflight", "--kopt-preflight-only", "helper.cu")
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_a_gpu_that_is_not_there_is_a_usage_error(project: Project) -> None:
    project.cuda()
    project.write(
        "faked_preflight.py",
        FAKE
        + "from pytest_kernelopt.core.errors import KernelError\n"
        + "def none(*_, **__): raise KernelError('--kopt-gpu 7: no such GPU')\npreflight.run = none\n",
    )
    result = project.start("-p", "faked_preflight", "--kopt-preflight-only", "--kopt-gpu=7")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --kopt-gpu 7: no such GPU"])


def test_in_a_folder_that_cannot_be_written_it_still_reports(faked: Project) -> None:
    (faked.path / "preflight_check.md").mkdir()
    result = faked.start("-p", "faked_preflight", "--kopt-preflight-only")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["preflight_check.md could not be written in *"])
