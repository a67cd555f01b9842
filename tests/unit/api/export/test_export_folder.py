"""An exported folder is whole: the script of its README.md runs without qkv and torch, and says what qkv says."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import qkv
from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.bert.folder import save
from tests.support.folders import make_folder, make_model, make_tokenizer
from tests.support.like_folders import make_like_folder
from tests.support.task_folders import task_folder

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKED = "import sys\nfor name in ('qkv', 'torch', 'transformers'):\n    sys.modules[name] = None\n"


def scripts(folder: Path) -> list[str]:
    return CODE.findall((folder / "README.md").read_text(encoding="utf-8"))


def make_sources(root: Path) -> dict[str, Path]:
    pooled = save(root / "sentence", make_model("BertModel"), make_tokenizer(), pooling="mean", normalize=True)
    return {
        "sentence": pooled,
        "hidden": make_folder(root / "hidden", "BertModel"),
        "single": task_folder(root / "single", "classify"),
        "pairs": task_folder(root / "pairs", "classify", seed=1, paired=True),
        "multi": task_folder(root / "multi", "classify", kind="multi"),
        "number": task_folder(root / "number", "classify", kind="regression"),
        "tag": task_folder(root / "tag", "tag"),
        "answer": task_folder(root / "answer", "answer", settings={"no_answer": "no"}),
        "choice": task_folder(root / "choice", "choice"),
        "masked": make_folder(root / "masked", "BertForMaskedLM"),
        "roberta": make_like_folder(root / "roberta", "roberta", "ForSequenceClassification"),
    }


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def folders(sources: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("exported")
    for name, source in sources.items():
        qkv.export(source, root / name, packed=name == "sentence")
    return {name: root / name for name in sources}


@pytest.fixture(scope="module")
def printed(folders: Mapping[str, Path]) -> dict[str, list[str]]:
    """What each script prints, all in one process that knows neither qkv nor torch."""
    code = BLOCKED + "import os\n"
    for name, folder in folders.items():
        assert len(scripts(folder)) == (2 if name == "sentence" else 1)
        code += f"print('== {name}')\nos.chdir({str(folder)!r})\nexec({scripts(folder)[0]!r}, {{}})\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts = re.split(r"^== (\w+)\n", done.stdout, flags=re.MULTILINE)[1:]
    return {name: text.splitlines() for name, text in zip(parts[::2], parts[1::2], strict=True)}


TEXTS = ["A cat sleeps.", "一只猫在睡觉。"]
TEXT_PAIRS = [("A cat sleeps.", "一只猫在睡觉。"), ("It rains.", "下雨了。")]


def test_sentence_vectors(sources: Mapping[str, Path], printed: Mapping[str, list[str]]) -> None:
    wanted = qkv.load(sources["sentence"]).embed([*TEXTS, "Interest rates rose."]).similarity()
    assert np.abs(np.array(json.loads(printed["sentence"][0])) - wanted).max() <= 2e-4


def test_vectors_of_tokens(sources: Mapping[str, Path], printed: Mapping[str, list[str]]) -> None:
    wanted = qkv.load(sources["hidden"]).embed(TEXTS).vectors[:, :4]
    assert np.abs(np.array(json.loads(printed["hidden"][0])) - wanted).max() <= 2e-4


@pytest.mark.parametrize("name", ["single", "pairs", "roberta"])
def test_classes(name: str, sources: Mapping[str, Path], printed: Mapping[str, list[str]]) -> None:
    model = qkv.load(sources[name])
    for line, result in zip(printed[name], model.predict(TEXT_PAIRS if name == "pairs" else TEXTS), strict=True):
        label, share = line.rsplit(" ", 1)
        assert label == result.label and abs(float(share) - result.probability) <= 2e-4


def test_several_labels(sources: Mapping[str, Path], printed: Mapping[str, list[str]]) -> None:
    for line, result in zip(printed["multi"], qkv.load(sources["multi"]).predict(TEXTS), strict=True):
        assert re.findall(r"'(\w+)'", line) == list(result.labels)


def test_numbers(sources: Mapping[str, Path], printed: Mapping[str, list[str]]) -> None:
    for line, result in zip(printed["number"], qkv.load(sources["number"]).predict(TEXTS), strict=True):
        assert abs(float(line) - result.value) <= 2e-4


def test_labels_of_tokens(sources: Mapping[str, Path], printed: Mapping[str, list[str]]) -> None:
    model = qkv.load(sources["tag"])
    for line, text in zip(printed["tag"], ["我爱北京", "He owes me money."], strict=True):
        encoded = model.tokenizer.encode(text)
        with torch.no_grad():
            scores = model.network(**Batch.of([encoded.ids]).inputs())[1]["token"]
        labels = [model.labels[i] for i in scores.argmax(-1).tolist()]
        wanted = [(text[a:b], label) for (a, b), label in zip(encoded.offsets, labels, strict=True)][1:-1]
        assert line == str(wanted)


def test_answers(sources: Mapping[str, Path], printed: Mapping[str, list[str]]) -> None:
    asked = ("What is the capital of France?", "The capital of France is Paris.")
    [result] = qkv.load(sources["answer"]).predict([asked])
    assert printed["answer"][0].rsplit(" ", 1)[0] == result.text


def test_choices(sources: Mapping[str, Path], printed: Mapping[str, list[str]]) -> None:
    choices = ["It sleeps.", "It flies.", "它睡觉。"]
    [result] = qkv.load(sources["choice"]).predict(
        [{"text": "", "question": "The cat is tired. What does it do?", "choices": choices}]
    )
    scores = np.array(json.loads("[" + printed["choice"][0].rpartition(" [")[2]))
    shares = np.exp(scores) / np.exp(scores).sum()
    assert np.abs(shares - np.array(result.probabilities)).max() <= 2e-3


def test_masked_words(sources: Mapping[str, Path], printed: Mapping[str, list[str]]) -> None:
    model = qkv.load(sources["masked"])
    for line, text in zip(printed["masked"], ["Paris is the [MASK] of France.", "巴黎是[MASK]国的首都。"], strict=True):
        assert line == str([one.token for one in model.fill(text)[0].candidates])


def test_the_packed_script(sources: Mapping[str, Path], folders: Mapping[str, Path]) -> None:
    first, second = scripts(folders["sentence"])
    use = "\nprint(run_packed(['A cat sleeps.', '一只猫在睡觉。'])[1].tolist())"
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + first + second + use], cwd=folders["sentence"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = np.array(json.loads(done.stdout.splitlines()[-1]))
    assert np.abs(found - qkv.load(sources["sentence"]).embed(TEXTS).vectors).max() <= 1e-4


def test_what_the_folder_holds(folders: Mapping[str, Path]) -> None:
    held = {file.name for file in folders["sentence"].iterdir()}
    assert {"model.onnx", "model_packed.onnx", "config.json", "tokenizer.json", "export.json", "README.md"} <= held
    assert {"modules.json", "1_Pooling"} <= held, "sentence-transformers reads these"
    about = json.loads((folders["single"] / "export.json").read_text(encoding="utf-8"))
    assert about["labels"] == ["animal", "place"] and about["task"] == "classify" and about["int8"] is None
    assert about["graphs"]["model.onnx"]["outputs"] == ["logits"]
    assert "上" not in about["title"] and "任务头" in (folders["single"] / "README.md").read_text(encoding="utf-8")


def test_a_crf_and_a_temperature_stay_outside(tmp_path: Path) -> None:
    tagger = Path(__file__).parents[3] / "golden" / "models" / "crf"
    about = qkv.export(tagger, tmp_path / "crf")
    assert about["not_in_graph"] and "CRF" in (tmp_path / "crf" / "README.md").read_text(encoding="utf-8")
    assert set(about["calibration"]) == {"temperature", "thresholds", "abstain_below"}


def test_a_loaded_model_is_exported(sources: Mapping[str, Path], tmp_path: Path) -> None:
    about = qkv.export(qkv.load(sources["masked"]), tmp_path / "out", head="none")
    assert about["head"] == "none" and about["graphs"]["model.onnx"]["outputs"] == ["last_hidden_state"]


def test_a_loaded_model_stays_as_it_is(sources: Mapping[str, Path], tmp_path: Path) -> None:
    """And int8 is compared with float32, whatever the model computes in."""
    half = qkv.load(sources["single"], dtype="bfloat16", device="cpu")
    qkv.export(half, tmp_path / "half")
    assert {weight.dtype for weight in half.network.parameters()} == {torch.bfloat16}
    rough = qkv.load(sources["single"], precision="int8")
    figures = qkv.export(rough, tmp_path / "rough", int8=True, least_cosine=-1)["int8"]
    exact = qkv.export(sources["single"], tmp_path / "exact", int8=True, least_cosine=-1)["int8"]
    assert rough.precision == "int8" and figures["mean_cosine"] == pytest.approx(exact["mean_cosine"], abs=1e-6)


def test_what_was_fitted_in_memory_is_exported(sources: Mapping[str, Path], tmp_path: Path) -> None:
    texts, labels = ["a cat", "a dog", "北京", "上海"], ["animal", "animal", "place", "place"]
    classifier = qkv.Classifier(sources["sentence"], transfer="features", device="cpu").fit(texts, labels)
    about = qkv.export(classifier.model_, tmp_path / "out")
    assert about["head"] == "sequence" and about["labels"] == ["animal", "place"]
    written = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert written["id2label"] == {"0": "animal", "1": "place"}


def measured(source: Path, out: Path, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = qkv.export(source, out, int8=True, **options)["int8"]
    return found


def test_int8_is_measured(sources: Mapping[str, Path], tmp_path: Path) -> None:
    found = measured(sources["single"], tmp_path / "out", least_cosine=0.9)
    assert 0.9 <= found["least_cosine"] <= found["mean_cosine"] <= 1.0001
    assert found["held_out"] == "texts of the package" and "score" not in found
    assert (tmp_path / "out" / "model_quantized.onnx").is_file()


def test_int8_is_checked_on_the_file_that_is_given(sources: Mapping[str, Path], tmp_path: Path) -> None:
    rows = ["The cat sat on the mat.,animal", "中国的首都是北京,place", "a dog,animal"] * 40
    (tmp_path / "test.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    found = measured(sources["single"], tmp_path / "a", check=tmp_path / "test.csv", least_cosine=0.9, most_loss=1)
    assert found["score"]["n_examples"] == 120 and found["score"]["name"] == "accuracy"
    assert 0 <= found["score"]["float32"] <= 1 and found["n_texts"] == 120
    (tmp_path / "texts.txt").write_text("一只猫\nthe cat\n", encoding="utf-8")
    for name in ("single", "sentence", "tag"):
        found = measured(sources[name], tmp_path / name, check=tmp_path / "texts.txt", least_cosine=0.9)
        assert found["n_texts"] == 2 and found["held_out"].endswith("texts.txt")


@pytest.mark.parametrize("name", ["tag", "answer", "choice", "pairs"])
def test_scores_of_every_task_come_from_the_graph(name: str, sources: Mapping[str, Path], tmp_path: Path) -> None:
    examples = {
        "tag": '{"text": "the cat", "spans": [{"start": 4, "end": 7, "label": "ANI"}]}',
        "answer": '{"question": "who sat?", "context": "the cat sat", "answers": [{"text": "the cat", "start": 0}]}',
        "choice": '{"text": "", "question": "who sat?", "choices": ["a cat", "a mat"], "answer": 0}',
        "pairs": '{"text": "a cat", "pair": "the cat", "label": "animal"}',
    }
    file = tmp_path / "test.jsonl"
    file.write_text((examples[name] + "\n") * 3, encoding="utf-8")
    found = measured(sources[name], tmp_path / "out", check=file, least_cosine=0.5)
    assert found["score"]["n_examples"] == 3


def test_int8_below_the_limit_is_refused(sources: Mapping[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="least cosine with float32 is 0.9.*--least-cosine"):
        measured(sources["single"], tmp_path / "out", least_cosine=1.0)
    assert list(tmp_path.iterdir()) == []
    rows = ["cat,animal", "dog,place"] * 60
    (tmp_path / "test.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="accuracy falls from .*--most-loss"):
        measured(sources["single"], tmp_path / "out", check=tmp_path / "test.csv", least_cosine=0.5, most_loss=-1.0)
    assert not (tmp_path / "out").exists()


def test_int8_is_measured_on_the_development_set_of_a_run(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        rows = [f"the cat {number},animal\n北京 {number},place\n" for number in range(6 if name == "train" else 4)]
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(rows), encoding="utf-8")
    run = tmp_path / "run"
    task_folder(run / "model", "classify")
    lines = ['task = "classify"', 'model = "model"', "[data]"]
    lines += [f"{name} = '{tmp_path / name}.csv'" for name in ("train", "dev")]
    (run / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = measured(run, tmp_path / "out", least_cosine=0.9)
    assert found["held_out"] == "development examples of the run" and found["score"]["n_examples"] == 8
    (tmp_path / "dev.csv").unlink()
    assert measured(run, tmp_path / "other", least_cosine=0.9)["held_out"] == "texts of the package"
