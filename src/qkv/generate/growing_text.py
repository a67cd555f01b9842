"""A text that is shown while it grows: tokens in, whole characters out.

Decoding token by token would lose the spaces between words, which stand in neither of them, and break characters whose
bytes lie in two tokens (byte-level vocabularies cut 😀 into up to four). So some tokens before are decoded along, and
bytes that are no character yet are held back until they are one, or until nothing more comes.

>>> words = {1: "a", 2: " b", 3: " c"}
>>> growing = GrowingText(lambda ids: "".join(words[id] for id in ids).strip(), before=[1])
>>> [growing.add(2), growing.add(3), growing.rest()]
[' b', ' c', '']
"""

from collections.abc import Callable, Sequence

BROKEN = "\ufffd"  # what stands for bytes that are no character
CONTEXT = 16  # tokens that are decoded along
LONGEST = 64  # tokens that are decoded at most, unless all are held back


class GrowingText:
    def __init__(self, decode: Callable[[Sequence[int]], str], before: Sequence[int] = ()) -> None:
        """`before` is what the text goes on from: it is not shown, but a space between the two is."""
        self.decode = decode
        self.ids = list(before[-CONTEXT:])
        self.shown = decode(self.ids) if self.ids else ""  # of what the tokens make

    def add(self, token: int) -> str:
        """What can be shown since."""
        self.ids.append(token)
        whole = self.decode(self.ids)
        found = self._since(whole.rstrip(BROKEN))
        if len(self.ids) > LONGEST and self.shown == whole:
            self.ids = self.ids[-CONTEXT:]
            self.shown = self.decode(self.ids)
        return found

    def rest(self) -> str:
        """What was held back, as it is: nothing more comes."""
        return self._since(self.decode(self.ids)) if self.ids else ""

    def _since(self, text: str) -> str:
        if len(text) <= len(self.shown):
            return ""
        found, self.shown = text[len(self.shown) :], text
        return found


def continuation(decode: Callable[[Sequence[int]], str], before: Sequence[int], tokens: Sequence[int]) -> str:
    """The same of a text that is there already, with the space in front of it if there is one."""
    if not before:
        return decode(tokens)
    return decode([*before, *tokens])[len(decode(before)) :]
