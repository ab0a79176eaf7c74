"""Reading a Triton module: its entry point, the names of its parameters and its directives. Nothing is imported."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import KernelError
from . import directives, literals, python_module
from .model import Directives, Parameter
from .place import place

ENTRIES = ("run_kernel", "solve")


@dataclass(frozen=True)
class TritonSource:
    """What a Triton file declares; ``takes_any`` says that the entry has a ``**`` parameter."""

    entry: str
    line: int
    parameters: tuple[Parameter, ...]
    takes_any: bool
    has_setup: bool
    directives: Directives


def read(data: bytes, path: Path) -> TritonSource:
    """Parses a file's bytes. Raises KernelError with file and line for what cannot be called as the design says."""
    module = python_module.parse(data, path)
    functions: dict[str, ast.FunctionDef] = {}
    others: dict[str, ast.stmt] = {}
    constants: set[str] = set()
    for statement, _ in python_module.statements(module):
        if isinstance(statement, ast.FunctionDef):
            functions[statement.name] = statement
        elif isinstance(statement, (ast.AsyncFunctionDef, ast.ClassDef)):
            others[statement.name] = statement
        for name, value in python_module.bindings(statement):
            others[name] = statement
            if isinstance(value, (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Call)):
                constants.add(name)
    entry = next((name for name in ENTRIES if name in functions), None)
    if entry is None:
        raise KernelError(_why_no_entry(others, path))
    function = functions[entry]
    parameters = _parameters(function, path)
    found = directives.parse(_comments(data), path, constants) if b"kopt" in data else Directives()
    return TritonSource(
        entry, function.lineno, parameters, function.args.kwarg is not None, "setup" in functions or "setup" in others, found
    )


def has_entry(data: bytes, path: Path) -> bool:
    """Whether a module defines an entry point; a module that cannot be parsed and names one counts, so that it is reported."""
    if not any(name.encode() in data for name in ENTRIES):
        return False
    try:
        module = python_module.parse(data, path)
    except KernelError:
        return any(f"def {name}".encode() in data for name in ENTRIES)
    for statement, _ in python_module.statements(module):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and statement.name in ENTRIES:
            return True
        if any(name in ENTRIES for name, _ in python_module.bindings(statement)):
            return True  # imported or assigned: an entry that cannot be read, which load() says
    return False


def _why_no_entry(others: dict[str, ast.stmt], path: Path) -> str:
    for name in ENTRIES:
        if name in others:
            found = others[name]
            kind = "assigned or imported"
            if isinstance(found, (ast.AsyncFunctionDef, ast.ClassDef)):
                kind = "a class" if isinstance(found, ast.ClassDef) else "an async function"
            where = place(path, found.lineno)
            return f"{where}: {name} is {kind}: write a plain `def {name}(...)`, so that its parameters can be read"
    return f"{place(path)} has no entry point: define `run_kernel(**inputs)` or `solve(...)` at its top level"


def _parameters(function: ast.FunctionDef, path: Path) -> tuple[Parameter, ...]:
    given = function.args
    if given.posonlyargs:
        where = place(path, function.lineno)
        raise KernelError(f"{where}: {function.name} is called by keyword: take the `/` out of its parameters")
    defaults: list[ast.expr | None] = [None] * (len(given.args) - len(given.defaults)) + list(given.defaults)
    pairs = [*zip(given.args, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return tuple(_parameter(argument, default) for argument, default in pairs)


def _parameter(argument: ast.arg, default: ast.expr | None) -> Parameter:
    value = None
    if default is not None:
        try:
            value = literals.evaluate(default)
        except literals.NotLiteral:
            value = None
        if not isinstance(value, (bool, int, float, str)):
            value = None
    return Parameter(argument.arg, "unknown", default=value, has_default=default is not None, line=argument.lineno)


def _comments(data: bytes) -> Iterator[tuple[int, str]]:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:  # bytes that are no UTF-8 in a comment, which the parser lets pass
        encoding = "utf-8"
    for token in tokenize.generate_tokens(io.StringIO(data.decode(encoding, "replace")).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
