"""The parent's side of its children: start one, call a function in it, learn how it ended, leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ..errors import KernelError, Unavailable
from .protocol import Channel, Closed, Garbled, TimedOut

Mode = Literal["gpu", "interpreter", "aot"]

_START_SECONDS = 120.0  # importing torch and triton from a cold disk
_KILL_SECONDS = 30.0  # a process inside the driver can take seconds to die


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


class Server:
    """One fork server, for one mode and one environment; started at once, waited for at the first child."""

    def __init__(self, mode: Mode, environment: Mapping[str, str]) -> None:
        self.mode = mode
        ours, theirs = socket.socketpair()
        self.control = Channel(ours)
        self.exits: dict[int, int] = {}
        self.ready = False
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=dict(environment),
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        if self.ready:
            return
        try:
            message, _ = self.control.receive(_START_SECONDS)
        except (Closed, TimedOut):
            self.process.kill()
            _, said = self.process.communicate()
            last = said.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise Unavailable(f"the process that runs kernels did not start: {last[0]}") from None
        if "torch" in message["missing"]:
            raise Unavailable(f"torch cannot be imported: {message['missing']['torch']}")
        self.missing: dict[str, str] = message["missing"]
        self.ready = True

    def fork(self, order: dict[str, Any], fds: Sequence[int]) -> int:
        self.wait_ready()
        try:
            self.control.send({"fork": order}, fds)
            pid = int(self._wait_for("forked", None, _START_SECONDS))
        except (Closed, TimedOut):
            raise Unavailable("the process that starts kernels is gone: it was killed, or the machine is out of memory") from None
        self.exits.pop(pid, None)  # pids are used again
        return pid

    def wait_exit(self, pid: int, timeout: float) -> int | None:
        """The exit status of a child (negative: a signal), or None when it is still there after ``timeout`` seconds."""
        with contextlib.suppress(Closed, TimedOut):  # it may have been recorded while waiting for something else
            self._wait_for("exited", pid, timeout)
        return self.exits.get(pid)

    def _wait_for(self, what: str, pid: int | None, timeout: float) -> Any:
        deadline = time.monotonic() + timeout
        while pid is None or pid not in self.exits:
            message, _ = self.control.receive(max(0.0, deadline - time.monotonic()))
            if "exited" in message:
                self.exits[message["exited"]] = message["status"]
            elif what in message:
                return message[what]
        return pid

    def close(self) -> None:
        self.control.close()
        try:
            self.process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()


class Child:
    """One child process. Any failure but ``raised`` ends it; a closed child is never used again."""

    def __init__(self, server: Server, folder: Path, *, untrusted: bool, environment: Mapping[str, str]) -> None:
        self._server = server
        self.mode = server.mode
        self.folder = folder
        self.alive = True
        ours, theirs = socket.socketpair()
        self._output = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed with the child
        self._channel = Channel(ours)
        order = {"mode": server.mode, "folder": str(folder), "untrusted": untrusted, "environment": dict(environment)}
        try:
            with theirs:
                self.pid = server.fork(order, [theirs.fileno(), self._output.fileno()])
        except BaseException:
            self.alive = False
            self._channel.close()
            self._output.close()
            raise

    def call(self, function: Callable[..., Any], *, timeout: float, fds: Sequence[int] = (), **args: Any) -> Any:
        """Run ``function(state, **args)`` in the child and return its JSON result. ``timeout`` in seconds."""
        return self.call_with_fds(function, timeout=timeout, fds=fds, **args)[0]

    def call_with_fds(
        self, function: Callable[..., Any], *, timeout: float, fds: Sequence[int] = (), **args: Any
    ) -> tuple[Any, list[int]]:
        """Like ``call``, with the descriptors that the function gave back; the caller closes them."""
        if not self.alive:
            raise ChildFailure("exited", "the process of this kernel has ended")
        try:
            self._channel.send({"function": f"{function.__module__}:{function.__qualname__}", "args": args}, fds)
            reply, received = self._channel.receive(timeout)
        except TimedOut:
            raise self._failed("hung", f"did not finish within {timeout:g} s and was killed") from None
        except Closed:
            raise self._ended() from None
        except Garbled as error:
            raise self._failed("garbled", f"broke off the conversation with pytest: {error}") from None
        except BaseException:
            self.close()  # Ctrl-C: the reply would be taken for that of the next call
            raise
        if isinstance(reply, dict) and "result" in reply:
            return reply["result"], received
        close_fds(received)
        if not isinstance(reply, dict) or not isinstance(reply.get("error"), dict):
            raise self._failed("garbled", "broke off the conversation with pytest: a reply without a result")
        raised = {name: str(reply["error"].get(name, "")) for name in ("kind", "message", "where", "type", "trace")}
        if raised["kind"] == "mistake":
            raise KernelError(raised["message"])
        if raised["kind"] == "unavailable":
            raise Unavailable(raised["message"])
        raise ChildFailure(
            "raised", raised["message"], where=raised["where"], type=raised["type"], trace=raised["trace"], output=self.output()
        )

    def output(self, most: int = 4000) -> str:
        """The end of what the child printed."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - most))
        return self._output.read().decode(errors="replace")

    def _ended(self) -> ChildFailure:
        status = self._server.wait_exit(self.pid, 2.0)
        if status is not None and status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else "unknown"
            return self._failed("crashed", f"crashed with signal {-status} ({name})")
        return self._failed("exited", f"ended its process with exit status {'unknown' if status is None else status}")

    def _failed(self, kind: str, message: str) -> ChildFailure:
        output = self.output()
        self.close()
        return ChildFailure(kind, message, output=output)

    def close(self) -> None:
        """Kill the child and all that it started, and wait until it is gone, so that its GPU memory is free again."""
        if not self.alive:
            return
        self.alive = False
        self._channel.close()
        with contextlib.suppress(Closed):
            self._server.control.send({"kill": self.pid})
            if self._server.wait_exit(self.pid, _KILL_SECONDS) is None and Path(f"/proc/{self.pid}").exists():
                raise Unavailable(
                    f"process {self.pid} hangs inside the GPU driver and could not be killed within {_KILL_SECONDS:.0f} s: "
                    "end it (or reset the GPU) before running further kernels"
                )
        self._output.close()


def close_fds(fds: Sequence[int]) -> None:
    """Close the descriptors that came with a result."""
    for fd in fds:
        os.close(fd)


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
        """Start a server early, without waiting for it."""
        if mode not in self._servers:
            self._servers[mode] = Server(mode, self._environment(mode))

    def start(self, mode: Mode, *, untrusted: bool, environment: Mapping[str, str] | None = None) -> Child:
        """A fresh child. ``environment`` is set in it before anything else happens."""
        self.warm(mode)
        if self._servers[mode].process.poll() is not None:
            self._servers.pop(mode).close()
            self.warm(mode)
        self._count += 1
        folder = self.scratch / f"child{self._count}"
        folder.mkdir()
        return Child(self._servers[mode], folder, untrusted=untrusted, environment=environment or {})

    def _environment(self, mode: Mode) -> dict[str, str]:
        environment = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "PYTEST_CURRENT_TEST")}
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
