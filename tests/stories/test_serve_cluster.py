"""`qkv serve --cluster` on Ray Serve: requests to two replicas, one of which is lost; SIGTERM; messages."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import two_nodes, wait_for, without_network
from tests.support.folders import make_folder

pytestmark = pytest.mark.slow
TOKEN = "a-token-of-mine"


def ask(port: int) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/models/words",
        json.dumps({"inputs": "the [MASK] sat"}).encode(),
        {"Authorization": f"Bearer {TOKEN}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def answers(port: int) -> bool:
    try:
        return bool(ask(port))
    except OSError:
        return False


def test_replicas_answer_and_end(tmp_path: Path) -> None:
    make_folder(tmp_path / "bert")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with two_nodes(connected=False) as cluster:
        words = [sys.executable, "-m", "qkv", "serve", f"words={tmp_path / 'bert'}", "--cluster", cluster.address]
        words += ["--port", str(port), "--replicas", "2", "--token", TOKEN]

        with subprocess.Popen(
            words, env=without_network(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == f"http://127.0.0.1:{port}/\n"
                found = ask(port)
                assert all(ask(port) == found for _ in range(20))
                cluster.lose()  # its proxy listens on the same address, and may answer for a moment
                wait_for(lambda: all(answers(port) for _ in range(20)))
                assert ask(port) == found
                process.send_signal(signal.SIGTERM)
                out, said = process.communicate(timeout=60)
            finally:
                process.kill()
        assert process.returncode == 0, said
        assert out == ""
        assert "stopping: accepted requests are finished" in said and "Traceback" not in said and TOKEN not in said
        assert not answers(port)
