"""GPT and GPT-2 against transformers on tiny random weights: the same numbers, and the same tokens, both ways.

Every parameter is drawn at random, biases and norms included, so that a swapped or forgotten tensor shows. Differences
are held to 1e-5 in float32.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from qkv.data.batch import Batch
from qkv.models.gpt.folder import save
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.search.beam import generate
from qkv.search.options import GenerateConfig
from tests.support.folders import TOKENS, make_tokenizer, randomise
from tests.support.gpt_folders import load_gpt

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = [[5, 6, 7, 8], [3], [*range(8, 33)], [9, 9, 30]]
SIZES: dict[str, Any] = {
    "vocab_size": len(TOKENS),
    "n_positions": 64,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "bos_token_id": 3,
    "eos_token_id": 3,
}
GPT2S: dict[str, dict[str, Any]] = {
    "usual": {},
    "inner": {"n_inner": 48, "activation_function": "gelu"},
    "relu": {"activation_function": "relu", "layer_norm_epsilon": 1e-3},
    "by layer": {"scale_attn_by_inverse_layer_idx": True},
    "unscaled": {"scale_attn_weights": False, "n_embd": 16},
    "upcast": {"reorder_and_upcast_attn": True},
    "untied": {"tie_word_embeddings": False},
}
GPT1S: dict[str, dict[str, Any]] = {"usual": {}, "relu": {"afn": "relu"}, "silu": {"afn": "silu"}}
ALL = [("gpt2", name) for name in GPT2S] + [("openai-gpt", name) for name in GPT1S]


def reference(folder: Path, model_type: str, variant: str = "usual") -> Any:
    if model_type == "gpt2":
        fields = SIZES | GPT2S[variant] | {"attn_implementation": "eager"}
        model: Any = transformers.GPT2LMHeadModel(transformers.GPT2Config(**fields))
    else:
        model = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**(SIZES | GPT1S[variant])))
    randomise(model)
    model.save_pretrained(folder)
    make_tokenizer().save(folder / "tokenizer")
    for file in (folder / "tokenizer").iterdir():
        file.rename(folder / file.name)
    (folder / "tokenizer").rmdir()
    return model.eval()


def difference(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    return float((ours - theirs).detach().abs().max())


def logits(model: Any, rows: list[list[int]]) -> Tensor:
    """Of every token, by transformers, which is given one row after the other."""
    with torch.no_grad():
        return torch.cat([model(torch.tensor([row])).logits[0] for row in rows])


@pytest.mark.parametrize(("model_type", "variant"), ALL)
def test_the_same_numbers(tmp_path: Path, model_type: str, variant: str) -> None:
    theirs = reference(tmp_path, model_type, variant)
    ours = load_gpt(tmp_path)
    assert ours.notes == ()
    batch = Batch.of(ROWS)
    with torch.no_grad():
        found = ours.model.scores(ours.model(batch.ids, batch.packing))
    assert difference(found, logits(theirs, ROWS)) < 1e-5


@pytest.mark.parametrize(("model_type", "variant"), [("gpt2", "usual"), ("gpt2", "by layer"), ("openai-gpt", "usual")])
def test_the_same_numbers_with_a_cache(tmp_path: Path, model_type: str, variant: str) -> None:
    theirs = reference(tmp_path, model_type, variant)
    model = load_gpt(tmp_path).model
    expected = logits(theirs, ROWS).split([len(row) for row in ROWS])
    begins = [row[: (len(row) + 1) // 2] for row in ROWS]  # the rest is given token by token, as long as all have some
    prompt = Batch.of(begins)
    state = model.start(prompt.ids, prompt.packing, longest=3)
    alive = list(range(len(ROWS)))
    for step in range(3):
        places = [len(begins[row]) - 1 + step for row in alive]
        tokens = torch.tensor([ROWS[row][place] for row, place in zip(alive, places, strict=True)])
        found, state, _ = model.step(tokens, state)
        wanted = torch.stack([expected[row][place] for row, place in zip(alive, places, strict=True)])
        assert difference(found, wanted) < 1e-5
        kept = [i for i, (row, place) in enumerate(zip(alive, places, strict=True)) if place + 1 < len(ROWS[row])]
        alive = [alive[i] for i in kept]
        state = state.select(torch.tensor(kept))
    assert len(alive) < len(ROWS)  # some rows have left on the way


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_opens_what_is_saved(tmp_path: Path, order: str, tied: bool) -> None:
    config = GPTConfig(len(TOKENS), 3, 32, 4, 128, 64, order=order, tied=tied, norm_epsilon=1e-4)
    ours = GPT(config).eval()
    randomise(ours)
    save(tmp_path / "saved", ours, make_tokenizer(), {"seconds": 3})
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert type(theirs).__name__ == {"pre": "GPT2LMHeadModel", "post": "OpenAIGPTLMHeadModel"}[order]
    batch = Batch.of(ROWS)
    with torch.no_grad():
        found = ours.scores(ours(batch.ids, batch.packing))
    assert difference(found, logits(theirs.eval(), ROWS)) < 1e-5
    again = load_gpt(tmp_path / "saved")
    assert again.config == config and again.record == {"seconds": 3} and again.end_id == make_tokenizer().sep_id
    for (name, one), (_, other) in zip(ours.named_parameters(), again.model.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    text = "the cat sat on the mat. 我爱北京"
    ids = make_tokenizer().encode_ids([text])[0]
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids
    # what a program gets that knows no more than the folder: the beginning of a document, if it was trained so
    assert dict(tokenizer(text)) == {"input_ids": ids, "attention_mask": [1] * len(ids)}
    save(tmp_path / "trained", ours, make_tokenizer(), {"job": "pretrain"})
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "trained")
    assert tokenizer(text)["input_ids"] == [make_tokenizer().sep_id, *ids] and "token_type_ids" not in tokenizer(text)
    assert tokenizer.eos_token_id == make_tokenizer().sep_id


@pytest.mark.parametrize("model_type", ["gpt2", "openai-gpt"])
@pytest.mark.parametrize("beams", [1, 4])
def test_the_same_tokens(tmp_path: Path, model_type: str, beams: int) -> None:
    theirs, model = reference(tmp_path, model_type), load_gpt(tmp_path).model
    batch = Batch.of(ROWS)
    state = model.start(batch.ids, batch.packing, hypotheses=beams, longest=20)
    begin = batch.ids[batch.offsets[1:].long() - 1]
    options = GenerateConfig(beams=beams, max_length=20, length_penalty=1.0 if beams > 1 else 0.0)
    found = generate(model.step, state, begin, 3, options)
    for row, ours in zip(ROWS, found, strict=True):
        # a prompt at a time: transformers would pad, and its first GPT knows no padding on the left
        written = theirs.generate(
            torch.tensor([row]), num_beams=beams, max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=3
        )[0, len(row) :].tolist()
        expected = written[: written.index(3)] if 3 in written else written
        assert list(ours[0].tokens) == expected
