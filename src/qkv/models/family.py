"""The interface of a family of models: `Family`, the result of opening a folder (`Opened`), and abilities.

    facts = describe_model(path)              # config.json, names and shapes of tensors; no weights (models/table.py)
    opened = open_model(path)                 # models/table.py
    opened.has(FILLS)
    opened.ability(FILLS).scores(batch, places)     # an InputError that says what it can do instead, where it cannot

An ability is a key with the type of what it gives. Where every family gives the same thing, that is a dataclass of this
file, made of a network and facts about it (Encodes, Fills, PredictsNext, HasTask, TakesHead, Writes, Translates); what
families do in their own way is a protocol (Feeds, LooksUp). What look shows (ATTENDS, SHOWS_LAYERS, RECURS) it asks of
the network itself, which yields its layers: these abilities give the network.

Not here: importing a family (models/table.py does, when a folder of it is met). Describing a folder needs no torch:
here it is imported for types, and where a method computes.

Shapes: R rows, N tokens of all rows, M of them, D width, V vocabulary, E width of a table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

from qkv.errors import InputError
from qkv.models.folders.fields import SentenceFiles
from qkv.models.folders.own import collect_facts
from qkv.report.bilingual import Phrase
from qkv.text.tokenizer import Encoded, Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from qkv.data.batch import Batch
    from qkv.data.pairs.batching import Languages
    from qkv.models.encoder import WithHeads
    from qkv.search.options import GenerateConfig

_A = TypeVar("_A")
Json = Mapping[str, Any]
TASK_HEADS = ("sequence", "token", "span", "choice")
"""Heads that a task is put on with."""
MOST_SPELLED = 1 << 20
"""Spelled words that an open vocabulary keeps at least; more than one batch has."""


@dataclass(frozen=True)
class Loading:
    """How a folder is opened."""

    dtype: torch.dtype = field(default_factory=lambda: import_module("torch").float32)
    device: torch.device = field(default_factory=lambda: import_module("torch").device("cpu"))
    precision: str = "fp32"  # of `Writes` and `Translates` on a CPU (nn/cpu/precision.py)
    spelled: int | None = (
        MOST_SPELLED  # words that an open vocabulary remembers; None: all, as a fine-tuning run needs them
    )


@dataclass(frozen=True)
class EncoderSizes:
    """What tasks, their settings and the windowing of texts need to know of an encoder; from config.json alone."""

    vocabulary_size: int
    layers: int  # blocks with weights of their own, as `--transfer top:K` counts them
    width: int
    max_length: int  # tokens of a window
    pairs: bool  # reads two texts in one row
    dropout: float = 0.0  # its own, where a run does not say
    mixed_layers: int = 0  # of ELMo below: vectors of a token that a mix makes one
    attends: bool = True  # has attention_dropout; its blocks can be recomputed
    on_features: bool = False  # a plain encoder on a language model
    words: int | None = None  # predicts the next of so many words, which can be learned along with a task (GPT)


# Abilities


@dataclass(frozen=True)
class Ability(Generic[_A]):
    """A key for `opened.ability`. Abilities with the same name are equal."""

    name: str
    what: str = field(compare=False)  # a verb phrase, after "can"
    command: str = field(default="", compare=False)  # {} is the folder; "" where no verb shows it
    needs: str = field(default="", compare=False)  # what would have it


@dataclass(frozen=True)
class Encodes:
    """Computes vectors of tokens."""

    network: WithHeads
    tokenizer: Tokenizer
    sizes: EncoderSizes
    named_layers: int | None = None  # `--layer 0 … n`; None: a token has one vector
    counts_marks: bool = True  # whether special tokens count in a text's mean; only if a task trained them
    pools_first: bool = True  # the vector of the first token represents a text
    known: Tensor | None = None  # (V,) which tokens have a vector; None: all of them

    def hidden(self, batch: Batch, layer: int | None = None) -> Tensor:
        """(N, D), of the last layer or of `layer`; 0 is the embedding."""
        encoder = self.network.encoder
        return encoder.token_vectors(batch) if layer is None else encoder.token_states(batch)[layer]

    def has_vector(self, ids: Tensor) -> Tensor:
        """(N,) → (N,) whether each token has a vector, on a CPU"""
        import torch

        return torch.ones_like(ids, dtype=torch.bool) if self.known is None else self.known[ids]


@dataclass(frozen=True)
class Fills:
    """Predicts masked words."""

    network: WithHeads
    mask_id: int

    def scores(self, batch: Batch, places: Tensor) -> Tensor:
        """(M,) → (M, V)"""
        return self.network.predict("masked", self.network.encoder(**batch.inputs(), pool=False).hidden[places])


@dataclass(frozen=True)
class JudgesPairs:
    """Predicts whether one sentence follows another."""

    network: WithHeads

    def follows(self, batch: Batch) -> Tensor:
        """(R, 2) logits; 0 is IsNext"""
        pooled = self.network.encoder(**batch.inputs()).pooled
        assert pooled is not None, "a next-sentence head comes with a pooler"
        return self.network.predict("next_sentence", pooled)


@dataclass(frozen=True)
class PredictsNext:
    """Predicts the token after each token of a text from those to its left; ELMo also that before, from its right."""

    network: nn.Module
    scores: Callable[[Encoded], Mapping[str, Tensor]]  # of one row: logits (N, V), "forward" and perhaps "backward"
    begin_id: int | None  # the special token before a text, and
    end_id: int | None  # after it; None: the network reads none there
    max_length: int | None = None  # tokens of a row; None: any number


@dataclass(frozen=True)
class HasTask:
    network: WithHeads
    heads: tuple[str, ...]


class StepwiseWriter(Protocol):
    """Continues prompts token by token (search/decoding.py): a GPT, a recurrent model."""

    @property
    def start(self) -> Callable[..., Any]: ...
    @property
    def step(self) -> Callable[..., Any]: ...


@dataclass(frozen=True)
class Writes:
    writer: StepwiseWriter
    tokenizer: Tokenizer
    begin_id: int | None  # the special token before a text, and
    end_id: int | None  # after it; None: the vocabulary has none
    begins_documents: bool  # a prompt is taken as the beginning of a document
    max_length: int | None  # tokens of a text, prompt and all; None: as many as one likes
    never: Sequence[int]  # rows that are never written


@dataclass(frozen=True)
class Translates:
    network: Any  # search/decoding.py: EncoderDecoder, a module
    languages: Languages
    max_length: int  # tokens of a source, its end among them
    decoding: GenerateConfig  # what its makers decode with
    source_language: str = ""
    target_language: str = ""
    aligns: bool = True  # gives attention to read alignments from
    train_sha256: tuple[str, ...] = ()  # of the files it was trained on, where its folder says


class LooksUp(Protocol):
    """One vector per word, the same in every text."""

    def vectors(self, most: int | None = None) -> Any:
        """`WordVectors` (models/word2vec/folder.py) of the first `most` words."""
        ...


class Feeds(Protocol):
    """Can be below an untrained encoder: word2vec, nnlm, rnnlm, elmo, files of vectors."""

    @property
    def place(self) -> Path: ...
    @property
    def model_type(self) -> str: ...  # "word2vec" for files
    @property
    def width(self) -> int: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def features(self) -> Any:
        """The config of a language model that takes the place of a table; None if this is a table."""
        ...

    def weights(self) -> Mapping[str, Tensor]:
        """The weights of that language model."""
        ...

    def table(self, tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
        """The table (V, E) for a tokenizer, and (V,) which tokens have a vector; case is folded."""
        ...

    def check_tokenizer(self, given: Tokenizer, name: str) -> None:
        """Refuse another tokenizer if the vectors belong to the model's own tokens."""
        ...


# Heads


@dataclass(frozen=True)
class Head:
    """The head that a task puts on an encoder, as plain data: families do not know tasks."""

    name: str  # sequence, token, span, choice
    outputs: int
    seed: int  # for new parameters
    dropout: float | None = None  # None: the folder's own
    attention_dropout: float = 0.0
    begin: Mapping[str, Tensor] = field(default_factory=dict)  # initial weights of the head; empty: drawn
    pooling: str = "cls"  # "first" and "mean": without a pooler (tasks/texts.py)


class Headed(NamedTuple):
    network: WithHeads  # on the CPU
    fresh: frozenset[str]  # parts that were drawn: "heads.sequence", "encoder.pooler"; none of an encoder from nothing


@dataclass(frozen=True)
class Saving:
    """What is saved in addition to the network."""

    labels: tuple[str, ...] = ()
    record: Json = field(default_factory=dict)
    problem: str | None = None  # transformers' problem_type
    pooling: str = "cls"  # what the head reads; transformers has classes for "cls" alone
    normalize: bool = False


@dataclass(frozen=True)
class TakesHead:
    sizes: EncoderSizes
    tokenizer: Tokenizer
    path: Path
    network: WithHeads  # as the folder has it; on torch's meta device what was never drawn
    build: Callable[[Head], WithHeads]  # the network with one head
    save: Callable[[Path, WithHeads, Saving], Path]  # dropouts as the folder had them
    from_nothing: bool = False  # an untrained encoder: new parameters are expected
    draws_whole: bool = False  # plain encoders: all parameters are drawn, then known ones are loaded
    # prefixes of parameters that a new head does not take from the folder
    left_out: Callable[[Head], tuple[str, ...]] = lambda head: ()
    pools: bool = False  # a head of rows may read other vectors than the encoder's own (`Head.pooling`)

    def has_pooler(self, head: str) -> bool:
        """Whether the folder has the layer between the first vector of a row and this head."""
        names = [name for name in self._state() if name.startswith("encoder.pooler.")]
        return any(not name.startswith(self.left_out(Head(head, 1, 0))) for name in names)

    def has_linear_head(self, head: str) -> bool:
        """Whether all that a new head adds to the folder is one linear layer."""
        if self.draws_whole:
            return False
        import torch

        from qkv.models.encoder import SkipInit

        with torch.device("meta"), SkipInit():
            built = self.build(Head(head, 1, 0))
        return built.encoder.pooler is None or self.has_pooler(head)

    def stored_head(self, name: str) -> dict[str, Tensor]:
        """The weights of a head; {} if the folder has none."""
        return {ours: value for ours, value in self._state().items() if ours.startswith(f"heads.{name}.")}

    def with_head(self, head: Head) -> Headed:
        """The encoder with a new head, drawn by the seed."""
        import torch

        from qkv.models.encoder import SkipInit, initialise

        left_out, state = self.left_out(head), self._state()
        known = {name: state[name] for name in state if name.startswith("encoder.") and not name.startswith(left_out)}
        known |= head.begin
        # contiguous, as in training: a GPT's matrices are stored transposed
        known = {name: value.clone(memory_format=torch.contiguous_format) for name, value in known.items()}
        if self.draws_whole:
            torch.manual_seed(head.seed)
            network = self.build(head)
            missing = list(network.load_state_dict(known, strict=False).missing_keys)
        else:
            # nothing is drawn that a file is about to fill
            with torch.device("meta"), SkipInit():
                network = self.build(head)
            missing = list(network.load_state_dict(known, strict=False, assign=True).missing_keys)
            torch.manual_seed(head.seed)
            for module in network.modules():
                if any(parameter.is_meta for parameter in module.parameters(recurse=False)):
                    module.to_empty(device="cpu", recurse=False)
                    initialise(module, network.config.initial_std)
        fresh = frozenset() if self.from_nothing else frozenset(".".join(name.split(".")[:2]) for name in missing)
        if not self.from_nothing and any(one.startswith("encoder.") and "pooler" not in one for one in missing):
            raise InputError(f"{self.path} has no encoder weights {', '.join(sorted(fresh))}.")
        return Headed(network, fresh)

    def _state(self) -> dict[str, Tensor]:
        # parameters on the meta device have no values
        return {name: value for name, value in self.network.state_dict().items() if not value.is_meta}


HAS_TASK: Ability[HasTask] = Ability(
    "has_task",
    "predict",
    "qkv predict {} TEXT",
    "To make it predict: qkv finetune classify --model {} --train FILE --out RUN.",
)
WRITES: Ability[Writes] = Ability(
    "writes",
    "write on from a text",
    "qkv generate {} TEXT",
    "What writes is a GPT (gpt2, openai-gpt, or qkv pretrain gpt --data SHARDS --out RUN) or a recurrent language "
    "model (qkv pretrain rnnlm).",
)
TRANSLATES: Ability[Translates] = Ability(
    "translates",
    "translate",
    "qkv translate {} TEXT",
    "What translates is a run of qkv train translate, or the folder of an OPUS-MT model.",
)
FILLS: Ability[Fills] = Ability(
    "fills",
    "fill a blank",
    "qkv fill TEXT --model {}",
    "What fills blanks has a masked head: a BertForMaskedLM or BertForPreTraining folder, and their like.",
)
JUDGES_PAIRS: Ability[JudgesPairs] = Ability(
    "judges_pairs",
    "judge whether one sentence follows another",
    "qkv next A B --model {}",
    "That takes a BertForPreTraining or BertForNextSentencePrediction folder.",
)
LOOKS_UP: Ability[LooksUp] = Ability(
    "looks_up",
    "name words that are alike",
    "qkv similar WORD --model {}",
    "Give word vectors: the folder of a word2vec model, or a file .txt, .vec or .bin.",
)
ENCODES: Ability[Encodes] = Ability(
    "encodes",
    "embed texts and their tokens",
    "qkv embed TEXT --model {}",
    "Models that embed texts: BERT and its relatives, GPT, ELMo, recurrent language models, word vectors.",
)
ATTENDS: Ability[nn.Module] = Ability(
    "attends",
    "show attention",
    "qkv attention TEXT --model {}",
    "Models with attention: BERT and its relatives, GPT, and translators (qkv look).",
)
TAKES_HEAD: Ability[TakesHead] = Ability(
    "takes_head",
    "be fine-tuned",
    "qkv finetune TASK --model {} --train FILE --out RUN",
    "Models that can be fine-tuned: BERT and its relatives, GPT, a run of qkv finetune, or a new encoder "
    "(--model scratch:lstm).",
)
FEEDS: Ability[Feeds] = Ability("feeds", "be fine-tuned", "qkv finetune TASK --model {} --train FILE --out RUN")
"""It takes no head itself; an untrained encoder is put on it (`scratch:lookup --embeddings`)."""
SHOWS_LAYERS: Ability[nn.Module] = Ability("shows_layers", "show the vectors of its layers", "qkv look {}")
RECURS: Ability[nn.Module] = Ability("recurs", "show states and gates", "qkv look {}")
PREDICTS_NEXT: Ability[PredictsNext] = Ability("predicts_next", "predict the next word", "qkv look {}")
NAMED_ABILITIES: tuple[Ability[Any], ...] = (
    *(HAS_TASK, WRITES, TRANSLATES, FILLS, JUDGES_PAIRS, LOOKS_UP, ENCODES, ATTENDS, TAKES_HEAD, FEEDS),
)
"""The abilities that messages list, in this order."""


# Folders


@dataclass(frozen=True)
class Facts:
    """What a folder holds, without its weights: names and shapes of tensors are read, values are not."""

    family: str
    model_type: str
    path: Path
    about: Phrase  # "a BERT", "word vectors", … after "holds"
    view_kind: str  # what look's frames and page call it: bert gpt reader nnlm table rnnlm elmo transformer seq2seq
    abilities: tuple[Ability[Any], ...]
    document: dict[str, Any]  # `qkv info --json`, without the terms of use
    heads: tuple[str, ...] = ()
    record: Json = field(default_factory=dict)  # of qkv.json
    notes: tuple[str, ...] = ()
    stated: Mapping[str, int | str] = field(default_factory=dict)  # of `shown`, what config.json says in other words
    sizes: EncoderSizes | None = None  # None: no task can be put on it, or not before an encoder is put on it

    @cached_property
    def shown(self) -> dict[str, int | str]:
        """The sizes that look shows: layers, heads, width, parameters, …"""
        return collect_facts(self.path, self.view_kind) | dict(self.stated)


class AddedTokens(NamedTuple):
    """New tokens of a model, and what else their list had."""

    tokenizer: Tokenizer
    tokens: list[str]
    known: list[str]  # that the model had
    repeated: list[str]
    blank: list[str]  # of `tokens`, those that begin as [UNK]


@dataclass
class Opened:
    """The result of opening a folder. Parts are built on first use."""

    facts: Facts
    tokenizer: Any  # a Tokenizer; of what translates the source's, which may be of another kind (`Coder`)
    config: Any = None  # the family's own config dataclass; read by the family, never by a caller above models/
    labels: tuple[str, ...] = ()
    architecture: str = ""  # what `Model.architecture` says
    carried: Json = field(default_factory=dict)
    sentence: SentenceFiles = field(default_factory=SentenceFiles)  # how the folder pools, where it says
    notes: tuple[str, ...] = ()  # what the folder says and qkv does not do
    parts: Mapping[Ability[Any], Callable[[], Any]] = field(default_factory=dict)
    write: Callable[[Path, str | None], Path] | None = None  # the same model in another folder, or as another class
    extend: Callable[[Path], AddedTokens] | None = None  # with the tokens of a file
    shorten: Callable[[int], None] | None = None  # to its first layers
    built: dict[Ability[Any], Any] = field(default_factory=dict, repr=False)

    @property
    def path(self) -> Path:
        return self.facts.path

    @property
    def record(self) -> Json:
        return self.facts.record

    def has(self, kind: Ability[Any]) -> bool:
        return kind in self.parts

    def ability(self, kind: Ability[_A]) -> _A:
        """The part that provides an ability; an InputError by `explain_missing` if the model lacks it."""
        if kind not in self.parts:
            raise InputError(explain_missing(self.facts, kind))
        if kind not in self.built:
            self.built[kind] = self.parts[kind]()
        return cast(_A, self.built[kind])

    def __getstate__(self) -> dict[str, Any]:
        """A copy keeps the parts built so far and does not read the folder again."""
        return vars(self) | {"parts": {kind: partial(_itself, part) for kind, part in self.built.items()}}

    def add_tokens(self, file: Path) -> AddedTokens:
        """Extend the vocabulary and the network by the tokens of a file (models/bert/new_tokens.py)."""
        if self.extend is None:
            raise InputError(
                f"Tokens can be added to BERT and its relatives with a WordPiece vocabulary, and {self.path} holds "
                f"{self.facts.about.en}."
            )
        added = self.extend(file)
        self.tokenizer = added.tokenizer
        return added

    def keep_layers(self, layers: int) -> None:
        """Drop all layers but the first ones."""
        if self.shorten is None:
            raise InputError(
                f"Layers are dropped of BERT and its relatives, and {self.path} holds {self.facts.about.en}."
            )
        self.shorten(layers)

    def save(self, target: str | os.PathLike[str], architecture: str | None = None) -> Path:
        """Write the same model to another folder, atomically; with `architecture`, only the parts of that class."""
        if self.write is None:
            vectors = (
                f", or write its vectors to a file: qkv convert {self.path} vectors.txt" if self.has(LOOKS_UP) else ""
            )
            kind = self.architecture or self.facts.model_type
            raise InputError(f"{self.path} is a {kind} as it was trained: copy its folder{vectors}.")
        return self.write(Path(os.path.expanduser(target)), architecture)


def _itself(part: _A) -> _A:
    return part


@dataclass(frozen=True)
class Family(Generic[_A]):
    """How a folder is described, from headers and without torch. models/table.py says what opens it."""

    name: str  # the key of the table
    model_types: tuple[str, ...]  # of config.json
    about: Phrase  # for cards and messages
    plan: Callable[[Path, bool], _A]  # what a folder holds, checked; True: tensors that are stored twice are compared
    facts: Callable[[_A], Facts]
    info: Callable[[Json], list[tuple[str, str]]]  # document | terms → the lines of `qkv info`

    def describe(self, path: Path) -> Facts:
        return self.facts(self.plan(path, False))


def explain_missing(facts: Facts, wanted: Ability[Any]) -> str:
    """The message for a missing ability: what cannot be done, what the folder holds, what it can do instead.

    >>> facts = Facts("nnlm", "nnlm", Path("here"), Phrase("an NNLM", "NNLM"), "nnlm", (LOOKS_UP,), {})
    >>> explain_missing(facts, FILLS).split(". ")[:2]
    ['here cannot fill a blank', 'It holds an NNLM']
    """
    # of a text and its translation, which `qkv attention` does not read, look shows it
    looked = {ATTENDS: SHOWS_LAYERS.command} if TRANSLATES in facts.abilities else {}
    can = [
        f"{one.what} ({command.format(facts.path)})" if (command := looked.get(one, one.command)) else one.what
        for one in NAMED_ABILITIES
        if one in facts.abilities
    ]
    kind = facts.document.get("architecture")  # a class of transformers
    needs = wanted.needs.format(facts.path)
    if wanted == HAS_TASK and not {TAKES_HEAD, FEEDS} & set(facts.abilities):
        needs = "What predicts is a run of qkv finetune."  # not of this folder, which cannot be fine-tuned
    said = (
        f"{facts.path} cannot {wanted.what}.",
        f"It holds {facts.about.en}{f' ({kind})' if kind else ''}.",
        f"It can {', '.join(can)}." if can else "",
        needs,
    )
    return " ".join(filter(None, said))
