"""A project with kernels, and ways to run pytest in it: the evaluator is a stand-in, all else is real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

# pytester forgets what a run in this process imported. What the outer process has imported stays: half of it would be two
# copies of one module, and all of it makes each run a second shorter.
import pytest_kernelopt.controller
import pytest_kernelopt.core.environment
import pytest_kernelopt.core.preflight
import pytest_kernelopt.core.records
import pytest_kernelopt.core.spec
import pytest_kernelopt.distributed
import pytest_kernelopt.fixtures
import pytest_kernelopt.plugin  # noqa: F401

CUDA = """\
// row softmax
extern "C" void solve(const float* x, float* y, int rows, int cols) {
}
"""
TRITON = """\
import pretend_heavy_triton

def run_kernel(x, y, rows, cols):
    raise RuntimeError("never run at collection")
"""
REFERENCE = """\
import pretend_heavy_torch
cases = [{"rows": 4096, "cols": 1024}, {"rows": 3, "cols": 1000}]

def reference(x):
    raise RuntimeError("never run at collection")
"""
FIRST, SECOND = "rows4096-cols1024", "rows3-cols1000"


QUIET = ("-p", "fake_evaluator", "-p", "no:hypothesispytest")  # hypothesis would be imported in every run


class Project:
    """A folder of kernels under test, and runs of pytest in it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.write("pytest.ini", "[pytest]\n")

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def cuda(self, name: str = "softmax.cu", fake: str = "", reference: str | None = REFERENCE) -> Path:
        """A ``.cu`` kernel that does as ``fake`` says, with its reference."""
        path = self.write(name, CUDA + (f"// FAKE {fake}\n" if fake else ""))
        if reference is not None:
            path.with_name(f"{path.stem}_ref.py").write_text(reference, encoding="utf-8")
        return path

    def triton(self, name: str = "softmax_triton.py", fake: str = "") -> Path:
        path = self.write(name, TRITON + (f"# FAKE {fake}\n" if fake else ""))
        path.with_name(f"{path.stem}_ref.py").write_text(REFERENCE, encoding="utf-8")
        return path

    def run(self, *args: str | Path) -> pytest.RunResult:
        """pytest in this process: quick."""
        return self.pytester.runpytest_inprocess(*QUIET, "-rA", *map(str, args))

    def start(self, *args: str | Path) -> pytest.RunResult:
        """pytest in a process of its own: for xdist, and where the state of a process matters."""
        return self.pytester.runpytest_subprocess(*QUIET, "-rA", *map(str, args))

    def spread(self, *args: str | Path) -> pytest.RunResult:
        return self.start("-n2", *args)

    def ids(self, *args: str | Path) -> list[str]:
        """The node ids that are collected; nothing but ids may be printed among them."""
        result = self.pytester.runpytest_inprocess(*QUIET, "--collect-only", "-q", *map(str, args))
        assert result.ret in (0, 5), result.stdout.str()
        lines = [line for line in result.outlines if line.strip()]
        assert "collected" in lines[-1] or "no tests" in lines[-1] or "deselected" in lines[-1], lines
        return lines[:-1]

    def json(self, name: str) -> Any:
        return json.loads((self.path / name).read_text(encoding="utf-8"))

    def log(self) -> list[str]:
        path = self.path / "fake.log"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
