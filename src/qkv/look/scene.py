"""What looks at what: the tokens on both sides of an attention, for every kind of model that has some.

    bert          self                          a text, or two in one row (then its name is "pair")
    gpt           causal                        a text; every token sees those before it
    transformer   encoder | decoder | cross     the source; the translation; the translation at the source
    seq2seq       cross                         the translation at the source, one layer and one head

A translation is given, or the model makes it first, and it is remembered: whoever asks for one layer after another does
not wait for it again. A decoder's tokens are those it reads (the mark that texts begin with, then all but the end);
those of a seq2seq are those it writes, because there the state before a token asks what it is to be.

What this file does NOT do: compute any attention (looks.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from qkv.api.model import show_tokens, strip_unlearned
from qkv.api.translator import Translator
from qkv.data.batch import Batch
from qkv.look.subject import Subject
from qkv.look.wire import Asked, RefusalError
from qkv.models.encoder import Layered
from qkv.nn.layers import AttentionKind, Layer
from qkv.report.attention_map import Token
from qkv.tasks.translate import source_spans, target_spans, translate_batch

REMEMBERED = 64  # translations


@dataclass(frozen=True)
class Side:
    """One text, or two in one row, as the network reads it."""

    ids: tuple[int, ...]
    tokens: tuple[Token, ...]
    unknown: int = -1  # the token of all that the vocabulary lacks

    @property
    def lost(self) -> list[int]:
        """Which of its tokens stand for characters that the vocabulary lacks: to the model they are all the same."""
        rows = enumerate(zip(self.ids, self.tokens, strict=True))
        return [
            place
            for place, (number, token) in rows
            # who writes [UNK] means it; vocabularies of bytes give this number to a mark of their own
            if number == self.unknown and not token.special and token.text.strip() not in ("", token.token)
        ]

    @property
    def segments(self) -> list[int]:
        return [token.segment for token in self.tokens]


@dataclass(frozen=True)
class Scene:
    subject: Subject
    attention: AttentionKind
    name: str  # the kind, or "pair"
    left: Side  # asks
    right: Side  # is looked at
    texts: tuple[str, ...]  # what the characters of the tokens are counted in, by segment
    source: Side | None = None  # what a translator's encoder reads
    target: tuple[int, ...] | None = None  # what its decoder reads, where it is asked for

    @property
    def kind(self) -> str:
        return self.attention.name

    @property
    def same(self) -> bool:
        """Whether both sides are one text."""
        return not self.attention.looks_at_source

    @property
    def sees_all(self) -> bool:
        """Whether nothing is hidden from a token."""
        return not self.attention.is_causal

    def layers(self) -> Iterator[Layer]:
        """Of the network, reading this."""
        first = self.left if self.source is None else self.source
        batches = [Batch.of([first.ids], segments=[first.segments])]
        if self.target is not None:
            batches.append(Batch.of([self.target]))
        network: Layered = self.subject.network
        return network.layers(*(batch.to(self.subject.device) for batch in batches))


@dataclass(frozen=True)
class Question:
    """A text and the kind of attention, as they were asked for."""

    subject: Subject
    kind: str
    text: str
    pair: str | None
    output: str | None

    @classmethod
    def read(cls, subject: Subject, asked: Asked) -> "Question":
        """The fields text, pair, kind and output, of which a model may have none."""
        kinds = [kind.name for kind in attentions_of(subject)]
        kind = asked.choice("kind", kinds, kinds[0])
        text = asked.text()
        pair = None if subject.translates else asked.maybe_text("pair")
        return cls(subject, kind, text, pair, asked.maybe_text("output") if subject.translates else None)

    @property
    def network(self) -> Layered:
        return self.subject.network

    @property
    def attention(self) -> AttentionKind:
        return next(kind for kind in self.network.attentions if kind.name == self.kind)

    @property
    def layers(self) -> int:
        return self.attention.layers

    @property
    def heads(self) -> int:
        return self.attention.heads

    def scene(self) -> Scene:
        """Tokens of both sides; a translation is made here, if none was given."""
        subject, kind = self.subject, self.attention
        if not subject.translates:
            side = _of_model(subject, kind, self.text, self.pair)
            texts = (self.text,) if self.pair is None else (self.text, self.pair)
            name = kind.name if self.pair is None or kind.is_causal else "pair"
            return Scene(subject, kind, name, side, side, texts)
        source = _source(subject.translator, self.text, 1 if kind.looks_at_source else 0)
        if kind.part == "encoder":
            return Scene(subject, kind, kind.name, source, source, (self.text,), source)
        output, target, read = _target(subject, kind, self.text, self.output)
        right, texts = (source, (output, self.text)) if kind.looks_at_source else (target, (output,))
        return Scene(subject, kind, kind.name, target, right, texts, source, read)


def attentions_of(subject: Subject) -> tuple[AttentionKind, ...]:
    """Refuse what has none."""
    found = () if subject.is_table else subject.network.attentions
    if not found:
        if subject.translates:
            context = subject.translator.network.context
            raise subject.refusal("no_attention", f"whose decoder looks at nothing: its context is {context}")
        raise subject.refusal("no_attention", "which has no attention")
    return found


def _of_model(subject: Subject, kind: AttentionKind, text: str, pair: str | None) -> Side:
    model = subject.model
    untaught = kind.is_causal and not model.network.heads
    sizes = subject.facts.sizes
    if pair is not None and (untaught or sizes is None or not sizes.pairs):
        raise subject.refusal("no_pair", "which reads single texts")
    texts = (text,) if pair is None else (text, pair)
    for name, one in zip(("text", "pair"), texts, strict=False):
        if model.tokenizer.is_empty(one):
            raise _empty(name)
    encoded = model.tokenizer.encode(text, pair)
    if untaught:
        encoded = strip_unlearned(encoded, model.tokenizer)
    check_length(len(encoded.ids), model.config.max_length)
    tokens = show_tokens(encoded, texts, model.tokenizer.special_ids)
    return Side(tuple(encoded.ids), tokens, model.tokenizer.unk_id)


def _source(translator: Translator, text: str, segment: int) -> Side:
    languages = translator.languages
    encoded, spans = languages.source.encode(text, special=False), source_spans(languages.source, text)
    if not encoded.ids:
        raise _empty("text")
    check_length(len(encoded.ids) + 1, translator.max_length)
    unknown = languages.source.unk_id  # SentencePiece spells what it does not know as it was written
    read = [
        languages.source.token(number) if number == unknown else token
        for number, token in zip(encoded.ids, encoded.tokens, strict=True)
    ]
    tokens = _spelled(read, spans, text, segment)
    end = Token(languages.source.token(languages.source_end), "", 0, 0, segment, special=True)
    return Side((*encoded.ids, languages.source_end), (*tokens, end), unknown)


def _target(subject: Subject, kind: AttentionKind, text: str, output: str | None) -> tuple[str, Side, tuple[int, ...]]:
    """The translation, its tokens as rows of the attention, and what a decoder reads of it."""
    translator = subject.translator
    languages = translator.languages
    if output is None:
        ids, output, spans = _translation(subject, text)
    else:
        ids = tuple(languages.target.encode(output, special=False).ids)
        spans = tuple(source_spans(languages.target, output))
        if not ids:
            raise _empty("output")
        check_length(len(ids) + 1, translator.max_length)
    tokens = _spelled([languages.target.token(number) for number in ids], spans, output, 0)
    read = (languages.begin, *ids)
    if kind.asks_for_next:
        end = Token(languages.target.token(languages.end), "", 0, 0, special=True)
        return output, Side((*ids, languages.end), (*tokens, end), languages.target.unk_id), read
    begin = Token(languages.target.token(languages.begin), "", 0, 0, special=True)
    return output, Side(read, (begin, *tokens), languages.target.unk_id), read


@lru_cache(maxsize=REMEMBERED)
def _translation(subject: Subject, text: str) -> tuple[tuple[int, ...], str, tuple[tuple[int, int], ...]]:
    """The tokens as they were written, which need not be those that the text would be cut into."""
    translator = subject.translator
    source = translator.languages.read([text])
    best = translate_batch(translator.network, translator.languages, source, translator.decoding)[0][0]
    written, spans = target_spans(translator.languages.target, best.tokens)
    return best.tokens, written, tuple(spans)


def _spelled(tokens: Sequence[str], spans: Sequence[tuple[int, int]], text: str, segment: int) -> tuple[Token, ...]:
    return tuple(
        Token(token, text[start:end], start, end, segment) for token, (start, end) in zip(tokens, spans, strict=True)
    )


def check_length(tokens: int, most: int) -> None:
    if tokens > most:
        raise RefusalError(
            "too_many_tokens",
            f"The text has {tokens:,} tokens, and this model reads {most:,} at once. Shorten it: nothing is cut "
            "silently.",
            tokens=tokens,
            most=most,
        )


def _empty(name: str) -> RefusalError:
    return RefusalError("empty", f"Nothing is left of '{name}' after tokenization. Write something.", field=name)
