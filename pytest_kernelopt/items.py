"""What happens round each item: its record begins before its fixtures, and leaves with its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .collect import KernelItem
from .report.gather import DETAILS_ATTRIBUTE
from .state import STATE, settings_of
from .verdict import DETAILS, KERNEL, short_of_a_verdict, start_record

_HERE = Path(__file__).parent
_OURS = {"_kopt_selection", "kopt_timing"}  # a user's test that asks for one of these learns something about a kernel


def prepare(item: pytest.Item) -> None:
    """Begin the record of an item that is about a kernel; refuse a ``kopt`` marker that makes no sense."""
    about: dict[str, Any] | None = None
    if isinstance(item, KernelItem):
        about = item.about()
    elif _OURS & set(getattr(item, "fixturenames", ())):
        about = {"check": "test"}
    if about is not None:
        if KERNEL in item.stash:  # a rerun is a run: nothing that the evaluator remembers of this kernel counts in it
            item.config.stash[STATE].forget(item.stash[KERNEL])
        start_record(item, about)
    if item.get_closest_marker("kopt"):
        with short_of_a_verdict():
            settings_of(item)


def complete(item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
    """Send the details along, and name the kernel or test, not this plugin, as the place of a skip."""
    if DETAILS in item.stash and (report.when == "call" or not report.passed):
        known: dict[str, Any] = item.stash[DETAILS]
        details = {**known}
        if isinstance(item, KernelItem):
            details |= item.kernel_file.hashes()
        setattr(report, DETAILS_ATTRIBUTE, details)
    if report.skipped and isinstance(report.longrepr, tuple) and Path(report.longrepr[0]).parent == _HERE:
        path, line, _ = item.reportinfo()
        report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
    return report
