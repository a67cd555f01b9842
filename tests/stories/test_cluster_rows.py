"""`qkv predict`, `embed` and `translate` with --cluster: on a Ray cluster of two nodes, some of which are lost."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qkv.api.cluster import _Actor, answer_parts
from qkv.api.part_jobs import EmbedParts, PredictParts, TranslateParts
from qkv.api.parts import PartAnswerer, PartFolder, PartLimits
from qkv.api.table_files import PartLayout
from qkv.cli.main import main
from qkv.data.labelled.reader import Labelled
from qkv.errors import InputError
from qkv.train.cluster import Cluster
from tests.support.clusters import TwoNodes, two_nodes, wait_for, without_network
from tests.support.row_parts import do, model_of, plan_of, write_csv
from tests.support.served_models import sentence_folder, translation_folder
from tests.support.task_folders import task_folder

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture
def whole(nodes: TwoNodes) -> TwoNodes:
    nodes.restore()
    return nodes


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("rows")
    made = {
        "classify": task_folder(root / "classify", "classify"),
        "sentences": sentence_folder(root / "sentences"),
        "en-zh": translation_folder(root / "en-zh", "en", "zh"),
    }
    return {name: str(path) for name, path in made.items()}


def contents(folder: Path) -> dict[str, bytes]:
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@dataclass(frozen=True)
class Held(PredictParts):
    """Waits in every process, before its first part, until `go` is there: so a node is lost in the middle of a part."""

    gate: str = ""

    def open_model(self) -> PartAnswerer:
        answer = super().open_model()

        def write(source: Labelled, layout: PartLayout, out: Path, suffix: str) -> dict[str, Any]:
            (Path(self.gate) / f"started-{os.getpid()}").touch()
            wait_for((Path(self.gate) / "go").exists)
            return answer(source, layout, out, suffix)

        return write


@pytest.mark.slow
def test_a_node_is_lost_in_the_middle(
    whole: TwoNodes, tmp_path: Path, folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts are done by the other node, and the result has the bytes of work that nothing disturbed."""
    cloudpickle = pytest.importorskip("ray.cloudpickle")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    files = [write_csv(tmp_path / "1.csv", 30), write_csv(tmp_path / "2.csv", 20)]
    local = PredictParts.of(model_of(folders["classify"]), {})
    do(local, tmp_path / "local", *files)
    gate = tmp_path / "gate"
    gate.mkdir()
    job = Held(local.model, local.task, local.columns, local.remembered, None, str(gate))

    def lose() -> None:
        wait_for(lambda: len(list(gate.glob("started-*"))) == 2)
        whole.lose()
        (gate / "go").touch()

    monkeypatch.setattr("qkv.api.cluster._HERE", 0)  # the nodes plan too
    breaker = threading.Thread(target=lose)
    breaker.start()
    said: list[str] = []
    names = [str(file) for file in files]
    done = answer_parts(job, names, str(tmp_path / "out"), whole.address, PartLimits(7), said.append)
    breaker.join()
    assert (done.n_rows, done.n_parts, done.n_kept) == (50, 8, 0)
    assert any("will be done again" in one for one in said), said
    assert contents(tmp_path / "out") == contents(tmp_path / "local")


def test_a_cluster_that_is_none_leaves_nothing(
    tmp_path: Path, folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = write_csv(tmp_path / "a.csv"), tmp_path / "out"

    def refused(*words: str) -> str:
        assert main(["predict", folders["classify"], str(file), *words]) == 2
        shown, error = capsys.readouterr()
        assert shown == "" and error.startswith("error: ") and "Traceback" not in error and not out.exists()
        return error

    assert "--cluster is local, auto, HOST:PORT" in refused("--cluster", "nonsense", "--out", str(out))
    assert "name it with --out" in refused("--cluster", "local")
    words = ("--cluster", "local", "--out", str(out))
    assert "--document cannot be used with --cluster" in refused(*words, "--document")
    assert "--question cannot be used with --cluster" in refused(*words, "--question", "who?")
    assert "looks like a .csv file" in refused("--cluster", "local", "--out", str(tmp_path / "out.csv"))
    assert "--part-rows is for --cluster" in refused("--part-rows", "3")
    assert "--part-rows must be 1 or more" in refused(*words, "--part-rows", "0")
    with pytest.raises(InputError, match="does not translate"):
        TranslateParts(model_of(folders["classify"]))
    with pytest.raises(InputError, match="is not fine-tuned, so it cannot predict"):
        PredictParts.of(model_of(folders["sentences"]), {})


def test_a_folder_that_only_one_node_sees(tmp_path: Path, folders: dict[str, str]) -> None:
    """The lock of the command is in the folder that it looks into: where there is none, results would be lost."""
    job = PredictParts.of(model_of(folders["classify"]), {})
    plan = plan_of(job, ".parquet", write_csv(tmp_path / "a.csv"))
    there = PartFolder(str(tmp_path / "out"), ".parquet", job.settings())
    answer = _Actor(Cluster("", is_own=False).order(), job, there, plan)({"number": [0]})
    assert "must be a folder that all nodes of the cluster share" in json.loads(answer["answer"][0])["refused"]
    assert not (tmp_path / "out").exists()


# Longer forms.


@pytest.mark.slow
def test_a_killed_command_is_resumed(whole: TwoNodes, tmp_path: Path, folders: dict[str, str]) -> None:
    file, out = write_csv(tmp_path / "a.csv", 3000), tmp_path / "out"
    words = ["predict", folders["classify"], str(file), "--cluster", whole.address, "--out", str(out)]
    words += ["--part-rows", "7", "--threads", "1"]
    command = subprocess.Popen([sys.executable, "-m", "qkv", *words], env=without_network(), start_new_session=True)
    try:
        wait_for(lambda: len(list(out.glob("_done/*.json"))) > 10)
        os.killpg(command.pid, signal.SIGKILL)
    finally:
        command.kill()
        command.wait()
    kept = len(list(out.glob("_done/*.json")))
    assert 10 < kept < 429 and not (out / "_summary.json").exists()
    times = {
        one.name: one.stat().st_mtime_ns for one in out.glob("part-*") if (out / "_done" / f"{one.stem}.json").exists()
    }
    assert main(words) == 0
    assert all((out / name).stat().st_mtime_ns == time for name, time in times.items())
    do(PredictParts.of(model_of(folders["classify"]), {}), tmp_path / "local", file)
    found = contents(out)
    assert found == contents(tmp_path / "local") and not [name for name in found if name.startswith(".")]


@pytest.mark.slow
def test_the_verbs_on_a_cluster(
    whole: TwoNodes, tmp_path: Path, folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    file, texts = write_csv(tmp_path / "a.csv"), tmp_path / "a.txt"
    texts.write_text("".join(f"the cat sat on {n}\n" for n in range(40)))
    cluster = ["--cluster", whole.address, "--part-rows", "7", "--threads", "1", "--json"]

    def document(*words: str) -> dict[str, Any]:
        assert main([*words, *cluster]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    done = document("embed", "--file", str(file), "-m", folders["sentences"], "--out", str(tmp_path / "vectors"))
    assert (done["n_parts"], done["n_rows"], done["n_texts"], done["n_empty"]) == (6, 40, 33, 7)
    do(EmbedParts(model_of(folders["sentences"])), tmp_path / "vectors-here", file)
    assert contents(tmp_path / "vectors") == contents(tmp_path / "vectors-here")
    done = document("translate", folders["en-zh"], str(texts), "--beams", "2", "--out", str(tmp_path / "zh.jsonl"))
    assert (done["n_parts"], done["n_results"]) == (6, 40)
    do(TranslateParts(model_of(folders["en-zh"]), decoding={"beams": 2}), tmp_path / "here.jsonl", texts)
    assert contents(tmp_path / "zh.jsonl") == contents(tmp_path / "here.jsonl")
    again = document("translate", folders["en-zh"], str(texts), "--beams", "2", "--out", str(tmp_path / "zh.jsonl"))
    assert again["n_parts_kept"] == 6


@pytest.mark.slow
def test_a_row_that_the_model_refuses(
    whole: TwoNodes, tmp_path: Path, folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """All other parts are done and kept; the message says where it is, and what to do."""
    texts, out = tmp_path / "a.txt", tmp_path / "zh.jsonl"
    rows = [f"the cat sat on {n}" for n in range(40)]
    texts.write_text("\n".join([*rows[:9], "the cat " * 60, *rows[9:]]) + "\n")
    words = ["translate", folders["en-zh"], str(texts), "--cluster", whole.address, "--out", str(out)]
    words += ["--part-rows", "7", "--threads", "1"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "a.txt, line 10" in error and "5 of 6 parts are done and stay in" in error and "Traceback" not in error
    texts.write_text("\n".join([*rows[:9], "the cat", *rows[9:]]) + "\n")
    assert main(words) == 0
    do(TranslateParts(model_of(folders["en-zh"])), tmp_path / "here.jsonl", texts)
    assert contents(out) == contents(tmp_path / "here.jsonl")


@pytest.mark.slow
def test_ctrl_c_leaves_whole_parts(whole: TwoNodes, tmp_path: Path, folders: dict[str, str]) -> None:
    file, out = write_csv(tmp_path / "a.csv", 3000), tmp_path / "out"
    words = ["predict", folders["classify"], str(file), "--cluster", whole.address, "--out", str(out)]
    command = subprocess.Popen(
        [sys.executable, "-m", "qkv", *words, "--part-rows", "7"], env=without_network(), stderr=subprocess.PIPE
    )
    wait_for(lambda: len(list(out.glob("_done/*.json"))) > 10)
    began = time.monotonic()
    command.send_signal(signal.SIGINT)
    _, error = command.communicate(timeout=30)
    assert command.returncode == 130 and b"Traceback" not in error and time.monotonic() - began < 30
    sizes = {
        marker["file"]: marker["bytes"] for one in out.glob("_done/*.json") if (marker := json.loads(one.read_text()))
    }
    assert sizes and all((out / name).stat().st_size == size for name, size in sizes.items())
