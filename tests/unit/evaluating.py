"""An evaluator on Triton's interpreter, with the kernels of the zoo and such as a test writes; what processes it has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil

from pytest_kernelopt.core.evaluate import Evaluator, EvaluatorSettings
from pytest_kernelopt.core.records import Correctness
from pytest_kernelopt.core.spec import load
from pytest_kernelopt.core.spec.model import Case, KernelSpec

ZOO = Path(__file__).parents[1] / "zoo"
HEAD = """\
import torch
from torch import Tensor
from jaxtyping import Bool, Complex64, Float, Float16, Float32, Int, Int32, Int8, BFloat16
"""
TWICE = 'cases = [{"n": 300}]\ndef reference(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:\n    return 2 * x\n'


class Kernels:
    """Asks one evaluator about kernels."""

    def __init__(self, cache: Path, **settings: Any) -> None:
        self.cache = cache
        self.evaluator = Evaluator(EvaluatorSettings(cache_dir=cache, **{"timeout": 30.0, **settings}))
        vars(self.evaluator)["gpu"] = None  # on every machine alike

    def zoo(self, name: str) -> Correctness:
        return self.ask(load(ZOO / f"{name}_triton.py"))

    def write(self, folder: Path, kernel: str, reference: str | None = TWICE, name: str = "op") -> KernelSpec:
        """A Triton kernel and its reference as files."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}_triton.py"
        path.write_text(dedent(kernel))
        if reference is not None:
            (folder / f"{name}_ref.py").write_text(HEAD + dedent(reference))
        return load(path)

    def ask(self, spec: KernelSpec, case: Case | None = None) -> Correctness:
        """The verdict at a case, else the first, that is not well; else the last. Never a kept one."""
        self.evaluator.forget(spec.path)
        for each in [case] if case else spec.cases:
            record = self.evaluator.verify(spec, each)
            if record.verdict != "passed":
                break
        return record

    def processes(self) -> list[psutil.Process]:
        """Every process that was started for the evaluator, wherever it is now."""
        return started_with(self.cache)


@contextlib.contextmanager
def kernels(cache: Path, **settings: Any) -> Iterator[Kernels]:
    found = Kernels(cache, **settings)
    try:
        yield found
    finally:
        found.evaluator.close()
    assert not found.processes()
    assert not list(cache.glob("sessions/*/*/"))


def started_with(folder: Path) -> list[psutil.Process]:
    """The processes, but for this one, that have the folder in their environment or work in it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            places = [process.cwd(), *process.environ().values()]
            if process.pid != psutil.Process().pid and process.status() != psutil.STATUS_ZOMBIE:
                found += [process] if any(place.startswith(str(folder)) for place in places) else []
    return found
