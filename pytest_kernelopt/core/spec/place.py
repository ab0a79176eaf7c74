"""How a place in a user's file is named in a message."""

from __future__ import annotations

import os
from pathlib import Path


def place(path: Path, line: int | None = None) -> str:
    """``kernels/softmax.cu:12``: relative to the current folder when the file lies below it, else as given."""
    shown = str(path)
    try:
        here = os.getcwd() + os.sep
    except OSError:  # the current folder is gone
        here = os.sep * 2
    shown = shown.removeprefix(here)
    return shown if line is None else f"{shown}:{line}"
