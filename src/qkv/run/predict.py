"""A loaded model and what it can be asked: fill a blank, embed texts, show its attention, judge a pair.

A `Model` keeps nothing between calls, so several threads may use one. Layers and heads are counted from 0, as in the
weights' own names and in transformers.

Shapes: E texts, R rows (windows of texts), N tokens, D width, H heads, T tokens of one row, V vocabulary.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from qkv.batch import Batch
from qkv.data.batching import Rows, chunks, plan
from qkv.data.examples import Example
from qkv.errors import InputError, did_you_mean
from qkv.interop.readers import Opened
from qkv.models.bert import BertConfig
from qkv.models.encoder import Encoding
from qkv.models.text_readers import ReaderConfig
from qkv.report.attention_map import AttentionMap, Token
from qkv.run.inputs import examples_of, is_one_pair
from qkv.run.results import Blank, Candidate, Embeddings, NextSentence, normalized
from qkv.run.solver import Solver, solver_of
from qkv.tokenizer import Encoded, Tokenizer

TOKENS_PER_BATCH = {"cpu": 4096}
TOKENS_PER_BATCH_ELSEWHERE = 32_768
"""A CPU is quickest while a layer's activations stay in its cache; a GPU wants enough rows to be busy."""
TEXTS_PER_CHUNK, CHARACTERS_PER_CHUNK = 2048, 500_000
"""What is tokenised, sorted and held at a time: enough that sorting by length pays, little enough to stream. The second
bound is for long texts, of which the first alone would hold gigabytes."""

ABILITIES = {"masked": "fill a blank", "next_sentence": "judge whether one sentence follows another"}
HUB_CACHE = re.compile(r"models--(?P<name>[^/]+)/snapshots/[^/]+")
NEEDS = {
    "masked": "a BertForMaskedLM or BertForPreTraining folder",
    "next_sentence": "a BertForPreTraining or BertForNextSentencePrediction folder",
}


def _mean(hidden: Tensor, batch: Batch, counted: tuple[Tensor, Tensor]) -> Tensor:
    """(N, D) → (R, D), the mean of each row's counted tokens in one pass over the packed batch."""
    places, offsets = (part.to(hidden.device) for part in counted)
    return functional.embedding_bag(places, hidden, offsets, mode="mean")


def _cls(hidden: Tensor, batch: Batch, counted: tuple[Tensor, Tensor]) -> Tensor:
    """(N, D) → (R, D), what stands at [CLS]."""
    return hidden[batch.first]


POOLINGS: dict[str, Callable[[Tensor, Batch, tuple[Tensor, Tensor]], Tensor]] = {"mean": _mean, "cls": _cls}


class Model:
    """Made by `qkv.load`."""

    def __init__(self, folder: Opened, device: torch.device, threads: int | None = None) -> None:
        self._folder = folder
        self._network = folder.model.to(device).eval()
        self._device = device
        self._threads = threads

    @property
    def tokenizer(self) -> Tokenizer:
        return self._folder.tokenizer

    @property
    def config(self) -> BertConfig | ReaderConfig:
        return self._folder.config

    @property
    def labels(self) -> tuple[str, ...]:
        return self._folder.labels

    @property
    def architecture(self) -> str:
        return self._folder.architecture

    @property
    def record(self) -> dict[str, Any]:
        """What qkv wrote down when it trained the model; empty for folders of others."""
        return self._folder.record

    @property
    def notes(self) -> tuple[str, ...]:
        """What the folder says and qkv does not do, or what is odd about it; empty for most folders."""
        return self._folder.notes

    @property
    def name(self) -> str:
        """What to call it in a message or under a picture: its folder's or its run's name, or owner/name of the hub."""
        path = self._folder.path.resolve()
        if path.name == "model" and (path.parent / "config.toml").is_file():
            return path.parent.name
        if cached := HUB_CACHE.fullmatch("/".join(path.parts[-3:])):
            return cached["name"].replace("--", "/")
        return path.name

    def save(self, folder: str | Path, architecture: str | None = None) -> Path:
        """Write a Hugging Face folder that transformers and `qkv.load` read, whole or not at all.

        Without `architecture` every part of the model is written; with one, exactly the parts of that class.
        """
        return self._folder.save(folder, architecture)

    @torch.inference_mode()
    def fill(self, text: str, k: int = 5) -> list[Blank]:
        """The k likeliest tokens for every [MASK] in the text, each blank seen together with all the others.

        Only the masked positions go through the head. The text must fit the model in one piece: a blank filled from
        part of its context would be another answer.
        """
        self._require("masked")
        if k < 1:
            raise InputError(f"k must be 1 or more, not {k}.")
        encoded = self._in_one_window(text, None, "Filling a blank")
        where = [place for place, token in enumerate(encoded.ids) if token == self.tokenizer.mask_id]
        if not where:
            raise InputError(_no_mask(text, self.tokenizer.token(self.tokenizer.mask_id)))
        hidden = self._encode(encoded).hidden  # (N, D)
        logits = self._network.predict("masked", hidden[torch.tensor(where, device=self._device)])  # (blanks, V)
        probabilities = logits.float().softmax(-1)
        tokens = torch.tensor(list(self.tokenizer.vocabulary.values()), device=self._device)
        # a table padded to a round size has rows that stand for no token
        best = probabilities[:, tokens].topk(min(k, len(tokens)))
        return [
            Blank(
                start=encoded.offsets[place][0],
                end=encoded.offsets[place][1],
                candidates=tuple(
                    Candidate(self.tokenizer.token(token), self._running_text(token), probability)
                    for token, probability in zip(found, values, strict=True)
                ),
                n_tokens=len(encoded.ids),
            )
            for place, found, values in zip(where, tokens[best.indices].tolist(), best.values.tolist(), strict=True)
        ]

    def embed(
        self,
        texts: str | Iterable[str],
        pooling: str | None = None,
        normalize: bool | None = None,
        tokens_per_batch: int | None = None,
    ) -> Embeddings:
        """One vector a text, in the given order.

        pooling "mean" averages every token of a text, [CLS] and [SEP] included, as sentence-transformers does; "cls"
        takes the vector at [CLS]. None is what the folder says, else the mean; a folder that says something else is an
        error, because another pooling gives other vectors. normalize None is what the folder says.

        A text longer than the model is read in overlapping windows, and nothing of it is dropped: the mean counts every
        token once, in the window where it lies further from an edge; with "cls" a window weighs as much as the tokens
        counted in it. Vectors are float32 whatever the model computes in; messages count texts from 1.
        """
        parts = list(
            self.embed_stream([texts] if isinstance(texts, str) else texts, pooling, normalize, tokens_per_batch)
        )
        if not parts:
            nothing = np.zeros(0, dtype=np.int64)
            return Embeddings(np.zeros((0, self.config.width), dtype=np.float32), nothing, nothing)
        return Embeddings(
            np.concatenate([part.vectors for part in parts]),
            np.concatenate([part.n_tokens for part in parts]),
            np.concatenate([part.n_windows for part in parts]),
        )

    def embed_stream(
        self,
        texts: Iterable[str],
        pooling: str | None = None,
        normalize: bool | None = None,
        tokens_per_batch: int | None = None,
    ) -> Iterator[Embeddings]:
        """`embed` for any number of texts in bounded memory: a part for every few thousand of them, in order."""
        if pooling is None and (foreign := self._folder.foreign_pooling):
            raise InputError(
                f"{self.name} pools with {foreign}, which qkv does not do: give pooling mean or cls (--pooling) to "
                "override it. The vectors will be other ones than this folder was made for."
            )
        pool = pooling or self._folder.pooling or "mean"
        if pool not in POOLINGS:
            raise InputError(f"Unknown pooling '{pool}'.{did_you_mean(pool, POOLINGS)} Known: {', '.join(POOLINGS)}.")
        if self.config.max_length < 3:
            raise InputError(f"{self.name} has {self.config.max_length} positions; [CLS], a token and [SEP] need 3.")
        if tokens_per_batch is None:
            tokens_per_batch = TOKENS_PER_BATCH.get(self._device.type, TOKENS_PER_BATCH_ELSEWHERE)
        if tokens_per_batch < 1:
            raise InputError(f"tokens_per_batch must be 1 or more, not {tokens_per_batch}.")
        unit = self._folder.normalize if normalize is None else normalize
        return self._embed_chunks(texts, pool, unit, tokens_per_batch)

    def _embed_chunks(
        self, texts: Iterable[str], pooling: str, normalize: bool, tokens_per_batch: int
    ) -> Iterator[Embeddings]:
        seen = 0
        for chunk in chunks(texts, TEXTS_PER_CHUNK, _characters, CHARACTERS_PER_CHUNK):
            _check_texts(chunk, seen)
            ids = self.tokenizer.encode_ids(chunk)
            for number, row in enumerate(ids, start=seen + 1):
                if not row:
                    raise InputError(_empty(f"Text {number}"))
            yield self._embed_ids(ids, pooling, normalize, tokens_per_batch)
            seen += len(chunk)

    @torch.inference_mode()
    def _embed_ids(self, ids: list[list[int]], pooling: str, normalize: bool, tokens_per_batch: int) -> Embeddings:
        length = self.config.max_length
        rows = Rows(ids, self.tokenizer.cls_id, self.tokenizer.sep_id, length, overlap=(length - 2) // 4)
        found = np.empty((len(rows), self.config.width), dtype=np.float32)  # (R, D)
        for chosen in plan(rows.lengths, tokens_per_batch):
            batch = rows.collate(chosen).to(self._device)
            hidden = self._run(batch).hidden.float()  # (N, D): a mean over half precision would lose what is left of it
            found[chosen] = POOLINGS[pooling](hidden, batch, rows.counted(chosen)).cpu().numpy()
        vectors = _merge(found, rows)
        return Embeddings(normalized(vectors) if normalize else vectors, rows.n_tokens, rows.n_windows)

    @torch.inference_mode()
    def attention(
        self,
        text: str,
        pair: str | None = None,
        layers: int | Iterable[int] | None = None,
        heads: int | Iterable[int] | None = None,
    ) -> AttentionMap:
        """Who looks at whom: the weights of the layers and heads asked for (all, if None), one byte each.

        Layers and heads are counted from 0. Only the layers asked for take the explicit path.
        """
        if not isinstance(self.config, BertConfig):
            raise InputError(f"{self.name} is a {self.architecture}, which has no attention: only a BERT shows some.")
        chosen_layers = _chosen("layer", layers, self.config.layers)
        chosen_heads = _chosen("head", heads, self.config.heads)
        encoded = self._in_one_window(text, pair, "Attention")
        weights = self._encode(encoded, attention=frozenset(chosen_layers)).attention
        stacked = torch.stack(
            [weights[layer][0, list(chosen_heads)] for layer in chosen_layers]
        )  # (layers, heads, T, T)
        texts = (text,) if pair is None else (text, pair)
        added = {self.tokenizer.cls_id, self.tokenizer.sep_id, self.tokenizer.pad_id}
        tokens = tuple(
            Token(token, texts[segment][start:end], start, end, segment, special=number in added and start == end)
            for number, token, segment, (start, end) in zip(
                encoded.ids, encoded.tokens, encoded.segments, encoded.offsets, strict=True
            )
        )
        return AttentionMap(
            name="self" if pair is None else "pair",
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
        """How likely `second` follows `first` in running text (BERT §3.1, task 2)."""
        self._require("next_sentence")
        encoded = self._in_one_window(first, second, "Judging a pair")
        pooled = self._encode(encoded).pooled
        assert pooled is not None, "a next-sentence head comes with a pooler"
        is_next, not_next = self._network.predict("next_sentence", pooled)[0].float().softmax(-1).tolist()
        return NextSentence(is_next, not_next, n_tokens=len(encoded.ids))

    def predict(self, inputs: Any) -> list[Any]:
        """What the model was fine-tuned to say, one result an input, in order.

        A classifier reads texts, or pairs; a tagger texts; a reader (question, passage); a chooser tables with text,
        question and choices. One input alone may be given without a list: a tuple of two texts is one pair to a model
        that reads pairs, and a list is always several inputs. Long texts are read in overlapping windows; every result
        says n_tokens and n_windows.
        """
        task = self.solver.task
        single = isinstance(inputs, str | Mapping | Example)
        single = single or is_one_pair(inputs, task.name, getattr(task, "paired", None))
        return [result for _, part in self.predict_stream([inputs] if single else inputs) for result in part]

    def predict_stream(self, inputs: Iterable[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
        """`predict` for any number of inputs in bounded memory: examples and results, a few thousand at a time."""
        return self.answer_stream(examples_of(self.solver.task.name, inputs, self.tokenizer))

    def answer_stream(
        self, examples: Iterable[Example], needs_labels: bool = False
    ) -> Iterator[tuple[list[Any], list[Any]]]:
        """`predict_stream` for examples as they are, with their labels, as an evaluation needs them."""
        parts = self.solver.stream(examples, needs_labels)
        while True:
            self._use_threads()  # another model may have been asked since the last part
            if (part := next(parts, None)) is None:
                return
            yield part

    @cached_property
    def solver(self) -> Solver:
        """The task it was fine-tuned for; an error that says what to do, where it was not."""
        return solver_of(self._folder, self._device)

    def _run(self, batch: Batch, attention: frozenset[int] = frozenset()) -> Encoding:
        self._use_threads()
        asked = {"attention": attention} if attention else {}  # which not every encoder has
        return self._network.encoder(**batch.inputs(), **asked)

    def _use_threads(self) -> None:
        if self._threads is not None and torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)

    def _encode(self, encoded: Encoded, attention: frozenset[int] = frozenset()) -> Encoding:
        return self._run(Batch.of([encoded.ids], segments=[encoded.segments]).to(self._device), attention)

    def _in_one_window(self, text: str, pair: str | None, what: str) -> Encoded:
        """Encode what must be seen in one piece, or say by how much it is too long."""
        _check_texts([text] if pair is None else [text, pair], 0)
        if pair is not None and self.config.segments < 2:
            raise InputError(
                f"{self.name} reads single texts: it has one segment (type_vocab_size 1), and a pair needs 2."
            )
        encoded = self.tokenizer.encode(text, pair)
        for segment, name in enumerate(("The text",) if pair is None else ("The first text", "The second text")):
            if not any(a < b for (a, b), s in zip(encoded.offsets, encoded.segments, strict=True) if s == segment):
                raise InputError(_empty(name))
        if len(encoded.ids) > self.config.max_length:
            raise InputError(
                f"The text has {len(encoded.ids)} tokens and this model reads {self.config.max_length} at once. "
                f"{what} needs it in one piece: shorten it around the part you are asking about."
            )
        return encoded

    def _require(self, head: str) -> None:
        if head not in self._network.heads:
            can = ["embed texts", *(["show attention"] if isinstance(self.config, BertConfig) else [])]
            can += [ABILITIES[name] for name in ABILITIES if name in self._network.heads]
            named = " and ".join([", ".join(can[:-1]), can[-1]] if len(can) > 1 else can)
            what = self.architecture + (" folder" if isinstance(self.config, BertConfig) else "")
            raise InputError(
                f"{self.name} is a {what} and has no weights to {ABILITIES[head]}. "
                f"It can {named}. To {ABILITIES[head]}, load {NEEDS[head]}."
            )

    def _running_text(self, token: int) -> str:
        spelling = self.tokenizer.token(token)
        return spelling.removeprefix("##") if self.tokenizer.kind == "wordpiece" else spelling


def _merge(found: NDArray[np.float32], rows: Rows) -> NDArray[np.float32]:
    """(R, D) vectors of windows → (E, D) of texts, a window weighing as much as the tokens counted in it."""
    if len(rows) == rows.n_examples:
        return found
    weights = rows.counts() / rows.n_tokens[rows.cuts.examples]  # (R,) exactly 1 for a text of one window
    first = np.flatnonzero(rows.cuts.windows == 0)  # rows keep the order of the texts
    return np.add.reduceat(found * weights[:, None].astype(np.float32), first, axis=0)


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


def _characters(text: str) -> int:
    return len(text) if isinstance(text, str) else 0  # what is no text is told when its chunk is looked at


def _check_texts(texts: list[str], before: int) -> None:
    for number, text in enumerate(texts, start=before + 1):
        if not isinstance(text, str):
            raise InputError(f"Text {number} is of type {type(text).__name__}; a text is a string.")


def _empty(name: str) -> str:
    return f"{name} is empty (nothing is left of it after tokenization): give it a word, or leave it out."


def _no_mask(text: str, mask: str) -> str:
    """Say how a blank is written; people arrive with other spellings."""
    example = (
        f"Write {mask} where the word is missing, for example: 巴黎是{mask}国的首都 / Paris is the {mask} of France."
    )
    for spelling in (mask.lower(), "<mask>", "【MASK】", "[Mask]", "____", "___"):
        if spelling in text:
            return f"The text has '{spelling}', which is not a blank for this model. {example}"
    return f"The text has no blank to fill. {example}"
