"""Tensor annotations (jaxtyping's) as allowed dtypes and axes, and the arithmetic that turns axes into sizes.

Axes follow jaxtyping: ``"rows cols"``, ``"n+1"``, ``"2*n n//2"``, ``"4"``, ``"cols=4"``, ``""`` for a scalar tensor.
Expressions are walked as syntax trees and never given to ``eval``.
"""

from __future__ import annotations

import ast
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..dtypes import DTYPES
from ..errors import KernelError
from ..spec.literals import NotLiteral, arithmetic
from ..spec.model import Scalar

_PREFERRED = ("float32", "int32", "uint32", "complex64", "bool")
_ALIASES = {
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "float": "float32",
    "fp64": "float64",
    "double": "float64",
    "fp8": "float8_e4m3fn",
    "int": "int32",
    "long": "int64",
}

_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max}


@dataclass(frozen=True)
class TensorType:
    """A tensor annotation: the dtypes that it allows (torch names), and its axes as written; None where it gives no shape."""

    dtypes: tuple[str, ...]
    axes: tuple[str, ...] | None
    text: str

    @property
    def fixed(self) -> bool:
        return len(self.dtypes) == 1

    def dtype(self, pointer: str | None, case: str | None) -> str | None:
        """The element type: the kernel's pointer type, else the case's, else the usual one; None: not allowed."""
        if pointer is not None:
            return pointer if pointer in self.dtypes else None
        if case in self.dtypes:
            return case
        return next((name for name in _PREFERRED if name in self.dtypes), self.dtypes[0])


UNSHAPED = TensorType(tuple(DTYPES), None, "Tensor")


@dataclass(frozen=True)
class Scope:
    """The dims that names are looked up in. ``home`` is the file whose cases would have to name a missing one."""

    values: Mapping[str, Scalar]
    home: str | None = None

    def has(self, name: str) -> bool:
        return find(name, self.values) is not None

    def get(self, name: str) -> Scalar:
        """The value of a dim, by exact name or else by the only one that differs in case alone."""
        key = find(name, self.values)
        if key is None:
            raise KeyError(name)
        return self.values[key]

    def missing(self, name: str, where: str) -> KernelError:
        have = f"the dims are {', '.join(self.values)}" if self.values else "there are no dims"
        cure = f"add it to a case in {self.home} or pass" if self.home else "pass"
        dims = ",".join([*(f"{known}={value}" for known, value in self.values.items()), f"{name}=..."])
        return KernelError(f"{where}: dim '{name}' has no value ({have}): {cure} --kopt-dims \"{dims}\"")


def find(name: str, names: Iterable[str]) -> str | None:
    """``name`` among ``names``: itself, else the only one that differs from it in case alone, else None."""
    known = list(names)
    if name in known:
        return name
    alike = [other for other in known if other.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def dtype_name(value: Scalar, where: str) -> str:
    """A case's ``dtype`` as torch names it; ``half``, ``fp16``, ``bf16``, ``torch.float16`` and the like are understood."""
    name = str(value).removeprefix("torch.")
    name = _ALIASES.get(name, name)
    if name not in DTYPES:
        raise KernelError(f"{where}: '{value}' is no dtype: one of {', '.join(DTYPES)}")
    return name


def read_annotation(annotation: Any, where: str) -> TensorType | type | None:
    """An annotation as a tensor type, a scalar type (int, float, bool, str), or None where it says nothing of use.

    ``where`` begins the message of the KernelError that an unusable one gives (variadic axes, arrays that are not torch's).
    """
    if typing.get_origin(annotation) is typing.Annotated:
        return read_annotation(typing.get_args(annotation)[0], where)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [m for m in typing.get_args(annotation) if m is not type(None)]
        if len(members) == 1:
            return read_annotation(members[0], where)
        if any(_is_jaxtyped(m) for m in members):
            raise KernelError(f"{where}: a union of tensor types leaves the shape open: annotate with one of them")
        return None
    if _is_jaxtyped(annotation):
        return _read_jaxtyped(annotation, where)
    if annotation in (int, float, bool, str):
        return typing.cast(type, annotation)
    return UNSHAPED if _is_tensor_class(annotation) else None


def shape_of(axes: Iterable[str], scope: Scope, where: str) -> tuple[int, ...]:
    """Sizes of the axes at these dims; KernelError for a missing dim, a fraction or a negative size."""
    return tuple(_size(axis, scope, where) for axis in axes)


def evaluate(expression: str, scope: Scope, where: str) -> int | float | bool:
    """The value of an arithmetic or logical expression over the dims (``2*n``, ``cols % 4 == 0 and rows > 1``)."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        value = _walk(tree.body, scope, where)
    except (SyntaxError, _NotArithmetic) as error:
        raise KernelError(f"{where}: '{expression}' is not arithmetic over the dims") from error
    except (NotLiteral, TypeError) as error:
        raise KernelError(f"{where}: '{expression}' has no value at these dims: {error}") from error
    if not isinstance(value, (int, float)):
        raise KernelError(f"{where}: '{expression}' gives {value!r}, not a number")
    return value


class _NotArithmetic(Exception):
    pass


def _walk(node: ast.expr, scope: Scope, where: str) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str)):
        return node.value
    if isinstance(node, ast.Name):
        if not scope.has(node.id):
            raise scope.missing(node.id, where)
        return scope.get(node.id)
    if isinstance(node, ast.BinOp):
        return arithmetic(node.op, _walk(node.left, scope, where), _walk(node.right, scope, where))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_walk(node.operand, scope, where))
    if isinstance(node, ast.BoolOp):
        parts = (_walk(value, scope, where) for value in node.values)
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        values = [_walk(part, scope, where) for part in (node.left, *node.comparators)]
        return all(_COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, values, values[1:], strict=False))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords:
        return _FUNCTIONS[node.func.id](*(_walk(argument, scope, where) for argument in node.args))
    raise _NotArithmetic


def _size(axis: str, scope: Scope, where: str) -> int:
    value = evaluate(axis, scope, where)
    if value != int(value):
        raise KernelError(f"{where}: axis '{axis}' is {value} at these dims, not a whole number")
    if value < 0:
        raise KernelError(f"{where}: axis '{axis}' is {int(value)} at these dims: a size can't be negative")
    return int(value)


def _is_jaxtyped(annotation: Any) -> bool:
    return isinstance(getattr(annotation, "dim_str", None), str) and hasattr(annotation, "array_type")


def _is_tensor_class(annotation: Any) -> bool:
    import torch

    return isinstance(annotation, type) and issubclass(annotation, torch.Tensor)


def _read_jaxtyped(annotation: Any, where: str) -> TensorType:
    kind = getattr(annotation.dtype, "__name__", "Shaped")
    text = f'{kind}[Tensor, "{annotation.dim_str}"]'
    if isinstance(annotation.array_type, type) and not _is_tensor_class(annotation.array_type):
        raise KernelError(f"{where}: {text.replace('Tensor', annotation.array_type.__name__)} is not of torch.Tensor")
    named = annotation.dtypes
    dtypes = tuple(name for name in DTYPES if not isinstance(named, (tuple, list)) or name in named)
    if not dtypes:
        raise KernelError(f"{where}: {kind} has no dtype that kernels are tested with: one of {', '.join(DTYPES)}")
    return TensorType(dtypes, tuple(_axis(token, where) for token in annotation.dim_str.split()), text)


def _axis(token: str, where: str) -> str:
    """One axis without jaxtyping's marks: ``#n`` (may broadcast) and ``?n`` mean n here, ``cols=4`` documents a 4."""
    bare = token.lstrip("#?")
    if "*" in token[: len(token) - len(bare) + 1] or token == "...":
        raise KernelError(f"{where}: axis '{token}' stands for any number of axes: name each one")
    if bare.startswith("_"):
        raise KernelError(f"{where}: axis '{token}' is anonymous, so its size is unknown: give it a name")
    name, equals, documented = bare.partition("=")
    if equals and name.isidentifier() and not documented.startswith("="):
        bare = documented
    try:
        ast.parse(bare, mode="eval")
    except SyntaxError as error:
        raise KernelError(f"{where}: axis '{token}' is not an expression (axes are parted by spaces: write 'n+1')") from error
    return bare
