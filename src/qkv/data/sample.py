"""The first sentences of a corpus as a person would check them: the text, and under it the pieces, word by word."""

from itertools import accumulate

from qkv.data.workers import Result
from qkv.tokenizer import Tokenizer

HEADING = "The first sentences of the corpus, as they are written and as pieces. A word begins at each |\n\n"
INVISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥"}  # a character tokenizer has these as tokens


def sample_of(result: Result, tokenizer: Tokenizer, name: str) -> str:
    """The beginning of a file; a blank line lies between documents."""
    lines = [f"# {name}"]
    document_begins = {0, *accumulate(result.documents.tolist())}
    begin = 0
    for number, (text, length) in enumerate(zip(result.sample, result.sentences.tolist(), strict=False)):
        tokens = result.tokens[begin : begin + length].tolist()
        starts = result.word_starts[begin : begin + length].tolist()
        if number in document_begins:
            lines.append("")
        lines += [" ".join(text.split()), "    " + pieces([tokenizer.token(id) for id in tokens], starts)]
        begin += length
    return "\n".join(lines) + "\n\n"


def pieces(tokens: list[str], starts: list[bool]) -> str:
    """
    >>> pieces(["un", "##happy", "北", "京", "。"], [True, False, True, False, True])
    '| un ##happy | 北 京 | 。'
    """
    marked = zip(("| " if start else "" for start in starts), tokens, strict=True)
    return " ".join(mark + INVISIBLE.get(token, token) for mark, token in marked)
