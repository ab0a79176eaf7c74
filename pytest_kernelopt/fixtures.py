"""The fixtures. Those of users' own tests are public; the plugin's own items use private names, which nobody overrides."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from .collect import KernelItem
from .core.errors import KernelError
from .state import STATE, State, settings_of
from .verdict import DETAILS, RECORD, Check, plain, short_of_a_verdict

if TYPE_CHECKING:
    from torch import Tensor

    from .core.records import Build, Timing
    from .core.spec.model import Case, KernelSpec
    from .selection import Selection


class Kernel:
    """A kernel file in the hands of a user's test.

    A kernel that is wrong in some way fails the test with a sentence; what this machine can't do skips it.
    """

    def __init__(self, check: Check, selection: Selection) -> None:
        self._check = check
        self._selection = selection

    def __repr__(self) -> str:
        return f"<Kernel {self._check.spec.path.name}>"

    @property
    def spec(self) -> KernelSpec:
        """What the file and its reference declare."""
        return self._check.spec

    @property
    def build(self) -> Build:
        """The compiled kernel's record: arch, compiler, registers, spills, shared memory."""
        with short_of_a_verdict():
            return self._check.build()

    def run(self, case: Case | Mapping[str, Any] | None = None) -> dict[str, Tensor]:
        """The outputs at ``case`` (a case, or its dims; by default the first), by name, as CPU tensors."""
        with short_of_a_verdict():
            return self._check.run(self._case(case))

    def _case(self, case: Case | Mapping[str, Any] | None) -> Case:
        from .core.spec.model import Case

        if case is None:
            return self._selection.cases[(self._selection.timed or self._selection.verified)[0]]
        return Case(tuple(case.items())) if isinstance(case, Mapping) else case


@pytest.fixture
def kernel(_kopt_check: Check, _kopt_selection: Selection) -> Kernel:
    """The kernel that ``@pytest.mark.kernel(path, **dims)`` names: ``.spec``, ``.build``, ``.run(case)``."""
    return Kernel(_kopt_check, _kopt_selection)


@pytest.fixture
def case(_kopt_case: Case) -> Case:
    """The case that the test's kernel is tried at: the marker's dims, or each of the reference's cases in turn."""
    return _kopt_case


@pytest.fixture
def kopt_reference(_kopt_check: Check, _kopt_selection: Selection) -> Callable[..., dict[str, Tensor]]:
    """``kopt_reference(case)``: what the kernel's reference gives at a case, by output name, as CPU tensors."""
    kernel = Kernel(_kopt_check, _kopt_selection)

    def expected(case: Case | Mapping[str, Any] | None = None) -> dict[str, Tensor]:
        with short_of_a_verdict():
            return _kopt_check.expected(kernel._case(case))

    return expected


@pytest.fixture
def kopt_timing(request: pytest.FixtureRequest) -> Callable[..., Timing]:
    """``kopt_timing(kernel, case)``, or of any callable of this process: device time, as ``.median_ms`` and more.

    A kernel is verified first: a wrong one fails the test.
    """
    state = request.config.stash[STATE]

    def timing(subject: Kernel | Callable[[], object], case: Case | Mapping[str, Any] | None = None) -> Timing:
        with short_of_a_verdict():
            if isinstance(subject, Kernel):
                return subject._check.time(subject._case(case))
            if not callable(subject):
                raise KernelError(f"kopt_timing takes the kernel fixture or a callable, not {subject!r}")
            return _time_callable(request.node, state, subject)

    return timing


def _time_callable(item: pytest.Item, state: State, function: Callable[[], object]) -> Timing:
    timing = state.evaluator.time_callable(function, settings_of(item))
    details = plain(timing)
    item.stash[RECORD]["timing"] = {name: value for name, value in details.items() if name != "samples_ms"}
    item.stash[DETAILS]["timing"] = details
    return timing


@pytest.fixture
def _kopt_selection(request: pytest.FixtureRequest) -> Selection:
    """The kernel of this item, and its cases."""
    item = request.node
    with short_of_a_verdict():
        if isinstance(item, KernelItem):
            assert item.kernel_file.selection is not None
            return item.kernel_file.selection
        selection = request.config.stash[STATE].marked(item)
        if selection is None:
            raise KernelError("this test names no kernel: add @pytest.mark.kernel(path, **dims)")
        return selection


@pytest.fixture
def _kopt_case(request: pytest.FixtureRequest, _kopt_selection: Selection) -> Case:
    """The case of this item, by the id that it was parametrised with; the marker's own where it was not."""
    return _kopt_selection.cases[getattr(request, "param", _kopt_selection.verified[0])]


@pytest.fixture
def _kopt_check(request: pytest.FixtureRequest, _kopt_selection: Selection) -> Check:
    """The evaluator's answers on this item's kernel, judged as its ``kopt`` markers say."""
    item = request.node
    if not isinstance(item, KernelItem):
        item.stash[RECORD]["kernel"] = os.path.relpath(_kopt_selection.spec.path, item.config.rootpath)
        if _kopt_selection.notes:
            item.stash[RECORD]["notes"] = list(_kopt_selection.notes)
    with short_of_a_verdict():
        return Check(item, item.config.stash[STATE], _kopt_selection.spec, settings_of(item))
