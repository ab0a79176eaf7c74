"""The truth of a preprocessor condition: True, False, or None where the file alone does not say."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from . import literals

# The host pass of nvcc on Linux, which is the one that compiles the entry point.
# __cplusplus is defined, but its value is a matter of flags.
PREDEFINED = {"__CUDACC__": "1", "__NVCC__": "1", "__cplusplus": "__cplusplus", "__linux__": "1"}
ABSENT = frozenset(("__CUDA_ARCH__", "__CUDACC_RTC__", "_WIN32", "_WIN64", "_MSC_VER", "__APPLE__"))
ABSENT |= {"__HIPCC__", "__HIP_PLATFORM_AMD__", "__HIP_PLATFORM_HCC__", "__HIP_DEVICE_COMPILE__"}
_DEFINED = re.compile(r"\bdefined\s*(?:\(\s*([A-Za-z_]\w*)\s*\)|([A-Za-z_]\w*))")
_NUMBER = re.compile(
    r"(?<![\w.])(?:(0[xX][0-9a-fA-F]+|0[bB][01]+)([uUlLzZ]*)|(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)([uUlLzZfF]*))(?![\w.])"
)
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Macros(Protocol):
    """What a condition may ask of the preprocessor; ``absent`` are the names known to be undefined."""

    absent: set[str]

    @property
    def view(self) -> Any: ...

    def expand(self, text: str) -> str: ...


def truth(directive: str, text: str, macros: Macros) -> bool | None:
    """Whether a branch opened by ``#directive text`` is live."""
    if directive == "else":
        return True
    if directive in ("ifdef", "ifndef", "elifdef", "elifndef"):
        known = _defined(text.split()[0] if text.split() else "", macros.view.macros, macros.absent)
        return known if known is None or "ifdef" in directive else not known
    return _expression(text, macros)


def _defined(name: str, present: Mapping[str, Any], absent: set[str]) -> bool | None:
    if name in present:
        return True
    return False if name in absent else None


def _expression(text: str, macros: Macros) -> bool | None:
    if "~" in text or "?" in text:
        return None

    def answer(match: re.Match[str]) -> str:
        known = _defined(match[1] or match[2], macros.view.macros, macros.absent)
        return " __unknown " if known is None else f" {int(known)} "

    text = macros.expand(_DEFINED.sub(answer, text))
    text = re.sub(r"!(?!=)", "~", text.replace("&&", " and ").replace("||", " or "))
    try:
        value = _three_valued(literals.expression(python_numbers(text)), macros.absent)
    except (RecursionError, literals.NotLiteral):
        return None
    return None if value is None else bool(value)


def python_numbers(text: str) -> str:
    """C number spellings (``1.0f``, ``1024u``, ``010``) as Python's."""

    def convert(match: re.Match[str]) -> str:
        number: str = match[1] or match[3]
        if number.isdigit():
            return f"0o{number}" if number.startswith("0") and len(number) > 1 else number
        return number

    return _NUMBER.sub(convert, text)


def _three_valued(node: ast.expr, absent: set[str]) -> Any:
    """An integer, or None for unknown. ``~`` stands for C's ``!``, whose precedence it has."""
    if isinstance(node, ast.Name):
        if node.id in absent or node.id in ("true", "false"):
            return int(node.id == "true")
        return None
    if isinstance(node, ast.BoolOp):
        values = [_three_valued(v, absent) for v in node.values]
        deciding = 0 if isinstance(node.op, ast.And) else 1
        if any(v is not None and bool(v) == bool(deciding) for v in values):
            return deciding
        return None if None in values else 1 - deciding
    if isinstance(node, ast.UnaryOp):
        value = _three_valued(node.operand, absent)
        if value is None:
            return None
        return int(not value) if isinstance(node.op, ast.Invert) else (-value if isinstance(node.op, ast.USub) else value)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        left, right = _three_valued(node.left, absent), _three_valued(node.comparators[0], absent)
        return None if left is None or right is None else int(_COMPARISONS[type(node.ops[0])](left, right))
    if isinstance(node, ast.BinOp):
        left, right = _three_valued(node.left, absent), _three_valued(node.right, absent)
        return None if left is None or right is None else literals.arithmetic(node.op, left, right, c_integers=True)
    if isinstance(node, ast.Constant):
        return literals.evaluate(node)
    return None
