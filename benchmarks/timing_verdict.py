"""What ``timing_truth.py`` makes of its measurements: pure functions, so that they can be tested without a GPU.

All times are in microseconds.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

METRIC = "gpu__time_duration.sum"
LIMITS = {"cold": (0.08, 1.0), "warm": (0.05, 0.5)}  # share of ncu's figure, and microseconds: the larger of the two counts
SPREAD_PERCENT = 1.5  # that fresh processes may lie apart
_MICROSECONDS = {"n": 1e-3, "u": 1.0, "m": 1e3, "s": 1e6}  # by the first letter of the unit, as ncu's releases spell them


@dataclass(frozen=True)
class Launch:
    """One kernel as ncu profiled it."""

    name: str
    us: float


def read_ncu(text: str) -> list[Launch]:
    """The launches in an output of ``ncu --csv``, of the raw or the details page, in the order in which they ran."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    launches, unit = [], "ns"
    for row in csv.DictReader(lines[start:]):
        if row["ID"] == "ID":  # the header once more
            continue
        if METRIC in row:
            if not row["ID"]:  # the raw page has its units in a row below the header
                unit = row[METRIC] or unit
                continue
            value = row[METRIC]
        elif row.get("Metric Name") == METRIC:
            unit, value = row["Metric Unit"], row["Metric Value"]
        else:
            continue
        launches.append(Launch(row["Kernel Name"], _number(value) * _MICROSECONDS[unit[0]]))
    return launches


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def per_call(launches: Sequence[Launch], marker: str, jobs: Sequence[str], calls: int) -> dict[str, list[float]]:
    """Microseconds of every call of every job, all kernels of a call added. A ``marker`` kernel comes before each job.

    A job of which not every call was profiled is left out.
    """
    groups: list[list[Launch]] = []
    for launch in launches:
        if marker in launch.name:
            groups.append([])
        elif groups:
            groups[-1].append(launch)
    if len(groups) != len(jobs):
        raise ValueError(f"ncu shows {len(groups)} jobs, and {len(jobs)} were run")
    found = {}
    for job, group in zip(jobs, groups, strict=True):
        kernels, rest = divmod(len(group), calls)
        if rest or not kernels:
            continue
        found[job] = [sum(launch.us for launch in group[i * kernels : (i + 1) * kernels]) for i in range(calls)]
    return found


def agreement(processes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How well fresh processes agree: ``median_us`` and ``interval_us`` of each, in the order in which they ran.

    ``covered`` counts how often the interval that one process reports holds the median of another.
    """
    medians = [float(process["median_us"]) for process in processes]
    pairs = [
        low <= medians[j] <= high
        for i, (low, high) in enumerate(process["interval_us"] for process in processes)
        for j in range(len(medians))
        if i != j
    ]
    middle = statistics.median(medians)
    half = statistics.median((p["interval_us"][1] - p["interval_us"][0]) / 2 / p["median_us"] for p in processes)
    spread = 100 * (max(medians) - min(medians)) / middle
    return {
        "median_us": middle,
        "spread_percent": spread,
        "agree": spread <= SPREAD_PERCENT,
        "half_width_percent": 100 * half,
        "covered": sum(pairs),
        "pairs": len(pairs),
    }


def against_ncu(ours: float, ncu: float, mode: str, empty: float | None) -> dict[str, Any]:
    """The difference to ncu as it is, and less the one that an empty kernel shows (``empty``: ours minus ncu's there).

    ncu's figure holds a constant share for starting and ending a kernel, which CUPTI's kernel times leave out.
    """
    share, least = LIMITS[mode]
    limit = max(share * ncu, least)
    raw = ours - ncu
    net = None if empty is None else raw - empty
    return {
        "ncu_us": ncu,
        "difference_us": raw,
        "net_us": net,
        "limit_us": limit,
        "within": abs(raw) <= limit,
        "net_within": None if net is None else abs(net) <= limit,
    }


def table(rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns: the first to the left, figures to the right."""
    lines = [tuple(row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    aligned = []
    for line in lines:
        cells = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))]
        aligned.append("  ".join(cells).rstrip())
    return "\n".join(aligned)


HEADINGS = (
    "kernel", "mode", "ours us", "spread", "+-", "covers", "ncu us", "diff", "net", "limit", "ok", "net ok",
    "events", "wall", "others us", "s each",
)  # fmt: skip


def rows(results: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The table of ``timing_truth.py``. ``others``: do_bench's median (cold), twenty launches in a row over 20 (warm)."""
    found: list[tuple[str, ...]] = [HEADINGS]
    for result in results:
        for mode, other in (("cold", "do_bench_us"), ("warm", "back_to_back_us")):
            part = result.get(mode) or {}
            covers = f"{part['covered']}/{part['pairs']}" if "pairs" in part else "-"
            found.append(
                (
                    result["name"], mode, _us(part.get("median_us")), _percent(part.get("spread_percent")),
                    _percent(part.get("half_width_percent")), covers, _us(part.get("ncu_us")), _us(part.get("difference_us")),
                    _us(part.get("net_us")), _us(part.get("limit_us")), _yes(part.get("within")), _yes(part.get("net_within")),
                    _us(part.get("events_us")), _us(part.get("wall_us")), _us((result.get("others") or {}).get(other)),
                    _us(part.get("seconds")),
                )
            )  # fmt: skip
    return found


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}%"


def _yes(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "NO"
