"""The process that reports: the only one, or the one that xdist's workers answer to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .collect import KernelItem, has_kernel_name
from .core.errors import KernelError
from .report.gather import Gathered

if TYPE_CHECKING:
    from .core.records import Preflight
    from .core.spec.model import KernelSpec
    from .core.toolchain import Toolchain
    from .state import State

NOT_READY = 10  # the exit status of --kopt-preflight-only when something that the kernels need is missing


class Controller:
    """Prints the header, the preflight and the table; writes the files. Registered once, never in an xdist worker."""

    def __init__(self, config: pytest.Config, state: State, gathered: Gathered) -> None:
        self.config = config
        self.state = state
        self.gathered = gathered
        self._session: pytest.Session | None = None
        self._announced = False
        self._preflight: Preflight | None = None
        self._problems: list[str] = []
        self._closing: list[str] = []

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    # --- before the items -------------------------------------------------------------------------------------------

    def pytest_report_collectionfinish(self, items: Sequence[pytest.Item]) -> list[str]:
        return self._header() if any(isinstance(item, KernelItem) for item in items) else []

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Under xdist nothing is collected here; the first worker's ids say which kernels there are."""
        self.gathered.collected = {id: place for place, id in enumerate(ids)}
        files = {id.split("::")[0]: None for id in ids}
        paths = [path for path in (self.config.rootpath / name for name in files) if has_kernel_name(path) and path.is_file()]
        if not self._announced and paths:
            for line in self._header():
                self._print(line)
            if self.state.options.preflight:
                self._run_preflight(self._specs(paths))
        self._announced = True

    def _header(self) -> list[str]:
        """Two lines on what the kernels run on; none where the output is meant for a program."""
        options = self.state.options
        if self.config.option.collectonly or self.config.get_verbosity() < 0 or options.preflight or options.preflight_only:
            return []
        from .core import preflight

        try:
            return preflight.header(toolchain=self._toolchain(), gpu=options.gpu, arch=options.arch)
        except KernelError as error:
            return [f"kernelopt: {error}"]

    def _toolchain(self) -> Toolchain:
        from .core.toolchain import Toolchain

        return Toolchain.find(nvcc=self.state.options.nvcc)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """The preflight, once what was collected is known; with ``only``, in place of every item."""
        options = self.state.options
        spread = self.config.getoption("dist", "no") != "no"
        if not (options.preflight or options.preflight_only) or spread or self.config.option.collectonly:
            return None
        if session.testsfailed and not self.config.option.continue_on_collection_errors:
            return None  # pytest reports what could not be collected, and stops
        files = dict.fromkeys(item.kernel_file for item in session.items if isinstance(item, KernelItem))
        self._problems = [file.problem for file in files if file.problem]
        self._run_preflight([file.selection.spec for file in files if file.selection], self._problems)
        if not options.preflight_only:
            return None
        self._closing += self._problems
        return True

    def _run_preflight(self, specs: Sequence[KernelSpec], refused: Sequence[str] = ()) -> None:
        from .core import preflight

        options, folder = self.state.options, Path(self.config.invocation_params.dir)
        try:
            found = preflight.run(specs, refused=refused, toolchain=self._toolchain(), gpu=options.gpu, arch=options.arch)
        except KernelError as error:
            raise pytest.UsageError(str(error)) from None
        self._preflight = found
        for line in preflight.render(found).splitlines():
            self._print(line)
        try:
            preflight.write(found, folder)
        except OSError as error:
            self._closing.append(f"preflight_check.md could not be written in {folder}: {error.strerror or error}")

    def _specs(self, paths: Iterable[Path]) -> list[KernelSpec]:
        assert self._session is not None
        found = []
        for path in paths:
            try:
                found.append(self.state.select(self._session, path).spec)
            except KernelError:
                continue  # its build item fails with the reason
        return found

    # --- after the items --------------------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.state.options.preflight_only and self._preflight is not None and session.exitstatus in (0, 5):
            session.exitstatus = 0 if self._preflight.ready and not self._problems else NOT_READY
        if (path := self.state.options.json) and not self.config.option.collectonly:
            self._write_json(path, session)
        self.state.close()

    def _write_json(self, path: Path, session: pytest.Session) -> None:
        from .core.folders import write_whole
        from .report import json as json_report

        try:
            text = json_report.results(self.gathered, self.state.environment(), int(session.exitstatus)).model_dump_json(indent=2)
            write_whole(path, text + "\n")
        except OSError as error:  # it could be written when the run began
            self._closing.append(f"--kopt-json {path}: could not be written: {error.strerror or error}")
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        else:
            self._closing.append(f"results written to {os.path.relpath(path, self.config.invocation_params.dir)}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = [*self._table(), *self._closing]
        if lines and self.config.get_verbosity() > -2:
            terminalreporter.section("kernels")
            for line in lines:
                terminalreporter.line(line)

    def _table(self) -> list[str]:
        if not self.gathered.items:
            return []
        from .report import terminal

        lines = terminal.table(self.gathered.rows(), max(100, min(160, shutil.get_terminal_size().columns))) + [
            f"note: {note}" for note in self.gathered.notes()
        ]
        if self.config.getoption("dist", "no") != "no" and self.gathered.timed_something:
            lines.append("note: under xdist, kernels that share a GPU were timed in turn; pytest-benchmark's own table is off")
        return lines

    @pytest.hookimpl(optionalhook=True)
    def pytest_json_modifyreport(self, json_report: dict[str, Any]) -> None:
        """pytest-json-report looks for its environment where pytest-metadata no longer keeps it, and finds none."""
        if not json_report.get("environment"):
            json_report["environment"] = _metadata(self.config)
        if self.gathered.items:
            environment = self.state.environment()
            json_report["kopt"] = {
                "environment": environment.model_dump(mode="json"),
                "items": {nodeid: dict(self.gathered.items[nodeid]) for nodeid in sorted(self.gathered.items)},
            }

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Name what the GPU's times belong to; nothing that changes from run to run, or every comparison would warn."""
        environment = self.state.environment() if self.gathered.timed_something else None
        if environment is not None:
            gpu = environment.gpu
            machine_info["gpu"] = {"name": gpu.name, "driver": gpu.driver, "memory_bytes": gpu.memory_bytes} if gpu else None
            machine_info["cuda_toolkit"] = environment.cuda_toolkit

    def _print(self, line: str) -> None:
        if reporter := self.config.pluginmanager.get_plugin("terminalreporter"):
            reporter.ensure_newline()
            reporter.write_line(line)


def _metadata(config: pytest.Config) -> Mapping[str, Any]:
    """What pytest-metadata found out, else the little that it would have begun with."""
    import platform

    try:
        from pytest_metadata.plugin import metadata_key  # type: ignore[import-untyped]

        return dict(config.stash[metadata_key])
    except (ImportError, KeyError):
        return {"Python": platform.python_version(), "Platform": platform.platform(), "Packages": {"pytest": pytest.__version__}}
