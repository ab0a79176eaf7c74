"""What runs in a child: it waits for the name of a function and its arguments, calls it, and sends the result back."""

from __future__ import annotations

import importlib
import os
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import KernelError, Unavailable
from .protocol import Channel, Closed

_PACKAGE = __name__.partition(".core.")[0]


@dataclass
class ChildState:
    """What a child keeps between calls. ``objects`` belongs to the functions that are called; ``folder`` is its scratch.

    ``received`` are the descriptors that came with the call under way; what is put in ``outgoing`` goes with its reply.
    """

    mode: str
    folder: Path
    objects: dict[str, Any] = field(default_factory=dict)
    received: list[int] = field(default_factory=list)
    outgoing: list[int] = field(default_factory=list)

    @property
    def device(self) -> str:
        """Where tensors live in this child: the one GPU it sees, or the CPU under the interpreter."""
        return "cuda" if self.mode == "gpu" else "cpu"


def serve(channel: Channel, state: ChildState) -> None:
    """Answer calls until the parent hangs up."""
    while True:
        try:
            message, state.received = channel.receive()
        except Closed:
            return
        state.outgoing = []
        try:
            module, _, name = message["function"].partition(":")
            function = getattr(importlib.import_module(module), name)
            reply: dict[str, Any] = {"result": function(state, **message["args"])}
        except BaseException as error:  # also SystemExit and KeyboardInterrupt raised by a kernel's own Python
            reply = {"error": _describe(error)}
        finally:
            for fd in state.received:
                os.close(fd)
        channel.send(reply, state.outgoing)
        for fd in state.outgoing:
            os.close(fd)


def _describe(error: BaseException) -> dict[str, str]:
    """An exception as text, located in the last frame that is neither ours nor a library's."""
    kind = "mistake" if isinstance(error, KernelError) else "unavailable" if isinstance(error, Unavailable) else "raised"
    frames = traceback.extract_tb(error.__traceback__)
    foreign = ("site-packages", "dist-packages", "<frozen", f"/{_PACKAGE}/", f"{os.sep}lib{os.sep}python")
    own = [f for f in frames if not any(part in f.filename for part in foreign)]
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return {
        "kind": kind,
        "type": type(error).__name__,
        "message": str(error),
        "where": where,
        "trace": "".join(traceback.format_exception(error)),
    }
