"""Every public report of the core's areas is held by tests that exist, or a sentence says why not."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest
from public_reports import AREAS, REPORTS

ROOT = Path(__file__).parents[2]


@functools.cache
def functions(file: str) -> frozenset[str]:
    """The test functions at the top level of a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


def test_every_report_is_here_and_no_other() -> None:
    known = {f"{area}-{number:02}" for area, numbers in AREAS.items() for number in numbers}
    assert len(known) == 70
    assert set(REPORTS) == known


@pytest.mark.parametrize("report", REPORTS)
def test_what_holds_a_report_is_there(report: str) -> None:
    held_by = REPORTS[report]
    if isinstance(held_by, str):
        assert held_by.endswith(".")
        assert len(held_by) > 40, "a sentence that says why"
        return
    assert held_by
    for test in held_by:
        file, _, name = test.partition("::")
        assert name in functions(file), f"{report}: no {name} in {file}"
