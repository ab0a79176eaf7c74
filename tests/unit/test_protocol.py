from __future__ import annotations

import json
import os
import resource
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from pytest_kernelopt.core.isolate.protocol import MOST_FDS, Channel, Closed, Garbled, TimedOut, close_fds


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Two ends; the second takes descriptors."""
    a, b = socket.socketpair()
    first, second = Channel(a), Channel(b, takes_fds=True)
    yield first, second
    first.close()
    second.close()


@pytest.fixture
def raw() -> Iterator[tuple[socket.socket, Channel]]:
    """What says anything, and a channel that hears it."""
    a, b = socket.socketpair()
    channel = Channel(b)
    yield a, channel
    a.close()
    channel.close()


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_message_arrives_as_it_was(ends: tuple[Channel, Channel]) -> None:
    message = {"text": "ä \udcff", "numbers": [1, -2.5, float("inf")], "none": None}
    ends[0].send(message)
    assert ends[1].receive(1) == (message, [])


def test_a_large_message_goes_through_a_small_buffer(ends: tuple[Channel, Channel]) -> None:
    text = "x" * (5 << 20)
    thread = threading.Thread(target=ends[0].send, args=(text,))
    thread.start()
    assert ends[1].receive(10)[0] == text
    thread.join()


def test_descriptors_come_with_their_own_message_and_are_not_inherited(ends: tuple[Channel, Channel]) -> None:
    pipes = [os.pipe() for _ in range(2)]
    ends[0].send("first", [pipes[0][1]])
    ends[0].send("second", [pipes[1][1]])
    for text, (reader, writer) in zip(("first", "second"), pipes, strict=True):
        message, fds = ends[1].receive(1)
        assert message == text
        assert not os.get_inheritable(fds[0])
        os.write(fds[0], text.encode())
        assert os.read(reader, 10) == text.encode()
        close_fds([reader, writer, *fds])


def test_as_many_descriptors_as_are_allowed_go_in_one_message(ends: tuple[Channel, Channel]) -> None:
    before = open_fds()
    ends[0].send("many", [0] * MOST_FDS)
    _, fds = ends[1].receive(1)
    assert len(fds) == MOST_FDS
    close_fds(fds)
    with pytest.raises(ValueError, match="at most"):
        ends[0].send("more", [0] * (MOST_FDS + 1))
    assert open_fds() == before


def test_descriptors_are_not_taken_from_who_must_not_send_any(ends: tuple[Channel, Channel]) -> None:
    before = open_fds()
    ends[1].send("here", [0] * 50)
    assert ends[0].receive(1) == ("here", [])
    assert open_fds() == before


def test_descriptors_of_a_message_that_never_became_whole_are_closed(ends: tuple[Channel, Channel]) -> None:
    before = open_fds()
    socket.send_fds(ends[0]._sock, [struct.pack("<Q", 100)], [0, 1])
    with pytest.raises(TimedOut):
        ends[1].receive(0.01)
    assert open_fds() == before + 2
    ends[1].close()
    assert open_fds() == before - 1


def test_what_came_before_the_time_ran_out_is_not_lost(raw: tuple[socket.socket, Channel]) -> None:
    body = json.dumps({"a": 1}).encode()
    whole = struct.pack("<Q", len(body)) + body
    for piece in (whole[:3], whole[3:12]):
        raw[0].sendall(piece)
        with pytest.raises(TimedOut):
            raw[1].receive(0.01)
    raw[0].sendall(whole[12:] + whole)
    assert raw[1].receive(1)[0] == {"a": 1}
    assert raw[1].receive(1)[0] == {"a": 1}


def test_the_other_side_gone_is_told_also_in_the_middle(raw: tuple[socket.socket, Channel]) -> None:
    assert raw[1].quiet()
    raw[0].sendall(struct.pack("<Q", 100) + b"half")
    raw[0].close()
    assert not raw[1].quiet()
    with pytest.raises(Closed):
        raw[1].receive(1)
    with pytest.raises(Closed):
        raw[1].send("x" * (5 << 20))


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"\xff" * 64, id="a length beyond reason"),
        pytest.param(struct.pack("<Q", 4) + b"{]{]", id="no JSON"),
        pytest.param(struct.pack("<Q", 2) + b"\xff\xfe", id="no text"),
        pytest.param(struct.pack("<Q", 200_000) + b"[" * 200_000, id="nested without end"),
    ],
)
def test_what_is_no_message_is_garbled(raw: tuple[socket.socket, Channel], said: bytes) -> None:
    thread = threading.Thread(target=raw[0].sendall, args=(said,))
    thread.start()
    with pytest.raises(Garbled):
        raw[1].receive(5)
    thread.join()


def test_who_does_not_read_does_not_hold_up_the_sender_for_ever(ends: tuple[Channel, Channel]) -> None:
    with pytest.raises(TimedOut):
        ends[0].send("x" * (5 << 20), timeout=0.05)


def test_what_json_cannot_hold_is_refused_before_anything_is_sent(ends: tuple[Channel, Channel]) -> None:
    with pytest.raises(TypeError):
        ends[0].send({"a": object()})
    ends[0].send("after")
    assert ends[1].receive(1)[0] == "after"


def test_a_process_with_many_open_files_can_still_talk() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3000:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (3000, hard))
    a, b = socket.socketpair()
    try:
        os.dup2(a.fileno(), 2900)
        channel, other = Channel(socket.socket(fileno=2900)), Channel(b)
        other.send("hello")
        assert channel.receive(1)[0] == "hello"
        channel.send("and back")
        assert other.receive(1)[0] == "and back"
        channel.close()
    finally:
        a.close()
        b.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
