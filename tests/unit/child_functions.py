"""What tests call in a child."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from pytest_kernelopt.core.errors import KernelError, Unavailable
from pytest_kernelopt.core.isolate.child import ChildState


def echo(state: ChildState, **args: Any) -> Any:
    return args


def about(state: ChildState) -> dict[str, Any]:
    """What this process is and has."""
    fds = {
        int(fd): os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")
    }
    handled = {s.name: str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "folder": os.getcwd(),
        "fds": [place for _, place in sorted(fds.items()) if "/proc/" not in place],
        "signals": handled,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "interpret": os.environ.get("TRITON_INTERPRET"),
        "cuda": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "imported": [name for name in ("torch", "triton", "pytest") if name in sys.modules],
        "temporary": os.environ.get("TMPDIR"),
    }


def raise_kernel_error(state: ChildState) -> None:
    raise KernelError("mend it")


def raise_unavailable(state: ChildState) -> None:
    raise Unavailable("no such thing here")


def raise_novel(state: ChildState) -> None:
    raise ValueError("x" * 100_000_000)


def raise_unspeakable(state: ChildState) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    raise Mute


def return_unspeakable(state: ChildState) -> Any:
    return {"a": object()}


def give_fds(state: ChildState, *, fail: bool) -> str:
    state.outgoing += [os.dup(0) for _ in range(5)]
    if fail:
        raise ValueError("after it opened some")
    return "here"


def count_fds(state: ChildState) -> int:
    return len(os.listdir("/proc/self/fd"))


def say(state: ChildState, *, text: str) -> None:
    print(text)


def sleep(state: ChildState, *, seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def end_later(state: ChildState) -> None:
    """Answer, and die after it."""
    signal.setitimer(signal.ITIMER_REAL, 0.05)


def speak_unasked(state: ChildState) -> None:
    fd = next(fd for fd in range(3, 100) if os.path.exists(f"/dev/fd/{fd}") and "socket" in os.readlink(f"/dev/fd/{fd}"))
    if os.fork() == 0:
        time.sleep(0.1)
        os.write(fd, b"garbage")
        os._exit(0)


def write_file(state: ChildState, *, megabytes: int) -> None:
    with open("large", "wb") as file:
        for _ in range(megabytes):
            file.write(b"-" * (1 << 20))


def start_family(state: ChildState, *, count: int) -> list[int]:
    """Processes that leave the group, the session and the family, and one that stays and starts others."""
    pids = []
    for _ in range(count):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.setsid()
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(600)
            os.write(writer, str(pid).encode())
            os._exit(0)
        pids.append(int(os.read(reader, 20)))
    if (pid := os.fork()) == 0:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
        time.sleep(600)
    return [*pids, pid]


def file_of(state: ChildState, name: str) -> str | None:
    """Where a library that this process has imported comes from."""
    return sys.modules[name].__file__
