"""README.md of an exported folder, in English and Chinese, with a script that needs onnxruntime, tokenizers and numpy.

The script is short enough to be read and copied; what it does after the graph depends on the head (`_USES`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from qkv.models.folders.own import MARK

_START = """
import json
import numpy as np
import onnxruntime
import tokenizers

folder = "."  # with model.onnx, export.json and tokenizer.json
with open(f"{folder}/export.json", encoding="utf-8") as file:
    about = json.load(file)
tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
tokenizer.enable_truncation(about["max_length"])
tokenizer.enable_padding(pad_id=about["pad_id"], pad_token=about["pad_token"])
session = onnxruntime.InferenceSession(f"{folder}/model.onnx", providers=["CPUExecutionProvider"])


def run(inputs):  # texts, or pairs of texts
    rows = tokenizer.encode_batch(inputs)
    given = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    names = [one.name for one in session.get_inputs()]
    return rows, {name: np.array([getattr(row, given[name]) for row in rows], np.int64) for name in names}
""".strip()

_SENTENCE = """
texts = ["A cat sleeps.", "一只猫在睡觉。", "Interest rates rose."]
vectors = session.run(["sentence_embedding"], run(texts)[1])[0]
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
print(np.round(vectors @ vectors.T, 4).tolist())  # cosine of every pair
"""
_HIDDEN = """
rows, feed = run(["A cat sleeps.", "一只猫在睡觉。"])
hidden = session.run(["last_hidden_state"], feed)[0]  # (texts, tokens, width)
weights = feed["attention_mask"][..., None]
vectors = (hidden * weights).sum(1) / weights.sum(1)  # the mean of the tokens, [CLS] and [SEP] among them
print(np.round(vectors[:, :4], 4).tolist())
"""
_SINGLE = """
logits = session.run(["logits"], run({examples})[1])[0] / about["calibration"]["temperature"]
shares = np.exp(logits - logits.max(1, keepdims=True))
shares /= shares.sum(1, keepdims=True)
for row in shares:
    print(about["labels"][row.argmax()], round(float(row.max()), 4))
"""
_MULTI = """
logits = session.run(["logits"], run({examples})[1])[0] / about["calibration"]["temperature"]
limits = np.array([about["calibration"]["thresholds"].get(label, 0.5) for label in about["labels"]])
for row in 1 / (1 + np.exp(-logits)):
    print([(about["labels"][i], round(float(row[i]), 4)) for i in np.flatnonzero(row >= limits)])
"""
_REGRESSION = """
for row in session.run(["logits"], run({examples})[1])[0]:
    print(round(float(row[0]), 4))
"""
_TOKEN = """
texts = ["我爱北京", "He owes me money."]
rows, feed = run(texts)
best = session.run(["logits"], feed)[0].argmax(-1)
for text, row, ids in zip(texts, rows, best):
    parts = zip(row.offsets, row.special_tokens_mask, ids)
    print([(text[a:b], about["labels"][i]) for (a, b), special, i in parts if not special])
"""
_SPAN = """
question, passage = "What is the capital of France?", "The capital of France is Paris."
rows, feed = run([(question, passage)])
starts, ends = (one[0] for one in session.run(["start_logits", "end_logits"], feed))
inside = np.array([part == 1 for part in rows[0].sequence_ids])  # tokens of the passage
scores = np.where(inside[:, None] & inside, starts[:, None] + ends, -np.inf)
scores = np.triu(scores) - np.tril(np.full_like(scores, np.inf), -1)  # it ends after it starts
first, last = np.unravel_index(scores.argmax(), scores.shape)
print(passage[rows[0].offsets[first][0] : rows[0].offsets[last][1]], round(float(scores.max()), 4))
"""
_CHOICE = """
text, choices = "The cat is tired. What does it do?", ["It sleeps.", "It flies.", "它睡觉。"]
rows, feed = run([(text, choice) for choice in choices])
logits = session.run(["logits"], {name: value[None] for name, value in feed.items()})[0]  # (1, choices)
print(choices[logits[0].argmax()], np.round(logits[0], 4).tolist())
"""
_MASKED = """
rows, feed = run([f"Paris is the {about['mask_token']} of France.", f"巴黎是{about['mask_token']}国的首都。"])
logits = session.run(["logits"], feed)[0]
for row, scores in zip(rows, logits):
    place = row.tokens.index(about["mask_token"])
    print([tokenizer.id_to_token(int(i)) for i in np.argsort(-scores[place])[:5]])
"""
_USES = {"token": _TOKEN, "span": _SPAN, "choice": _CHOICE, "masked": _MASKED}
_KINDS = {"single": _SINGLE, "multi": _MULTI, "regression": _REGRESSION}
_TEXTS = '["A cat sleeps.", "一只猫在睡觉。"]'
_PAIRS = '[("A cat sleeps.", "一只猫在睡觉。"), ("It rains.", "下雨了。")]'

PACKED_SCRIPT = """
session = onnxruntime.InferenceSession(f"{folder}/model_packed.onnx", providers=["CPUExecutionProvider"])
tokenizer.no_padding()


def run_packed(inputs):  # rows end to end, without padding; sort long lists by length
    rows = tokenizer.encode_batch(inputs)
    given = {"input_ids": sum((row.ids for row in rows), []), "token_type_ids": sum((row.type_ids for row in rows), [])}
    given["lengths"] = [len(row.ids) for row in rows]
    names = [one.name for one in session.get_inputs()]
    return session.run(None, {name: np.array(given[name], np.int64) for name in names})
""".strip()

_FILES = {
    "model.onnx": ("the padded graph, float32", "带填充的图，float32"),
    "model_packed.onnx": ("the packed graph: padding only inside attention", "紧密排列的图：只在注意力内部填充"),
    "model_quantized.onnx": ("the padded graph, int8", "带填充的图，int8"),
    "model_packed_quantized.onnx": ("the packed graph, int8", "紧密排列的图，int8"),
}


def make_script(about: Mapping[str, Any]) -> str:
    """The code of README.md for a graph, by its export.json."""
    head = about["head"]
    if head == "none":
        use = _SENTENCE if about["pooling"] else _HIDDEN
    elif head == "sequence":
        use = _KINDS[about["kind"] or "single"].replace("{examples}", _PAIRS if about["reads_pairs"] else _TEXTS)
    else:
        use = _USES[head]
    return f"{_START}\n\n\n{use.strip()}\n"


def make_export_card(name: str, about: Mapping[str, Any], notes: Sequence[tuple[str, str]]) -> str:
    lines = [
        f"| `{file}` | {' / '.join(_FILES[file])} | {', '.join(one['inputs'])} | {', '.join(one['outputs'])} |"
        for file, one in about["graphs"].items()
    ]
    parts = [
        f"---\nlibrary_name: onnx\ntags:\n- qkv\n- onnx\n- {about['model_type']}\n---\n{MARK}",
        f"# {name}",
        f"{about['title']} as ONNX graphs (operators of ai.onnx {about['opset']}), exported by qkv from "
        f"`{about['source']}`. Head: {about['head']}. Up to {about['max_length']} tokens.",
        f"{about['title']} 的 ONNX 图（ai.onnx {about['opset']} 算子），由 qkv 从 `{about['source']}` 导出。"
        f"任务头：{about['head']}。最长 {about['max_length']} 个词元。",
        "\n".join(["| | | inputs / 输入 | outputs / 输出 |", "|---|---|---|---|", *lines]),
    ]
    if about["labels"]:
        parts.append(f"Labels / 标签: {', '.join(f'`{label}`' for label in about['labels'])}")
    parts += [f"{english} / {chinese}" for english, chinese in notes]
    if about["int8"] is not None:
        parts.append(_describe_int8(about["int8"]))
    parts += ["## Use / 用法", f"```python\n{make_script(about)}```"]
    if "model_packed.onnx" in about["graphs"]:
        parts += ["Packed, after the lines above / 紧密排列，接在上面之后：", f"```python\n{PACKED_SCRIPT}\n```"]
    return "\n\n".join(parts) + "\n"


def _describe_int8(figures: Mapping[str, Any]) -> str:
    score = figures.get("score")
    scored = f"\n| {score['name']} (float32 → int8) | {score['float32']:.4f} → {score['int8']:.4f} |" if score else ""
    vnni = {True: "VNNI", False: "no VNNI / 无 VNNI", None: "?"}[figures["cpu"]["vnni"]]
    return (
        "int8 compared with float32 / int8 与 float32 的比较:\n\n| | |\n|---|---|\n"
        f"| texts / 文本 | {figures['n_texts']}, {figures['held_out']} |\n"
        f"| least cosine / 最小余弦 | {figures['least_cosine']:.4f} |\n"
        f"| mean cosine / 平均余弦 | {figures['mean_cosine']:.4f} |{scored}\n"
        f"| measured on / 测于 | {figures['cpu']['machine']}, {vnni} |"
    )
