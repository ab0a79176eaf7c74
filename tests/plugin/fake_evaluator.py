"""A stand-in for ``core.evaluate.Evaluator``, for tests of the glue: ``pytest -p fake_evaluator``.

A kernel says in a comment what it would do: ``FAKE wrong``, ``FAKE wrong_at=<case id>``, ``FAKE nobuild``, ``FAKE slow=2.0``,
``FAKE flaky`` (wrong the first time it is asked). ``KOPT_FAKE_GPU=0`` makes a machine without one. What was asked is
appended to the file that ``KOPT_FAKE_LOG`` names. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_kernelopt.core.errors import BuildError, Unavailable
from pytest_kernelopt.state import EVALUATOR

NO_GPU = "no GPU: the NVIDIA driver finds none"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[EVALUATOR] = FakeEvaluator


def samples_of(case_id: str, slow: float = 1.0) -> tuple[float, ...]:
    rng = random.Random(case_id)
    return tuple(slow * (0.010 + 0.0001 * rng.random()) for _ in range(30))


class FakeEvaluator:
    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.gpu = os.environ.get("KOPT_FAKE_GPU", "1") == "1"
        self._verdicts: dict[Any, Any] = {}
        self._asked: dict[Any, int] = {}
        self._log("made", settings)

    def build(self, spec: Any) -> Any:
        from pytest_kernelopt.core.records import Build, KernelResources

        self._log("build", spec.path.name)
        if self._says(spec, "nobuild"):
            log = f'{spec.path.name}(3): error: identifier "threadIdx_x" is undefined\n1 error detected in the compilation.'
            raise BuildError(f'{spec.path.name}(3): error: identifier "threadIdx_x" is undefined', log)
        kernels = (KernelResources(name="softmax", arch="sm_90a", registers=32, spill_store_bytes=8, spill_load_bytes=0),)
        return Build(
            backend=spec.backend, arch="sm_90a", compiler="nvcc 13.0", key="0" * 64, seconds=0.0, cached=True, kernels=kernels
        )

    def verify(self, spec: Any, case: Any) -> Any:
        key = spec.path, case
        if key not in self._verdicts:
            self._asked[key] = self._asked.get(key, 0) + 1
            self._verdicts[key] = self._verify(spec, case)
        return self._verdicts[key]

    def _verify(self, spec: Any, case: Any) -> Any:
        from pytest_kernelopt.core.records import Correctness

        self._log("verify", spec.path.name, case.id, dict(spec.settings))
        known = {"case": case.id, "mode": "device" if self.gpu else "interpreter", "seeds": (0, 1, 2)}
        if spec.reference is None:
            return Correctness(**known, verdict="unverified")
        if not self.gpu and spec.backend != "triton":
            return Correctness(**known, verdict="unavailable", message=NO_GPU)
        flaky = self._says(spec, "flaky") and self._asked[spec.path, case] == 1
        if self._says(spec, "wrong") or f"FAKE wrong_at={case.id}" in self._text(spec) or flaky:
            text = (
                f"{spec.path.name} differs from {spec.reference.path.name} at {case.id}, seed 0\n  y: 7 of 8 elements are wrong"
            )
            return Correctness(**known, verdict="failed", kind="wrong values", message=text)
        return Correctness(**known, verdict="passed", warnings=("sizes were guessed",) if self._says(spec, "guess") else ())

    def require_gpu(self) -> None:
        if not self.gpu:
            raise Unavailable(NO_GPU)

    def time(self, spec: Any, case: Any) -> Any:
        self._log("time", spec.path.name, case.id)
        self.require_gpu()
        slow = re.search(r"FAKE slow=([\d.]+)", self._text(spec))
        return self._timing(case.id, float(slow[1]) if slow else 1.0, verified=spec.reference is not None)

    def _timing(self, case: str, slow: float, *, verified: bool) -> Any:
        from pytest_kernelopt.core.records import Timing

        ms = sorted(samples := samples_of(case, slow))
        figures = {
            "gb_per_s": 3100.0,
            "bandwidth_percent": 65.0,
            "reference_ms": 0.015,
            "speedup": 1.5,
            "speedup_interval": (1.4, 1.6),
        }
        known = {"cache": "cold", "clock": "cupti", "settled": True, "cap_reached": False, "verified": verified}
        spread = {"p10_ms": ms[3], "p90_ms": ms[27], "min_ms": ms[0], "mean_ms": sum(ms) / 30}
        return Timing(
            case=case,
            median_ms=ms[15],
            interval_ms=(ms[12], ms[18]),
            samples=30,
            samples_ms=samples,
            **spread,
            **known,
            **figures,
        )

    def run(self, spec: Any, case: Any) -> dict[str, Any]:
        self._log("run", spec.path.name, case.id)
        if not self.gpu and spec.backend != "triton":
            raise Unavailable(NO_GPU)
        return {"y": [1.0, 2.0]}

    def expected(self, spec: Any, case: Any) -> dict[str, Any]:
        return {"y": [1.0, 2.0]}

    def time_callable(self, fn: Any, own: Any = None) -> Any:
        fn()
        return self._timing("callable", 1.0, verified=False)

    def environment(self) -> Any:
        from pytest_kernelopt.core.records import Environment, Gpu

        known = {"uuid": "GPU-0", "capability": (9, 0), "memory_bytes": 1, "l2_bytes": 1, "sm_count": 132}
        gpu = Gpu(index=0, name="NVIDIA H200", driver="580.1", **known) if self.gpu else None
        versions = {"torch": "2.13", "triton": "3.9", "cuda_toolkit": "13.0"}
        return Environment(python="3.11", platform="Linux", pytest=pytest.__version__, plugin="0", gpu=gpu, **versions)

    def forget(self, path: Path) -> None:
        self._verdicts = {key: value for key, value in self._verdicts.items() if key[0] != path}

    def close(self) -> None:
        self._log("closed")

    def _says(self, spec: Any, word: str) -> bool:
        return re.search(rf"FAKE {word}\b(?!=)", self._text(spec)) is not None

    def _text(self, spec: Any) -> str:
        return spec.path.read_text(encoding="utf-8")

    def _log(self, *words: Any) -> None:
        if name := os.environ.get("KOPT_FAKE_LOG"):
            with open(name, "a", encoding="utf-8") as file:
                print(*words, os.environ.get("CUDA_VISIBLE_DEVICES", "-"), file=file)
