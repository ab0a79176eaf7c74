"""Tests on a real GPU. Without one they are skipped, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from workshop import Workshop

from pytest_kernelopt.core import device
from pytest_kernelopt.core.evaluate import Evaluator, EvaluatorSettings

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    if not ours:
        return
    reason = "" if device.select() else f"no GPU: {device.why_none()}"
    for item in ours:
        item.add_marker(pytest.mark.gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """One evaluator for all tests, with every declared ``.cu`` compiled."""
    evaluator = Evaluator(EvaluatorSettings(max_time=0.5, timeout=30.0))
    try:
        evaluator.stage._servers.warm("gpu")  # imports torch while the compiler works
        made = Workshop(tmp_path_factory.mktemp("kernels"), evaluator)
        made.build_all()
        yield made
    finally:
        evaluator.close()
