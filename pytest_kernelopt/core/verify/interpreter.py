"""What Triton's interpreter can't do, so that a kernel is not blamed for it."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

from ..isolate.runner import ChildFailure
from ..reference.problem import Problem

# names in a kernel's code that the interpreter gets wrong without a word (Triton 3.6 to 3.9)
_SILENTLY_WRONG = {
    "bfloat16": "bf16 (tl.bfloat16 in the kernel) is silently wrong in Triton's interpreter",
    "libdevice": "libdevice functions return nothing in Triton's interpreter",
}
# what the message says when it refuses
_UNSUPPORTED = (
    ("extern_elementwise not supported", "external functions"),
    ("inline_asm not supported", "inline assembly"),
    ("Unsupported data type", "an atomic on this data type"),
    ("0 active drivers", "what asks for a GPU driver"),
    ("only 0-dimensional arrays can be converted", "loops with a runtime bound in Triton 3.6 under numpy 2.4 or above"),
    ("for triton type int1", "a Python bool as an argument (pass int(...))"),
)
_TRITONS_OWN = ("/triton/runtime/", "/triton/language/")


def refusal(path: Path, problem: Problem) -> str | None:
    """Why this kernel must not run in the interpreter, or None.

    bf16 arithmetic is done there on the raw 16 bits, silently wrong in Triton 3.6 to 3.9.
    """
    tensor = next((t for t in problem.tensors if t.dtype == "bfloat16"), None)
    if tensor is not None:
        return f"bf16 ('{tensor.name}') is silently wrong in Triton's interpreter: this case needs a GPU"
    names = _names(path)
    found = next((why for name, why in _SILENTLY_WRONG.items() if name in names), None)
    return f"{found}: this kernel needs a GPU" if found else None


def limit(failure: ChildFailure) -> str | None:
    """What the interpreter lacks, when that is why a call raised; None when the kernel itself is to blame."""
    if failure.kind != "raised" or not any(part in failure.trace for part in _TRITONS_OWN):
        return None
    found = next((what for sign, what in _UNSUPPORTED if sign in str(failure)), None)
    return f"not supported by Triton's interpreter: {found}" if found else None


def _names(path: Path) -> set[str]:
    """Every name in a file's code; what stands in comments and strings is none."""
    try:
        tokens = tokenize.tokenize(io.BytesIO(path.read_bytes()).readline)
        return {token.string for token in tokens if token.type == tokenize.NAME}
    except (OSError, tokenize.TokenError, SyntaxError):
        return set()
