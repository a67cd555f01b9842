"""What a fine-tuning run begins from: a folder, or `scratch:KIND`, a reader (models/text_readers.py) made from nothing.

A reader needs a tokenizer, which comes with word vectors (`embeddings`, a folder of `qkv pretrain word2vec` or a file
of the C tool's form, whose words are the vocabulary) or from another folder (`tokenizer`). With both, the vectors of
the tokenizer's tokens are looked up among the words. Word vectors are where the embedding begins. Tokens that have none
are drawn, as widely as the vectors spread, and alike in every seed, as the vectors are.

Both sources are hashed when a run begins, like a pretrained folder: a resumed run goes on from the same or not at all.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from qkv.data.shard_file import sha256_of
from qkv.errors import InputError, did_you_mean
from qkv.interop.hub import locate
from qkv.interop.readers import Opened, ReaderFolder, open_model
from qkv.interop.vectors import is_writable
from qkv.models.text_readers import KINDS, ReaderConfig, ReaderWithHeads
from qkv.run.finetune_config import FinetuneConfig, ReaderSettings
from qkv.run.folder import check_folder_sha256, folder_sha256
from qkv.run.load import model_folder
from qkv.run.word_vectors import WordVectors, load_vectors
from qkv.tasks.transfer import Transfer, transfer_from_nothing, transfer_named
from qkv.tokenizer import Tokenizer
from qkv.wordpiece import SPECIAL

SCRATCH = "scratch:"


def is_scratch(model: str) -> bool:
    return model.startswith(SCRATCH)


def placed(model: str) -> str:
    """The name that was typed as a run writes it down: a folder of this machine, or scratch:KIND as it is."""
    if not is_scratch(model):
        return str(model_folder(locate(model)))
    kind = model.removeprefix(SCRATCH)
    if kind not in KINDS:
        raise InputError(f"There is no reader '{kind}'.{did_you_mean(kind, KINDS)} Known: {', '.join(KINDS)}.")
    return model


def transfer_of(config: FinetuneConfig, layers: int) -> Transfer:
    """What is to move of so many layers."""
    if is_scratch(config.model):
        return transfer_from_nothing(config.transfer, layers, config.embeddings is not None)
    return transfer_named(config.transfer, layers)


def layers_of(config: FinetuneConfig) -> int:
    """Of a reader that is to be made."""
    kind = KINDS[placed(config.model).removeprefix(SCRATCH)]
    return kind.layers(1) if config.reader.layers is None else config.reader.layers


def check_sources(config: FinetuneConfig) -> None:
    """What a run that begins from nothing needs, and what one that begins from a folder cannot use."""
    if is_scratch(config.model):
        if config.embeddings is None and config.tokenizer is None:
            raise InputError(
                f"{config.model} begins from nothing and has no tokenizer yet. Give word vectors with --embeddings "
                "(a word2vec folder, or a file .vec, .txt or .bin), or a folder with a tokenizer with --tokenizer."
            )
        return
    for name in ("embeddings", "tokenizer"):
        if getattr(config, name) is not None:
            raise InputError(
                f"{name} is for a reader made from nothing, --model scratch:lstm for example; {config.model} has its "
                "own."
            )
    if config.reader != ReaderSettings():
        raise InputError(f"reader.* are sizes of a reader made from nothing; {config.model} has its own.")


def begun(config: FinetuneConfig, tell: Callable[[str], None]) -> tuple[FinetuneConfig, Opened]:
    """The model of a new run, and the config with its sources pinned."""
    check_sources(config)
    if not is_scratch(config.model):
        folder = open_model(model_folder(locate(config.model)))
        path = folder.path.resolve()
        return replace(config, model=str(path), model_sha256=folder_sha256(path)), folder
    reader = new_reader(config, tell)  # first: it says what is wrong with the sources
    config = replace(
        config,
        embeddings=None if config.embeddings is None else str(_vectors_place(config.embeddings).resolve()),
        tokenizer=None if config.tokenizer is None else str(model_folder(locate(config.tokenizer)).resolve()),
    )
    return replace(config, model_sha256=_sources_sha256(config)), reader


def again(config: FinetuneConfig, tell: Callable[[str], None]) -> Opened:
    """The model of a run that goes on, if it is still the same."""
    if not is_scratch(config.model):
        folder = locate(config.model)
        check_folder_sha256(folder, config.model_sha256)
        return open_model(folder)
    if config.model_sha256 is not None and _sources_sha256(config) != config.model_sha256:
        sources = " or ".join(str(source) for source in (config.embeddings, config.tokenizer) if source is not None)
        raise InputError(
            f"{sources} has changed since the run began: a resumed run would go on from other vectors. Put it back, or "
            "begin another run."
        )
    return new_reader(config, tell)


def new_reader(config: FinetuneConfig, tell: Callable[[str], None]) -> ReaderFolder:
    """A reader on torch's meta device, where nothing is drawn yet, but for the vectors that are known."""
    check_sources(config)
    settings, kind = config.reader, placed(config.model).removeprefix(SCRATCH)
    vectors = None if config.embeddings is None else load_vectors(config.embeddings)
    tokenizer = _tokenizer(config, vectors)
    width = settings.embedding_width
    if vectors is not None and width not in (None, vectors.width):
        raise InputError(
            f"reader.embedding_width is {width}, and the vectors of {vectors.source} have {vectors.width}."
        )
    shape = ReaderConfig(
        kind,
        vocabulary_size=tokenizer.size,
        embedding_width=width or (128 if vectors is None else vectors.width),
        inner_width=settings.inner_width,
        layers=layers_of(config),
        kernels=settings.kernels,
        dropout=settings.dropout,
        max_length=settings.max_length,
        pad_id=tokenizer.pad_id,
    )
    with torch.device("meta"):
        model = ReaderWithHeads(shape)
    if vectors is not None:
        table, n_known = looked_up(tokenizer, vectors)
        tell(f"{n_known:,} of {tokenizer.size:,} tokens have a vector in {vectors.source}")
        model.encoder.embedding.weight = nn.Parameter(table)
    return ReaderFolder(model, tokenizer, shape, (), Path(config.model))


def looked_up(tokenizer: Tokenizer, vectors: WordVectors) -> tuple[Tensor, int]:
    """(V, E), a row a token, and how many of them are words that have a vector."""
    found = {id: row for token, id in tokenizer.vocabulary.items() if (row := vectors.find(token)) is not None}
    if not found:
        raise InputError(
            f"None of the {tokenizer.size:,} tokens of the tokenizer is a word of {vectors.source}. Take the tokenizer "
            "that the vectors were trained with, or leave --tokenizer out."
        )
    known = vectors.vectors[list(found.values())]
    draw = torch.Generator().manual_seed(0)
    table = torch.randn(tokenizer.size, vectors.width, generator=draw) * known.std(correction=0)
    table[list(found)] = known
    return table, len(found)


def _tokenizer(config: FinetuneConfig, vectors: WordVectors | None) -> Tokenizer:
    if config.tokenizer is not None:
        return Tokenizer.load(model_folder(locate(config.tokenizer)))
    assert vectors is not None and config.embeddings is not None
    place = _vectors_place(config.embeddings)
    if place.is_dir():
        return Tokenizer.load(place)
    words = [word for word in vectors.words if is_writable(word) and word not in SPECIAL]
    return Tokenizer.from_vocabulary([*SPECIAL, *words], "word")


def _vectors_place(name: str) -> Path:
    path = Path(os.path.expanduser(name))
    return path if path.is_file() else model_folder(locate(name))


def _sources_sha256(config: FinetuneConfig) -> str:
    sources = [Path(source) for source in (config.embeddings, config.tokenizer) if source is not None]
    hashes = [sha256_of(source) if source.is_file() else folder_sha256(source) for source in sources]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()
