"""Gathers what the items learned, in the process that reports, wherever they ran: the same with and without xdist.

Two things travel with a test report. ``user_properties`` holds the item's record, for junit, json-report and report-log.
The attribute ``kopt_details`` holds what is too long for those (all samples, the whole build), for ``--kopt-json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

DETAILS_ATTRIBUTE = "kopt_details"


class JsonObject(dict[str, Any]):
    """A dict whose text is JSON: junit.xml writes ``str()`` of a property, and Python's own form is nothing others can read."""

    def __str__(self) -> str:
        return json.dumps(self)


class Gathered:
    """Every item's record and outcome, by node id. A plugin of the controller, or of the only process."""

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Any]] = {}
        self.collected: dict[str, int] = {}  # node ids to their place, known under xdist
        self._details: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        record = next((value for name, value in report.user_properties if name == "kopt"), None)
        if not isinstance(record, dict):
            return
        report.user_properties = [(n, JsonObject(record) if n == "kopt" else value) for n, value in report.user_properties]
        previous = self.items.get(report.nodeid, {}) if report.when != "setup" else {}
        item = {**record, "outcome": previous.get("outcome", "passed")}
        if "reason" in previous:
            item["reason"] = previous["reason"]
        if report.outcome != "passed" and item["outcome"] == "passed":  # "rerun" too, until the next setup
            item["outcome"] = report.outcome if report.when == "call" or report.skipped else "error"
            item["reason"] = _reason(report)
        self.items[report.nodeid] = item
        if details := getattr(report, DETAILS_ATTRIBUTE, None):
            self._details[report.nodeid] = details

    @property
    def timed_something(self) -> bool:
        return any("timing" in item for item in self.items.values())

    def evaluations(self) -> list[dict[str, Any]]:
        """Each kernel file's build, verdicts and times as the JSON of ``records.Evaluation``, in the order of node ids."""
        found: dict[str, dict[str, Any]] = {}
        single = ("source_sha256", "reference_sha256", "build", "build_error")
        for nodeid in sorted(self._details):
            details, item = self._details[nodeid], self.items[nodeid]
            if item["check"] == "test" or "backend" not in item:
                continue  # a user's own test; a file that is no kernel
            new: dict[str, Any] = {"id": item["kernel"], "backend": item["backend"], "correctness": {}, "timing": {}}
            one = found.setdefault(item["kernel"], new)
            one |= {name: details[name] for name in single if name in details}
            for kind in ("correctness", "timing"):
                if kind in details:
                    one[kind][item["case"]] = details[kind]
        return [one | {kind: list(one[kind].values()) for kind in ("correctness", "timing")} for one in found.values()]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each kernel and case: the records of its items merged, with the outcome of each check."""
        builds = {item["kernel"]: item for item in self._in_order() if item["check"] == "build"}
        cases: dict[str, dict[str, dict[str, Any]]] = {kernel: {} for kernel in builds}
        for item in self._in_order():
            if "case" in item:
                row = cases.setdefault(item["kernel"], {}).setdefault(item["case"], {"outcomes": {}})
                row |= {**item, "outcomes": row["outcomes"] | {item["check"]: item["outcome"]}}
        for kernel, rows in cases.items():
            build = builds.get(kernel, {})
            outcome = {"build": build["outcome"]} if build else {}
            for row in rows.values() or [{"outcomes": {}}]:
                yield {**build, **row, "outcomes": outcome | row["outcomes"]}

    def _in_order(self) -> list[dict[str, Any]]:
        """The items as they were collected: xdist's workers report in any order."""
        last = len(self.collected)
        return [self.items[nodeid] for nodeid in sorted(self.items, key=lambda nodeid: self.collected.get(nodeid, last))]

    def notes(self) -> list[str]:
        """What users should know beside the figures, each sentence once."""
        found: dict[str, None] = {}
        for item in self._in_order():
            found |= dict.fromkeys(item.get("notes", ()))
            prefix = f"{item['kernel']} at {item['case']}: " if "case" in item else ""
            found |= {f"{prefix}{text}": None for text in item.get("correctness", {}).get("warnings", ())}
            timing = item.get("timing", {})
            found |= {f"{prefix}{text}": None for text in (*timing.get("notes", ()), *filter(None, [timing.get("suspicious")]))}
        return list(found)


def _reason(report: pytest.TestReport) -> str:
    """Why an item did not pass, without a traceback where it has none."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)  # its longreprtext begins with the xdist worker's name
