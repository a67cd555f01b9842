"""A corpus that is on every machine that has Python: the standard library's own documentation and docstrings.

A document is a help topic or a module, as a list of paragraphs of prose. Two megabytes of English about one subject:
too little to learn a language from, enough to watch a loss fall and blanks fill.
"""

import ast
import pydoc_data.topics
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "turtledemo", "__pycache__"}
MARKUP = re.compile(r"[*=~^_`|+#\-]{3,}|``|\*\*")  # rules, underlines and emphasis
PROSE = re.compile(r"[A-Za-z]{2,}.*[a-z]{2,}.*[.:]$")  # a sentence rather than a table or a prompt


def documents() -> Iterator[list[str]]:
    for topic in pydoc_data.topics.topics.values():
        if paragraphs := _prose(topic):
            yield paragraphs
    library = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(library.rglob("*.py")):
        if LEFT_OUT.isdisjoint(file.relative_to(library).parts) and (paragraphs := _docstrings(file)):
            yield paragraphs


def _docstrings(file: Path) -> list[str]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, OSError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return [paragraph for text in texts if text for paragraph in _prose(text)]


def _prose(text: str) -> list[str]:
    """Paragraphs that read as sentences, each on one line; code, tables and prompts are left out."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(MARKUP.sub(" ", paragraph).split())
        if len(line) > 40 and PROSE.match(line) and ">>>" not in line:
            found.append(line)
    return found
