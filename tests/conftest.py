"""For every test: pytester, and a pytest that has this plugin by its entry point, installed or not."""

from __future__ import annotations

import importlib.metadata
import os
import signal
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

# a shell starts what runs in the background with Ctrl-C ignored, which every process started by a test would inherit
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent.parent
_OUTER = ("PYTEST_ADDOPTS", "CUDA_VISIBLE_DEVICES", "CI", "BUILD_NUMBER")  # in CI pytest prints whole failures in its summary


@pytest.fixture(scope="session")
def plugin_path(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Folders for PYTHONPATH with which a new pytest finds the plugin as users' does."""
    found = importlib.metadata.entry_points(group="pytest11", name="kernelopt")
    if found:
        return []
    site = tmp_path_factory.mktemp("site")
    info = site / "pytest_kernelopt-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest-kernelopt\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[pytest11]\nkernelopt = pytest_kernelopt.plugin\n")
    return [str(site), str(ROOT)]


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, plugin_path: list[str]) -> None:
    """What this test run is told through its environment is not told to the runs inside it."""
    for name in list(os.environ):
        if name.startswith(("PYTEST_XDIST", "KOPT_")) or name in _OUTER:
            monkeypatch.delenv(name)
    own = [str(Path(__file__).parent / "plugin")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*plugin_path, *own, *filter(None, [os.environ.get("PYTHONPATH")])]))
    for folder in [*plugin_path, *own]:
        monkeypatch.syspath_prepend(folder)
