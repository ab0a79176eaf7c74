"""Values that are written down: numbers, strings, containers of them, and arithmetic on numbers. Nothing is executed.

A result is bounded (integers to 4096 bits), so that no literal can cost time or memory out of proportion to its text.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

MAX_BITS = 4096

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


class NotLiteral(Exception):
    """An expression that is more than a literal; ``line`` is where, None when the text has no lines."""

    def __init__(self, why: str, node: ast.AST | None = None) -> None:
        super().__init__(why)
        self.line: int | None = getattr(node, "lineno", None)


def evaluate(node: ast.expr, *, c_integers: bool = False) -> Any:
    """The value of a literal expression; ``c_integers`` divides integers as C does (towards zero).

    Raises NotLiteral for names, calls, comprehensions and everything else that would have to be executed.
    """
    try:
        return _evaluate(node, c_integers)
    except RecursionError:
        raise NotLiteral("is nested too deeply", node) from None


def parse(text: str, *, c_integers: bool = False) -> Any:
    """The value of one literal given as text. Raises NotLiteral, also for text that is no expression."""
    return evaluate(expression(text), c_integers=c_integers)


def expression(text: str) -> ast.expr:
    """The syntax tree of an expression, unevaluated. Raises NotLiteral."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape or `1if`: the text's matter
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotLiteral(f"{text.strip()!r} is not a literal") from None


def _evaluate(node: ast.expr, c_integers: bool) -> Any:
    if isinstance(node, ast.Constant):
        if node.value is None or isinstance(node.value, (bool, int, float, str)):
            return _bounded(node.value, node)
        raise NotLiteral(f"holds a {type(node.value).__name__}", node)
    if isinstance(node, ast.List):
        return [_evaluate(e, c_integers) for e in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_evaluate(e, c_integers) for e in node.elts)
    if isinstance(node, ast.Dict):
        return _dict(node, c_integers)
    if isinstance(node, ast.UnaryOp):
        return _unary(node, c_integers)
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, c_integers), _evaluate(node.right, c_integers)
        return arithmetic(node.op, left, right, node, c_integers=c_integers)
    raise NotLiteral(_describe(node), node)


def _dict(node: ast.Dict, c_integers: bool) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        if key_node is None:
            raise NotLiteral("unpacks with `**`", node)
        key = _evaluate(key_node, c_integers)
        if isinstance(key, (list, dict)):
            raise NotLiteral("has a container as a key", key_node)
        if key in result:
            raise NotLiteral(f"has the key {key!r} twice", key_node)
        result[key] = _evaluate(value_node, c_integers)
    return result


def _unary(node: ast.UnaryOp, c_integers: bool) -> Any:
    value = _evaluate(node.operand, c_integers)
    if isinstance(node.op, ast.Not) and (value is None or isinstance(value, (bool, int, float, str))):
        return not value
    if isinstance(node.op, (ast.USub, ast.UAdd)) and isinstance(value, (int, float)):
        return -value if isinstance(node.op, ast.USub) else +value
    if isinstance(node.op, ast.Invert) and isinstance(value, int) and not isinstance(value, bool):
        return ~value
    raise NotLiteral("has an operator that does not fit its operand", node)


def arithmetic(op: ast.operator, left: Any, right: Any, node: ast.AST | None = None, *, c_integers: bool = False) -> Any:
    """``left op right`` on two numbers (or ``+`` on two lists, tuples or strings), with a bounded result."""
    if isinstance(op, ast.Add) and type(left) is type(right) and isinstance(left, (str, list, tuple)):
        return left + right
    function = _OPERATORS.get(type(op))
    if function is None or not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
        raise NotLiteral("has an operator that does not fit its operands", node)
    if isinstance(left, int) and isinstance(right, int) and isinstance(op, (ast.Pow, ast.LShift)):
        growth = left.bit_length() * right if isinstance(op, ast.Pow) else left.bit_length() + right
        if growth > MAX_BITS:
            raise NotLiteral(f"is a number of more than {MAX_BITS} bits", node)
    try:
        if c_integers and isinstance(left, int) and isinstance(right, int) and isinstance(op, (ast.Div, ast.Mod)):
            quotient = abs(left) // abs(right) * (-1 if (left < 0) != (right < 0) else 1)
            return quotient if isinstance(op, ast.Div) else left - right * quotient
        result = function(left, right)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise NotLiteral(f"cannot be computed ({error})", node) from None
    if isinstance(result, complex):
        raise NotLiteral("is a complex number", node)
    return _bounded(result, node)


def _bounded(value: Any, node: ast.AST | None) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise NotLiteral("is not a finite number", node)
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise NotLiteral(f"is a number of more than {MAX_BITS} bits", node)
    return value


def _describe(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return f"uses the name `{node.id}`"
    if isinstance(node, ast.Call):
        return "calls a function"
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return "is a comprehension"
    return "is more than constants and arithmetic"
