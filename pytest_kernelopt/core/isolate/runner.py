"""The parent's side of its children: start one, call a function in it, learn how it ended, leave nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import KernelError, Unavailable
from .handle import KILL_SECONDS, Mode, Server
from .protocol import BROKEN, Channel, Closed, Garbled, TimedOut, close_fds

_ENDING_SECONDS = 2.0  # between a child's last word and its end
_LOOK_SECONDS = 1.0


class ChildFailure(Exception):
    """A child that did not answer, or a function in it that raised.

    ``kind``: ``crashed`` (a signal), ``exited``, ``hung`` (killed after its time), ``raised`` (an exception, the child lives),
    ``garbled`` (it broke the protocol). ``where`` is file:line of the user's own code, ``output`` the end of what it printed.
    """

    def __init__(self, kind: str, message: str, *, where: str = "", type: str = "", trace: str = "", output: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.where = where
        self.type = type
        self.trace = trace
        self.output = output

    def sentence(self) -> str:
        """What happened, to be put after the name of whose process it was: ``x.py:3: ValueError: ...``, ``crashed with ...``."""
        if self.kind != "raised":
            return str(self)
        said = next(iter(str(self).strip().splitlines()), "")[:500]
        return ": ".join(part for part in (self.where, self.type, said) if part)


class Child:
    """One child process. Any failure but ``raised`` ends it; a closed child is never used again.

    ``trusted``: whether a function in it may say what this machine can't do (Unavailable). In a process that has loaded a
    kernel it is an exception like others, or a kernel could have itself skipped.
    """

    def __init__(self, server: Server, folder: Path, *, untrusted: bool, environment: Mapping[str, str]) -> None:
        self._server = server
        self.mode = server.mode
        self.folder = folder
        self.trusted = True
        self._open = True
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours, takes_fds=not untrusted)
        folder.mkdir(parents=True)
        self._output = (folder / ".output").open("a+b", buffering=0)  # appended to, so that it can be cut while it is written
        (folder / ".output").unlink()
        order = {"mode": server.mode, "folder": str(folder), "untrusted": untrusted, "environment": dict(environment)}
        try:
            with theirs:
                self._id, self.pid = server.fork(order, [theirs.fileno(), self._output.fileno()])
        except BaseException:
            self._let_go()
            raise

    @property
    def alive(self) -> bool:
        """Whether it can be called, as far as is known. It is silent between calls: a word, or a hang-up, is its end."""
        return self._open and self._server.running and self._channel.quiet()

    def call(self, function: Callable[..., Any], *, timeout: float, fds: Sequence[int] = (), **args: Any) -> Any:
        """Run ``function(state, **args)`` in the child and return its JSON result. ``timeout`` in seconds."""
        result, received = self.call_with_fds(function, timeout=timeout, fds=fds, **args)
        close_fds(received)
        return result

    def call_with_fds(
        self, function: Callable[..., Any], *, timeout: float, fds: Sequence[int] = (), **args: Any
    ) -> tuple[Any, list[int]]:
        """Like ``call``, with the descriptors that the function gave back; the caller closes them."""
        if not self._open:
            raise ChildFailure("exited", "has ended before")
        os.ftruncate(self._output.fileno(), 0)
        try:
            self._channel.send({"function": f"{function.__module__}:{function.__qualname__}", "args": args}, fds, timeout)
            reply, received = self._receive(timeout)
        except TimedOut:
            raise self._failed("hung", f"did not finish within {timeout:g} s and was killed") from None
        except Closed:
            raise self._ended() from None
        except Garbled as error:
            raise self._failed("garbled", f"broke off the conversation with pytest ({error})") from None
        except BaseException:
            self.close()  # Ctrl-C: the reply would be taken for that of the next call
            raise
        if isinstance(reply, dict) and "result" in reply:
            return reply["result"], received
        close_fds(received)
        if not isinstance(reply, dict) or not isinstance(reply.get("error"), dict):
            raise self._failed("garbled", "broke off the conversation with pytest (a reply without a result)")
        raise self._raised({name: str(reply["error"].get(name, "")) for name in ("kind", "message", "where", "type", "trace")})

    def _receive(self, timeout: float) -> tuple[Any, list[int]]:
        """The reply. What a kernel started can hold the connection open when the child is gone: the server ends that, if it
        lives, so now and then that is looked at."""
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                return self._channel.receive(min(left, _LOOK_SECONDS))
            except TimedOut:
                if not self._server.running:
                    raise Closed from None
                if left <= _LOOK_SECONDS:
                    raise

    def _raised(self, error: dict[str, str]) -> Exception:
        error = {name: text.encode("utf-8", "backslashreplace").decode() for name, text in error.items()}
        if self.trusted and error["kind"] == "mistake":
            return KernelError(error["message"])
        if self.trusted and error["kind"] == "unavailable":
            return Unavailable(error["message"])
        about = {name: error[name] for name in ("where", "type", "trace")}
        return ChildFailure("raised", error["message"], **about, output=self.output())

    def output(self, most: int = 4000) -> str:
        """The end of what the child printed since the last call began."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - most))
        return self._output.read(most).decode(errors="replace")

    def _ended(self) -> ChildFailure:
        status = self._server.wait_exit(self._id, _ENDING_SECONDS)
        if status is None:
            running = self._server.running
            why = "closed its connection to pytest and was killed" if running else "was killed with the process that started it"
            return self._failed("exited" if running else "crashed", why)
        if status < 0:
            return self._failed("crashed", f"crashed with signal {-status} ({_signal_name(-status)})")
        return self._failed(
            "exited", "lost its connection to pytest" if status == BROKEN else f"ended itself with exit status {status}"
        )

    def _failed(self, kind: str, message: str) -> ChildFailure:
        output = self.output()
        self.close()
        return ChildFailure(kind, message, output=output)

    def close(self) -> None:
        """Kill the child and all that it started, and wait until it is gone, so that its GPU memory is free again."""
        if not self._open:
            return
        self._let_go()
        if not self._server.kill(self._id):
            raise Unavailable(
                f"process {self.pid} hangs inside the GPU driver and could not be killed within {KILL_SECONDS:.0f} s: "
                "end it (or reset the GPU) before running further kernels"
            )
        shutil.rmtree(self.folder, ignore_errors=True)

    def _let_go(self) -> None:
        self._open = False
        self._channel.close()
        self._output.close()


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else "unknown"


class Servers:
    """The fork servers of one pytest process, each started when first asked for, and the folder their children work in.

    ``gpu`` is the value of CUDA_VISIBLE_DEVICES for children: they see that one GPU, or none.
    """

    def __init__(self, scratch: Path, *, gpu: str | None) -> None:
        self.scratch = scratch
        self._gpu = gpu
        self._servers: dict[Mode, Server] = {}
        self._count = 0

    def warm(self, mode: Mode) -> None:
        """Start a server early, without waiting for it; anew when the last one came to an end after it had worked."""
        known = self._servers.get(mode)
        if known is not None and (known.running or known.hopeless):
            return
        if known is not None:
            known.close()
        self._count += 1
        self._servers[mode] = Server(mode, self._environment(mode), self.scratch / f"{mode}{self._count}")

    def start(self, mode: Mode, *, untrusted: bool, environment: Mapping[str, str] | None = None) -> Child:
        """A fresh child. ``environment`` is set in it before anything else happens."""
        while True:
            self.warm(mode)
            server = self._servers[mode]
            self._count += 1
            folder = server.folder / f"child{self._count}"
            try:
                return Child(server, folder, untrusted=untrusted, environment=environment or {})
            except Unavailable:
                if server.running or server.hopeless or not server.worked:
                    raise  # else it was killed since it last worked: another one takes its place

    def _environment(self, mode: Mode) -> dict[str, str]:
        dropped = ("TRITON_INTERPRET", "PYTEST_CURRENT_TEST", "PYTHONWARNINGS")
        environment = {k: v for k, v in os.environ.items() if k not in dropped}
        environment["TRITON_DEFAULT_FP_FUSION"] = environment.get("TRITON_DEFAULT_FP_FUSION", "1")
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        # children start in a scratch folder: the parent's own search path, made absolute, must hold there too
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.path.abspath(p or ".") for p in sys.path))
        if mode == "interpreter":
            environment["TRITON_INTERPRET"] = "1"
        environment["CUDA_VISIBLE_DEVICES"] = (self._gpu or "") if mode == "gpu" else ""
        return environment

    def close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()
