"""A fork server: torch and triton imported once, no CUDA context, one fork for each child that pytest asks for.

Runs as ``python -m pytest_kernelopt.core.isolate.server FD``. FD is a socket to pytest; when pytest is gone (even killed),
the socket closes, and the server ends every process that it or its children ever started.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import resource
import selectors
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from . import child
from .protocol import Channel, Closed

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MOST_FILE_BYTES = 16 << 30  # what one child may write to a file: a kernel that prints for ever must not fill the disk
_PRELOADED = ("numpy", "torch", "torch.profiler", "triton")


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class Server:
    def __init__(self, control: Channel) -> None:
        self.control = control
        self.children: set[int] = set()
        self.wakeup, wake = socket.socketpair()
        self.wakeup.setblocking(False)
        wake.setblocking(False)
        self._wake = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)

    def run(self) -> NoReturn:
        selector = selectors.DefaultSelector()
        selector.register(self.control, selectors.EVENT_READ)
        selector.register(self.wakeup, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is self.wakeup:
                    with contextlib.suppress(BlockingIOError):
                        self.wakeup.recv(4096)
                    self.reap()
                else:
                    try:
                        message, fds = self.control.receive()
                    except Closed:
                        self.end()
                    self.obey(message, fds)

    def obey(self, message: dict[str, Any], fds: list[int]) -> None:
        if "fork" in message:
            self.fork(message["fork"], fds)
        elif "kill" in message:
            self.kill(message["kill"])

    def fork(self, order: dict[str, Any], fds: list[int]) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                self.become_child(order, fds)
            finally:
                os._exit(70)  # never fall back into the server's loop
        for fd in fds:
            os.close(fd)
        self.children.add(pid)
        self.control.send({"forked": pid})

    def become_child(self, order: dict[str, Any], fds: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        self.control.close()
        self.wakeup.close()
        self._wake.close()
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if order["untrusted"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_FILE_BYTES, _MOST_FILE_BYTES))
        channel_fd, output_fd = fds
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(output_fd, 1)
        os.dup2(output_fd, 2)
        os.close(output_fd)
        os.chdir(order["folder"])
        os.environ.update(order["environment"])
        tempfile.tempdir = None
        child.serve(Channel(socket.socket(fileno=channel_fd)), child.ChildState(mode=order["mode"], folder=Path(order["folder"])))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def kill(self, pid: int) -> None:
        if pid in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            if pid in self.children:
                self.children.discard(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                with contextlib.suppress(Closed):
                    self.control.send({"exited": pid, "status": os.waitstatus_to_exitcode(status)})
        self.kill_orphans()

    def kill_orphans(self) -> None:
        """What a dead child left running was handed to this process, its subreaper."""
        me = os.getpid()
        for pid in _children_of(me) - self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> NoReturn:
        for pid in list(self.children):
            self.kill(pid)
        for _ in range(200):
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
            self.kill_orphans()
        os._exit(0)


def _children_of(parent: int) -> set[int]:
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text()
            except OSError:
                continue  # it ended while we looked
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                found.add(int(entry.name))
    return found


def main() -> None:
    control = Channel(socket.socket(fileno=int(sys.argv[1])))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is pytest's: it closes the socket when it is done
    missing = {}
    for name in _PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing[name] = str(error)
    control.send({"ready": os.getpid(), "missing": missing})
    Server(control).run()


if __name__ == "__main__":
    main()
