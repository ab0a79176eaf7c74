"""Markers and fixtures in users' own test functions."""

from __future__ import annotations

import pytest
from project import FIRST, SECOND, Project

MARKED = """
import pytest

@pytest.mark.kernel("softmax.cu")
def test_every_case(kernel, case, kopt_reference):
    assert kernel.spec.entry == "solve"
    assert kernel.build.kernels[0].registers == 32
    assert kernel.run(case) == kopt_reference(case) == {"y": [1.0, 2.0]}
    assert kernel.run() == kernel.run({"rows": 4096, "cols": 1024})

@pytest.mark.kernel("softmax.cu", rows=64, cols=32)
def test_one_case(kernel, case):
    assert case.values == {"rows": 64, "cols": 32}
    kernel.run(case)

@pytest.mark.kernel("softmax.cu", rows=64, cols=32)
def test_time(kernel, case, kopt_timing):
    assert kopt_timing(kernel, case).median_ms < 0.011
    assert kopt_timing(kernel).case == "rows64-cols32"
    assert kopt_timing(lambda: None).samples == 30

def test_a_callable(kopt_timing):
    assert kopt_timing(lambda: None).median_ms > 0
"""


def write_tests(project: Project, text: str, name: str = "test_mine.py") -> None:
    project.write(name, text)


def test_a_marked_test_runs_at_every_case_of_the_reference_or_at_its_own(project: Project) -> None:
    project.cuda()
    write_tests(project, MARKED)
    assert project.ids("test_mine.py") == [
        f"test_mine.py::test_every_case[{FIRST}]",
        f"test_mine.py::test_every_case[{SECOND}]",
        "test_mine.py::test_one_case",
        "test_mine.py::test_time",
        "test_mine.py::test_a_callable",
    ]
    for run in (project.run, project.spread):
        run("test_mine.py", "--strict-markers", "--kopt-json=r.json").assert_outcomes(passed=5)
        assert project.json("r.json")["items"]["test_mine.py::test_time"]["kernel"] == "softmax.cu"


def test_dims_of_the_command_line_replace_the_references_cases_here_too(project: Project) -> None:
    project.cuda()
    write_tests(project, MARKED)
    ids = project.ids("test_mine.py", "--kopt-dims=rows=1,cols=2", "-k", "case")
    assert ids == ["test_mine.py::test_every_case[rows1-cols2]", "test_mine.py::test_one_case"]


def test_the_path_is_relative_to_the_tests_file_then_to_the_rootdir(project: Project) -> None:
    project.cuda("kernels/softmax.cu")
    project.cuda("tests/near.cu")
    text = """
import pytest
@pytest.mark.kernel("{}")
def test_it(kernel, case): kernel.run(case)
"""
    for number, path in enumerate(("kernels/softmax.cu", "../kernels/softmax.cu", "near.cu")):
        write_tests(project, text.format(path), f"tests/test_{number}.py")
    project.run("tests", "-k", "test_it").assert_outcomes(passed=6, deselected=4)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("", "this test names no kernel: add @pytest.mark.kernel(path, **dims)"),
        ("@pytest.mark.kernel('nowhere.cu')", "@pytest.mark.kernel: no file nowhere.cu beside test_mine.py or in the rootdir"),
        ("@pytest.mark.kernel()", "@pytest.mark.kernel takes one path and dims by name*"),
        ("@pytest.mark.kernel('softmax.cu', rows=[1])", "@pytest.mark.kernel*dim `rows` must be a number*"),
        ("@pytest.mark.kernel('broken.cu')", "*broken.cu:1*mystery_t*"),
        ("@pytest.mark.kernel('softmax.cu')\n@pytest.mark.kopt(rtoll=1)", "@pytest.mark.kopt*rtoll*did you mean `rtol`*"),
        ("@pytest.mark.kernel('softmax.cu')\n@pytest.mark.kopt(1e-3)", "@pytest.mark.kopt takes keywords only*0.001*"),
        ("@pytest.mark.kernel('softmax.cu')\n@pytest.mark.kopt(rtol='x')", "@pytest.mark.kopt*`kopt[[]'rtol'[]]` must be*"),
    ],
)
def test_a_marker_that_is_wrong_is_one_sentence_and_that_tests_alone(project: Project, marker: str, message: str) -> None:
    project.cuda()
    project.write("broken.cu", 'extern "C" void solve(const float* x, mystery_t y) {}\n')
    write_tests(project, f"import pytest\n{marker}\ndef test_it(kernel, case): pass\ndef test_other(): pass\n")
    result = project.run("test_mine.py")
    assert result.parseoutcomes()["passed"] == 1
    result.stdout.fnmatch_lines([message])
    assert "Traceback" not in result.stdout.str()
    assert "def _kopt" not in result.stdout.str()


def test_the_closest_kopt_marker_wins_and_reaches_the_evaluator(project: Project) -> None:
    project.cuda()
    write_tests(
        project,
        """
import pytest
pytestmark = [pytest.mark.kopt(rtol=1e-2, compute="tf32"), pytest.mark.kernel("softmax.cu", rows=1, cols=2)]
@pytest.mark.kopt(rtol=1e-3)
def test_it(kernel, case, kopt_timing): kopt_timing(kernel, case)
""",
    )
    project.run("test_mine.py").assert_outcomes(passed=1)
    assert "verify softmax.cu rows1-cols2 {'rtol': 0.001, 'compute': 'tf32'} -" in project.log()


def test_a_wrong_kernel_fails_the_test_that_times_it(project: Project) -> None:
    project.cuda(fake="wrong")
    write_tests(project, MARKED)
    result = project.run("test_mine.py", "-k", "test_time")
    result.assert_outcomes(failed=1, deselected=4)
    result.stdout.fnmatch_lines(["softmax.cu fails its check at rows64-cols32, so it has no time"])


def test_a_rerun_of_a_users_test_asks_the_evaluator_again(project: Project) -> None:
    project.cuda(fake="flaky")
    write_tests(project, MARKED)
    result = project.run("test_mine.py", "-k", "test_time", "--reruns=1")
    assert "1 passed" in result.outlines[-1]
    assert "1 rerun" in result.outlines[-1]


def test_what_the_machine_cannot_do_skips_the_test(project: Project, no_gpu: None) -> None:
    project.cuda()
    write_tests(project, MARKED)
    result = project.run("test_mine.py", "-rs", "-k", "case")
    result.assert_outcomes(skipped=3, deselected=2)
    result.stdout.fnmatch_lines(["SKIPPED*test_mine.py:*no GPU: the NVIDIA driver finds none"])


def test_a_users_own_fixtures_and_parameters_by_our_names_win(project: Project) -> None:
    project.cuda()
    write_tests(
        project,
        """
import pytest

@pytest.fixture
def kernel(): return "mine"

@pytest.mark.kernel("softmax.cu")
def test_fixture(kernel): assert kernel == "mine"

@pytest.mark.kernel("softmax.cu")
@pytest.mark.parametrize("case", [1, 2])
def test_parameter(case): assert case in (1, 2)

@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.kernel("softmax.cu")
def test_both(size, case): assert size in (8, 16) and case.values
""",
    )
    assert [id.split("::")[1] for id in project.ids("test_mine.py", "-k", "parameter or fixture")] == [
        "test_fixture",
        "test_parameter[1]",
        "test_parameter[2]",
    ]
    project.run("test_mine.py").assert_outcomes(passed=7)


def test_a_test_to_be_profiled_is_skipped_and_says_what_it_needs(project: Project) -> None:
    project.cuda()
    write_tests(
        project,
        "import pytest\n@pytest.mark.ncu\n@pytest.mark.kernel('softmax.cu', rows=1, cols=2)\n"
        "def test_it(kernel): raise ValueError\n",
    )
    result = project.run("test_mine.py", "-rs", "--strict-markers")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*test_mine.py:*profiling with Nsight Compute is not in this version yet"])
