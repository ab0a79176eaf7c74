"""What a kernel's process says of its own calls, checked: the kernel may have changed the code that says it.

Nothing of this decides whether a result is right, which the referee finds in its own memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .runner import ChildFailure


@dataclass(frozen=True)
class Form:
    """What one handed back result is; ``dtype`` and what follows are None where it is no plain ``torch.Tensor``."""

    name: str
    type: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    strides: tuple[Any, ...] | None = None
    device: str | None = None


@dataclass(frozen=True)
class CallResult:
    """``seconds`` of host time; ``status`` of an entry that returns one; ``launch_error`` as (code, text); ``returned`` forms."""

    seconds: float
    status: int
    launch_error: tuple[int, str] | None
    returned: tuple[Form, ...] | None


def call_result(reply: Any) -> CallResult:
    """The reply of ``worker.call``. ChildFailure ("garbled") when it is none."""
    try:
        error, forms = reply["launch_error"], reply["returned"]
        return CallResult(
            _number(reply["seconds"]),
            int(reply["status"]),
            None if error is None else (int(error["code"]), str(error["text"])),
            None if forms is None else tuple(_form(form) for form in forms),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as wrong:
        raise _forged(wrong) from None


def samples(reply: Any, count: int) -> dict[str, Any]:
    """The reply of ``timing.sampling.sample`` for ``count`` calls. ChildFailure ("garbled") when it is none."""
    try:
        for name in ("spans", "events", "wall", "enqueue", "host"):
            values = [_number(value) for value in reply[name]]
            if len(values) != count and not (name == "spans" and not values):
                raise ValueError(f"{len(values)} {name} of {count} calls")
        names = [str(name) for name in reply["kernels"]]
        error = reply["launch_error"] and {"code": int(reply["launch_error"]["code"]), "text": str(reply["launch_error"]["text"])}
        return {**reply, "kernels": names, "launch_error": error}
    except (KeyError, TypeError, ValueError, OverflowError) as wrong:
        raise _forged(wrong) from None


def _form(form: Any) -> Form:
    sizes = {name: tuple(form[name]) if name in form else None for name in ("shape", "strides")}
    return Form(str(form["name"]), str(form["type"]), form.get("dtype"), sizes["shape"], sizes["strides"], form.get("device"))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no time")
    return float(value)


def _forged(wrong: Exception) -> ChildFailure:
    return ChildFailure("garbled", f"broke off the conversation with pytest (a reply that no call gives: {wrong!r:.200})")
