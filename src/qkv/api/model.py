"""`qkv.load` and `Model`: fill blanks, embed texts, show attention, predict.

A `Model` keeps no state between calls, so several threads may use one. Layers and heads are counted from 0, as in the
names of the weights and in transformers.

Shapes: N tokens, D width, H heads, T tokens of one row, V vocabulary.
"""

import copy
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.api.embedder import (
    Blank,
    BlankCandidate,
    Embedder,
    Embeddings,
    NextSentence,
    TokenVectors,
    check_texts,
    describe_empty_text,
    html_table,
    is_missing,
    join_embeddings,
)
from qkv.api.predict import (
    Predictions,
    fill_gaps,
    frame_inputs,
    is_frame,
    is_one_input,
    make_examples,
    remembered_columns,
)
from qkv.data.batch import Batch, Watch
from qkv.data.labelled.examples import Example
from qkv.errors import InputError, did_you_mean
from qkv.models.encoder import WithHeads
from qkv.models.family import (
    ATTENDS,
    ENCODES,
    FEEDS,
    FILLS,
    HAS_TASK,
    JUDGES_PAIRS,
    TAKES_HEAD,
    TRANSLATES,
    Ability,
    Encodes,
    Loading,
    Opened,
)
from qkv.models.folders.hub import DEFAULT_MODEL, locate
from qkv.models.table import open_model
from qkv.nn.cpu.encoder import choose_encoder_precision, use_engines
from qkv.nn.layers import attention_records
from qkv.report.attention import AttentionMap, Token
from qkv.tasks.predictor import Solver, add_unknown, make_solver
from qkv.text.tokenizer import Encoded, Tokenizer
from qkv.text.unknown import UnknownCounter, count_unknown
from qkv.train.device import device_named


def show_tokens(encoded: Encoded, texts: Sequence[str], special_ids: Collection[int]) -> tuple[Token, ...]:
    """Each token with the characters that it covers in the text of its segment.

    Special is what was added around a text: a [MASK] that somebody wrote, or a word that became [UNK], is text.
    """
    rows = zip(encoded.ids, encoded.tokens, encoded.segments, encoded.offsets, strict=True)
    return tuple(
        Token(token, texts[segment][start:end], start, end, segment, special=number in special_ids and start == end)
        for number, token, segment, (start, end) in rows
    )


def strip_unlearned(encoded: Encoded, tokenizer: Tokenizer) -> Encoded:
    """A text for a GPT without a task: without the tokens of tasks, which are untrained; the start token stays if it is
    the model's own."""
    first = 1 if encoded.ids[0] in tokenizer.added else 0
    kept = slice(first, -1)
    return Encoded(encoded.ids[kept], encoded.segments[kept], encoded.offsets[kept], encoded.tokens[kept])


HUB_CACHE = re.compile(r"models--(?P<name>[^/]+)/snapshots/[^/]+")
_SAID = (("layers", "layers"), ("width", "wide"), ("vocabulary", "tokens"), ("parameters", "parameters"))
_ASKED: tuple[Ability[Any], ...] = (HAS_TASK, FILLS, JUDGES_PAIRS, ATTENDS)


class MaskedText(NamedTuple):
    """A text with blanks, as tokens, and where they are."""

    encoded: Encoded
    places: list[int]


class RankedTokens(NamedTuple):
    """Candidates of blanks, most probable first; (blanks, k) each."""

    tokens: Tensor
    probabilities: Tensor


class Model:
    """Made by `qkv.load`."""

    def __init__(
        self, folder: Opened, device: torch.device, threads: int | None = None, precision: str = "fp32"
    ) -> None:
        self._opened = folder
        self._network = self._encodes.network.to(device).eval()
        self._precision = self._use_precision(precision, device)
        self._device = device
        self._threads = threads
        for kind in _ASKED:  # a copy goes without the folder
            if folder.has(kind):
                folder.ability(kind)

    def __repr__(self) -> str:
        return f"<qkv.Model {self.name}: {', '.join(self._facts())}, on {self._device}>"

    def _repr_html_(self) -> str:
        """For notebooks: what it is."""
        return html_table((), [[one] for one in (*self._facts(), f"on {self._device}")], f"qkv.Model {self.name}")

    def _facts(self) -> list[str]:
        facts = self._opened.facts
        sizes = [f"{facts.shown[name]:,} {what}" for name, what in _SAID if isinstance(facts.shown.get(name), int)]
        labels = [f"labels {', '.join(self.labels[:5])}{' …' if len(self.labels) > 5 else ''}"] if self.labels else []
        return [self.architecture or facts.model_type, *sizes, *labels]

    @property
    def opened(self) -> Opened:
        """The folder with what it can do (models/family.py)."""
        return self._opened

    @property
    def _encodes(self) -> Encodes:
        return self._opened.ability(ENCODES)

    @property
    def network(self) -> WithHeads:
        return self._network

    @property
    def tokenizer(self) -> Tokenizer:
        return self._encodes.tokenizer

    @property
    def counts_special_tokens(self) -> bool:
        """Whether `n_tokens` of an embedded text includes [CLS] and [SEP]: they count where a task trained them."""
        return self._encodes.counts_marks

    @property
    def config(self) -> Any:
        """The config of its encoder."""
        return self._network.config

    @property
    def precision(self) -> str:
        """What matrix products on a CPU are computed in: "fp32", "bf16" or "int8"."""
        return self._precision

    @property
    def labels(self) -> tuple[str, ...]:
        return self._opened.labels

    @property
    def architecture(self) -> str:
        return self._opened.architecture

    @property
    def record(self) -> Mapping[str, Any]:
        """The record of the training; empty for folders of others."""
        return self._opened.record

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about the folder, such as settings that qkv does not support; usually empty."""
        return self._opened.notes

    @cached_property
    def name(self) -> str:
        """The name for messages and captions: that of its folder or run, or owner/name of the hub."""
        path = self._opened.path.resolve()
        if path.name == "model" and (path.parent / "config.toml").is_file():
            return path.parent.name
        if cached := HUB_CACHE.fullmatch("/".join(path.parts[-3:])):
            return cached["name"].replace("--", "/")
        return path.name

    def with_precision(self, precision: str) -> "Model":
        """The same model, with the same weights in memory, in another precision."""
        tokenizer = self._opened.tokenizer
        shared = {id(one): one for one in (*self._network.parameters(), tokenizer)}
        return Model(copy.deepcopy(self._opened, shared), self._device, self._threads, precision)

    def _use_precision(self, precision: str, device: torch.device) -> str:
        """Have packed rows computed in this precision on a CPU → its name, for "auto" of the one chosen."""
        chosen = choose_encoder_precision(precision)
        if device.type != "cpu":
            if precision in ("bf16", "int8"):
                raise InputError(f"precision {precision} is for a CPU: on {device} give dtype (--dtype) bfloat16.")
            return "fp32"
        encoder = self._network.encoder
        is_whole = all(weight.dtype == torch.float32 for weight in encoder.parameters())
        is_causal = any(kind.is_causal for kind in encoder.attentions)
        if is_whole and not is_causal and use_engines(encoder.blocks, chosen):
            return chosen
        if precision in ("bf16", "int8"):
            if not is_whole:
                raise InputError(f"precision {precision} is made from float32 weights: leave dtype (--dtype) out.")
            raise InputError(
                f"precision {precision} is for BERT and its relatives, and {self.name} is a {self.architecture}. Use "
                "fp32."
            )
        return "fp32"

    def save(self, folder: str | Path, architecture: str | None = None) -> Path:
        """Write a Hugging Face folder that transformers and `qkv.load` read, atomically.

        Without `architecture` every part of the model is written; with one, exactly the parts of that class.
        """
        return self._opened.save(folder, architecture)

    @torch.inference_mode()
    def fill(self, text: str, k: int = 5) -> list[Blank]:
        """The k most likely tokens for every [MASK] in the text; each blank is predicted with the others masked.

        Only the masked positions go through the head. The text must fit the model in one piece: a blank filled from
        part of its context would be another answer.
        """
        if k < 1:
            raise InputError(f"k must be 1 or more, not {k}.")
        masked = self.prepare_fill(text)
        self._use_threads()
        places = torch.tensor(masked.places, device=self._device)
        scores = self._opened.ability(FILLS).scores(self._batch(masked.encoded), places)  # (blanks, V)
        return self.finish_fill(masked, self.rank_tokens(scores, k))

    # `fill` in steps, for callers that run batches of several texts (qkv.serve).

    def prepare_fill(self, text: str) -> "MaskedText":
        """Tokenize a text and find its blanks."""
        fills = self._opened.ability(FILLS)
        encoded = self._in_one_window(text, None, "Filling a blank")
        places = [place for place, token in enumerate(encoded.ids) if token == fills.mask_id]
        if not places:
            raise InputError(_no_mask(text, self.tokenizer.token(fills.mask_id)))
        return MaskedText(encoded, places)

    def find_targets(self, words: Sequence[str]) -> list[int]:
        """The tokens that blanks are to be filled with, as they are written in running text."""
        vocabulary, found = self.tokenizer.vocabulary, []
        for word in words:
            written = word.lower() if self.tokenizer.lowercase else word
            number = vocabulary.get(written, vocabulary.get(f"##{written}"))
            if number is None:
                raise InputError(
                    f"'{word}' is not a token of {self.name}, so it cannot fill a blank: leave it out of the targets."
                )
            found.append(number)
        return found

    @torch.inference_mode()
    def rank_tokens(self, scores: Tensor, k: int, targets: Sequence[int] | None = None) -> "RankedTokens":
        """The k most likely tokens of each blank from its scores (blanks, V); with `targets`, of these tokens, with
        their probability among all."""
        probabilities = scores.float().softmax(-1)
        # a table padded to a round size has rows that stand for no token
        numbers = list(self.tokenizer.vocabulary.values()) if targets is None else list(dict.fromkeys(targets))
        tokens = torch.tensor(numbers, device=scores.device)
        best = probabilities[:, tokens].topk(min(k, len(tokens)))
        return RankedTokens(tokens[best.indices].cpu(), best.values.cpu())

    def finish_fill(self, masked: "MaskedText", ranked: "RankedTokens") -> list[Blank]:
        """The blanks of a text with their candidates."""
        encoded, where = masked
        return [
            Blank(
                start=encoded.offsets[place][0],
                end=encoded.offsets[place][1],
                candidates=tuple(
                    BlankCandidate(self.tokenizer.token(token), self._running_text(token), probability)
                    for token, probability in zip(found, values, strict=True)
                ),
                n_tokens=len(encoded.ids),
                n_unknown=count_unknown(self.tokenizer, encoded.ids),
            )
            for place, found, values in zip(where, ranked.tokens.tolist(), ranked.probabilities.tolist(), strict=True)
        ]

    def embed(
        self,
        texts: str | Iterable[str | None],
        pooling: str | None = None,
        normalize: bool | None = None,
        tokens_per_batch: int | None = None,
        layer: int | None = None,
    ) -> Embeddings:
        """One vector per text, in order.

        pooling "mean" averages every token of a text, [CLS] and [SEP] included, as sentence-transformers does; "cls"
        takes the vector at [CLS]. None is what the folder says, else the mean; a folder that says something else is an
        error, because another pooling gives other vectors. normalize None is what the folder says.

        A text longer than the model is read in overlapping windows, and nothing of it is dropped: the mean counts every
        token once, in the window where it lies further from an edge; with "cls" a window weighs as much as the tokens
        counted in it. Vectors are float32 whatever the model computes in; messages count texts from 1.

        layer None is the last one; 1, 2, … are the layers of a BERT or an ELMo, and 0 are the embeddings.

        A model without a task head gives the mean of the text's own tokens, without [CLS] and [SEP]: ELMo of its layers
        in equal shares; word2vec of the words that have a vector, and `n_without_vector` counts the others.

        Of a DataFrame, the texts are in the column with a usual name ("text", …). Of several texts, one that is missing
        or empty (None, NaN, "") or without such a word has a vector of NaN, and n_tokens 0; a single one is an error.
        """
        given: Iterable[Any] = [texts] if isinstance(texts, str) else texts
        if is_frame(texts):  # whose items are its columns
            given = [row and row["text"] for row in frame_inputs(texts, "classify", {})[0]]
        gaps: list[int] = []
        if not isinstance(texts, str):
            given = self._present(given, gaps)
        found = self.embed_stream(given, pooling, normalize, tokens_per_batch, layer)
        return join_embeddings(found, self.name, self.config.width, gaps)

    def _present(self, texts: Iterable[Any], gaps: list[int]) -> Iterator[Any]:
        """Texts that have a vector; `gaps` are the indices of the others."""
        embedder = self._embedder()
        for index, text in enumerate(texts):
            if not is_missing(text):
                check_texts([text], index)
                if embedder.lacks(text) is None:
                    yield text
                    continue
            gaps.append(index)

    def embed_stream(
        self,
        texts: Iterable[str],
        pooling: str | None = None,
        normalize: bool | None = None,
        tokens_per_batch: int | None = None,
        layer: int | None = None,
        watch: Watch | None = None,
    ) -> Iterator[Embeddings]:
        """`embed` for any number of texts in bounded memory: yields parts of a few thousand texts, in order. `watch` is
        called while a long text is read, with the number of its windows read so far and in all."""
        return self._embedder(layer, watch).parts(texts, pooling, normalize, tokens_per_batch)

    def embed_tokens(
        self,
        texts: str | Iterable[str],
        normalize: bool = False,
        tokens_per_batch: int | None = None,
        layer: int | None = None,
    ) -> list[TokenVectors]:
        """One vector per token, of the same layer as in `embed`, without [CLS] and [SEP].

        A long text is read in overlapping windows, and a token's vector is of the one where it lies further from an
        edge.

        >>> bitten, written = model.embed_tokens(["He got bit by Python", "I write Python"])  # doctest: +SKIP
        >>> bitten.tokens[-1], bitten.vectors[-1] @ written.vectors[-1]                       # doctest: +SKIP
        """
        given = [texts] if isinstance(texts, str) else texts
        return [one for part in self.embed_tokens_stream(given, normalize, tokens_per_batch, layer) for one in part]

    def embed_tokens_stream(
        self,
        texts: Iterable[str],
        normalize: bool = False,
        tokens_per_batch: int | None = None,
        layer: int | None = None,
    ) -> Iterator[list[TokenVectors]]:
        """`embed_tokens` for any number of texts in bounded memory."""
        return self._embedder(layer).token_parts(texts, normalize, tokens_per_batch)

    def lacks(self, text: str) -> str | None:
        """Why `embed` would refuse a text, such as "is empty"; None if it would not."""
        return self._embedder().lacks(text)

    @cached_property
    def embedder(self) -> Embedder:
        """What `embed` and `embed_tokens` compute vectors of the last layer with."""
        return self._embedder()

    def _embedder(self, layer: int | None = None, watch: Watch | None = None) -> Embedder:
        self._use_threads()
        return Embedder(self._opened, self.name, self._device, self._hidden, layer, watch)

    @torch.inference_mode()
    def attention(
        self,
        text: str,
        pair: str | None = None,
        layers: int | Iterable[int] | None = None,
        heads: int | Iterable[int] | None = None,
    ) -> AttentionMap:
        """The attention weights of the given layers and heads (all, if None), one byte each.

        Layers and heads are counted from 0. Only the layers asked for take the explicit path. A GPT looks to the left.
        """
        self._opened.ability(ATTENDS)
        kind = self._network.encoder.attentions[0]
        chosen_layers = _chosen("layer", layers, kind.layers)
        chosen_heads = _chosen("head", heads, kind.heads)
        encoded = self._in_one_window(text, pair, "Attention")
        self._use_threads()
        records = attention_records(kind, self._network.encoder.layers(self._batch(encoded)))
        weights = {
            number: record.weights()[list(chosen_heads)]
            for number, record in enumerate(islice(records, max(chosen_layers) + 1))
            if number in chosen_layers
        }
        stacked = torch.stack([weights[layer] for layer in chosen_layers])  # (layers, heads, T, T)
        texts = (text,) if pair is None else (text, pair)
        tokens = show_tokens(encoded, texts, self.tokenizer.special_ids)
        return AttentionMap(
            name=kind.name if pair is None or kind.is_causal else "pair",
            attn=(stacked.float() * 255).round().to(torch.uint8).cpu().numpy(),
            layers=chosen_layers,
            heads=chosen_heads,
            left=tokens,
            right=tokens,
            texts=texts,
            model=self.name,
        )

    @torch.inference_mode()
    def next_sentence(self, first: str, second: str) -> NextSentence:
        """The probability that `second` follows `first` in running text (BERT §3.1, task 2)."""
        judges = self._opened.ability(JUDGES_PAIRS)
        encoded = self._in_one_window(first, second, "Judging a pair")
        self._use_threads()
        is_next, not_next = judges.follows(self._batch(encoded))[0].float().softmax(-1).tolist()
        unknown = count_unknown(self.tokenizer, encoded.ids)
        return NextSentence(is_next, not_next, n_tokens=len(encoded.ids), n_unknown=unknown)

    def predict(self, inputs: Any) -> Predictions:
        """Return the predictions of a fine-tuned model, one result per input, in order.

        A classifier reads texts, or pairs; a tagger texts; a model that answers questions (question, passage); one for
        multiple choice tables with text, question and choices. A single input may be given without a list: a tuple of
        two texts is one pair for a model of pairs, and a list is always several inputs. Long texts are read in
        overlapping windows; every result says n_tokens, n_windows and n_unknown.

        A Series of pandas is a list of texts; of a DataFrame the columns are those named in training, or those with
        usual names ("text", "question", …), and `columns` of the result says which.

        Of several inputs, one without a text (None, NaN, "") has the result None. A single one is an error.
        """
        task, index = self.solver.task, getattr(inputs, "index", None)
        columns: dict[str, str] = {}
        if is_frame(inputs):
            inputs, columns = frame_inputs(inputs, task.name, remembered_columns(self.record))
        if is_one_input(inputs, task.example, task.paired):
            return Predictions((result for _, part in self.predict_stream([inputs]) for result in part), columns)
        gaps: list[int] = []
        examples = make_examples(task.example, inputs, self.tokenizer, gaps)
        found = [result for _, part in self.answer_stream(examples) for result in part]
        return Predictions(fill_gaps(found, gaps), columns, None if callable(index) else index)

    def predict_stream(self, inputs: Iterable[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
        """`predict` for any number of inputs in bounded memory: examples and results, a few thousand at a time."""
        return self.answer_stream(make_examples(self.solver.task.example, inputs, self.tokenizer))

    def answer_stream(
        self, examples: Iterable[Example], needs_labels: bool = False, watch: Watch | None = None
    ) -> Iterator[tuple[list[Any], list[Any]]]:
        """`predict_stream` for examples with their labels, as evaluations need them; `watch` as in `embed_stream`."""
        parts = self.solver.stream(examples, needs_labels, watch)
        while True:
            self._use_threads()  # another model may have been asked since the last part
            if (part := next(parts, None)) is None:
                return
            yield part

    def watch_unknown(
        self, parts: Iterable[tuple[list[Any], list[Any]]]
    ) -> tuple[Iterator[tuple[list[Any], list[Any]]], UnknownCounter]:
        """The parts of `predict_stream` or `answer_stream`, and what counts their unknown tokens as they go by."""
        counter = UnknownCounter(self.tokenizer)

        def watched() -> Iterator[tuple[list[Any], list[Any]]]:
            for examples, results in parts:
                for example, result in zip(examples, results, strict=True):
                    add_unknown(counter, self.tokenizer, example, result.n_unknown, result.n_tokens)
                yield examples, results

        return watched(), counter

    @cached_property
    def solver(self) -> Solver:
        """The task that the model was fine-tuned for; an InputError with advice if there is none."""
        return make_solver(self._opened, self._device)

    def _hidden(self, batch: Batch, layer: int | None) -> Tensor:
        self._use_threads()
        return self._encodes.hidden(batch, layer)

    def _use_threads(self) -> None:
        if self._threads is not None and torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)

    def _batch(self, encoded: Encoded) -> Batch:
        return Batch.of([encoded.ids], segments=[encoded.segments]).to(self._device)

    def _in_one_window(self, text: str, pair: str | None, what: str) -> Encoded:
        """Encode a text that must fit one window; if it is too long, the error says by how much."""
        check_texts([text] if pair is None else [text, pair], 0)
        if pair is not None and not self._encodes.sizes.pairs:
            raise InputError(
                f"{self.name} reads single texts: it has one segment (type_vocab_size 1), and a pair needs 2."
            )
        if pair is not None and not self._encodes.counts_marks:
            raise InputError(f"{self.name} is a GPT that no task was put on: it reads single texts, and no pairs.")
        encoded = self.tokenizer.encode(text, pair)
        if not self._encodes.counts_marks:
            encoded = strip_unlearned(encoded, self.tokenizer)
        for segment, name in enumerate(("The text",) if pair is None else ("The first text", "The second text")):
            if not any(a < b for (a, b), s in zip(encoded.offsets, encoded.segments, strict=True) if s == segment):
                raise InputError(describe_empty_text(name))
        if len(encoded.ids) > (longest := self._encodes.sizes.max_length):
            raise InputError(
                f"The text has {len(encoded.ids)} tokens and this model reads {longest} at once. "
                f"{what} needs it in one piece: shorten it around the part you are asking about."
            )
        return encoded

    def _running_text(self, token: int) -> str:
        spelling = self.tokenizer.token(token)
        return spelling.removeprefix("##") if self.tokenizer.kind == "wordpiece" else spelling


def _chosen(what: str, wanted: int | Iterable[int] | None, number: int) -> tuple[int, ...]:
    if wanted is None:
        return tuple(range(number))
    chosen = (wanted,) if isinstance(wanted, int) else tuple(wanted)
    if not chosen:
        raise InputError(f"No {what} was asked for; this model has {what}s 0 … {number - 1}.")
    for one in chosen:
        if not 0 <= one < number:
            raise InputError(f"There is no {what} {one}: this model has {what}s 0 … {number - 1}, counted from 0.")
    return chosen


def _no_mask(text: str, mask: str) -> str:
    """The message for a text without a blank, which explains how a blank is written."""
    example = (
        f"Write {mask} where the word is missing, for example: 巴黎是{mask}国的首都 / Paris is the {mask} of France."
    )
    for spelling in (mask.lower(), "<mask>", "【MASK】", "[Mask]", "____", "___"):
        if spelling in text:
            return f"The text has '{spelling}', which is not a blank for this model. {example}"
    return f"The text has no blank to fill. {example}"


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    name: str | Path = DEFAULT_MODEL,
    device: str = "auto",
    threads: int | None = None,
    dtype: str = "float32",
    precision: str = "fp32",
) -> Model:
    """Load a Hugging Face folder, a run of qkv, a model that comes with qkv, or `hf:owner/name` from the hub.

    Without a name it is qkv-mini, a small Chinese and English BERT that is part of the package. The network is used
    only for a hub id. `threads` is the number of CPU threads of torch, which has one such number for the whole
    process: the model called last sets it.

    `dtype` is what the model computes in: float32, bfloat16 or float16. With half the bits a GPU takes packed rows
    through one variable-length kernel (nn/multihead.py), and vectors change in their third digit; they are returned as
    float32 in any case.

    `precision` is what BERT and its relatives compute matrix products in on a CPU: fp32, bf16 (CPUs with AVX512-BF16 or
    AMX), int8, or auto (bf16 where the CPU has it, else fp32). Weights stay in float32; `with_precision` gives the same
    model in another one, and docs/sentences.md says what each costs in quality.

    A word2vec, NNLM, recurrent language model, ELMo or GPT without a task head embeds texts and tokens (`embed`,
    `embed_tokens`); other methods raise an error that says so.

    >>> model = load()                                                            # doctest: +SKIP
    >>> model.fill("巴黎是[MASK]国的首都。")[0].best.text                          # doctest: +SKIP
    '法'
    >>> model.embed(["a first text", "a second text"]).similarity()               # doctest: +SKIP
    """
    return load_for(ENCODES, name, device, threads, dtype, precision)


def load_for(
    wanted: Ability[Any],
    name: str | Path,
    device: str = "auto",
    threads: int | None = None,
    dtype: str = "float32",
    precision: str = "fp32",
) -> Model:
    """`load`, but a folder without the ability `wanted` is refused with a message about it."""
    if threads is not None and threads < 1:
        raise InputError(f"threads must be 1 or more, not {threads}.")
    if dtype not in DTYPES:
        raise InputError(f"Unknown dtype '{dtype}'.{did_you_mean(dtype, DTYPES)} Known: {', '.join(DTYPES)}.")
    place = device_named(device)
    opened = open_model(locate(name), Loading(DTYPES[dtype], place))
    if wanted == HAS_TASK and not opened.has(HAS_TASK) and (opened.has(TAKES_HEAD) or opened.has(FEEDS)):
        raise InputError(
            f"{name} is not fine-tuned, so it cannot predict: "
            f"qkv finetune classify --model {name} --train FILE --out RUN."
        )
    if wanted == ATTENDS and opened.has(TRANSLATES):
        raise InputError(
            f"{name} translates: its attention is between a text and its translation, which qkv look {name} shows."
        )
    opened.ability(wanted)
    return Model(opened, place, threads, precision)
