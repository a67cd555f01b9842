"""Foldings of new tokenizers (`qkv tokenizer train --fold width,emoji`); transformers reads them from tokenizer.json.

    width   full-width letters and digits become half-width: ＡＢＣ１２３ is ABC123. Punctuation stays: ， is not ,
    emoji   every emoji is a token by itself: "ok😡😡" is three tokens, where BERT has one unknown word

Offsets stay those of the text as it was written. A tokenizer with a folding takes about twice as long a text, and
`qkv prepare` cannot take its shortcuts (data/corpus/encode.py).

Tokenizers that are loaded stay as they are: `qkv convert FOLDER NEW --fold width,emoji` writes another folder.

What this file does NOT do: traditional characters as simplified ones, for which we have no table of our own.
"""

import re
from collections.abc import Sequence

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

from qkv.errors import InputError, did_you_mean

FOLDS = ("width", "emoji")
_WIDE = [*range(0xFF10, 0xFF1A), *range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B)]
_NARROW = {code: code - 0xFEE0 for code in _WIDE}
# pictographs, dingbats and weather, regional indicators; without the digits and marks that Unicode calls emoji, too
_EMOJI = "[\U0001f000-\U0001faff\u2600-\u27bf\u2b50\u2b55\u231a\u231b\u23e9-\u23fa]"
_emoji = re.compile(_EMOJI)


def check_fold(fold: Sequence[str], kind: str) -> None:
    """Raise for an unknown folding, or a tokenizer that does not read words as BERT does."""
    for name in fold:
        if name not in FOLDS:
            raise InputError(f"There is no folding '{name}'.{did_you_mean(name, FOLDS)} Known: {', '.join(FOLDS)}.")
    if fold and kind not in ("wordpiece", "word"):
        raise InputError(f"Foldings are for tokenizers by wordpiece or word, and this one is by {kind}: no --fold.")


def fold_text(text: str, fold: Sequence[str]) -> str:
    """The text as a vocabulary is learned from it.

    >>> fold_text("ＡＢ１，ok😡😡", ["width", "emoji"])
    'AB1，ok 😡  😡 '
    """
    if text.isascii():
        return text
    text = text.translate(_NARROW) if "width" in fold else text
    return _emoji.sub(lambda found: f" {found[0]} ", text) if "emoji" in fold else text


def add_folding(backend: tokenizers.Tokenizer, fold: Sequence[str]) -> None:
    """Make a backend read texts as `fold_text` writes them."""
    if "width" in fold:
        steps = [normalizers.Replace(chr(wide), chr(narrow)) for wide, narrow in _NARROW.items()]
        backend.normalizer = normalizers.Sequence([*steps, backend.normalizer])
    if "emoji" in fold:
        alone = pre_tokenizers.Split(Regex(_EMOJI), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([alone, backend.pre_tokenizer])
