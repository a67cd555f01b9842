"""Small tokenizers as families of BERT's kind have them, learned on the spot, and the files they come in."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from qkv.models import albert as names_of_albert
from qkv.models import distilbert, electra, ernie
from qkv.models import roberta as names_of_roberta
from qkv.models.bert.folder import save_like
from qkv.models.bert.likes import BertLike
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.text.backend import ROLES
from qkv.text.tokenizer import Tokenizer
from tests.support.byte_pairs import TEXTS
from tests.support.folders import SMALL, make_tokenizer, randomise

FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
NAMES = dict(zip(ROLES, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), strict=True))


@cache  # the library breaks ties by chance: learned twice, ids would differ
def roberta() -> dict[str, str]:
    """Pairs of bytes, and marks as fairseq names them."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    learner = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[*FAIRSEQ[:4], AddedToken("<mask>", lstrip=True, special=True)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS * 3, learner)
    ids = backend.get_vocab()
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), trim_offsets=True, add_prefix_space=False
    )
    return _files(backend, "RobertaTokenizer", NAMES)


@cache
def xlm_roberta() -> dict[str, str]:
    """Pieces of a unigram model, and the same marks."""
    backend = _unigram(FAIRSEQ, "<unk>")
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    ids = [(name, backend.token_to_id(name)) for name in ("<s>", "</s>")]
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ids
    )
    return _files(backend, "XLMRobertaTokenizer", NAMES)


@cache
def albert() -> dict[str, str]:
    """Pieces of a unigram model, with names of both kinds."""
    names = dict(zip(ROLES, ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"), strict=True))
    backend = _unigram(
        tuple(names.values()), "<unk>", normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase()])
    )
    ids = [(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return _files(backend, "AlbertTokenizer", names)


def bert() -> dict[str, str]:
    return make_tokenizer().files()


TOKENIZERS: dict[str, Callable[[], dict[str, str]]] = {
    "roberta": roberta,
    "xlm-roberta": xlm_roberta,
    "distilbert": bert,
    "electra": bert,
    "albert": albert,
    "ernie": bert,
}
"""By model_type, the files of one."""


def _unigram(
    special: tuple[str, ...], unknown: str, normalizer: normalizers.Normalizer | None = None
) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.Unigram())
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    learner = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=list(special), unk_token=unknown, show_progress=False
    )
    backend.train_from_iterator(TEXTS * 3, learner)
    return backend


def _files(backend: tokenizers.Tokenizer, kind: str, names: dict[str, str]) -> dict[str, str]:
    return {
        "tokenizer.json": backend.to_str(),
        "tokenizer_config.json": json.dumps({"tokenizer_class": kind, **names}),
        "special_tokens_map.json": json.dumps(names),
    }


def make_like_tokenizer(name: str) -> Tokenizer:
    with TemporaryDirectory() as folder:
        for file, text in TOKENIZERS[name]().items():
            (Path(folder) / file).write_text(text, encoding="utf-8")
        return Tokenizer.load(folder)


RECORDS: dict[str, BertLike] = {
    "roberta": names_of_roberta.ROBERTA_NAMES,
    "xlm-roberta": names_of_roberta.XLM_ROBERTA_NAMES,
    "distilbert": distilbert.DISTILBERT_NAMES,
    "electra": electra.ELECTRA_NAMES,
    "albert": names_of_albert.ALBERT_NAMES,
    "ernie": ernie.ERNIE_NAMES,
}
SHAPES: dict[str, dict[str, Any]] = {
    "roberta": {"segments": 1, "pad_id": 1, "position_offset": 2},
    "xlm-roberta": {"segments": 1, "pad_id": 1, "position_offset": 2},
    "electra": {"embedding_width": 16},
    "albert": {"embedding_width": 16, "groups": 1},
    "ernie": {"segments": 4, "task_types": 3, "adds_task_type": True},
}


def make_like_folder(path: Path, name: str, ending: str = "ForMaskedLM", **changes: Any) -> Path:
    """A tiny random model of a family, as one of its classes."""
    like, tokenizer = RECORDS[name], make_like_tokenizer(name)
    known = next(one for architecture, one in like.classes.items() if architecture.endswith(ending))
    sizes = SMALL | {"vocabulary_size": tokenizer.size} | SHAPES.get(name, {}) | dict(like.shape)
    config = BertConfig(**(sizes | {"dense_activation": known.activation} | changes))
    network = BertWithHeads(config, known.heads, pooler=known.pooler)
    randomise(network)
    return save_like(like, path, network, tokenizer)
