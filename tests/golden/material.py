"""What the golden tests work on: a corpus, labelled files, pairs, and a tiny job of every kind.

All of it is written in plain files and run by `qkv` itself, so that nothing here depends on where code lies.
"""

import json
import random
from pathlib import Path
from typing import Any

ENGLISH = "the a cat dog animal street paris was is too tired wide because it walked unhappy 5G".split()
CHINESE = "我 你 中国 的 首都 是 北京 上海 天气 很 好 猫 狗 爱 吃 鱼".split()
ANIMALS, PLACES = ("cat", "dog", "猫", "狗"), ("paris", "street", "北京", "上海")


def write_material(folder: Path) -> None:
    """corpus.txt, texts.csv, tags.jsonl, questions.json, choices.jsonl, pairs.txt and more to ask: the same always."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "corpus.txt", "\n\n".join(_documents()) + "\n")
    rows = [
        (f"the {word} {verb} {word} {'too' if number % 2 else '很好'}", "animal" if word in ANIMALS else "place")
        for number, verb in enumerate(("is", "was", "爱", "walked", "是"))
        for word in (*ANIMALS, *PLACES)
    ]
    _write(folder / "texts.csv", "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    tagged: list[dict[str, Any]] = []
    for text, label in rows:
        start = len("the ")
        end = start + len(text.split()[1])
        tagged.append({"text": text, "label": [[start, end, "ANI" if label == "animal" else "LOC"]]})
    _write_lines(folder / "tags.jsonl", tagged)
    questions = []
    for number, (text, _) in enumerate(rows):
        answer = text.split()[1]
        given = {"text": answer, "answer_start": text.index(answer)}
        asked = {"id": f"q{number}", "question": "the animal or the street", "answers": [given]}
        questions.append({"context": text, "qas": [asked]})
    for name, asked_of in (("questions.json", questions[:32]), ("dev-questions.json", questions[32:])):
        _write(folder / name, json.dumps({"data": [{"title": "t", "paragraphs": asked_of}]}))
    chosen: list[dict[str, Any]] = [
        {"context": text, "question": "the street", "choices": [text.split()[1], "5G", "天气"], "answer": 0}
        for text, _ in rows
    ]
    _write_lines(folder / "choices.jsonl", chosen)
    draw = random.Random(1)
    digits = [" ".join(draw.choices("123456789", k=draw.randint(2, 6))) for _ in range(120)]
    for name, part in (("pairs.txt", digits[:90]), ("dev.txt", digits[90:106]), ("test.txt", digits[106:])):
        _write(folder / name, "".join(f"{line}\t{line[::-1]}\n" for line in dict.fromkeys(part)))
    _write(folder / "analogies.txt", ": animals\ncat dog dog cat\nparis street street paris\n")
    _write(folder / "likeness.tsv", "cat\tdog\t8\ncat\tstreet\t2\nparis\tstreet\t5\nthe\ta\t4\n")


def _documents() -> list[str]:
    draw = random.Random(0)
    found = []
    for _ in range(40):
        sentences = []
        for _ in range(draw.choice([1, 2, 4, 6])):
            if draw.random() < 0.5:
                sentences.append(" ".join(draw.choices(ENGLISH, k=draw.randint(2, 9))).capitalize() + ".")
            else:
                sentences.append("".join(draw.choices(CHINESE, k=draw.randint(2, 9))) + "。")
        found.append("\n".join(sentences))
    return found


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    _write(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def _set(*settings: str) -> str:
    return "".join(f" --set {one}" for one in settings)


_LOOP = ("train.threads=1", "train.log_every=2", "train.evaluate_every=3", "train.save_every=2")
_SIX = ("train.steps=6", *_LOOP)
_ATTENTION = ("model.layers=1", "model.width=8", "model.heads=2", "model.inner_width=16")
_FINETUNE = " --model bert/model --epochs 2 --lr 3e-3 --device cpu" + _set(
    "texts_per_step=4", "train.threads=1", "data.dev_share=0.2"
)
_SCRATCH = " --epochs 1 --device cpu --tokenizer words" + _set(
    "texts_per_step=8", "train.threads=1", "reader.embedding_width=6", "reader.inner_width=5", "data.dev_share=0.2"
)
_TRANSLATE = " --pairs pairs.txt --dev dev.txt --test test.txt --languages en-de --device cpu" + _set(
    *("tokens_per_batch=128", "max_length=32", "evaluation_pairs=8", "tokenizer.size=48", "decoding.beams=2", *_SIX)
)

JOBS: dict[str, str] = {
    "tokenizer": "tokenizer train corpus.txt --vocab-size 110 --fold none --out tokenizer",
    "words": "tokenizer train corpus.txt --kind word --vocab-size 60 --fold none --out words",
    "shards": "prepare corpus.txt --tokenizer tokenizer --segmenter none --hold-out 0.1 --workers 1 --out shards",
    "word-shards": "prepare corpus.txt --tokenizer words --segmenter none --hold-out 0.1 --workers 1 --out word-shards",
    "bert": "pretrain bert --data shards --device cpu --out bert"
    + _set("rows=4", "evaluation_rows=8", "pairs.max_length=24", *_ATTENTION, *_SIX),
    "gpt": "pretrain gpt --data shards --device cpu --out gpt"
    + _set("rows=4", "length=16", "evaluation_tokens=100", *_ATTENTION, *_SIX),
    "elmo": "pretrain elmo --data shards --device cpu --out elmo"
    + _set("rows=4", "text.length=8", "negatives=20", "evaluation_tokens=100")
    + _set("model.filters=[4,4]", "model.width=6", "model.cell_width=8", *_SIX),
    "rnnlm": "pretrain rnnlm --data word-shards --device cpu --out rnnlm"
    + _set("rows=4", "text.length=8", "rnnlm.width=8", *_SIX),
    "nnlm": "pretrain nnlm --data word-shards --device cpu --out nnlm"
    + _set("rows=4", "text.length=8", "nnlm.width=8", "nnlm.hidden_width=8", *_SIX),
    "word2vec": "pretrain word2vec --data word-shards --device cpu --out word2vec"
    + _set("train.kernel=torch", "train.chunk=200", "train.epochs=1", "model.width=8", *_LOOP),
    "classify": "finetune classify --train texts.csv --out classify" + _FINETUNE,
    "tag": "finetune tag --train tags.jsonl --out tag" + _FINETUNE,
    "answer": "finetune answer --train questions.json --dev dev-questions.json --out answer" + _FINETUNE,
    "choice": "finetune choice --train choices.jsonl --out choice" + _FINETUNE,
    "features": "finetune classify --train texts.csv --transfer features --seeds 2 --out features" + _FINETUNE,
    "crf": "finetune tag --crf --train tags.jsonl --out crf" + _FINETUNE,
    "cnn": "finetune classify --train texts.csv --model scratch:cnn --out cnn" + _SCRATCH,
    "rnn": "finetune tag --train tags.jsonl --model scratch:rnn --out rnn" + _SCRATCH,
    "transformer": "train translate --out transformer"
    + _TRANSLATE
    + _set("transformer.size=tiny", "transformer.encoder_layers=1", "transformer.decoder_layers=1")
    + _set("transformer.width=8", "transformer.heads=2", "transformer.inner_width=16"),
    "seq2seq": "train translate --model seq2seq --separate --out seq2seq"
    + _TRANSLATE
    + _set("seq2seq.size=small", "seq2seq.width=8", "seq2seq.cell_width=8"),
    "curve": "curve classify --train texts.csv --model bert/model --transfer features --shares 0.5,1 --draws 2 "
    "--epochs 1 --device cpu --out curve" + _set("train.threads=1", "data.dev_share=0.2"),
}
"""By the folder that it makes: the command, in a folder with the material and what it needs."""

NEEDS: dict[str, tuple[str, ...]] = {
    "shards": ("tokenizer",),
    "word-shards": ("words",),
    **dict.fromkeys(("bert", "gpt", "elmo"), ("shards",)),
    **dict.fromkeys(("rnnlm", "nnlm", "word2vec"), ("word-shards",)),
    **dict.fromkeys(("classify", "tag", "answer", "choice", "features", "crf", "curve"), ("bert",)),
    **dict.fromkeys(("cnn", "rnn"), ("words",)),
}
