"""config.json of GPT and GPT-2 folders to our config and back, and the names of their tensors: one table a dialect.

With these a folder is checked and described (`plan_gpt`), without torch; folder.py opens and saves it.

transformers has two classes for what is one network with two orders of norm and residual: `openai-gpt` (post-norm) and
`gpt2` (pre-norm). Their fields and tensors are named almost alike. No field is passed over in silence: it becomes a
value of ours, it must have the one value that qkv's GPT has (FIXED), it is known to say nothing about the numbers
(NEUTRAL), or it is named in a note. With the head of a task it is one of these classes:

    sequence   score                          GPT2ForSequenceClassification, OpenAIGPTForSequenceClassification
    token      classifier                     GPT2ForTokenClassification
    span       qa_outputs                     GPT2ForQuestionAnswering
    choice     multiple_choice_head.summary   GPT2DoubleHeadsModel, OpenAIGPTDoubleHeadsModel
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from qkv.errors import InputError, listed
from qkv.files import read_object
from qkv.models.family import (
    ATTENDS,
    ENCODES,
    HAS_TASK,
    PREDICTS_NEXT,
    SHOWS_LAYERS,
    TAKES_HEAD,
    WRITES,
    EncoderSizes,
    Facts,
    Family,
)
from qkv.models.folders.fields import ACTIVATION_NAMES, NEUTRAL, Fields, read_labels
from qkv.models.folders.own import CONFIG, check_vocabulary, read_record, vocabulary_line
from qkv.models.folders.weights import StoredTensor, WeightFiles, are_equal, check_names, check_tensor, open_weights
from qkv.models.gpt.config import GPTConfig, shapes_of_gpt
from qkv.nn.shapes import Shapes
from qkv.report.bilingual import Phrase
from qkv.text.messages import translate
from qkv.text.tokenizer import Tokenizer

_SIZES: dict[str, str] = {
    "vocab_size": "vocabulary_size",
    "n_positions": "max_length",
    "n_embd": "width",
    "n_layer": "layers",
    "n_head": "heads",
    "resid_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
    "embd_pdrop": "embedding_dropout",
    "layer_norm_epsilon": "norm_epsilon",
    "initializer_range": "initial_std",
    "tie_word_embeddings": "tied",
}
_FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "add_cross_attention": ((False, None), "qkv's GPT asks its own text alone"),
    "is_encoder_decoder": ((False, None), "qkv's GPT is a decoder alone"),
    "pruned_heads": (({}, None), "qkv's GPT keeps all heads of a layer"),
    "quantization_config": ((None,), "qkv reads float weights"),
}
_NEUTRAL = NEUTRAL | {
    *("pad_token_id", "is_decoder", "n_ctx", "n_special", "predict_special_tokens"),
    *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"),
    "reorder_and_upcast_attn",  # how 16 bits are rounded in training, and nothing else
}
"""Settings of training, of decoding, of other heads and of transformers itself."""
WIDER = 4
"""How much wider the feed-forward's inside is where a config does not say."""


class Dialect(NamedTuple):
    """The names that one class of transformers uses."""

    model_type: str
    order: str
    fields: Fields
    classes: tuple[str, str]  # with the scores of words and without
    tables: tuple[str, str]  # of tokens and of positions


GPT2 = Dialect(
    "gpt2",
    "pre",
    Fields(
        _SIZES
        | {
            "n_inner": "inner_width",
            "scale_attn_weights": "scaled",
            "scale_attn_by_inverse_layer_idx": "scaled_by_layer",
            "activation_function": "activation",
        },
        {"vocab_size": 50_257, "n_positions": 1_024},
        _FIXED,
        _NEUTRAL,
        activations={"gelu_new": "gelu_tanh"} | ACTIVATION_NAMES,
    ),
    ("GPT2LMHeadModel", "GPT2Model"),
    ("wte.weight", "wpe.weight"),
)
GPT1 = Dialect(
    "openai-gpt",
    "post",
    Fields(
        _SIZES | {"afn": "activation"},
        {"vocab_size": 40_478, "n_positions": 512},
        _FIXED,
        _NEUTRAL,
        # what is called gelu there is the tanh one
        activations={"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"},
    ),
    ("OpenAIGPTLMHeadModel", "OpenAIGPTModel"),
    ("tokens_embed.weight", "positions_embed.weight"),
)
DIALECTS = {dialect.model_type: dialect for dialect in (GPT2, GPT1)}

LAYER_PARTS: dict[str, str] = {
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "attention_norm": "ln_1",
    "feed_forward.up": "mlp.c_fc",
    "feed_forward.down": "mlp.c_proj",
    "feed_forward_norm": "ln_2",
}
"""Parts of a layer, ours and theirs, each with a weight and a bias."""
TURNED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
"""Stored with a row for each input, where ours has a row for each output."""
SCORES_TENSOR = "lm_head.weight"
PREFIX = "transformer."
HEAD_TENSORS: dict[str, str] = {
    "sequence": "score",
    "token": "classifier",
    "span": "qa_outputs",
    "choice": "multiple_choice_head.summary",
}
"""Heads of tasks, ours and theirs: one linear layer each."""
CLASSES = {
    "sequence": "ForSequenceClassification",
    "token": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "DoubleHeadsModel",
}
"""How transformers' class for a head is called, after the name of the network."""
OF_THE_FIRST = ("sequence", "choice")
"""Heads that it has for OpenAI's first GPT; any other is an extra tensor, which only qkv reads."""


def read_gpt_config(fields: Mapping[str, Any], file: Path) -> tuple[GPTConfig, Dialect, list[str]]:
    """The sizes in a config.json, its dialect, and notes about it."""
    kind = fields.get("model_type")
    if kind not in DIALECTS:
        raise InputError(
            f"{file} says model_type {kind!r}, where {' or '.join(DIALECTS)} belongs: it is not the folder of a GPT. "
            f"What it is and holds: qkv info {file.parent}"
        )
    dialect = DIALECTS[kind]
    values = dialect.fields.read({name: value for name, value in fields.items() if value is not None}, file)
    values.setdefault("inner_width", WIDER * values.get("width", GPTConfig.width))
    unknown = dialect.fields.unknown(fields)
    notes = [f"{file.name}: {listed(unknown)} mean nothing to qkv and change nothing here"] if unknown else []
    try:
        return GPTConfig(**values, order=dialect.order), dialect, notes
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def dialect_of(config: GPTConfig) -> Dialect:
    """The class of transformers for this network; raises InputError, with the reason, if there is none."""
    dialect = next(dialect for dialect in DIALECTS.values() if dialect.order == config.order)
    if config.activation not in dialect.fields.activations.values():
        raise InputError(
            f"transformers' {dialect.model_type} has no activation {config.activation}; it can be saved with "
            f"{', '.join(dict.fromkeys(dialect.fields.activations.values()))}."
        )
    if dialect is GPT1:
        if config.inner_width != WIDER * config.width:
            raise InputError(
                f"transformers' {dialect.model_type} is {WIDER} times as wide inside: with order post and width "
                f"{config.width} inner_width must be {WIDER * config.width}, not {config.inner_width}. Set "
                "model.inner_width, or model.order to pre."
            )
        if not config.scaled or config.scaled_by_layer:
            raise InputError(f"transformers' {dialect.model_type} always scales its attention by 1 / √(head width).")
    return dialect


def write_gpt_config(
    config: GPTConfig, dialect: Dialect, end: int | None, pad: int | None, dtype: str
) -> dict[str, Any]:
    """The fields of a config.json that transformers reads as this network."""
    return {
        "architectures": [dialect.classes[0]],
        "model_type": dialect.model_type,
        "dtype": dtype,
        **dialect.fields.write(vars(config)),
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": pad,
    }


def names_of(config: GPTConfig, dialect: Dialect) -> dict[str, str]:
    """Every parameter of ours and its name in a file, without the prefix of the classes with heads."""
    names = dict(zip(("embedding.weight", "position.weight"), dialect.tables, strict=True))
    for number in range(config.layers):
        for ours, theirs in LAYER_PARTS.items():
            for kind in ("weight", "bias"):
                names[f"blocks.{number}.{ours}.{kind}"] = f"h.{number}.{theirs}.{kind}"
    if config.order == "pre":
        names |= {f"norm.{kind}": f"ln_f.{kind}" for kind in ("weight", "bias")}
    return names if config.tied else names | {"table": SCORES_TENSOR}


def class_of(dialect: Dialect, heads: Sequence[str]) -> str:
    """transformers' class for a GPT with one head; without a head, or with an unknown one, that of the network."""
    if len(heads) != 1 or (dialect is GPT1 and heads[0] not in OF_THE_FIRST):
        return dialect.classes[0] if not heads else dialect.classes[1]
    return dialect.classes[1].removesuffix("Model") + CLASSES[heads[0]]


# A folder, checked by names and shapes before a weight is read

ABOUT = {
    "pre": Phrase("a language model that writes on from a text (Radford et al. 2019)", "语言模型：接着一段文字往下写"),
    "post": Phrase("a language model that writes on from a text (Radford et al. 2018)", "语言模型：接着一段文字往下写"),
    "sequence": Phrase("a GPT that classifies a text (Radford et al. 2018, §3.2)", "GPT，可给文本分类"),
    "token": Phrase("a GPT that labels every token of a text", "GPT，可给每个词元打标签"),
    "span": Phrase("a GPT that finds an answer in a text", "GPT，可在文本中找出答案"),
    "choice": Phrase("a GPT that picks one of several choices", "GPT，可从几个选项中选一个"),
}
"""What a card says: of a language model by its order, of one that was made for a task by its head."""
_WRITER = Phrase("a GPT, which writes on from a text", "GPT，可接着一段文字往下写")
_OF_A_TASK = Phrase("a GPT that was made for a task", "为一个任务训练而成的 GPT")


@dataclass(frozen=True)
class GPTPlan:
    path: Path
    fields: dict[str, Any]  # of config.json
    dialect: Dialect
    weights: WeightFiles
    names: dict[str, StoredTensor]  # by their names, without the prefix
    stored_heads: dict[str, StoredTensor]  # of tasks, by their names
    tensors: dict[str, str]  # ours → theirs
    config: GPTConfig
    shapes: Shapes  # of our parameters
    tokenizer: Tokenizer
    record: dict[str, Any]
    notes: tuple[str, ...]
    begin_id: int | None  # the special token before a text, and
    end_id: int | None  # after it; None: the vocabulary has none, as that of OpenAI's first GPT

    @cached_property
    def heads(self) -> tuple[str, ...]:
        return tuple(ours for ours, theirs in HEAD_TENSORS.items() if f"{theirs}.weight" in self.stored_heads)

    @cached_property
    def labels(self) -> tuple[str, ...] | None:
        """None if config.json has no labels."""
        return read_labels(self.path / CONFIG, self.fields)[0] if {"sequence", "token"} & set(self.heads) else ()


def plan_gpt(folder: Path, compare: bool) -> GPTPlan:
    """Check a folder before reading weights. `compare`: read the file to see whether a stored output table equals the
    token table."""
    file = folder / CONFIG
    fields = read_object(file)
    config, dialect, notes = read_gpt_config(fields, file)
    weights = open_weights(folder, shapes_only=not compare)
    names = {
        plain: tensor for name, tensor in weights.tensors.items() if not _is_mask(plain := name.removeprefix(PREFIX))
    }
    heads = {name: names.pop(name) for name in list(names) if name.rpartition(".")[0] in HEAD_TENSORS.values()}
    if config.tied and SCORES_TENSOR in names:
        # as transformers 5 does it: one that is stored beside the tokens counts where it differs
        if compare and dialect.tables[0] in names and not are_equal(names[SCORES_TENSOR], names[dialect.tables[0]]):
            config = replace(config, tied=False)
        else:
            del names[SCORES_TENSOR]
    # more layers than tensors are missing in any case, and need not be counted one by one
    tensors = names_of(replace(config, layers=min(config.layers, len(names) + 1)), dialect)
    check_names(weights, names, tensors.values(), f"a {dialect.classes[0]} of {config.layers} layers")
    shapes = shapes_of_gpt(config)
    for ours, shape in shapes.items():
        theirs = tensors[ours]
        check_tensor(names[theirs], theirs, shape[::-1] if theirs.endswith(TURNED) else shape)
    tokenizer = Tokenizer.load(folder)
    notes += check_vocabulary(tokenizer, config.vocabulary_size, str(folder))
    own = tokenizer.sep_id if tokenizer.has_marks else None
    end = _mark(fields, "eos_token_id", tokenizer, own, notes)
    begin = _mark(fields, "bos_token_id", tokenizer, end, notes)
    found = weights, names, heads, tensors, config, shapes, tokenizer, read_record(folder), tuple(notes)
    return GPTPlan(folder, fields, dialect, *found, begin, end)


def _mark(fields: Mapping[str, Any], name: str, tokenizer: Tokenizer, own: int | None, notes: list[str]) -> int | None:
    """The token that config.json names for a purpose; `own` if it names none."""
    number = fields.get(name)
    if number is None or number == own:
        return own
    if isinstance(number, int) and number in tokenizer.vocabulary.values():
        return number
    taken = "none" if own is None else f"{tokenizer.token(own)} ({own})"
    notes.append(f"{CONFIG}: {name} {number!r} is no token of the vocabulary; {taken} is taken")
    return own


def _is_mask(name: str) -> bool:
    """Whether a name is that of an attention mask, which older files store as a buffer."""
    return name.endswith((".attn.bias", ".attn.masked_bias"))


def _facts(plan: GPTPlan) -> Facts:
    config, tokenizer, folder = plan.config, plan.tokenizer, plan.path
    document = {
        "path": str(folder),
        "model_type": plan.dialect.model_type,
        "about": _OF_A_TASK.en if plan.heads else ABOUT[config.order].en,
        "config": {name: value for name, value in vars(config).items() if name != "vocabulary_size"},
        "parameters": sum(math.prod(shape) for shape in plan.shapes.values()),
        "max_length": config.max_length,
        "dtype": " and ".join(sorted({tensor.dtype for tensor in plan.names.values()})),
        "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.is_file()},
        "weight_bytes": sum(file.stat().st_size for file in plan.weights.files),
        "vocabulary": {
            "size": tokenizer.size,
            "rows": config.vocabulary_size,
            "kind": tokenizer.kind,
            "lowercase": tokenizer.lowercase,
            "segmenter": tokenizer.segmenter,
        },
        "heads": list(plan.heads),
        "labels": list(plan.labels or ()),
        "record": plan.record,
        "notes": list(plan.notes),
    }
    return Facts(
        "gpt",
        plan.dialect.model_type,
        folder,
        _OF_A_TASK if plan.heads else _WRITER,
        "gpt",
        (*((HAS_TASK,) if plan.heads else (WRITES, PREDICTS_NEXT)), ENCODES, ATTENDS, SHOWS_LAYERS, TAKES_HEAD),
        document,
        plan.heads,
        plan.record,
        plan.notes,
        sizes=sizes_of_gpt(config, config.vocabulary_size),
    )


def sizes_of_gpt(config: GPTConfig, words: int) -> EncoderSizes:
    sizes = config.vocabulary_size, config.layers, config.width, config.max_length
    return EncoderSizes(*sizes, pairs=True, dropout=config.dropout, words=words)


def lines_of_gpt(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What `qkv info` shows."""
    sizes, vocabulary, path = facts["config"], facts["vocabulary"], facts["path"]
    rows = vocabulary["rows"]
    first = f"qkv generate {path} TEXT; qkv embed TEXT --model {path}"
    first = f"qkv predict {path} TEXT" if facts["heads"] else first
    spare = f", table of {rows:,} rows" if rows != vocabulary["size"] else ""
    return [
        ("folder", path),
        ("model", f"{facts['model_type']}: {translate(facts['about'])}"),
        (
            "layers",
            f"{sizes['layers']} of width {sizes['width']}, {sizes['heads']} attention heads, feed-forward "
            f"{sizes['inner_width']}, {sizes['activation']}, {sizes['order']}-norm",
        ),
        ("longest text", f"{facts['max_length']} tokens, prompt and all"),
        ("parameters", f"{facts['parameters']:,}"),
        ("vocabulary", vocabulary_line(vocabulary) + spare),
        ("weights", f"{facts['weight_bytes'] / 1e6:,.1f} MB, {facts['dtype']}"),
        ("licence", ", ".join(part for part in (facts["licence"], facts["licence_file"]) if part)),
        ("heads", ", ".join(facts["heads"])),
        ("labels", ", ".join(facts["labels"][:12]) + (" …" if len(facts["labels"]) > 12 else "")),
        ("for", f"{first}; qkv finetune TASK --model {path} --train FILE --out RUN"),
    ]


GPT_FAMILY = Family("gpt", tuple(DIALECTS), _WRITER, plan_gpt, _facts, lines_of_gpt)
