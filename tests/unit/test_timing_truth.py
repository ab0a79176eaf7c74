"""What benchmarks/timing_truth.py makes of ncu's output and of its processes' medians; the measuring itself needs a GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

RAW = """\
==PROF== Connected to process 41 (/usr/bin/python3.12)
==PROF== Profiling "kopt_begin": 0%....100% - 1 pass
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"gpu__time_duration.sum"
"","","","","","","","","","","","ns"
"0","41","python3.12","127.0.0.1","kopt_begin","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","1,504"
"1","41","python3.12","127.0.0.1","void softmax<4>(const float *, int)","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0","5,024"
"2","41","python3.12","127.0.0.1","void softmax<4>(const float *, int)","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0","4,992"
"3","41","python3.12","127.0.0.1","kopt_begin","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","1,472"
"4","41","python3.12","127.0.0.1","zero","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","2,000"
"5","41","python3.12","127.0.0.1","count","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","1,002,000"
"6","41","python3.12","127.0.0.1","zero","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","3,000"
"7","41","python3.12","127.0.0.1","count","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","1,001,000"
==PROF== Disconnected from process 41
"""
DETAILS = """\
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","41","softmax","Command line profiler metrics","gpu__time_duration.sum","us","22.56"
"0","41","softmax","Command line profiler metrics","dram__bytes_read.sum","Mbyte","16.78"
"1","41","softmax","Command line profiler metrics","gpu__time_duration.sum","usecond","22.40"
"""


@pytest.fixture(scope="module")
def verdict() -> ModuleType:
    spec = importlib.util.spec_from_file_location("timing_verdict", BENCHMARKS / "timing_verdict.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["timing_verdict"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_raw_page_of_ncu_is_read_in_its_own_unit(verdict: ModuleType) -> None:
    launches = verdict.read_ncu(RAW)
    assert len(launches) == 8
    assert launches[1].name.startswith("void softmax<4>")
    assert launches[1].us == pytest.approx(5.024)
    assert launches[5].us == pytest.approx(1002.0)
    assert verdict.read_ncu(RAW.replace('"ns"', '"usecond"'))[1].us == pytest.approx(5024)


def test_the_details_page_of_ncu_is_read_as_well(verdict: ModuleType) -> None:
    assert [round(launch.us, 2) for launch in verdict.read_ncu(DETAILS)] == [22.56, 22.4]


def test_an_output_without_launches_gives_none(verdict: ModuleType) -> None:
    assert verdict.read_ncu("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n") == []


def test_the_kernels_of_one_call_are_added_and_markers_tell_the_jobs_apart(verdict: ModuleType) -> None:
    found = verdict.per_call(verdict.read_ncu(RAW), "kopt_begin", ["softmax", "histogram"], calls=2)
    assert found["softmax"] == pytest.approx([5.024, 4.992])
    assert found["histogram"] == pytest.approx([1004.0, 1004.0])


def test_a_job_with_calls_missing_is_left_out_and_a_missing_job_is_an_error(verdict: ModuleType) -> None:
    launches = verdict.read_ncu(RAW)
    assert list(verdict.per_call(launches, "kopt_begin", ["softmax", "histogram"], calls=4)) == ["histogram"]
    with pytest.raises(ValueError, match="ncu shows 2 jobs, and 1 were run"):
        verdict.per_call(launches, "kopt_begin", ["softmax"], calls=2)


def test_an_interval_must_cover_the_medians_of_the_other_processes(verdict: ModuleType) -> None:
    medians = (100.0, 101.0, 103.0)
    found = verdict.agreement([{"median_us": m, "interval_us": [m - 1.5, m + 1.5]} for m in medians])
    assert (found["covered"], found["pairs"]) == (2, 6)  # 100 and 101 hold each other
    assert found["median_us"] == 101.0
    assert found["spread_percent"] == pytest.approx(100 * 3 / 101)
    assert not found["agree"]


def test_the_difference_to_ncu_is_judged_raw_and_less_that_of_an_empty_kernel(verdict: ModuleType) -> None:
    small = verdict.against_ncu(3.3, 4.0, "warm", empty=-0.65)
    assert (small["limit_us"], small["within"], small["net_within"]) == (0.5, False, True)
    assert small["net_us"] == pytest.approx(-0.05)
    large = verdict.against_ncu(107.0, 100.0, "cold", empty=None)
    assert (large["limit_us"], large["within"], large["net_within"]) == (8.0, True, None)


def test_the_table_shows_what_is_missing_as_a_dash(verdict: ModuleType) -> None:
    lines = verdict.table(verdict.rows([{"name": "softmax.cu rows64", "cold": {"median_us": 4.3, "within": False}}])).splitlines()
    assert lines[0].split()[:3] == ["kernel", "mode", "ours"]
    assert [lines[1].split()[i] for i in (2, 3, 4)] == ["cold", "4.30", "-"]
    assert "NO" in lines[1]
    assert set(lines[2].split()[3:]) == {"-"}
