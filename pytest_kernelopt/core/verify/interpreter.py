"""What Triton's interpreter can't do, so that a kernel is not blamed for it."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

from ..isolate.runner import ChildFailure
from ..reference.problem import Problem

# by what the interpreter's own traceback or message shows (Triton 3.6 to 3.9)
_UNSUPPORTED = (
    ("libdevice", "libdevice functions"),
    ("extern_elementwise", "external functions"),
    ("inline_asm", "inline assembly"),
    ("Unsupported data type", "an atomic on this data type"),
    ("0 active drivers", "what asks for a GPU driver"),
    ("exceeds the maximum bitwidth of int1", "a Python bool as an argument (pass int(...))"),
)


def refusal(path: Path, problem: Problem) -> str | None:
    """Why this kernel must not run in the interpreter, or None.

    bf16 arithmetic is done there on the raw 16 bits, silently wrong in Triton 3.6 to 3.9.
    """
    tensor = next((t for t in problem.tensors if t.dtype == "bfloat16"), None)
    if tensor is not None:
        return f"bf16 ('{tensor.name}') is silently wrong in Triton's interpreter: this case needs a GPU"
    if _names(path, "bfloat16"):
        return "bf16 (tl.bfloat16 in the kernel) is silently wrong in Triton's interpreter: this kernel needs a GPU"
    return None


def limit(failure: ChildFailure) -> str | None:
    """What the interpreter lacks, when that is why a call raised; None when the kernel itself is to blame."""
    if failure.kind != "raised" or "triton" not in failure.trace:
        return None
    found = next((what for sign, what in _UNSUPPORTED if sign in failure.trace), None)
    return f"not supported by Triton's interpreter: {found}" if found else None


def _names(path: Path, word: str) -> bool:
    try:
        tokens = tokenize.tokenize(io.BytesIO(path.read_bytes()).readline)
        return any(token.type == tokenize.NAME and token.string == word for token in tokens)
    except (tokenize.TokenError, SyntaxError):
        return False
