"""`--transfer features` of a classifier: read by the right pooling, fitted to the optimum, saved for others."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer, pipeline

from qkv.api.evaluate import evaluate_file
from qkv.api.model import load
from qkv.cli.main import main
from qkv.cli.terminal import print_result
from qkv.errors import InputError
from qkv.jobs.curve import CURVES, CurveConfig
from qkv.jobs.finetune.linear import STRENGTHS, HeadFit
from qkv.jobs.finetune.run import FINETUNING
from qkv.jobs.finetune.settings import resolve_finetune_settings
from qkv.jobs.lifecycle import Finished
from qkv.train.linear import try_strengths
from qkv.train.log import Silent, WithCallbacks
from qkv.train.loop import Trainer
from tests.support.finetune_runs import classification
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.small_run import Recorder
from tests.unit.jobs.test_callbacks import Tracker

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = [(f"the {animal} {verb} on {place} .", animal) for animal in ("cat", "dog") for verb in ("sat", "is", "owes")
         for place in ("mat", "me", "he", "it", "1", "3", "cat", "😀")]  # fmt: skip


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("pretrained") / "bert", "BertModel", initial_std=0.05)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "texts.csv"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in TEXTS), encoding="utf-8")
    return path


def run(
    out: Path, model: Path, file: Path, settings: Sequence[str] = (), transfer: str = "features", **flags: Any
) -> Finished:
    config = resolve_finetune_settings(
        "classify", str(model), transfer, None, {"data.train": str(file), **flags}, ["train.threads=1", *settings]
    )
    return FINETUNING.start(config, out, Silent())


def test_equal_texts_are_in_one_fold(tmp_path: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is there three times, in several folds, was known when it was held out: too weak a penalty won."""
    file, seen = tmp_path / "texts.csv", []
    file.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in TEXTS * 3), encoding="utf-8")

    def recorded(rows: Any, targets: Any, strengths: Any, fold: Any, intercept: bool) -> Any:
        seen.append((rows.values.round(6), fold))
        return try_strengths(rows, targets, strengths, fold, intercept)

    monkeypatch.setattr("qkv.jobs.finetune.linear.try_strengths", recorded)
    run(tmp_path / "run", pretrained, file)
    ((rows, fold),) = seen
    folds: dict[bytes, set[int]] = {}
    for row, number in zip(rows, fold.tolist(), strict=True):
        folds.setdefault(row.tobytes(), set()).add(number)
    assert len(folds) < len(rows) and all(len(numbers) == 1 for numbers in folds.values()) and len(set(fold)) == 5


def test_the_intents_with_minilm(tmp_path: Path, minilm: Path) -> None:
    """It read [CLS] and had 47 %; the mean of the tokens, as the folder declares, and an exact fit have more."""
    intents = Path(__file__).parents[2] / "src/qkv/zoo/examples/intents.en.csv"
    result = run(tmp_path / "run", minilm, intents).result
    assert result["dev"]["accuracy"] > 0.6 and result["strength"] in STRENGTHS
    assert [one["key"] for one in result["baselines"]["dev"]] == ["constant", "tf-idf"]
    assert result["verdict"]["level"] == "good" and "tf-idf" in result["verdict"]["en"]
    folder = tmp_path / "run" / "model"
    # by hand, with nothing but transformers and the stored tensors
    encoder, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    text = "where is my parcel"
    with torch.inference_mode():
        vector = encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state.mean(1)
    vector = torch.nn.functional.normalize(vector) * 384**0.5
    head = load_file(folder / "model.safetensors")
    scores = vector @ head["qkv_head.weight"].T + head["qkv_head.bias"]
    (found,) = load(folder).predict([text])
    assert found.probability == pytest.approx(float(scores.softmax(-1).max()), abs=1e-5)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert (
        "qkv_head" in card and "AutoModel" in card and "tf-idf" in card and f"{result['dev']['accuracy']:.4f}" in card
    )
    copy = load(folder).save(tmp_path / "copy")
    assert load(copy).predict([text])[0].probability == pytest.approx(found.probability, abs=1e-6)
    with pytest.raises(InputError, match="does not compute"):
        load(folder).save(tmp_path / "other", "BertForSequenceClassification")


def test_the_log_and_the_report_show_the_strengths(tmp_path: Path, pretrained: Path, file: Path) -> None:
    done = run(tmp_path / "run", pretrained, file)
    lines = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text(encoding="utf-8").splitlines()]
    tried = [line for line in lines if "strength" in line]
    assert [line["strength"] for line in tried] == list(STRENGTHS[: len(tried)]) and "evaluation" in lines[-1]
    assert done.result["strength"] == min(tried, key=lambda line: line["loss"])["strength"]
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "正则化强度" in page and "training longer may help" not in page
    assert done.result["dev"]["accuracy"] == 1.0 and done.result["cost"]["trained_parameters"] == 2 * (32 + 1)


def test_the_same_again_and_after_a_stop(tmp_path: Path, pretrained: Path, file: Path, monkeypatch: Any) -> None:
    run(tmp_path / "whole", pretrained, file)

    def killed(self: HeadFit, strength: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(HeadFit, "_fit", killed)
        run(tmp_path / "run", pretrained, file)
    assert FINETUNING.resume(tmp_path / "run", Silent()).finished
    for name in ("model/model.safetensors", "log.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_callbacks_and_a_stop_while_the_best_seed_is_fitted_again(
    tmp_path: Path, pretrained: Path, file: Path, monkeypatch: Any
) -> None:
    """A Ctrl-C there left a head of random weights, saved as the result."""
    tracker = Tracker()
    config = resolve_finetune_settings(
        "classify", str(pretrained), "features", None, {"data.train": str(file), "seeds": 2}, ["train.threads=1"]
    )
    out = tmp_path / "run"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        plain, told = HeadFit._search, list[None]()

        def search(self: HeadFit, log: Any, interruption: Any) -> Any:
            told.append(None)
            return plain(self, log, interruption) if len(told) <= 2 else None  # the third time is `finish`

        patched.setattr(HeadFit, "_search", search)
        FINETUNING.start(config, out, WithCallbacks(Silent(), [tracker]))
    assert [line for line in tracker.lines if "strength" in line] and not (out / "result.json").exists()
    assert FINETUNING.resume(out, Silent()).finished
    FINETUNING.start(config, tmp_path / "whole", Silent())
    for name in ("model/model.safetensors", "seed-0/log.jsonl", "seed-1/log.jsonl"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_minutes_are_not_dropped_in_silence(tmp_path: Path, pretrained: Path, file: Path) -> None:
    told = Recorder()
    config = resolve_finetune_settings(
        "classify", str(pretrained), "features", None, {"data.train": str(file), "train.minutes": 1.0}, []
    )
    FINETUNING.start(config, tmp_path / "run", told)
    assert [one for one in told.messages if "--minutes is not used" in one]


@pytest.mark.parametrize(
    ("settings", "transfer", "flags", "pooling", "fit"),
    [
        ((), "features", {}, "mean", "linear"),
        ((), "freeze", {}, "mean", "steps"),
        ((), "full", {"epochs": 1.0}, "cls", "steps"),
        ((), "features", {"epochs": 2.0}, "mean", "steps"),
        ((), "features", {"train.lr": 1e-2}, "mean", "steps"),  # it was taken and not used
        (("classify.pooling=first",), "features", {}, "first", "linear"),
        (("classify.pooling=cls",), "features", {}, "cls", "linear"),
        (("classify.pooling=mean",), "top:1", {"epochs": 1.0}, "mean", "steps"),
    ],
)
def test_every_pooling_is_trained_saved_and_read_back(
    tmp_path: Path, pretrained: Path, file: Path, settings: Any, transfer: str, flags: Any, pooling: str, fit: str
) -> None:
    done = run(tmp_path / "run", pretrained, file, settings, transfer, **flags)
    kept = json.loads((tmp_path / "run/model/qkv.json").read_text(encoding="utf-8"))["record"]["task_record"][
        "settings"
    ]
    assert (kept["pooling"], kept["fit"]) == (pooling, fit)
    document = json.loads((tmp_path / "run/model/config.json").read_text(encoding="utf-8"))
    assert document["architectures"] == ["BertForSequenceClassification" if pooling == "cls" else "BertModel"]
    told = [json.loads(line) for line in (tmp_path / "run/predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    texts = [dict(zip(("text", "label"), TEXTS[one["line"] - 2], strict=True))["text"] for one in told]
    if done.result["calibration"] is None or done.result["calibration"]["temperature"] == 1.0:
        found = load(tmp_path / "run").predict(texts)
        np.testing.assert_allclose([o.probability for o in found], [o["probability"] for o in told], atol=1e-4)


def test_several_labels_numbers_and_a_gpt(tmp_path: Path, pretrained: Path, file: Path) -> None:
    gpt = make_gpt(tmp_path / "gpt")
    assert run(tmp_path / "gpt-run", gpt, file).result["strength"] is not None, "a head without a bias"
    assert load(tmp_path / "gpt-run").predict([TEXTS[0][0]])[0].label in ("cat", "dog")
    with pytest.raises(InputError, match="pools in its own way"):
        run(tmp_path / "refused", gpt, file, ["classify.pooling=mean"])
    lines = [
        json.dumps({"text": text, "label": [label, "sits"] if "sat" in text else [label]}) for text, label in TEXTS
    ]
    (tmp_path / "several.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert run(tmp_path / "several", pretrained, tmp_path / "several.jsonl").result["dev"]["micro_f1"] > 0.9
    lines = [f"{text},{1.5 if label == 'cat' else 7.25}" for text, label in TEXTS]
    (tmp_path / "numbers.csv").write_text("text,label\n" + "\n".join(lines), encoding="utf-8")
    result = run(tmp_path / "numbers", pretrained, tmp_path / "numbers.csv").result
    assert result["dev"]["pearson"] > 0.95 and result["strength"] is not None
    assert "always answering the mean (4.4" in result["verdict"]["en"]
    (found,) = load(tmp_path / "numbers").predict([TEXTS[0][0]])
    assert found.value == pytest.approx(1.5, abs=1.0), "the mean and the deviation are in the head"


def test_what_cannot_be_is_refused(tmp_path: Path, pretrained: Path, file: Path) -> None:
    with pytest.raises(InputError, match="classify.fit is linear"):
        run(tmp_path / "a", pretrained, file, ["classify.fit=linear"], "full")
    with pytest.raises(InputError, match="Unknown pooling 'maen'. Did you mean 'mean'"):
        run(tmp_path / "b", pretrained, file, ["classify.pooling=maen"])


def test_a_curve_fits_every_point(tmp_path: Path, pretrained: Path, file: Path) -> None:
    tuned = resolve_finetune_settings(
        "classify", str(pretrained), "features", None, {"data.train": str(file)}, ["train.threads=1"]
    )
    done = CURVES.start(CurveConfig((0.3, 1.0), 2, tuned), tmp_path / "curve", Silent())
    assert done.finished and done.result["points"][-1]["mean"] > 0.9


def test_transformers_gives_the_calibrated_probability(tmp_path: Path, pretrained: Path, file: Path) -> None:
    """The temperature is in the head: a pipeline said 0.853 where qkv said 0.670."""
    done = run(tmp_path / "run", pretrained, file, ["data.dev_share=0.4"], "full", epochs=6.0, **{"train.lr": 3e-3})
    record = json.loads((tmp_path / "run/model/qkv.json").read_text(encoding="utf-8"))["record"]
    assert record["calibration"]["temperature"] == 1.0
    assert record["folded_temperature"] == pytest.approx(done.result["calibration"]["temperature"])
    theirs = pipeline("text-classification", str(tmp_path / "run/model"))
    for text, _ in TEXTS[::7]:
        (found,), (said,) = load(tmp_path / "run").predict([text]), theirs(text)
        assert (found.label, found.probability) == (said["label"], pytest.approx(said["score"], abs=1e-4))


def test_evaluate_fits_the_baseline_of_the_run(tmp_path: Path, pretrained: Path, file: Path) -> None:
    run(tmp_path / "run", pretrained, file)
    found = evaluate_file(tmp_path / "run", file)["baselines"]
    assert [one["key"] for one in found] == ["constant", "tf-idf"] and found[1]["value"] > 0.9
    assert evaluate_file(tmp_path / "run/model", file)["baselines"] is None, "the run is not there"


def test_the_first_line_says_that_a_baseline_wins(
    tmp_path: Path, pretrained: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = tmp_path / "test.csv"
    test.write_text(file.read_text(encoding="utf-8").replace(" .,", " 5 .,"), encoding="utf-8")
    result = run(
        tmp_path / "run", pretrained, file, ["classify.pooling=cls", "epochs=0.1"], **{"data.test": str(test)}
    ).result
    print_result(result | {"failure": None})
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("warning: Accuracy is") and "tf-idf" in first and "on test" in first
    assert len(result["baselines"]["test"]) == 2
    good = {"level": "good", "en": "Accuracy is 90.0\u00a0% on test, 20.0 points above the best baseline.", "zh": "好"}
    calibration = classification().calibration
    assert calibration is not None
    few = replace(calibration, before=((0.9, 0.8, 20),), after=((0.9, 0.8, 20),))
    print_result(result | {"failure": None, "verdict": good, "calibration": few.to_dict()})
    said = capsys.readouterr().out
    assert said.startswith("good: Accuracy is 90.0 % on test, 20.0 points above")
    assert "not to be seen from" in said and "calibration error" not in said, "of so few held-out answers"


def test_evaluate_knows_texts_of_training_by_any_name(
    tmp_path: Path, pretrained: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(tmp_path / "run", pretrained, file)
    n = done.result["examples"]["train"]
    assert (tmp_path / "run/training_texts.bin").stat().st_size == 8 * n
    other = tmp_path / "other.csv"
    rows = [("THE  CAT sat on mat .", "cat"), ("nothing of the kind", "dog"), *TEXTS]
    other.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    held_out = len(TEXTS) - n
    for name in ("run", "run/model"):
        found = evaluate_file(tmp_path / name, other)
        assert found["in_training"] in (n, n + 1) and not found["is_training_file"], "case and spaces do not count"
        assert found["scores"]["examples"] == n + held_out + 2
    assert main(["evaluate", str(tmp_path / "run"), str(other)]) == 0
    assert f"{found['in_training']} of {len(rows)} examples are in the training data" in capsys.readouterr().out
    (tmp_path / "run/training_texts.bin").unlink()  # a run of an older qkv
    assert evaluate_file(tmp_path / "run", other)["in_training"] is None
    assert main(["evaluate", str(tmp_path / "run"), str(other)]) == 0
    assert "in the training data" not in capsys.readouterr().out


def test_evaluate_and_curve_skip_bad_rows(
    tmp_path: Path, pretrained: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "run", pretrained, file)
    bad = tmp_path / "bad.csv"
    bad.write_text(file.read_text(encoding="utf-8") + "the cat sat again,\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 50 has no label.*add --skip-bad"):
        evaluate_file(tmp_path / "run", bad)
    assert main(["evaluate", str(tmp_path / "run"), str(bad), "--skip-bad", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["dropped"] == 1 and found["scores"]["examples"] == len(TEXTS)
    words = ["curve", "classify", "--model", str(pretrained), "--train", str(bad), "--transfer", "features"]
    words += ["--shares", "0.5,1", "--draws", "1", "--set", "train.threads=1"]
    assert main([*words, "--out", str(tmp_path / "stopped")]) == 2
    assert "--skip-bad" in capsys.readouterr().err
    assert main([*words, "--out", str(tmp_path / "curve"), "--skip-bad"]) == 0


def test_weights_from_a_column_and_after_a_stop(
    tmp_path: Path, pretrained: Path, file: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each text has both labels, and the weights say which one counts."""
    rows = [(text, one, int(one == label)) for text, label in TEXTS for one in ("cat", "dog")]
    weighted = tmp_path / "weighted.csv"
    weighted.write_text("text,label,w\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows), encoding="utf-8")
    words = ["finetune", "classify", "--model", str(pretrained), "--train", str(weighted), "--dev", str(file)]
    words += ["--weight", "w", "--set", "train.threads=1"]
    assert main([*words, "--transfer", "features", "--out", str(tmp_path / "run"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["dev"]["accuracy"] == 1.0
    assert result["baselines"]["dev"][1]["key"] == "tf-idf" and result["baselines"]["dev"][1]["value"] == 1.0
    steps = [*words, "--epochs", "2", "--lr", "3e-3"]
    assert main([*steps, "--out", str(tmp_path / "whole")]) == 0
    plain = Trainer.advance

    def advance(self: Any, batches: Any, lr: float) -> None:
        if self.step == 4:
            raise KeyboardInterrupt
        plain(self, batches, lr)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "advance", advance)
        patched.setattr("qkv.jobs.finetune.training.SAVED", 1)
        assert main([*steps, "--out", str(tmp_path / "broken")]) == 130
    assert main(["finetune", "--resume", str(tmp_path / "broken")]) == 0
    for name in ("model/model.safetensors", "log.jsonl", "predictions.jsonl"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    weighted.write_text("text,label,w\na,cat,1\nb,dog,heavy\n", encoding="utf-8")
    assert main([*words, "--transfer", "features", "--out", str(tmp_path / "x")]) == 2
    assert "line 3: the weight in 'w' is 'heavy'" in capsys.readouterr().err
    assert main(["finetune", "answer", "--train", "a", "--out", "b", "--weight", "w"]) == 2
    assert "--weight is for classify and tag, not for answer" in capsys.readouterr().err
