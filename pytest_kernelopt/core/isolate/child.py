"""What runs in a child: it waits for the name of a function and its arguments, calls it, and sends the result back."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import sysconfig
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import KernelError, Unavailable
from .protocol import Channel, Closed, close_fds

_LONGEST_TEXT = 20_000  # of a message or a trace: a kernel may raise a gigabyte
_FOREIGN = ("<frozen", f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_FOREIGN_FOLDERS = (str(Path(__file__).parents[2]) + os.sep, sysconfig.get_path("stdlib") + os.sep)


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
            answer(channel, state, message)
        except Closed:
            return


def answer(channel: Channel, state: ChildState, message: dict[str, Any]) -> None:
    """Do one call and send what it gives, or what it raises."""
    state.outgoing = []
    try:
        module, _, name = message["function"].partition(":")
        function = getattr(importlib.import_module(module), name)
        channel.send({"result": function(state, **message["args"])}, state.outgoing)
    except Closed:
        raise
    except BaseException as error:  # also SystemExit and KeyboardInterrupt raised by a kernel's own Python
        channel.send({"error": _describe(error)})
    finally:
        close_fds([*state.received, *state.outgoing])
        with contextlib.suppress(Exception):  # a kernel may have put anything in its place
            sys.stdout.flush()


def _describe(error: BaseException) -> dict[str, str]:
    """An exception as text, located in the innermost frame that is neither ours nor a library's."""
    kind = "mistake" if isinstance(error, KernelError) else "unavailable" if isinstance(error, Unavailable) else "raised"
    cause = error
    while type(cause).__name__ == "InterpreterError" and cause.__cause__ is not None:  # Triton's, once for each function
        cause = cause.__cause__
    return {
        "kind": kind,
        "type": type(cause).__name__,
        "message": _text(cause)[:_LONGEST_TEXT],
        "where": _place(cause) or _place(error),
        "trace": "".join(traceback.format_exception(error))[-_LONGEST_TEXT:],
    }


def _text(error: BaseException) -> str:
    return str(error.msg) if isinstance(error, SyntaxError) else str(error)


def _place(error: BaseException) -> str:
    """file:line of the user's own code; that of a syntax error is the place of the error."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{Path(error.filename).name}:{error.lineno}"
    own = [f for f in traceback.extract_tb(error.__traceback__) if not _is_foreign(f.filename)]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def _is_foreign(filename: str) -> bool:
    return filename.startswith(_FOREIGN_FOLDERS) or any(part in filename for part in _FOREIGN)
