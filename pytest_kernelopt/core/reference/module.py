"""A user's ``*_ref.py``, imported. Runs in the referee, a trusted child: the module is the user's own and torch is there.

Each reference is a module of its own name, with its folder on ``sys.path`` only while it is imported or called, so that two
``softmax_ref.py`` and the siblings that they import never take each other's place. Nothing is written beside it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
import sys
import traceback
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import KernelError, Unavailable
from ..spec.place import place
from .shapes import UNSHAPED, TensorType, read_annotation


@dataclass(frozen=True)
class ReferenceParameter:
    """One parameter of ``reference``: ``tensor`` is the type of an annotated tensor, ``scalar`` that of an annotated number."""

    name: str
    kind: Literal["tensor", "scalar", "unknown"]
    tensor: TensorType = UNSHAPED
    scalar: type | None = None
    default: Any = None
    has_default: bool = False


@dataclass(frozen=True)
class Returns:
    """What ``reference`` is annotated to return: None ("none"), these tensors, or nothing that can be read ("unknown").

    ``names`` are the keys of a TypedDict or the fields of a NamedTuple.
    """

    style: Literal["none", "tensors", "unknown"] = "unknown"
    types: tuple[TensorType, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def shaped(self) -> bool:
        return self.style == "tensors" and all(t.axes is not None for t in self.types)


@dataclass(frozen=True)
class Reference:
    """An imported reference and what its module says of the operator. ``outputs`` is None where it was not given."""

    path: Path
    function: Callable[..., Any]
    line: int
    parameters: tuple[ReferenceParameter, ...]
    takes_any: bool
    returns: Returns
    make_inputs: Callable[..., Any] | None = None
    flops: Callable[..., Any] | None = None
    bytes_moved: Callable[..., Any] | None = None
    twice_error_of: Callable[..., Any] | None = None
    outputs: tuple[str, ...] | None = None
    inout: tuple[str, ...] = ()
    atol: float | None = None
    rtol: float | None = None
    constraints: tuple[str, ...] = ()
    siblings: dict[str, types.ModuleType] = field(default_factory=dict, repr=False, compare=False)

    @property
    def where(self) -> str:
        return place(self.path, self.line)

    def call(self, name: str, function: Callable[..., Any], arguments: Mapping[str, Any], *, hint: str = "") -> Any:
        """Calls a function of the module; what it raises becomes a KernelError with the user's line (no memory: Unavailable)."""
        with at_home(self.path, self.siblings):
            try:
                return function(**arguments)
            except (Exception, SystemExit) as error:
                raise user_error(error, self.path, f"{name}()", hint) from error


def user_error(error: BaseException, path: Path, what: str, hint: str = "") -> Exception:
    """An exception of the user's code as one sentence, at the innermost frame that lies in the reference's folder."""
    if is_out_of_memory(error):
        return Unavailable(f"{what} of {path.name} ran out of memory: {_first_line(error)}")
    where = place(path)
    if isinstance(error, SyntaxError) and error.filename:
        return KernelError(f"{place(Path(error.filename), error.lineno)}: {type(error).__name__}: {error.msg}")
    for frame in traceback.extract_tb(error.__traceback__):
        if _is_users(frame.filename, path):
            where = place(Path(frame.filename), frame.lineno)
    return KernelError(f"{where}: {what} raised {type(error).__name__}: {_first_line(error)}{hint and f' ({hint})'}")


def is_out_of_memory(error: BaseException) -> bool:
    import torch

    return isinstance(error, (torch.cuda.OutOfMemoryError, MemoryError)) or "DefaultCPUAllocator" in str(error)


@contextmanager
def at_home(path: Path, siblings: dict[str, types.ModuleType]) -> Iterator[None]:
    """With the reference's folder first on ``sys.path``, its siblings importable, and no bytecode written."""
    folder = str(path.parent)
    before, bytecode = set(sys.modules), sys.dont_write_bytecode
    shadowed = {name: sys.modules[name] for name in siblings if name in sys.modules}
    sys.modules.update(siblings)
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.dont_write_bytecode = bytecode
        if folder in sys.path:
            sys.path.remove(folder)
        fresh = [name for name in sys.modules if name not in before and _lives_in(name, folder)]
        siblings.update({name: sys.modules[name] for name in fresh})
        for name in siblings:
            sys.modules.pop(name, None)
        sys.modules.update(shadowed)


def load_reference(path: Path) -> Reference:
    """Imports ``path`` and reads what it says. KernelError, with the user's own line, for whatever keeps it from being used."""
    path = Path(os.path.abspath(path))
    siblings: dict[str, types.ModuleType] = {}
    module = _import(path, siblings)
    function = getattr(module, "reference", None)
    if not callable(function):
        found = "none" if function is None else f"a {type(function).__name__}"
        raise KernelError(f"{place(path)}: a reference file defines a function reference(), and there is {found}")
    line = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_firstlineno", 1)
    with at_home(path, siblings):
        parameters, takes_any, returns = _signature(function, place(path, line))
    return Reference(
        path, function, line, parameters, takes_any, returns, siblings=siblings,
        **{name: _function(module, name, path) for name in ("make_inputs", "flops", "bytes_moved", "twice_error_of")},
        outputs=_names(module, "outputs", path), inout=_names(module, "inout", path) or (),
        atol=_tolerance(module, "atol", path), rtol=_tolerance(module, "rtol", path),
        constraints=_names(module, "constraints", path) or (),
    )  # fmt: skip


def _import(path: Path, siblings: dict[str, types.ModuleType]) -> types.ModuleType:
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    module = types.ModuleType(f"kopt_reference_{digest}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    with at_home(path, siblings):
        try:
            exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
        except OSError as error:
            if error.filename != str(path):
                raise user_error(error, path, "the import") from error
            raise KernelError(f"{place(path)}: the reference can't be read: {error.strerror}") from error
        except (Exception, SystemExit) as error:
            raise user_error(error, path, "the import") from error
    return module


def _annotated(function: Callable[..., Any]) -> Any:
    """The function whose annotations are those of a callable: of a partial its own, of an object its class's ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _signature(function: Callable[..., Any], where: str) -> tuple[tuple[ReferenceParameter, ...], bool, Returns]:
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(_annotated(function), include_extras=True)
    except (NameError, AttributeError, TypeError, ValueError, SyntaxError) as error:
        raise KernelError(f"{where}: the annotations of reference() can't be read: {_first_line(error)}") from error
    parameters, takes_any = [], False
    for p in signature.parameters.values():
        if p.kind is p.VAR_POSITIONAL or p.kind is p.POSITIONAL_ONLY:
            raise KernelError(f"{where}: reference() is called by keyword: give '{p.name}' as an ordinary parameter")
        if p.kind is p.VAR_KEYWORD:
            takes_any = True
            continue
        parameters.append(_parameter(p, hints.get(p.name), f"{where}: '{p.name}'"))
    absent = signature.return_annotation is signature.empty and "return" not in hints
    return tuple(parameters), takes_any, Returns() if absent else _returns(hints.get("return"), f"{where}: the return annotation")


def _parameter(p: inspect.Parameter, hint: Any, where: str) -> ReferenceParameter:
    has_default = p.default is not p.empty
    default = p.default if has_default else None
    read = read_annotation(hint, where)
    if isinstance(read, TensorType):
        return ReferenceParameter(p.name, "tensor", read, default=default, has_default=has_default)
    if read is None and isinstance(default, (bool, int, float, str)):
        read = type(default)
    return ReferenceParameter(p.name, "unknown" if read is None else "scalar", UNSHAPED, read, default, has_default)


def _returns(hint: Any, where: str) -> Returns:
    if hint is None or hint is type(None):
        return Returns("none")
    if typing.get_origin(hint) is tuple:
        members: tuple[Any, ...] = typing.get_args(hint)
        names: tuple[str, ...] = ()
        if Ellipsis in members:
            return Returns()
    elif typing.is_typeddict(hint) or (isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")):
        fields = typing.get_type_hints(hint, include_extras=True)
        members, names = tuple(fields.values()), tuple(fields)
    else:
        members, names = (hint,), ()
    read = tuple(read_annotation(member, where) for member in members)
    tensors = tuple(t for t in read if isinstance(t, TensorType))
    return Returns("tensors", tensors, names) if tensors and len(tensors) == len(read) else Returns()


def _function(module: types.ModuleType, name: str, path: Path) -> Callable[..., Any] | None:
    value = getattr(module, name, None)
    if value is not None and not callable(value):
        raise KernelError(f"{place(path)}: {name} is a {type(value).__name__} where a function is meant")
    return typing.cast("Callable[..., Any] | None", value)


def _names(module: types.ModuleType, name: str, path: Path) -> tuple[str, ...] | None:
    value = getattr(module, name, None)
    if value is None:
        return None
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise KernelError(f"{place(path)}: {name} is a list of strings, such as {name} = [...], and not {value!r}")
    return tuple(value)


def _tolerance(module: types.ModuleType, name: str, path: Path) -> float | None:
    value = getattr(module, name, None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise KernelError(f"{place(path)}: {name} is a number of at least 0, and not {value!r}")
    return float(value)


def _is_users(filename: str, path: Path) -> bool:
    inside = os.path.abspath(filename).startswith(str(path.parent) + os.sep)
    return inside and f"{os.sep}site-packages{os.sep}" not in filename


def _lives_in(name: str, folder: str) -> bool:
    """Whether a module was found through ``folder``: a file of it, or a package or plain folder in it."""
    top = sys.modules.get(name.partition(".")[0])
    spec = getattr(top, "__spec__", None)
    if spec is None:
        return False
    places = list(spec.submodule_search_locations or []) or [spec.origin or ""]
    return any(os.path.dirname(os.path.abspath(place)) == folder for place in places if place)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
