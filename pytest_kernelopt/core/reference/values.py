"""Dims and by-value scalars: where a value comes from, what it must be, and the user's functions of the dims."""

from __future__ import annotations

import inspect
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

from ..dtypes import DTYPES
from ..errors import KernelError
from ..spec.model import Case, KernelSpec, Scalar
from ..spec.place import place
from .module import Reference
from .shapes import Scope, dtype_name, evaluate, find

_ROUNDED = {"float32": "<f", "float16": "<e", "bfloat16": "<f"}


def scope_of(spec: KernelSpec, reference: Reference | None, case: Case) -> Scope:
    """The case's dims, then the defaults of the reference, then those of a `.cu` signature, for names not given before.

    The reference comes first because it is trusted: a default in the kernel can't change what the reference computes.
    """
    values = dict(case.values)
    for parameter in reference.parameters if reference else ():
        if parameter.kind != "tensor" and isinstance(parameter.default, (bool, int, float, str)):
            _supply(values, parameter.name, parameter.default)
    for own in spec.parameters if spec.backend != "triton" else ():
        if own.kind != "tensor" and own.default is not None:
            _supply(values, own.name, own.default)
    return Scope(values, reference.path.name if reference else None)


def check_constraints(reference: Reference, scope: Scope, case: Case) -> None:
    """KernelError for a case that the operator is not asked for."""
    for constraint in reference.constraints:
        if not evaluate(constraint, scope, f"{place(reference.path)}: constraints"):
            raise KernelError(f"{place(reference.path)}: case {case.id} does not meet the constraint '{constraint}'")


def case_dtype(scope: Scope, where: str) -> str | None:
    """The torch name of the dims' ``dtype``, if there is one."""
    return dtype_name(scope.values["dtype"], where) if "dtype" in scope.values else None


def coerce(value: Scalar, dtype: str | None, where: str) -> Scalar:
    """``value`` as a by-value scalar of this dtype; KernelError if it is of another kind or out of range. None: as it is."""
    if dtype is None:
        return value
    wanted = DTYPES[dtype]
    if not isinstance(value, str):
        if wanted.kind == "float":
            return float(value)
        if wanted.kind == "bool" and value in (0, 1):
            return bool(value)
        if wanted.kind in ("int", "uint") and value == value // 1:
            bits = 8 * wanted.itemsize - (wanted.kind == "int")
            if (-(2**bits) if wanted.kind == "int" else 0) <= value < 2**bits:
                return int(value)
    raise KernelError(f"{where} is {dtype} and can't be {value!r}")


def as_python(value: Scalar, wanted: type | None, where: str) -> Scalar:
    """``value`` as the reference's annotation wants it (``int``, ``float``, ``bool`` or ``str``)."""
    if wanted is None or type(value) is wanted:
        return value
    names = {int: "int64", float: "float64", bool: "bool"}
    return str(value) if wanted is str else coerce(value, names.get(wanted), where)


def as_passed(value: Scalar, dtype: str | None) -> Scalar:
    """``value`` as the kernel sees it: a float rounded to the precision in which it is passed."""
    if not isinstance(value, float) or dtype not in _ROUNDED or not math.isfinite(value):
        return value
    try:
        if dtype != "bfloat16":
            return float(struct.unpack(_ROUNDED[dtype], struct.pack(_ROUNDED[dtype], value))[0])
        bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
        bits += 0x7FFF + (bits >> 16 & 1)  # to the nearest, ties to even
        return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def dim_arguments(
    reference: Reference, name: str, function: Callable[..., Any], scope: Scope, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Keyword arguments of a user's function of the dims: those that it names, all of them if it takes ``**dims``."""
    where = f"{place(reference.path, getattr(getattr(function, '__code__', None), 'co_firstlineno', None))}: {name}()"
    arguments: dict[str, Any] = {}
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise KernelError(f"{where} has no signature that can be read") from error
    for p in parameters:
        if p.kind is p.VAR_KEYWORD:
            arguments = {**scope.values, **given, **arguments}
        elif p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
            raise KernelError(f"{where} is called by keyword: give '{p.name}' as an ordinary parameter")
        elif p.name in given:
            arguments[p.name] = given[p.name]
        elif scope.has(p.name):
            arguments[p.name] = scope.get(p.name)
        elif p.default is p.empty:
            raise scope.missing(p.name, where)
    return arguments


def measure(reference: Reference, name: str, function: Callable[..., Any] | None, scope: Scope) -> float | None:
    """What the user's ``flops`` or ``bytes_moved`` gives at these dims; None without such a function."""
    if function is None:
        return None
    value = reference.call(name, function, dim_arguments(reference, name, function, scope, {}))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise KernelError(f"{place(reference.path)}: {name}() gives a number of at least 0, and not {value!r}")
    return float(value)


def _supply(values: dict[str, Scalar], name: str, value: Scalar) -> None:
    if find(name, values) is None:
        values[name] = value
