"""Reading a ``.cu`` file: its entry point ``solve``, its backend and its directives. Nothing is compiled."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ..errors import KernelError
from . import cuda_syntax, declarations, directives, preprocess
from .cuda_syntax import ENTRY, Function
from .declarations import Aliases, Refused
from .model import Backend, Directives, Parameter
from .place import place

_MAX_CHOICES = 4
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_HEAD = re.compile(r'(?:extern\s*"C"\s+)?(?:void|int|cudaError_t)\s+solve\s*\([^;{}]*\)\s*(?:noexcept\s*)?\{')
_MACRO_DEFINES = re.compile(r"\b(?:void|int|cudaError_t)\s+solve\s*\(")
_NO_HOST = frozenset(("__global__", "__device__"))
_HEAD_NOISE = frozenset(("extern", '"C"', "__host__", "__device__", "inline", "virtual", "friend", "auto"))


@dataclass(frozen=True)
class CudaSource:
    """What a ``.cu`` file declares; ``line`` is 1-based, of the definition's name."""

    backend: Backend
    line: int
    parameters: tuple[Parameter, ...]
    returns_status: bool
    directives: Directives


@dataclass(frozen=True)
class _Unit:
    """The file under one choice of its unresolved conditions."""

    functions: tuple[Function, ...]
    aliases: dict[str, str]
    view: preprocess.View


def read(data: bytes, path: Path) -> CudaSource:
    """Parses a file's bytes. Raises KernelError with file, line, parameter and reason for what is not understood."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise KernelError(f"{place(path)} is UTF-16, which nvcc does not read: save it as UTF-8")
    try:
        return _read(data, path)
    except RecursionError:
        raise KernelError(f"{place(path)}: its conditions or macros are nested too deeply to be read") from None


def _read(data: bytes, path: Path) -> CudaSource:
    source = _lexed(data)
    found = _directives(source, path)
    units = _units(data, tuple(directives.defined_by(found.flags).items()))
    entries: list[tuple[_Unit, Function]] = []
    for unit in units:
        defined = [f for f in unit.functions if f.defined and _has_c_linkage(f, unit)]
        if defined:
            entries.append((unit, defined[-1]))
    if not entries:
        raise KernelError(_why_no_entry(units, path))
    signatures = [_signature(function, unit, path) for unit, function in entries]
    chosen = signatures[0]
    if any(_called_alike(s) != _called_alike(chosen) for s in signatures[1:]):
        function = entries[0][1]
        line, condition = _nearest(entries[0][0].view.unresolved, function)
        raise KernelError(
            f"{place(path, function.line)}: the signature of solve depends on a condition that this file does not decide "
            f"(`{condition}`, line {line}): define the name here or in `// kopt: flags = -D...`"
        )
    includes = {name for unit in units for name in unit.view.includes}
    cutlass = any(name.startswith(("cutlass/", "cute/")) for name in includes)
    parameters, returns_status = chosen
    return CudaSource("cutlass" if cutlass else "cuda", entries[0][1].line, parameters, returns_status, found)


def has_entry(data: bytes) -> bool:
    """Whether a file means to be a kernel: it defines a host ``solve``, with C linkage or (a mistake worth telling) without."""
    if ENTRY.encode() not in data:
        return False
    try:
        units = _units(data, ())
    except RecursionError:
        return True  # read() says why
    return any(_counts(f) for unit in units for f in unit.functions) or _by_macro(units) is not None


def _counts(function: Function) -> bool:
    if not function.defined:
        return False
    if function.c_linkage:
        return True
    return not (function.scope or function.hidden or _NO_HOST & set(declarations.tokens(function.head)))


@lru_cache(maxsize=4)
def _lexed(data: bytes) -> preprocess.Source:
    return preprocess.lex(data)


@lru_cache(maxsize=4)
def _units(data: bytes, given: tuple[tuple[str, str], ...]) -> tuple[_Unit, ...]:
    source = _lexed(data)
    units: list[_Unit] = []
    choices = 1
    while len(units) < choices:
        view = preprocess.view(source, len(units), dict(given))
        functions, aliases = cuda_syntax.find(view.code)
        if not any(function.defined for function in functions):
            functions = [*functions, *_by_head(view.code)]
        units.append(_Unit(tuple(functions), aliases, view))
        choices = min(max(choices, view.widest), _MAX_CHOICES)
    return tuple(units)


def _by_head(code: str) -> list[Function]:
    """The entry of a file whose text does not parse where it stands (a ``;`` is missing in it): its head alone is read, and
    what is wrong with the rest is the compiler's to say."""
    head = _HEAD.search(_STRING.sub(lambda text: text.group() if text.group() == '"C"' else " " * len(text.group()), code))
    if head is None:
        return []
    before = "".join("\n" if character == "\n" else " " for character in code[: head.start()])
    return list(cuda_syntax.find(f"{before}{head.group()}}}")[0])


def _directives(source: preprocess.Source, path: Path) -> Directives:
    if not any("kopt" in text for _, text in source.comments):
        return Directives()
    view = preprocess.view(source)
    other = preprocess.view(source, 1)
    live = [(n, t) for n, t in source.comments if not any(a <= n <= b for a, b in view.dead)]
    constants = {name for v in (view, other) for name, macro in v.macros.items() if macro.line and not macro.function_like}
    return directives.parse(live, path, constants)


def _has_c_linkage(function: Function, unit: _Unit) -> bool:
    """C linkage of its own or from an earlier declaration of the same function."""
    if function.hidden or function.template or function.c_linkage:
        return function.c_linkage and not function.hidden
    return any(_same_function(f, function, unit) for f in unit.functions if f.c_linkage and f.line < function.line)


def _same_function(declared: Function, function: Function, unit: _Unit) -> bool:
    if declared.hidden or declared.scope != function.scope:
        return False
    try:
        pair = [_raw_parameters(f, unit) for f in (declared, function)]
    except Refused:
        return False
    return [declarations.called_as(p) for p in pair[0]] == [declarations.called_as(p) for p in pair[1]]


def _raw_parameters(function: Function, unit: _Unit) -> list[Parameter]:
    aliases = Aliases(unit.aliases, function.scope)
    pieces = declarations.split_parameters(function.parameters)
    return [declarations.parse_parameter(text, 0, aliases, named=False) for _, text in pieces]


def _signature(function: Function, unit: _Unit, path: Path) -> tuple[tuple[Parameter, ...], bool]:
    head = declarations.without_attributes(declarations.tokens(function.head))
    where = place(path, function.line)
    if function.broken:
        raise KernelError(f"{where}: the parameter list of solve is not understood: its parentheses do not close")
    if "__global__" in head or ("__device__" in head and "__host__" not in head):
        raise KernelError(f"{where}: solve is device code; the entry point is a host function that launches the kernel")
    if function.template:
        raise KernelError(f'{where}: solve is a template, which has no C linkage: write one extern "C" function')
    if "static" in head:
        raise KernelError(f"{where}: solve is static, so the library has no such symbol: drop `static`")
    returns_status = _returns_status(head, function, unit, where)
    parameters = []
    aliases = Aliases(unit.aliases, function.scope)
    for number, (offset, text) in enumerate(declarations.split_parameters(function.parameters), 1):
        start = function.parameters_at + offset + len(text) - len(text.lstrip())
        line = unit.view.code.count("\n", 0, start) + 1
        try:
            parameters.append(declarations.parse_parameter(text, line, aliases))
        except Refused as refused:
            shown = " ".join(text.split()).encode("latin-1").decode("utf-8", "replace")
            raise KernelError(f"{place(path, line)}: parameter {number} of solve, `{shown}`: {refused}") from None
    names = [p.name for p in parameters]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise KernelError(f"{where}: solve has two parameters called `{twice}`")
    return tuple(_with_declared_defaults(parameters, function, unit)), returns_status


def _with_declared_defaults(parameters: list[Parameter], function: Function, unit: _Unit) -> list[Parameter]:
    """Default values may stand in an earlier declaration instead of the definition."""
    for declared in unit.functions:
        if declared.defined or not _same_function(declared, function, unit):
            continue
        for i, earlier in enumerate(_raw_parameters(declared, unit)):
            if earlier.has_default and not parameters[i].has_default:
                parameters[i] = replace(parameters[i], has_default=True, default=earlier.default)
    return parameters


def _returns_status(head: list[str], function: Function, unit: _Unit, where: str) -> bool:
    spelled = [t for t in head if t not in _HEAD_NOISE and not t.startswith('"')]
    trailing = declarations.tokens(function.tail)
    if "->" in trailing:
        spelled = [t for t in trailing[trailing.index("->") + 1 :] if t != "{"]
    shown = " ".join(spelled)
    status = declarations.status_of(spelled, Aliases(unit.aliases, function.scope))
    if status is None:
        raise KernelError(f"{where}: solve returns `{shown}`; it returns void, or int or cudaError_t as a status")
    return status


def _nearest(unresolved: list[tuple[int, str]], function: Function) -> tuple[int, str]:
    """The last condition before the end of the parameter list: the likeliest one to matter."""
    end = function.line + function.parameters.count("\n")
    return max((c for c in unresolved if c[0] <= end), default=unresolved[0])


def _called_alike(signature: tuple[tuple[Parameter, ...], bool]) -> object:
    parameters, returns_status = signature
    return returns_status, [replace(p, line=0, spelling="") for p in parameters]


def _by_macro(units: tuple[_Unit, ...]) -> int | None:
    """The line of a function-like macro that writes the definition, where no function is visible."""
    for unit in units:
        for macro in unit.view.macros.values():
            if macro.function_like and _MACRO_DEFINES.search(macro.body):
                return macro.line
    return None


def _why_no_entry(units: tuple[_Unit, ...], path: Path) -> str:
    everything = [f for unit in units for f in unit.functions]
    plain = [f for f in everything if f.defined and not f.scope and not f.hidden]
    if plain and _NO_HOST & set(declarations.tokens(plain[-1].head)):
        return f"{place(path, plain[-1].line)}: solve is device code; the entry point is a host function that launches the kernel"
    if plain and plain[-1].template:
        return f'{place(path, plain[-1].line)}: solve is a template, which has no C linkage: write one extern "C" function'
    if plain:
        return (
            f"{place(path, plain[-1].line)}: solve has no C linkage, so the library has no symbol of that name: "
            'write `extern "C"` before it'
        )
    if (line := _by_macro(units)) is not None:
        return f"{place(path, line)}: solve is written by a macro with parameters, which is not expanded: write it out"
    if everything:
        last = everything[-1]
        what = "declared but not defined" if not last.defined else "defined inside a namespace or a class only"
        return f'{place(path, last.line)}: solve is {what} here: define `extern "C" void solve(...)` in this file'
    return f'{place(path)} has no entry point: define `extern "C" void solve(...)`'
