"""Labels of tokens in a picture: made visible, measured, cut to fit.

Widths are estimated (汉字 and full-width forms take one em, combining marks none), since an SVG cannot measure the
reader's font. The estimates err on the wide side.
"""

from unicodedata import category, combining, east_asian_width


def text_width(text: str, size: float) -> float:
    """Estimated width of a line of text in a sans-serif font of this size."""
    ems = 0.0
    for character in text:
        if combining(character) or category(character) in ("Mn", "Me", "Cf"):
            continue
        if east_asian_width(character) in "WF":
            ems += 1.0 if ord(character) < 0x1F000 else 1.3  # emoji are drawn wider than 汉字
        elif character in "iljt.,:;'|!()[]fI":
            ems += 0.36
        elif character in "mwMW@%—…":
            ems += 0.92
        elif character.isupper():
            ems += 0.72
        else:
            ems += 0.59
    return ems * size


def shorten(text: str, size: float, room: float) -> str:
    """Cut a label that would not fit, with a mark that it was cut."""
    if text_width(text, size) <= room:
        return text
    while text and text_width(text + "…", size) > room:
        text = text[:-1]
    return text + "…"


def printable(text: str) -> str:
    """Make what cannot be seen visible, and what XML forbids harmless."""
    shown = "".join("␣" if c.isspace() else "�" if category(c) in ("Cc", "Cs", "Cn", "Co") else c for c in text)
    return shown or "∅"


def percent(weight: float) -> str:
    return f"{100 * weight:.0f}%"
