"""The pytest11 entry point: options, markers and hooks, each a line or two over a named function.

Who has the plugin and no kernels pays for a few small modules: what shows kernels to pytest is imported with the first
kernel file, and the parsers, pydantic and torch later still.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from . import hookspecs, items, options

MARKERS = (
    "kernel(path, **dims): bind this test to the kernel file at path, relative to the test's file; dims give its case",
    "kopt(*, atol, rtol, trials, compute, cache, warmup, repeat, max_time, timeout): how this test's kernel is judged and "
    "timed, over what its reference says",
    "ncu(**metrics): for Nsight Compute; this version does not profile yet and skips the test",
)
PASSED_OVER = ("run_manifest.json", ".kopt-ignore")  # in run folders and recordings; in zoos


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    from . import fixtures
    from .state import STATE, State

    state = config.stash[STATE] = State(config, options.Options.from_config(config))
    config.pluginmanager.register(fixtures, "kernelopt-fixtures")
    if not hasattr(config, "workerinput"):
        _configure_controller(config, state)


def _configure_controller(config: pytest.Config, state: Any) -> None:
    from .controller import Controller
    from .report.gather import Gathered

    if state.options.json is not None:
        from .report.json import check_writable

        check_writable(state.options.json)
    gathered = Gathered()
    config.pluginmanager.register(gathered, "kernelopt-gathered")
    config.pluginmanager.register(Controller(config, state, gathered), "kernelopt-controller")


def pytest_unconfigure(config: pytest.Config) -> None:
    from .state import STATE

    if (state := config.stash.get(STATE, None)) is not None:
        state.close()


# --- collection ---------------------------------------------------------------------------------------------------------


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Pass over folders whose kernels are nobody's tests. pytest does not ask about what was named."""
    return True if any((collection_path / name).is_file() for name in PASSED_OVER) else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Generator[None, list[Any], list[Any]]:
    found = yield
    from . import collect

    return collect.collectors(file_path, parent, found)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    from . import collect

    collect.parametrize(metafunc)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("ncu"):
            item.add_marker(pytest.mark.skip(reason="profiling with Nsight Compute is not in this version yet"))


# --- running ------------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    items.prepare(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return items.complete(item, report)


# --- other plugins ------------------------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_json_runtest_metadata(item: pytest.Item) -> dict[str, Any] | None:
    from .verdict import RECORD

    record = item.stash.get(RECORD, None)
    return None if record is None else {"kopt": dict(record)}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    import os

    from . import distributed

    if config.getoption("kopt_gpu") is None:
        distributed.assign(specs, distributed.visible_gpus(os.environ))


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    from . import distributed

    return distributed.workers(config)
