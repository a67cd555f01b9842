"""The clients of bench/serve.py: plain sockets in one thread, in a process that imports nothing heavy.

python bench/serve_clients.py PORT PATH TEXTS.json CLIENTS SECONDS      # prints what it found as JSON
"""

import json
import re
import resource
import selectors
import socket
import sys
import time
from pathlib import Path
from typing import Any


class Client:
    """One connection, which asks for one text after the other."""

    def __init__(self, port: int, requests: list[bytes], at: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.requests, self.at = requests, at
        self.buffer, self.begin = b"", 0.0

    def ask(self) -> None:
        self.begin = time.perf_counter()
        self.socket.sendall(self.requests[self.at % len(self.requests)])
        self.at += 1

    def hear(self) -> bool:
        """Whether the response is complete."""
        self.buffer += self.socket.recv(1 << 18)
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return False
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None and head.startswith(b"HTTP/1.1 200"), self.buffer[:500]
        if len(body) < int(length[1]):
            return False
        self.buffer = b""
        return True


def ask_for(port: int, requests: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """Ask for so many seconds, and hear the last answers. The first tenth is not counted, nor what comes after the end;
    the time is from the last answer before the first that is counted to the last one that is."""
    chosen = selectors.DefaultSelector()
    every = len(requests) // clients
    for number in range(clients):
        client = Client(port, requests, number * every)
        chosen.register(client.socket, selectors.EVENT_READ, client)
        client.ask()
    begin = time.perf_counter()
    counted, end = begin + seconds / 10, begin + seconds
    taken: list[float] = []
    first = last = begin
    used = _cpu()
    while (now := time.perf_counter()) < end:
        for key, _ in chosen.select(end - now):
            if key.data.hear():
                last = time.perf_counter()
                if last >= counted:
                    taken.append(last - key.data.begin)
                else:
                    first = last
                key.data.ask()
    used = _cpu() - used
    return {"times": taken, "seconds": last - first, "cpu": used}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    port, path, file, clients, seconds = sys.argv[1:]
    requests = []
    for text in json.loads(Path(file).read_text(encoding="utf-8")):
        fields = {"input": text, "model": "minilm"} if path.startswith("/v1/") else {"inputs": text}
        body = json.dumps(fields).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        requests.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    print(json.dumps(ask_for(int(port), requests, int(clients), float(seconds))))


if __name__ == "__main__":
    main()
