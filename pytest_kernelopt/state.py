"""What lives as long as the test run: the options, the evaluator behind every check, the kernels that markers name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .core.errors import KernelError, Unavailable

if TYPE_CHECKING:
    from .core.evaluate import Evaluator, EvaluatorSettings
    from .core.records import Environment
    from .options import Options
    from .selection import Selection

# Makes the evaluator. Tests of this plugin put a stand-in here before the first item runs.
EVALUATOR: pytest.StashKey[Callable[[EvaluatorSettings], Evaluator]] = pytest.StashKey()
STATE: pytest.StashKey[State] = pytest.StashKey()


class State:
    """One per pytest process. Nothing is started until an item, the header or a report asks for it."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.config = config
        self.options = options
        self._evaluator: Evaluator | None = None
        self._environment: Environment | None = None
        self._owner = os.getpid()
        self._selections: dict[Path, Selection | KernelError] = {}

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator of this process; a process forked off pytest (pytest-forked) gets its own, and not our children."""
        if self._evaluator is None or self._owner != os.getpid():
            from .core.evaluate import Evaluator

            self._owner = os.getpid()
            self._evaluator = self.config.stash.get(EVALUATOR, Evaluator)(self.options.settings())
        return self._evaluator

    def environment(self) -> Environment:
        """The machine and its versions."""
        if self._environment is None:
            try:
                self._environment = self.evaluator.environment()
            except (KernelError, Unavailable):  # --kopt-gpu 7 where there are two: every item says so
                from .core import environment
                from .core.toolchain import Toolchain

                self._environment = environment.describe(None, Toolchain.find(nvcc=self.options.nvcc))
        return self._environment

    def forget(self, path: Path) -> None:
        """Let the evaluator answer anew on the kernel at ``path``: for an item that is run again."""
        if self._evaluator is not None and self._owner == os.getpid():
            self._evaluator.forget(path)

    def close(self) -> None:
        """End every child. Safe to call twice."""
        if self._evaluator is not None and self._owner == os.getpid():
            self._evaluator.close()
        self._evaluator = None

    def select(self, session: pytest.Session, path: Path) -> Selection:
        """The kernel at ``path`` and its cases, read once. KernelError when it can't be taken."""
        from .selection import select

        if path not in self._selections:
            try:
                computed = session.gethookproxy(path).pytest_kopt_cases(path=path)
                self._selections[path] = select(path, self.options, computed=computed, named=session.isinitpath(path))
            except KernelError as error:
                self._selections[path] = error
            except OSError as error:
                self._selections[path] = KernelError(f"{path.name} cannot be read: {error.strerror or error}")
        found = self._selections[path]
        if isinstance(found, KernelError):
            raise found
        return found

    def marked(self, item: pytest.Item) -> Selection | None:
        """What an ordinary test's ``kernel(path, **dims)`` marker binds it to; None without one. KernelError when it is wrong."""
        from .selection import bind

        marker = item.get_closest_marker("kernel")
        if marker is None:
            return None
        if len(marker.args) != 1 or not isinstance(marker.args[0], (str, os.PathLike)):
            raise KernelError('@pytest.mark.kernel takes one path and dims by name: @pytest.mark.kernel("softmax.cu", rows=4096)')
        path = next((p for p in (item.path.parent / marker.args[0], item.config.rootpath / marker.args[0]) if p.is_file()), None)
        if path is None:
            given = os.fspath(marker.args[0])
            raise KernelError(f"@pytest.mark.kernel: no file {given} beside {item.path.name} or in the rootdir")
        selection = self.select(item.session, Path(os.path.normpath(path)))
        return bind(selection, marker.kwargs) if marker.kwargs else selection


def settings_of(item: pytest.Item) -> Mapping[str, Any]:
    """The keywords of an item's ``kopt`` markers, the closest winning. KernelError for one that is unknown or wrong."""
    from .core.spec.settings import check_settings

    merged: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("kopt"))):
        if marker.args:
            raise KernelError(f"@pytest.mark.kopt takes keywords only, such as rtol=1e-3, and got {marker.args[0]!r}")
        if "backend" in marker.kwargs:
            raise KernelError("@pytest.mark.kopt cannot set the backend: use --kopt-backend, or `kopt` in the reference")
        merged.update(check_settings(marker.kwargs, "@pytest.mark.kopt"))
    return merged
