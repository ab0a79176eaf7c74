"""Device time in pytest-benchmark's statistics, files and table, and what happens where it is switched off."""

from __future__ import annotations

from fake_evaluator import samples_of
from project import FIRST, Project


def test_the_samples_are_pytest_benchmarks_data_exactly(project: Project) -> None:
    project.cuda()
    project.run("-W", "error").assert_outcomes(passed=4)
    project.start("--benchmark-json=b.json").assert_outcomes(passed=4)  # 5.2.3 leaves the file open in its process
    saved = project.json("b.json")
    (entry,) = saved["benchmarks"]
    assert entry["stats"]["data"] == [ms / 1e3 for ms in samples_of(FIRST)]
    assert entry["fullname"] == f"softmax.cu::benchmark[{FIRST}]"
    assert entry["param"] == FIRST
    assert entry["params"] == {"_kopt_case": FIRST}
    assert entry["options"]["timer"] == "gpu_seconds"
    assert entry["extra_info"]["gpu"] == "NVIDIA H200"
    assert entry["extra_info"]["speedup"] == 1.5
    assert saved["machine_info"]["gpu"]["name"] == "NVIDIA H200"


def test_the_table_names_each_kernel(project: Project) -> None:
    project.cuda()
    project.triton()
    project.run().stdout.fnmatch_lines([f"softmax.cu::benchmark[[]{FIRST}[]]*", f"softmax_triton.py::benchmark[[]{FIRST}[]]*"])


def test_pytest_benchmarks_own_gate_sees_device_time(project: Project) -> None:
    project.cuda()
    project.run("--benchmark-autosave")
    gate = ("--benchmark-compare", "--benchmark-compare-fail=median:5%")
    assert project.start(*gate).ret == 0
    project.cuda(fake="slow=1.2")
    assert project.start(*gate).ret != 0


def test_benchmark_only_and_skip_know_our_items(project: Project) -> None:
    project.cuda()
    project.run("--benchmark-only").assert_outcomes(passed=1, skipped=3)
    project.run("--benchmark-skip").assert_outcomes(passed=3, skipped=1)


def test_a_wrong_kernel_is_in_neither_file_nor_table(project: Project) -> None:
    project.cuda(fake="wrong")
    result = project.start("--benchmark-json=b.json")
    assert project.json("b.json")["benchmarks"] == []
    assert "OPS (" not in result.stdout.str()


def test_benchmark_disable_switches_off_pytest_benchmark_and_not_our_timing(project: Project) -> None:
    project.cuda()
    result = project.run("--benchmark-disable", "--kopt-json=r.json", "-W", "error")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines([f"softmax.cu  {FIRST}*0.01005 ±*3100 (65%)*1.50x"])
    (timing,) = project.json("r.json")["evaluations"][0]["timing"]
    assert timing["samples_ms"] == list(samples_of(FIRST))


def test_under_xdist_each_kernel_is_timed_once_and_it_is_said(project: Project) -> None:
    """PYT-05: what is said is what is done."""
    project.cuda()
    for args in (("-n0",), ("-n1",), ("-n2",)):
        project.write("fake.log", "")
        result = project.start(*args, "--benchmark-json=b.json")
        result.assert_outcomes(passed=4)
        assert len([line for line in project.log() if line.startswith("time")]) == 1
        said = "note: under xdist, kernels that share a GPU were timed in turn; pytest-benchmark's own table is off"
        assert (said in result.stdout.str()) == (args != ("-n0",))
        result.stdout.fnmatch_lines([f"softmax.cu  {FIRST}*0.01005 ±*"])


def test_without_pytest_benchmark_the_items_and_their_times_remain(project: Project) -> None:
    project.cuda()
    for args in (("-p", "no:benchmark"), ("-p", "no:benchmark", "--strict-markers", "-W", "error")):
        result = project.run(*args)
        result.assert_outcomes(passed=4)
        result.stdout.fnmatch_lines([f"softmax.cu  {FIRST}*0.01005 ±*"])
    project.cuda(fake="wrong")
    project.run("-p", "no:benchmark").assert_outcomes(passed=1, failed=3)


def test_codspeeds_fixture_which_takes_no_clock_is_left_alone(project: Project) -> None:
    """pytest-codspeed refuses a ``timer`` in the marker, when it is switched on."""
    project.cuda()
    project.write(
        "conftest.py",
        "def pytest_addoption(parser): parser.addoption('--codspeed', action='store_true')\n"
        "def pytest_runtest_setup(item):\n    marker = item.get_closest_marker('benchmark')\n"
        "    assert marker is None or 'timer' not in marker.kwargs\n",
    )
    project.run("--codspeed").assert_outcomes(passed=4)
