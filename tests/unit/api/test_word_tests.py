"""Test sets for word vectors, as they are passed around: tabs, spaces, line ends of Windows, and what is wrong."""

from pathlib import Path

import pytest

from qkv.api.vector_scores import KNOWN, Analogies, RatedPairs, find_tests, read_test
from qkv.errors import InputError


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def test_analogies(tmp_path: Path) -> None:
    found = read_test(write(tmp_path / "a.txt", ": one\r\na b c d\r\n\r\n: 二\n猫 狗 大 小\ne f g h\n: empty\n"), "A")
    assert isinstance(found, Analogies) and found.name == "A"
    assert [(section.name, section.questions) for section in found.sections] == [
        ("one", [("a", "b", "c", "d")]),
        ("二", [("猫", "狗", "大", "小"), ("e", "f", "g", "h")]),
    ]
    bare = read_test(write(tmp_path / "b.txt", "a b c d\n"), "B")
    assert isinstance(bare, Analogies) and bare.sections[0] == ("", [("a", "b", "c", "d")])


def test_pairs(tmp_path: Path) -> None:
    found = read_test(write(tmp_path / "p.txt", "\ufeff# rated by people\ntiger\tcat\t7.35\r\n钱\t 现金\t4\n"), "P")
    assert isinstance(found, RatedPairs) and found.pairs == [("tiger", "cat", 7.35), ("钱", "现金", 4.0)]
    spaced = read_test(write(tmp_path / "s.txt", "a b 1\n"), "S")
    assert isinstance(spaced, RatedPairs) and spaced.pairs == [("a", "b", 1.0)]
    phrases = read_test(write(tmp_path / "t.txt", "New York\tBoston\t3\n"), "T")
    assert isinstance(phrases, RatedPairs) and phrases.pairs == [("New York", "Boston", 3.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.txt is empty"),
        ("\n# nothing\n", "t.txt is empty"),
        (": one\na b c\n", "t.txt, line 2 has 3 words, where an analogy has four"),
        ("a b c d\na b c d e\n", "t.txt, line 2 has 5 words"),
        ("a\tb\t1\na\tb\n", "t.txt, line 2 is not two words and a number"),
        ("a\tb\tx\n", "t.txt, line 1 is not two words and a number"),
        ("a\tb\tnan\n", "t.txt, line 1 is not two words and a number"),
        ("a\t\t1\n", "t.txt, line 1 is not two words and a number"),
    ],
)
def test_faults_name_their_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_test(write(tmp_path / "t.txt", text), "T")


def test_known_sets_are_found_in_folders(tmp_path: Path) -> None:
    write(tmp_path / "wordsim_zh" / "240.txt", "男人\t女人\t8.5\n")
    write(tmp_path / "analogy_zh" / "semantic.txt", ": geography\na b c d\n")
    own = write(tmp_path / "own.txt", "a b 1\n")
    assert [test.name for test in find_tests([tmp_path])] == ["CA8 semantic", "WordSim-240"]
    assert [test.name for test in find_tests([tmp_path / "wordsim_zh", own])] == ["WordSim-240", "own"]
    assert find_tests([tmp_path / "wordsim_zh" / "240.txt"])[0].name == "WordSim-240"
    write(tmp_path / "anywhere" / "questions-words.txt", ": one\na b c d\n")
    assert [test.name for test in find_tests([tmp_path / "anywhere"])] == ["Google"]
    with pytest.raises(InputError, match="holds none of the known test sets"):
        (tmp_path / "empty").mkdir()
        find_tests([tmp_path / "empty"])
    with pytest.raises(InputError, match="nowhere.txt"):
        find_tests([tmp_path / "nowhere.txt"])


def test_the_published_sets(shared_data: Path) -> None:
    found = {test.name: test for test in find_tests([shared_data])}
    assert set(found) == set(KNOWN.values())
    sizes = {
        name: len(test.pairs) if isinstance(test, RatedPairs) else sum(len(part.questions) for part in test.sections)
        for name, test in found.items()
    }
    assert sizes["Google"] == 19544 and sizes["CA8 semantic"] + sizes["CA8 morphological"] == 17813
    assert sizes["WS-353"] == 353 and sizes["SimLex-999"] == 999 and sizes["WordSim-240"] == 240
    assert sizes["WordSim-297"] == 297 and sizes["CA translated"] == 953
