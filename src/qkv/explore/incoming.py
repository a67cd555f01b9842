"""What a connection sends, read until a deadline.

A timeout of a socket is for each piece alone: whoever sends a byte now and then holds a thread for ever.
"""

import io
import socket
import time
from typing import Any


class Incoming(io.RawIOBase):
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = 0.0

    def within(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)
