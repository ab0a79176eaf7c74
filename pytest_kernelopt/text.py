"""Text that every report can hold: names and messages come from files and kernels, and may be no valid Unicode."""

from __future__ import annotations

from typing import Any


def clean(value: Any) -> Any:
    """The same with every lone surrogate (a byte that is no UTF-8, in a path or a message) written as an escape."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(clean(item) for item in value)
    return value
