"""qkv look: what it serves and prints, what it writes, and what it refuses before anything begins."""

import base64
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from qkv.cli import look as verb
from qkv.cli.main import main
from qkv.errors import InputError
from qkv.look.api import ANSWER_FUNCTIONS
from qkv.look.subject import Subject
from qkv.look.wire import TEXT_LIMIT, Asked, Reply
from qkv.serve.listen import Server
from tests.support.folders import make_folder
from tests.support.inside_folders import reader
from tests.support.look_server import asked, sent
from tests.support.whole_zoo import whole_zoo
from tests.support.word_vectors import make_vectors_folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("folders") / "tiny")


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(sound, tmp_path / "models" / "tiny"))


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QKV_MODEL", raising=False)
    monkeypatch.setattr("webbrowser.open", lambda link: pytest.fail(f"a browser was opened at {link}"))


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["look", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and "Traceback" not in err and len(err.splitlines()) <= 4
    return err


# What it refuses


def test_a_view_and_a_language_that_are_not_there(capsys: pytest.CaptureFixture[str], sound: Path) -> None:
    assert "Did you mean 'attention'?" in fails(capsys, sound, "--view", "atention")
    assert "known: en, zh" in fails(capsys, sound, "--lang", "fr")


def test_a_view_that_the_model_lacks(
    capsys: pytest.CaptureFixture[str], sound: Path, tmp_path: Path, met: list[Server]
) -> None:
    said = fails(capsys, sound, "--view", "translation")
    assert "tiny has attention" in said and "positions" in said and met == []
    assert "tiny has" in fails(capsys, sound, "--view", "vectors", "--save", tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_text_longer_than_the_model_reads(capsys: pytest.CaptureFixture[str], sound: Path, met: list[Server]) -> None:
    words = ["look", str(sound), "--port", "0", "--no-browser", "--text"]
    assert main([*words, "好" * 600]) == 0
    assert "note: The text has 602 tokens, and tiny reads " in capsys.readouterr().err
    assert main([*words, "好"]) == 0
    assert "at most" not in capsys.readouterr().err


def test_a_view_that_another_model_has(
    capsys: pytest.CaptureFixture[str], sound: Path, tmp_path: Path, met: list[Server]
) -> None:
    """The page begins with that one, and the first is what it is compared with."""
    words = [str(sound), "--compare", str(make_vectors_folder(tmp_path / "words")), "--view", "vectors"]
    assert main(["look", *words, "--port", "0", "--no-browser"]) == 0
    assert capsys.readouterr().out.endswith("/#view=vectors&model=1&compare=0\n")


@pytest.mark.parametrize("compared", [False, True])
def test_a_folder_that_is_not_whole(
    capsys: pytest.CaptureFixture[str], sound: Path, folder: Path, compared: bool
) -> None:
    words = [sound, "--compare", folder] if compared else [folder]
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    assert "model.safetensors" in fails(capsys, *words)
    (folder / "model.safetensors").unlink()
    assert "model.safetensors" in fails(capsys, *words)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").unlink()
    assert "tokenizer.json" in fails(capsys, *words)
    (folder / "config.json").unlink()
    assert "config.json" in fails(capsys, *words)


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str], sound: Path) -> None:
    assert "Did you mean 'tiny'?" in fails(capsys, sound.parent / "tinny")
    assert "Did you mean 'tiny'?" in fails(capsys, sound, "--compare", sound.parent / "tinny")


def test_texts_that_cannot_be_taken(capsys: pytest.CaptureFixture[str], sound: Path) -> None:
    assert "--text is empty" in fails(capsys, sound, "--text", " ")
    assert "--pair is empty" in fails(capsys, sound, "--text", "a", "--pair", "")
    assert "give the first with --text" in fails(capsys, sound, "--pair", "a")
    assert "--text is not UTF-8: character 2" in fails(capsys, sound, "--text", "a\udcffb")
    assert "--pair is not UTF-8" in fails(capsys, sound, "--text", "a", "--pair", "\udcff", "--save", "page.html")
    assert f"{TEXT_LIMIT + 1:,} characters" in fails(capsys, sound, "--text", "a" * (TEXT_LIMIT + 1))


@pytest.mark.usefixtures("one_thread")
def test_places_that_cannot_be_had(capsys: pytest.CaptureFixture[str], sound: Path, tmp_path: Path) -> None:
    assert "65535" in fails(capsys, sound, "--port", "70000")
    assert "--token" in fails(capsys, sound, "--token", "a b")
    assert "--host" in fails(capsys, sound, "--host", "no.such.host.invalid", "--port", "0")
    assert ".html" in fails(capsys, sound, "--save", tmp_path / "page.svg")
    assert "--save" in fails(capsys, sound, "--examples")
    for words in (["--host", "localhost"], ["--port", "0"], ["--token", "abcdefgh"], ["--no-browser"]):
        assert f"{words[0]} is for serving the page" in fails(capsys, sound, *words, "--save", "page.html")
    assert "--threads" in fails(capsys, sound, "--threads", "0")
    for port in ("abc", "1.5"):
        assert f"'{port}' is not an integer from 0 to 65535" in fails(capsys, sound, "--port", port)
    assert "mkdir -p" in fails(capsys, sound, "--save", tmp_path / "none" / "page.html")
    assert not (tmp_path / "none").exists()
    assert "cannot be written" in fails(capsys, sound, "--text", "a", "--save", sound / "config.json" / "page.html")


# What it serves


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    """Servers that `qkv look` starts, each ended as by Ctrl-C after one question."""
    found: list[Server] = []

    run = Server.run

    def run_for_a_question(self: Server) -> None:
        found.append(self)
        thread = threading.Thread(target=run, args=(self,))
        thread.start()
        token = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        assert sent(self, "GET", "/", headers=token).status == 200
        if not token:
            answer = asked(self, "attention", text="the cat", kind="self")
            assert Reply.from_bytes(answer.body).head["n_tokens"] == 4
        self.stop()
        thread.join()
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "run", run_for_a_question)
    return found


def test_the_link_says_what_to_show(capsys: pytest.CaptureFixture[str], sound: Path, met: list[Server]) -> None:
    words = ["--text", "他欠我 & 100%", "--pair", "2024", "--view", "fill", "--lang", "zh"]
    assert main(["look", str(sound), "--compare", str(sound), "--port", "0", "--no-browser", *words]) == 0
    out, err = capsys.readouterr()
    shown = "view=fill&text=%E4%BB%96%E6%AC%A0%E6%88%91%20%26%20100%25&pair=%222024%22&lang=zh&compare=1"
    assert out == f"http://127.0.0.1:{met[0].port}/#{shown}\n"
    assert "tiny, tiny" in err and "Ctrl-C" in err and "Traceback" not in err
    assert met[0].socket.fileno() == -1  # closed


def test_a_token_is_in_the_link(capsys: pytest.CaptureFixture[str], sound: Path, met: list[Server]) -> None:
    assert main(["look", str(sound), "--host", "0.0.0.0", "--port", "0", "--no-browser"]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r"http://[^/]+/\?token=[\w-]{32}\n", out) and "Anyone with this link" in err


def test_a_browser_is_opened_where_there_is_a_screen(
    monkeypatch: pytest.MonkeyPatch, sound: Path, met: list[Server]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(verb, "has_screen", lambda: False)
    assert main(["look", str(sound), "--port", "0"]) == 0 and opened == []
    monkeypatch.setattr(verb, "has_screen", lambda: True)
    assert main(["look", str(sound), "--port", "0"]) == 0
    end = time.monotonic() + 20
    while not opened and time.monotonic() < end:
        time.sleep(0.01)
    assert opened == [met[1].link()]
    # a link with a token is shown to whoever started this, and to no list of processes
    assert main(["look", str(sound), "--port", "0", "--token", "open-sesame"]) == 0 and len(opened) == 1


def test_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not verb.has_screen() or os.name == "nt"
    monkeypatch.setenv("DISPLAY", ":0")
    assert verb.has_screen()


# What it writes


def recorded(page: Path) -> dict[str, object]:
    (data,) = re.findall(r'<script type="application/json" id="recorded">(.*?)</script>', page.read_text("utf-8"), re.S)
    found = json.loads(data)
    assert isinstance(found, dict)
    return found


@pytest.mark.usefixtures("one_thread")
def test_a_page_of_its_own(capsys: pytest.CaptureFixture[str], sound: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old", encoding="utf-8")
    words = ["--text", "the </script> cat", "--lang", "zh", "--compare", str(make_vectors_folder(tmp_path / "words"))]
    assert main(["look", str(sound), *words, "--save", str(page)]) == 0
    out, err = capsys.readouterr()
    assert out == "" and "page.html：网页（含数据），" in err and "个结果" in err
    found = recorded(page)
    room, replies = found["room"], found["replies"]
    assert isinstance(room, dict) and isinstance(replies, dict) and room["saved"] is True
    assert [one["name"] for one in room["subjects"]] == ["tiny", "words"]
    assert str(tmp_path) not in page.read_text("utf-8") and str(sound.parent) not in page.read_text("utf-8")
    assert found["hash"] == "#text=the%20%3C%2Fscript%3E%20cat&lang=zh&compare=1"
    frame = base64.b64decode(replies['attention {"kind":"self","model":0,"text":"the </script> cat"}'])
    assert Reply.from_bytes(frame).head["texts"] == ["the </script> cat"]
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ""] == ["page.html"]  # nothing half written


@pytest.mark.usefixtures("one_thread")
def test_a_refusal_in_a_page_names_no_place(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(subject: Subject, asked: Asked) -> Reply:
        raise InputError(f"{subject.path} cannot: qkv finetune --model {subject.path.resolve()}.")

    monkeypatch.setitem(ANSWER_FUNCTIONS, "positions", refused)
    page = tmp_path / "page.html"
    assert main(["look", str(sound), "--text", "the cat", "--save", str(page)]) == 0
    replies = recorded(page)["replies"]
    assert isinstance(replies, dict)
    said = json.loads(base64.b64decode(replies['positions {"model":0}']))
    assert said == {"code": "input", "message": "tiny cannot: qkv finetune --model tiny.", "about": {}}


@pytest.mark.skipif(os.name == "nt", reason="signals are another matter there")
@pytest.mark.usefixtures("one_thread")
def test_sigterm_leaves_nothing_half_written(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(subject: Subject, asked: Asked) -> Reply:
        assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
        os.kill(os.getpid(), signal.SIGTERM)
        return Reply({})

    monkeypatch.setitem(ANSWER_FUNCTIONS, "positions", ended)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught:
        raise SystemExit(main(["look", str(sound), "--text", "the cat", "--save", str(tmp_path / "page.html")]))
    assert caught.value.code == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == [] and signal.getsignal(signal.SIGTERM) is before


def test_a_text_from_standard_input_that_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("他欠".encode("gb18030")), encoding="utf-8"))
    assert "Standard input" in fails(capsys, reader(tmp_path / "model", "lstm").path, "--text", "-")


# Ctrl-C


@pytest.mark.skipif(os.name == "nt", reason="signals are another matter there")
@pytest.mark.parametrize("busy", [False, True])
def test_ctrl_c_ends_it_at_once(busy: bool) -> None:
    """With a connection that stays open; and while something is computed, which takes a second."""
    command = [sys.executable, "-m", "qkv", "look", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        port = int(process.stdout.readline().split(":")[2].strip("/\n"))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/api/room")
        assert len(connection.getresponse().read()) > 100
        if busy:
            connection.request("POST", "/api/attention", json.dumps({"text": "the cat " * 250, "kind": "self"}))
            time.sleep(0.1)  # for it to begin
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        said = process.stderr.read()
        assert "Traceback" not in said and "terminate" not in said
        connection.close()


# Without a model


def test_all_models_of_the_package(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, met: list[Server]
) -> None:
    """The page has all of them, begins with the first that has the view, and loads that one alone."""
    whole_zoo(tmp_path, monkeypatch)
    loaded: list[str] = []
    load = Subject.load

    def noted(subject: Subject) -> None:
        loaded.append(subject.title)
        load(subject)

    monkeypatch.setattr(Subject, "load", noted)
    words = ["look", "--port", "0", "--no-browser", "--text", "the cat"]
    assert main([*words, "--view", "next"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("/#view=next&text=the%20cat&model=1\n"), "nothing is compared"
    assert "qkv-mini, qkv-gpt, qkv-words, qkv-elmo, qkv-en-zh, finetune" in err
    assert loaded == ["qkv-gpt", "qkv-mini"], "the second was asked for attention"
    assert main([*words, "--compare", "qkv-words"]) == 0
    assert "qkv-mini, qkv-words:" in capsys.readouterr().err
    monkeypatch.setenv("QKV_MODEL", "qkv-mini")
    assert main(words) == 0
    assert "qkv-mini:" in capsys.readouterr().err


def test_all_models_of_the_package_in_one_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_zoo(tmp_path, monkeypatch)
    assert main(["look", "--text", "the cat sat", "--save", "page.html"]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    recorded = json.loads(page.split('id="recorded">')[1].split("</script>")[0])
    assert [one["title"] for one in recorded["room"]["subjects"]][:2] == ["qkv-mini", "qkv-gpt"]
    asked = {key.split(" ", 1)[0] for key in recorded["replies"]}
    assert {"attention", "fill", "next_words", "meanings", "order", "translate", "analogy", "task", "states"} <= asked
    assert str(tmp_path) not in page
