"""Linear probes: on what can be told apart and on noise; words found by their characters; the sets read and checked."""

import json
from pathlib import Path

import pytest
import torch

from qkv.errors import InputError
from qkv.metrics.intervals import wilson_interval
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import SPECIAL
from tests.project.test_distance import drawn
from tests.support.below_readers import make_elmo
from tests.support.bench_modules import bench_module
from tests.support.folders import make_folder
from tests.support.word_vectors import make_vectors_folder

probe_data = bench_module("probe_data")
probe_fit = bench_module("probe_fit")
probe_readers = bench_module("probe_readers")
probes = bench_module("probes")
CPU = torch.device("cpu")


def test_what_is_separable_is_separated() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (300,), generator=generator)
    x = torch.randn(300, 5, generator=generator) + 8 * torch.nn.functional.one_hot(y, 5)
    x[:, 4] = 7.0  # says nothing, and must not become NaN
    probe = probe_fit.best((x[:200], y[:200]), (x[200:250], y[200:250]), 3)
    assert probe_fit.right(probe, x[250:], y[250:]) == 50 and probe.weight.isfinite().all()


def test_noise_teaches_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(3000, 4, generator=generator), torch.randint(0, 2, (3000,), generator=generator)
    probe = probe_fit.best((x[:1000], y[:1000]), (x[1000:1500], y[1000:1500]), 2)
    low, high = wilson_interval(probe_fit.right(probe, x[1500:], y[1500:]), 1500)
    assert low < 0.5 < high


def test_a_fit_is_where_the_gradient_ends() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(200, 3, generator=generator), torch.randint(0, 2, (200,), generator=generator)
    probe = probe_fit.fitted(x, y, 2, 0.1)
    weight = probe.weight.clone().requires_grad_()
    scores = torch.nn.functional.linear((x - probe.mean) * probe.scale, weight, probe.bias)
    loss = torch.nn.functional.cross_entropy(scores, y) + 0.05 * weight.square().sum()
    assert torch.autograd.grad(loss, weight)[0].abs().max() < 1e-4


@pytest.mark.parametrize(
    ("scores", "labels", "right"),
    [([0.1, 0.9, 0.2, 0.8], [0, 1, 0, 1], 4), ([0.5, 0.5, 0.5], [1, 0, 1], 2), ([0.1, 0.2, 0.3], [0, 0, 0], 3)],
)
def test_a_threshold_parts_as_well_as_can_be(scores: list[float], labels: list[int], right: int) -> None:
    at = probe_fit.threshold(torch.tensor(scores), torch.tensor(labels))
    assert sum((score > at) == bool(label) for score, label in zip(scores, labels, strict=True)) == right


def test_pieces_of_words() -> None:
    tokenizer = Tokenizer.from_vocabulary([*SPECIAL, "cat", "##s", "sleep", "!", "é", "e"], "wordpiece", lowercase=True)
    sentence = ["Cats", "!!", "sleep", "\u200b", "é!"]
    encoded = tokenizer.encode(" ".join(sentence))
    pieces = probe_readers.pieces_of_words(sentence, encoded)
    assert [[encoded.tokens[token] for token in word] for word in pieces] == [
        ["cat", "##s"],
        ["!", "!"],
        ["sleep"],
        ["[CLS]"],  # nothing is left of it
        ["e", "!"],
    ]


def test_word_vectors_are_the_same_everywhere(tmp_path: Path) -> None:
    reader = probe_readers.open_reader(make_vectors_folder(tmp_path / "vectors"), CPU)
    found = reader.read([["king", "lost"], ["a", "king"]], [[0, 1], [1]])
    assert found.shape == (3, 1, 4)
    assert torch.equal(found[0], found[2]) and not found[1].any()
    assert reader.coverage(["king", "lost"]) == 0.5
    assert probes.python_twice(reader) is None  # it is not among the words


def test_elmo_reads_what_it_has_never_met(tmp_path: Path) -> None:
    reader = probe_readers.open_reader(make_elmo(tmp_path / "elmo"), CPU)
    assert reader.layers == ("0", "1", "2")
    found = reader.read([["unheard", "the"], ["unseen", "the"], ["the", "unheard"]], [[0, 1], [0], [1]])
    assert found.shape == (4, 3, 10)
    assert torch.allclose(found[0, 0], found[3, 0], atol=1e-6)  # spelled alike, and read otherwise
    assert not torch.allclose(found[0, 1:], found[3, 1:], atol=1e-4)
    assert not torch.allclose(found[0, 0], found[2, 0], atol=1e-4)
    cosines = probes.python_twice(reader)
    assert cosines[0] == pytest.approx(1, abs=1e-5) and all(cosine < 0.9999 for cosine in cosines[1:])


def test_bert_gives_all_layers_whatever_lies_beside(tmp_path: Path) -> None:
    reader = probe_readers.open_reader(make_folder(tmp_path / "bert"), CPU)
    sentences = [["the", "cat"], ["the", "dog", "the"]]
    together = reader.read(sentences, [[1], [0, 2]])
    assert together.shape[:2] == (3, len(reader.layers))
    assert torch.allclose(together[1:], reader.read(sentences[1:], [[0, 2]]), atol=1e-5)
    with pytest.raises(InputError, match="tokens; the model takes"):
        reader.read([["the"] * 600], [[0]])


def conll(path: Path, sentences: int) -> None:
    words = {"the": "DT", "cat": "NN", "sleeps": "VBZ", "dog": "NN"}
    lines = ["-DOCSTART- -X- O O", ""]
    for number in range(sentences):
        chosen = ["the", ("cat", "dog")[number % 2], "sleeps"]
        lines += [*(f"{word} {words[word]} O O" for word in chosen), ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def wic(folder: Path, part: str, pairs: int) -> None:
    line = "cat\tN\t1-2\tthe cat sleeps\tnow the cat"
    (folder / f"{part}.data.txt").write_text(f"{line}\n" * pairs, encoding="utf-8")
    (folder / f"{part}.gold.txt").write_text("T\nF\n" * (pairs // 2), encoding="utf-8")


def test_sets_are_read(tmp_path: Path) -> None:
    conll(tmp_path / "eng.train", 4)
    found = probe_data.read_tagged(tmp_path / "eng.train")
    assert [one.words[1] for one in found] == ["cat", "dog", "cat", "dog"] and found[0].tags == ["DT", "NN", "VBZ"]
    assert len(probe_data.some(found, 4)) == 2 and probe_data.some(found, None) == found
    wic(tmp_path, "dev", 4)
    pairs = probe_data.read_pairs(tmp_path, "dev")
    assert [pair.same for pair in pairs] == [True, False, True, False]
    assert pairs[0].first[pairs[0].places[0]] == pairs[0].second[pairs[0].places[1]] == pairs[0].word == "cat"


@pytest.mark.parametrize(
    ("line", "gold", "message"),
    [
        ("cat\tN\t1-2\tthe cat", "T", "line 1: five fields"),
        ("cat\tN\t1-2\tthe cat\tthe cat", "T", "there is no word 2 in 'the cat'"),
        ("cat\tN\t1-1\tthe cat\tthe cat", "yes", "T or F"),
        ("cat\tN\t1-1\tthe cat\tthe cat", "T\nF", "1 lines and dev.gold.txt 2"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, gold: str, message: str) -> None:
    (tmp_path / "dev.data.txt").write_text(line + "\n", encoding="utf-8")
    (tmp_path / "dev.gold.txt").write_text(gold + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        probe_data.read_pairs(tmp_path, "dev")
    with pytest.raises(InputError, match="There is no file .*--data"):
        probe_data.read_tagged(tmp_path / "eng.train")


def test_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    for name in ("conll2003", "wic"):
        (data / name).mkdir(parents=True)
    conll(data / "conll2003" / "eng.train", 20)
    conll(data / "conll2003" / "eng.testa", 6)
    for part in ("train", "dev", "test"):
        wic(data / "wic", part, 8)
    models = [make_vectors_folder(tmp_path / "w2v"), make_elmo(tmp_path / "elmo"), make_folder(tmp_path / "bert")]
    out = tmp_path / "found.json"
    words = ["probes", "--models", *map(str, models), "--data", str(data), "--threads", "1", "--json", str(out)]
    monkeypatch.setattr("sys.argv", words)
    probes.main()
    found = json.loads(out.read_text(encoding="utf-8"))
    assert list(found["models"]) == ["word2vec", "ELMo", "BERT"]
    assert all(score["right"] == 1 for score in found["models"]["ELMo"]["part of speech"])
    assert found["models"]["word2vec"]["wic"][0]["right"] == 0.5 == found["wic chance"]["right"]
    assert found["baselines"]["most frequent tag of the word"]["right"] == 1
    assert "Right of 100" in capsys.readouterr().out
    english, chinese = drawn(found, tmp_path, "probes")
    assert "Part of speech" in english and "词性" in chinese


def test_nothing_to_look_into(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["probes"])
    probes.main()  # as `make bench` calls it
    assert "--models" in capsys.readouterr().out
