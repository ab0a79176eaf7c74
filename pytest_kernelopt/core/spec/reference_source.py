"""Finding a kernel's ``*_ref.py`` and reading its literals. The file is the user's and trusted, and is not run here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import KernelError
from . import literals, python_module
from .cases import parse_cases
from .model import ReferenceSource
from .place import place
from .settings import TOP_LEVEL, check_name, check_settings

_SUFFIXES = ("_triton", "_cutlass", "_cuda")
_WORD = re.compile(r"[^\W\d]\w*")
_READ = frozenset(("cases", "timed", "kopt", *TOP_LEVEL))


def names_for(kernel: Path) -> tuple[str, ...]:
    """The file names that are looked for beside a kernel, its own before the one that backends share."""
    stems = [kernel.stem]
    for suffix in _SUFFIXES:
        shared = kernel.stem.removesuffix(suffix)
        if shared and shared != kernel.stem:
            stems.append(shared)
    return tuple(f"{stem}_ref.py" for stem in stems)


def find(kernel: Path) -> Path | None:
    """The reference of a kernel, or None."""
    return next((path for name in names_for(kernel) if (path := kernel.with_name(name)).is_file()), None)


def read(path: Path, *, computed_cases: bool = False) -> ReferenceSource:
    """The literals of a reference. With ``computed_cases``, a conftest gives the cases and ``cases`` is not looked at.

    Raises KernelError for a syntax error, for a name that must be a literal and is none, and for a value that is wrong.
    """
    try:
        module = python_module.parse(path.read_bytes(), path)
    except OSError as error:
        raise KernelError(f"{place(path)} cannot be read ({error.strerror})") from None
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    defines: set[str] = set()
    for name, value, line in _bound(module, defines):
        if name == "cases" and computed_cases:
            continue
        values[name], lines[name] = _literal(name, value, path, line), line
    where = {name: place(path, line) for name, line in lines.items()}
    settings = check_settings(values["kopt"], where["kopt"]) if "kopt" in values else {}
    for name in TOP_LEVEL:
        if name not in values:
            continue
        if name in settings and settings[name] != values[name]:
            raise KernelError(f"{where[name]}: `{name}` and `kopt[{name!r}]` differ: give one of them")
        settings[name] = check_name(name, values[name], where[name])
    return ReferenceSource(
        path=path,
        cases=parse_cases(values["cases"], "cases", where["cases"]) if "cases" in values else (),
        timed=parse_cases(values["timed"], "timed", where["timed"]) if "timed" in values else (),
        settings=settings,
        defines=frozenset(defines),
        names=_words(module),
    )


def _words(module: ast.Module) -> frozenset[str]:
    """Words in the annotations of ``reference`` (its axes among them), and the names of its parameters."""
    found: set[str] = set()
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "reference":
            arguments = statement.args
            parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            found |= {parameter.arg for parameter in parameters}
            for annotation in (*(p.annotation for p in parameters), statement.returns):
                for node in ast.walk(annotation) if annotation is not None else ():
                    if isinstance(node, ast.Constant) and isinstance(node.value, str):
                        found |= set(_WORD.findall(node.value))
    return frozenset(found)


def _bound(module: ast.Module, defines: set[str]) -> Iterator[tuple[str, ast.expr | None, int]]:
    """The special names that the module binds, with the value where it is plain; other callables go into ``defines``."""
    for statement, nested in python_module.statements(module):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if statement.name in _READ:
                yield statement.name, None, statement.lineno
            elif isinstance(statement, ast.FunctionDef):
                defines.add(statement.name)
        changed = _changed_by_a_call(statement)
        if changed is not None:
            yield changed, None, statement.lineno
        for name, value in python_module.bindings(statement):
            if name in _READ:
                yield name, None if nested else value, statement.lineno
            elif not isinstance(value, (ast.Constant, ast.List, ast.Dict, ast.Tuple)):
                defines.add(name)


def _changed_by_a_call(statement: ast.stmt) -> str | None:
    """``cases`` in ``cases.append(...)``."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    called = statement.value.func
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in _READ:
        return called.value.id
    return None


def _literal(name: str, value: ast.expr | None, path: Path, line: int) -> Any:
    try:
        if value is None:
            raise literals.NotLiteral("is not one plain assignment at the top level")
        return literals.evaluate(value)
    except literals.NotLiteral as error:
        where = place(path, error.line or line)
        hint = "; for computed cases, give them by `pytest_kopt_cases` in a conftest.py" if name in ("cases", "timed") else ""
        raise KernelError(f"{where}: `{name}` {error}; it is read and never run, so it must be a literal{hint}") from None
