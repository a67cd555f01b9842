"""qkv serve as a process: what it prints and refuses, requests over HTTP, and its end in the middle of them."""

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import pytest

import qkv
from qkv.cli.main import main
from tests.support.folders import make_folder
from tests.support.task_folders import task_folder

TEXT = "the cat sat on the mat because it was too tired . 我爱北京。"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("serve")
    # wide enough that a batch takes a moment
    mini = make_folder(place / "mini", "BertModel", layers=4, width=128, inner_width=512)
    return {"mini": mini, "tag": task_folder(place / "tag", "tag")}


class Running(NamedTuple):
    process: "subprocess.Popen[str]"
    port: int
    log: Path  # its standard error


@contextmanager
def serving(*words: object) -> Iterator[Running]:
    command = [sys.executable, "-m", "qkv", "serve", *map(str, words), "--port", "0", "--threads", "1"]
    with (
        NamedTemporaryFile("w+", encoding="utf-8") as log,  # a pipe that nobody reads would stop the server
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8") as process,
    ):
        try:
            assert process.stdout is not None
            link = process.stdout.readline()
            assert link.startswith("http://127.0.0.1:"), Path(log.name).read_text(encoding="utf-8")
            yield Running(process, int(link.rstrip("/\n").rpartition(":")[2]), Path(log.name))
        finally:
            process.kill()


class Asked(NamedTuple):
    status: int
    body: Any
    closes: bool


class Client:
    """Asks over one connection, until the server says that it closes it."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def ask(self, model: str, inputs: Any) -> Asked:
        return self.send("POST", f"/models/{model}", {"inputs": inputs})

    def send(self, method: str, path: str, body: Any = None) -> Asked:
        self.connection.request(method, path, None if body is None else json.dumps(body))
        answer = self.connection.getresponse()
        found = answer.read()
        content = json.loads(found) if found.startswith((b"{", b"[")) else found.decode()
        return Asked(answer.status, content, answer.getheader("connection") == "close")


def get(port: int, path: str) -> Asked:
    with Client(port) as client:
        return client.send("GET", path)


def vectors_of(body: Any) -> Any:
    return body[0] if isinstance(body[0], list) else body


def test_requests_are_answered_until_the_end(folders: dict[str, Path]) -> None:
    expected = qkv.load(folders["mini"]).embed([TEXT]).vectors[0]
    with serving(f"mini={folders['mini']}", folders["tag"], "--drain-delay", "0.3") as (process, port, log):
        with Client(port) as first:
            assert first.send("GET", "/readyz").status == 200
            assert first.ask("tag", TEXT).status == 200
            assert first.ask("mimi", TEXT).status == 404
        answers: list[Asked] = []
        faults: list[Exception] = []

        def keep_asking() -> None:
            try:
                with Client(port) as client:
                    while not (answer := client.ask("mini", TEXT)).closes:
                        answers.append(answer)
                    answers.append(answer)
            except Exception as error:
                faults.append(error)

        threads = [threading.Thread(target=keep_asking) for _ in range(12)]
        for thread in threads:
            thread.start()
        while len(answers) < 50 and not faults:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(60)
        assert process.wait(60) == 0
        assert faults == [], "a request was lost"
        assert {one.status for one in answers} == {200} and sum(one.closes for one in answers) == 12
        for one in answers[::7]:
            assert vectors_of(one.body) == pytest.approx(expected, abs=1e-4)
        lines = log.read_text(encoding="utf-8").splitlines()
    logged = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(logged) == 3 + len(answers)
    assert {one["status"] for one in logged} == {200, 404}
    asked = [one for one in logged if one["model"] == "mini"]
    assert {one["tokens"] for one in asked} == {19} and {one["windows"] for one in asked} == {1}
    said = "\n".join(line for line in lines if not line.startswith("{"))
    assert "mini: feature-extraction, sentence-similarity" in said and "tag: token-classification" in said
    assert "Traceback" not in said


def test_a_second_signal_ends_it_at_once(folders: dict[str, Path]) -> None:
    with serving(folders["mini"], "--drain-delay", "60", "--no-access-log") as (process, port, _):
        assert get(port, "/readyz").status == 200
        process.send_signal(signal.SIGTERM)
        while get(port, "/readyz").status != 503:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM


def flood(port: int, seconds: float, clients: int = 40) -> dict[int, int]:
    """Ask for more than can be computed; return how often each status came."""
    end = time.monotonic() + seconds
    counts: dict[int, int] = {}
    lock = threading.Lock()

    def keep_asking() -> None:
        with Client(port) as client:
            while time.monotonic() < end:
                found = client.ask("mini", [TEXT * 3] * 8)
                is_right = found.status != 200 or len(found.body) == 8
                with lock:
                    counts[found.status if is_right else -1] = counts.get(found.status, 0) + 1

    threads = [threading.Thread(target=keep_asking) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts


def resident(process: "subprocess.Popen[str]") -> float:
    pages = Path(f"/proc/{process.pid}/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * resource.getpagesize() / 2**20


@pytest.mark.parametrize("seconds", [1.5, pytest.param(600.0, marks=pytest.mark.slow)])
def test_an_overload_is_refused_and_memory_stays(folders: dict[str, Path], seconds: float) -> None:
    limits = ("--max-batch-tokens", "400", "--max-queue-tokens", "2000", "--no-access-log")
    with serving(f"mini={folders['mini']}", *limits) as (process, port, _):
        flood(port, min(seconds, 30.0) / 3)  # what is allocated once
        before = resident(process)
        counts = flood(port, seconds)
        assert set(counts) == {200, 429} and counts[200] > 0 and counts[429] > 0
        if seconds > 100:
            assert resident(process) == pytest.approx(before, rel=0.05)
        with Client(port) as client:
            assert client.ask("mini", TEXT).status == 200
        shown = get(port, "/metrics").body
        assert 'qkv_queue_tokens{model="mini"} 0.0' in shown and "overloaded" in shown
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


# What it refuses


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["serve", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if not line.startswith("loading ")]
    assert out == "" and errors[0].startswith("error: ") and len(errors) == 1
    return errors[0]


def test_what_cannot_be_served_is_refused_before_listening(
    capsys: pytest.CaptureFixture[str], folders: dict[str, Path], tmp_path: Path
) -> None:
    mini = folders["mini"]
    assert "There is no folder" in fails(capsys, tmp_path / "nothing")
    assert "Two models are called 'mini'" in fails(capsys, mini, f"mini={folders['tag']}")
    assert "cannot be the name of a model in URLs" in fails(capsys, f"a?b={mini}")
    assert "--threads must be 1 or more" in fails(capsys, mini, "--threads", "0")
    assert "--max-body is '8 apples'" in fails(capsys, mini, "--max-body", "8 apples")
    assert "--max-batch-tokens must be 1 or more" in fails(capsys, mini, "--max-batch-tokens", "0")
    assert "less than one batch" in fails(capsys, mini, "--max-queue-tokens", "10")
    assert "--drain-seconds must be 0 to" in fails(capsys, mini, "--drain-seconds", "-1")
    assert "--token must have 8" in fails(capsys, mini, "--token", "short")
    assert "is not an address of this machine" in fails(capsys, mini, "--host", "nowhere.invalid")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "Use --port 0" in fails(capsys, mini, "--port", taken.getsockname()[1])
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in os.listdir(mini):
        (broken / file).write_bytes((mini / file).read_bytes()[:100] if "safe" in file else (mini / file).read_bytes())
    assert "broken" in fails(capsys, broken)
