"""Which sentences to open `qkv look` with: what the page shows first of each, measured on a model.

    PYTHONPATH=src python bench/look_examples.py [--model MODEL] [FILE]

The attention view opens at a pronoun (else the longest word) and at the head that looks hardest from there at another
word, neighbours counting less (look/page/views/attention_data.js: `restingToken`, `focusOf`, `bestHead`). A sentence is
a good first example where that head looks at the word that the pronoun stands for. FILE has one JSON object a line:
{"text": …, "word": the pronoun, "meant": the word it stands for}; without it a built-in list is ranked. One line of
JSON a sentence is printed, the best first: the weight on the word that is meant, and the word that gets the most.

    PYTHONPATH=src python bench/look_examples.py --shown [VIEW …]

What the page shows of the one-click examples (look/examples.py), with every model of the package that shows their view:
the rank of a hidden, next or fourth word and the first guesses, the translation, whether the nearest context of a word
has the same sense, what another order changes. One line of JSON an example and model; "right" says whether it shows
what its title promises, and is null where nothing is promised.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qkv.errors import InputError
from qkv.look.api import Api
from qkv.look.examples import EXAMPLES
from qkv.look.subject import open_shipped, open_subject
from qkv.look.wire import Reply

CANDIDATES = [
    ("The queen said that she was very happy.", "she", "queen"),
    ("The king died before he was fifty.", "he", "king"),
    ("Mary told her mother that she was tired.", "her", "Mary"),
    ("The company said that it would build a new factory.", "it", "company"),
    ("The team won the cup after they beat France.", "they", "team"),
    ("The river is long, and it flows into the sea.", "it", "river"),
    ("The children went home because they were hungry.", "they", "children"),
    ("The book was so good that she read it twice.", "it", "book"),
    ("The city is old, and it has many churches.", "it", "city"),
    ("My brother is a doctor, and he works in London.", "he", "brother"),
    ("The soldiers were tired, but they marched on.", "they", "soldiers"),
    ("The dog ran away because it was afraid.", "it", "dog"),
    ("The animal didn't cross the street because it was too tired.", "it", "animal"),
    ("The animal didn't cross the street because it was too narrow.", "it", "street"),
    ("那只动物没有过马路，因为它太累了。", "它", "动物"),
    ("那只动物没有过马路，因为它太窄了。", "它", "马路"),
    ("这条河很长，它流入大海。", "它", "河"),
    ("小猫饿了，它想吃鱼。", "它", "猫"),
    ("国王死后，他的儿子继位。", "他", "国王"),
    ("我的哥哥是医生，他在上海工作。", "他", "哥哥"),
    ("孩子们饿了，他们回家吃饭。", "他们", "孩子"),
    ("王后说她很高兴。", "她", "王后"),
    ("这座城市很古老，它有许多寺庙。", "它", "城市"),
    ("这家公司很大，它有三千名员工。", "它", "公司"),
    ("那本书很好看，我读了它两遍。", "它", "书"),
    ("士兵们很累，但他们继续前进。", "他们", "士兵"),
    ("老师走进教室，她手里拿着一本书。", "她", "老师"),
    ("李白是诗人，他写了许多诗。", "他", "李白"),
]


def measure_opening(api: Api, text: str, word: str, meant: str) -> dict[str, Any]:
    """What the page shows first: the layer and head, the weight on `meant`, and the word that gets the most."""
    found = Reply.from_bytes(api.ask("attention", {"text": text}))
    left, small = found.head["left"], found.arrays["small"]  # (L, H, T, T), bytes
    at = text.lower().rindex(word.lower()) if word else 0
    row = next(place for place, token in enumerate(left) if not token["special"] and token["end"] > at)
    layer, head = best_head(small, left, row)
    weights = small[layer, head, row] / 255
    start = text.lower().index(meant.lower())
    on_meant = sum(
        float(weights[place])
        for place, token in enumerate(left)
        if not token["special"] and token["start"] < start + len(meant) and token["end"] > start
    )
    most = max((place for place, token in enumerate(left) if not token["special"]), key=lambda place: weights[place])
    return {
        "text": text,
        "word": word,
        "meant": meant,
        "layer": layer,
        "head": head,
        "weight": round(on_meant, 3),
        "looks_at": left[most]["text"],
        "right": start <= left[most]["start"] < start + len(meant),
    }


def best_head(small: Any, tokens: Sequence[dict[str, Any]], row: int) -> tuple[int, int]:
    """`focusOf` and `bestHead` of the page, for texts whose small maps hold every token."""
    _, heads, _, wide = small.shape
    counted = [not token["special"] and any(map(str.isalnum, token["text"])) for token in tokens]
    near = [min(1.0, max(0, abs(place - row) - 1) / 3) * counted[place] for place in range(wide)]
    focus = (small[:, :, row, :] * near).max(-1).reshape(-1)
    best = int(focus.argmax())
    return best // heads, best % heads


FOURTH = {
    ("he", "she", "king"): "queen",
    ("man", "king", "woman"): "queen",
    ("France", "Paris", "Germany"): "Berlin",
    ("brother", "sister", "father"): "mother",
    ("big", "bigger", "small"): "smaller",
    ("France", "French", "Germany"): "German",
    ("父", "母", "兄"): "妹 姐 嫂",
    ("中国", "北京", "法国"): "巴黎",
}
"""The answers that the title of an analogy promises: one of them."""
SENSES = {"Python": 4, "bank": 4, "apple": 3, "苹果": 4, "傻子": 4, "意思": 3, "干哈呢": 3}
"""How many of the first sentences of an example have the first sense of its word."""
NEXT = {"She drank a cup of": "tea coffee", "床前明月光，疑是地上": "霜"}
"""What an open end promises: one of these among the first five."""


def measure_shown(api: Api, view: str, example: dict[str, Any], model: int) -> dict[str, Any]:
    """What one model shows of one example, and whether that is what the example promises."""

    def ask(name: str, **fields: Any) -> Reply:
        return Reply.from_bytes(api.ask(name, {"model": model, **fields}))

    given, own = example["set"], example["set"].get(view, {})
    if view == "fill":
        blanks = ask("fill", text=given["text"], hide=own.get("hide")).head["blanks"]
        ranks = [blank["truth"]["rank"] for blank in blanks if blank["truth"]]
        guesses = [[one["text"] for one in blank["candidates"][:4]] for blank in blanks]
        found: dict[str, Any] = {"ranks": ranks, "guesses": guesses}
        found["right"] = all(rank == 1 for rank in ranks) if ranks else None
        if "pair" in given:
            found["is_next"] = ask("next_sentence", text=given["text"], pair=given["pair"]).head["is_next"]
            found["right"] &= (found["is_next"] > 0.5) == ("yes" in example["title"]["en"])
        return found
    if view == "next":
        return measure_next(ask("next_words", text=given["text"], k=20), given["text"], own.get("at"))
    if view == "vectors":
        corners = {name: own[name] for name in "abc"}
        answers = [one["word"] for one in ask("analogy", k=6, **corners).head["answers"]]
        near = [one["word"] for one in ask("neighbours", word=own["word"], k=5).head["neighbours"]]
        promised = FOURTH[own["a"], own["b"], own["c"]].lower().split()
        return {"answers": answers, "neighbours": near, "right": answers[0].lower() in promised}
    if view == "translation":
        candidates = ask("translate", text=given["text"], beams=4).head["candidates"]
        return {"translation": candidates[0]["text"], "others": [one["text"] for one in candidates[1:3]], "right": None}
    if view == "meanings":
        reply = ask("meanings", word=own["word"], sentences=own["sentences"])
        cosine = reply.arrays["cosine"][-1].copy()  # (n, n), of the last layer
        np.fill_diagonal(cosine, -2)
        sense = [one["sentence"] < SENSES[own["word"]] for one in reply.head["occurrences"]]
        near = [sense[int(row.argmax())] == sense[place] for place, row in enumerate(cosine)]
        return {"same_sense": f"{sum(near)}/{len(near)}", "right": None if reply.head["one_point"] else all(near)}
    assert view == "positions", view
    reply = ask("order", text=own["text"], other=own["other"])
    return {"bag": reply.head["bag"], "right": reply.head["same_bag"]}


def measure_next(reply: Reply, text: str, at: int | None) -> dict[str, Any]:
    """The first guesses in a place (None: at the end of the text), and the rank of the word that is there."""
    tokens, arrays = reply.head["tokens"], reply.arrays
    said = [place for place, token in enumerate(tokens) if not token["special"]]
    chosen = said[-1] + 1 if at is None else next(place for place in said if tokens[place]["end"] > at)
    words = reply.head["words"]["forward"][chosen - 1]
    found: dict[str, Any] = {"guesses": words[:5], "entropy": round(float(arrays["forward_entropy"][chosen - 1]), 2)}
    if at is not None:
        found["rank"] = int(arrays["forward_rank"][chosen - 1]) + 1
    right = any(word in words[:5] for word in NEXT[text].split()) if text in NEXT else None
    return found | {"right": right}


MEASURED = ("fill", "next", "meanings", "positions", "translation", "vectors")


def print_shown(views: Sequence[str]) -> None:
    api = Api(open_shipped())
    for view in views or MEASURED:
        for subject in api.room()["subjects"]:
            source = subject["facts"].get("source_language")
            for example in EXAMPLES[view] if view in subject["views"] else []:
                if source and view == "translation" and example["lang"] != source:
                    continue  # the page offers it to other translators alone
                line = {"view": view, "model": subject["title"], "example": example["title"]["en"]}
                try:
                    line |= measure_shown(api, view, example, subject["index"])
                except InputError as error:
                    line |= {"refused": str(error), "right": False}
                print(json.dumps(line, ensure_ascii=False), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--model", default="qkv-mini")
    parser.add_argument("--shown", nargs="*", metavar="VIEW", help=f"examples of these views: {', '.join(MEASURED)}")
    given = parser.parse_args()
    if given.shown is not None:
        if unknown := set(given.shown) - set(MEASURED):
            parser.error(f"{', '.join(sorted(unknown))}: the views are {', '.join(MEASURED)}")
        print_shown(given.shown)
        return
    lines = given.file.read_text(encoding="utf-8").splitlines() if given.file else []
    wanted = [(one["text"], one["word"], one["meant"]) for one in map(json.loads, lines)] or CANDIDATES
    api = Api([open_subject(given.model)])
    found = [measure_opening(api, *one) for one in wanted]
    for one in sorted(found, key=lambda one: (-one["right"], -one["weight"])):
        print(json.dumps(one, ensure_ascii=False))


if __name__ == "__main__":
    main()
