"""What every item learned, in each report, with and without xdist."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import pytest
from fake_evaluator import samples_of
from project import FIRST, QUIET, SECOND, Project

from pytest_kernelopt.core.records import Results

BENCHMARK = f"softmax.cu::benchmark[{FIRST}]"


def kernels(project: Project) -> None:
    project.cuda()
    project.triton(fake="wrong")
    project.cuda("bad.cu", fake="nobuild")
    project.write("lonely.cu", 'extern "C" void solve(const float* x, float* y) {}\n')
    project.write("broken.cu", 'extern "C" void solve(mystery_t y) {}\n')
    project.write("test_other.py", "def test_it(): pass\n")


def test_the_json_file_is_of_its_schema_and_complete(project: Project) -> None:
    kernels(project)
    assert project.run("--kopt-json=r.json").ret == 1
    results = Results.model_validate(project.json("r.json"))
    assert results.schema_version == 1
    assert results.exit_status == 1
    assert results.environment.gpu is not None
    found = {evaluation.id: evaluation for evaluation in results.evaluations}
    assert sorted(found) == ["bad.cu", "lonely.cu", "softmax.cu", "softmax_triton.py"]
    good = found["softmax.cu"]
    assert good.build is not None
    assert good.build.kernels[0].registers == 32
    assert {c.case: c.verdict for c in good.correctness} == {FIRST: "passed", SECOND: "passed"}
    assert good.timing[0].samples_ms == samples_of(FIRST)
    assert len(good.source_sha256) == 64
    assert found["bad.cu"].build_error == 'bad.cu(3): error: identifier "threadIdx_x" is undefined'
    assert found["lonely.cu"].reference_sha256 is None
    assert {c.verdict for c in found["softmax_triton.py"].correctness} == {"failed"}
    assert results.items[BENCHMARK]["dims"] == {"rows": 4096, "cols": 1024}
    assert results.items["broken.cu::build"]["outcome"] == "failed"
    assert "mystery_t" in str(results.items["broken.cu::build"]["reason"])
    assert "test_other.py::test_it" not in results.items


def test_the_same_with_and_without_xdist_and_with_benchmarks_disabled(project: Project) -> None:
    """PYT-09: with rerunfailures and json-report in the way, too."""
    kernels(project)
    seen = []
    for number, args in enumerate(([], ["-n2"], ["--benchmark-disable"], ["-n2", "--reruns=1"])):
        project.start(*args, f"--kopt-json={number}.json", "--json-report", f"--json-report-file=j{number}.json")
        results, report = project.json(f"{number}.json"), project.json(f"j{number}.json")
        assert results.pop("created")
        metadata = {test["nodeid"]: test["metadata"]["kopt"] for test in report["tests"] if "metadata" in test}
        properties = {t["nodeid"]: p["kopt"] for t in report["tests"] for p in t.get("user_properties", ()) if "kopt" in p}
        assert metadata == properties
        assert {id: drop(item, "outcome", "reason") for id, item in results["items"].items()} == metadata
        assert report["kopt"] == {"environment": results["environment"], "items": results["items"]}
        seen.append((results, metadata))
    for results, metadata in seen:
        assert metadata == seen[0][1]
        assert results == seen[0][0]


def drop(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in names}


def test_the_record_is_small_and_the_samples_are_in_the_json_file_only(project: Project) -> None:
    project.cuda()
    project.run("--json-report", "--json-report-file=j.json", "--kopt-json=r.json")
    text = (project.path / "j.json").read_text()
    assert "samples_ms" not in text
    assert "samples_ms" in (project.path / "r.json").read_text()


def test_json_reports_empty_environment_is_filled(project: Project) -> None:
    project.write("test_other.py", "def test_it(): pass\n")
    project.run("--json-report", "--json-report-file=j.json")
    report = project.json("j.json")
    assert report["environment"]["Packages"]["pytest"] == pytest.__version__
    assert "kopt" not in report  # nobody here has kernels
    project.cuda()
    project.run("--json-report", "--json-report-file=j.json", "-p", "no:metadata")
    assert project.json("j.json")["environment"]["Python"]
    assert project.json("j.json")["kopt"]["environment"]["gpu"]["name"] == "NVIDIA H200"


def test_junit_holds_the_record_as_json_with_numbers_as_numbers(project: Project) -> None:
    """PYT-11."""
    project.cuda()
    for args in ((), ("-n2",)):
        project.start("--junitxml=j.xml", *args)
        (value,) = [
            element.get("value")
            for case in ElementTree.parse(project.path / "j.xml").iter("testcase")
            if case.get("name") == f"benchmark[{FIRST}]"
            for element in case.iter("property")
        ]
        record = json.loads(value or "")
        assert isinstance(record["timing"]["median_ms"], float)
        assert record["dims"] == {"rows": 4096, "cols": 1024}


REPORT_LOG = """
import json

def pytest_addoption(parser): parser.addoption("--report-log")

class Log:
    def __init__(self, config): self.file, self.config = open(config.getoption("--report-log"), "w"), config
    def pytest_runtest_logreport(self, report):
        report.__dict__.pop("node", None)  # xdist's, as pytest-reportlog does
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.file.write(json.dumps(data) + chr(10)); self.file.flush()

def pytest_configure(config):
    if not hasattr(config, "workerinput"): config.pluginmanager.register(Log(config))
"""


def test_a_report_log_holds_numbers_as_numbers(project: Project) -> None:
    """PYT-11. pytest-reportlog writes what its stand-in here writes: the serialised reports."""
    project.cuda()
    project.write("conftest.py", REPORT_LOG)
    for args in ((), ("-n2",)):
        project.start("--report-log=l.jsonl", *args)
        lines = [json.loads(line) for line in (project.path / "l.jsonl").read_text().splitlines()]
        (record,) = [
            value
            for line in lines
            if line["nodeid"] == BENCHMARK and line["when"] == "call"
            for _, value in line["user_properties"]
        ]
        assert isinstance(record["timing"]["median_ms"], float)


def test_a_rerun_replaces_the_record(project: Project) -> None:
    project.cuda(fake="flaky")
    project.run("--reruns=1", "--kopt-json=r.json", "--json-report", "--json-report-file=j.json").assert_outcomes(passed=4)
    items = project.json("r.json")["items"]
    assert {id: item["outcome"] for id, item in items.items()} == dict.fromkeys(items, "passed")
    assert items[f"softmax.cu::correctness[{FIRST}]"]["correctness"]["verdict"] == "passed"
    assert "reason" not in items[f"softmax.cu::correctness[{FIRST}]"]
    for test in project.json("j.json")["tests"]:
        assert len(test["user_properties"]) == 1


def test_the_file_is_written_whole_or_not_at_all(project: Project) -> None:
    project.cuda()
    (project.path / "out").mkdir()
    project.run("--kopt-json=out/r.json")
    first = (project.path / "out" / "r.json").read_text()
    assert stat.S_IMODE((project.path / "out" / "r.json").stat().st_mode) & 0o044
    project.run("--kopt-json=out/r.json", "--collect-only")
    assert (project.path / "out" / "r.json").read_text() == first
    assert [path.name for path in (project.path / "out").iterdir()] == ["r.json"]


def test_a_file_that_can_no_longer_be_written_at_the_end_is_said_and_fails_the_run(project: Project) -> None:
    project.cuda()
    project.write("conftest.py", "import pathlib\ndef pytest_collection_finish(): pathlib.Path('r.json').mkdir(exist_ok=True)\n")
    result = project.run("--kopt-json=r.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["--kopt-json */r.json: could not be written: *directory*"])
    assert not list(project.path.glob(".r.json.*"))


def test_an_item_that_fails_before_it_begins_has_a_record(project: Project) -> None:
    project.cuda()
    project.write("conftest.py", "import pytest\n@pytest.fixture(autouse=True)\ndef no(): raise ValueError('no')\n")
    project.run("--kopt-json=r.json")
    item = project.json("r.json")["items"][BENCHMARK]
    assert item["outcome"] == "error"
    assert item["case"] == FIRST
    assert "ValueError: no" in item["reason"]


def test_a_skip_has_its_reason(project: Project, no_gpu: None) -> None:
    project.cuda()
    project.run("--kopt-json=r.json")
    item = project.json("r.json")["items"][BENCHMARK]
    assert (item["outcome"], item["reason"]) == ("skipped", "no GPU: the NVIDIA driver finds none")


def test_two_lines_say_what_the_kernels_run_on_where_there_are_kernels(project: Project) -> None:
    project.write("test_other.py", "def test_it(): pass\n")
    assert "kernelopt:" not in project.run().stdout.str()
    project.cuda()
    for run in (project.run, project.spread):
        lines = [line for line in run().outlines if line.startswith("kernelopt:")]
        assert len(lines) == 2
        assert re.search(r"torch \d", lines[1])
    assert "kernelopt:" not in project.run("-q").stdout.str()
    assert "kernelopt:" not in project.run("--collect-only").stdout.str()


def test_a_folder_whose_name_is_no_unicode_is_in_the_results(project: Project) -> None:
    """Without xdist, whose own messages can't hold such a node id."""
    folder = os.fsdecode(b"caf\xe9")
    project.cuda(f"{folder}/softmax.cu")
    command = [sys.executable, "-m", "pytest", *QUIET, "-p", "no:cacheprovider", "--kopt-json=r.json"]
    done = subprocess.run(command, cwd=project.path, capture_output=True, check=False)  # pytester can't read such output
    assert done.returncode == 0, done.stdout + done.stderr
    items = project.json("r.json")["items"]
    assert all(name.startswith((r"caf\udce9/softmax.cu::", r"caf\xe9/softmax.cu::")) for name in items), list(items)
    assert len(items) == 4
