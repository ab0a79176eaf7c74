"""Kernel files as pytest modules: ids, selection, what is passed over and what is refused."""

from __future__ import annotations

import pytest
from project import CUDA, FIRST, REFERENCE, SECOND, Project

ALL = ["build", f"correctness[{FIRST}]", f"correctness[{SECOND}]", f"benchmark[{FIRST}]"]


def of(file: str, names: list[str] = ALL) -> list[str]:
    return [f"{file}::{name}" for name in names]


def test_a_kernel_has_build_correctness_and_benchmark_items(project: Project) -> None:
    project.cuda()
    assert project.ids() == of("softmax.cu")


def test_timed_names_the_cases_that_get_a_benchmark_item(project: Project) -> None:
    project.cuda(reference=REFERENCE + 'timed = [{"rows": 8, "cols": 8}, {"rows": 3, "cols": 1000}]\n')
    assert [id for id in project.ids() if "benchmark" in id] == of(
        "softmax.cu", ["benchmark[rows8-cols8]", f"benchmark[{SECOND}]"]
    )
    assert len([id for id in project.ids() if "correctness" in id]) == 2


def test_the_tree_shows_a_file_of_kernel_items(project: Project) -> None:
    project.cuda()
    result = project.run("--collect-only")
    result.stdout.fnmatch_lines(["*<KernelFile softmax.cu>", f"*<KernelItem correctness[[]{FIRST}[]]>"])


def test_collection_imports_and_runs_nothing_of_the_users(project: Project) -> None:
    """PYT-21. Both the reference and the Triton kernel import modules that do not exist."""
    project.cuda()
    project.triton()
    for number in range(50):
        project.cuda(f"other{number}.cu")
    assert project.ids("softmax.cu", "softmax_triton.py") == of("softmax.cu") + of("softmax_triton.py")
    assert project.log() == []


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["-k", "rows4096"], 4),
        (["-k", "softmax.cu and correctness"], 2),
        (["-k", "not triton and benchmark"], 1),
        (["-m", "benchmark"], 2),
        (["softmax.cu"], 4),
        (["softmax.cu::correctness"], 2),
        ([f"softmax.cu::correctness[{FIRST}]"], 1),
        (["--deselect", "softmax.cu::benchmark"], 7),
        (["-p", "no:cacheprovider"], 8),
        (["--import-mode=prepend"], 8),
        (["--import-mode=append"], 8),
        (["--import-mode=importlib"], 8),
        (["-p", "no:xdist", "-p", "no:rerunfailures", "-p", "no:pytest_jsonreport"], 8),
        (["--strict-markers", "-W", "error"], 8),
    ],
)
def test_selection(project: Project, args: list[str], expected: int) -> None:
    """PYT-23."""
    project.cuda()
    project.triton()
    assert len(project.ids(*args)) == expected
    assert len(set(project.ids(*args))) == expected


def test_paths_with_spaces_and_other_alphabets(project: Project) -> None:
    """PYT-23."""
    project.cuda("ядра и ещё/sof tmax v2.cu")
    (id,) = [id for id in project.ids() if f"correctness[{FIRST}]" in id]
    assert id == f"ядра и ещё/sof tmax v2.cu::correctness[{FIRST}]"
    project.run("ядра и ещё/sof tmax v2.cu", "-k", FIRST).assert_outcomes(passed=2, deselected=2)
    project.run(project.path / "ядра и ещё").assert_outcomes(passed=4)


@pytest.mark.parametrize("mode", ["prepend", "append", "importlib"])
def test_one_stem_in_two_folders(project: Project, mode: str) -> None:
    """PYT-01: with a reference of its own each, in every import mode."""
    for folder, rows in (("a", 1), ("b", 2)):
        reference = f'cases = [{{"rows": {rows}, "cols": 8}}]\ndef reference(x): ...\n'
        project.triton(f"{folder}/softmax_triton.py")
        project.cuda(f"{folder}/softmax.cu", reference=reference)
        project.write(f"{folder}/softmax_triton_ref.py", reference)
    expected = [
        id
        for folder, rows in (("a", 1), ("b", 2))
        for file in ("softmax.cu", "softmax_triton.py")
        for id in of(f"{folder}/{file}", ["build", f"correctness[rows{rows}-cols8]", f"benchmark[rows{rows}-cols8]"])
    ]
    assert project.ids(f"--import-mode={mode}") == expected
    project.run(f"--import-mode={mode}").assert_outcomes(passed=12)


@pytest.mark.parametrize(
    "ini", ["", "python_files = *.py\n", "collect_imported_tests = false\n", "addopts = --import-mode=importlib\n"]
)
@pytest.mark.parametrize("args", [(), ("softmax_triton.py",), (".",)])
def test_a_triton_file_is_claimed_once(project: Project, ini: str, args: tuple[str, ...]) -> None:
    project.triton()
    # a reference is an ordinary module to whom every .py is a test: it is not ours to keep pytest from importing it
    project.write("softmax_triton_ref.py", REFERENCE.replace("import pretend_heavy_torch\n", ""))
    project.write("pytest.ini", "[pytest]\n" + ini)
    assert project.ids(*args) == of("softmax_triton.py")


def test_a_users_test_module_on_triton_stays_a_test_module(project: Project) -> None:
    project.write("test_softmax_triton.py", "def test_it(): pass\n")
    project.run().assert_outcomes(passed=1)
    project.run("test_softmax_triton.py::test_it").assert_outcomes(passed=1)


def test_a_file_without_an_entry_is_passed_over_in_a_walk_and_an_error_when_named(project: Project) -> None:
    project.cuda()
    project.write("helpers.cu", "__device__ float twice(float x) { return 2 * x; }\n")
    project.write("layers_triton.py", "import pretend_heavy_triton\n")
    assert project.ids() == of("softmax.cu")
    for name, wanted in (("helpers.cu", 'extern "C" void solve'), ("layers_triton.py", "run_kernel(...) or solve(...)")):
        result = project.run(name)
        assert result.ret == pytest.ExitCode.INTERRUPTED
        result.stdout.fnmatch_lines([f"{name} has no entry point: define {wanted}*"])
        assert "Traceback" not in result.stdout.str()


def test_a_kernel_that_cannot_be_read_fails_alone(project: Project) -> None:
    """A collection error would stop the run before the other kernels had their turn."""
    project.write("broken.cu", 'extern "C" void solve(const float* x, mystery_t y) {}\n')
    project.cuda("good.cu")
    result = project.run("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1, passed=4)
    result.stdout.fnmatch_lines(["*broken.cu:1*mystery_t*"])
    assert "Traceback" not in result.stdout.str()


def test_a_reference_that_is_no_literal_fails_its_kernel_with_the_line(project: Project) -> None:
    project.cuda(reference="cases = make_cases()\ndef reference(x): ...\n")
    project.run().stdout.fnmatch_lines(["*softmax_ref.py:1: `cases`*literal*pytest_kopt_cases*"])


@pytest.mark.parametrize("marker", ["run_manifest.json", ".kopt-ignore"])
def test_run_folders_and_zoos_are_not_collected_unless_named(project: Project, marker: str) -> None:
    """PYT-25."""
    project.cuda("kernels/softmax.cu")
    project.cuda("runs/today/v0/softmax.cu")
    project.write(f"runs/today/{marker}", "{}")
    assert project.ids() == of("kernels/softmax.cu")
    assert project.ids("runs") == []
    assert project.ids("runs/today") == of("runs/today/v0/softmax.cu")
    assert project.ids("runs/today/v0/softmax.cu::build") == ["runs/today/v0/softmax.cu::build"]


def test_norecursedirs_hold_and_naming_overcomes_them(project: Project) -> None:
    """PYT-25: pytest does not walk into ``build`` by default, and that is so for kernels too."""
    project.cuda("build/softmax.cu")
    project.cuda("third_party/softmax.cu")
    assert project.ids("-o", "norecursedirs=build third_party") == []
    assert project.ids("build") == of("build/softmax.cu")
    assert project.ids("build/softmax.cu") == of("build/softmax.cu")


def test_ids_are_the_same_in_every_worker(project: Project) -> None:
    """PYT-03."""
    project.cuda()
    project.triton()
    result = project.spread("--kopt-dims", "cols=8,rows=4,dtype=float16", "--kopt-dims", "rows=1,cols=2")
    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines(["*softmax.cu::correctness[[]cols8-rows4-dtypefloat16[]]*"])
    assert "Different tests were collected" not in result.stdout.str()


def test_last_failed_selects_what_failed(project: Project) -> None:
    project.cuda(fake=f"wrong_at={SECOND}")
    project.run().assert_outcomes(failed=1, passed=3)
    assert project.ids("--lf") == of("softmax.cu", [f"correctness[{SECOND}]"])
    project.cuda()
    project.run("--lf").assert_outcomes(passed=1)


def test_x_stops_at_the_first_failure(project: Project) -> None:
    project.cuda(fake="wrong")
    project.run("-x").assert_outcomes(failed=1, passed=1)


CONFTEST = """
import pytest

seen = []

@pytest.fixture(autouse=True)
def each(request):
    assert request.node.nodeid.endswith(request.node.name)
    seen.append("function")

@pytest.fixture(scope="class", autouse=True)
def each_class(): seen.append("class")

@pytest.fixture(scope="module", autouse=True)
def each_module(request):
    assert request.path.suffix in (".cu", ".py"), request.path
    seen.append("module")

@pytest.fixture(scope="package", autouse=True)
def each_package(): seen.append("package")

@pytest.fixture(scope="session", autouse=True)
def each_session():
    yield
    assert [seen.count(s) for s in ("function", "module", "session")] == [8, 2, 0], seen
"""


def test_fixtures_of_every_scope_in_the_users_conftest(project: Project) -> None:
    project.cuda()
    project.triton()
    project.write("conftest.py", CONFTEST)
    project.run().assert_outcomes(passed=8)
    project.run("--setup-show").assert_outcomes(passed=8)
    assert project.run("--fixtures-per-test").ret == 0


def test_a_parametrised_autouse_fixture_multiplies_the_items(project: Project) -> None:
    project.cuda()
    project.write(
        "conftest.py",
        "import pytest\n@pytest.fixture(params=['tight', 'loose'], autouse=True)\ndef mood(request): return request.param\n",
    )
    assert f"softmax.cu::correctness[tight-{FIRST}]" in project.ids()
    assert "softmax.cu::build[loose]" in project.ids()
    project.run().assert_outcomes(passed=8)
    project.run(f"softmax.cu::benchmark[loose-{FIRST}]").assert_outcomes(passed=1)


def test_users_fixtures_by_our_public_names_do_not_touch_the_items(project: Project) -> None:
    project.cuda()
    names = ("kernel", "case", "kopt_reference", "kopt_timing")
    project.write(
        "conftest.py",
        "import pytest\n" + "".join(f"@pytest.fixture\ndef {name}(): raise ValueError('mine')\n" for name in names),
    )
    project.run().assert_outcomes(passed=4)


def test_hooks_of_the_users_see_the_items(project: Project) -> None:
    project.cuda()
    project.write(
        "conftest.py",
        "import pytest\ndef pytest_collection_modifyitems(items):\n    for item in items:\n"
        "        if 'rows3' in item.nodeid: item.add_marker(pytest.mark.skip(reason='too small'))\n",
    )
    project.run().assert_outcomes(passed=3, skipped=1)


def test_reruns_ask_the_evaluator_again(project: Project) -> None:
    """A rerun that repeats a remembered verdict would be no rerun."""
    project.cuda(fake="flaky")
    result = project.run("--reruns=1", "-k", "correctness")
    assert "2 passed" in result.outlines[-1]
    assert "2 rerun" in result.outlines[-1]


def test_a_conftest_may_compute_the_cases(project: Project) -> None:
    project.cuda("kernels/softmax.cu")
    project.cuda("other/softmax.cu")
    project.write(
        "kernels/conftest.py", "def pytest_kopt_cases(path):\n    return [{'rows': 2**k, 'cols': 8} for k in range(3)]\n"
    )
    assert project.ids("kernels", "-k", "correctness") == [f"kernels/softmax.cu::correctness[rows{n}-cols8]" for n in (1, 2, 4)]
    assert project.ids("kernels", "-k", "benchmark") == ["kernels/softmax.cu::benchmark[rows1-cols8]"]
    assert project.ids("other") == of("other/softmax.cu")


def test_cases_that_a_conftest_computes_wrongly_are_one_sentence(project: Project) -> None:
    project.cuda()
    project.write("conftest.py", "def pytest_kopt_cases(path): return 'rows=1'\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["pytest_kopt_cases returned 'rows=1' for softmax.cu*"])


def test_a_kernel_without_a_reference_has_one_case(project: Project) -> None:
    project.write("lonely.cu", CUDA)
    assert project.ids() == of("lonely.cu", ["build", "correctness[default]", "benchmark[default]"])


def test_a_file_with_a_reference_and_no_entry_is_a_failing_build(project: Project) -> None:
    project.write("softmax.cu", 'extern "C" void Solve(const float* x, float* y, int n) {\n}\n')
    project.write("softmax_ref.py", REFERENCE)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["softmax.cu*solve*"])
