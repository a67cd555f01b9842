"""Tiny model folders for tests, written by qkv itself: no download, no transformers, the same bytes every time."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from qkv.models.bert.folder import BERT_NAMES, save
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.text.tokenizer import Tokenizer

TOKENS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] . , ! ? ' - : 。 ， ！ ？ 、 （ ） "
    "0 1 2 3 4 5 6 7 8 9 ##0 ##1 ##00 5g 4g "
    "the a an animal cat dog didn t cross street because it was is too tired wide capital of france paris "
    "sat on mat he she owes owe me him money huawei nokia ##s ##ed ##ing ##er un ##happy ##ness ##word "
    "我 你 他 她 欠 万 元 今 天 气 很 好 坏 中 国 的 首 都 是 北 京 "
    "上 海 人 工 智 能 不 在 了 有 大 小 猫 狗 爱 吃 鱼 😀"
).split()

SMALL: dict[str, Any] = {
    "vocabulary_size": len(TOKENS),
    "layers": 2,
    "width": 32,
    "heads": 4,
    "inner_width": 64,
    "max_length": 64,
}


def make_tokenizer() -> Tokenizer:
    """English and Chinese, lower case, about a hundred tokens."""
    return Tokenizer.from_vocabulary(TOKENS, kind="wordpiece", lowercase=True)


def randomise(model: nn.Module, seed: int = 0) -> None:
    """Every parameter drawn, biases and norms too, so that no two parts of a network can be mistaken for each other."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
            if parameter.dim() == 1 and name.endswith("weight"):
                parameter.add_(1.0)  # a norm's


def make_model(
    architecture: str = "BertForPreTraining", labels: int = 2, seed: int = 0, **config: Any
) -> BertWithHeads:
    known = BERT_NAMES.classes[architecture]
    model = BertWithHeads(BertConfig(**(SMALL | config)), known.heads, labels=labels, pooler=known.pooler)
    randomise(model, seed)
    return model.eval()


def make_folder(
    path: Path, architecture: str = "BertForPreTraining", labels: tuple[str, ...] = (), seed: int = 0, **config: Any
) -> Path:
    """A folder of any class; `config` are fields of BertConfig that differ from SMALL."""
    model = make_model(architecture, len(labels) or 2, seed, **config)
    return save(path, model, make_tokenizer(), labels, architecture)
