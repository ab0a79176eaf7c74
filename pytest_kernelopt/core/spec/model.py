"""What a kernel file and its reference declare, as read from their text: nothing here was imported or run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Backend = Literal["cuda", "cutlass", "triton"]
Scalar = bool | int | float | str


@dataclass(frozen=True)
class Case:
    """One set of dims of one kernel: named integers, floats, bools or strings (``dtype``), in their written order."""

    dims: tuple[tuple[str, Scalar], ...] = ()

    @property
    def id(self) -> str:
        """The id shown by pytest: ``rows4096-cols1024``; without ``=``, so that ``-k`` takes it. ``default`` without dims."""
        return "-".join(f"{name}{value}" for name, value in self.dims) or "default"

    @property
    def values(self) -> dict[str, Scalar]:
        return dict(self.dims)

    def __getitem__(self, name: str) -> Scalar:
        """``case["rows"]``. KeyError for a dim that it has not."""
        return self.values[name]


@dataclass(frozen=True)
class Parameter:
    """One parameter of an entry point.

    ``dtype`` is the torch name of the element (tensor) or of the value (scalar); None for ``void*`` and for Triton
    parameters, whose type the reference gives. ``lanes`` is the number of elements in one C element: 4 for ``float4*``.
    """

    name: str
    kind: Literal["tensor", "scalar", "stream", "unknown"]
    dtype: str | None = None
    const: bool = False
    lanes: int = 1
    default: Scalar | None = None
    has_default: bool = False
    spelling: str = ""
    line: int = 0


@dataclass(frozen=True)
class Directives:
    """``kopt:`` comment lines of a kernel file: ``tune`` maps a constant's name to its values as written."""

    tune: tuple[tuple[str, tuple[str, ...]], ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReferenceSource:
    """The literals of a ``*_ref.py``, read without importing it. ``defines`` names its top-level functions.

    ``settings`` is one flat dict: the keys of ``kopt`` (``spec/settings.py`` lists them) and, beside them, the top-level
    ``atol``, ``rtol``, ``outputs``, ``inout`` and ``constraints`` under their own names (the last three as tuples of strings).
    A key that the file does not give is absent. ``defines`` also holds imported and assigned names that may be functions.
    ``names`` are all words that the annotations of ``reference`` hold, and its parameters: what a dim may be called.
    """

    path: Path
    cases: tuple[Case, ...] = ()
    timed: tuple[Case, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    defines: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class KernelSpec:
    """A kernel file: where it is, how it is called and what it answers to. ``line`` is 1-based, of the entry point.

    ``takes_any``: a Triton entry has a ``**`` parameter, so names beyond ``parameters`` may be passed. ``given_cases`` come
    from a conftest or the command line and replace the reference's. ``looked_for`` are the names of possible references,
    ``marked`` the settings of a ``kopt(...)`` marker.
    """

    path: Path
    backend: Backend
    entry: str
    line: int
    parameters: tuple[Parameter, ...]
    returns_status: bool = False
    has_setup: bool = False
    directives: Directives = Directives()
    reference: ReferenceSource | None = None
    looked_for: tuple[str, ...] = ()
    marked: Mapping[str, Any] = field(default_factory=dict)
    takes_any: bool = False
    given_cases: tuple[Case, ...] = ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """The ``kopt`` settings: a marker's where it says something, else the reference's."""
        return {**(self.reference.settings if self.reference else {}), **self.marked}

    @property
    def cases(self) -> tuple[Case, ...]:
        """Every case that is verified; one without dims where the reference names none."""
        return self.given_cases or (self.reference.cases if self.reference else ()) or (Case(),)

    @property
    def timed(self) -> tuple[Case, ...]:
        """The cases that are timed and profiled: ``timed`` of the reference, else the first case."""
        return (self.reference.timed if self.reference else ()) or self.cases[:1]
