"""Models inside the package: found by name, whole to the last byte, and what the package really holds."""

import json
import shutil
import tomllib
import zlib
from copy import deepcopy
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import qkv
from qkv.cli.info import read_licence
from qkv.cli.main import main
from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.look.recurrence import show_states
from qkv.look.subject import open_subject
from qkv.look.translating import show_beam_steps, show_translation
from qkv.look.wire import Asked
from qkv.models.folders import hub
from qkv.models.folders.hub import locate
from qkv.models.table import describe_model
from qkv.text.folding import add_folding
from qkv.text.tokenizer import Tokenizer
from tests.golden.golden import MODELS
from tests.stories.test_bad_input import fails
from tests.support.corpora import write_corpus
from tests.support.stand_in import stand_in

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return stand_in(tmp_path / "zoo", monkeypatch)


def test_a_name_of_the_zoo_is_not_a_folder_that_happens_to_be_here(folder: Path, tmp_path: Path) -> None:
    assert locate("qkv-mini") == folder
    (tmp_path / "qkv-mini").mkdir()
    with pytest.warns(match=r"qkv-mini is the model that comes with qkv; the folder here is \./qkv-mini"):
        assert locate("qkv-mini") == folder
    for path in ("./qkv-mini", "qkv-mini/", Path("qkv-mini")):
        assert locate(path) == tmp_path / "qkv-mini"
    again = str(locate("./qkv-mini"))
    assert locate(again) == tmp_path / "qkv-mini", "as a run writes it down and a resumed one looks it up"


def test_what_is_said_to_do_instead_can_be_done(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "vocab.txt").unlink()
    told = fails(capsys, "demo")
    assert "Install qkv again. Verbs with --model" in told and "QKV_MODEL" not in told, "which the demo does not read"


def test_a_copy_without_weights_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hub, "FOLDER", tmp_path)
    told = fails(capsys, "fill", "a [MASK]")
    assert "comes without" in told and "--model FOLDER" in told and "qkv demo --weights" in told


def test_a_slip_in_a_name(folder: Path) -> None:
    with pytest.raises(InputError, match=r"There is no folder qkv-mni\. Did you mean 'qkv-mini'\?"):
        locate("qkv-mni")
    with pytest.raises(InputError) as error:
        locate("somewhere/qkv-mni")
    assert "Did you mean" not in str(error.value), "the zoo has no paths"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", "[PAD]\n", "vocab.txt is not the file that was shipped: its SHA-256 is "),
        ("model.safetensors", None, "model.safetensors is missing"),
        (hub.SUMS, None, "SHA256SUMS is not there"),
        (hub.SUMS, "what\n", "SHA256SUMS, line 1 is not a hash and a name"),
        (hub.SUMS, "", "SHA256SUMS does not name the model's own files"),
    ],
)
def test_a_damaged_model_is_not_used(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, content: str | None, message: str
) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content, encoding="utf-8")
    training = ["classify", "--train", "messages.csv", "--out", "run"]
    for words in (["fill", "[MASK]"], ["tokenize", "a"], ["info"], ["finetune", *training], ["curve", *training]):
        told = fails(capsys, *words)
        assert message in told and str(folder) in told and "Install qkv again" in told


def test_every_verb_has_a_model(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["fill", "the [MASK] 猫"],
        ["embed", "a cat"],
        ["attention", "the cat"],
        ["tokenize", "the cat"],
        ["info"],
        ["convert", "qkv-mini", str(tmp_path / "copy")],
    ):
        assert main([*words, "--json"]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out) and err == ""
    facts = json.loads((main(["info", "--json"]), capsys.readouterr().out)[1])
    assert (facts["path"], facts["dtype"], facts["licence"]) == (str(folder), "float16", "cc-by-sa-4.0")
    assert (facts["card"], facts["licence_file"]) == (str(folder / "README.md"), str(folder / "LICENSE"))
    assert main(["info"]) == 0
    assert f"cc-by-sa-4.0, {folder / 'LICENSE'}" in capsys.readouterr().out
    assert (tmp_path / "copy" / "LICENSE").is_file(), "a copy keeps the terms"


def test_the_environment_comes_before_the_zoo(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QKV_MODEL", "my-own")
    for words in (["fill", "[MASK]"], ["tokenize", "a"], ["info"]):
        assert "There is no folder my-own" in fails(capsys, *words)
    monkeypatch.setenv("QKV_MODEL", "")
    assert main(["tokenize", "a"]) == 0, "empty is as good as not there"


def test_the_default_model_from_python(folder: Path) -> None:
    model = qkv.load()
    assert model.name == "qkv-mini" == qkv.Classifier().model
    assert {one.dtype for one in model.network.parameters()} == {torch.float32}, "whatever is stored"


@pytest.mark.usefixtures("one_thread")
def test_going_on_from_the_zoo_on_text_of_ones_own(folder: Path, tmp_path: Path) -> None:
    corpus, shards = write_corpus(tmp_path / "corpus.txt", 40), tmp_path / "shards"
    assert (
        main(["prepare", str(corpus), "-t", "qkv-mini", "-o", str(shards), "--workers", "1", "--segmenter", "none"])
        == 0
    )
    few = ["train.steps=2", "rows=4", "pairs.max_length=16", "train.threads=1"]
    settings = [word for one in few for word in ("--set", one)]

    def went_on_from(init: str, run: Path) -> str:
        words = [
            "--data",
            str(shards),
            "--out",
            str(run),
            "--recipe",
            "adapt",
        ]
        assert main(["pretrain", "bert", "--init", init, *words, *settings]) == 0
        written = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))["init"]
        assert isinstance(written, str)
        return written

    assert went_on_from("qkv-mini", tmp_path / "run") == "qkv-mini"
    assert qkv.load(tmp_path / "run").tokenizer.vocabulary == qkv.load().tokenizer.vocabulary
    assert (tmp_path / "run" / "model" / "LICENSE").is_file(), "what is adapted keeps the terms"
    shutil.copytree(folder, tmp_path / "qkv-mini")
    assert went_on_from("./qkv-mini", tmp_path / "other") == str(tmp_path / "qkv-mini"), "which is another one"


def test_help_names_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    mini = dict.fromkeys(("fill", "attention", "tokenize", "finetune", "curve", "info"), "qkv-mini")
    for verb, default in {**mini, "embed": "qkv-sentences", "similar": "qkv-words"}.items():
        assert main([verb, "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split()).replace("- ", "-")  # a line may end at a hyphen
        variable = "QKV_VECTORS" if verb == "similar" else "QKV_MODEL"
        assert f"default: {default}" in text and f"env var: {variable}" in text, verb


# What is really in the package


@pytest.fixture(scope="module")
def shipped() -> Path:
    return hub.find_shipped(hub.DEFAULT_MODEL)


@pytest.mark.parametrize("name", hub.shipped_models())
def test_the_zoo_is_whole_and_goes_into_the_wheel(name: str) -> None:
    shipped = hub.find_shipped(name)
    files = {file.relative_to(shipped).as_posix() for file in shipped.rglob("*") if file.is_file()}
    sealed = {line.partition("  ")[2] for line in (shipped / hub.SUMS).read_text(encoding="utf-8").splitlines()}
    assert files == sealed | {hub.SUMS}
    assert {"config.json", "model.safetensors", "README.md", "LICENSE", "log.jsonl", "report.html"} < sealed
    assert "qkv.json" in sealed and any(file.endswith(".toml") for file in sealed)
    assert any(file.endswith("tokenizer.json") for file in sealed)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    # a folder with a full stop in its name would be no package, and stay out of the wheel
    assert [file for file in files if not any(fnmatch(Path(file).name, pattern) for pattern in patterns)] == []
    assert not [file for file in files if "." in str(Path(file).parent).removeprefix(".")]
    licence = f"src/qkv/zoo/{name}/LICENSE"
    assert any(fnmatch(licence, pattern) for pattern in project["project"]["license-files"])
    assert read_licence(shipped)["licence"] == "cc-by-sa-4.0", "as pyproject.toml says"


@pytest.mark.parametrize("name", hub.shipped_models())
def test_a_shipped_model_is_what_the_table_says(name: str) -> None:
    one, facts = hub.ZOO[name], describe_model(hub.FOLDER / name)
    assert set(one.default_for) <= {ability.name for ability in facts.abilities}
    if one.writes:
        assert [*one.reads, one.writes] == [facts.record["source_language"], facts.record["target_language"]]


def test_the_zoo_is_small_enough_for_the_wheel() -> None:
    """Files are packed there, each alone and as zlib does it by default: the models may have 64 MB of it."""
    files = [file for name in hub.shipped_models() for file in (hub.FOLDER / name).rglob("*") if file.is_file()]
    sizes = {f"{file.parent.name}/{file.name}": len(zlib.compress(file.read_bytes())) for file in files}
    assert sum(sizes.values()) < 64_000_000, sizes


def test_the_shipped_model_is_a_bert_of_transformers(shipped: Path) -> None:
    from transformers import AutoTokenizer, BertForPreTraining

    kind: Any = BertForPreTraining  # with what it says about loading, it gives back a pair
    reference, report = kind.from_pretrained(shipped, dtype=torch.float32, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    tokenizer, model = AutoTokenizer.from_pretrained(shipped), qkv.load(shipped)
    texts = ("The capital of France is [MASK].", "巴黎是[MASK]国的首都，unaffable！")
    ours = model.tokenizer.encode(*texts)
    assert ours.ids == tokenizer(*texts)["input_ids"]
    with torch.inference_mode():
        found = reference.eval()(**tokenizer(*texts, return_tensors="pt"))
        batch = Batch.of([ours.ids], segments=[ours.segments])
        logits = model.network.predict("masked", model.network.encoder(**batch.inputs()).hidden)
    torch.testing.assert_close(logits, found.prediction_logits[0], atol=1e-4, rtol=1e-4)
    judged = model.next_sentence(*texts)
    expected = found.seq_relationship_logits[0].softmax(-1).tolist()
    assert [judged.is_next, judged.not_next] == pytest.approx(expected, abs=1e-5)


TRAINED = 20_000
"""Tokens of the vocabulary that qkv-mini was trained with; tokens.txt has the others."""


def test_tokens_added_to_the_shipped_model_leave_the_rest_as_it_was(shipped: Path) -> None:
    tokens = (shipped / "vocab.txt").read_text(encoding="utf-8").splitlines()
    added = [line.split("\t") for line in (shipped / "tokens.txt").read_text(encoding="utf-8").splitlines()]
    assert tokens[TRAINED:] == [token for token, _ in added] and len(tokens) % 128 == 0
    before, now = Tokenizer.from_vocabulary(tokens[:TRAINED], lowercase=True), Tokenizer.load(shipped)
    texts = ["The naïve café, 3.14 [MASK] ☆ 한국", "巴黎是[MASK]国的首都，unaffable！", "他欠我100万"]
    ids = [one.ids for one in now.encode_batch(texts)]
    assert ids == [one.ids for one in before.encode_batch(texts)]

    model = qkv.load(shipped).network
    state = model.state_dict()
    table, bias = state["encoder.embedding.token.weight"], state["heads.masked.bias"]
    first: Any = deepcopy(model)
    first.encoder.embedding.token.weight = torch.nn.Parameter(table[:TRAINED])
    first.heads["masked"].bias = torch.nn.Parameter(bias[:TRAINED])
    batch = Batch.of(ids)
    with torch.inference_mode():
        hidden, expected = (one.encoder(**batch.inputs()).hidden for one in (model, first))
        assert torch.equal(hidden, expected)
        scores, expected = (one.predict("masked", hidden).softmax(-1) for one in (model, first))
    torch.testing.assert_close(scores[:, :TRAINED], expected, atol=1e-4, rtol=1e-3)

    add_folding(before.backend, ["width", "emoji"])  # as the texts of tokens.txt were read
    like = before.encode_ids([text for _, text in added])
    assert not any(before.unk_id in one for one in like)
    means = torch.stack([table[one].mean(0) for one in like])
    torch.testing.assert_close(table[TRAINED:], means, atol=1e-3, rtol=0)


def test_the_shipped_model_reads_what_people_write(shipped: Path) -> None:
    from transformers import AutoTokenizer

    ours, theirs = Tokenizer.load(shipped), AutoTokenizer.from_pretrained(shipped)
    level_1 = b"".join(bytes([row, cell]) for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF))
    characters = list(level_1[:-10].decode("gb2312"))  # the last row has five fewer
    assert len(characters) == 3755 and ours.unk_id not in ours.encode_ids(["".join(characters)])[0]
    texts = [
        *("嗯嗯😡😡，good🎉ok👍🏻", "為甚麼這個酒店這麼貴？", "ＡＢＣ１２３＠ｑｑ．ｃｏｍ", "囧……怼他！", "❤️ ☀️ ① 3㎏"),
        *("é嗯\u0301\u200b[MASK]😡", "「你好」～＃话题＃", "👩\u200d❤\ufe0f\u200d👨", "龘靐 ##嗯 [SEP]嗯 ok＾＿＾"),
    ]
    for text in texts:
        found, expected = ours.encode(text), theirs(text, return_offsets_mapping=True)
        assert found.ids == expected["input_ids"] and found.tokens[1:-1] == ours.plain().tokenize(text)
        assert found.offsets == [tuple(span) for span in expected["offset_mapping"]]
        assert ours.unk_id not in found.ids, text
    angry, joy = qkv.load(shipped).embed(["😡😡😡", "🎉🎉🎉"]).vectors
    assert torch.cosine_similarity(torch.as_tensor(angry), torch.as_tensor(joy), dim=0) < 0.9


def test_the_first_layers_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A shorter model is the lower part of the longer one."""
    assert main(["convert", "qkv-mini", str(tmp_path / "half"), "--layers", "6", "--architecture", "BertModel"]) == 0
    capsys.readouterr()
    whole, half = qkv.load(), qkv.load(tmp_path / "half")
    texts = ["A cat sleeps.", "一只猫在睡觉。"]
    assert half.config.layers == 6
    assert np.allclose(half.embed(texts).vectors, whole.embed(texts, layer=6).vectors, atol=1e-5)
    assert "12 layers; 13 of them cannot be kept" in fails(
        capsys, "convert", "qkv-mini", tmp_path / "x", "--layers", "13"
    )
    assert "holds a GPT" in fails(capsys, "convert", MODELS / "gpt", tmp_path / "x", "--layers", "1")


def test_english_of_one_case_is_read_as_a_sentence() -> None:
    """By the record of its folder; what is shown stays as it was given."""
    translator = qkv.load_translator("qkv-en-zh")
    texts = ["How are you ☃?", "HOW ARE YOU ☃?", "how are you ☃?", "hOW ARE yOU ☃?"]
    plain, capitals, small, mixed = translator.translate(texts, alignments=True)
    for one in (capitals, small):
        assert one.candidates[0].text == plain.text and one.best.score == pytest.approx(plain.best.score, abs=1e-4)
        assert one.unknown == plain.unknown == ((12, 13),)
        spans = [(link.source, link.target) for link in one.best.alignments]
        assert spans == [(link.source, link.target) for link in plain.best.alignments]
    assert capitals.source == "HOW ARE YOU ☃?" and capitals.best.attention is not None
    assert "YOU" in capitals.best.attention.source and mixed.n_tokens > plain.n_tokens


@pytest.mark.parametrize("name", ["qkv-en-zh", "qkv-en-zh-rnn"])
def test_the_page_shows_english_of_one_case_as_it_was_given(name: str) -> None:
    subject = open_subject(locate(name))
    text = "THE CAT SLEEPS."
    shown, steps = show_translation(subject, Asked({"text": text})), show_beam_steps(subject, Asked({"text": text}))
    for reply in (shown, steps):
        first = reply.head["source"][0]
        assert (reply.head["text"], first["text"], first["token"]) == (text, "THE", "▁The")
    if name == "qkv-en-zh-rnn":
        assert show_states(subject, Asked({"text": text})).head["text"] == text
