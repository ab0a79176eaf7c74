"""A Python file as a syntax tree: what its top level defines, without running it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from ..errors import KernelError
from .place import place

_BLOCKS = (ast.If, ast.Try, ast.With, ast.For, ast.While)


def parse(data: bytes, path: Path) -> ast.Module:
    """The module, decoded as Python does it (BOM, PEP 263). Raises KernelError with file and line for a syntax error."""
    try:
        return _parse(data)
    except SyntaxError as error:
        raise KernelError(f"{place(path, error.lineno or 1)}: {error.msg}: this is not valid Python") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise KernelError(f"{place(path)} cannot be parsed as Python ({error})") from None


@lru_cache(maxsize=4)
def _parse(data: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape sequence is the file's matter
        return ast.parse(data)


def statements(module: ast.Module) -> Iterator[tuple[ast.stmt, bool]]:
    """The statements that run on import, each with whether it stands in a block (``if``, ``try``, ``with``, a loop)."""
    yield from _statements(module.body, False)


def _statements(body: list[ast.stmt], nested: bool) -> Iterator[tuple[ast.stmt, bool]]:
    for statement in body:
        yield statement, nested
        if not isinstance(statement, _BLOCKS) or _is_main_guard(statement):
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, field, []), True)
        for handler in getattr(statement, "handlers", []):
            yield from _statements(handler.body, True)


def _is_main_guard(statement: ast.stmt) -> bool:
    """``if __name__ == "__main__":`` with nothing else to it."""
    if not isinstance(statement, ast.If) or statement.orelse or not isinstance(statement.test, ast.Compare):
        return False
    names = [n.id for n in ast.walk(statement.test) if isinstance(n, ast.Name)]
    return names == ["__name__"] and isinstance(statement.test.ops[0], ast.Eq)


def bindings(statement: ast.stmt) -> list[tuple[str, ast.expr | None]]:
    """The names that one statement binds, each with its value where that is an expression of its own."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name.split(".")[0], None) for alias in statement.names]
    if isinstance(statement, ast.AnnAssign):
        return [] if statement.value is None else _targets(statement.target, statement.value)
    if isinstance(statement, ast.AugAssign):
        return _targets(statement.target, None)
    if isinstance(statement, ast.Assign):
        return [pair for target in statement.targets for pair in _targets(target, statement.value)]
    if isinstance(statement, ast.For):
        return _targets(statement.target, None)
    return []


def _targets(target: ast.expr, value: ast.expr | None) -> list[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if isinstance(target, (ast.Subscript, ast.Attribute)):
        return _targets(target.value, None)  # what was bound before is changed
    if isinstance(target, ast.Starred):
        return _targets(target.value, None)
    if not isinstance(target, (ast.Tuple, ast.List)):
        return []
    values: list[ast.expr | None] = [None] * len(target.elts)
    plain = not any(isinstance(e, ast.Starred) for e in target.elts)
    if isinstance(value, (ast.Tuple, ast.List)) and plain and len(value.elts) == len(values):
        values = list(value.elts)
    return [pair for inner, v in zip(target.elts, values, strict=True) for pair in _targets(inner, v)]
