"""The two ways in which work can end early, besides a verdict on a kernel."""

from __future__ import annotations


class KernelError(Exception):
    """A user's mistake (a kernel, a reference, an option), as one sentence: what, where, how to mend it."""


class BuildError(KernelError):
    """A kernel that does not compile. ``str(error)`` is the cause in one line, ``log`` the compiler's own text."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class Unavailable(Exception):
    """What this machine cannot do (no GPU, no nvcc, no permission), with the reason: never held against a kernel."""
