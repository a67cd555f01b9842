"""Whole runs: what they leave behind, what they go on from, and all that can be wrong with what they are given."""

import dataclasses
import json
import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertForMaskedLM, BertForPreTraining

import qkv
from qkv.config import merge, read_toml
from qkv.data.batch import IGNORE
from qkv.data.corpus.prepare import prepare_corpus
from qkv.data.corpus.shards import Shards
from qkv.errors import InputError
from qkv.jobs.lifecycle import Finished
from qkv.jobs.pretrain import resume, start
from qkv.models.bert import folder as hf
from qkv.models.bert.network import BertWithHeads
from qkv.models.bert.objective import MaskedAndNextSentence, PretrainingBatches
from qkv.models.bert.pretrain import PretrainConfig
from qkv.train.log import Silent
from tests.support.small_run import Recorder, contents, make_config, make_shards, make_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def finished(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return start(make_config(shards), tmp_path_factory.mktemp("runs") / "run", Silent())


def go(shards: Path, out: Path, *changes: str, progress: Recorder | None = None) -> Finished:
    return start(make_config(shards, *changes), out, progress or Recorder())


def lines_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def edit(run: Path, before: str, after: str) -> None:
    text = (run / "config.toml").read_text(encoding="utf-8")
    assert before in text
    (run / "config.toml").write_text(text.replace(before, after), encoding="utf-8")


def test_every_file_of_a_run(finished: Finished, shards: Path) -> None:
    run = finished.run
    assert {path.name for path in run.iterdir()} == {
        "checkpoints", "config.toml", "log.jsonl", "model", "report.html", "sessions.jsonl", "timing.jsonl"
    }  # fmt: skip
    assert [path.name for path in sorted((run / "checkpoints").iterdir())] == ["step-00000004", "step-00000006"]
    assert finished.outcome.finished and finished.outcome.step == finished.steps == 6
    steps = [(line["step"], "evaluation" in line) for line in lines_of(run)]
    assert steps == [(2, False), (3, True), (4, False), (6, False), (6, True)]
    assert finished.evaluation == lines_of(run)[-1]["evaluation"]
    assert "<html" in (run / "report.html").read_text(encoding="utf-8")
    saved = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    assert saved["data"] == str(shards) and saved["train"]["steps"] == 6 and saved["model"]["layers"] == 1
    assert merge(PretrainConfig(), saved, "").data_sha256 is not None


def test_the_model_fills_blanks(finished: Finished) -> None:
    model = qkv.load(finished.run / "model")
    blank = model.fill("中国的[MASK]都是北京。")[0]
    assert len(blank.candidates) == 5
    assert 0 < blank.candidates[0].probability < 1
    assert model.architecture == "BertForPreTraining"


@pytest.mark.parametrize("negatives", ["document", "none"])
def test_transformers_gives_the_same_loss(finished: Finished, shards: Path, tmp_path: Path, negatives: str) -> None:
    paired = negatives != "none"
    run = finished.run if paired else go(shards, tmp_path / "run", "pairs.negatives=none", "train.steps=2").run
    loaded: Any = (BertForPreTraining if paired else BertForMaskedLM).from_pretrained(
        run / "model", output_loading_info=True
    )
    theirs, loading = loaded
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    corpus, config = Shards.open(shards), make_config(shards, f"pairs.negatives={negatives}")
    build = PretrainingBatches(corpus, corpus.tokenizer(), config.pairs, config.masking, rows=8)
    batch = build(0)[0]
    labels = torch.full((batch.n_tokens,), IGNORE)
    labels[batch.labels["masked_at"]] = batch.labels["masked"]
    padded = batch.padded()
    inputs = {"input_ids": padded.ids, "token_type_ids": padded.segments, "attention_mask": padded.mask.long()}
    inputs["labels"] = batch.pad(labels, fill=IGNORE)
    if paired:
        inputs["next_sentence_label"] = batch.labels["next_sentence"]  # 0 is IsNext there too
    objective, ours = MaskedAndNextSentence(next_sentence=paired), hf.load(run / "model").model
    with torch.no_grad():
        expected = theirs.eval()(**inputs).loss
        terms, counts = objective.terms(ours, batch), objective.counts(batch)
    loss = sum(term.loss / counts[name] for name, term in terms.items())
    assert float(loss) == pytest.approx(float(expected), abs=1e-5)


def test_a_finished_run_says_so_and_stays_as_it_is(finished: Finished) -> None:
    before = contents(finished.run)
    times = {name: (finished.run / name).stat().st_mtime_ns for name in before}
    again = resume(finished.run, Silent())
    assert again.already and again.outcome.finished and again.outcome.step == 6
    assert again.evaluation == finished.evaluation
    assert contents(finished.run) == before
    assert {name: (finished.run / name).stat().st_mtime_ns for name in before} == times


@pytest.mark.parametrize("lost", ["sessions.jsonl", "report.html", "model"])
def test_a_run_killed_at_its_end_is_finished_again(finished: Finished, tmp_path: Path, lost: str) -> None:
    """After the last checkpoint the model is written, then the report, then the session."""
    run = Path(shutil.copytree(finished.run, tmp_path / "run"))
    shutil.rmtree(run / lost) if lost == "model" else (run / lost).unlink()
    (run / ".model.abcd.part").mkdir()
    again = resume(run, Silent())
    assert not again.already and again.outcome.finished
    assert {path.name for path in run.iterdir()} == {path.name for path in finished.run.iterdir()}
    assert (run / "model" / "model.safetensors").read_bytes() == (
        finished.run / "model" / "model.safetensors"
    ).read_bytes()
    assert (run / "log.jsonl").read_bytes() == (finished.run / "log.jsonl").read_bytes()


def test_more_steps_prolong_a_finished_run(finished: Finished, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished.run, tmp_path / "run"))
    edit(run, "steps = 6", "steps = 9")
    again = resume(run, Silent())
    assert (again.outcome.started, again.outcome.step, again.already) == (6, 9, False)
    assert (run / "model" / "model.safetensors").read_bytes() != (
        finished.run / "model" / "model.safetensors"
    ).read_bytes()


def test_another_model_than_that_of_the_checkpoint(finished: Finished, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished.run, tmp_path / "run"))
    edit(run, "steps = 6", "steps = 9")
    edit(run, "width = 32", "width = 48")
    with pytest.raises(InputError, match="step-00000006 holds another model than the settings describe"):
        resume(run, Silent())


# Going on from a model


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return hf.load(folder).model.state_dict()


@pytest.mark.parametrize("inside", ["model", ""])
def test_a_model_is_gone_on_from(inside: str, finished: Finished, shards: Path, tmp_path: Path) -> None:
    heard, init = Recorder(), finished.run / inside
    run = go(shards, tmp_path / "run", f"init={init}", *unshaped(), "train.lr=1e-9", progress=heard).run
    assert heard.messages == [message for message in heard.messages if message.startswith(("device: ", "step "))]
    for (name, one), other in zip(
        weights(run / "model").items(), weights(finished.run / "model").values(), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-6), name
    assert read_toml(run / "config.toml")["init"] == str(init)


def unshaped() -> list[str]:
    """A model brings its own shape."""
    return [f"model.{name}=none" for name in ("layers", "width", "heads", "inner_width")]


def test_a_relative_name_is_found_again_from_elsewhere(
    finished: Finished, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.run)
    data = os.path.relpath(shards, finished.run)
    config = dataclasses.replace(make_config(shards, *unshaped(), "train.steps=2"), data=data, init="model")
    run = start(config, tmp_path / "run", Silent()).run
    edit(run, "steps = 2", "steps = 4")
    monkeypatch.chdir(tmp_path)
    assert resume(run, Silent()).outcome.finished


def test_heads_that_are_missing_or_left_over_are_said(finished: Finished, shards: Path, tmp_path: Path) -> None:
    whole = hf.load(finished.run / "model")
    alone = BertWithHeads(whole.config, ["masked"])
    alone.load_state_dict(whole.model.state_dict(), strict=False)
    init = hf.save(tmp_path / "masked", alone.eval(), whole.tokenizer)
    assert hf.load(init).architecture == "BertForMaskedLM"

    heard = Recorder()
    run = go(shards, tmp_path / "paired", f"init={init}", *unshaped(), "train.steps=2", progress=heard).run
    assert heard.messages[0] == f"{init} has no encoder.pooler, heads.next_sentence: begun from random weights."
    assert hf.load(run / "model").architecture == "BertForPreTraining"
    edit(run, "steps = 2", "steps = 4")
    later = Recorder()
    resume(run, later)
    assert not any("random weights" in message for message in later.messages), "they are not random any more"

    heard, changes = Recorder(), ("pairs.negatives=none", "train.steps=2")
    run = go(shards, tmp_path / "single", f"init={finished.run / 'model'}", *unshaped(), *changes, progress=heard).run
    assert "has encoder.pooler, heads.next_sentence, which is not trained here and left out" in heard.messages[0]
    assert hf.load(run / "model").architecture == "BertForMaskedLM"


def test_init_of_another_tokenizer_names_both(finished: Finished, tmp_path: Path) -> None:
    init = finished.run / "model"
    other = make_shards(tmp_path / "other", tokenizer=make_tokenizer(seed=5, size=120))
    with pytest.raises(InputError, match=f"{other} was prepared with another tokenizer than that of {init}. Prepare"):
        go(other, tmp_path / "run", f"init={init}", *unshaped())
    assert not (tmp_path / "run").exists()


def test_init_and_what_does_not_go_with_it(finished: Finished, shards: Path, tmp_path: Path) -> None:
    init = finished.run / "model"
    with pytest.raises(InputError, match=r"has its own shape: leave out model.layers, model.width"):
        go(shards, tmp_path / "run", f"init={init}")
    with pytest.raises(InputError, match="reads 512 tokens at most, and pairs.max_length is 600"):
        go(shards, tmp_path / "run", f"init={init}", *unshaped(), "pairs.max_length=600")
    with pytest.raises(InputError, match="There is no folder"):
        go(shards, tmp_path / "run", "init=nowhere/model", *unshaped())


# Settings


SETTINGS_REFUSED = {
    "train.setps=3": "unknown key 'train.setps'. Did you mean 'steps'?",
    "trian.steps=3": "unknown key 'trian'. Did you mean 'train'?",
    "train.lr=fast": "train.lr takes a number, not 'fast'",
    "train.lr=-1": "lr must be a number above 0",
    "train.lr=nan": "lr must be a number above 0",
    "train.betas=[0.9, 1.5]": "betas must be from 0 to less than 1",
    "train.weight_decay=-1": "weight_decay must be 0 or more",
    "train.seed=-1": "seed must be 0 or more",
    "train.threads=0": "threads must be at least 1",
    "train.minutes=0": "minutes must be more than 0",
    "rows=0": "rows must be at least 1",
    "evaluation_rows=0": "evaluation_rows must be at least 1",
    "model.dropout=1": "dropout is a share",
    "model.layers=0": "layers must be at least 1",
    "model.size=huge": "Unknown size 'huge'.",
    "model.width=33": "width 33 is not divisible by 2 heads",
    "pairs.negatives=documents": "Unknown negatives 'documents'. Did you mean 'document'?",
    "masking.rate=15": "rate is a share",
    "device=gpu": "device",
}


@pytest.mark.parametrize("setting", SETTINGS_REFUSED)
def test_settings_that_are_refused(shards: Path, tmp_path: Path, setting: str) -> None:
    with pytest.raises(InputError) as refused:
        go(shards, tmp_path / "run", setting)
    assert SETTINGS_REFUSED[setting] in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_minutes_are_measured_once_and_frozen(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Recorder()
    run = go(shards, tmp_path / "run", "train.minutes=0.01", "train.save_every=1000", progress=heard).run
    steps = read_toml(run / "config.toml")["train"]["steps"]
    assert heard.messages[0] == f"0.01 minutes are {steps:,} steps on this machine."
    assert lines_of(run)[-1]["step"] == steps
    monkeypatch.setattr("qkv.train.loop.Trainer.steps_in", None)
    (run / "sessions.jsonl").unlink()
    assert resume(run, Silent()).outcome.step == steps


def test_bf16(shards: Path, tmp_path: Path) -> None:
    run = go(shards, tmp_path / "run", "train.precision=bf16", "train.steps=2").run
    assert all(tensor.dtype == torch.float32 for tensor in weights(run / "model").values())
    assert lines_of(run)[0]["loss"] > 0


# Corpora


def test_nothing_held_out(tmp_path: Path) -> None:
    shards, heard = make_shards(tmp_path, hold_out=0.0), Recorder()
    done = go(shards, tmp_path / "run", "train.steps=2", progress=heard)
    assert done.outcome.finished and done.evaluation is None
    assert "No text is held out, so nothing is evaluated" in heard.messages[0]
    assert (done.run / "report.html").exists()


def test_one_document(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, count=1)
    with pytest.raises(InputError, match="only one document.*negatives=corpus.*negatives=none"):
        go(shards, tmp_path / "run")
    (tmp_path / "long.txt").write_text("\n".join(f"Sentence {n}. 第{n}句。" for n in range(200)), encoding="utf-8")
    prepare_corpus(tmp_path / "long.txt", make_tokenizer(), tmp_path / "long", segmenter="none")
    done = go(tmp_path / "long", tmp_path / "run", "pairs.negatives=corpus", "train.steps=2")
    assert "next_sentence_loss" in lines_of(done.run)[0]


def test_a_corpus_smaller_than_a_batch(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gives \d+ rows of up to 32 tokens, but a step takes 10000. Give more text"):
        go(shards, tmp_path / "run", "rows=10000")
    with pytest.raises(InputError, match="a step takes 8000"):
        go(shards, tmp_path / "run", "train.accumulate=1000")


@pytest.fixture
def copied(shards: Path, tmp_path: Path) -> Path:
    """Shards that a test may damage."""
    return Path(shutil.copytree(shards, tmp_path / "shards"))


def test_a_shard_cut_short(copied: Path, tmp_path: Path) -> None:
    file = copied / "shard-00000.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"shard-00000.safetensors has [\d,]+ bytes instead of"):
        go(copied, tmp_path / "run")


def test_shards_of_another_tokenizer(copied: Path, tmp_path: Path) -> None:
    make_tokenizer(seed=5, size=120).save(copied / "tokenizer")
    with pytest.raises(InputError, match="was prepared with another tokenizer than .*shards/tokenizer"):
        go(copied, tmp_path / "run")


def test_shards_prepared_anew_are_not_resumed_on(copied: Path, tmp_path: Path) -> None:
    run = go(copied, tmp_path / "run", "train.steps=2").run
    edit(run, "steps = 2", "steps = 4")
    shutil.rmtree(copied)
    make_shards(tmp_path, count=60)
    with pytest.raises(InputError, match="is not what the run was begun with"):
        resume(run, Silent())


def test_folders_that_are_no_corpus(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder .*shard. Did you mean 'shards'"):
        go(shards.with_name("shard"), tmp_path / "run")
    with pytest.raises(InputError, match="is not a prepared corpus: it has no manifest.json"):
        go(shards.parent, tmp_path / "run")


# Folders


def test_a_folder_that_is_taken(finished: Finished, shards: Path, tmp_path: Path) -> None:
    before = contents(finished.run)
    with pytest.raises(InputError, match="holds a finished run. Give another folder, or .* --overwrite"):
        go(shards, finished.run)
    assert contents(finished.run) == before
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / ".notes.part").write_text("mine")
    with pytest.raises(InputError, match="thesis is not an empty folder"):
        go(shards, tmp_path / "thesis")
    assert (tmp_path / "thesis" / ".notes.part").read_text() == "mine"
    with pytest.raises(InputError, match="corpus.txt is not an empty folder"):
        go(shards, shards.parent / "corpus.txt")


def test_what_a_killed_start_left_is_no_hindrance(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.toml.abcd.part").write_text("rows = ")
    run = go(shards, tmp_path / "run", "train.steps=2").run
    assert not list(run.glob(".*"))


def test_a_folder_that_cannot_be_written(shards: Path) -> None:
    with pytest.raises(InputError, match="run cannot be written: .*manifest.json is not a folder"):
        go(shards, shards / "manifest.json" / "run")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o500)
    with pytest.raises(InputError, match="config.toml cannot be written: Permission denied"):
        go(shards, tmp_path / "run")


def test_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run: it has no config.toml"):
        resume(tmp_path, Silent())


# A loss that is no number


def test_a_loss_that_is_lost_keeps_the_last_good_checkpoint(shards: Path, tmp_path: Path) -> None:
    run = go(shards, tmp_path / "run", "train.steps=2").run
    edit(run, "steps = 2", "steps = 8")
    edit(run, "lr = 0.001", "lr = 1e30")
    kept = contents(run / "checkpoints")
    with pytest.raises(InputError) as stopped:
        resume(run, Silent())
    assert "is NaN or infinite at step 3 (learning rate 7.5e+29)" in str(stopped.value)
    assert str(run / "checkpoints" / "step-00000002") in str(stopped.value)
    assert contents(run / "checkpoints") == kept
    assert "NaN" not in (run / "log.jsonl").read_text(encoding="utf-8")
    assert lines_of(run)[-1]["step"] == 2, "nothing is logged that is no number"


def test_a_loss_that_is_lost_at_once(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"at step 2 \(learning rate 8.33e\+29\). There is no checkpoint yet"):
        go(shards, tmp_path / "run", "train.lr=1e30")
