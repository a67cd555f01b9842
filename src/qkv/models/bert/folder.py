"""BERT folders as Hugging Face transformers writes them: load, save, describe.

A folder is config.json, weights and a tokenizer. Loading builds the network without memory (on torch's meta device),
holds every stored name and shape against the one table in keys.py, and hands the network views of the mapped file; a
fused qkv is the only tensor that is copied. Saving goes the same table backwards into a folder that `transformers`
and qkv both load, and replaces its target whole or not at all. qkv.json holds what is ours alone.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from qkv.errors import InputError, listed, reading
from qkv.files import replaced_folder, to_json
from qkv.models.bert.keys import (
    ARCHITECTURES,
    DECODER_BIAS,
    architecture_of,
    check_architecture,
    default_labels,
    read_config,
    tensors_of,
    write_config,
    written,
)
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.bert.plan import Plan, make_plan
from qkv.models.encoder import WithHeads
from qkv.models.family import (
    ATTENDS,
    ENCODES,
    FILLS,
    HAS_TASK,
    JUDGES_PAIRS,
    SHOWS_LAYERS,
    TAKES_HEAD,
    TASK_HEADS,
    Ability,
    EncoderSizes,
    Encodes,
    Facts,
    Family,
    Fills,
    HasTask,
    Head,
    JudgesPairs,
    Loading,
    Opened,
    Saving,
    TakesHead,
)
from qkv.models.folders.card import MARK, Card, write_card
from qkv.models.folders.codec import CARD, CONFIG, FORMAT, check_vocabulary, own_version, reason_to_keep, terms_of
from qkv.models.folders.info import shown_facts, vocabulary_line
from qkv.models.folders.sentence import MODULES, SentenceFiles, write_sentence
from qkv.models.folders.weights import StoredTensor
from qkv.report.bilingual import Phrase
from qkv.text.tokenizer import Tokenizer

ABOUT: dict[str, tuple[str, str]] = {
    "BertForPreTraining": (
        "an encoder with its two pre-training heads: masked words and next sentence",
        "编码器，带两个预训练头：被遮盖的词、下一句",
    ),
    "BertForMaskedLM": ("an encoder that fills in masked words", "编码器，可填出被遮盖的词"),
    "BertForNextSentencePrediction": (
        "an encoder that says whether one sentence follows another",
        "编码器，可判断两句是否相连",
    ),
    "BertForSequenceClassification": ("an encoder that classifies a text", "编码器，可给文本分类"),
    "BertForTokenClassification": ("an encoder that labels every token of a text", "编码器，可给每个词元打标签"),
    "BertForQuestionAnswering": ("an encoder that finds an answer in a text", "编码器，可在文本中找出答案"),
    "BertForMultipleChoice": ("an encoder that picks one of several choices", "编码器，可从几个选项中选一个"),
    "BertModel": ("an encoder", "编码器"),
}


@dataclass
class Folder:
    """A loaded model and all that its folder says about it."""

    model: BertWithHeads
    tokenizer: Tokenizer
    config: BertConfig
    labels: tuple[str, ...]  # by id; empty without a head that has labels
    architecture: str  # the class of transformers for what is really there, which may be more than the folder states
    path: Path
    pooling: str | None = None  # "mean" or "cls" when the folder says so
    normalize: bool = False
    foreign_pooling: str | None = None  # how the folder pools, where qkv cannot
    record: dict[str, Any] = field(default_factory=dict)  # from qkv.json
    carried: dict[str, Any] = field(default_factory=dict)  # fields of config.json that a save gives back
    files: dict[str, bytes] = field(default_factory=dict)  # small files that a save gives back
    notes: tuple[str, ...] = ()  # what the folder says and qkv does not do

    def save(self, path: str | Path, architecture: str | None = None) -> Path:
        """The same model in another folder (or this one), with everything that came with it."""
        return save(
            path,
            self.model,
            self.tokenizer,
            self.labels,
            architecture,
            pooling=self.pooling,
            normalize=self.normalize,
            foreign_pooling=self.foreign_pooling,
            record=self.record,
            carried=self.carried,
            files=self.files,
        )


def load(path: str | Path, *, dtype: torch.dtype = torch.float32) -> Folder:
    """Load a BERT folder for prediction. Weights stored in another dtype are converted.

    The weights are a private mapping of the file: training does not write to it. In return the file must not be
    written over in place while the model lives; `save` never does that, it puts a new file in the old one's place.
    """
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        plan = make_plan(folder, compare=True)
        return _loaded(folder, plan, dtype)


def _loaded(folder: Path, plan: Plan, dtype: torch.dtype) -> Folder:
    state: dict[str, Tensor] = {}
    for ours, theirs in plan.tensors.items():
        stored = [plan.names[name] for name in theirs]
        if len(stored) == 1 and stored[0].dtype == dtype:
            state[ours] = stored[0].mapped()
        else:
            state[ours] = _gathered(stored, dtype)
    plan.skeleton.load_state_dict(state, strict=True, assign=True)
    files = dict(plan.sentence.files)
    if (folder / CARD).is_file() and MARK.encode() not in (card := (folder / CARD).read_bytes()):
        files[CARD] = card
    files |= terms_of(folder)
    return Folder(
        model=plan.skeleton.eval(),
        tokenizer=plan.tokenizer,
        config=plan.skeleton.config,
        labels=plan.labels,
        architecture=plan.architecture,
        path=folder,
        pooling=plan.sentence.pooling,
        normalize=plan.sentence.normalize,
        foreign_pooling=plan.sentence.foreign,
        record=plan.record,
        carried=plan.stated.carried,
        files=files,
        notes=plan.notes,
    )


def _gathered(stored: Sequence[StoredTensor], dtype: torch.dtype) -> Tensor:
    """Tensors one under the other in new memory, each read from the file straight into its place."""
    rows = sum(tensor.shape[0] for tensor in stored)
    whole = torch.empty((rows, *stored[0].shape[1:]), dtype=dtype)
    for tensor, part in zip(stored, torch.split(whole, [tensor.shape[0] for tensor in stored]), strict=True):
        tensor.read_into(part)
    return whole


def save(
    path: str | Path,
    model: BertWithHeads,
    tokenizer: Tokenizer,
    labels: Sequence[str] = (),
    architecture: str | None = None,
    *,
    pooling: str | None = None,
    normalize: bool = False,
    foreign_pooling: str | None = None,
    record: Mapping[str, Any] | None = None,
    carried: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a folder that transformers and qkv load; return its path.

    Without `architecture`, every part of the model is written, under the class that holds the most of them. With one,
    exactly the parts of that class: transformers then finds no key too many or too few. A folder that is already
    there is replaced if it is a model folder, and refused if it holds anything else.
    """
    config, heads = model.config, set(model.heads)
    pooler = model.encoder.pooler is not None
    if architecture is not None:
        check_architecture(architecture, "save")
        needed = ARCHITECTURES[architecture]
        if lacking := set(needed.heads) - heads:
            raise InputError(f"{architecture} needs the head {listed(lacking)}, which this model does not have.")
        heads, pooler = set(needed.heads), pooler and needed.pooler
    else:
        architecture = architecture_of(heads)
    labels = _labels_to_write(model, architecture, labels)
    target = Path(os.path.expanduser(path))
    check_vocabulary(tokenizer, config.vocabulary_size, str(target))
    state = model.state_dict()
    tensors: dict[str, Tensor] = {}
    for ours, theirs in tensors_of(heads, pooler, config.layers, config.tied).items():
        for name, part in zip(theirs, state[ours].detach().cpu().chunk(len(theirs)), strict=True):
            tensors[written(name, architecture)] = part.contiguous()
    if "heads.masked.table" in state and "masked" in heads:
        tensors[DECODER_BIAS] = tensors["cls.predictions.bias"].clone()  # untied, transformers adds this one
    dtype = str(state["encoder.embedding.token.weight"].dtype).removeprefix("torch.")
    fields = write_config(config, architecture, labels, dtype, carried or {})
    extra = dict(files or {}) | {name: text.encode() for name, text in tokenizer.files(config.max_length).items()}
    if pooling and MODULES not in extra:
        extra |= write_sentence(pooling, normalize, config.width)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    card = make_card(target.resolve().name, config, architecture, labels, parameters, pooling)
    extra.setdefault(CARD, card.encode())
    ours_alone = {"format": FORMAT, "qkv": own_version(), "pooling": pooling, "normalize": normalize}
    if foreign_pooling is not None:
        ours_alone["foreign_pooling"] = foreign_pooling
    with replaced_folder(target, reason_to_keep) as fresh:
        extra["config.json"] = to_json(fields).encode()
        extra["qkv.json"] = to_json(ours_alone | {"record": dict(record or {})}).encode()
        for name, content in extra.items():
            (fresh / name).parent.mkdir(exist_ok=True)
            (fresh / name).write_bytes(content)
        try:
            save_file(tensors, fresh / "model.safetensors", metadata={"format": "pt"})
        except SafetensorError as error:  # how that library reports a full disk
            raise OSError(str(error)) from error
        # some versions of safetensors let nobody but the owner read the file
        (fresh / "model.safetensors").chmod((fresh / "config.json").stat().st_mode)
    return target


def make_card(
    name: str, config: BertConfig, architecture: str, labels: Sequence[str], parameters: int, pooling: str | None
) -> str:
    """README.md of a BERT."""
    known, (english, chinese) = ARCHITECTURES[architecture], ABOUT[architecture]
    size = f"{config.layers} × {config.width} × {config.heads}"
    return write_card(
        Card(
            name,
            (
                f"BERT ({architecture}): {english}. {config.layers} layers, width {config.width}, {config.heads} "
                f"attention heads, up to {config.max_length:,} tokens, {parameters:,} parameters.",
                f"BERT（{architecture}）：{chinese}。层数 × 宽度 × 注意力头数 = {size}，"
                f"最长 {config.max_length} 个词元，{parameters:,} 个参数。",
            ),
            tags=("bert", "sentence-transformers") if pooling else ("bert",),
            library="transformers",
            pipeline="sentence-similarity" if pooling else known.pipeline,
            labels=labels,
            notes=[f"Sentence vectors / 句向量: {pooling} pooling"] if pooling else (),
            python=(
                'import qkv\n\nmodel = qkv.load("path/to/this/folder")',
                f"from transformers import AutoTokenizer, {known.auto_class}\n\n"
                'tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")\n'
                f'model = {known.auto_class}.from_pretrained("path/to/this/folder")',
            ),
        )
    )


def _labels_to_write(model: BertWithHeads, architecture: str, labels: Sequence[str]) -> tuple[str, ...]:
    named = set(ARCHITECTURES[architecture].heads) & {"sequence", "token"}
    if not named:
        return ()
    outputs = model.state_dict()[f"heads.{named.pop()}.linear.weight"].shape[0]
    if labels and len(labels) != outputs:
        raise InputError(f"{len(labels)} labels were given for a head of {outputs} outputs.")
    return tuple(labels) or default_labels(outputs)


def describe(path: str | Path) -> dict[str, Any]:
    """What a folder holds, without reading its weights: for people to look at and programs to read."""
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        return _described(folder, make_plan(folder, compare=False))


def _described(folder: Path, plan: Plan) -> dict[str, Any]:
    config, skeleton = plan.skeleton.config, plan.skeleton
    counts: dict[str, int] = {}
    for name, parameter in skeleton.named_parameters():
        top, part = name.split(".")[:2]
        part = part if top == "heads" else {"embedding": "embeddings", "blocks": "encoder"}.get(part, part)
        counts[part] = counts.get(part, 0) + parameter.numel()
    heads = list(skeleton.heads)
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in plan.names.values()}
    return {
        "path": str(folder),
        "architecture": plan.architecture,
        "stated_architecture": plan.stated.architecture,
        "heads": heads,
        "layers": config.layers,
        "width": config.width,
        "attention_heads": config.heads,
        "inner_width": config.inner_width,
        "max_length": config.max_length,
        "activation": config.activation,
        "tied": config.tied if plan.is_decoder_compared else None,  # None: not compared
        "parameters": {
            "total": sum(counts.values()),
            **{part: counts.get(part, 0) for part in ("embeddings", "encoder", "pooler")},
            "heads": {head: counts[head] for head in heads},
        },
        "dtype": " and ".join(sorted(dtypes)),
        "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.is_file()},
        "weight_bytes": sum(file.stat().st_size for file in plan.weights.files),
        "vocabulary": {
            "size": plan.tokenizer.size,
            "rows": config.vocabulary_size,
            "kind": plan.tokenizer.kind,
            "lowercase": plan.tokenizer.lowercase,
            "segmenter": plan.tokenizer.segmenter,
        },
        "labels": list(plan.labels),
        "pooling": plan.sentence.pooling,
        "normalize": plan.sentence.normalize,
        "foreign_pooling": plan.sentence.foreign,
        "record": plan.record,
        "notes": list(plan.notes),
    }


def lines_of_bert(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    parameters, vocabulary = facts["parameters"], facts["vocabulary"]
    rows = vocabulary["rows"]
    spare = f", table of {rows:,} rows" if rows != vocabulary["size"] else ""
    stated, found = facts["stated_architecture"], facts["architecture"]
    heads = ", ".join(f"{name} {number:,}" for name, number in parameters["heads"].items())
    labels = facts["labels"]
    shown = ", ".join(labels[:12]) + (f", … ({len(labels)} in all)" if len(labels) > 12 else "")
    pooling = facts["pooling"] and facts["pooling"] + (", scaled to length 1" if facts["normalize"] else "")
    return [
        ("folder", facts["path"]),
        ("architecture", found if stated in (None, found) else f"{found} (config.json says {stated})"),
        ("heads", ", ".join(facts["heads"]) or "none: embeds texts and shows attention"),
        (
            "layers",
            f"{facts['layers']} of width {facts['width']}, {facts['attention_heads']} attention heads, "
            f"feed-forward {facts['inner_width']}, {facts['activation']}",
        ),
        ("longest text", f"{facts['max_length']} tokens at once"),
        ("parameters", f"{parameters['total']:,}"),
        ("  embeddings", f"{parameters['embeddings']:,}"),
        ("  encoder", f"{parameters['encoder']:,}"),
        ("  pooler", f"{parameters['pooler']:,}" if parameters["pooler"] else ""),
        ("  heads", heads),
        ("vocabulary", vocabulary_line(vocabulary) + spare),
        ("labels", shown),
        ("pooling", pooling or ""),
        ("weights", f"{facts['weight_bytes'] / 1e6:,.1f} MB, {facts['dtype']}"),
        ("licence", ", ".join(part for part in (facts["licence"], facts["licence_file"]) if part)),
        ("card", facts["card"] or ""),
    ]


# --- The family: what is asked of a BERT's folder from outside.

_ABOUT = Phrase("a BERT", "BERT")
_ABILITIES: dict[str, Ability[Any]] = {"masked": FILLS, "next_sentence": JUDGES_PAIRS}


def sizes_of_bert(config: BertConfig) -> EncoderSizes:
    return EncoderSizes(
        config.vocabulary_size,
        config.layers,
        config.width,
        config.max_length,
        pairs=config.segments > 1,
        dropout=config.dropout,
    )


def _facts(path: Path) -> Facts:
    document = describe(path)
    heads = tuple(document["heads"])
    abilities: list[Ability[Any]] = [HAS_TASK] if set(heads) & set(TASK_HEADS) else []
    abilities += [ability for head, ability in _ABILITIES.items() if head in heads]
    return Facts(
        "bert",
        "bert",
        path,
        _ABOUT,
        "bert",
        (*abilities, ENCODES, ATTENDS, SHOWS_LAYERS, TAKES_HEAD),
        document,
        heads,
        document["record"],
        tuple(document["notes"]),
        shown_facts(path, "bert"),
        sizes_of_bert(read_config(path / CONFIG).config),
    )


def _open(path: Path, loading: Loading) -> Opened:
    facts, folder = _facts(path), load(path, dtype=loading.dtype)
    sizes, network = sizes_of_bert(folder.config), folder.model.to(loading.device)
    heads = tuple(network.heads)

    def build(head: Head) -> BertWithHeads:
        dropout = folder.config.dropout if head.dropout is None else head.dropout
        config = replace(folder.config, dropout=dropout, attention_dropout=head.attention_dropout)
        return BertWithHeads(config, [head.name], labels=head.outputs)

    def save_with_head(target: Path, network: WithHeads, saving: Saving) -> Path:
        assert isinstance(network, BertWithHeads)
        kept = folder.config.dropout, folder.config.attention_dropout
        network.config = replace(network.config, dropout=kept[0], attention_dropout=kept[1])
        return save(
            target,
            network,
            folder.tokenizer,
            saving.labels,
            architecture_of(list(network.heads)),
            record=saving.record,
            carried={"problem_type": saving.problem} if saving.problem else {},
            files=terms_of(folder.path),
        )

    parts: dict[Ability[Any], Callable[[], Any]] = {
        HAS_TASK: lambda: HasTask(network, heads),
        FILLS: lambda: Fills(network, folder.tokenizer.mask_id),
        JUDGES_PAIRS: lambda: JudgesPairs(network),
        ENCODES: lambda: Encodes(network, folder.tokenizer, sizes, named_layers=folder.config.layers),
        ATTENDS: lambda: network,
        SHOWS_LAYERS: lambda: network,
        TAKES_HEAD: lambda: TakesHead(sizes, folder.tokenizer, path, network, build, save_with_head),
    }
    return Opened(
        facts,
        folder.tokenizer,
        folder.config,
        folder.labels,
        folder.architecture,
        folder.carried,
        SentenceFiles(folder.pooling, folder.normalize, folder.foreign_pooling),
        folder.notes,
        {one: parts[one] for one in facts.abilities},
        folder.save,
    )


BERT = Family("bert", ("bert",), _ABOUT, _facts, _open, lines_of_bert)
