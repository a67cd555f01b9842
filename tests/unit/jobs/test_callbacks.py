"""Callbacks of jobs: the lines of log.jsonl as they are written, and the figures at the end."""

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.jobs import pretrain
from qkv.train.log import Silent, WithCallbacks
from tests.support.small_run import Recorder, make_config, make_shards

pytestmark = pytest.mark.usefixtures("one_thread")


class Tracker:
    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.results: list[Any] = []

    def on_log(self, line: Any) -> None:
        self.lines.append(line)

    def on_end(self, result: Any) -> None:
        self.results.append(result)


def test_a_pretraining(tmp_path: Path) -> None:
    shards, tracker, shown = make_shards(tmp_path), Tracker(), Recorder()
    done = pretrain.start(make_config(shards), tmp_path / "run", WithCallbacks(shown, [tracker]))
    log = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(json.dumps(tracker.lines)) == [json.loads(line) for line in log]
    assert tracker.results == [{"evaluation": done.evaluation}] and shown.messages
    pretrain.resume(tmp_path / "run", WithCallbacks(Silent(), [tracker]))
    assert len(tracker.results) == 1, "a finished run ends once"
