"""The tokens on both sides of an attention, for every kind of model that has one.

    bert          self                          a text, or two in one row (then its name is "pair")
    gpt           causal                        a text; every token sees itself and those before it
    transformer   encoder | decoder | cross     source to source; translation to itself; translation to source
    seq2seq       cross                         translation to source, one layer and one head

If no translation is given, the model generates it once; it is cached for questions about other layers. The rows of a
Transformer's decoder are the tokens it reads (the begin token, then all but the end token), those of a seq2seq the
tokens it predicts, because there the query is the state before a token.

Not here: the attention itself (looks.py).
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

CACHED_TRANSLATIONS = 64  # translations


@dataclass(frozen=True)
class Side:
    """One text, or two in one row, as the network reads it."""

    ids: tuple[int, ...]
    tokens: tuple[Token, ...]
    unknown: int = -1  # id of the unknown token

    @property
    def lost(self) -> list[int]:
        """Indices of unknown tokens."""
        rows = enumerate(zip(self.ids, self.tokens, strict=True))
        return [
            place
            for place, (number, token) in rows
            # not a literal [UNK] in the text, nor the special tokens to which byte-level vocabularies give this id
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
    left: Side  # queries
    right: Side  # keys
    texts: tuple[str, ...]  # the texts that token spans refer to, by segment
    source: Side | None = None  # input of a translator's encoder
    target: tuple[int, ...] | None = None  # input of its decoder, if needed

    @property
    def kind(self) -> str:
        return self.attention.name

    @property
    def same(self) -> bool:
        """Whether both sides are the same text."""
        return not self.attention.looks_at_source

    @property
    def sees_all(self) -> bool:
        """Whether every token is visible to every other."""
        return not self.attention.is_causal

    def layers(self) -> Iterator[Layer]:
        """The layers of the network on these tokens."""
        first = self.left if self.source is None else self.source
        batches = [Batch.of([first.ids], segments=[first.segments])]
        if self.target is not None:
            batches.append(Batch.of([self.target]))
        network: Layered = self.subject.network
        return network.layers(*(batch.to(self.subject.device) for batch in batches))


@dataclass(frozen=True)
class Question:
    """The texts and the kind of attention of a request."""

    subject: Subject
    kind: str
    text: str
    pair: str | None
    output: str | None

    @classmethod
    def read(cls, subject: Subject, asked: Asked) -> "Question":
        """Read the fields text, pair, kind and output. Raises RefusalError for a model without attention."""
        kinds = [kind.name for kind in find_attentions(subject)]
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
        """The tokens of both sides; generates a translation if none was given."""
        subject, kind = self.subject, self.attention
        if not subject.translates:
            side = _make_model_side(subject, kind, self.text, self.pair)
            texts = (self.text,) if self.pair is None else (self.text, self.pair)
            name = kind.name if self.pair is None or kind.is_causal else "pair"
            return Scene(subject, kind, name, side, side, texts)
        source = _make_source_side(subject.translator, self.text, 1 if kind.looks_at_source else 0)
        if kind.part == "encoder":
            return Scene(subject, kind, kind.name, source, source, (self.text,), source)
        output, target, read = _make_target_side(subject, kind, self.text, self.output)
        right, texts = (source, (output, self.text)) if kind.looks_at_source else (target, (output,))
        return Scene(subject, kind, kind.name, target, right, texts, source, read)


def find_attentions(subject: Subject) -> tuple[AttentionKind, ...]:
    """The kinds of attention of a model. Raises RefusalError if it has none."""
    found = () if subject.is_table else subject.network.attentions
    if not found:
        if subject.translates:
            context = subject.translator.network.context
            raise subject.refusal("no_attention", f"whose decoder has no attention: its context is {context}")
        raise subject.refusal("no_attention", "which has no attention")
    return found


def _make_model_side(subject: Subject, kind: AttentionKind, text: str, pair: str | None) -> Side:
    model = subject.model
    untaught = kind.is_causal and not model.network.heads
    sizes = subject.facts.sizes
    if pair is not None and (untaught or sizes is None or not sizes.pairs):
        raise subject.refusal("no_pair", "which reads single texts")
    texts = (text,) if pair is None else (text, pair)
    for name, one in zip(("text", "pair"), texts, strict=False):
        if model.tokenizer.is_empty(one):
            raise _empty_refusal(name)
    encoded = model.tokenizer.encode(text, pair)
    if untaught:
        encoded = strip_unlearned(encoded, model.tokenizer)
    check_length(len(encoded.ids), model.config.max_length)
    tokens = show_tokens(encoded, texts, model.tokenizer.special_ids)
    return Side(tuple(encoded.ids), tokens, model.tokenizer.unk_id)


def _make_source_side(translator: Translator, text: str, segment: int) -> Side:
    languages = translator.languages
    encoded, spans = languages.source.encode(text, special=False), source_spans(languages.source, text)
    if not encoded.ids:
        raise _empty_refusal("text")
    check_length(len(encoded.ids) + 1, translator.max_length)
    unknown = languages.source.unk_id  # SentencePiece spells unknown tokens as in the text
    read = [
        languages.source.token(number) if number == unknown else token
        for number, token in zip(encoded.ids, encoded.tokens, strict=True)
    ]
    tokens = _make_tokens(read, spans, text, segment)
    end = Token(languages.source.token(languages.source_end), "", 0, 0, segment, special=True)
    return Side((*encoded.ids, languages.source_end), (*tokens, end), unknown)


def _make_target_side(
    subject: Subject, kind: AttentionKind, text: str, output: str | None
) -> tuple[str, Side, tuple[int, ...]]:
    """The translation, its tokens as rows of the attention, and the input ids of the decoder."""
    translator = subject.translator
    languages = translator.languages
    if output is None:
        ids, output, spans = _translation(subject, text)
    else:
        ids = tuple(languages.target.encode(output, special=False).ids)
        spans = tuple(source_spans(languages.target, output))
        if not ids:
            raise _empty_refusal("output")
        check_length(len(ids) + 1, translator.max_length)
    tokens = _make_tokens([languages.target.token(number) for number in ids], spans, output, 0)
    read = (languages.begin, *ids)
    if kind.asks_for_next:
        end = Token(languages.target.token(languages.end), "", 0, 0, special=True)
        return output, Side((*ids, languages.end), (*tokens, end), languages.target.unk_id), read
    begin = Token(languages.target.token(languages.begin), "", 0, 0, special=True)
    return output, Side(read, (begin, *tokens), languages.target.unk_id), read


@lru_cache(maxsize=CACHED_TRANSLATIONS)
def _translation(subject: Subject, text: str) -> tuple[tuple[int, ...], str, tuple[tuple[int, int], ...]]:
    """The generated tokens, which may differ from those of the tokenised text; the text; the tokens' spans."""
    translator = subject.translator
    source = translator.languages.read([text])
    best = translate_batch(translator.network, translator.languages, source, translator.decoding)[0][0]
    written, spans = target_spans(translator.languages.target, best.tokens)
    return best.tokens, written, tuple(spans)


def _make_tokens(tokens: Sequence[str], spans: Sequence[tuple[int, int]], text: str, segment: int) -> tuple[Token, ...]:
    return tuple(
        Token(token, text[start:end], start, end, segment) for token, (start, end) in zip(tokens, spans, strict=True)
    )


def check_length(tokens: int, most: int) -> None:
    if tokens > most:
        raise RefusalError(
            "too_many_tokens",
            f"The text has {tokens:,} tokens; the maximum of this model is {most:,}. Shorten it: texts are not "
            "truncated.",
            tokens=tokens,
            most=most,
        )


def _empty_refusal(name: str) -> RefusalError:
    return RefusalError("empty", f"Nothing is left of '{name}' after tokenization. Write something.", field=name)
