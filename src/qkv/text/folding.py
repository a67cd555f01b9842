"""Foldings of texts before BERT's own steps (`--fold width,emoji` of `qkv tokenizer train` and `qkv convert`).

    width       full-width letters and digits become half-width: ＡＢＣ１２３ is ABC123. Punctuation stays as it is
    emoji       every emoji is a token by itself: "ok😡😡" is three tokens, where BERT has one unknown word
    simplified  traditional 汉字 become simplified ones, one character for one (OpenCC's table): 這個 is 这个. Words
                are not looked at: 乾 is 干 in 乾隆, too

They are part of tokenizer.json, where transformers reads them, too. Offsets stay those of the text as it was written.
OpenCC is needed to write a folder, not to read it: tokenizer.json has the table.

New tokenizers fold width and emoji. Tokenizers that are loaded stay as they are: transformers must read the same folder
in the same way, and a resumed run the same tokens. `qkv convert FOLDER NEW --fold width,emoji` writes another folder.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

from qkv.errors import InputError, did_you_mean
from qkv.text.backend import state_of

FOLDS = ("width", "emoji", "simplified")
NARROW = str.maketrans(
    "０１２３４５６７８９ＡＢＣＤＥＦＧＨＩＪＫＬＭＮＯＰＱＲＳＴＵＶＷＸＹＺａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
)
# pictographs, dingbats and weather, regional indicators; without the digits and marks that Unicode calls emoji, too
_EMOJI = "[\U0001f000-\U0001faff\u2600-\u27bf\u2b50\u2b55\u231a\u231b\u23e9-\u23fa]"
EMOJI = re.compile(_EMOJI)
_FOLDED_KINDS = ("wordpiece", "word")
_HAN = [*range(0x3400, 0x4DC0), *range(0x4E00, 0xA000), *range(0xF900, 0xFB00), *range(0x20000, 0x32000)]


def read_folds(names: str | None, kind: str) -> list[str]:
    """The foldings of --fold, separated by commas; without it, those of a new tokenizer of this kind.

    >>> read_folds("width, simplified", "word"), read_folds(None, "word"), read_folds("none", "word")
    (['width', 'simplified'], ['width', 'emoji'], [])
    """
    if names is None:
        return ["width", "emoji"] if kind in _FOLDED_KINDS else []
    return [] if names.strip() == "none" else [name.strip() for name in names.split(",")]


def check_fold(fold: Sequence[str], kind: str, segmenter: str | None = None) -> None:
    """Raise for an unknown folding, a tokenizer that cannot have it, or a missing package."""
    for name in fold:
        if not name:
            known = ", ".join(FOLDS)
            raise InputError(f"--fold has an empty name. Write one or more of {known}, separated by commas, or none.")
        if name not in FOLDS:
            raise InputError(f"There is no folding '{name}'.{did_you_mean(name, FOLDS)} Known: {', '.join(FOLDS)}.")
    if fold and kind not in _FOLDED_KINDS:
        raise InputError(f"Foldings are for tokenizers by wordpiece or word, and this one is by {kind}: no --fold.")
    if "simplified" in fold:
        if segmenter is not None:
            raise InputError(
                "--fold simplified does not work with a segmenter, which reads the text before it is folded: leave one "
                "of them out."
            )
        _simplified()


@cache
def _simplified() -> dict[int, int]:
    """Code points of traditional 汉字, with those of the simplified ones."""
    try:
        import opencc
    except ImportError as error:
        raise InputError(
            f"--fold simplified takes its characters from OpenCC, which cannot be imported ({error}): pip install "
            "'qkv[zh]'."
        ) from error
    before = "\n".join(map(chr, _HAN))  # in lines of their own, so that no words are found
    after = opencc.OpenCC("t2s").convert(before)
    pairs = zip(before.split("\n"), after.split("\n"), strict=True)
    return {ord(one): ord(other) for one, other in pairs if one != other and len(other) == 1}


def fold_text(text: str, fold: Sequence[str]) -> str:
    """The text as a vocabulary is learned from it.

    >>> fold_text("ＡＢ１，ok😡😡", ["width", "emoji"])
    'AB1，ok 😡  😡 '
    """
    if text.isascii():
        return text
    text = text.translate(NARROW) if "width" in fold else text
    text = text.translate(_simplified()) if "simplified" in fold else text
    return EMOJI.sub(lambda found: f" {found[0]} ", text) if "emoji" in fold else text


def add_folding(backend: tokenizers.Tokenizer, fold: Sequence[str]) -> None:
    """Make a backend read texts as `fold_text` writes them; foldings that it has stay single."""
    fold = [name for name in fold if name not in find_folds(backend)]
    if table := (NARROW if "width" in fold else {}) | (_simplified() if "simplified" in fold else {}):
        steps = [normalizers.Precompiled(_compile(table)), *_steps(backend.normalizer, normalizers.Sequence)]
        backend.normalizer = normalizers.Sequence(steps)
    if "emoji" in fold:
        steps = [_alone(), *_steps(backend.pre_tokenizer, pre_tokenizers.Sequence)]
        backend.pre_tokenizer = pre_tokenizers.Sequence(steps)


def find_folds(backend: tokenizers.Tokenizer) -> tuple[str, ...]:
    """The foldings of a backend, by what it does to a text.

    >>> backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    >>> add_folding(backend, ["emoji", "width"])
    >>> find_folds(backend)
    ('width', 'emoji')
    """
    normal = (lambda text: text) if backend.normalizer is None else backend.normalizer.normalize_str
    words = [] if backend.pre_tokenizer is None else backend.pre_tokenizer.pre_tokenize_str("a😡a")
    does = {
        "width": normal("Ａ").strip().lower() == "a",
        "emoji": [word for word, _ in words] == ["a", "😡", "a"],
        "simplified": normal("這").strip() == "这",
    }
    return tuple(name for name in FOLDS if does[name])


def folds_before_bert(backend: tokenizers.Tokenizer) -> tuple[str, ...] | None:
    """The foldings of a backend that has these and BERT's own steps, and no others; None for any other backend.

    Without "simplified": another release of OpenCC has another table, so that it cannot be told from a foreign one.
    """
    *before, normalizer = map(state_of, _steps(backend.normalizer, normalizers.Sequence) or [None])
    *pre_before, pre_tokenizer = map(state_of, _steps(backend.pre_tokenizer, pre_tokenizers.Sequence) or [None])
    if (normalizer.get("type"), pre_tokenizer.get("type")) != ("BertNormalizer", "BertPreTokenizer"):
        return None
    known = {"width": (before, normalizers.Precompiled(_compile(NARROW))), "emoji": (pre_before, _alone())}
    if any(steps not in ([], [state_of(step)]) for steps, step in known.values()):
        return None
    return tuple(name for name, (steps, _) in known.items() if steps)


def _alone() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(_EMOJI), "isolated")


def _steps(part: Any, sequence: type[Any]) -> list[Any]:
    return [] if part is None else list(part) if isinstance(part, sequence) else [part]


def _compile(table: Mapping[int, int]) -> bytes:
    """SentencePiece's form of a table of characters, which the library replaces in one pass over a text.

    Four bytes with the length of a trie; the trie; the replacements, a zero byte after each. The trie is an array with
    32 bits for a node (a double array, Aoe 1989): the node for the next byte b is at (place ^ offset) ^ b, and a leaf,
    whose value is where its replacement begins, is at place ^ offset.

        bits 0-7   the byte that leads to the node          bit 8   whether it has a leaf
        bit 31     set in a leaf, whose other bits are its value          bits 10-30   the offset
    """
    keys = {chr(code).encode(): chr(other).encode() for code, other in sorted(table.items())}
    inner = sorted({key[:length] for key in keys for length in range(len(key))}, key=lambda one: (len(one), one))
    blocks = {prefix: (number + 1) << 8 for number, prefix in enumerate(inner)}  # 256 places for its next bytes
    trie = [0] * ((len(inner) + 1) << 8)
    trie[0] = blocks[b""] << 10
    # bytes after the first are 0x80 and above, so that the lower half of a block is free for leaves
    leaves = (place for block in list(blocks.values())[1:] for place in range(block, block + 128))
    texts = bytearray()
    for prefix in inner[1:]:
        place = blocks[prefix[:-1]] + prefix[-1]
        trie[place] = (blocks[prefix] ^ place) << 10 | prefix[-1]
    for key, other in keys.items():
        place, leaf = blocks[key[:-1]] + key[-1], next(leaves)
        trie[place] = (leaf ^ place) << 10 | 1 << 8 | key[-1]
        trie[leaf] = 1 << 31 | len(texts)
        texts += other + b"\0"
    return struct.pack(f"<I{len(trie)}I", 4 * len(trie), *trie) + bytes(texts)
