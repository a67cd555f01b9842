"""A small corpus in both languages, the same every time, with every kind of document that makes trouble; and segmenters
that make some. Worker processes import this file, so it imports little.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EN = "the a animal cat dog didn't cross street because it was too tired wide Paris unhappy walked 5G".split()
ZH = "我 你 中国 的 首都 是 北京 上海 人工智能 天气 很 好 猫 狗 爱 吃 鱼".split()


def sentences(draw: random.Random, count: int) -> list[str]:
    found = []
    for _ in range(count):
        if draw.random() < 0.5:
            found.append(" ".join(draw.choices(EN, k=draw.randint(2, 12))).capitalize() + draw.choice(".!?"))
        else:
            found.append("".join(draw.choices(ZH, k=draw.randint(2, 12))) + draw.choice("。！？"))
    return found


def documents(count: int, seed: int = 0) -> list[str]:
    """Each a text with line ends inside; some of one sentence, one long, one without anything to be seen."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        size = 60 if number == 7 else draw.choice([1, 2, 5, 9])
        text = "".join(
            sentence + draw.choice(["\n", "" if sentence[-1] in "。！？" else " "])
            for sentence in sentences(draw, size)
        )
        found.append(text.strip())
    if count > 12:
        found[11] = "\u200b\x00"
    return found


def write_corpus(path: Path, count: int = 40, seed: int = 0) -> Path:
    path.write_text("\n\n".join(documents(count, seed)) + "\n", encoding="utf-8")
    return path


def noisy(text: str) -> list[str]:
    print("a segmenter may print", flush=True)
    return list(text)


def dying(text: str) -> list[str]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def broken(text: str) -> list[str]:
    raise ZeroDivisionError("in the segmenter")


def noted(work: Callable[[Any, Any], Any], folder: Path, job: Any, item: Any) -> Any:
    """A task of a cluster that leaves the name of its node in a folder, and waits until two nodes have work."""
    import ray

    (folder / ray.get_runtime_context().get_node_id()).touch()
    end = time.monotonic() + 30
    while len(list(folder.iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.02)
    return work(job, item)
