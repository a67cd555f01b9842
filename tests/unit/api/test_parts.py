"""Large inputs in parts, without a cluster: each part on its own gives what the local verb gives for the whole."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from qkv.api.part_jobs import EmbedParts, PredictParts, TranslateParts
from qkv.api.parts import CutFile, PartFolder, PartLimits, RowFile, cut_file, find_files, plan_rows, suffix_of_parts
from qkv.cli.main import main
from qkv.errors import InputError
from tests.support.row_parts import SMALL, AnyJob, do, model_of, plan_of, write_csv
from tests.support.served_models import sentence_folder, translation_folder
from tests.support.task_folders import task_folder
from tests.support.word_vectors import make_vectors_folder

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("parts")
    made = {
        "classify": task_folder(root / "classify", "classify"),
        "pairs": task_folder(root / "pairs", "classify", paired=True),
        "tag": task_folder(root / "tag", "tag", seed=3),
        "answer": task_folder(root / "answer", "answer"),
        "sentences": sentence_folder(root / "sentences"),
        "words": make_vectors_folder(root / "words"),
        "en-zh": translation_folder(root / "en-zh", "en", "zh"),
    }
    return {name: str(path) for name, path in made.items()}


def rows_of(place: Path) -> list[dict[str, Any]]:
    """The rows of a file, or of the parts in a folder, in order."""
    files = sorted(place.glob("part-*")) if place.is_dir() else [place]
    if place.suffix == ".parquet":
        schemas = [pq.read_schema(file).remove_metadata() for file in files]
        assert all(schema == schemas[0] for schema in schemas), "the parts have the same columns"
        return [row for file in files for row in pq.read_table(file).to_pylist()]
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def assert_alike(found: Any, expected: Any) -> None:
    """Equal up to the last digits of numbers: texts that are computed together round differently."""
    if isinstance(expected, float):
        assert found == pytest.approx(expected, abs=2e-6)
    elif isinstance(expected, dict):
        assert sorted(found) == sorted(expected)
        for name in expected:
            assert_alike(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    elif isinstance(expected, str) and expected[:1] in "[{" and expected:
        assert_alike(json.loads(found), json.loads(expected))  # lists in a cell
    else:
        assert found == expected


def write_table(path: Path, count: int = 40) -> Path:
    texts = [None if n % 9 == 4 else f"the cat is in paris {n}" for n in range(count)]
    numbers = pa.array([None if n % 2 else n for n in range(count)], pa.int16())
    days = pa.array([n * 86_400_000 for n in range(count)], pa.timestamp("ms"))
    pq.write_table(
        pa.table({"text": texts, "n": numbers, "day": days, "tags": [["a"]] * count}), path, row_group_size=9
    )
    return path


def write_json(path: Path, count: int = 40) -> Path:
    """The types of a field are told by its last rows."""
    rows = [
        {"text": "" if n % 8 == 0 else f"猫在巴黎 {n}", "score": n, "more": None if n < 30 else 2**70}
        | ({"score": 0.5, "later": True} if n == count - 1 else {})
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n\n" for row in rows), encoding="utf-8")
    return path


def write_lines(path: Path, count: int = 40) -> Path:
    path.write_text("".join(f"{'' if n % 11 == 3 else f'the cat 猫 {n}'}\r\n" for n in range(count)), encoding="utf-8")
    return path


WRITERS: Mapping[str, Callable[[Path], Path]] = {
    "a.csv": write_csv, "a.parquet": write_table, "a.jsonl": write_json, "a.txt": write_lines
}  # fmt: skip


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@pytest.mark.parametrize("name", WRITERS)
def test_predictions_are_those_of_the_local_verb(
    tmp_path: Path, folders: dict[str, str], name: str, suffix: str
) -> None:
    file = WRITERS[name](tmp_path / name)
    out, local = tmp_path / f"out{suffix}", tmp_path / f"local{suffix}"
    facts = do(PredictParts.of(model_of(folders["classify"]), {}), out, file)
    assert main(["predict", folders["classify"], str(file), "--out", str(local), "--threads", "1"]) == 0
    found, expected = rows_of(out), rows_of(local)
    assert_alike(found, expected)
    assert facts["n_results"] + facts["n_empty"] == len(expected) and facts["n_parts"] in (6, 9)
    if suffix == ".parquet":
        assert pq.read_schema(out / "part-00000.parquet").equals(pq.read_schema(local))


@pytest.mark.parametrize("name", WRITERS)
def test_vectors_are_those_of_the_local_verb(tmp_path: Path, folders: dict[str, str], name: str) -> None:
    file, out, local = WRITERS[name](tmp_path / name), tmp_path / "out", tmp_path / "local.parquet"
    job = EmbedParts(model_of(folders["sentences"]), skip_empty=name == "a.txt")
    facts = do(job, out, file)
    skip = ["--skip-empty"] if job.skip_empty else []
    assert main(["embed", "-f", str(file), "-m", folders["sentences"], "-o", str(local), *skip]) == 0
    assert_alike(
        [row for part in sorted(out.glob("part-*")) for row in pq.read_table(part).to_pylist()], rows_of(local)
    )
    assert pq.read_schema(out / "part-00000.parquet").field("vector").type == pa.list_(pa.float32(), facts["width"])


@pytest.mark.parametrize("task", ["pairs", "tag", "answer"])
def test_other_tasks(tmp_path: Path, folders: dict[str, str], task: str) -> None:
    fields = {"pairs": ("text", "pair"), "tag": ("text",), "answer": ("question", "context")}[task]
    file, out, local = tmp_path / "a.jsonl", tmp_path / "out.parquet", tmp_path / "local.parquet"
    rows = [{name: f"the {name} is in paris {n}" for name in fields} for n in range(20)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"text": "text", "pair": "pair"} if task == "pairs" else {}
    do(PredictParts.of(model_of(folders[task]), columns), out, file)
    options = [word for role, name in columns.items() for word in (f"--{role}", name)]
    assert main(["predict", folders[task], str(file), "-o", str(local), "--threads", "1", *options]) == 0
    assert_alike(rows_of(out), rows_of(local))


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_translations_are_those_of_the_local_verb(tmp_path: Path, folders: dict[str, str], suffix: str) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("".join(f"{'' if n == 3 else f'the cat sat on {n}'}\tmore\n" for n in range(20)))
    local, out = tmp_path / "local.jsonl", tmp_path / f"out{suffix}"
    facts = do(TranslateParts(model_of(folders["en-zh"]), decoding={"n_best": 2, "beams": 2}), out, file)
    words = ["translate", folders["en-zh"], str(file), "-o", str(local), "--n-best", "2", "--threads", "1"]
    assert main(words) == 0
    found, expected = rows_of(out), rows_of(local)
    if suffix == ".parquet":
        expected = [
            {"n_best": None} | {key: json.dumps(one) if isinstance(one, list) else one for key, one in row.items()}
            for row in expected
        ]
    assert_alike(found, expected)
    assert facts["n_results"] == 20


def test_several_files_are_counted_as_one_input(tmp_path: Path, folders: dict[str, str]) -> None:
    (tmp_path / "in" / "b").mkdir(parents=True)
    write_csv(tmp_path / "in" / "b" / "2.csv", 10)
    write_csv(tmp_path / "in" / "1.csv", 20)
    (tmp_path / "in" / "_done.csv").write_text("not read")
    job = PredictParts.of(model_of(folders["classify"]), {})
    do(job, tmp_path / "out.parquet", tmp_path / "in")
    rows = rows_of(tmp_path / "out.parquet")
    assert [row["row"] for row in rows] == list(range(1, 31))
    assert [row["file"] for row in rows] == ["1.csv"] * 20 + ["b/2.csv"] * 10
    assert [row["line"] for row in rows if row["file"] == "b/2.csv"][:3] == [3, 4, 6]
    do(job, tmp_path / "again.parquet", tmp_path / "in" / "?.csv", tmp_path / "in" / "b" / "2.csv")
    assert rows_of(tmp_path / "again.parquet") == rows


def test_parts_are_cut_by_rows_bytes_and_row_groups(tmp_path: Path, folders: dict[str, str]) -> None:
    job = PredictParts.of(model_of(folders["classify"]), {})

    def cuts(file: Path, *limits: int) -> list[int]:
        return [part.rows for part in plan_of(job, ".parquet", file, limits=PartLimits(*limits)).parts]

    lines = tmp_path / "a.txt"
    lines.write_text("the cat\n" * 10 + "the dog " * 100 + "\n" + "the cat\n" * 4)
    assert cuts(lines, 6) == [6, 6, 3] and cuts(lines, 100) == [15]
    assert cuts(lines, 100, 40) == [5, 5, 1, 4], "a row that is larger than a part is one by itself"
    table = write_table(tmp_path / "a.parquet", 40)  # in groups of 9
    assert cuts(table, 20) == [18, 18, 4] and cuts(table, 4) == [4, 4, 1] * 4 + [4]
    (tmp_path / "empty.csv").write_text("text,label\n")
    assert cuts(tmp_path / "empty.csv", 6) == []


def test_work_is_resumed_and_ends_with_the_same_bytes(tmp_path: Path, folders: dict[str, str]) -> None:
    file, job = write_csv(tmp_path / "a.csv"), PredictParts.of(model_of(folders["classify"]), {})
    first, second = tmp_path / "first", tmp_path / "second"
    do(job, first, file)
    contents = {one.name: one.read_bytes() for one in first.rglob("*") if one.is_file()}
    shutil.copytree(first, second)
    for name in ("_summary.json", "_done/part-00001.json", "_done/part-00004.json", "part-00004.parquet"):
        (second / name).unlink()
    (second / "part-00002.parquet").write_bytes(b"cut short")
    assert do(job, second, file)["n_kept"] == 3
    assert {one.name: one.read_bytes() for one in second.rglob("*") if one.is_file()} == contents
    assert do(job, second, file)["n_kept"] == 6
    (second / "_done" / "part-00003.json").write_text('{"key"')  # a damaged marker, and a lost file of finished work
    (second / "part-00001.parquet").unlink()
    assert do(job, second, file)["n_kept"] == 4
    assert {one.name: one.read_bytes() for one in second.rglob("*") if one.is_file()} == contents


def test_a_corrected_row_costs_its_part_alone(tmp_path: Path, folders: dict[str, str]) -> None:
    """A row that the model refuses ends a job whose other parts are done; when it is corrected, they are kept."""
    file = tmp_path / "a.txt"
    rows = [f"the cat sat on {n}" for n in range(20)]
    file.write_text("\n".join([*rows[:9], "the cat " * 60, *rows[9:]]) + "\n")
    job, out = TranslateParts(model_of(folders["en-zh"])), tmp_path / "out.jsonl"
    plan, folder, answer = (
        plan_of(job, ".jsonl", file),
        PartFolder(str(out), ".jsonl", job.settings()),
        job.open_model(),
    )
    with pytest.raises(InputError, match=r"a.txt, line 10 .* tokens"):
        folder.write(job, answer, plan.parts[1])
    for number in (0, 2):
        folder.write(job, answer, plan.parts[number])
    assert [one.name for one in sorted(out.iterdir())] == ["_done", "part-00000.jsonl", "part-00002.jsonl"]
    file.write_text("\n".join([*rows[:9], "the cat", *rows[9:]]) + "\n")
    assert do(job, out, file) | {"n_kept": 2, "n_parts": 3} == do(job, tmp_path / "new.jsonl", file) | {"n_kept": 2}
    assert rows_of(out) == rows_of(tmp_path / "new.jsonl")


def test_what_has_changed_is_named(tmp_path: Path, folders: dict[str, str]) -> None:
    file, out = write_csv(tmp_path / "a.csv"), tmp_path / "out"
    job = PredictParts.of(model_of(folders["classify"]), {})
    do(job, out, file)
    other = PredictParts.of(model_of(folders["classify"]), {"text": "编号"})
    with pytest.raises(InputError, match='parts of another command: --text was not given and is "编号" now'):
        do(other, out, file)
    with pytest.raises(InputError, match="parts that another model has answered"):
        do(PredictParts.of(model_of(folders["pairs"]), {"text": "text", "pair": "label"}), out, file)
    write_csv(file, 41)
    with pytest.raises(InputError, match="the input has changed since they were written"):
        do(job, out, file)
    plan, folder = plan_of(job, ".parquet", file), PartFolder(str(tmp_path / "new"), ".parquet", job.settings())
    write_csv(file, 42)
    with pytest.raises(InputError, match="has changed since the work was planned"):
        folder.write(job, job.open_model(), plan.parts[0])
    assert not list((tmp_path / "new").glob("*"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty: it has notes.txt"):
        do(job, tmp_path / "mine", file)


def test_rows_that_cannot_be_used_are_found_before_the_work(tmp_path: Path, folders: dict[str, str]) -> None:
    job = PredictParts.of(model_of(folders["classify"]), {})

    def refused(name: str, content: str, kind: AnyJob = job) -> str:
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError) as error:
            plan_of(kind, ".parquet", tmp_path / name)
        return str(error.value)

    assert "a.jsonl, line 3 is not JSON" in refused("a.jsonl", '{"text": "a"}\n{"text": "b"}\n{"text": \n')
    assert "the quote before" in refused("a.csv", 'text,label\na,b\n"c,d\n')
    assert "read whole" in refused("a.json", '{"data": [{"text": "a"},\n {"text": "b"}]}')
    embeds = EmbedParts(model_of(folders["sentences"]))
    assert "a.txt, line 2 is empty. Take it out, or add --skip-empty" in refused("a.txt", "a\n\nb\n", embeds)
    assert "is empty" in refused("b.txt", "", embeds)
    write_csv(tmp_path / "c.csv", 5)
    (tmp_path / "d.csv").write_text("text,other\na,b\n")
    with pytest.raises(InputError, match="they do not fit in one table"):
        plan_of(job, ".parquet", tmp_path / "c.csv", tmp_path / "d.csv")
    assert len(plan_of(job, ".jsonl", tmp_path / "c.csv", tmp_path / "d.csv").parts) == 2


def test_a_file_that_lies_among_texts(tmp_path: Path) -> None:
    """A folder of texts means one text a file to `qkv predict`, so a cluster does not read it as lines."""
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(InputError, match=r"each of which is one text to this verb.*\*\.txt'"):
        find_files([str(tmp_path)], "out", reads_documents=True)
    assert find_files([str(tmp_path / "*.txt")], "out", True) == [RowFile(str(tmp_path / "a.txt"), None)]
    with pytest.raises(InputError, match="where the results go"):
        find_files([str(tmp_path)], str(tmp_path))
    with pytest.raises(InputError, match="has no file to read"):
        find_files([str(tmp_path / "*.csv")], "out")
    with pytest.raises(InputError, match=r"looks like a \.csv file"):
        suffix_of_parts("answers.csv")


def test_words_without_vectors(tmp_path: Path, folders: dict[str, str]) -> None:
    file = tmp_path / "a.txt"
    file.write_text("king\nxyzzy\n" * 5)
    job = EmbedParts(model_of(folders["words"]))
    with pytest.raises(InputError, match="a.txt, line 2 has no vector: its only word"):
        do(job, tmp_path / "out", file)
    facts = do(EmbedParts(model_of(folders["words"]), skip_empty=True), tmp_path / "out.jsonl", file)
    assert (facts["n_texts"], facts["n_without_vector"]) == (5, 0)


@pytest.fixture
def bucket() -> Iterator[str]:
    fsspec = pytest.importorskip("fsspec")
    yield "memory://parts"
    fsspec.filesystem("memory").rm("/parts", recursive=True)


def test_objects_are_read_and_written(
    tmp_path: Path, folders: dict[str, str], bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """memory:// is in this process alone, so a cluster refuses it; here it stands for any store."""
    from qkv.data.stores import open_store

    store = open_store(bucket)
    for number in (1, 2):
        store.put(f"in/{number}.csv", write_csv(tmp_path / f"{number}.csv", 10))
    job = PredictParts.of(model_of(folders["classify"]), {})
    files = find_files([f"{bucket}/in/*.csv"], f"{bucket}/out")
    assert [file.shown for file in files] == ["1.csv", "2.csv"]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (copies := tmp_path / f"qkv-inputs-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(InputError, match="belongs to another user"):
        cut_file(job, files[0], SMALL, ".jsonl")
    copies.unlink()
    cut: list[CutFile] = [cut_file(job, file, SMALL, ".jsonl") for file in files]
    plan, folder = plan_rows(cut, ".jsonl"), PartFolder(f"{bucket}/out", ".jsonl", job.settings())
    answer = job.open_model()
    done = {part.number: folder.write(job, answer, part) for part in plan.parts}
    folder.finish(plan, done, {})
    do(job, tmp_path / "local.jsonl", tmp_path / "1.csv", tmp_path / "2.csv")
    for part in plan.parts:
        name = folder.file_of(part)
        assert store.read(f"out/{name}") == (tmp_path / "local.jsonl" / name).read_bytes()
    assert len(folder.take_over(plan, {part.name: done[part.number] for part in plan.parts})) == 4
