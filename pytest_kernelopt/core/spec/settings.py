"""What a reference's ``kopt`` dict and a ``kopt(...)`` marker may say, key by key."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import KernelError
from .cases import check_expression, near

Check = Callable[[Any], bool]


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _tolerance(value: Any) -> bool:
    return _number(value) and value >= 0


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _words(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(v, str) and v for v in value) and len(set(value)) == len(value)


def _some_words(value: Any) -> bool:
    return _words(value) and len(value) > 0


def _bool(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


TOP_LEVEL: dict[str, tuple[Check, str]] = {
    "atol": (_tolerance, "a number that is not negative"),
    "rtol": (_tolerance, "a number that is not negative"),
    "outputs": (_some_words, "a list of different names, at least one"),
    "inout": (_words, "a list of different names"),
    "constraints": (_words, "a list of different expressions such as 'cols % 4 == 0'"),
}
KEYS: dict[str, tuple[Check, str]] = {
    "atol": TOP_LEVEL["atol"],
    "rtol": TOP_LEVEL["rtol"],
    "trials": (_count, "a whole number above 0"),
    "compute": (_text, "a name such as 'tf32'"),
    "allow_libraries": (_bool, "True or False"),
    "deterministic": (_bool, "True or False"),
    "backend": (lambda v: v in ("cuda", "cutlass", "triton"), "'cuda', 'cutlass' or 'triton'"),
    "max_regression": (lambda v: _text(v) or _tolerance(v), "a share such as '3%'"),
    "gate": (_words, "a list of limits such as 'registers <= 64'"),
    "expect": (lambda v: isinstance(v, dict) and all(isinstance(k, str) for k in v), "a dict by name"),
    "cache": (lambda v: v in ("cold", "warm"), "'cold' or 'warm'"),
    "warmup": (lambda v: _number(v) and v >= 0, "a number that is not negative"),
    "repeat": (_count, "a whole number above 0"),
    "max_time": (lambda v: _number(v) and v > 0, "seconds, above 0"),
    "timeout": (lambda v: _number(v) and v > 0, "seconds, above 0"),
}


# part of the contract, and without effect in this version
NOT_YET = ("allow_libraries", "deterministic", "max_regression", "gate", "expect")


def check_settings(value: object, where: str) -> dict[str, Any]:
    """Checks a ``kopt`` dict (or a marker's keywords). Raises KernelError for an unknown key and for a value that is not one."""
    if not isinstance(value, Mapping):
        raise KernelError(f"{where}: `kopt` must be a dict, and is of type {type(value).__name__}")
    for key, given in value.items():
        if key not in KEYS:
            raise KernelError(f"{where}: `kopt` has no key {key!r}{near(str(key), KEYS)}")
        _check(KEYS[key], f"`kopt[{key!r}]`", given, where)
    return dict(value)


def check_name(name: str, value: object, where: str) -> object:
    """Checks one of the top-level names ``atol``, ``rtol``, ``outputs``, ``inout``, ``constraints``."""
    _check(TOP_LEVEL[name], f"`{name}`", value, where)
    if name == "constraints":
        for text in value:  # type: ignore[attr-defined]
            check_expression(text, f"{where}: `constraints`")
    return tuple(value) if isinstance(value, list) else value


def _check(rule: tuple[Check, str], name: str, value: object, where: str) -> None:
    check, wanted = rule
    if not check(value):
        raise KernelError(f"{where}: {name} must be {wanted}, and is {value!r}")
