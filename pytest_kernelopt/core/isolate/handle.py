"""pytest's handle on one fork server: what it started, how that ended, and that nothing of it stays behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ..errors import Unavailable
from .protocol import Channel, Closed, Garbled, TimedOut

Mode = Literal["gpu", "interpreter", "aot"]

KILL_SECONDS = 30.0  # a process inside the driver can take seconds to die
_START_SECONDS = 120.0  # importing torch and triton from a cold disk
_FORK_SECONDS = 30.0
_MARK = "KOPT_SERVER_FOLDER"  # in the environment of a server and of all that it starts


class Server:
    """One fork server, for one mode and one environment; started at once, waited for at the first child.

    ``problem`` says why it is of no use any more. All that it starts works in ``folder``, which goes with it.
    """

    def __init__(self, mode: Mode, environment: Mapping[str, str], folder: Path) -> None:
        self.mode = mode
        self.folder = folder
        self.problem: str | None = None
        self.hopeless = False  # it never worked, and another one would not
        self._ready = False
        self._last = 0
        self._exits: dict[int, int] = {}
        folder.mkdir(parents=True)
        ours, theirs = socket.socketpair()
        self._control = Channel(ours)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.server", str(theirs.fileno()), str(folder)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                cwd=folder,
                env={**environment, _MARK: str(folder)},
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether children can be had from it, as far as is known."""
        return self.problem is None and self._process.poll() is None

    @property
    def worked(self) -> bool:
        return self._last > 1

    def fork(self, order: dict[str, Any], fds: Sequence[int]) -> tuple[int, int]:
        """A new child: its id with this server, and its pid."""
        self._wait_ready()
        self._last += 1
        with self._talking("the process that starts kernels was killed, or does not answer"):
            self._control.send({"fork": {**order, "id": self._last}}, fds, _FORK_SECONDS)
            answer = self._wait_for("forked", self._last, _FORK_SECONDS)
        if "pid" not in answer:
            raise Unavailable(f"no process could be started: {answer['problem']}")
        return self._last, int(answer["pid"])

    def kill(self, child: int) -> bool:
        """Kill a child and all that it started; whether they are gone."""
        if self.problem is None:
            with contextlib.suppress(Unavailable), self._talking("the process that starts kernels was killed"):
                self._control.send({"kill": child}, timeout=_FORK_SECONDS)
        if self.wait_exit(child, KILL_SECONDS) is not None:
            return True
        if self.problem is None and self._stopped():  # a kernel stopped it: what it watches over ends with it
            self.problem = "the process that starts kernels was stopped by one of them"
            self._end()
        return not self.running

    def _stopped(self) -> bool:
        """Whether the server was sent SIGSTOP: it is there, and answers nothing."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] in ("T", "t")

    def wait_exit(self, child: int, timeout: float) -> int | None:
        """The exit status of a child (negative: a signal), or None when it is still there after ``timeout`` seconds."""
        if self.problem is None:
            with (
                contextlib.suppress(Unavailable, TimedOut),
                self._talking("the process that starts kernels was killed", TimedOut),
            ):
                self._wait_for("exited", child, timeout)
        return self._exits.get(child)

    def _wait_ready(self) -> None:
        if self._ready:
            return
        if self.problem is None:
            with self._talking(f"the process that runs kernels did not start within {_START_SECONDS:.0f} s"):
                message, _ = self._control.receive(_START_SECONDS)
            if "torch" in message["missing"]:
                self.problem, self.hopeless = f"torch cannot be imported: {message['missing']['torch']}", True
        if self.problem is not None:
            raise Unavailable(self.problem)
        self._ready = True

    def _wait_for(self, what: str, child: int, timeout: float) -> dict[str, Any]:
        """Read what the server says until it says this of this child; exits of others are kept."""
        deadline = time.monotonic() + timeout
        while not (what == "exited" and child in self._exits):
            message, _ = self._control.receive(max(0.0, deadline - time.monotonic()))
            if "exited" in message:
                self._exits[message["exited"]] = message["status"]
            elif message.get(what) == child:
                return dict(message)
        return {}

    @contextlib.contextmanager
    def _talking(self, problem: str, *harmless: type[Exception]) -> Any:
        """A word with the server. When it breaks off, also by Ctrl-C, the server is of no use any more, and is ended."""
        try:
            yield
        except harmless:
            raise
        except (Closed, TimedOut, Garbled):
            self.problem = problem
            said = self._end()
            if not self._ready:
                self.problem, self.hopeless = f"the process that runs kernels did not start: {said}", True
            raise Unavailable(self.problem) from None
        except BaseException:
            self.problem = problem
            self._end()
            raise

    def _end(self) -> str:
        """Kill the server, if it is there, and what it started; the last line that it said."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        _kill_marked(self.folder)
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - 4000))
        return (self._said.read().decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]

    def close(self) -> None:
        """End the server and all that it started."""
        self.problem = self.problem or "it was closed"
        self._control.close()
        self._said.close()
        try:
            ended = self._process.wait(KILL_SECONDS) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            ended = False
        if not ended:
            self._process.wait()
            _kill_marked(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


def _kill_marked(folder: Path) -> None:
    """Kill every process that a dead server left: by their environment, as they may have left its session and its family."""
    mark = f"{_MARK}={folder}".encode() + b"\0"
    for _ in range(3):  # one may be forking as it is killed
        for entry in os.scandir("/proc"):
            with contextlib.suppress(OSError):  # another user's, or it ended meanwhile
                if entry.name.isdigit() and mark in Path(entry.path, "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
