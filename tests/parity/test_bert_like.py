"""Families of BERT's kind against transformers on tiny random weights, both ways: the same numbers from one folder.

Every parameter is drawn at random, biases and norms included, so that a swapped or forgotten tensor shows. Differences
are held to 1e-5 in float32.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from torch import Tensor

from qkv.data.batch import Batch
from qkv.models.bert.network import BertWithHeads
from qkv.models.family import ENCODES, FILLS, HAS_TASK, TAKES_HEAD, Head, Opened, Saving
from qkv.models.table import describe_model, open_model
from tests.support.folders import randomise
from tests.support.like_folders import TOKENIZERS, make_like_tokenizer

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
}
CHOICES = 2  # of a multiple choice, neighbouring rows


class Family(NamedTuple):
    classes: str  # what transformers' classes begin with
    config: dict[str, Any]
    heads: tuple[tuple[str, str], ...] = ()  # of classes beside those that all have, by their endings


FAMILIES: dict[str, Family] = {
    "roberta": Family("Roberta", SMALL | {"type_vocab_size": 1, "pad_token_id": 1}),
    "xlm-roberta": Family("XLMRoberta", SMALL | {"type_vocab_size": 1, "pad_token_id": 1}),
    "distilbert": Family(
        "DistilBert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 66}
    ),
    "electra": Family("Electra", SMALL | {"embedding_size": 16}, (("ForPreTraining", "replaced"),)),
    "albert": Family(
        "Albert",
        SMALL | {"embedding_size": 16, "num_hidden_layers": 4, "num_hidden_groups": 2},
        (("ForPreTraining", "order"),),
    ),
    "ernie": Family(
        "Ernie",
        SMALL | {"use_task_id": True, "type_vocab_size": 4},
        (("ForPreTraining", "both"), ("ForNextSentencePrediction", "next_sentence")),
    ),
}
HEADS: dict[str, str | None] = {
    "ForMaskedLM": "masked",
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
    "ForQuestionAnswering": "span",
    "ForMultipleChoice": "choice",
    "Model": None,
}
CASES = [(name, ending) for name, family in FAMILIES.items() for ending in (*HEADS, *dict(family.heads))]


def reference(name: str, ending: str, **changes: Any) -> Any:
    family = FAMILIES[name]
    kind = getattr(transformers, f"{family.classes}{ending}")
    fields = family.config | {"vocab_size": make_like_tokenizer(name).size} | changes
    if ending in ("ForSequenceClassification", "ForTokenClassification"):
        fields["id2label"] = {0: "O", 1: "人名", 2: "地名"}
    model = kind(kind.config_class(**fields, attn_implementation="eager"))
    randomise(model)
    return model.eval()


def write_reference(folder: Path, name: str, ending: str, **changes: Any) -> Any:
    model = reference(name, ending, **changes)
    for file, text in TOKENIZERS[name]().items():
        folder.mkdir(exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    model.save_pretrained(folder)
    return model


def make_batch(opened: Opened) -> Batch:
    """Singles and pairs, short and as long as the model takes."""
    tokenizer, sizes = opened.tokenizer, opened.facts.sizes
    assert sizes is not None
    words = [number for number in range(tokenizer.size) if number not in tokenizer.special_ids]
    rows = [
        tokenizer.with_special(words[3:6]),
        tokenizer.with_special(words[5:8], words[8:12]),
        tokenizer.with_special([]),
        tokenizer.with_special((words * 9)[: sizes.max_length - 2]),
        tokenizer.with_special(words[:2], words[1:2]),
        tokenizer.with_special(words[4:5]),
    ]
    return Batch.of([ids for ids, _ in rows], segments=[segments for _, segments in rows])


READ: dict[str, Callable[[Any], dict[str, Tensor]]] = {
    "masked": lambda out: {"masked": out.logits},
    "sequence": lambda out: {"sequence": out.logits},
    "token": lambda out: {"token": out.logits},
    "span": lambda out: {"span": torch.stack([out.start_logits, out.end_logits], dim=-1)},
    "choice": lambda out: {"choice": out.logits.view(-1, 1)},
    "replaced": lambda out: {"replaced": out.logits},
    "next_sentence": lambda out: {"next_sentence": out.logits},
    "both": lambda out: {"masked": out.prediction_logits, "next_sentence": out.seq_relationship_logits},
    "order": lambda out: {"masked": out.prediction_logits, "sentence_order": out.sop_logits},
}
"""Their outputs under our names."""


def run_reference(model: Any, head: str | None, batch: Batch, segments: int) -> dict[str, Any]:
    """What they compute, on the padded batch."""
    padded = batch.padded()
    given = {"input_ids": padded.ids, "attention_mask": padded.mask.long()}
    given["input_ids"] = padded.ids.masked_fill(~padded.mask, model.config.pad_token_id)
    if segments > 1:
        given["token_type_ids"] = padded.segments
    if head == "choice":
        given = {name: value.view(-1, CHOICES, value.size(-1)) for name, value in given.items()}
    with torch.no_grad():
        out = model(**given, output_hidden_states=True, output_attentions=True)
    logits = READ[head](out) if head is not None else {}
    if head is None and getattr(out, "pooler_output", None) is not None:
        logits = {"pooled": out.pooler_output}
    return {"logits": logits, "states": out.hidden_states, "attention": out.attentions}


def run_ours(model: BertWithHeads, batch: Batch, packed: bool) -> dict[str, Any]:
    """Our outputs, padded, whichever way they were computed."""
    inputs = batch.inputs() if packed else batch.padded().inputs()
    layers = range(model.config.layers)
    with torch.no_grad():
        encoding, logits = model(**inputs, attention=layers, states=True)
        plain, _ = model(**inputs)  # asking for weights takes the explicit path, so look at the fused one too
    assert difference(plain.hidden, encoding.hidden) <= 1e-5
    if not logits and encoding.pooled is not None:
        logits = {"pooled": encoding.pooled}

    def rectangle(value: Tensor) -> Tensor:
        return batch.pad(value) if packed and value.size(0) == batch.n_tokens else value

    return {
        "logits": {name: rectangle(value) for name, value in logits.items()},
        "states": [rectangle(state) for state in encoding.states or ()],
        "attention": [encoding.attention[layer] for layer in layers],
    }


def difference(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    return float((one - other).abs().max())


def worst(ours: dict[str, Any], theirs: dict[str, Any], batch: Batch) -> float:
    """The largest difference at a real token; what stands at padding is nobody's business."""
    assert ours["logits"].keys() == theirs["logits"].keys()
    pairs = [(ours["logits"][name], theirs["logits"][name]) for name in ours["logits"]]
    pairs += list(zip(ours["states"], theirs["states"], strict=True))
    pairs += [
        (one.transpose(1, 2), other.transpose(1, 2))  # queries first
        for one, other in zip(ours["attention"], theirs["attention"], strict=True)
    ]
    mask = batch.padded().mask
    return max(
        difference(one[mask], other[mask]) if one.shape[:2] == mask.shape else difference(one, other)
        for one, other in pairs
    )


def assert_equal(folder: Path, model: Any, head: str | None) -> Opened:
    opened = open_model(folder)
    network, batch = opened.ability(ENCODES).network, make_batch(opened)
    assert isinstance(network, BertWithHeads)
    theirs = run_reference(model, head, batch, network.config.segments)
    assert worst(run_ours(network, batch, packed=False), theirs, batch) <= 1e-5
    assert worst(run_ours(network, batch, packed=True), theirs, batch) <= 1e-5
    return opened


def head_of(name: str, ending: str) -> str | None:
    return {**HEADS, **dict(FAMILIES[name].heads)}[ending]


@pytest.mark.parametrize(("name", "ending"), CASES)
def test_both_ways(tmp_path: Path, name: str, ending: str) -> None:
    head = head_of(name, ending)
    opened = assert_equal(tmp_path / "theirs", write_reference(tmp_path / "theirs", name, ending), head)
    assert opened.facts.family == name and not opened.notes, opened.notes
    assert opened.architecture == f"{FAMILIES[name].classes}{ending}"
    assert opened.facts == describe_model(tmp_path / "theirs")
    opened.save(tmp_path / "ours")
    kind = getattr(transformers, opened.architecture)
    again, said = kind.from_pretrained(tmp_path / "ours", output_loading_info=True, attn_implementation="eager")
    assert not said["missing_keys"] and not said["unexpected_keys"] and not said["mismatched_keys"]
    assert_equal(tmp_path / "ours", again.eval(), head)
    for field, value in FAMILIES[name].config.items():
        assert getattr(again.config, field) == value, field


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("roberta", {"type_vocab_size": 2, "layer_norm_eps": 1e-5, "hidden_act": "relu"}),
        ("distilbert", {"sinusoidal_pos_embds": True, "activation": "relu", "qa_dropout": 0.3}),
        ("electra", {"embedding_size": 32}),
        ("albert", {"embedding_size": 32, "num_hidden_groups": 1, "num_hidden_layers": 3}),
        ("albert", {"num_hidden_layers": 5, "num_hidden_groups": 3}),
        ("ernie", {"use_task_id": False}),
    ],
)
def test_other_shapes(tmp_path: Path, name: str, changes: dict[str, Any]) -> None:
    opened = assert_equal(tmp_path / "theirs", write_reference(tmp_path / "theirs", name, "Model", **changes), None)
    opened.save(tmp_path / "ours")
    kind = getattr(transformers, f"{FAMILIES[name].classes}Model")
    again, said = kind.from_pretrained(tmp_path / "ours", output_loading_info=True, attn_implementation="eager")
    assert not said["missing_keys"] and not said["unexpected_keys"]
    assert all(getattr(again.config, field) == value for field, value in changes.items())
    assert_equal(tmp_path / "ours", again.eval(), None)


@pytest.mark.parametrize("name", FAMILIES)
def test_tokenizers(tmp_path: Path, name: str) -> None:
    write_reference(tmp_path / "theirs", name, "ForMaskedLM")
    opened = open_model(tmp_path / "theirs")
    opened.save(tmp_path / "ours")
    for folder in ("theirs", "ours"):
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / folder)
        for text in ("the cat sat on the mat", "北京是中国的首都", "To be, or not?"):
            assert opened.tokenizer.encode(text).ids == theirs(text)["input_ids"]
            pair = opened.tokenizer.encode(text, "a dog")
            assert pair.ids == theirs(text, "a dog")["input_ids"]
            assert opened.tokenizer.with_special(*opened.tokenizer.encode_ids([text, "a dog"])) == (
                pair.ids,
                pair.segments,
            )
        assert theirs.mask_token_id == opened.tokenizer.mask_id and theirs.pad_token_id == opened.tokenizer.pad_id
        assert theirs.cls_token_id == opened.tokenizer.marks.start and theirs.sep_token_id == opened.tokenizer.sep_id
    assert open_model(tmp_path / "ours").tokenizer.marks == opened.tokenizer.marks


@pytest.mark.parametrize("head", ["sequence", "token", "span", "choice"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_head_goes_to_transformers(tmp_path: Path, name: str, head: str) -> None:
    write_reference(tmp_path / "theirs", name, "ForMaskedLM")
    takes = open_model(tmp_path / "theirs").ability(TAKES_HEAD)
    outputs = {"span": 2, "choice": 1}.get(head, 3)
    network, fresh = takes.with_head(Head(head, outputs, seed=3))
    randomise(network)
    assert f"heads.{head}" in fresh and fresh <= {f"heads.{head}", "encoder.pooler"}
    labels = ("a", "b", "c") if outputs == 3 else ()
    takes.save(tmp_path / "ours", network, Saving(labels))
    opened = open_model(tmp_path / "ours")
    assert opened.facts.heads == (head,) and opened.labels == labels and opened.has(HAS_TASK)
    kind = getattr(transformers, opened.architecture)
    again, said = kind.from_pretrained(tmp_path / "ours", output_loading_info=True, attn_implementation="eager")
    assert not said["missing_keys"] and not said["unexpected_keys"]
    assert_equal(tmp_path / "ours", again.eval(), head)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_untied_decoder(tmp_path: Path, name: str) -> None:
    model = write_reference(tmp_path / "theirs", name, "ForMaskedLM", tie_word_embeddings=False)
    opened = assert_equal(tmp_path / "theirs", model, "masked")
    assert not opened.config.tied
    opened.save(tmp_path / "ours")
    again = type(model).from_pretrained(tmp_path / "ours", attn_implementation="eager")
    assert_equal(tmp_path / "ours", again.eval(), "masked")


@pytest.mark.parametrize("name", FAMILIES)
def test_blanks_are_filled(tmp_path: Path, name: str) -> None:
    model = write_reference(tmp_path / "theirs", name, "ForMaskedLM")
    opened = open_model(tmp_path / "theirs")
    fills, tokenizer = opened.ability(FILLS), opened.tokenizer
    ids = tokenizer.encode(f"the cat {tokenizer.token(fills.mask_id)} on the mat").ids
    with torch.no_grad():
        scores = fills.scores(Batch.of([ids]), torch.tensor([ids.index(fills.mask_id)]))
        theirs = model(input_ids=torch.tensor([ids])).logits[0, ids.index(fills.mask_id)]
    assert difference(scores[0], theirs) <= 1e-5
