"""Which sentences to open `qkv look` with: what the page shows first of each, measured on a model.

    PYTHONPATH=src python bench/look_examples.py [--model MODEL] [FILE]

The attention view opens at a pronoun (else the longest word) and at the head that looks hardest from there at another
word, neighbours counting less (look/page/views/attention_data.js: `restingToken`, `focusOf`, `bestHead`). A sentence is
a good first example where that head looks at the word that the pronoun stands for. FILE has one JSON object a line:
{"text": …, "word": the pronoun, "meant": the word it stands for}; without it a built-in list is ranked. One line of
JSON a sentence is printed, the best first: the weight on the word that is meant, and the word that gets the most.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qkv.look.api import Api
from qkv.look.subject import open_subject
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--model", default="qkv-mini")
    given = parser.parse_args()
    lines = given.file.read_text(encoding="utf-8").splitlines() if given.file else []
    wanted = [(one["text"], one["word"], one["meant"]) for one in map(json.loads, lines)] or CANDIDATES
    api = Api([open_subject(given.model)])
    found = [measure_opening(api, *one) for one in wanted]
    for one in sorted(found, key=lambda one: (-one["right"], -one["weight"])):
        print(json.dumps(one, ensure_ascii=False))


if __name__ == "__main__":
    main()
