"""The files of a model folder, and folders of models that transformers has no class for.

    config.json          model_type and sizes
    model.safetensors    the weights; never pickled
    tokenizer.json …     the tokenizer
    qkv.json             what only qkv reads: the record of the training
    README.md            a card in English and Chinese (`Card`)

A folder is written whole or not at all. `save_folder` and `read_folder` handle the folders of word2vec, NNLM, RNNLM,
ELMo and plain encoders (model_type "reader") as a config and tensors by name; each model's own
loader checks them against its network. The end of the file has what `qkv info` and `qkv look` show of many families.

Not here: networks, and folders of transformers' models (models/bert/folder.py, models/gpt/folder.py).
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qkv.errors import InputError, did_you_mean, listed, reading
from qkv.files import check_replaceable, read_object, replaced_folder, to_json, write_text
from qkv.models.folders.fields import MODULES
from qkv.models.folders.weights import (
    StorageError,
    StoredTensor,
    check_sizes,
    encode_tensors,
    join_scales,
    name_dtype,
    open_weights,
    read_header,
)
from qkv.text.messages import translate
from qkv.text.tokenizer import FILES, Tokenizer
from qkv.text.tokenizer import vocabulary_line as vocabulary_line

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, OURS, WEIGHTS, CARD = "config.json", "qkv.json", "model.safetensors", "README.md"
EXPORT = "export.json"
"""What a folder of ONNX graphs says about them (export/folder.py)."""
FOLDER_FORMAT = 1
"""Of qkv.json."""
_MOST_SPARE = 127
"""Most rows of a token table without a token: tables are rounded up, to multiples of 128 at most."""
_LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE")

_MODEL_FILES = (
    *("config.json", "qkv.json", CARD, *_LICENCES, ".gitattributes", "generation_config.json", "training_args.bin"),
    *("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model-*-of-*.bin", "pytorch_model.bin.index.json"),
    *FILES,
    *("spiece.model", "sentencepiece.bpe.model"),  # what tokenizer.json of ALBERT and XLM-R was made of
    *(MODULES, "sentence_bert_config.json", "config_sentence_transformers.json", "data_config.json"),
    *("[0-9]_Pooling", "[0-9]_Normalize"),
)
"""What a model folder consists of. A save replaces a folder of these alone: anything else in it belongs to the user."""


def write_folder(
    target: Path, files: Mapping[str, str | bytes], tensors: Mapping[str, "Tensor"], below: Sequence[str] = ()
) -> None:
    """Write files by name, also into the folders `below`, and the weights, atomically."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replaced_folder(target, partial(_reason_to_keep, below=below)) as fresh:
        for name, text in files.items():
            (fresh / name).parent.mkdir(exist_ok=True)
            (fresh / name).write_bytes(text.encode() if isinstance(text, str) else text)
        try:
            save_file(dict(tensors), fresh / WEIGHTS, metadata={"format": "pt"})
        except SafetensorError as error:  # how that library reports a full disk
            raise OSError(str(error)) from error
        # some versions of safetensors make the file readable by its owner only
        (fresh / WEIGHTS).chmod((fresh / CONFIG).stat().st_mode)


def check_model_target(path: str | os.PathLike[str]) -> None:
    """Refuse a folder that `save_folder` would refuse, before the work starts."""
    check_replaceable(Path(os.path.expanduser(path)), _reason_to_keep)


def _reason_to_keep(folder: Path, below: Sequence[str] = ()) -> str | None:
    known = (*_MODEL_FILES, *below)
    foreign = [entry.name for entry in folder.iterdir() if not any(fnmatch(entry.name, one) for one in known)]
    if foreign:
        return f"it holds {listed(foreign)}, which is not part of a model"
    if not (folder / CONFIG).is_file():
        return f"it is not a model folder (no {CONFIG})"
    return None


def read_ours(folder: Path) -> dict[str, Any]:
    """The content of qkv.json; empty if the folder has none."""
    file = folder / OURS
    if not file.is_file():
        return {}
    ours = read_object(file)
    if not isinstance(ours.get("format"), int) or ours["format"] > FOLDER_FORMAT:
        raise InputError(
            f"{file} has format {ours.get('format')!r}; this qkv reads up to {FOLDER_FORMAT}. It was written by a "
            "newer qkv: upgrade, or delete the file to load the model without it."
        )
    return ours


def read_record(folder: Path) -> dict[str, Any]:
    return dict(read_ours(folder).get("record") or {})


def add_to_record(folder: Path, more: Mapping[str, Any]) -> None:
    """Add entries to the record in qkv.json."""
    ours = read_ours(folder)
    write_text(folder / OURS, to_json(ours | {"record": dict(ours.get("record") or {}) | dict(more)}))


def model_type_of(path: str | os.PathLike[str]) -> str | None:
    """The model_type of config.json; None if it has none or is missing."""
    file = Path(os.path.expanduser(path)) / CONFIG
    found = read_object(file).get("model_type") if file.is_file() else None
    return found if isinstance(found, str) else None


def read_licences(folder: Path) -> dict[str, bytes]:
    """The licence files of a model, which are copied to models trained from it."""
    return {name: (folder / name).read_bytes() for name in _LICENCES if (folder / name).is_file()}


def check_vocabulary(tokenizer: Tokenizer, rows: int, where: str) -> list[str]:
    """Compare the tokenizer with the token table: a note if a few rows are unused, an InputError if they do not
    match."""
    spare = rows - tokenizer.size
    if spare > _MOST_SPARE or spare < 0:
        raise InputError(
            f"{where}: the tokenizer has {tokenizer.size:,} tokens, but the model's table has {rows:,} rows "
            "(vocab_size). The tokenizer belongs to another model."
        )
    return [f"the token table has {rows:,} rows for {tokenizer.size:,} tokens; the rest is not used"] if spare else []


def own_version() -> str | None:
    try:
        return version("qkv")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return None


# README.md

MARK = "<!-- written by qkv: a new save writes it anew -->"


@dataclass(frozen=True)
class Card:
    name: str
    about: tuple[str, str]  # what the model is, in English and in Chinese
    tags: Sequence[str]  # for the hub, in addition to "qkv"
    library: str = "qkv"  # which one loads it
    pipeline: str | None = None  # the hub's name for the task
    sizes: Mapping[str, object] = field(default_factory=dict)
    labels: Sequence[str] = ()
    notes: Sequence[str] = ()
    command: str | None = None  # the first thing to do with it
    python: Sequence[str] = ()  # pieces of code that load it


def write_about(subject: str, english: str, chinese: str, parameters: int) -> tuple[str, str]:
    """The description of a model for `Card.about`, in both languages.

    >>> write_about("word2vec", "a vector a word", "每词一个向量", 3000)
    ('word2vec: a vector a word. 3,000 parameters.', 'word2vec：每词一个向量。3,000 个参数。')
    """
    return f"{subject}: {english}. {parameters:,} parameters.", f"{subject}：{chinese}。{parameters:,} 个参数。"


def describe_scores(record: Mapping[str, Any]) -> list[str]:
    """The scores of a fine-tuned model for its card, from the record of its training; none of another model."""
    if record.get("job") == "embed":
        return _describe_vectors(record)
    parts = [(name, record.get(key)) for name, key in (("dev / 验证集", "scores"), ("test / 测试集", "test_scores"))]
    known = [(name, one, one["main"]) for name, one in parts if isinstance(one, Mapping) and "main" in one]
    if not known:
        return []
    base = record.get("config", {}).get("model")
    lines = ["| | score / 得分 | 95 % | examples / 样本 |", "|---|---|---|---|"]
    for name, one, main in known:
        ends = one.get("intervals", {}).get(main) or (None, None)
        between = "" if None in ends else f"{ends[0]:.4f} – {ends[1]:.4f}"
        value = one.get(main)
        shown = "–" if value is None else f"{value:.4f}"
        lines.append(f"| {main}, {name} | {shown} | {between} | {one.get('examples', 0):,} |")
        baselines = (record.get("baselines") or {}).get(name.split(" ")[0]) or []
        lines += [f"| baseline: {each['name']} | {each['value']:.4f} | | |" for each in baselines]
    return [*([f"Fine-tuned from / 微调自: {base}"] if base else []), "\n".join(lines)]


def _describe_vectors(record: Mapping[str, Any]) -> list[str]:
    """The scores of sentence vectors, before and after their training (jobs/embed.py)."""
    lines = ["| | score / 得分 | before / 训练前 | 95 % | rows / 行 |", "|---|---|---|---|---|"]
    for part, name in (("dev", "dev / 验证集"), ("test", "test / 测试集")):
        for file, one in record["scores"].get(part, {}).items():
            ends = one["intervals"].get(one["main"]) or ()
            between = " – ".join(f"{end:.4f}" for end in ends)
            before = record["before"][part][file][one["main"]]
            said = f"{one[one['main']]:.4f} | {before:.4f} | {between} | {one['examples']:,}"
            lines.append(f"| {one['main']}, {file}, {name} | {said} |")
    taught = f", taught by / 教师：{record['teacher']}" if record.get("teacher") else ""
    return [f"Trained from / 训练自: {record['model']}{taught}", "\n".join(lines)]


def write_card(card: Card) -> str:
    """The text of README.md."""
    pipeline = [f"pipeline_tag: {card.pipeline}"] if card.pipeline else []
    head = ["---", f"library_name: {card.library}", *pipeline, "tags:", *(f"- {tag}" for tag in ("qkv", *card.tags))]
    parts = ["\n".join([*head, "---", MARK]), f"# {card.name}", *card.about]
    if card.sizes:
        parts.append("\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in card.sizes.items())]))
    if card.labels:
        parts.append(f"Labels / 标签: {', '.join(f'`{label}`' for label in card.labels)}")
    parts += card.notes
    if card.command or card.python:
        parts.append("## Use / 用法")
    if card.command:
        parts.append(f"```bash\n{card.command}\n```")
    parts += [f"```python\n{code}\n```" for code in card.python]
    return "\n\n".join(parts) + "\n"


# Folders of our own model types


class _OwnType(NamedTuple):
    """The description of a model type on its card, and an example command."""

    english: str
    chinese: str
    command: str | None = None


OWN_TYPES: dict[str, _OwnType] = {
    "word2vec": _OwnType(
        "word vectors: one vector a word, the same in every sentence (Mikolov et al. 2013)",
        "词向量：一词一向量，与语境无关",
        "qkv similar WORD --model path/to/this/folder",
    ),
    "nnlm": _OwnType(
        "a feed-forward language model: the next word from a window of words (Bengio et al. 2003)",
        "前馈神经网络语言模型：由前面几个词预测下一个词",
    ),
    "rnnlm": _OwnType(
        "a recurrent language model: the next word from all words before it",
        "循环神经网络语言模型：由前面所有的词预测下一个词",
    ),
    "elmo": _OwnType(
        "word vectors that depend on their sentence, from language models of both directions (Peters et al. 2018)",
        "与语境有关的词向量，来自正、反两个方向的语言模型",
    ),
    "reader": _OwnType(
        "an encoder without attention (looked-up vectors, convolutions or recurrent layers), trained for one task",
        "不用注意力的编码器（查表、卷积或循环层），为一个任务训练而成",
        "qkv predict path/to/this/folder TEXT",
    ),
}
"""Every `model_type` that a folder of ours may have."""


OWN_FORMATS = (*OWN_TYPES, "qkv-transformer", "qkv-seq2seq")
"""Every `model_type` that only qkv reads, so that its weights may be in 8 bits."""


class LazyTensors(Mapping[str, "Tensor"]):
    """The tensors of a file: private views of it, and from 8 bits copies in float32, made when they are used."""

    def __init__(self, stored: Mapping[str, StoredTensor]) -> None:
        self._stored = stored
        self._read: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> "Tensor":
        if name not in self._read:
            self._read[name] = self._stored[name].mapped()
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, name: object) -> bool:
        return name in self._stored


class OwnFolder(NamedTuple):
    """What a folder holds."""

    path: Path
    model_type: str
    config: dict[str, Any]
    stored: Mapping[str, StoredTensor]
    tensors: Mapping[str, "Tensor"]  # the same, to be read
    tokenizer: Tokenizer
    record: dict[str, Any]


def save_folder(
    path: str | os.PathLike[str],
    model_type: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, "Tensor"],
    tokenizer: Tokenizer,
    record: Mapping[str, Any] | None = None,
    *,
    card: str | None = None,
) -> Path:
    """Write a folder, atomically; return its path.

    A folder that is already there is replaced if it is a model folder, and refused if it holds anything else. `config`
    is JSON: numbers, names, lists; its `vocabulary_size`, where it has one, must fit the tokenizer. `card` takes the
    place of the README.md that is written otherwise.
    """
    if model_type not in OWN_TYPES:
        raise InputError(
            f"The model_type is {model_type!r}; a folder is one of {', '.join(OWN_TYPES)}."
            f"{did_you_mean(model_type, OWN_TYPES)}"
        )
    target = Path(os.path.expanduser(path))
    if "vocabulary_size" in config:
        check_vocabulary(tokenizer, config["vocabulary_size"], str(target))
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    files = tokenizer.files(config.get("max_length")) | {
        CONFIG: to_json({"model_type": model_type, **config}),
        OURS: to_json({"format": FOLDER_FORMAT, "qkv": own_version(), "record": dict(record or {})}),
        CARD: card or _card(target.resolve().name, model_type, config, stored, tokenizer.segmenter, record or {}),
    }
    write_folder(target, files, stored)
    return target


def read_folder(path: str | os.PathLike[str], *expected: str) -> OwnFolder:
    """Read a folder that `save_folder` wrote; with `expected`, one of these model_types and no other.

    The weights are a private mapping of the file, which must not be written over in place while they are used.
    """
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        if not (folder / CONFIG).is_file():
            held = listed(entry.name for entry in folder.iterdir()) if folder.is_dir() else ""
            what = f"only {held}" if held else "or is no folder"
            raise InputError(f"{folder} is not a model folder: it has no {CONFIG}, {what}.")
        config = read_object(folder / CONFIG)
        model_type = config.pop("model_type", None)
        if not isinstance(model_type, str) or model_type not in (expected or OWN_TYPES):
            raise _other_type(folder, model_type, expected)
        record = read_record(folder)
        if not (folder / WEIGHTS).is_file():
            raise InputError(f"{folder} has no weights: {WEIGHTS} is missing. Copy it there.")
        stored = join_scales(read_header(folder / WEIGHTS))
        check_sizes(config, stored, folder / CONFIG)
        tokenizer = Tokenizer.load(folder)
        if "vocabulary_size" in config:
            if not isinstance(rows := config["vocabulary_size"], int):
                raise InputError(f"{folder / CONFIG}: vocabulary_size is {rows!r}, where a number belongs.")
            check_vocabulary(tokenizer, rows, str(folder))
    return OwnFolder(folder, model_type, config, stored, LazyTensors(stored), tokenizer, record)


def rewrite_folder(source: Path, target: Path, dtype: str, bits: int | None = None) -> StorageError:
    """Write a folder again with its weights as another type, atomically; return the error that this adds. int8 is for
    OWN_FORMATS alone. `bits`: significant ones of each number of a matrix. Files that are no part of a model, such as
    the log of a model of the zoo, are left out."""
    with reading(source):
        weights = open_weights(source)
        files = {
            file.relative_to(source).as_posix(): file.read_bytes()
            for file in sorted(source.rglob("*"))
            if file.is_file()
            and file not in (*weights.files, weights.source)
            and any(fnmatch(file.name, one) for one in _MODEL_FILES)
        }
        config = read_object(source / CONFIG)
        if named := [name for name in ("dtype", "torch_dtype") if name in config]:  # of a folder of transformers
            files[CONFIG] = to_json(config | dict.fromkeys(named, dtype)).encode()
        tensors, error = encode_tensors(join_scales(weights.tensors), dtype, bits)
    write_folder(target, files, tensors, below=[name.partition("/")[0] for name in files if "/" in name])
    return error


def describe_folder(found: OwnFolder) -> dict[str, Any]:
    """The document of `qkv info --json`, without the terms of use. Weights are not read."""
    return {
        "path": str(found.path),
        "model_type": found.model_type,
        "about": OWN_TYPES[found.model_type].english,
        "config": found.config,
        "parameters": sum(math.prod(tensor.shape) for tensor in found.stored.values()),
        "tensors": {name: list(tensor.shape) for name, tensor in found.stored.items()},
        "dtype": name_dtype(found.stored),
        "files": {file.name: file.stat().st_size for file in sorted(found.path.iterdir()) if file.is_file()},
        "vocabulary": {
            "size": found.tokenizer.size,
            "kind": found.tokenizer.kind,
            "lowercase": found.tokenizer.lowercase,
            "segmenter": found.tokenizer.segmenter,
        },
        "record": found.record,
        "weight_bytes": (found.path / WEIGHTS).stat().st_size,
    }


def _other_type(folder: Path, found: object, expected: tuple[str, ...]) -> InputError:
    wanted = " or ".join(expected or OWN_TYPES)
    if found == "bert":
        return InputError(f"{folder} holds a BERT, where {wanted} belongs. Give the folder of such a model.")
    if isinstance(found, str) and found in OWN_TYPES:
        return InputError(f"{folder} holds a model of type {found}, where {wanted} belongs.")
    hint = did_you_mean(found, OWN_TYPES) if isinstance(found, str) else ""
    return InputError(
        f"{folder / CONFIG} says model_type {found!r}, where {wanted} belongs.{hint} Was it written by a newer qkv, or "
        "by another program?"
    )


def _card(
    name: str,
    model_type: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, "Tensor"],
    segmenter: str | None,
    record: Mapping[str, Any],
) -> str:
    kind = OWN_TYPES[model_type]
    parameters = sum(tensor.numel() for tensor in tensors.values())
    return write_card(
        Card(
            name,
            write_about(model_type, kind.english, kind.chinese, parameters),
            tags=[model_type],
            sizes={key: value for key, value in config.items() if isinstance(value, str | int | float | bool)},
            notes=[
                *([f"Chinese words are found by {segmenter} / 中文由 {segmenter} 分词。"] if segmenter else []),
                *describe_scores(record),
            ],
            command=kind.command,
        )
    )


# For `qkv info` and `qkv look`

FACTS: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "encoder_layers", "layers"),
    "decoder_layers": ("decoder_layers",),
    "heads": ("num_attention_heads", "n_head", "encoder_attention_heads", "heads"),
    "width": ("hidden_size", "n_embd", "d_model", "width", "embedding_width"),
    "vocabulary": ("vocab_size", "vocabulary_size"),
    "positions": ("max_position_embeddings", "n_positions", "max_length"),
    "context": ("context",),
}
"""By fact, what config.json calls it; the first that is there and a number."""


def collect_facts(path: Path, kind: str) -> dict[str, int | str]:
    """Sizes of a model under names that all kinds share, from config.json and the headers of the weights; for a file of
    vectors its size in bytes."""
    if path.is_file():
        return {"bytes": path.stat().st_size}
    facts: dict[str, int | str] = {}
    config = read_object(path / CONFIG)
    shapes = [tensor.shape for tensor in join_scales(open_weights(path, shapes_only=True).tensors).values()]
    for fact, names in FACTS.items():
        numbers = [config[name] for name in names if isinstance(config.get(name), int)]
        if numbers and not (fact == "positions" and kind in ("seq2seq", "reader")):
            facts[fact] = numbers[0]
    if isinstance(cell := config.get("cell", "lstm" if kind == "elmo" else None), str):
        facts["cell"] = cell
    if kind == "reader" and isinstance(made := config.get("kind"), str):
        facts["reader"] = made
    if shapes:
        facts["parameters"] = sum(math.prod(shape) for shape in shapes)
    record = read_object(path / OURS).get("record") if (path / OURS).is_file() else None
    told = record if isinstance(record, dict) else {}
    languages = {name: told.get(name) for name in ("source_language", "target_language")}
    return facts | {name: value for name, value in languages.items() if isinstance(value, str)}


_TEXT_VERBS = ("qkv embed TEXT --model {}", "qkv finetune TASK --model {} --train FILE --out RUN")
_VERBS = {
    **dict.fromkeys(("word2vec", "nnlm"), ("qkv similar WORD --model {}", *_TEXT_VERBS)),
    **dict.fromkeys(("rnnlm", "elmo"), _TEXT_VERBS),
    "reader": ("qkv predict {} TEXT",),
}
"""The verbs that take a folder of ours, by its model_type."""


def weights_line(facts: Mapping[str, Any]) -> str:
    """The size of the weights and how they are stored, for `qkv info`."""
    size, dtype = f"{facts['weight_bytes'] / 1e6:,.1f} MB", facts["dtype"]
    return f"{size}, 8 bits" if dtype == "int8" else f"{size}, {dtype}"


def lines_of_ours(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    vocabulary, words = vocabulary_line(facts["vocabulary"]), facts["record"].get("words")
    return [
        ("folder", facts["path"]),
        ("model", f"{facts['model_type']}: {translate(facts['about'])}"),
        (
            "sizes",
            ", ".join(f"{name} {value}" for name, value in facts["config"].items() if not isinstance(value, dict)),
        ),
        ("features", _features(facts["config"].get("features"), facts["record"].get("mix"))),
        ("parameters", f"{facts['parameters']:,}"),
        ("weights", weights_line(facts)),
        ("vocabulary", vocabulary + ("" if words is None else f"; {words:,} words have a vector")),
        ("licence", facts["licence"] or ""),
        ("for", "; ".join(verb.format(facts["path"]) for verb in _VERBS.get(facts["model_type"], ()))),
    ]


def _features(sizes: dict[str, Any] | None, mix: dict[str, Any] | None) -> str:
    """The language model below a plain encoder; empty if it has a table of vectors."""
    if not sizes:
        return ""
    text = ", ".join(f"{name} {value}" for name, value in sizes.items() if name != "model_type")
    shares = " ".join(f"{share:.2f}" for share in mix["shares"]) if mix else ""
    mixed = f"; its layers mixed {shares}, times {mix['gamma']:.2f}" if mix else ""
    return f"vectors of {sizes['model_type']} ({text}){mixed}"
