"""Which cases of a kernel are tried: the command line's, else those that a conftest computes, else the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .core.errors import KernelError

if TYPE_CHECKING:
    from .core.spec.model import Backend, Case, KernelSpec
    from .options import Options


@dataclass(frozen=True)
class Selection:
    """A kernel and the cases of it that this session tries, by the id that pytest shows for them.

    ``verified`` and ``timed`` hold the ids of those with a correctness and with a benchmark item. ``notes`` are sentences
    for the terminal summary.
    """

    spec: KernelSpec
    cases: Mapping[str, Case]
    verified: tuple[str, ...]
    timed: tuple[str, ...]
    notes: tuple[str, ...] = ()


def select(path: Path, options: Options, *, computed: Sequence[Mapping[str, object]] | None = None, named: bool) -> Selection:
    """Read the kernel at ``path`` and choose its cases; ``named`` on the command line, it must know the dims of --kopt-dims.

    ``computed`` are the cases that ``pytest_kopt_cases`` returned. KernelError for whatever is wrong with kernel or cases.
    """
    from .core.spec import load

    if computed is not None and not (isinstance(computed, Sequence) and all(isinstance(dims, Mapping) for dims in computed)):
        raise KernelError(f"pytest_kopt_cases returned {computed!r} for {path.name}: it returns a list of dims, or None")
    # a marker may name any .py; what collection brings has a kernel's name already
    spec = load(path, backend=_fitting(options.backend, path), conftest_cases=computed, named=True)
    cases, timed = spec.cases, spec.timed
    notes = _without_effect(spec)
    if options.dims:
        unknown, known = _unknown(spec, options.dims)
        if unknown and named:
            raise KernelError(f"{path.name} has no dim {_listed(unknown)} as given by --kopt-dims; it has {_listed(known)}")
        if unknown:
            notes += (f"{path.name} has no dim {_listed(unknown)}: it keeps its own cases, not those of --kopt-dims",)
        else:
            cases, timed = options.dims, options.dims[:1]
    verified, timed_ids = (tuple(dict.fromkeys(case.id for case in group)) for group in (cases, timed))
    return Selection(spec, {case.id: case for case in (*timed, *cases)}, verified, timed_ids, notes)


def bind(selection: Selection, dims: Mapping[str, Any]) -> Selection:
    """The same kernel at the one case that a ``kernel(path, **dims)`` marker gives."""
    from .core.spec.cases import parse_cases

    (case,) = parse_cases([dict(dims)], "dims", "@pytest.mark.kernel")
    return replace(selection, cases={case.id: case}, verified=(case.id,), timed=(case.id,))


def with_settings(spec: KernelSpec, settings: Mapping[str, Any]) -> KernelSpec:
    """The kernel, judged by what a ``kopt(...)`` marker says where it says something, else by its reference's ``kopt``."""
    return replace(spec, marked=settings) if settings else spec


def _without_effect(spec: KernelSpec) -> tuple[str, ...]:
    """A note for settings of the reference that this version takes and does nothing with."""
    from .core.spec.settings import NOT_YET

    names = [name for name in NOT_YET if name in spec.settings]
    if not names or spec.reference is None:
        return ()
    return (f"{spec.reference.path.name}: {_listed(names)} in `kopt` has no effect in this version",)


def _fitting(backend: Backend | None, path: Path) -> Backend | None:
    """--kopt-backend, for the files that it can be true of: a folder holds kernels of several backends."""
    return backend if (backend == "triton") == (path.suffix == ".py") else None


def _unknown(spec: KernelSpec, dims: Sequence[Case]) -> tuple[list[str], list[str]]:
    """Names given that the kernel's signature and reference do not know, and those they do know."""
    reference = spec.reference
    known = {p.name: None for p in spec.parameters if p.kind == "scalar"}
    if reference is not None:
        known |= {name: None for case in (*reference.cases, *reference.timed) for name, _ in case.dims}
    if not known:
        return [], []  # nothing is written down, so the reference itself will tell
    given = dict.fromkeys(name for case in dims for name, _ in case.dims)
    mentioned = reference.names if reference is not None else frozenset()
    return [name for name in given if name not in known and name not in mentioned and name != "dtype"], list(known)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
