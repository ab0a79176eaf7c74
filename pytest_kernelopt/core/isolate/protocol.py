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

_LENGTH = struct.Struct("<Q")
_LONGEST = 1 << 28
_MOST_FDS = 64


class Closed(Exception):
    """The other side is gone."""


class TimedOut(Exception):
    """No whole message came in the time given."""


class Garbled(Exception):
    """What came is not a message of this protocol."""


class Channel:
    """One end of a stream socket that carries whole messages."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def send(self, message: Any, fds: Sequence[int] = ()) -> None:
        body = json.dumps(message).encode()
        try:
            header = _LENGTH.pack(len(body))
            sent = socket.send_fds(self._sock, [header], list(fds)) if fds else self._sock.send(header)
            self._sock.sendall(header[sent:] + body)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def receive(self, timeout: float | None = None) -> tuple[Any, list[int]]:
        """The next message and the descriptors that came with it. ``timeout`` in seconds; None waits for ever."""
        deadline = None if timeout is None else time.monotonic() + timeout
        fds: list[int] = []
        try:
            header = self._read(_LENGTH.size, deadline, fds)
            (length,) = _LENGTH.unpack(header)
            if length > _LONGEST:
                raise Garbled(f"a message of {length} bytes was announced")
            return json.loads(self._read(length, deadline, fds)), fds
        except BaseException as error:
            for fd in fds:
                with contextlib.suppress(OSError):
                    os.close(fd)
            if isinstance(error, ConnectionResetError):
                raise Closed from error
            if isinstance(error, ValueError):
                raise Garbled(str(error)) from error
            raise

    def _read(self, size: int, deadline: float | None, fds: list[int]) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._sock], [], [], wait)[0]:
                raise TimedOut
            chunk, new, _, _ = socket.recv_fds(self._sock, min(size - len(parts), 1 << 20), _MOST_FDS)
            fds.extend(new)
            if not chunk:
                raise Closed
            parts += chunk
        return bytes(parts)
