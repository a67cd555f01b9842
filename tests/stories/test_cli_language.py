"""The command line in Chinese: chosen by --lang, QKV_LANG or the locale; what programs read stays as it is."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from qkv.cli.main import CAPTIONED, NOUNS, VERBS, build_command, main, take_language
from qkv.data.labelled.examples import Fault, Place
from qkv.errors import InputError
from qkv.jobs.finetune.tables import DataUsed
from qkv.jobs.lifecycle import write_faults
from qkv.text.messages import language, speaking, translate
from qkv.text.unknown import UnknownFacts
from qkv.train.log import Lines
from qkv.train.run_folder import read_lines
from tests.golden.golden import MODELS
from tests.support.finetune_runs import part_of

Run = Callable[..., tuple[int, str, str]]
ROWS = "text,label\na good film,pos\na bad film,neg\na good film,neg\nanother,Pos\n"
HAN = re.compile("[\u4e00-\u9fff]")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def ran(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return ran


@pytest.fixture
def locale(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_to(**variables: str) -> None:
        for name in ("QKV_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_to


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_GB.UTF-8"}, "en"),
        ({"LANG": "en_US", "LC_MESSAGES": "en_GB", "LC_ALL": "zh_CN"}, "zh"),
        ({"LANG": "zh_CN", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "zh_CN", "QKV_LANG": "en"}, "en"),
        ({"LC_ALL": "en_US", "QKV_LANG": "zh_CN"}, "zh"),
        ({"LANG": "zhuang"}, "en"),
    ],
)
def test_where_the_language_comes_from(locale: Callable[..., None], variables: dict[str, str], expected: str) -> None:
    locale(**variables)
    assert language() == expected


def test_the_option_overrides_the_environment(run: Run, locale: Callable[..., None]) -> None:
    locale(QKV_LANG="zh")
    assert run("check", "none.txt") == (2, "", "错误：没有文件 none.txt。\n")
    for words in (["--lang", "en", "check", "none.txt"], ["check", "none.txt", "--lang=en"]):
        assert run(*words) == (2, "", "error: There is no file none.txt.\n")
    locale(LANG="en_US.UTF-8")
    assert run("--lang", "zh", "check", "none.txt")[2] == "错误：没有文件 none.txt。\n"
    assert run("check", "none.txt")[2].startswith("error: ")  # the choice was for one run


def test_a_language_that_there_is_not(run: Run, locale: Callable[..., None]) -> None:
    locale()
    assert run("--lang", "fr", "check", "a.txt") == (2, "", "error: --lang is 'fr': write en or zh.\n")
    locale(QKV_LANG="klingon")
    assert run("check", "a.txt") == (2, "", "error: QKV_LANG is 'klingon': write en or zh.\n")
    with pytest.raises(InputError, match="QKV_LANG"):
        language()


def test_verbs_with_captions_keep_their_option() -> None:
    """`qkv attention --lang zh` is the language of its picture, as before, and of messages."""
    command: Any = get_command(build_command())
    found = {name for name, verb in command.commands.items() if any("--lang" in option.opts for option in verb.params)}
    assert found == set(CAPTIONED)
    assert take_language(["show", "shards", "--lang", "zh"]) == (["show", "shards", "--lang", "zh"], "zh")
    assert take_language(["show", "shards", "--lang=fr"]) == (["show", "shards", "--lang", "fr"], None)
    assert take_language(["fill", "--", "--lang", "zh"]) == (["fill", "--", "--lang", "zh"], None)


@pytest.mark.parametrize("verb", [[], ["check"], ["finetune"], ["tokenizer"], ["tokenizer", "train"]])
def test_help(run: Run, locale: Callable[..., None], verb: list[str]) -> None:
    locale(LANG="zh_CN.UTF-8")
    code, out, _ = run(*verb, "--help")
    assert code == 0 and out.startswith("用法：qkv") and "\n选项：\n" in out and "显示这段帮助并退出。" in out
    for line in out.splitlines():
        assert sum(2 if HAN.match(sign) else 1 for sign in line) <= 100
    locale()
    english = run(*verb, "--help")[1]
    assert english.startswith("Usage: qkv") and "\nOptions:\n" in english
    options = re.compile(r"^  (?:-\w, )?(--[\w-]+)", re.MULTILINE)
    assert options.findall(out.partition("\n选项：")[2]) == options.findall(english.partition("\nOptions:")[2])


@pytest.mark.parametrize("name", [*VERBS, *NOUNS])
def test_nothing_in_the_help_is_left_in_english(run: Run, locale: Callable[..., None], name: str) -> None:
    locale(QKV_LANG="zh")
    out = run(name, "--help")[1]
    # runs of English words; commands, names of fields (with commas) and what is after an option are no prose
    prose = re.findall(
        r"(?<![-.\w] )\b[A-Za-z][a-z]* (?:[a-z]+ ){2,}[a-z]+\b",
        "\n".join(line for line in out.splitlines() if "qkv " not in line),
    )
    assert not prose


def test_results(run: Run, locale: Callable[..., None]) -> None:
    locale(QKV_LANG="zh")
    out = run("next", "他打开冰箱。", "里面没有鸡蛋了。", "--model", MODELS / "bert")[1]
    assert "接在后面" in out and "不接在后面" in out and "follow" not in out
    line = "accuracy of baselines on {}: always answering “a” 0.5000"
    assert translate(line.format("dev")) == "基线在验证集上的准确率：总答“a” 0.5000"
    assert translate(line.format("a.csv")) == "基线在 a.csv 上的准确率：总答“a” 0.5000"


def test_errors_with_values(run: Run, locale: Callable[..., None], tmp_path: Path) -> None:
    locale(QKV_LANG="zh")
    file = tmp_path / "a.csv"
    file.write_text("text,label\na,x\nb,y\n")
    assert run("chek")[2] == "错误：没有命令「chek」。是不是想写「check」？用法见：qkv --help\n"
    assert run("check", "--tsak", "tag")[2] == "错误：没有选项 --tsak。是不是想写「--task」？用法见：qkv check --help\n"
    assert "--epochs 应为数，不是「many」。" in run("finetune", "classify", "--epochs", "many")[2]
    assert run("check", file, "--task", "clasify")[2] == (
        "错误：没有任务「clasify」。是不是想写「classify」？有 classify, tag, answer, choice。\n"
    )
    assert run("check", file, "--label", "kind")[2] == (
        f"错误：{file} 没有作 label 的列 'kind'，只有 'text', 'label'。\n"
    )
    (tmp_path / "b.jsonl").write_text('{"text": "a", "label": "x"}\n{"text": "b" "label": "x"}\n')
    assert run("check", tmp_path / "b.jsonl", "--task", "classify")[0] == 1
    assert run("embed", "a", "--model", tmp_path)[2].startswith(
        f"错误：{tmp_path} 不是模型文件夹：没有 config.json，只有 "
    )


def test_check(run: Run, locale: Callable[..., None], tmp_path: Path) -> None:
    locale(QKV_LANG="zh")
    file = tmp_path / "a.csv"
    file.write_text(ROWS + ",pos\n")
    code, out, _ = run("check", file)
    assert code == 1
    for expected in (
        "任务",
        "4 条样本，略去 1",
        "重复而标签不同的文本：1",
        f"{file}:4：与 {file} 第 2 行相同",
        "'pos'（1）：是不是 'Pos'（1）？（大小写）",
        f"{file}:6：'text' 是空的（略去）",
    ):
        assert expected in out
    assert "classify" in out and "neg" in out  # names stay
    (tmp_path / "c.txt").write_text("One sentence. Another one.\n")
    out = run("check", tmp_path / "c.txt")[1]
    assert "句子" in out and "提示：只有一篇文档" in out


def test_json_and_exit_codes_do_not_change(run: Run, locale: Callable[..., None], tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(ROWS + ",pos\n")
    locale()
    english = run("check", file, "--json"), run("tokenize", "a cat", "--json"), run("info", "--json")
    locale(QKV_LANG="zh")
    assert (run("check", file, "--json"), run("tokenize", "a cat", "--json"), run("info", "--json")) == english
    assert not HAN.search(json.dumps(json.loads(english[0][1])["findings"], ensure_ascii=False))


def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(every=0.0)
    with speaking("zh"):
        lines.start(0, 10)
        lines.step(5, {"loss": 1.5, "tokens_per_second": 1200.0, "share_of_peak": 0.25})
        lines.message("2 minutes are 1,200 steps on this machine.")
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"第 5/10 步  损失 1\.500  1,200 词元/秒  峰值的 25 %  还需 0:00", first)
    assert second == "2 分钟在这台机器上是 1,200 步。"


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("a message that nobody knows", "a message that nobody knows"),
        ("There is no file a.b. c.txt.", "没有文件 a.b. c.txt。"),
        ("There is no folder x. Did you mean 'y'?", "没有文件夹 x。是不是想写「y」？"),
        (
            f"note: {UnknownFacts(2, 30, 3, 1, 1, {'嗯': 2, '😡': 1}).describe()}",
            "提示：30 个词元里有 3 个（10.0 %）模型不认得，涉及 2 条文本中的 1 条，其中 1 条完全读不了，"
            "对应的原文：嗯 (2), 😡。换一个词表不同的模型，也许就认得。",
        ),
        (
            "a.txt, line 3 is empty: each line is one token. Delete the line.",
            "a.txt 第 3 行是空的：每行一个词元。请删去这一行。",
        ),
        (
            "m cannot be written: No space left on device. The folder is unchanged.",
            "无法写入 m：磁盘已满。文件夹没有改动。",
        ),
        ("m lacks a, which a bert has.", "m 缺少 a，而 bert 应有。"),
    ],
)  # fmt: skip
def test_translate(english: str, chinese: str) -> None:
    assert translate(english, "zh") == chinese
    assert translate(english, "en") == english


@pytest.mark.parametrize(
    "text", ["a: b. " * 200, "a is b, not c: d (e) " * 100, "x, y and z " * 200, "{0} {1!t} \\1 %s"]
)
def test_texts_of_users_in_a_message(text: str) -> None:
    """However odd a quoted text is, it comes out as it went in."""
    assert translate(f"There is no task '{text}'. There are tag.", "zh") == f"没有任务「{text}」。有 tag。"
    translate(text, "zh")


def test_wrong_numbers_and_far_guesses_in_our_own_words(run: Run, locale: Callable[..., None]) -> None:
    locale(LANG="en_US.UTF-8")
    assert run("finetune", "classify", "--lr", "abc")[2].startswith("error: --lr is a number, not 'abc'.")
    assert run("finetune", "classify", "--seeds", "1.5")[2].startswith("error: --seeds is a whole number, not '1.5'.")
    assert run("sweep")[2] == "error: No such command 'sweep'. See: qkv --help\n", "check is far"
    assert "Did you mean 'finetune'?" in run("finetun")[2]
    locale(LANG="zh_CN.UTF-8")
    assert run("finetune", "classify", "--lr", "abc")[2].startswith("错误：--lr 应为数，不是「abc」。")


def test_faults_of_a_run_are_in_the_language(tmp_path: Path) -> None:
    fault = Fault(
        Place("a.csv", 3), "extra columns", "the row has 4 columns, most have 2: the extra ones are not used", "noted"
    )
    for lang in ("en", "zh"):
        with speaking(lang):
            write_faults(tmp_path, [fault])
        (line,) = read_lines(tmp_path / "faults.jsonl")
        assert bool(HAN.search(line["message"])) == (lang == "zh") and line["kind"] == "extra columns"
    page = DataUsed("Data", (("train", replace(part_of("a.csv", 10), faults=(fault,))),)).html()
    assert "the row has 4 columns" in page and translate(fault.message, "zh") in page


WEIBO = "".join(f"{word}\tO\n" for word in "科0 技1 全0 方1 位2".split()) + "\n"
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "The cat sat.",
                    "qas": [
                        {"id": one, "question": "Who sat?", "answers": [{"text": "cat", "answer_start": 4}]}
                        for one in "ab"
                    ],
                }
            ]
        }
    ]
}


def test_places_and_formats_of_files_are_in_chinese(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QKV_LANG", "zh")
    (tmp_path / "weibo.conll").write_text(WEIBO * 3, "utf-8")
    (tmp_path / "squad.json").write_text(json.dumps(SQUAD), "utf-8")
    rows = "text;label\n" + "".join(f"Le café numéro {n} était agréable;{'ab'[n % 2]}\n" for n in range(30))
    (tmp_path / "latin.csv").write_bytes(rows.encode("cp1252"))
    assert "序号，如科0：数字已去掉），text = 第 1 列，label = 第 2 列）" in run("check", "weibo.conll")[1]
    assert "squad.json 第 2 题：与 squad.json 第 1 题相同\n" in run("check", "squad.json")[1]
    assert "（csv，以分号分隔，按 Windows-1252 读取，text = 'text'，label = 'label'）" in run("check", "latin.csv")[1]
    (tmp_path / "gap.csv").write_text("text,label\na,x\nb,\nc,y\n", "utf-8")
    assert "gap.csv:3：没有标签：'label' 是空的。请补上标签，或删去这一行。\n" in run("check", "gap.csv")[1]
    assert translate("a.xlsx, sheet 'Sheet1', row 4", "zh") == "a.xlsx 工作表 'Sheet1' 第 4 行"
