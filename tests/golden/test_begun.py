"""Runs that older code began (begun/, see make.py) go on with the code of today; and a run that was stopped ends as
one that was not."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.golden.conftest import Workshop
from tests.golden.golden import BEGUN, check_golden, run_qkv
from tests.golden.make import PLACE, STOPPED, begin, rewrite
from tests.golden.material import JOBS
from tests.golden.test_folders import described

FIGURES = ("loss", "lr", "gradient_norm", "tokens")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in another place, as when a user moves folders."""
    folder = tmp_path_factory.mktemp("begun").resolve() / "here"
    shutil.copytree(BEGUN, folder)
    rewrite(folder / "runs", PLACE, str(folder))
    return folder


def go_on(name: str, folder: Path, run: Path) -> None:
    verb = " ".join(word for word in JOBS[name].split()[:2] if word in ("pretrain", "finetune", "train", "translate"))
    answer = run_qkv(f"{verb} --resume {run.relative_to(folder)} --json", folder)
    assert answer.code == 0, answer.err
    assert answer.documents[0]["finished"] is True


def logged(run: Path) -> list[dict[str, Any]]:
    """Every line of the log, with its figures or with the loss of its evaluation."""
    found = []
    for text in (run / "log.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        evaluated = {key: value for key, value in line.get("evaluation", {}).items() if key.endswith("loss")}
        found.append({key: line[key] for key in ("step", *FIGURES) if key in line} | evaluated)
    return found


@pytest.mark.parametrize("name", STOPPED)
def test_a_run_that_older_code_began(begun: Path, name: str) -> None:
    run = begun / "runs" / name
    before = (run / "log.jsonl").read_text(encoding="utf-8")
    go_on(name, begun, run)
    assert (run / "log.jsonl").read_text(encoding="utf-8").startswith(before)
    files = sorted(described(run))
    check_golden(f"begun/{name}", {"files": files, "log": logged(run)}, relative=1e-4, absolute=1e-6)


@pytest.mark.parametrize("name", STOPPED)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(workshop: Workshop, name: str) -> None:
    whole, folder = workshop.make(name), workshop.folder
    run = folder / "stopped" / name
    run.parent.mkdir(exist_ok=True)
    begin(name, folder, run)
    go_on(name, folder, run)
    exact = [Path("log.jsonl"), Path("model/model.safetensors")]
    exact += [file.relative_to(whole) for file in sorted((whole / "checkpoints").glob("*/*.safetensors"))[-2:]]
    for file in exact:
        assert (run / file).read_bytes() == (whole / file).read_bytes(), file
