"""Decoding against transformers' generate, with the same tiny random network: the same tokens, the same scores.

The network is transformers' own, so that only the search is compared; at last it is ours, with its cache, so that
nothing is left of theirs. The end is made likely enough to come early in some texts and not at all in others.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from qkv.data.batch import Batch
from qkv.models.transformer.folder import load_marian
from qkv.search.beam import generate
from qkv.search.decoding import Stepped
from qkv.search.options import GenerateConfig
from qkv.search.sampling import filtered

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
pytestmark = pytest.mark.usefixtures("one_thread")

END, PAD = 0, 39  # the padding is also what texts begin with, as in Marian
LENGTHS = (7, 5, 3, 1)
LONGEST = 12


@functools.cache
def network(seed: int, padding: float = 0.0) -> Any:
    torch.manual_seed(seed)
    config = transformers.MarianConfig(
        vocab_size=40,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        pad_token_id=PAD,
        eos_token_id=END,
        forced_eos_token_id=None,
        decoder_start_token_id=PAD,
        init_std=0.5,
    )
    model = transformers.MarianMTModel(config).eval()
    model.final_logits_bias[0, END] = 3.5
    model.final_logits_bias[0, PAD] = padding
    return model


def sources() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return torch.randint(1, PAD, (len(LENGTHS), max(LENGTHS)), generator=generator) * mask, mask.long()


@dataclass
class Whole:
    """No cache: the whole text every time."""

    texts: Tensor  # (Q, T)
    encoded: Tensor  # (Q, S, D)
    mask: Tensor  # (Q, S)

    def select(self, rows: Tensor) -> "Whole":
        return Whole(self.texts[rows], self.encoded[rows], self.mask[rows])


def ours(seed: int, config: GenerateConfig, padding: float = 0.0) -> list[list[tuple[tuple[int, ...], float]]]:
    model = network(seed, padding)
    ids, mask = sources()
    k = config.hypotheses

    def step(tokens: Tensor, state: Whole) -> Stepped[Whole]:
        texts = torch.cat([state.texts, tokens[:, None]], dim=1)
        out = model(encoder_outputs=(state.encoded,), attention_mask=state.mask, decoder_input_ids=texts)
        return Stepped(out.logits[:, -1], Whole(texts, state.encoded, state.mask), None)

    with torch.no_grad():
        encoded = model.get_encoder()(ids, attention_mask=mask).last_hidden_state
    nothing = torch.empty(len(ids) * k, 0, dtype=torch.int64)
    state = Whole(nothing, encoded.repeat_interleave(k, dim=0), mask.repeat_interleave(k, dim=0))
    found = generate(step, state, torch.full((len(ids),), PAD), END, config, never=[PAD])
    return [[((*one.tokens, *[END] * one.finished), one.score) for one in texts] for texts in found]


def theirs(seed: int, n_best: int, padding: float = 0.0, **options: Any) -> list[list[tuple[tuple[int, ...], float]]]:
    ids, mask = sources()
    out = network(seed, padding).generate(
        ids,
        attention_mask=mask,
        max_new_tokens=LONGEST,
        num_return_sequences=n_best,
        bad_words_ids=[[PAD]],
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    # a text is filled up with padding, which is never written
    texts = [tuple(token for token in text[1:] if token != PAD) for text in out.sequences.tolist()]
    scores = [0.0] * len(texts) if out.get("sequences_scores") is None else out.sequences_scores.tolist()
    rows = list(zip(texts, scores, strict=True))
    return [rows[at : at + n_best] for at in range(0, len(rows), n_best)]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "greedy": ({}, {}),
    "greedy, at least 6": ({"min_length": 6}, {"min_new_tokens": 6}),
    "greedy, repetition": ({"repetition_penalty": 1.7}, {"repetition_penalty": 1.7}),
    "greedy, no pair twice": ({"no_repeat": 2, "min_length": 9}, {"no_repeat_ngram_size": 2, "min_new_tokens": 9}),
    "greedy, no token twice": ({"no_repeat": 1}, {"no_repeat_ngram_size": 1}),
    "beams": ({"beams": 4, "n_best": 4}, {"num_beams": 4}),
    "beams, one": ({"beams": 5}, {"num_beams": 5}),
    "beams, α 0": ({"beams": 4, "n_best": 4, "length_penalty": 0.0}, {"num_beams": 4, "length_penalty": 0.0}),
    "beams, α 0.6": ({"beams": 3, "n_best": 2, "length_penalty": 0.6}, {"num_beams": 3, "length_penalty": 0.6}),
    "beams, α 2": ({"beams": 3, "n_best": 3, "length_penalty": 2.0}, {"num_beams": 3, "length_penalty": 2.0}),
    "beams, α -1": ({"beams": 3, "n_best": 3, "length_penalty": -1.0}, {"num_beams": 3, "length_penalty": -1.0}),
    "beams, enough": (
        {"beams": 4, "n_best": 4, "stopping": "enough", "length_penalty": 0.5},
        {"num_beams": 4, "early_stopping": True, "length_penalty": 0.5},
    ),
    "beams, never": (
        {"beams": 4, "n_best": 4, "stopping": "never", "length_penalty": 1.5},
        {"num_beams": 4, "early_stopping": "never", "length_penalty": 1.5},
    ),
    "beams, at least 6": ({"beams": 4, "n_best": 3, "min_length": 6}, {"num_beams": 4, "min_new_tokens": 6}),
    "beams, repetition": (
        {"beams": 4, "n_best": 3, "repetition_penalty": 1.5, "no_repeat": 3, "min_length": 4},
        {"num_beams": 4, "repetition_penalty": 1.5, "no_repeat_ngram_size": 3, "min_new_tokens": 4},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_texts_with_the_same_scores(case: str) -> None:
    options, names = CASES[case]
    config = GenerateConfig.of({"max_length": LONGEST} | options)
    lengths = set()
    for seed in range(2):
        found, expected = ours(seed, config), theirs(seed, config.n_best, **names)
        for mine, other in zip(found, expected, strict=True):
            assert [text for text, _ in mine] == [text for text, _ in other]
            if config.beams > 1:
                assert [score for _, score in mine] == pytest.approx([score for _, score in other], rel=1e-5)
            lengths |= {len(text) for text, _ in mine}
    assert len(lengths) > 1, "texts of several lengths are needed, or nothing was compared"


@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize(
    "case", ["greedy", "beams", "beams, α 0", "beams, never", "beams, at least 6", "beams, repetition"]
)
def test_padding_that_is_likely_but_never_written(case: str, renormalise: bool) -> None:
    """As in OPUS-MT, whose padding has a score that was never trained. The probability it takes from a step that it is
    likely in counts against texts with that step, unless what is left adds up to 1 again."""
    options, names = CASES[case]
    config = GenerateConfig.of({"max_length": LONGEST, "renormalise": renormalise} | options)
    for seed in range(2):
        found = ours(seed, config, padding=3.0)
        expected = theirs(seed, config.n_best, padding=3.0, renormalize_logits=renormalise, **names)
        for mine, other in zip(found, expected, strict=True):
            assert [text for text, _ in mine] == [text for text, _ in other]
            if config.beams > 1:
                assert [score for _, score in mine] == pytest.approx([score for _, score in other], rel=1e-5)
    if config.beams > 1:
        flipped = GenerateConfig.of({"max_length": LONGEST, "renormalise": not renormalise} | options)
        assert ours(1, config, 3.0) != ours(1, flipped, 3.0), "nothing was compared"


@pytest.mark.parametrize("case", ["greedy, no pair twice", "beams", "beams, α 0", "beams, repetition"])
def test_the_same_texts_from_our_own_network(case: str, tmp_path: Path) -> None:
    options, names = CASES[case]
    config = GenerateConfig.of({"max_length": LONGEST} | options)
    network(1).save_pretrained(tmp_path)
    model = load_marian(tmp_path).model.eval()
    ids, _ = sources()
    batch = Batch.of([row[:length].tolist() for row, length in zip(ids, LENGTHS, strict=True)])
    state = model.start(batch.ids, batch.packing, hypotheses=config.hypotheses, longest=LONGEST)
    begin = torch.full((batch.n_rows,), PAD)
    found = generate(model.step, state, begin, END, config, source_lengths=batch.lengths, never=[PAD])
    texts = [[(*one.tokens, *[END] * one.finished) for one in hypotheses] for hypotheses in found]
    assert texts == [[text for text, _ in rows] for rows in theirs(1, config.n_best, **names)]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("top_k", [None, 1, 7, 100])
@pytest.mark.parametrize("top_p", [0.1, 0.7, 0.95, 1.0])
def test_draws_are_from_the_same_distribution(temperature: float, top_k: int | None, top_p: float) -> None:
    logits = torch.randn(5, 60, generator=torch.Generator().manual_seed(1)) * 3
    warpers: Any = transformers.LogitsProcessorList([transformers.TemperatureLogitsWarper(temperature)])
    if top_k is not None:
        warpers.append(transformers.TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(transformers.TopPLogitsWarper(top_p))
    nothing = torch.empty(5, 0, dtype=torch.int64)
    config = GenerateConfig(sample=True, temperature=temperature, top_k=top_k, top_p=top_p)
    mine, other = filtered(logits, config), warpers(nothing, logits)
    assert torch.equal(mine.isneginf(), other.isneginf())
    assert torch.allclose(mine.softmax(dim=1), other.softmax(dim=1), rtol=1e-5, atol=0)
