"""Options and ini options: one sentence for a wrong value, and what the evaluator is made with."""

from __future__ import annotations

import pytest
from project import FIRST, QUIET, REFERENCE, Project


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--kopt-backend=rocm"], "--kopt-backend: expected one of cuda, cutlass, triton, got 'rocm'"),
        (["--kopt-cache=hot"], "--kopt-cache: expected one of cold, warm, got 'hot'"),
        (["--kopt-arch=hopper"], "--kopt-arch: expected one arch such as sm_90a, 90a or 9.0, got 'hopper'"),
        (["--kopt-seed=-1"], "--kopt-seed: expected a whole number, 0 or above, got '-1'"),
        (["--kopt-gpu=first"], "--kopt-gpu: expected the index of a GPU, 0 or above, got 'first'"),
        (["--kopt-ptr-size=0"], "--kopt-ptr-size: expected a number of elements, 1 or above, got '0'"),
        (["--kopt-trials=0.5"], "--kopt-trials: expected a whole number, 1 or above, got '0.5'"),
        (["--kopt-repeat=0"], "--kopt-repeat: expected a whole number, 1 or above, got '0'"),
        (["--kopt-atol=-1e-3"], "--kopt-atol: expected a number, 0 or above, got '-1e-3'"),
        (["--kopt-rtol=nan"], "--kopt-rtol: expected a number, 0 or above, got 'nan'"),
        (["--kopt-warmup=-1"], "--kopt-warmup: expected milliseconds, 0 or above, got '-1'"),
        (["--kopt-max-time=0"], "--kopt-max-time: expected seconds, above 0, got '0'"),
        (["--kopt-timeout=1e999"], "--kopt-timeout: expected seconds, above 0, got '1e999'"),
        (["--kopt-nvcc=/no/such/nvcc"], "--kopt-nvcc: expected the path of an nvcc that can be run, got '/no/such/nvcc'"),
        (["--kopt-flags='-O3"], "--kopt-flags: expected compiler flags with balanced quotes*"),
        (["--kopt-dims=rows"], "--kopt-dims 'rows': 'rows' is not of the form name=value"),
        (["--kopt-json=/proc/nowhere/r.json"], "--kopt-json /proc/nowhere/r.json: cannot be written: *"),
        (["--kopt-json=."], "--kopt-json *: cannot be written: it is a folder"),
        (["-o", "kopt_cache=hot"], "kopt_cache in pytest.ini: expected one of cold, warm, got 'hot'"),
        (["--kopt-preflight-only", "-n2"], "--kopt-preflight-only runs no item*add -n0"),
    ],
)
def test_a_wrong_value_is_a_usage_error_in_one_sentence(project: Project, args: list[str], message: str) -> None:
    project.cuda()
    result = project.run(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
    assert len([line for line in result.errlines if line.strip()]) == 1
    assert project.log() == []


def test_no_option_swallows_a_path(project: Project) -> None:
    project.cuda()
    assert len(project.ids("--kopt-preflight", "softmax.cu")) == 4
    assert project.run("--kopt-seed", "softmax.cu").ret == pytest.ExitCode.USAGE_ERROR


def test_the_evaluator_is_made_with_what_was_given(project: Project) -> None:
    project.cuda()
    project.run(
        "--kopt-arch=9.0", "--kopt-seed=2**10", "--kopt-trials=5", "--kopt-atol=1e-6", "--kopt-cache=warm", "--kopt-warmup=50",
        "--kopt-repeat=1e3", "--kopt-max-time=0.5", "--kopt-timeout=30", "--kopt-flags=--use_fast_math -DN='4'", "--kopt-gpu=0",
    )  # fmt: skip
    made = project.log()[0]
    for name, value in {
        "arch": "'sm_90a'", "seed": 1024, "trials": 5, "atol": 1e-06, "cache": "'warm'", "warmup_ms": 50.0, "repeat": 1000,
        "max_time": 0.5, "timeout": 30.0, "flags": "('--use_fast_math', '-DN=4')", "gpu": 0,
    }.items():  # fmt: skip
        assert f"{name}={value}" in made


def test_the_ini_file_gives_defaults_and_the_command_line_overrides_them(project: Project) -> None:
    project.cuda()
    project.write(
        "pytest.ini", "[pytest]\nkopt_seed = 7\nkopt_trials = 4\nkopt_json = out/r.json\nkopt_dims =\n  rows=1,cols=2\n"
    )
    assert project.ids("-k", "correctness") == ["softmax.cu::correctness[rows1-cols2]"]
    project.run("--strict-config", "--kopt-trials=9").assert_outcomes(passed=3)
    assert "seed=7" in project.log()[0]
    assert "trials=9" in project.log()[0]
    assert (project.path / "out" / "r.json").exists()


def test_options_reach_xdist_workers(project: Project) -> None:
    project.cuda()
    project.spread("--kopt-seed=7", "--kopt-dims=rows=2**3,cols=1e1").assert_outcomes(passed=3)
    made = [line for line in project.log() if line.startswith("made")]
    assert made
    assert all("seed=7" in line for line in made)
    assert any("rows8-cols10" in line for line in project.log())


def test_dims_replace_the_cases_and_the_first_is_timed(project: Project) -> None:
    project.cuda()
    ids = project.ids("--kopt-dims", "rows=1,cols=2", "--kopt-dims", "rows=3,cols=4", "--kopt-dims", "rows=1,cols=2")
    assert [id.split("::")[1] for id in ids] == [
        "build",
        "correctness[rows1-cols2]",
        "correctness[rows3-cols4]",
        "benchmark[rows1-cols2]",
    ]


def test_dims_that_a_kernel_in_a_folder_lacks_leave_it_its_own_cases_with_a_note(project: Project) -> None:
    project.cuda("a.cu")
    project.write("b.cu", 'extern "C" void solve(float* y, int n) {}\n')
    project.write("b_ref.py", 'cases = [{"n": 5}]\ndef reference(): ...\n')
    for run in (project.run, project.spread):
        result = run("--kopt-dims=n=7")
        result.stdout.fnmatch_lines(["note: a.cu has no dim 'n': it keeps its own cases, not those of --kopt-dims"])
        result.stdout.fnmatch_lines([f"*a.cu::correctness[[]{FIRST}[]]*"])
        result.stdout.fnmatch_lines(["*b.cu::correctness[[]n7[]]*"])
        assert result.ret == 0


def test_dims_that_a_named_kernel_lacks_fail_it(project: Project) -> None:
    project.cuda()
    result = project.run("softmax.cu", "--kopt-dims=row=7")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["softmax.cu has no dim 'row' as given by --kopt-dims; it has 'rows', 'cols'"])


def test_a_backend_is_for_the_files_that_can_have_it(project: Project) -> None:
    project.cuda()
    project.triton()
    result = project.run("--kopt-backend=cutlass", "--kopt-json=r.json")
    result.assert_outcomes(passed=8)
    assert {e["id"]: e["backend"] for e in project.json("r.json")["evaluations"]} == {
        "softmax.cu": "cutlass",
        "softmax_triton.py": "triton",
    }


def test_help_names_every_option_of_this_issue_and_the_markers_have_signatures(project: Project) -> None:
    text = project.run("--help").stdout.str()
    names = "dims backend arch gpu seed ptr-size nvcc flags atol rtol trials cache warmup repeat max-time timeout preflight json"
    for name in names.split():
        assert f"--kopt-{name}" in text
        assert f"kopt_{name.replace('-', '_')}" in text
    assert "--kopt-preflight-only" in text
    markers = project.run("--markers").stdout.str()
    for marker in ("@pytest.mark.kernel(path, **dims):", "@pytest.mark.kopt(*, atol, rtol,", "@pytest.mark.ncu("):
        assert marker in markers


@pytest.mark.parametrize(
    "args",
    [
        ["--capture=no"],
        ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:pytest_jsonreport", "-p", "no:rerunfailures"],
        ["--strict-markers", "-W", "error", "-o", "xfail_strict=true"],
        ["-p", "no:legacypath"],
    ],
)
def test_other_switches_of_pytest(project: Project, args: list[str]) -> None:
    project.cuda()
    result = project.start(*args, "--kopt-json=r.json")
    assert result.ret == 0, result.stdout.str() + result.stderr.str()
    assert len(project.json("r.json")["items"]) == 4
    assert result.stderr.str().strip() == ""


def test_without_a_terminal(project: Project) -> None:
    project.cuda()
    result = project.pytester.runpytest_subprocess(*QUIET, "-p", "no:terminal", "--kopt-json=r.json")
    assert result.ret == 0, result.stdout.str() + result.stderr.str()
    assert len(project.json("r.json")["items"]) == 4


def test_the_plugin_can_be_switched_off(project: Project) -> None:
    project.cuda()
    project.write("test_a.py", "def test_a(): pass\n")
    result = project.pytester.runpytest_inprocess("-p", "no:kernelopt")
    result.assert_outcomes(passed=1)


def test_a_dim_that_only_the_references_annotations_name_is_known(project: Project) -> None:
    reference = REFERENCE.replace(
        "def reference", 'def reference(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]: ...\ndef unused', 1
    )
    project.cuda(reference=reference)
    assert project.ids("softmax.cu", "--kopt-dims=batch=7,n=3")[-1] == "softmax.cu::benchmark[batch7-n3]"
