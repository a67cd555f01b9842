"""BERT against transformers on tiny random weights, both ways: the same numbers from the same folder.

Every parameter is drawn at random, biases and norms included, so that a swapped or forgotten tensor shows. Differences
are held to 1e-5 in float32.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from qkv.data.batch import Batch
from qkv.models.bert.folder import BERT_NAMES, load
from qkv.models.bert.network import Bert, BertConfig, BertWithHeads
from qkv.models.table import describe_model
from tests.support.folders import TOKENS, make_folder, make_tokenizer, randomise

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

LABELLED = ("BertForSequenceClassification", "BertForTokenClassification")

# singles and pairs, short and as long as the model takes, more than one of a length
ROWS = [
    [2, 30, 40, 41, 3],
    [2, 50, 51, 3, 60, 61, 62, 3],
    [2, 3],
    [2, *range(5, 66), 70, 3],
    [2, 70, 71, 72, 3],
    [2, 9, 3],
]
SEGMENTS = [[0] * 5, [0] * 4 + [1] * 4, [0] * 2, [0] * 30 + [1] * 34, [0] * 5, [0] * 2 + [1]]
BATCH = Batch.of(ROWS, segments=SEGMENTS)
CHOICES = 2  # of a multiple choice, neighbouring rows


READ: dict[str, Callable[[Any], dict[str, Tensor]]] = {
    "BertForPreTraining": lambda out: {"masked": out.prediction_logits, "next_sentence": out.seq_relationship_logits},
    "BertForMaskedLM": lambda out: {"masked": out.logits},
    "BertForNextSentencePrediction": lambda out: {"next_sentence": out.logits},
    "BertForSequenceClassification": lambda out: {"sequence": out.logits},
    "BertForTokenClassification": lambda out: {"token": out.logits},
    "BertForQuestionAnswering": lambda out: {"span": torch.stack([out.start_logits, out.end_logits], dim=-1)},
    "BertForMultipleChoice": lambda out: {"choice": out.logits.view(-1, 1)},
    "BertModel": lambda out: {"pooled": out.pooler_output},
}
"""Their outputs under our names."""


def reference(architecture: str, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "vocab_size": len(TOKENS),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "attn_implementation": "eager",
    }
    if architecture in LABELLED:
        fields["id2label"] = {0: "O", 1: "人名", 2: "地名"}
    model = getattr(transformers, architecture)(transformers.BertConfig(**(fields | changes)))
    randomise(model)
    return model.eval()


def write_reference(folder: Path, architecture: str, shard: str = "1GB", **changes: Any) -> Any:
    model = reference(architecture, **changes)
    make_tokenizer().save(folder)
    model.save_pretrained(folder, max_shard_size=shard)
    return model


def run_reference(model: Any) -> dict[str, Any]:
    """What they compute, on the padded batch."""
    padded = BATCH.padded()
    given = {"input_ids": padded.ids, "token_type_ids": padded.segments, "attention_mask": padded.mask.long()}
    if type(model).__name__ == "BertForMultipleChoice":
        given = {name: value.view(-1, CHOICES, value.size(-1)) for name, value in given.items()}
    with torch.no_grad():
        out = model(**given, output_hidden_states=True, output_attentions=True)
    logits = READ[type(model).__name__](out)
    return {"logits": logits, "states": out.hidden_states, "attention": out.attentions}


def run_ours(model: BertWithHeads, packed: bool) -> dict[str, Any]:
    """Our outputs, padded, whichever way they were computed."""
    inputs = BATCH.inputs() if packed else BATCH.padded().inputs()
    layers = range(model.config.layers)
    with torch.no_grad():
        encoding, logits = model(**inputs, attention=layers, states=True)
        plain, _ = model(**inputs)  # asking for weights takes the explicit path, so look at the fused one too
    assert difference(plain.hidden, encoding.hidden) <= 1e-5
    if not logits:
        logits = {"pooled": encoding.pooled}

    def rectangle(value: Tensor) -> Tensor:
        return BATCH.pad(value) if packed and value.size(0) == BATCH.n_tokens else value

    return {
        "logits": {name: rectangle(value) for name, value in logits.items()},
        "states": [rectangle(state) for state in encoding.states],
        "attention": [encoding.attention[layer] for layer in layers],
    }


def difference(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    return float((one - other).abs().max())


def worst(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The largest difference at a real token; what stands at padding is nobody's business."""
    assert ours["logits"].keys() == theirs["logits"].keys()
    pairs = [(ours["logits"][name], theirs["logits"][name]) for name in ours["logits"]]
    pairs += list(zip(ours["states"], theirs["states"], strict=True))
    pairs += [
        (one.transpose(1, 2), other.transpose(1, 2))  # queries first
        for one, other in zip(ours["attention"], theirs["attention"], strict=True)
    ]
    mask = BATCH.padded().mask
    return max(
        difference(one[mask], other[mask]) if one.shape[:2] == mask.shape else difference(one, other)
        for one, other in pairs
    )


def assert_equal(folder: Path, model: Any) -> None:
    theirs = run_reference(model)
    ours = load(folder).model
    assert worst(run_ours(ours, packed=False), theirs) <= 1e-5
    assert worst(run_ours(ours, packed=True), theirs) <= 1e-5


@pytest.mark.parametrize("architecture", BERT_NAMES.classes)
def test_we_load_theirs(tmp_path: Path, architecture: str) -> None:
    model = write_reference(tmp_path, architecture)
    assert_equal(tmp_path, model)
    folder = load(tmp_path)
    assert folder.architecture == architecture
    assert folder.notes == ()
    assert folder.labels == (("O", "人名", "地名") if architecture in LABELLED else ())
    counts = describe_model(tmp_path).document["parameters"]
    assert counts["total"] == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("architecture", BERT_NAMES.classes)
@pytest.mark.parametrize("tied", [True, False])
def test_they_load_ours(tmp_path: Path, architecture: str, tied: bool) -> None:
    labels = ("O", "人名", "地名") if architecture in LABELLED else ()
    make_folder(tmp_path / "m", architecture, labels=labels, tied=tied)
    auto_class = getattr(transformers, BERT_NAMES.classes[architecture].auto_class)
    model, report = auto_class.from_pretrained(tmp_path / "m", output_loading_info=True, attn_implementation="eager")
    assert type(model).__name__ == architecture
    assert not any(report.values()), report
    assert model.config.pad_token_id == 0
    assert not labels or model.config.id2label == dict(enumerate(labels))
    assert_equal(tmp_path / "m", model.eval())


@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "silu", "tanh"])
def test_activations(tmp_path: Path, activation: str) -> None:
    assert_equal(tmp_path, write_reference(tmp_path, "BertForPreTraining", hidden_act=activation))


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_norm_eps": 1e-3},
        {"type_vocab_size": 5},
        {"tie_word_embeddings": False},
        {"num_attention_heads": 1, "num_hidden_layers": 3, "intermediate_size": 100},
    ],
)
def test_other_settings(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert_equal(tmp_path, write_reference(tmp_path, "BertForPreTraining", **changes))


def test_shards(tmp_path: Path) -> None:
    model = write_reference(tmp_path, "BertForPreTraining", shard="20KB")
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 3
    assert_equal(tmp_path, model)


def test_names_from_tensorflow_and_a_repeated_decoder(tmp_path: Path) -> None:
    """The file of 2018: gamma and beta, a decoder and a buffer stored beside what they repeat."""
    model = write_reference(tmp_path, "BertForPreTraining")
    tensors = {}
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors[old] = tensor
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    tensors["bert.embeddings.position_ids"] = torch.arange(64).view(1, 64)
    save_file(tensors, tmp_path / "model.safetensors")
    assert_equal(tmp_path, model)


@pytest.mark.parametrize("zipped", [True, False])
def test_pickled_weights(tmp_path: Path, zipped: bool) -> None:
    model = write_reference(tmp_path, "BertForPreTraining")
    (tmp_path / "model.safetensors").unlink()
    # their state dict holds the decoder and the embedding as one storage under two names
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    assert_equal(tmp_path, model)


def test_sharded_pickled_weights(tmp_path: Path) -> None:
    model = write_reference(tmp_path, "BertForMaskedLM")
    (tmp_path / "model.safetensors").unlink()
    tensors = list(model.state_dict().items())
    where: dict[str, str] = {}
    for number, part in enumerate((tensors[::2], tensors[1::2]), 1):
        file = f"pytorch_model-{number:05}-of-00002.bin"
        torch.save(dict(part), tmp_path / file)
        where |= {name: file for name, _ in part}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    assert_equal(tmp_path, model)


@pytest.mark.parametrize("architecture", ["BertModel", "BertForSequenceClassification"])
def test_with_and_without_the_prefix(tmp_path: Path, architecture: str) -> None:
    model = write_reference(tmp_path, architecture)
    tensors = {}
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        encoder = not name.startswith("classifier")
        tensors[name.removeprefix("bert.") if name.startswith("bert.") else "bert." * encoder + name] = tensor
    save_file(tensors, tmp_path / "model.safetensors")
    assert_equal(tmp_path, model)


@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForPreTraining"])
def test_a_decoder_that_differs_is_used_as_theirs_is(tmp_path: Path, name: str) -> None:
    write_reference(tmp_path, name)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].flip(0, 1)
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].flip(0)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model = getattr(transformers, name).from_pretrained(tmp_path, attn_implementation="eager").eval()
    assert torch.equal(model.cls.predictions.decoder.bias, tensors["cls.predictions.decoder.bias"])
    assert_equal(tmp_path, model)


def test_half_precision_files_agree_in_float32(tmp_path: Path) -> None:
    model = reference("BertForPreTraining").half()
    make_tokenizer().save(tmp_path)
    model.save_pretrained(tmp_path)
    assert_equal(tmp_path, model.float())


def test_the_tokenizer_goes_along(tmp_path: Path) -> None:
    make_folder(tmp_path / "m")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    ours = make_tokenizer()
    assert theirs.model_max_length == 64
    for text, pair in [("他欠我100万。", "The cat sat!"), ("  Unhappyness 😀  北京", None), ("", None)]:
        expected = theirs(text, pair)
        encoded = ours.encode(text, pair)
        assert encoded.ids == expected["input_ids"]
        assert encoded.segments == expected["token_type_ids"]


@pytest.mark.parametrize(("size", "count"), [("base", 109_482_240), ("large", 335_141_888)])
def test_published_sizes(size: str, count: int) -> None:
    with torch.device("meta"):
        model = Bert(BertConfig.preset(size), pooler=True)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
