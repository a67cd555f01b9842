"""Marian against transformers on tiny random weights: the same numbers, and the same tokens, from the same folder.

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
from qkv.models.transformer.folder import Marian, load_marian
from qkv.models.transformer.marian import FORCED_END
from tests.support.folders import randomise

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
pytestmark = pytest.mark.usefixtures("one_thread")

END = 0
SOURCE = Batch.of([[5, 6, 7, END], [3, END], [*range(8, 33), END], [9, 9, 30, END]])
WRITTEN = [[11, 12, 13], [4], [*range(1, 30)], [8, 20]]


def reference(folder: Path, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "vocab_size": 41,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "max_position_embeddings": 64,
        "activation_function": "swish",
        "scale_embedding": True,
        "eos_token_id": END,
        "forced_eos_token_id": END,
        "attn_implementation": "eager",
    } | changes
    fields["pad_token_id"] = fields.get("decoder_vocab_size", fields["vocab_size"]) - 1
    fields["decoder_start_token_id"] = fields["pad_token_id"]
    model = transformers.MarianMTModel(transformers.MarianConfig(**fields))
    randomise(model)
    with torch.no_grad():
        for half in (model.model.encoder, model.model.decoder):  # the waves are parameters there, and were drawn too
            half.embed_positions.weight.copy_(half.embed_positions.create_weight())
        model.final_logits_bias.normal_()
    model.save_pretrained(folder)
    return model.eval()


def difference(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    return float((ours - theirs).detach().abs().max())


VARIANTS: dict[str, dict[str, Any]] = {
    "usual": {},
    "relu": {"activation_function": "relu", "scale_embedding": False},
    "separate": {"decoder_vocab_size": 37, "share_encoder_decoder_embeddings": False},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_numbers(tmp_path: Path, variant: str) -> None:
    theirs = reference(tmp_path, **VARIANTS[variant])
    ours = load_marian(tmp_path)
    assert ours.notes == (FORCED_END,)
    target = Batch.of([[ours.begin_id, *row] for row in WRITTEN])
    source, written = SOURCE.padded(), target.padded()
    with torch.no_grad():
        expected = theirs(
            input_ids=source.ids,
            attention_mask=source.mask.long(),
            decoder_input_ids=written.ids,
            decoder_attention_mask=written.mask.long(),
            output_attentions=True,
        )
        encoded = ours.model.encode(SOURCE.ids, SOURCE.packing)
        hidden = ours.model(SOURCE.ids, SOURCE.packing, target.ids, target.packing)
    assert difference(encoded, SOURCE.unpad(expected.encoder_last_hidden_state)) <= 1e-5
    assert difference(ours.model.scores(hidden), target.unpad(expected.logits)) <= 1e-5
    assert sum(parameter.numel() for parameter in ours.model.parameters()) == sum(
        parameter.numel() for name, parameter in theirs.named_parameters() if "embed_positions" not in name
    ) + theirs.final_logits_bias.numel()  # fmt: skip

    # step by step, with what each looked at
    state = ours.model.start(SOURCE.ids, SOURCE.packing, longest=40)
    looks = expected.cross_attentions[ours.model.alignment_layer].mean(1)  # (R, T, S)
    for step in range(target.longest):
        logits, state, look = ours.model.step(written.ids[:, step], state)
        assert look is not None
        real = written.mask[:, step]
        assert difference(logits[real], expected.logits[real, step]) <= 1e-5
        assert difference(look[real], looks[real, step]) <= 1e-5


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_greedy_tokens(tmp_path: Path, variant: str) -> None:
    theirs = reference(tmp_path, **VARIANTS[variant])
    ours = load_marian(tmp_path)
    source = SOURCE.padded()
    written = theirs.generate(
        source.ids, attention_mask=source.mask.long(), num_beams=1, do_sample=False, max_new_tokens=20,
        bad_words_ids=[[ours.pad_id]],
    )  # fmt: skip
    expected = [row[1:].tolist() for row in written]
    for row, found in enumerate(greedy(ours, 20)):
        assert found == expected[row][: len(found)]
        assert set(expected[row][len(found) :]) <= {ours.pad_id}


def greedy(loaded: Marian, longest: int) -> list[list[int]]:
    state = loaded.model.start(SOURCE.ids, SOURCE.packing, longest=longest)
    tokens = torch.full((SOURCE.n_rows,), loaded.begin_id)
    found: list[list[int]] = [[] for _ in range(SOURCE.n_rows)]
    for step in range(longest):
        logits, state, _ = loaded.model.step(tokens, state)
        logits[:, list(loaded.banned)] = -torch.inf
        tokens = logits.argmax(-1)
        if step == longest - 1:
            tokens.fill_(loaded.end_id)  # forced_eos_token_id
        for row, token in zip(found, tokens.tolist(), strict=True):
            if not row or row[-1] != loaded.end_id:
                row.append(token)
    return found


def test_far_positions(tmp_path: Path) -> None:
    theirs = reference(tmp_path, max_position_embeddings=1024)
    ours = load_marian(tmp_path)
    table = theirs.model.encoder.embed_positions.weight
    assert difference(ours.model.positions(torch.arange(1024)), table) <= 1e-6


def test_a_folder_that_stores_everything_twice(tmp_path: Path) -> None:
    """Older folders: pytorch_model.bin with the waves, and the one table under all its names."""
    theirs = reference(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    assert {"lm_head.weight", "model.encoder.embed_positions.weight"} <= theirs.state_dict().keys()
    ours = load_marian(tmp_path)
    assert torch.equal(ours.model.embedding.weight, theirs.lm_head.weight)
    assert difference(ours.model.words.bias, theirs.final_logits_bias[0]) == 0
