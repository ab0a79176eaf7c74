"""What a kernel file and its reference say, read from their text: collection imports, compiles and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ..errors import KernelError
from . import cuda_source, reference_source, triton_source
from .cases import parse_cases, parse_dims
from .model import Backend, Case, Directives, KernelSpec, Parameter, ReferenceSource, Scalar
from .place import place
from .settings import check_settings

__all__ = [
    "Backend",
    "Case",
    "Directives",
    "KernelSpec",
    "Parameter",
    "ReferenceSource",
    "Scalar",
    "check_settings",
    "has_entry",
    "is_kernel_name",
    "load",
    "parse_cases",
    "parse_dims",
    "place",
]

_BACKENDS: dict[str, tuple[Backend, ...]] = {".cu": ("cuda", "cutlass"), ".py": ("triton",)}


def is_kernel_name(path: Path) -> bool:
    """Whether a file's name makes it a kernel: ``*.cu`` or ``*_triton.py``."""
    return path.suffix == ".cu" or path.name.endswith("_triton.py")


def has_entry(path: Path) -> bool:
    """Whether a file defines an entry point, also one that :func:`load` will refuse; False for a helper file.

    A file that cannot be read counts as having one, so that its collection says why.
    """
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        return False
    except OSError:
        return True
    return cuda_source.has_entry(data) if path.suffix == ".cu" else triton_source.has_entry(data, path)


def load(
    path: Path,
    *,
    backend: str | None = None,
    conftest_cases: Sequence[Mapping[str, Any]] | None = None,
    named: bool = False,
) -> KernelSpec:
    """Parses a kernel file and the literals of its reference.

    ``backend`` overrides the one that the file shows. ``conftest_cases`` (dicts of dims) take the place of the reference's
    ``cases``. ``named`` says that the user named this very file, which may then be a ``.py`` of any name.
    Raises KernelError with file, line and the way to mend it.
    """
    if path.suffix not in _BACKENDS or not (named or is_kernel_name(path)):
        raise KernelError(f"{place(path)} is no kernel file: kernels are `*.cu` and `*_triton.py`")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KernelError(f"{place(path)} cannot be read ({error.strerror})") from None
    spec = _cuda(data, path) if path.suffix == ".cu" else _triton(data, path)
    found = reference_source.find(path)
    reference = None if found is None else reference_source.read(found, computed_cases=conftest_cases is not None)
    if conftest_cases is not None:
        cases = parse_cases([dict(c) for c in conftest_cases], "pytest_kopt_cases", place(path))
        reference = replace(reference, cases=cases) if reference else None
        spec = replace(spec, given_cases=cases)
    wanted = backend or (reference.settings.get("backend") if reference else None)
    if wanted is not None and wanted not in _BACKENDS[path.suffix]:
        allowed = " or ".join(_BACKENDS[path.suffix])
        raise KernelError(f"{place(path)}: the backend `{wanted}` does not take a `{path.suffix}` file, which is {allowed}")
    return replace(
        spec,
        backend=cast(Backend, wanted or spec.backend),
        reference=reference,
        looked_for=reference_source.names_for(path),
    )


def _cuda(data: bytes, path: Path) -> KernelSpec:
    read = cuda_source.read(data, path)
    return KernelSpec(
        path=path,
        backend=read.backend,
        entry="solve",
        line=read.line,
        parameters=read.parameters,
        returns_status=read.returns_status,
        directives=read.directives,
    )


def _triton(data: bytes, path: Path) -> KernelSpec:
    read = triton_source.read(data, path)
    return KernelSpec(
        path=path,
        backend="triton",
        entry=read.entry,
        line=read.line,
        parameters=read.parameters,
        has_setup=read.has_setup,
        takes_any=read.takes_any,
        directives=read.directives,
    )
