"""Continue prompts with a trained language model: the folder of a GPT, ours or transformers', or of a recurrent model.

A prompt of a model that was trained here is taken as the beginning of a document, and the mark that stands before
documents is put before it, as in training; a folder by others gets the prompt as it is, as in transformers. Without a
prompt, a text begins with that mark alone. Prompts are read in batches of like length and come back in the order they
were given; a prompt for which there are too few positions is refused, never cut.

>>> generator = Generator()                                                       # doctest: +SKIP
>>> generator.generate(["ROMEO:"], GenerateConfig(sample=True, top_k=40))[0][0].text  # doctest: +SKIP
' And therefore thou art come …'
>>> for piece in generator.stream("春眠"): print(piece, end="")                   # doctest: +SKIP
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import torch

from qkv.api.model import DTYPES
from qkv.data.batch import Batch, chunks
from qkv.errors import InputError, did_you_mean
from qkv.models.family import WRITES, Loading, Opened
from qkv.models.folders.hub import default_model, locate
from qkv.models.table import open_model
from qkv.search.beam import generate
from qkv.search.decoding import Hypothesis
from qkv.search.options import GenerateConfig
from qkv.search.sampling import GrowingText, decode_continuation, stream_tokens
from qkv.text.unknown import count_unknown
from qkv.train.device import device_named, use_threads

_CHUNK = 256  # prompts that are sorted and read together
_CHARACTERS = 1 << 20  # or so many characters
_TOKENS = 16_384  # of the texts of a batch, prompts and what is written; a cache holds them all


@dataclass(frozen=True)
class GeneratedText:
    """A continuation of a prompt."""

    prompt: str
    text: str  # without the prompt, with the space between the two
    score: float  # what texts of one prompt are ranked by
    log_probability: float
    finished: bool  # whether the model ended it; else there was room for no more
    n_prompt_tokens: int  # the mark before it included
    n_tokens: int  # written, the end among them
    n_unknown: int = 0  # tokens of the prompt that stand for what the vocabulary lacks

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "prompt": self.prompt,
            "text": self.text,
            "score": round(self.score, 6),
            "log_probability": round(self.log_probability, 6),
            "finished": self.finished,
            "n_prompt_tokens": self.n_prompt_tokens,
            "n_tokens": self.n_tokens,
            "n_unknown": self.n_unknown,
        }


class WrittenPiece(NamedTuple):
    """A piece of a text that grows, in whole characters."""

    text: str
    n_tokens: int  # written so far, the end among them
    n_prompt_tokens: int
    finished: bool = False  # the model has ended the text with this piece


@dataclass(frozen=True)
class PromptTokens:
    """A prompt made ready."""

    text: str
    ids: tuple[int, ...]
    n_unknown: int
    config: GenerateConfig  # with the room that there is
    key: int  # tells it apart from others, whatever batch it is in


class Generator:
    """Keeps no state between calls."""

    def __init__(
        self,
        folder: str | Path | None = None,
        device: str | torch.device = "cpu",
        threads: int | None = None,
        dtype: str = "float32",
        precision: str = "fp32",
    ) -> None:
        """A folder, a run of `qkv pretrain gpt` or `rnnlm`, or hf:owner/name from the hub; without one, qkv-gpt.
        `precision` is that of a GPT on a CPU (nn/cpu/precision.py)."""
        use_threads(threads)
        if dtype not in DTYPES:
            raise InputError(f"Unknown dtype '{dtype}'.{did_you_mean(dtype, DTYPES)} Known: {', '.join(DTYPES)}.")
        place = device_named(str(device))
        path = locate(default_model(WRITES.name) if folder is None else folder)
        self._take(open_model(path, Loading(DTYPES[dtype], place, precision)), place)

    @classmethod
    def of(cls, opened: Opened, device: torch.device) -> "Generator":
        """Of a folder that is open already."""
        generator = cls.__new__(cls)
        generator._take(opened, device)
        return generator

    def _take(self, opened: Opened, device: torch.device) -> None:
        self.device, self.path = device, opened.path
        found = opened.ability(WRITES)
        self.writer, self.tokenizer, self.notes = found.writer, found.tokenizer, opened.notes
        self.begin_id, self.end_id, self.never = found.begin_id, found.end_id, found.never
        self.begins_documents, self.max_length = found.begins_documents, found.max_length

    def generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        seed: int | None = None,
        *,
        begins: bool | None = None,
        fit: bool | None = None,
        first: int = 0,
        seen: Counter[int] | None = None,
        places: Sequence[str] | None = None,
    ) -> list[list[GeneratedText]]:
        """The n best continuations of every prompt, best first. Without a config: greedy. `seed` overrides that of the
        config.

        `begins`: whether a prompt is the beginning of a document (None: as the model was trained). `fit`: a max_length
        for which there is no room becomes what there is room for, instead of being refused (None: if there is no
        config). `first`: how many prompts came before these, for messages that count them; `places`: what messages call
        each prompt instead. What is drawn by chance depends on the seed, the prompt, and how often the same prompt came
        before: `seen` counts that over several calls.
        """
        if isinstance(prompts, str):
            raise InputError("Prompts are several: give a list, such as [prompt].")
        read = self.prepare(prompts, config, seed, begins=begins, fit=fit, first=first, seen=seen, places=places)
        found: list[list[GeneratedText]] = [[] for _ in read]
        for places_of, batch in self._batches(read):
            for place, hypotheses in zip(places_of, self.run_batch(batch), strict=True):
                found[place] = [self.finish(read[place], one) for one in hypotheses]
        return found

    def generate_all(
        self, placed: Iterable[tuple[str, str]], config: GenerateConfig | None = None, **how: Any
    ) -> Iterator[list[GeneratedText]]:
        """`generate` for any number of prompts, each with its name for messages. Only one number per prompt is kept."""
        first, seen = 0, Counter[int]()
        for chunk in chunks(placed, _CHUNK, lambda one: len(one[0]), _CHARACTERS):
            texts, places = [text for text, _ in chunk], [place for _, place in chunk]
            yield from self.generate(texts, config, first=first, seen=seen, places=places, **how)
            first += len(chunk)

    def stream(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        seed: int | None = None,
        *,
        begins: bool | None = None,
        fit: bool | None = None,
    ) -> Iterator[str]:
        """Yield the continuation of one prompt piece by piece, in whole characters; greedy or sampled, without
        beams."""
        (read,) = self.prepare([prompt], config, seed, begins=begins, fit=fit)
        return (piece.text for piece in self.stream_prompt(read) if piece.text)

    def stream_prompt(self, read: PromptTokens) -> "Iterator[WrittenPiece]":
        """`stream` of a prompt made ready; the last piece may have no text."""
        config = read.config
        if config.hypotheses > 1:
            raise InputError(
                f"A text is shown while it grows if it is the only one: leave out beams and n_best "
                f"({config.hypotheses} texts grow at once)."
            )
        return self._pieces(read)

    def _pieces(self, read: PromptTokens) -> "Iterator[WrittenPiece]":
        config, n_tokens, finished = read.config, 0, False
        growing = GrowingText(self._decode, self._shown(read.ids))
        source = Batch.of([read.ids]).to(self.device)
        state = self.writer.start(source.ids, source.packing, longest=config.max_length)
        end = self._end
        written = stream_tokens(
            self.writer.step,
            state,
            source.ids[-1:],
            end,
            config,
            [config.max_length],
            never=self.never,
            keys=[read.key],
        )
        for (one,) in written:
            n_tokens, finished = n_tokens + 1, one.token == end
            if not finished and (piece := growing.add(one.token)):
                yield WrittenPiece(piece, n_tokens, len(read.ids))
        yield WrittenPiece(growing.rest(), n_tokens, len(read.ids), finished)

    def check(self, placed: Iterable[tuple[str, str]], config: GenerateConfig | None = None, **how: Any) -> int:
        """Refuse prompts that are too long before anything is generated; return the number of prompts."""
        count = 0
        for chunk in chunks(placed, _CHUNK, lambda one: len(one[0]), _CHARACTERS):
            texts, places = [text for text, _ in chunk], [place for _, place in chunk]
            self.prepare(texts, config, None, first=count, places=places, **how)
            count += len(chunk)
        return count

    @property
    def _end(self) -> int:
        return -1 if self.end_id is None else self.end_id  # a token that nothing is

    def prepare(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None,
        seed: int | None,
        *,
        begins: bool | None = None,
        fit: bool | None = None,
        first: int = 0,
        seen: Counter[int] | None = None,
        places: Sequence[str] | None = None,
    ) -> list[PromptTokens]:
        """Tokenize and check prompts; arguments as of `generate`, which is this, `run_batch` and `finish`."""
        asked = config or GenerateConfig()
        for name, default in (("max_ratio", None), ("coverage_penalty", 0.0)):
            if getattr(asked, name) != default:
                raise InputError(
                    f"{name} is for models that translate: what is written on has no source. Leave it out."
                )
        if seed is not None:
            asked = replace(asked, seed=seed)
        if self.end_id is None:
            asked = replace(asked, min_length=0)  # nothing ends a text early
        if begins and self.begin_id is None:
            raise InputError(
                f"The vocabulary of {self.path} has no mark that stands before documents, such as <|endoftext|>: a "
                "prompt cannot be made the beginning of one. Leave begins out."
            )
        marked = self.begins_documents if begins is None else begins
        found, seen = list[PromptTokens](), Counter() if seen is None else seen
        for number, (text, ids) in enumerate(zip(prompts, self.tokenizer.encode_ids(prompts), strict=True)):
            place = f"Prompt {first + number + 1}" if places is None else places[number]
            if text and not ids:
                raise InputError(
                    f"{place} ({_begins(text)}) has no token: nothing but spaces, or what the tokenizer drops. Write "
                    "something, or leave the prompt out to have a text begun from nothing."
                )
            if not ids and self.begin_id is None:
                raise InputError(
                    f"{place} is empty, and the vocabulary of {self.path} has no mark to begin a text with, such as "
                    "<|endoftext|>. Give a prompt."
                )
            whole = [self.begin_id, *ids] if self.begin_id is not None and (marked or not ids) else ids
            room = self._room(place, text, whole, asked, fit=config is None if fit is None else fit)
            same = _number_of(whole)
            found.append(PromptTokens(text, tuple(whole), count_unknown(self.tokenizer, ids), room, same + seen[same]))
            seen[same] += 1
        return found

    def n_unknown(self, prompt: str) -> int:
        """The number of unknown tokens of a prompt."""
        return count_unknown(self.tokenizer, self.tokenizer.encode_ids([prompt])[0])

    def _room(self, place: str, text: str, ids: Sequence[int], config: GenerateConfig, *, fit: bool) -> GenerateConfig:
        """The config for a prompt."""
        if self.max_length is None:
            return config
        if len(ids) > self.max_length:
            raise InputError(
                f"{place} ({_begins(text)}) has {len(ids):,} tokens, and the model of {self.path} reads "
                f"{self.max_length:,} at most. Shorten it: nothing is cut in silence."
            )
        room = self.max_length + 1 - len(ids)  # the token that is written last is never read
        if config.max_length <= room:
            return config
        if config.min_length >= room:
            raise InputError(
                f"{place} ({_begins(text)}) has {len(ids):,} tokens, which leaves room for {room:,}, and min_length "
                f"{config.min_length:,} and an end do not fit there. Set it to {room - 1:,} or less, or shorten the "
                "prompt."
            )
        if fit:
            return replace(config, max_length=room)
        raise InputError(
            f"{place} ({_begins(text)}) has {len(ids):,} tokens, which leaves room for {room:,} of the "
            f"{self.max_length:,} that the model of {self.path} reads, and max_length is {config.max_length:,}. Set "
            f"max_length to {room:,} or less, or shorten the prompt."
        )

    def _batches(self, prompts: Sequence[PromptTokens]) -> Iterator[tuple[list[int], list[PromptTokens]]]:
        """Indices and prompts, grouped by similar length and equal room, with a bounded number of tokens."""
        order = sorted(range(len(prompts)), key=lambda at: (prompts[at].config.max_length, len(prompts[at].ids)))
        batch: list[int] = []
        for place in order:
            one = prompts[place]
            tokens = (len(one.ids) + one.config.max_length) * one.config.hypotheses
            if batch and (prompts[batch[0]].config != one.config or (len(batch) + 1) * tokens > _TOKENS):
                yield batch, [prompts[at] for at in batch]
                batch = []
            batch.append(place)
        if batch:
            yield batch, [prompts[at] for at in batch]

    def run_batch(self, batch: Sequence[PromptTokens]) -> list[list[Hypothesis]]:
        """The n best of each prompt; all have the same config."""
        config = batch[0].config
        source = Batch.of([one.ids for one in batch]).to(self.device)
        state = self.writer.start(source.ids, source.packing, hypotheses=config.hypotheses, longest=config.max_length)
        last = source.ids[source.offsets[1:].long() - 1]
        keys = [one.key for one in batch]
        return generate(self.writer.step, state, last, self._end, config, never=self.never, keys=keys)

    def finish(self, prompt: PromptTokens, found: Hypothesis) -> GeneratedText:
        """The text that was written."""
        text = decode_continuation(self._decode, self._shown(prompt.ids), found.tokens)
        n_tokens = len(found.tokens) + found.finished
        return GeneratedText(
            prompt.text,
            text,
            found.score,
            found.log_probability,
            found.finished,
            len(prompt.ids),
            n_tokens,
            prompt.n_unknown,
        )

    def _shown(self, ids: Sequence[int]) -> Sequence[int]:
        """A prompt without the special token before it."""
        return ids[1:] if ids[0] == self.begin_id else ids

    def _decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)


def _number_of(ids: Sequence[int]) -> int:
    """A number for a prompt, the same on every machine and different from those of other prompts."""
    return int.from_bytes(blake2b(array("q", ids).tobytes(), digest_size=8).digest(), "little")


def _begins(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
