"""Every training from shards, with nothing that trains in it: how it begins, goes on, ends, and whose it is."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qkv.config import JobSettings, merge, read_toml, to_toml
from qkv.data.corpus.shards import Shards
from qkv.errors import InputError
from qkv.jobs.finetune.settings import FinetuneConfig
from qkv.jobs.lifecycle import Finished, Lifecycle, ended_by_sessions
from qkv.jobs.pretrain import make_lifecycle, read_model_name
from qkv.models.bert.pretrain import PretrainConfig
from qkv.models.elmo.pretrain import ElmoTraining
from qkv.models.gpt.pretrain import GPTTrainConfig
from qkv.models.nnlm.pretrain import LanguageModelConfig
from qkv.models.pretraining import Pretraining
from qkv.models.table import PRETRAINED
from qkv.models.word2vec.learners import Word2VecConfiguration
from qkv.report.bilingual import Phrase
from qkv.report.page import RunPage
from qkv.train.log import Progress, Silent
from qkv.train.optim import TrainConfig
from qkv.train.run_folder import Outcome, Sessions
from tests.support.small_run import Recorder, make_shards

CONFIGS = (
    PretrainConfig(),
    Word2VecConfiguration(),
    ElmoTraining(),
    LanguageModelConfig(model_type="nnlm"),
    LanguageModelConfig(),
    GPTTrainConfig(),
)


@dataclass(frozen=True)
class Settings:
    model_type: str = "bert"
    data: str = ""
    data_sha256: str | None = None
    device: str = "cpu"
    train: TrainConfig = field(default_factory=lambda: TrainConfig(steps=5))


class Pretended:
    """Stands where a trainer does: a step is to count."""

    device, job = torch.device("cpu"), SimpleNamespace(evaluate=print)

    def __init__(self, config: TrainConfig, started: int, stops_at: int | None = None) -> None:
        self.config, self.started, self.stops_at = config, started, stops_at

    def steps_in(self, minutes: float) -> int:
        return round(4 * minutes)

    def run(self) -> Outcome:
        reached = self.config.steps if self.stops_at is None else self.stops_at
        return Outcome(self.started, reached, finished=reached == self.config.steps)


class Counting:
    """A `Pretraining`, and what it was asked for."""

    def __init__(self, stops_at: int | None = None) -> None:
        self.stops_at = stops_at
        self.asked: list[str] = []
        pretraining = Pretraining[Settings, Any](JobSettings(Settings()), self._trainer, self._save, self._page)
        self.training: Lifecycle[Settings] = make_lifecycle(pretraining)

    def _trainer(self, config: Settings, run: Path, progress: Progress, begins: bool) -> Any:
        self.asked.append("begins" if begins else "goes on")
        return Pretended(config.train, 0 if begins else Sessions.of(run).reached, self.stops_at)

    def _save(self, config: Settings, out: Path, trainer: Any, corpus: Shards) -> None:
        assert Path(config.data) == corpus.folder
        self.asked.append("saves")
        (out / "model").mkdir()
        (out / "model" / "config.json").write_text("{}")

    def _page(self, config: Settings, out: Path, trainer: Any, corpus: Shards, sessions: Sessions) -> RunPage:
        self.asked.append(f"shows {len(sessions.lines)}")
        return RunPage(out.name, Phrase("Report", "报告"), (), (), (), ())


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("data"))


def test_a_run_begins_stops_goes_on_and_ends(shards: Path, tmp_path: Path) -> None:
    run, first, second = tmp_path / "run", Counting(stops_at=3), Counting()
    stopped = first.training.start(Settings(data=str(shards)), run, Silent())
    assert (stopped.outcome.step, stopped.outcome.finished, stopped.steps) == (3, False, 5)
    assert first.asked == ["begins", "shows 1"] and (run / "report.html").is_file()
    written = merge(Settings(), read_toml(run / "config.toml"), "")
    assert Path(written.data) == shards.resolve() and written.data_sha256 is not None
    with pytest.raises(InputError, match=r"holds a run already\. Go on with it: qkv pretrain --resume"):
        first.training.start(Settings(data=str(shards)), run, Silent())

    finished = second.training.resume(run, Silent())
    assert finished.outcome == Outcome(3, 5, finished=True) and not finished.already
    assert second.asked == ["goes on", "saves", "shows 2"]
    again = second.training.resume(run, Silent())
    assert again.already and again.outcome.step == 5 and len(second.asked) == 3


def test_minutes_become_steps_once(shards: Path, tmp_path: Path) -> None:
    settings, said = Settings(data=str(shards), train=TrainConfig(minutes=2.0)), Recorder()
    assert Counting().training.start(settings, tmp_path / "run", said).steps == 8
    assert said.messages == ["2 minutes are 8 steps on this machine."]
    assert read_toml(tmp_path / "run" / "config.toml")["train"]["steps"] == 8


@pytest.mark.parametrize("missing", ["model/config.json", "report.html", "sessions.jsonl", None])
def test_a_run_has_ended_when_everything_is_there(shards: Path, tmp_path: Path, missing: str | None) -> None:
    Counting().training.start(Settings(data=str(shards)), tmp_path / "run", Silent())
    if missing is not None:
        (tmp_path / "run" / missing).unlink()
        assert ended_by_sessions(tmp_path / "run", {"train": {"steps": 5}}) is None
    else:
        outcome = Outcome(5, 5, finished=True)
        ended = ended_by_sessions(tmp_path / "run", {"train": {"steps": 5}})
        assert ended == Finished(tmp_path / "run", outcome, already=True) and ended.steps == 5
        assert ended_by_sessions(tmp_path / "run", {"train": {"steps": 6}}) is None


def written(run: Path, text: str) -> Path:
    (run / "config.toml").write_text(text, encoding="utf-8")
    return run


def test_every_model_is_known_by_its_settings(tmp_path: Path) -> None:
    assert [read_model_name(written(tmp_path, to_toml(config))) for config in CONFIGS] == list(PRETRAINED)
    before = to_toml(PretrainConfig()).replace('model_type = "bert"\n', "")
    assert "model_type" not in before and read_model_name(written(tmp_path, before)) == "bert"


def test_what_is_no_run_from_shards(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run: it has no config.toml"):
        read_model_name(tmp_path)
    fine = to_toml(replace(FinetuneConfig(), model="folder"))
    for text, message in (
        (fine, f"{tmp_path} is a fine-tuning run: qkv finetune --resume {tmp_path}."),
        (
            "draws = 3\n[finetune]\n" + 'task = "tag"\n',
            f"{tmp_path} is a learning curve: qkv curve --resume {tmp_path}.",
        ),
        ("rows = 3\n", "config.toml does not say which model is trained. Known as model_type: bert, word2vec, elmo"),
        ('model_type = "t5"\n', "unknown model_type 't5'. Known: bert, word2vec, elmo, nnlm, rnnlm, gpt."),
        ('model_type = "emlo"\n', "Did you mean 'elmo'?"),
        ("model_type = [1]\n", "unknown model_type [1]"),
    ):
        with pytest.raises(InputError) as refused:
            read_model_name(written(tmp_path, text))
        assert message in str(refused.value)
