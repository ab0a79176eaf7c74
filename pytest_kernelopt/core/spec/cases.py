"""Cases: checked sets of dims, from a reference's literals, a conftest hook or ``--kopt-dims``."""

from __future__ import annotations

import ast
import difflib
import math
import operator
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import SupportsIndex

from ..dtypes import DTYPES
from ..errors import KernelError
from . import literals
from .model import Case, Scalar

_ID_SAFE = re.compile(r"[A-Za-z0-9_.+-]+")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]*")
_EXPONENT = re.compile(r"(?<![\w.])(\d[\d_]*(?:\.\d*)?|\.\d+)[eE]([+-]?\d+)(?![\w.])")
_PADDED = re.compile(r"(?<![\w.])0+(?=[1-9][\d_]*(?![\w.]))")
_MAX_EXPONENT = 308


def parse_cases(value: object, what: str, where: str) -> tuple[Case, ...]:
    """Checks a list of dicts of dims; ``what`` names it (``cases``) and ``where`` is its place, both for messages.

    Raises KernelError for an empty list, an entry that is no dict, a dim that is no name or no scalar, and for two cases
    with one id.
    """
    if not isinstance(value, (list, tuple)):
        raise KernelError(f"{where}: `{what}` must be a list of dicts, such as [{{'rows': 4096}}], and is {_a(value)}")
    if not value:
        raise KernelError(f"{where}: `{what}` is empty: name at least one case, or leave it out")
    cases = tuple(_case(entry, f"{where}: `{what}[{i}]`") for i, entry in enumerate(value))
    seen: dict[str, int] = {}
    for i, case in enumerate(cases):
        if case.id in seen:
            raise KernelError(f"{where}: `{what}[{seen[case.id]}]` and `{what}[{i}]` have the same id `{case.id}`: drop one")
        seen[case.id] = i
    return cases


def _case(entry: object, where: str) -> Case:
    if not isinstance(entry, dict):
        raise KernelError(f"{where} must be a dict of dims, such as {{'rows': 4096}}, and is {_a(entry)}")
    return Case(tuple((_name(name, where), _scalar(name, value, where)) for name, value in entry.items()))


def _name(name: object, where: str) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise KernelError(f"{where}: a dim's name must be an identifier, and {name!r} is none")
    return name


def _scalar(name: object, value: object, where: str) -> Scalar:
    if not isinstance(value, (bool, int, float, str)) and isinstance(value, SupportsIndex):
        value = operator.index(value)  # numpy's integers, from a conftest
    if not isinstance(value, (bool, int, float, str)):
        raise KernelError(f"{where}: the dim `{name}` must be a number, a bool or a string, and is {_a(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise KernelError(f"{where}: the dim `{name}` is {value}, which no test id can show: give a finite number")
    if not isinstance(value, str):
        return value
    if name == "dtype" and value not in DTYPES:
        raise KernelError(f"{where}: `{value}` is no dtype{near(value, DTYPES)}")
    if not _ID_SAFE.fullmatch(value):
        raise KernelError(f"{where}: the dim `{name}` is {value!r}, and a test id holds letters, digits and `_.+-` only")
    return value


def near(word: str, known: Iterable[str]) -> str:
    """``: did you mean `a` or `b`?``, or all that is known where nothing is near."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=3)
    if close:
        return ": did you mean " + " or ".join(f"`{c}`" for c in close) + "?"
    return ": known are " + ", ".join(f"`{k}`" for k in known)


def _a(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def parse_dims(text: str) -> Case:
    """The case that ``--kopt-dims "rows=4096,alpha=0.5,dtype=float16"`` names.

    A value is arithmetic on constants (``2**20``), ``true``/``false`` or a word. ``1e6`` is the integer 1000000 and ``1e-5``
    a float; ``1.0`` stays a float. Raises KernelError in one sentence.
    """
    where = f"--kopt-dims {text!r}"
    dims: dict[str, Scalar] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise KernelError(f"{where}: {part.strip() or 'an empty entry'!r} is not of the form name=value")
        _name(name, where)
        if name in dims:
            raise KernelError(f"{where}: `{name}` is given twice")
        dims[name] = _scalar(name, _dim_value(name, value, where), where)
    return Case(tuple(dims.items()))


def _dim_value(name: str, text: str, where: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _WORD.fullmatch(text):
        return text
    try:
        return literals.parse(_PADDED.sub("", _EXPONENT.sub(_whole, text)))
    except literals.NotLiteral as error:
        raise KernelError(f"{where}: the value of `{name}` {error}: write a number, `2**20`, true, false or a word") from None


def _whole(match: re.Match[str]) -> str:
    """``1e6`` as the integer it is; what is not whole, or too large for a float, stays as written."""
    if abs(int(match[2])) > _MAX_EXPONENT:
        return match[0]
    number = Decimal(match[0].replace("_", ""))
    return str(int(number)) if number == number.to_integral_value() else match[0]


def check_expression(text: str, where: str) -> None:
    """Refuses a constraint that is more than comparisons and arithmetic on dims."""
    allowed = (ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator, ast.Compare, ast.cmpop)
    try:
        tree = literals.expression(text)
    except literals.NotLiteral:
        raise KernelError(f"{where}: `{text}` is not an expression such as `cols % 4 == 0`") from None
    for node in ast.walk(tree):
        if not isinstance(node, (*allowed, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.List)):
            raise KernelError(f"{where}: `{text}` is more than comparisons and arithmetic on dims")
