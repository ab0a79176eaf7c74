"""Shows a kernel file to pytest as a module of test functions, and leaves the rest to pytest.

The only file that touches pytest's privates: ``_getobj``, ``_genfunctions`` and ``_fixtureinfo``, the same from 8.4 to 9.2.
Nothing of the user's is imported, compiled or run here: a kernel is parsed, its cases are read as literals.
"""

from __future__ import annotations

import fnmatch
import os
import types
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from . import checks
from .clock import clock
from .core.errors import KernelError
from .state import STATE
from .verdict import sha256

if TYPE_CHECKING:
    from .selection import Selection


class KernelItem(pytest.Function):
    """A check of one kernel, at one case. A Function in all but the place that reports name: the kernel's entry point."""

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self.path, self.kernel_file.line - 1, f"{self.path.name}: {self.name}"

    @property
    def kernel_file(self) -> KernelFile:
        assert isinstance(self.parent, KernelFile)
        return self.parent

    @property
    def case_id(self) -> str | None:
        callspec = getattr(self, "callspec", None)
        return None if callspec is None else callspec.params.get("_kopt_case")

    def about(self) -> dict[str, Any]:
        """What the item's record says before anything was learned."""
        file = self.kernel_file
        about: dict[str, Any] = {"kernel": file.nodeid, "check": self.originalname}
        if file.selection is not None:
            about["backend"] = file.selection.spec.backend
            if (id := self.case_id) is not None:
                about |= {"case": id, "dims": file.selection.cases[id].values}
            if file.selection.notes:
                about["notes"] = list(file.selection.notes)
        return about

    @classmethod
    def from_function(cls, function: pytest.Function, check: Any) -> KernelItem:
        """The same item as this class, and calling ``check``: pytest would call what the module has by the item's name."""
        callspec = getattr(function, "callspec", None)
        item: KernelItem = cls.from_parent(
            function.parent,
            name=function.name,
            callspec=callspec,
            callobj=check,
            fixtureinfo=function._fixtureinfo,
            keywords={callspec.id: True} if callspec else None,
            originalname=function.originalname,
        )
        return item


class KernelFile(pytest.Module):
    """A ``.cu`` or ``_triton.py`` file. ``problem`` is the sentence on why it can't be taken as a kernel."""

    selection: Selection | None = None
    problem: str | None = None

    def _getobj(self) -> types.ModuleType:
        return checks

    @property
    def line(self) -> int:
        """The 1-based line of the entry point."""
        return self.selection.spec.line if self.selection else 1

    def hashes(self) -> dict[str, str | None]:
        """The digests of kernel and reference as they are now."""
        reference = self.selection.spec.reference if self.selection else None
        return {"source_sha256": sha256(self.path), "reference_sha256": sha256(reference.path if reference else None)}

    def collect(self) -> Iterator[pytest.Item]:
        try:
            self.selection = self.config.stash[STATE].select(self.session, self.path)
        except KernelError as error:
            yield from self._refused(str(error))
            return
        yield from self._items("build", checks.build)
        yield from self._items("correctness", checks.correctness)
        yield from self._timed_items()

    def _refused(self, problem: str) -> Iterator[pytest.Item]:
        """A helper met in a folder walk is passed over. A kernel that can't be taken is a build item that fails.

        A collection error would end the whole run before its first item, and one such kernel is no reason to keep the others
        from running: it is left to a file that was named and holds no kernel at all.
        """
        from .core.spec import has_entry
        from .core.spec.reference_source import find

        if has_entry(self.path) or find(self.path) is not None:  # who wrote a reference for it means it as a kernel
            self.problem = problem
            yield from self._items("build", checks.not_a_kernel)
        elif self.session.isinitpath(self.path):
            raise self.CollectError(f"{self.path.name} has no entry point: {_entry_expected(self.path)}")

    def _timed_items(self) -> Iterator[pytest.Item]:
        manager = self.config.pluginmanager
        if not manager.hasplugin("benchmark") or self.config.getoption("--codspeed", False):
            # -p no:benchmark; and pytest-codspeed brings a fixture of that name which takes no clock
            yield from self._items("benchmark", checks.benchmark_alone)
            return
        for item in self._items("benchmark", checks.benchmark):
            item.add_marker(pytest.mark.benchmark(timer=clock.gpu_seconds))
            yield item

    def _items(self, name: str, function: Any) -> Iterator[pytest.Item]:
        for made in self._genfunctions(name, function):
            yield KernelItem.from_function(made, function)


def has_kernel_name(path: Path) -> bool:
    """As ``core.spec.is_kernel_name``, for what is asked of every file of every suite: without importing the parsers."""
    return path.name.endswith((".cu", "_triton.py"))


def collectors(path: Path, parent: pytest.Collector, found: list[pytest.Collector]) -> list[pytest.Collector]:
    """What collects ``path``, given what other plugins have ``found``: a kernel file is claimed once, and by us.

    pytest claims a ``_triton.py`` too, when it is named or ``python_files`` matches. One without an entry point that
    ``python_files`` matches is the user's ordinary test module (``test_softmax_triton.py``) and stays so.
    """
    if not has_kernel_name(path):
        return found
    if path.suffix == ".py" and _is_test_module(path, parent.config):
        return found
    others = [collector for collector in found if type(collector) is not pytest.Module]
    return [*others, KernelFile.from_parent(parent, path=path)]


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give the function its kernel's cases, by id: what ends in reports and in pytest-benchmark's files must be plain JSON."""
    if "_kopt_case" not in metafunc.fixturenames:
        return
    parent = metafunc.definition.parent
    ids: tuple[str, ...]
    if isinstance(parent, KernelFile):
        assert parent.selection is not None
        ids = parent.selection.timed if metafunc.definition.originalname == "benchmark" else parent.selection.verified
    else:
        try:
            selection = metafunc.config.stash[STATE].marked(metafunc.definition)
        except KernelError:
            return  # the fixture says it, so that it is this test's failure and not the whole module's
        if selection is None or metafunc.definition.get_closest_marker("kernel").kwargs:  # type: ignore[union-attr]
            return
        ids = selection.verified
    metafunc.parametrize("_kopt_case", ids, indirect=True)


def _is_test_module(path: Path, config: pytest.Config) -> bool:
    from .core.spec import has_entry

    return any(fnmatch.fnmatch(path.name, pattern) for pattern in config.getini("python_files")) and not has_entry(path)


def _entry_expected(path: Path) -> str:
    return "define run_kernel(...) or solve(...)" if path.suffix == ".py" else 'define extern "C" void solve(...)'
