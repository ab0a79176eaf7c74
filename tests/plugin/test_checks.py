"""What build, correctness and benchmark items pass, fail and skip with."""

from __future__ import annotations

import os
import shlex

import pytest
from project import CUDA, FIRST, SECOND, Project


def test_a_wrong_kernel_fails_in_a_few_lines_without_a_traceback(project: Project) -> None:
    project.cuda(fake=f"wrong_at={SECOND}")
    result = project.run()
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            f"*softmax.cu: correctness[[]{SECOND}[]]*",
            f"softmax.cu differs from softmax_ref.py at {SECOND}, seed 0",
            "  y: 7 of 8 elements are wrong",
            f"  alone: pytest 'softmax.cu::correctness[[]{SECOND}[]]'",
        ]
    )
    assert "Error" not in result.stdout.str()


def test_the_command_that_runs_a_failure_alone_does_so(project: Project) -> None:
    """From the folder that pytest was started in, with the options that it was given."""
    project.cuda("my kernels/softmax.cu", fake="wrong_at=rows1-cols2")
    (project.path / "elsewhere").mkdir()
    project.pytester.chdir()
    os.chdir("elsewhere")
    result = project.run(
        "../my kernels", "--rootdir=..", "--kopt-dims", "rows=1,cols=2", "--kopt-flags=-DA -DB", "--kopt-json=r.json"
    )
    (line,) = [line for line in result.outlines if line.startswith("  alone: pytest ")]
    assert "--kopt-flags=-DA -DB" in shlex.split(line)
    assert "json" not in line
    again = project.run("--rootdir=..", *shlex.split(line)[2:])
    again.assert_outcomes(failed=1)


@pytest.mark.parametrize("args", [(), ("-k", "benchmark"), ("-k", "benchmark", "--benchmark-disable")])
def test_a_wrong_kernel_has_no_speed(project: Project, args: tuple[str, ...]) -> None:
    """Also when its benchmark is selected alone; as a failure, not an error, and without a PytestBenchmarkWarning."""
    project.cuda(fake="wrong")
    result = project.run("-W", "error", *args)
    assert result.parseoutcomes()["failed"] == (1 if args else 3)
    assert not {"errors", "warnings"} & set(result.parseoutcomes())
    result.stdout.fnmatch_lines([f"softmax.cu fails its check at {FIRST}, so it has no time", "softmax.cu differs from*"])
    assert not [line for line in project.log() if line.startswith("time")]


def test_a_kernel_that_does_not_build_fails_its_other_items_with_the_compilers_first_line(project: Project) -> None:
    project.cuda(fake="nobuild")
    result = project.run()
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(["*softmax.cu: build*", "softmax.cu(3): error: identifier*", "1 error detected*"])
    result.stdout.fnmatch_lines(['softmax.cu does not build: softmax.cu(3): error: identifier "threadIdx_x" is undefined'])
    assert result.stdout.str().count("1 error detected") == 1
    assert not [line for line in project.log() if line.startswith(("verify", "time"))]


def test_without_a_gpu_what_can_be_asked_is_asked_and_the_rest_skipped_with_its_reason(project: Project, no_gpu: None) -> None:
    project.cuda("a.cu")
    project.triton("b_triton.py")
    result = project.run("-rs")
    result.assert_outcomes(passed=4, skipped=4)
    result.stdout.fnmatch_lines(
        ["SKIPPED [[]3[]] a.cu:2: no GPU: the NVIDIA driver finds none", "SKIPPED [[]1[]] b_triton.py:3: no GPU:*"]
    )


def test_without_a_gpu_a_wrong_triton_kernel_fails_its_benchmark_too(project: Project, no_gpu: None) -> None:
    project.triton(fake="wrong")
    project.run("-k", "benchmark").assert_outcomes(failed=1)


def test_without_a_reference_correctness_is_skipped_with_the_name_that_was_looked_for(project: Project) -> None:
    project.write("lonely_cutlass.cu", CUDA)
    result = project.start("-rs", "--kopt-json=r.json", "--benchmark-json=b.json")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*lonely_cutlass.cu:2: no reference: looked for lonely_cutlass_ref.py, lonely_ref.py"])
    result.stdout.fnmatch_lines(["lonely_cutlass.cu  default*unverified*"])
    items = project.json("r.json")["items"]
    assert items["lonely_cutlass.cu::benchmark[default]"]["timing"]["verified"] is False
    assert project.json("b.json")["benchmarks"][0]["extra_info"]["verified"] is False


def test_each_case_is_verified_once_a_session(project: Project) -> None:
    project.cuda()
    project.run()
    assert len([line for line in project.log() if line.startswith("verify")]) == 2


def test_children_are_closed_after_a_run_and_after_an_interrupted_one(project: Project) -> None:
    project.cuda()
    project.run()
    assert project.log()[-1].startswith("closed")
    project.write("fake.log", "")
    project.write("conftest.py", "def pytest_runtest_teardown(item):\n    raise KeyboardInterrupt\n")
    assert project.start().ret == pytest.ExitCode.INTERRUPTED
    assert project.log()[-1].startswith("closed")


def test_a_process_forked_off_pytest_does_not_use_its_parents_children(project: Project) -> None:
    """PYT-17: pytest-forked and pytest-isolate run an item in a fork of pytest."""
    project.cuda()
    project.write(
        "conftest.py",
        """
import os
import pytest
from _pytest.runner import runtestprotocol

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    if item.originalname == "build":
        return None  # the evaluator is made before the first fork
    read, write = os.pipe()
    if os.fork() == 0:
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        os.write(write, b"ok" if all(r.passed for r in reports) else b"no")
        os._exit(0)
    assert os.read(read, 2) == b"ok"
    os.wait()
    return True
""",
    )
    project.start("-p", "no:benchmark").assert_outcomes(passed=1)
    assert len([line for line in project.log() if line.startswith("made")]) == 4


def test_a_kopt_marker_from_a_conftest_reaches_the_kernels_judgement(project: Project) -> None:
    project.cuda(reference='cases = [{"rows": 3, "cols": 1000}]\nkopt = {"rtol": 1e-3, "trials": 2}\ndef reference(x): ...\n')
    project.write(
        "conftest.py",
        "import pytest\ndef pytest_collection_modifyitems(items):\n"
        "    for item in items: item.add_marker(pytest.mark.kopt(rtol=1e-2))\n",
    )
    project.run("--strict-markers").assert_outcomes(passed=3)
    assert f"verify softmax.cu {SECOND} {{'rtol': 0.01, 'trials': 2}} -" in project.log()
