"""The parent's side of the referee: started when first asked, ended when it fails, its failures in the user's terms."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from ..errors import KernelError, Unavailable
from ..isolate.protocol import close_fds
from ..isolate.runner import Child, ChildFailure
from . import referee

REFERENCE_SECONDS = 600.0  # for a reference and its comparison, on very large tensors; a kernel's own limit is another

_NO_MEMORY = ("OutOfMemoryError", "MemoryError")


class Judge:
    """Asks functions of ``verify.referee`` (and others) in the referee's process. ``start`` makes one."""

    def __init__(self, start: Callable[[], Child]) -> None:
        self._start = start
        self._child: Child | None = None

    def be_ready(self) -> None:
        """Before a question: forget a referee that died since the last one. Within a question its death is a failure."""
        if self._child is not None and not self._child.alive:
            self.close()

    def ask(self, function: Callable[..., Any], **args: Any) -> Any:
        """Call a function there. KernelError when the reference raises, or takes the process down: the next question gets a
        new one. Unavailable when memory runs out."""
        result, fds = self.ask_with_fds(function, **args)
        close_fds(fds)
        return result

    def ask_with_fds(self, function: Callable[..., Any], **args: Any) -> tuple[Any, list[int]]:
        """Like ``ask``, with the descriptors that the function gave back; the caller closes them."""
        try:
            if self._child is None:
                self._child = self._start()
            return self._child.call_with_fds(function, timeout=REFERENCE_SECONDS, **args)
        except ChildFailure as failure:
            self.close()
            if failure.type in _NO_MEMORY or "DefaultCPUAllocator" in str(failure):
                raise Unavailable(f"not enough memory to judge this case: {failure.sentence()}") from None
            raise KernelError(f"the reference's process: {failure.sentence()}") from None
        except KernelError as error:
            if "CUDA error" in str(error):  # the context is spoiled for good
                self.close()
            raise

    def release(self) -> None:
        """Give back the memory of the last question; of a process that can't, by ending it."""
        if self._child is not None and self._child.alive:
            with contextlib.suppress(KernelError, Unavailable):
                self.ask(referee.release)

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()
