"""The table of the terminal summary: pure functions of records."""

from __future__ import annotations

import re
from typing import Any

import pytest
from project import FIRST, SECOND, Project

from pytest_kernelopt.report import terminal


def row(**changes: Any) -> dict[str, Any]:
    timing = {
        "median_ms": 0.0123456,
        "interval_ms": [0.0122, 0.0124],
        "verified": True,
        "gb_per_s": 3100.0,
        "bandwidth_percent": 64.6,
    }
    return {
        "kernel": "softmax.cu", "case": "rows4096-cols1024", "resources": {"registers": 32, "spill_bytes": 0},
        "correctness": {"verdict": "passed", "mode": "device"}, "timing": timing | {"speedup": 1.234}, "outcomes": {}, **changes,
    }  # fmt: skip


def test_a_row_holds_build_verdict_time_rate_and_speed_up() -> None:
    heading, line = terminal.table([row()])
    assert heading.split() == ["kernel", "case", "build", "spills", "correct", "median_ms", "GB/s", "speed-up"]
    assert re.split(r"  +", line) == [
        "softmax.cu", "rows4096-cols1024", "32 regs", "0 B", "yes", "0.01235 ±1.2%", "3100 (65%)", "1.23x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"build_error": "x.cu(1): error", "resources": None, "correctness": None, "timing": None}, ["FAILED", "-", "-"]),
        ({"resources": {"registers": 255, "spill_bytes": 96}}, ["255 regs    96 B"]),
        ({"resources": {"registers": None, "spill_bytes": None}}, ["ok"]),
        ({"correctness": {"verdict": "failed", "mode": "device"}, "timing": None}, ["NO"]),
        ({"correctness": {"verdict": "passed", "mode": "interpreter"}, "timing": None}, ["interpreted"]),
        ({"correctness": {"verdict": "unavailable", "mode": "device"}, "timing": None}, ["skipped"]),
        ({"timing": None, "outcomes": {"benchmark": "skipped"}}, ["skipped"]),
        ({"resources": None, "outcomes": {"build": "skipped"}}, ["skipped"]),
    ],
)
def test_what_went_otherwise_is_said_in_its_column(changes: dict[str, Any], words: list[str]) -> None:
    line = terminal.table([row(**changes)])[1]
    for word in words:
        assert word in line


def test_cases_that_are_only_verified_share_a_line_while_they_agree() -> None:
    untimed = {"timing": None}
    wrong = {"correctness": {"verdict": "failed", "mode": "device"}, **untimed}
    rows = [row(case="n1", **untimed), row(case="n2", **untimed), row(case="n3", **wrong), row(case="n4")]
    lines = [line.split()[1:3] for line in terminal.table(rows)[1:]]
    assert lines == [["2", "cases"], ["n3", "32"], ["n4", "32"]]


def test_two_timed_cases_never_share_a_line() -> None:
    assert len(terminal.table([row(case="n1"), row(case="n2")])) == 3


def test_a_doubtful_time_is_marked() -> None:
    timing = row()["timing"]
    assert "%?" in terminal.table([row(timing=timing | {"suspicious": "faster than the floor"})])[1]
    assert "%?" in terminal.table([row(timing=timing | {"verified": False})])[1]


@pytest.mark.parametrize(("ms", "shown"), [(0.0009876, "0.0009876"), (0.5, "0.5 "), (12.3456, "12.35"), (12345.6, "12346")])
def test_times_have_four_digits_and_no_exponent(ms: float, shown: str) -> None:
    line = terminal.table([row(timing=row()["timing"] | {"median_ms": ms, "interval_ms": [ms, ms]})])[1]
    assert shown in line


def test_no_line_is_longer_than_100_columns_and_columns_align() -> None:
    long = row(
        kernel="kernels/attention/flash/forward_with_causal_mask_triton.py",
        case="batch8-heads32-seq8192-dim128-dtypebfloat16-causalTrue-scale0.08838",
        resources={"registers": 255, "spill_bytes": 1234},
    )
    lines = terminal.table([row(), long])
    assert max(map(len, lines)) <= 100
    assert len({line.index("regs") for line in lines[1:]}) <= 2
    assert "_triton.py" in lines[2]
    assert "e0.08838" in lines[2]


def test_no_kernels_no_table(project: Project) -> None:
    project.write("test_other.py", "def test_it(): pass\n")
    assert "= kernels =" not in project.run().stdout.str()


def test_rows_come_in_the_order_of_collection_also_under_xdist(project: Project) -> None:
    for name in ("c.cu", "a.cu", "b.cu"):
        project.cuda(name)
    project.cuda("z.cu", fake="nobuild")
    for run in (project.run, project.spread):
        lines = [line.split()[:2] for line in run().outlines if line.startswith(("a.cu  ", "b.cu  ", "c.cu  ", "z.cu  "))]
        assert lines == [*([name, case] for name in ("a.cu", "b.cu", "c.cu") for case in (FIRST, SECOND)), ["z.cu", "2"]]


def test_what_a_verdict_warns_of_is_noted(project: Project) -> None:
    project.cuda(fake="guess")
    project.run().stdout.fnmatch_lines([f"note: softmax.cu at {FIRST}: sizes were guessed"])


def test_the_build_item_alone_is_a_row(project: Project) -> None:
    project.cuda()
    project.run("-k", "build").stdout.fnmatch_lines(["softmax.cu*32 regs*8 B*"])


def test_quieter_than_quiet_shows_no_table(project: Project) -> None:
    project.cuda()
    assert "median_ms" in project.run("-q").stdout.str()
    assert "median_ms" not in project.run("-qq").stdout.str()
