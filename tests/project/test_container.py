"""Dockerfile and compose.yaml, as far as they can be tested without a container engine: what they copy is there and is
sent to the builder, what they start is a command that exists, and the health check says what the server says."""

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml

from qkv.cli.main import build_command

ROOT = Path(__file__).resolve().parents[2]
PORT = 8080


class Instruction(NamedTuple):
    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """In the exec form (JSON) or the shell form."""
        found = json.loads(self.rest) if self.rest.startswith("[") else shlex.split(self.rest)
        assert isinstance(found, list)
        return found


def stages() -> list[list[Instruction]]:
    """The instructions of the Dockerfile, by stage; continued lines are joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found: list[list[Instruction]] = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        assert name.isupper(), f"no instruction: {line}"
        if name == "FROM":
            found.append([])
        found[-1].append(Instruction(name, " ".join(rest.split())))
    return found


def the(stage: list[Instruction], name: str) -> Instruction:
    (found,) = [one for one in stage if one.name == name]
    return found


def is_sent(path: str) -> bool:
    """Whether .dockerignore lets a path through: the last line that fits decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        wanted = pattern.startswith("!")
        if any(fnmatch(part, pattern.lstrip("!").removeprefix("**/")) for part in (path, path.split("/")[0])):
            sent = wanted
    return sent


def test_what_is_copied_is_there_and_is_sent() -> None:
    build, run = stages()
    for one in build:
        if one.name == "COPY":
            for source in one.words[:-1]:
                assert (ROOT / source).exists() and is_sent(source), source
    assert the(build, "FROM").rest.endswith("AS build")
    assert all(one.words[0] == "--from=build" for one in run if one.name == "COPY"), "nothing but what was built"
    assert is_sent("src") and not is_sent(".git") and not is_sent("tests")


def test_the_image_is_slim_and_does_not_run_as_root() -> None:
    build, run = stages()
    assert the(build, "FROM").words[0] == the(run, "FROM").words[0] == "python:3.11-slim"
    assert the(run, "USER").rest not in ("root", "0")
    assert the(run, "EXPOSE").rest == str(PORT)
    installs = [one.rest for one in build if one.name == "RUN"]
    assert installs and all("-c constraints.txt" in one for one in installs)


def parse_serve(arguments: list[str]) -> dict[str, Any]:
    """The parameters that `qkv serve` takes from these arguments; an unknown flag is an error of click."""
    group: Any = typer.main.get_command(build_command())
    assert arguments[:2] == ["qkv", "serve"]
    with group.commands["serve"].make_context("serve", arguments[2:]) as context:
        return dict(context.params)


def test_the_command_exists() -> None:
    _, run = stages()
    entry = the(run, "ENTRYPOINT").words
    given = parse_serve([*entry, *the(run, "CMD").words])
    assert (given["host"], given["port"]) == ("0.0.0.0", PORT)
    composed = parse_serve([*entry, *compose()["command"]])
    assert composed["host"] == "0.0.0.0"


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_TOKEN", "a-token-of-the-environment")
    assert parse_serve(["qkv", "serve", "qkv-mini"])["token"] == "a-token-of-the-environment"


def compose() -> dict[str, Any]:
    document = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    service = document["services"]["qkv"]
    assert isinstance(service, dict)
    return service


def test_the_service_is_closed_by_default() -> None:
    service = compose()
    assert service["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert service["environment"]["QKV_TOKEN"].startswith("${QKV_TOKEN:?")
    assert service["volumes"] == ["./models:/models:ro"] and service["read_only"] is True
    assert service["build"]["context"] == "."


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A server that answers /readyz with this status; yields its port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, format: str, *given: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def health_check(port: int) -> int:
    """The exit code of the image's health check against a server on this port."""
    _, run = stages()
    options, _, command = the(run, "HEALTHCHECK").rest.partition("CMD ")
    assert "--interval=" in options and "--start-period=" in options
    python, *arguments = json.loads(command)
    assert python == "python"
    (code,) = [one for one in arguments if f":{PORT}/" in one]
    arguments[arguments.index(code)] = code.replace(f":{PORT}/", f":{port}/")
    return subprocess.run([sys.executable, *arguments], capture_output=True, timeout=60).returncode


def test_the_health_check_says_what_the_server_says() -> None:
    with answering(200) as port:
        assert health_check(port) == 0
    with answering(503) as port:
        assert health_check(port) == 1
    assert health_check(port) == 1, "nobody is there"
