"""The table below a run, as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

HEADINGS = ("kernel", "case", "build", "spills", "correct", "median_ms", "GB/s", "speed-up")
_NO_TIME = HEADINGS.index("median_ms") - 2  # its place among the cells after kernel and case
_FIGURES = {"spills", "median_ms", "GB/s", "speed-up"}  # to the right of their columns


def table(rows: Iterable[Mapping[str, Any]], width: int = 100) -> list[str]:
    """At most ``width`` columns: one line for each kernel and timed case, and one for its cases that are only verified,
    where they agree. Names are shortened where a line would not fit.
    """
    cells = _folded([_cells(row) for row in rows])
    if not cells:
        return []
    lines: list[Sequence[str]] = [HEADINGS, *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    _narrow(widths, width - 2 * (len(widths) - 1))
    return [_aligned(line, widths) for line in lines]


def _folded(lines: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Neighbours that differ in their case alone, and have no time, as one line: ``4 cases``."""
    found: list[tuple[str, ...]] = []
    for (kernel, *rest), group in groupby(lines, key=lambda line: (line[0], *line[2:])):
        cases = [line[1] for line in group]
        if len(cases) > 1 and rest[_NO_TIME] == "-":
            found.append((kernel, f"{len(cases)} cases", *rest))
        else:
            found += [(kernel, case, *rest) for case in cases]
    return found


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    timing = row.get("timing") or {}
    return (
        str(row["kernel"]),
        str(row.get("case", "")),
        _build(row),
        _spills(row),
        _correct(row),
        _median(timing) if timing else _not_timed(row),
        _rate(timing),
        _speed_up(timing),
    )


def _build(row: Mapping[str, Any]) -> str:
    if "build_error" in row:
        return "FAILED"
    found = row.get("resources")
    if not found:
        return {"failed": "FAILED", "error": "ERROR", "skipped": "skipped"}.get(row["outcomes"].get("build", ""), "-")
    return "ok" if found["registers"] is None else f"{found['registers']} regs"


def _spills(row: Mapping[str, Any]) -> str:
    spilled = (row.get("resources") or {}).get("spill_bytes")
    return "-" if spilled is None else f"{spilled} B"


def _correct(row: Mapping[str, Any]) -> str:
    found = row.get("correctness")
    if not found:
        failed = "-" if _build(row) == "FAILED" else "ERROR"  # no verdict: the reference or the case is at fault
        return {"failed": failed, "error": "ERROR", "skipped": "skipped"}.get(row["outcomes"].get("correctness", ""), "-")
    if found["verdict"] == "passed":
        return "yes" if found["mode"] == "device" else "interpreted"
    return {"failed": "NO", "error": "NO", "unavailable": "skipped"}.get(found["verdict"], str(found["verdict"]))


def _not_timed(row: Mapping[str, Any]) -> str:
    return "skipped" if row["outcomes"].get("benchmark") == "skipped" else "-"


def _median(timing: Mapping[str, Any]) -> str:
    median, (low, high) = timing["median_ms"], timing["interval_ms"]
    half = max(high - median, median - low) / median if median else 0.0
    mark = "?" if timing.get("suspicious") or not timing["verified"] else ""
    return f"{_digits(median)} ±{half:.1%}{mark}"


def _digits(value: float) -> str:
    """Four significant digits; no exponent for what takes a nanosecond to ten seconds."""
    return f"{value:.4g}" if value < 1e4 else f"{value:.0f}"


def _rate(timing: Mapping[str, Any]) -> str:
    rate, percent = timing.get("gb_per_s"), timing.get("bandwidth_percent")
    if rate is None:
        return "-"
    return f"{rate:.0f}" + (f" ({percent:.0f}%)" if percent is not None else "")


def _speed_up(timing: Mapping[str, Any]) -> str:
    return "-" if timing.get("speedup") is None else f"{timing['speedup']:.2f}x"


def _narrow(widths: list[int], room: int) -> None:
    """Take from the two columns of names, the wider first, what the line is too long by; never below 12 columns."""
    while sum(widths) > room:
        widest = 0 if widths[0] >= widths[1] else 1
        if widths[widest] <= 12:
            return
        widths[widest] -= 1


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [_tail(line[0], widths[0])] + [_shorten(cell, width) for cell, width in zip(line[1:], widths[1:], strict=True)]
    padded = [
        cell.rjust(width) if heading in _FIGURES else cell.ljust(width)
        for heading, cell, width in zip(HEADINGS, cells, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _tail(text: str, width: int) -> str:
    """The end of a path, which names the kernel."""
    return text if len(text) <= width else f"..{text[len(text) - width + 2 :]}"


def _shorten(text: str, width: int) -> str:
    """The beginning and, more of it, the end, which tells more."""
    if len(text) <= width:
        return text
    tail = (width - 2) * 2 // 3
    return text[: width - 2 - tail] + ".." + text[len(text) - tail :]
