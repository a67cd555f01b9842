"""What a text is to a network that attends, as it is shown: its tokens with their characters, and the marks around it.

What this file does NOT do: say whether the text fits the model (predict.py, inside/).
"""

from collections.abc import Collection, Sequence

from qkv.data.task_marks import TaskTokenizer
from qkv.report.attention_map import Token
from qkv.tokenizer import Encoded, Tokenizer


def shown_tokens(encoded: Encoded, texts: Sequence[str], special_ids: Collection[int]) -> tuple[Token, ...]:
    """Each token with the characters that it came from, of the text of its segment.

    Special is what was added around a text: a [MASK] that somebody wrote, or a word that became [UNK], is text.
    """
    rows = zip(encoded.ids, encoded.tokens, encoded.segments, encoded.offsets, strict=True)
    return tuple(
        Token(token, texts[segment][start:end], start, end, segment, special=number in special_ids and start == end)
        for number, token, segment, (start, end) in rows
    )


def without_unlearned(encoded: Encoded, tokenizer: Tokenizer) -> Encoded:
    """A text as a GPT that no task was put on has seen texts: nothing after it, and the mark before it if that is its
    own. The marks of tasks mean nothing yet."""
    assert isinstance(tokenizer, TaskTokenizer), "a GPT's tokenizer is one with marks of tasks"
    first = 1 if encoded.ids[0] in tokenizer.added else 0
    kept = slice(first, -1)
    return Encoded(encoded.ids[kept], encoded.segments[kept], encoded.offsets[kept], encoded.tokens[kept])
