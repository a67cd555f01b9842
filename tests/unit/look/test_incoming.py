"""Reading with a deadline that pieces do not put off."""

import io
import socket

import pytest

from qkv.explore.incoming import Incoming


def test_until_a_deadline() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        incoming = Incoming(ours)
        reader = io.BufferedReader(incoming)
        theirs.sendall(b"GET / HTTP/1.1\r\nHost")
        incoming.within(20)
        assert reader.readline() == b"GET / HTTP/1.1\r\n"
        incoming.within(0.05)
        with pytest.raises(TimeoutError):
            reader.readline()  # the rest of it does not come
        incoming.within(0)
        theirs.sendall(b": x\r\n")
        with pytest.raises(TimeoutError):
            reader.readline()  # too late
        incoming.within(20)
        assert reader.readline().endswith(b": x\r\n")
        theirs.shutdown(socket.SHUT_WR)
        assert reader.readline() == b""
