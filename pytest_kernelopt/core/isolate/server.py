"""A fork server: torch and triton imported once, no CUDA context, one fork for each child that pytest asks for.

Runs as ``python -m pytest_kernelopt.core.isolate.server FD FOLDER``. FD is a socket to pytest; when pytest is gone (even
killed), the socket closes, and the server ends every process that it or its children ever started and removes FOLDER.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import os
import resource
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn, cast

from . import child
from .protocol import BROKEN, Channel, Closed, close_fds

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MOST_FILE_BYTES = 256 << 20  # of one file of an untrusted child, its output too: one that prints for ever must not fill the disk
_STRAY_SECONDS = 5.0  # for killed processes to be gone; one inside the driver can take longer, and is not waited for
_PRELOADED = ("numpy", "torch", "torch.profiler", "triton")
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class Server:
    """``children`` maps the pid of each living child to the id by which pytest knows it."""

    def __init__(self, control: Channel, folder: Path) -> None:
        self.control = control
        self.folder = folder
        self.children: dict[int, int] = {}
        self.wakeup, self._wake = socket.socketpair()
        self.wakeup.setblocking(False)
        self._wake.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.control, selectors.EVENT_READ)
        self.selector.register(self.wakeup, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.end())
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def run(self) -> NoReturn:
        while True:
            for key, _ in self.selector.select():
                try:
                    if key.fileobj is self.wakeup:
                        with contextlib.suppress(BlockingIOError):
                            self.wakeup.recv(4096)
                        self.reap()
                    else:
                        self.obey(*self.control.receive())
                except Closed:
                    self.end()

    def obey(self, message: dict[str, Any], fds: list[int]) -> None:
        if "fork" in message:
            self.fork(message["fork"], fds)
        elif message["kill"] in self.children.values():
            pid = next(pid for pid, known in self.children.items() if known == message["kill"])
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own

    def fork(self, order: dict[str, Any], fds: list[int]) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                self.be_child(order, fds)
            self.children[pid] = order["id"]
            self.control.send({"forked": order["id"], "pid": pid})
        except OSError as error:
            self.control.send({"forked": order["id"], "problem": f"{error.strerror}"})
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            close_fds(fds)

    def be_child(self, order: dict[str, Any], fds: list[int]) -> NoReturn:
        """Never back into the server's loop, whatever happens."""
        try:
            channel = self.become_child(order, fds)
            child.serve(channel, child.ChildState(mode=order["mode"], folder=Path(order["folder"])))
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(BROKEN)

    def become_child(self, order: dict[str, Any], fds: list[int]) -> Channel:
        """Leave nothing of the server's in this process: its signals, descriptors, session and folder."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        self.selector.close()
        self.control.close()
        self.wakeup.close()
        self._wake.close()
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if order["untrusted"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_FILE_BYTES, _MOST_FILE_BYTES))
            os.environ["TMPDIR"] = order["folder"]
        channel, output = fds
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        cast(io.TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)  # what it said is there when it dies
        os.chdir(order["folder"])
        os.environ.update(order["environment"])
        tempfile.tempdir = None
        return Channel(socket.socket(fileno=channel), takes_fds=True)

    def reap(self) -> None:
        """Learn which children ended; pytest is told when nothing is left of them."""
        ended = {}
        for pid in list(self.children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                ended[self.children.pop(pid)] = os.waitstatus_to_exitcode(status)
        self.end_strays()
        for known, status in ended.items():
            self.control.send({"exited": known, "status": status})

    def end_strays(self) -> None:
        """End what dead children left running: it was handed to this process, their subreaper, and so will be its children."""
        deadline = time.monotonic() + _STRAY_SECONDS
        while (strays := _children_of(os.getpid()) - self.children.keys()) and time.monotonic() < deadline:
            for pid in strays:  # children of this process, not waited for yet: nobody else has their pids
                with contextlib.suppress(PermissionError):
                    os.kill(pid, signal.SIGKILL)
            ended = [os.waitpid(pid, os.WNOHANG)[0] for pid in strays]
            if not any(ended):
                time.sleep(0.001)

    def end(self) -> NoReturn:
        try:
            for pid in self.children:
                os.kill(pid, signal.SIGKILL)
            self.children.clear()
            self.end_strays()
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.folder.parent.rmdir()  # when pytest was killed: nobody else would; not empty while others use it
        finally:
            os._exit(0)


def _children_of(parent: int) -> set[int]:
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text(errors="replace")
            except OSError:
                continue  # it ended while we looked
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                found.add(int(entry.name))
    return found


def main() -> None:
    control = Channel(socket.socket(fileno=int(sys.argv[1])), takes_fds=True)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is pytest's: it closes the socket when it is done
    missing = {}
    for name in _PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing[name] = str(error)
    server = Server(control, Path(sys.argv[2]))
    with contextlib.suppress(Closed):  # pytest left meanwhile: the loop ends at once
        control.send({"ready": os.getpid(), "missing": missing})
    server.run()


if __name__ == "__main__":
    main()
