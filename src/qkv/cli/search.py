"""`qkv search index` and `qkv search`: index texts by their vectors, and find those nearest to a question."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    SentenceModelOption,
    TextColumn,
    ThreadsOption,
    Verb,
    check_not_read,
    choose_device,
    load_model,
    quick_start,
    suffix_of,
)
from qkv.errors import InputError
from qkv.models.folders.hub import default_model
from qkv.text.messages import translate

if TYPE_CHECKING:
    from qkv.api.index_texts import Files
    from qkv.api.model import Model
    from qkv.api.search_index import Hit, Hits, SearchIndex

_HITS = 10
_SHOWN = 400
"""Characters of a hit on a terminal."""
_QUERIES = 256
"""Queries of a file that are searched together."""


def build_index(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files, folders of documents, or - for standard input.")
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="INDEX", help="Folder to write.")] = None,
    model: SentenceModelOption = None,
    text: TextColumn = None,
    document: Annotated[
        bool, typer.Option("--document", help="Each file is one text, however many lines it has.")
    ] = False,
    passage: Annotated[
        int | None, typer.Option("--passage", metavar="N", help="Most tokens of a passage (default 128).")
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option("--pooling", metavar="mean|cls", help="Default: what the model folder says, else mean."),
    ] = None,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Add a graph for approximate search in millions of texts.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier index in --out.")] = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    dtype: DtypeOption = "float32",
    as_json: JsonOption = False,
) -> None:
    """Index texts for qkv search: a folder with their vectors, the texts, and where they are from.

    \b
    qkv search index notes.txt 新闻.txt.xz --out notes
    qkv search index reviews.csv --text Review --out reviews
    qkv search index documents/ --out documents.index
    qkv search index texts.jsonl --out texts --model FOLDER --approximate

    A file has one text per line (.txt, also .gz and .xz), or is csv, tsv, jsonl, parquet or xlsx; other columns are
    kept and shown. Of a folder each .txt file is one text. A text above --passage tokens is cut into passages that
    overlap; nothing is truncated. Texts without a token are left out and counted.

    --json prints one document: out, n_texts, n_passages, n_left_out, width, model.
    """
    if out is None:
        here = " The folder ./index is searched with: qkv search ./index TEXT." if Path("index").is_dir() else ""
        raise InputError(f"Give a folder for the index: --out INDEX.{here}")
    from qkv.cli.terminal import print_json, say, say_windows, warn_unknown

    with quick_start():
        from qkv.api.index_texts import Files, check_index_target
        from qkv.api.search_index import SearchIndex
        from qkv.text.unknown import UnknownCounter

    check_index_target(out, overwrite, "--overwrite")
    source = Files(files, text, document)
    _say_notes(source)
    model = model or default_model("encodes")
    loaded = load_model(model, device=choose_device(device), threads=threads, dtype=dtype)
    unknown = UnknownCounter(loaded.tokenizer)
    with ExitStack() as stack:
        index = SearchIndex.build(
            source,
            out,
            loaded,
            passage=passage,
            pooling=pooling,
            approximate=approximate,
            overwrite=overwrite,
            progress=_show_progress(stack, loaded),
            unknown=unknown,
            watch=say_windows(),
        )
    facts, built = index.facts, index.built
    assert built is not None
    if as_json:
        shown = {name: facts[name] for name in ("n_texts", "n_passages", "n_left_out", "width")}
        print_json({"out": str(out), **shown, "model": facts["model"]["name"]})
    else:
        say(f"{out}: {facts['n_texts']:,} texts, {facts['n_passages']:,} vectors of {facts['width']} numbers")
        say(f'Now ask: qkv search {"./index" if str(out) == "index" else out} "a question"')
    if built.n_left_out:
        say(f"note: texts without a vector, which are left out: {built.n_left_out:,} ({'; '.join(built.left_out)})")
    warn_unknown(unknown.facts(), model)


def _say_notes(source: "Files") -> None:
    from qkv.cli.terminal import say

    for note in source.notes:
        say(translate(note))


def _show_progress(stack: ExitStack, model: "Model") -> Callable[[int, int], None]:
    """Progress whose total is known when the texts have been read; a note on the model comes before."""
    from qkv.cli.terminal import Advance, progress, warn_not_for_sentences

    shown: list[Advance] = []

    def advance(done: int, total: int) -> None:
        if not shown:
            warn_not_for_sentences(model)
            shown.append(stack.enter_context(progress("texts", total)))
        shown[0](done)

    return advance


_builder = typer.Typer(rich_markup_mode=None, add_completion=False)
_builder.command("index", cls=Verb)(build_index)


class SearchVerb(Verb):
    """`qkv search INDEX …`, and `qkv search index …`, which is another command."""

    def __init__(self, *words: Any, **how: Any) -> None:
        super().__init__(*words, **how)
        self.commands = {"index": typer.main.get_command(_builder)}

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if args[:1] == ["index"]:
            return self.commands["index"].make_context(f"{info_name} index", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def search_texts(
    folder: Annotated[str, typer.Argument(metavar="INDEX", help="Folder of an index; its own name `index`: ./index.")],
    queries: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT...", help="Questions; - reads them from standard input.")
    ] = None,
    k: Annotated[int, typer.Option("-k", metavar="N", help="Number of hits.")] = _HITS,
    rerank: Annotated[
        str | None,
        typer.Option("--rerank", metavar="RUN", help="Model fine-tuned on text pairs, which orders the best hits."),
    ] = None,
    candidates: Annotated[
        int, typer.Option("--candidates", metavar="N", help="Number of hits that --rerank orders.")
    ] = 50,
    relevant: Annotated[
        str | None, typer.Option("--relevant", metavar="LABEL", help="Label of --rerank that says that a text fits.")
    ] = None,
    passages: Annotated[
        bool, typer.Option("--passages", help="Each passage of a text is a hit, instead of the nearest one.")
    ] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Search exactly, also if the index is approximate.")] = False,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="File of questions: lines, or a table.")
    ] = None,
    text: TextColumn = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write .jsonl, .csv, .tsv, .parquet or .xlsx.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="FOLDER", help="Where the model of the index is now, if it was moved."),
    ] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the texts of an index that are nearest in meaning to a question, by the cosine of their vectors.

    First index the texts: qkv search index FILE... --out INDEX (see qkv search index --help).

    \b
    qkv search index notes.txt --out notes
    qkv search notes "how do I return a parcel?" "怎么退货"
    qkv search notes "how do I return a parcel?" --rerank run -k 5
    qkv search notes --file questions.txt --out hits.csv

    A hit of a long text is its nearest passage, with its position in characters. Search is exact unless the index was
    built with --approximate.

    --json prints one line per question: query, hits (score, similarity, text, start, end, length, number, file, line,
    columns). With --out the file has a row per hit, with query, query_line and rank; --json then prints one document:
    out, n_queries, n_hits, n_left_out.
    """
    if (file is None) == (not queries):
        raise InputError('Give questions (qkv search INDEX "a question"), or a file with --file; one of the two.')
    if text is not None and file is None:
        raise InputError("--text names a column of a file: give the file with --file.")
    if relevant is not None and rerank is None:
        raise InputError("--relevant names a label of a reranker: give it with --rerank.")
    check_not_read(out, [file])
    from qkv.api.table_files import TABLES, check_table_library

    suffix = suffix_of(out, TABLES) if out is not None else None
    if out is not None and suffix is not None:
        check_table_library(out, suffix)
    with quick_start():
        from qkv.api.index_texts import Files, Record
        from qkv.api.search_index import SearchIndex

        index = SearchIndex.open(folder, model, device=choose_device(device), threads=threads)
    given: Iterable[Record]
    if file is not None or queries == ["-"]:
        given = Files(["-"] if file is None else [file], text)
        _say_notes(given)
    else:
        given = [Record(one) for one in queries or ()]
    how = {"rerank": _load_reranker(rerank, device, threads), "candidates": candidates, "relevant": relevant}
    how |= {"exact": exact, "passages": passages}
    asked = _Asked(
        index, given, lenient=file is not None or queries == ["-"], search=lambda some: index.search(some, k, **how)
    )
    if out is not None and suffix is not None:
        _write_hits(asked, out, suffix, as_json)
    else:
        for number, (_, hits) in enumerate(asked):
            _show(hits, number, as_json)
    if k > len(index) and k != _HITS and not passages:
        from qkv.cli.terminal import say

        say(f"note: -k is {k:,}, and the index has {len(index):,} texts: all are shown.")
    asked.report()


def _load_reranker(name: str | None, device: str, threads: int | None) -> Any:
    if name is None:
        return None
    from qkv.models.family import HAS_TASK

    return load_model(name, HAS_TASK, device=choose_device(device), threads=threads)


class _Asked:
    """The hits of each question, a few hundred questions at a time. Those of a file without a word are left out."""

    def __init__(
        self,
        index: "SearchIndex",
        given: "Iterable[Any]",
        lenient: bool,
        search: "Callable[[list[str]], list[Hits]]",
    ) -> None:
        from qkv.text.unknown import UnknownCounter

        self._index, self._given, self._lenient, self._search = index, given, lenient, search
        self._unknown = UnknownCounter(index.model.tokenizer)
        self.count = self.left_out = 0

    def __iter__(self) -> "Iterator[tuple[int | None, Hits]]":
        from qkv.data.batch import chunks

        for some in chunks(self._kept(), _QUERIES, lambda one: 0, 1):
            for one, hits in zip(some, self._search([one.text for one in some]), strict=True):
                self._count_unknown(one.text)
                self.count += 1
                yield one.line, hits
        if not self.count:
            raise InputError("There is no question: the input is empty.")

    def _kept(self) -> Iterator[Any]:
        for one in self._given:
            if self._lenient and self._index.model.lacks(one.text):
                self.left_out += 1
            else:
                yield one

    def _count_unknown(self, text: str) -> None:
        from qkv.text.unknown import count_unknown

        tokenizer = self._index.model.tokenizer
        ids = tokenizer.encode_ids([text])[0]
        self._unknown.add([text], count_unknown(tokenizer, ids), len(ids))

    def report(self) -> None:
        from qkv.cli.terminal import say, warn_unknown

        if self.left_out:
            say(f"note: lines without a question, which are left out: {self.left_out:,}")
        warn_unknown(self._unknown.facts())


def _write_hits(asked: _Asked, out: Path, suffix: str, as_json: bool) -> None:
    from qkv.api.table_files import table_file
    from qkv.cli.terminal import print_json, progress, say

    n_hits = 0
    with progress("questions", None) as advance, table_file(out, suffix) as table:
        for line, hits in asked:
            for rank, hit in enumerate(hits, 1):
                n_hits += 1
                table.write({"query": hits.query, "query_line": line, "rank": rank, **hit.to_dict()})
            advance(1)
    if as_json:
        facts = {"out": str(out), "n_queries": asked.count, "n_hits": n_hits, "n_left_out": asked.left_out}
        print_json(facts)
    else:
        say(f"{out}: {n_hits:,} hits of {asked.count:,} questions")


def _show(hits: "Hits", number: int, as_json: bool) -> None:
    from qkv.cli.terminal import bar, print_json, print_table

    if as_json:
        print_json({"query": hits.query, "hits": [one.to_dict() for one in hits]})
        return
    if number:
        typer.echo()
    rows = [[f"{one.score:.3f}", bar(one.score, 8), _shown_text(one), _shown_place(one)] for one in hits]
    print_table(["score", "", hits.query, "file"], rows, right=(0,))


def _shown_text(hit: "Hit") -> str:
    from qkv.cli.terminal import shorten

    return shorten(" ".join(hit.text.split()), _SHOWN)


def _shown_place(hit: "Hit") -> str:
    """The file and line, the characters of a passage, and the other columns."""
    parts = [hit.place]
    if hit.end - hit.start < hit.length:
        parts.append(translate(f"characters {hit.start:,}–{hit.end:,} of {hit.length:,}"))
    parts += [f"{name}: {value}" for name, value in hit.columns.items() if value not in (None, "")]
    return "\n".join(part for part in parts if part)
