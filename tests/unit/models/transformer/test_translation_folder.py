"""What is written is read back: weights, tokenizers, record; what does not fit together is told."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.errors import InputError
from qkv.models.family import FILLS, TRANSLATES
from qkv.models.seq2seq.network import Seq2Seq, Seq2SeqConfig
from qkv.models.table import describe_model, open_model
from qkv.models.transformer.folder import save_translation
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.text.subwords import train_subwords
from qkv.text.tokenizer import Tokenizer

RECORD = {"source_language": "en", "target_language": "zh", "max_length": 40}
SIZES: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "width": 8, "heads": 2, "inner_width": 16}


def tokenizers() -> tuple[Tokenizer, Tokenizer]:
    return train_subwords(["a cat sat"] * 2, 40), train_subwords(["一只猫坐着"] * 2, 40)


@pytest.mark.parametrize("kind", ["joint transformer", "transformer", "seq2seq"])
def test_there_and_back(tmp_path: Path, kind: str) -> None:
    source, target = tokenizers()
    if kind == "joint transformer":
        target = source
    other = None if target is source else source.size
    network: Transformer | Seq2Seq
    if "transformer" in kind:
        network = Transformer(TransformerConfig(target.size, source_vocabulary_size=other, **SIZES))
    else:
        network = Seq2Seq(Seq2SeqConfig(target.size, source_vocabulary_size=other, width=8, cell_width=8))
    for _ in range(2):  # a folder of its own is replaced
        folder = save_translation(tmp_path / "model", network, source, target, RECORD)
    found = open_model(folder).ability(TRANSLATES)
    assert type(found.network) is type(network) and found.network.config == network.config
    for (name, one), (_, other_one) in zip(network.named_parameters(), found.network.named_parameters(), strict=True):
        assert torch.equal(one, other_one), name
    assert found.max_length == 40 and (found.languages.source is found.languages.target) == (target is source)
    assert found.languages.source.encode_ids(["a cat"]) == source.encode_ids(["a cat"])
    facts = describe_model(folder).document
    assert facts["languages"] == ["en", "zh"] and len(facts["vocabularies"]) == (1 if target is source else 2)
    assert facts["parameters"] == sum(one.numel() for one in network.parameters())
    card = (folder / "README.md").read_text()
    assert "en → zh" in card and "qkv translate" in card


def test_what_does_not_fit_together(tmp_path: Path) -> None:
    source, _ = tokenizers()
    network = Transformer(TransformerConfig(source.size, **SIZES))
    folder = save_translation(tmp_path / "model", network, source, source, RECORD)

    def refused(message: str, **changes: object) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(InputError, match=message):
            open_model(folder)
        (folder / "config.json").write_text(json.dumps(config))

    refused("do not go together", decoder_layers=2)
    refused("has the shape", inner_width=20)
    refused("belongs to another model", vocabulary_size=5)
    refused("unknown key 'widht'. Did you mean 'width'", widht=8)
    with pytest.raises(InputError, match="cannot fill a blank. It holds a model that translates. It can translate"):
        open_model(folder).ability(FILLS)
    (folder / "mine.txt").write_text("kept")
    with pytest.raises(InputError, match="holds 'mine.txt'|holds mine.txt"):
        save_translation(folder, network, source, source, RECORD)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="has no weights"):
        open_model(folder)
