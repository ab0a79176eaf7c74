"""What the plugin adds to ``pytest --collect-only`` in an empty folder: goal, under 30 ms. Needs no GPU.

    python benchmarks/startup.py [pairs]

Two pytests are started in turn, one with the plugin and one without, so that what else the machine does falls on both.
Reported are the medians of each and the median of the differences with its 95 % interval. Results go to
``benchmarks/results/startup.json``.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GOAL_MS = 30.0
BASE = [sys.executable, "-m", "pytest", "--collect-only", "-q"]


def start(folder: Path, *args: str) -> float:
    """Milliseconds from start to end of one pytest that loads no plugin but those named: what they import too counts as ours."""
    environ = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    begin = time.perf_counter()
    done = subprocess.run([*BASE, *args], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    milliseconds = (time.perf_counter() - begin) * 1e3
    if done.returncode != pytest.ExitCode.NO_TESTS_COLLECTED:
        raise SystemExit(done.stdout + done.stderr)
    return milliseconds


def interval_of_median(values: list[float]) -> tuple[float, float]:
    """95 % by resampling, with a fixed seed."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[1949]


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        start(folder, "-p", "pytest_kernelopt.plugin")  # writes the byte code
        with_plugin, without = [], []
        for _ in range(pairs):
            without.append(start(folder))
            with_plugin.append(start(folder, "-p", "pytest_kernelopt.plugin"))
    added = [a - b for a, b in zip(with_plugin, without, strict=True)]
    low, high = interval_of_median(added)
    result = {
        "goal_ms": GOAL_MS,
        "added_median_ms": round(statistics.median(added), 2),
        "added_interval_ms": [round(low, 2), round(high, 2)],
        "without_median_ms": round(statistics.median(without), 1),
        "with_median_ms": round(statistics.median(with_plugin), 1),
        "pairs": pairs,
        "python": platform.python_version(),
        "pytest": pytest.__version__,
        "cores": os.cpu_count(),
        "reached": statistics.median(added) < GOAL_MS,
    }
    path = ROOT / "benchmarks" / "results" / "startup.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
