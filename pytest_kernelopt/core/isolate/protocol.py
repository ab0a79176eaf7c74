"""Messages between pytest and its children: a length, then JSON, with file descriptors beside it.

JSON and never pickle: a reply may come from a process that ran a hostile kernel.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

MOST_FDS = 250  # with one message; Linux takes 253
BROKEN = 70  # exit status of a child that could not go on talking to pytest
_LENGTH = struct.Struct("<Q")
_LONGEST = 1 << 26
_PIECE = 1 << 20


class Closed(Exception):
    """The other side is gone."""


class TimedOut(Exception):
    """No whole message came, or could be sent, in the time given."""


class Garbled(Exception):
    """What came is not a message of this protocol."""


class Channel:
    """One end of a stream socket that carries whole messages.

    Without ``takes_fds``, descriptors that the other side sends are closed by the kernel and never come into this process.
    """

    def __init__(self, sock: socket.socket, *, takes_fds: bool = False) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._takes_fds = takes_fds
        self._came = bytearray()  # also what came of a message when the time for it ran out
        self._fds: list[int] = []

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        close_fds(self._fds)
        self._fds = []
        self._sock.close()

    def quiet(self) -> bool:
        """Whether the other side is there and has nothing to say."""
        return not self._came and not self._wait(select.POLLIN, time.monotonic())

    def send(self, message: Any, fds: Sequence[int] = (), timeout: float | None = None) -> None:
        """TypeError and ValueError for what JSON can't hold, before anything is sent. ``timeout`` as in ``receive``."""
        body = json.dumps(message).encode()
        if len(fds) > MOST_FDS:
            raise ValueError(f"{len(fds)} descriptors in one message: at most {MOST_FDS} can go")
        deadline = None if timeout is None else time.monotonic() + timeout
        data = memoryview(_LENGTH.pack(len(body)) + body)
        while data:
            if not self._wait(select.POLLOUT, deadline):
                raise TimedOut
            try:
                piece = data[:_PIECE]
                sent = socket.send_fds(self._sock, [piece], list(fds)) if fds else self._sock.send(piece)
            except BlockingIOError:
                continue
            except (BrokenPipeError, ConnectionResetError) as error:
                raise Closed from error
            data, fds = data[sent:], ()

    def receive(self, timeout: float | None = None) -> tuple[Any, list[int]]:
        """The next message and the descriptors that came with it. ``timeout`` in seconds; None waits for ever."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._fill(_LENGTH.size, deadline)
        (length,) = _LENGTH.unpack_from(self._came)
        if length > _LONGEST:
            raise Garbled(f"a message of {length} bytes was announced")
        whole = _LENGTH.size + length
        self._fill(whole, deadline)
        body = bytes(self._came[_LENGTH.size : whole])
        del self._came[:whole]
        fds, self._fds = self._fds, []
        try:
            return json.loads(body), fds
        except (ValueError, RecursionError) as error:
            close_fds(fds)
            raise Garbled(str(error)) from error

    def _fill(self, size: int, deadline: float | None) -> None:
        """Read until ``size`` bytes are there, and not one more: what follows may have descriptors of its own."""
        while (missing := size - len(self._came)) > 0:
            if not self._wait(select.POLLIN, deadline):
                raise TimedOut
            fds: list[int] = []
            try:
                if self._takes_fds:
                    piece, fds, _, _ = socket.recv_fds(self._sock, min(missing, _PIECE), MOST_FDS)
                else:
                    piece = self._sock.recv(min(missing, _PIECE))
            except BlockingIOError:
                continue
            except ConnectionResetError as error:
                raise Closed from error
            for fd in fds:
                os.set_inheritable(fd, False)  # recv_fds takes no MSG_CMSG_CLOEXEC: up to 3.13 it ignores its flags
            self._fds += fds
            if not piece:
                raise Closed
            self._came += piece

    def _wait(self, event: int, deadline: float | None) -> bool:
        """Until the socket is ready, or the other side is gone; False when the time is up. poll, as a descriptor may be large."""
        poll = select.poll()
        poll.register(self._sock, event)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return bool(poll.poll(None if left is None else left * 1000))


def close_fds(fds: Sequence[int]) -> None:
    """Close the descriptors that came with a message."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
