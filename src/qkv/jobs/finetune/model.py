"""What a fine-tuning run begins from: a folder, or `scratch:KIND`, a reader (models/plain/network.py) that is new.

A reader needs a tokenizer, which comes with what is put below it (`embeddings`, see models/plain/sources.py) or from
another folder (`tokenizer`). Word vectors are where its table begins. Tokens that have none are drawn, as widely as the
vectors spread, and alike in every seed, as the vectors are. A language model takes the place of the table.

Word vectors, a folder or a file, or the folder of a language model, given as the model, are the shortest way to write a
reader of kind lookup on them: `--model ELMO` is `--model scratch:lookup --embeddings ELMO`, and written down as that.

All sources are hashed when a run begins, like a pretrained folder: a resumed run goes on from the same or not at all.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qkv.config import Requested, merge
from qkv.errors import InputError, did_you_mean, reading
from qkv.files import sha256_of
from qkv.jobs.finetune.settings import FINETUNE_SETTINGS, FinetuneConfig, ReaderSettings, starting_point
from qkv.models.elmo.network import ElmoConfig
from qkv.models.folders.codec import CONFIG, model_type_of
from qkv.models.folders.hub import locate
from qkv.models.plain.contextual import ElmoVectors, StateVectors, width_of
from qkv.models.plain.features import SIZES
from qkv.models.plain.folder import Opened, ReaderFolder, Shape, open_start, shape_of, spelling
from qkv.models.plain.network import KINDS, ReaderConfig, ReaderWithHeads, Table
from qkv.models.plain.sources import BELOW, Source, open_source, shown_name, source_place, source_type, tokenizer_in
from qkv.models.word2vec.vectors import WordVectors, look_up_tokens
from qkv.tasks.transfer import Transfer, transfer_from_nothing, transfer_named
from qkv.text.tokenizer import Tokenizer
from qkv.train.run_folder import check_folder_sha256, folder_sha256, model_folder

SCRATCH = "scratch:"


def is_scratch(model: str) -> bool:
    return model.startswith(SCRATCH)


def placed(model: str) -> str:
    """The name that was typed as a run writes it down: a folder or file of this machine, or scratch:KIND as it is."""
    if not is_scratch(model):
        place = source_place(model)
        if place.is_file() and (place.parent / CONFIG).is_file():
            locate(model)  # part of a model: it says that the folder is wanted
        return str(place)
    kind = model.removeprefix(SCRATCH)
    if kind not in KINDS:
        raise InputError(f"There is no reader '{kind}'.{did_you_mean(kind, KINDS)} Known: {', '.join(KINDS)}.")
    return model


def spelled_out(config: FinetuneConfig) -> FinetuneConfig:
    """What is no encoder, but can lie below one, with the reader that is put on it."""
    if is_scratch(config.model):
        return config
    place = Path(placed(config.model))
    with reading(config.model):
        model_type = "word2vec" if place.is_file() else model_type_of(place)
    if model_type not in BELOW:
        return config
    if config.embeddings is not None:
        raise InputError(
            f"{config.model} ({model_type}) is itself what --embeddings brings. Give one of the two with --embeddings, "
            "and a reader for it with --model, scratch:lstm for example."
        )
    return replace(config, model=f"{SCRATCH}lookup", embeddings=config.model)


def transfer_of(config: FinetuneConfig, layers: int, mixes: bool = False) -> Transfer:
    """What is to move of so many layers, and of what lies below them."""
    if is_scratch(config.model):
        below = None if config.embeddings is None else shown_name(config.embeddings)
        return transfer_from_nothing(config.transfer, layers, below, mixes)
    return transfer_named(config.transfer, layers, mixes)


def usual_transfer(config: FinetuneConfig, shape: Shape | None) -> str:
    """What moves when nobody says otherwise: everything but ELMo, which gives features (Peters et al. 2018, §3.3).

    `shape` is that of a folder, None where the run begins from nothing.
    """
    if shape is None:
        return "freeze" if mixes_layers(config) else "full"
    if not isinstance(shape, ReaderConfig) or not shape.mixed_layers:
        return "full"
    return f"top:{shape.layers}" if shape.layers else "freeze"


def mixes_layers(config: FinetuneConfig) -> bool:
    """Of a reader that is to be made: whether what lies below gives several vectors a token."""
    return config.embeddings is not None and source_type(config.embeddings) == "elmo"


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
                "(a word2vec or ELMo folder, or a file .vec, .txt or .bin), or a folder with a tokenizer with "
                "--tokenizer."
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


def check_sizes(config: FinetuneConfig) -> None:
    """Of a run that is new: whoever changes a size expects another model."""
    if not is_scratch(config.model):
        return
    kind, usual = placed(config.model).removeprefix(SCRATCH), ReaderSettings()
    sizes = {size for one in KINDS.values() for size in one.sizes} - set(KINDS[kind].sizes)
    if idle := [size for size in sorted(sizes) if getattr(config.reader, size) != getattr(usual, size)]:
        on = "" if config.embeddings is None else f" on {shown_name(config.embeddings)}"
        raise InputError(
            f"The settings {', '.join(f'reader.{size}' for size in idle)} do nothing for {config.model}{on}: leave "
            "them out."
        )


def begun(config: FinetuneConfig, tell: Callable[[str], None]) -> tuple[FinetuneConfig, Opened]:
    """The model of a new run, and the config with its sources pinned."""
    config = spelled_out(config)
    check_sources(config)
    check_sizes(config)
    if not is_scratch(config.model):
        folder = open_start(model_folder(locate(config.model)))
        path = folder.path.resolve()
        return replace(config, model=str(path), model_sha256=folder_sha256(path)), folder
    reader = new_reader(config, tell)  # first: it says what is wrong with the sources
    config = replace(
        config,
        embeddings=None if config.embeddings is None else str(source_place(config.embeddings).resolve()),
        tokenizer=None if config.tokenizer is None else str(model_folder(locate(config.tokenizer)).resolve()),
    )
    return replace(config, model_sha256=_sources_sha256(config)), reader


def again(config: FinetuneConfig, tell: Callable[[str], None]) -> Opened:
    """The model of a run that goes on, if it is still the same."""
    if not is_scratch(config.model):
        folder = locate(config.model)
        check_folder_sha256(folder, config.model_sha256)
        return open_start(folder)
    if config.model_sha256 is not None and _sources_sha256(config) != config.model_sha256:
        sources = " or ".join(str(source) for source in (config.embeddings, config.tokenizer) if source is not None)
        raise InputError(
            f"{sources} has changed since the run began: a resumed run would go on from other vectors. Put it back, or "
            "begin another run."
        )
    return new_reader(config, tell)


def new_reader(config: FinetuneConfig, tell: Callable[[str], None]) -> ReaderFolder:
    """A reader on torch's meta device, where nothing is drawn yet, but for what was trained before."""
    check_sources(config)
    settings, kind = config.reader, placed(config.model).removeprefix(SCRATCH)
    source = None if config.embeddings is None else open_source(config.embeddings, config.tokenizer)
    tokenizer = tokenizer_of(config) if source is None else source.tokenizer
    below = None if source is None else source.below
    features = None if below is None or isinstance(below, WordVectors) else below.config
    known_width = width_of(features) if features is not None else None
    known_width = below.width if isinstance(below, WordVectors) else known_width
    if source is not None and settings.embedding_width not in (None, known_width):
        raise InputError(
            f"reader.embedding_width is {settings.embedding_width}, and the vectors of {source.place} have "
            f"{known_width}."
        )
    shape = ReaderConfig(
        kind,
        vocabulary_size=tokenizer.size,
        embedding_width=known_width or settings.embedding_width or 128,
        inner_width=settings.inner_width,
        layers=layers_of(config),
        kernels=settings.kernels,
        dropout=settings.dropout,
        max_length=settings.max_length,
        pad_id=tokenizer.pad_id,
        features=features,
    )
    tokenizer = spelling(shape, tokenizer)
    with torch.device("meta"):
        model = ReaderWithHeads(shape, words=tokenizer)
    if source is not None:
        _fill(model, source, tokenizer, tell)
    return ReaderFolder(model, tokenizer, shape, (), Path(_shown(config, source)))


def _fill(model: ReaderWithHeads, source: Source, tokenizer: Tokenizer, tell: Callable[[str], None]) -> None:
    """Put in what is known."""
    below, embedding = source.below, model.encoder.embedding
    if isinstance(below, WordVectors):
        table, n_known = make_table(tokenizer, below)
        tell(f"{n_known:,} of {tokenizer.size:,} tokens have a vector in {below.source}")
        assert isinstance(embedding, Table)
        embedding.weight = nn.Parameter(table)
        return
    assert isinstance(embedding, ElmoVectors | StateVectors)
    embedding.network.load_state_dict(below.tensors, assign=True)
    if isinstance(below.config, ElmoConfig):
        tell(f"a token has the vectors of {1 + below.config.layers} layers of {source.place}, mixed as the task learns")
    else:
        tell(f"a token has the state of {source.place} after it")


def _shown(config: FinetuneConfig, source: Source | None) -> str:
    return config.model if source is None else f"{config.model} + {source.name}"


def tokenizer_of(config: FinetuneConfig) -> Tokenizer:
    """The one that a run is going to have, as it lies on the disk."""
    config = spelled_out(config)
    if not is_scratch(config.model):
        return tokenizer_in(config.model)
    check_sources(config)
    if config.embeddings is not None:
        return open_source(config.embeddings, config.tokenizer).tokenizer
    assert config.tokenizer is not None  # as was checked
    return tokenizer_in(config.tokenizer)


def make_table(tokenizer: Tokenizer, vectors: WordVectors) -> tuple[Tensor, int]:
    """(V, E), a row a token, and how many of them have a vector; the others are drawn as widely as those spread."""
    table, known = look_up_tokens(tokenizer, vectors)
    if not known.any():
        raise InputError(
            f"None of the {tokenizer.size:,} tokens of the tokenizer is a word of {vectors.source}. Take the tokenizer "
            "that the vectors were trained with, or leave --tokenizer out."
        )
    draw = torch.Generator().manual_seed(0)
    drawn = torch.randn(tokenizer.size, vectors.width, generator=draw) * table[known].std(correction=0)
    return torch.where(known[:, None], table, drawn), int(known.sum())


def _sources_sha256(config: FinetuneConfig) -> str:
    sources = [Path(source) for source in (config.embeddings, config.tokenizer) if source is not None]
    hashes = [sha256_of(source) if source.is_file() else folder_sha256(source) for source in sources]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


# --- The settings of a run before it begins: a recipe, flags, --set, and defaults that follow from task and model.


def configured_for(
    task: str,
    model: str,
    transfer: str | None = None,
    recipe: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
) -> FinetuneConfig:
    """What was asked for, and where nothing was, what suits the task, the model's size and how much of it moves."""
    named = {"task": task, "model": placed(model), "transfer": transfer, **(flags or {})}
    given = Requested(recipe, named, assignments)

    def asked(start: Mapping[str, Any]) -> FinetuneConfig:
        return spelled_out(FINETUNE_SETTINGS.resolve(given, merge(FinetuneConfig(), start, "defaults")))

    first = asked({})
    check_sources(first)
    check_sizes(first)
    shape = None if is_scratch(first.model) else shape_of(first.model)
    usual: dict[str, Any] = {"transfer": usual_transfer(first, shape)}
    config = asked(usual)
    if shape is None:
        moves = transfer_of(config, layers_of(config), mixes_layers(config))
    else:
        moves = transfer_of(config, shape.layers, isinstance(shape, ReaderConfig) and shape.mixed_layers > 0)
    if shape is not None and not isinstance(shape, ReaderConfig):
        return asked(usual | starting_point(moves, config.device, shape.width))
    return asked(usual | starting_point(moves, config.device, on_language_model=_on_language_model(config, shape)))


def _on_language_model(config: FinetuneConfig, shape: ReaderConfig | None) -> bool:
    if shape is not None:
        return shape.features is not None
    return config.embeddings is not None and source_type(config.embeddings) in SIZES
