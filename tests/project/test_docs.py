"""What the user reads is executed: the commands of both READMEs, in order, and every link between pages.

In a README every ```bash, ```console and ```python block is run, each README in an empty folder of its own. In a
console block the lines after `$ ` are commands and the rest is what they print. `<!-- not run: reason -->` before a
block leaves it out; only what sets up or fetches (make, git, pip) may be left out. `<!-- output -->` before a ```text
block says that the block above prints those lines; runs of spaces count as one, and `…` stands for anything.
"""

import os
import pkgutil
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.warm import warm_qkv

ROOT = Path(__file__).resolve().parents[2]
READMES = ["README.md", "README.zh.md"]
RUN = {"bash", "console", "python"}
SHOWN = {"text", "json", "toml", "html", "csv", "tsv", "diff"}
SECONDS = 300

FENCE = re.compile(r"^\s*(?P<fence>`{3,}|~{3,})\s*(?P<language>[^\s`]*)[^`]*$")  # indented too, as in a list
COMMENT = re.compile(r"^<!--\s*(?P<text>.*?)\s*-->$")


@dataclass(frozen=True)
class Block:
    """A fenced block with the line it starts on and the HTML comment right above it, if any."""

    language: str
    text: str
    line: int
    comment: str | None

    @property
    def reason(self) -> str | None:
        """Why the block is not run; None when it is."""
        left_out = re.fullmatch(r"not run:?\s*(.*)", self.comment or "")
        return left_out[1] if left_out else None

    @property
    def is_output(self) -> bool:
        return self.comment == "output"


def blocks(markdown: str) -> list[Block]:
    found: list[Block] = []
    fence, language, start, comment = "", "", 0, None
    body: list[str] = []
    for number, line in enumerate(markdown.splitlines(), start=1):
        if fence:
            if line.strip() == fence:
                found.append(Block(language, textwrap.dedent("\n".join(body)), start, comment))
                fence, comment = "", None
            else:
                body.append(line)
        elif opening := FENCE.match(line):
            fence, language, start, body = opening["fence"], opening["language"], number, []
        elif line.strip():
            remark = COMMENT.match(line.strip())
            comment = remark["text"] if remark else None
    assert not fence, f"the block of line {start} is never closed"
    return found


def mistakes(found: Sequence[Block]) -> list[str]:
    """Blocks that would slip past the run: unknown languages, skips without cause, outputs of nothing."""
    wrong: list[str] = []
    above: Block | None = None
    for block in found:
        place = f"line {block.line}"
        if block.language not in RUN | SHOWN:
            wrong.append(f"{place}: write the language as one of {sorted(RUN | SHOWN)}, not '{block.language}'")
        if block.reason is not None:
            if not block.reason:
                wrong.append(f"{place}: 'not run' needs a reason")
            if not re.match(r"(\$ )?(make|git|pip)\b", block.text.lstrip()):
                wrong.append(f"{place}: only a block that starts with make, git or pip may be left out")
        if block.is_output:
            if block.language != "text":
                wrong.append(f"{place}: an output is a text block")
            if above is None or above.language not in {"bash", "python"} or above.reason is not None:
                wrong.append(f"{place}: an output follows a bash or python block that is run")
        above = block
    return wrong


def missing(expected: str, printed: str) -> list[str]:
    """The lines of `expected` that no line of `printed` holds."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    absent: list[str] = []
    for wanted in filter(None, (" ".join(line.split()) for line in expected.splitlines())):
        pattern = re.compile(".*".join(map(re.escape, wanted.split("…"))))
        if not any(pattern.search(line) for line in lines):
            absent.append(wanted)
    return absent


def console(text: str) -> tuple[str, str]:
    """The commands of a console block, and what the block says they print."""
    commands, shown, goes_on = [], [], False
    for line in text.splitlines():
        if goes_on or line.startswith("$ "):
            commands.append(line.removeprefix("> " if goes_on else "$ "))
            goes_on = line.endswith("\\")
        else:
            shown.append(line)
    return "\n".join(commands), "\n".join(shown)


ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    "HF_HUB_OFFLINE": "1",
    "LC_ALL": "C.UTF-8",
    "NO_COLOR": "1",
    "COLUMNS": "120",
    "TERM": "dumb",
}


def run(
    found: Sequence[Block],
    folder: Path,
    environment: Mapping[str, str] = ENVIRONMENT,
    python: Sequence[str] = (sys.executable, "-c"),
) -> None:
    """Run the blocks in order in `folder`; a failing command or a missing line of output is an AssertionError."""
    printed = ""
    for block in found:
        if block.is_output:
            absent = missing(block.text, printed)
            assert not absent, f"line {block.line}: not printed: {absent}\nprinted was:\n{printed}"
        if block.language not in RUN or block.reason is not None:
            continue
        code, shown = console(block.text) if block.language == "console" else (block.text, "")
        command = [*python] if block.language == "python" else ["bash", "-euo", "pipefail", "-c"]
        done = subprocess.run(
            [*command, code],
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=SECONDS,
        )
        printed = done.stdout
        assert done.returncode == 0, f"line {block.line}: exit code {done.returncode} from\n{code}\n{printed}"
        absent = missing(shown, printed)
        assert not absent, f"line {block.line}: not printed: {absent}\nprinted was:\n{printed}"


def links(markdown: str) -> list[str]:
    """The relative targets of links and images, code left out."""
    prose: list[str] = []
    fence = ""
    for line in markdown.splitlines():
        mark = FENCE.match(line)
        if mark and not fence:
            fence = mark["fence"]
        elif fence and line.strip() == fence:
            fence = ""
        elif not fence:
            prose.append(re.sub(r"`[^`]*`", "", line))
    text = "\n".join(prose)
    targets = [spaced or plain for spaced, plain in re.findall(r"\]\(\s*(?:<([^>]+)>|([^)\s]+))[^)]*\)", text)]
    targets += re.findall(r"^\[[^\]]+\]:\s*(\S+)", text, flags=re.MULTILINE)
    targets += re.findall(r"<(?:img|a|source)\b[^>]*?\b(?:src|href|srcset)=[\"']([^\"']+)", text)
    outside = re.compile(r"[a-z][a-z0-9+.-]*:|//|#", re.IGNORECASE)  # another site, or a place on the same page
    return [unquote(target.partition("#")[0]) for target in targets if not outside.match(target)]


def pages() -> list[Path]:
    return sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})


def readme(name: str) -> list[Block]:
    path = ROOT / name
    assert path.exists(), f"{name} is missing"
    return blocks(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", READMES)
def test_readme_blocks_can_be_judged(name: str) -> None:
    found = readme(name)
    assert any(block.language in RUN and block.reason is None for block in found), "nothing in it is run"
    assert mistakes(found) == []


@pytest.mark.first
def test_readme_commands_do_what_they_say(tmp_path: Path) -> None:
    """The English ones all, then of the Chinese ones those that differ in more than their remarks, in a folder of their
    own. There lies what the English README made by the very commands that the Chinese one shows too."""
    english, chinese = (readme(name) for name in READMES)
    assert english
    places = tmp_path / "en", tmp_path / "zh"
    for place in places:
        place.mkdir()
    others, again = what_differs(english, chinese)
    assert others and "qkv-demo" in again
    with warm_qkv(ENVIRONMENT) as environment:
        # found by its place: a program that is started is not looked for on the PATH of its own environment
        python = (str(Path(environment["PATH"].split(os.pathsep)[0], "qkv-python")),)
        run(english, places[0], environment, python)
        for name in again:
            (places[1] / name).symlink_to(places[0] / name)
        run(others, places[1], environment, python)


def what_differs(english: Sequence[Block], chinese: Sequence[Block]) -> tuple[list[Block], set[str]]:
    """The Chinese blocks without the commands that the English README runs too, and the names of what those make. A
    command stays that names what a differing one makes; so does a whole block whose output is shown, if any does."""
    ran = {line for block in english for line in without_remarks(block.text).splitlines()}
    found: list[Block] = []
    again, own = {"qkv-demo"}, set[str]()
    for block, below in zip(chinese, (*chinese[1:], None), strict=True):
        lines = without_remarks(block.text).splitlines()
        kept = [line for line in lines if line not in ran or any(name in line for name in own)]
        if kept and block.language == "bash" and not (below and below.is_output) and "\\\n" not in block.text:
            kept = [line for line in lines if line in kept or line.startswith("export ")]
        elif kept:
            kept = lines
        if kept:
            found.append(replace(block, text="\n".join(kept)))
        if block.language == "bash":
            own |= {name for line in kept for name in made_by(line)}
            again |= {name for line in lines if line not in kept for name in made_by(line)}
    return found, again - own


def made_by(line: str) -> set[str]:
    return {found["name"].split("/")[0] for found in MAKES.finditer(line)} - {""}  # /dev/null


def without_remarks(code: str) -> str:
    return re.sub(r"(^|\s+)# .*", "", code, flags=re.MULTILINE)


READS = re.compile(r"--(?:train|dev|test|file|data|embeddings|tokenizer)[ =](?P<name>[^\s\"$:]+)(?=\s|$)")
MAKES = re.compile(r"(?:--out |-o |> |\bcp \S+(?: \S+)* )(?P<name>[^\s\"$]+)(?=\s|$)", re.MULTILINE)


@pytest.mark.parametrize("name", READMES)
def test_a_readme_reads_what_it_made_itself(name: str) -> None:
    """Nothing that only the README of the other language makes."""
    made, read = {"qkv-demo"}, []
    for block in readme(name):
        if block.language == "bash" and block.reason is None:
            for line in without_remarks(block.text).splitlines():
                read += [found["name"] for found in READS.finditer(line) if found["name"].split("/")[0] not in made]
                made |= made_by(line)
    assert {"desks" if name == "README.md" else "版面", "shards"} <= made
    assert read == []


def code_of(page: Path) -> list[tuple[str, str]]:
    """What is run, without remarks, and what it prints."""
    found = blocks(page.read_text(encoding="utf-8"))
    return [
        (block.language, without_remarks(block.text) if block.language == "python" else block.text)
        for block in found
        if block.language in {"python", "text"}
    ]


def pages_with_code() -> list[str]:
    """A Chinese page with the code of its English one is left out: it would run the same again."""
    found = {page: code_of(page) for page in pages() if page.parent != ROOT}
    english = {page: page.with_name(page.name.replace(".zh.md", ".md")) for page in found}
    return [
        str(page.relative_to(ROOT))
        for page, code in found.items()
        if any(language == "python" for language, _ in code)
        and (english[page] == page or found.get(english[page]) != code)
    ]


@pytest.mark.parametrize("name", pages_with_code())
def test_pages_print_what_they_say(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The python blocks of a page share one namespace; a text block right after one is exactly what it prints."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "page"}
    above: Block | None = None
    text = (ROOT / name).read_text(encoding="utf-8")
    if "import InferenceClient" in text:  # offline it refuses loopback, too
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for block in blocks(text):
        if block.language == "text" and above is not None and above.language == "python":
            assert capsys.readouterr().out.rstrip() == block.text.rstrip(), f"{name}, line {block.line}"
        if block.language == "python":
            capsys.readouterr()
            exec(compile(block.text, f"{name}, line {block.line}", "exec"), namespace)
        above = block


def test_both_readmes_show_the_same_blocks() -> None:
    english, chinese = (
        [(block.language, block.is_output, block.reason is not None) for block in readme(name)] for name in READMES
    )
    assert english == chinese


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead = [link for link in links(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert not dead, f"{page.relative_to(ROOT)} points to what is not there: {dead}"


UNFINISHED = re.compile(r"\b(FIXME|TODO)\b")


def test_no_page_is_unfinished() -> None:
    pages = [path for path in (*ROOT.glob("README*"), *(ROOT / "docs").rglob("*")) if path.suffix in (".md", ".svg")]
    assert {ROOT / name for name in READMES} < set(pages)
    found = [
        f"{page.relative_to(ROOT)}, line {number}"
        for page in sorted(pages)
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        if UNFINISHED.search(line)
    ]
    assert not found, f"to be written still: {found}"


def names_a_thing(name: str) -> bool:
    """Whether `nn.attention.causal_mask` or `batch.Batch.labels` is there, as a module, an attribute or a field."""
    owner, _, last = f"qkv.{name}".rpartition(".")
    try:
        fields = getattr(pkgutil.resolve_name(owner), "__annotations__", {})
        return last in fields or pkgutil.resolve_name(f"{owner}.{last}") is not None
    except (ImportError, AttributeError):
        return False


def test_terms_name_what_is_in_the_code() -> None:
    rows = [line.split("|") for line in (ROOT / "docs" / "terms.md").read_text(encoding="utf-8").splitlines()]
    terms = [[cell.strip() for cell in row[1:-1]] for row in rows if len(row) == 6 and not row[1].startswith("---")]
    terms = [row for row in terms if row[0] != "中文"]
    assert len(terms) > 80
    for column, what in ((0, "中文"), (1, "English")):
        words = [row[column] for row in terms]
        assert len(set(words)) == len(words), f"a word of the column {what} stands for two things"
    unknown = [name for row in terms for name in re.findall(r"`([^`]+)`", row[2]) if not names_a_thing(name)]
    assert not unknown, f"docs/terms.md names what is not in qkv: {unknown}"
    empty = {row[0] for row in terms if not row[2]} - {
        "独热向量",
        "梯度消失",
        "梯度爆炸",
        "长期依赖",
        "截断",
        "自然语言推断",
    }
    assert not empty, f"docs/terms.md gives no name in the code for {empty}"


def test_a_wrong_name_is_seen() -> None:
    assert names_a_thing("errors.InputError") and names_a_thing("errors")
    assert not names_a_thing("errors.Lost") and not names_a_thing("lost.errors") and not names_a_thing("errors.x.y")


# The checks themselves, on small pages with one fault each.

SOUND = """
<!-- not run: sets up -->
```bash
make setup
```
Then:
```bash
echo '中文   and  0.9871'
touch made
```

<!-- output -->
```text
中文 and 0.9…
```
- in a list:

  ```console
  $ ls \\
  >   made
  made
  $ echo done
  …ne
  ```
```python
from pathlib import Path
assert Path("made").exists()
```
```json
{"shown": "only"}
```
"""


def test_a_sound_page_passes(tmp_path: Path) -> None:
    found = blocks(SOUND)
    assert [block.language for block in found] == ["bash", "bash", "text", "console", "python", "json"]
    assert [block.reason for block in found[:2]] == ["sets up", None]
    assert mistakes(found) == []
    run(found, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("echo done", "false; echo done"), "exit code 1"),
        (("0.9…", "0.8…"), "not printed: \\['中文 and 0.8…'\\]"),
        (("…ne", "dome"), "not printed: \\['dome'\\]"),
        (('Path("made")', 'Path("lost")'), "AssertionError"),
        (("touch made", "touch made | cat missing-file | cat"), "missing-file"),
        (("echo '中文", "no-such-command-here; echo '中文"), "exit code 127"),
    ],
)
def test_a_page_that_lies_is_caught(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        run(blocks(SOUND.replace(*change)), tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("not run: sets up", "not run:"), "needs a reason"),
        (("make setup", "qkv fill"), "only a block that starts with"),
        (("```json", "```sh"), "write the language as one of"),
        (("```json", "```"), "write the language as one of"),
        (("```python", "<!-- output -->\n```text\n1\n```\n```python"), "an output follows"),
        (("```text", "```json"), "an output is a text block"),
    ],
)
def test_a_block_that_would_slip_past_is_named(change: tuple[str, str], message: str) -> None:
    assert any(message in line for line in mistakes(blocks(SOUND.replace(*change))))


def test_an_open_block_is_named() -> None:
    with pytest.raises(AssertionError, match="the block of line 2 is never closed"):
        blocks("text\n```bash\necho\n")


def test_links_are_found() -> None:
    page = """[a](docs/a.md "title") ![b](b.png) [c](https://x.y/z) [d](#part) [e](e.md#part)
<img width="3" src="f.svg"> `[not](a-link.md)` [文](<文 件.md>) [文](%E6%96%87.md)
```text
[nor](this.md)
```
[g]: g.md
"""
    assert links(page) == ["docs/a.md", "b.png", "e.md", "文 件.md", "文.md", "g.md", "f.svg"]
