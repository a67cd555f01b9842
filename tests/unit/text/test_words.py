"""Where Chinese words begin: by rjieba, by any function; a run is cut alike alone and among others."""

from qkv.text.segmenter import Segmenter, find_segmenter, word_starts


def marked(runs: list[str], cut: Segmenter | None) -> str:
    assert cut is not None
    starts = word_starts(runs, cut).tolist()
    return "".join(("|" if start else "") + character for start, character in zip(starts, "".join(runs), strict=True))


def test_rjieba_by_hand() -> None:
    jieba = find_segmenter("rjieba")
    assert jieba is not None and jieba.name.startswith("rjieba ")
    assert marked(["我爱北京天安门"], jieba) == "|我|爱|北京|天安门"
    assert marked(["使用语言模型来预测下一个词的概率"], jieba) == "|使用|语言|模型|来|预测|下|一个|词|的|概率"


def test_a_run_is_cut_alike_alone_and_among_others() -> None:
    jieba = find_segmenter("rjieba")
    runs = [
        "我来到北京清华大学",
        "的",
        "小明硕士毕业于中国科学院计算所",
        "㐂𠮷豈",
        "后在日本京都大学深造",
        "北京",
        "大学",
    ]
    assert marked(runs, jieba) == "".join(marked([run], jieba) for run in runs)
    assert marked(["北京", "大学"], jieba) == "|北京|大学" and marked(["北京大学"], jieba) == "|北京大学"


def pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(0, len(run), 2)]


def test_any_function() -> None:
    assert marked(["甲乙丙", "丁戊"], find_segmenter(pairs)) == "|甲乙|丙|丁戊"
    assert marked(["甲乙"], find_segmenter(lambda run: ["", run, ""])) == "|甲乙"
    assert word_starts([], Segmenter("characters", list)).tolist() == []
