"""README.md of a saved folder: what it holds and how to load it, in Chinese and English."""

from collections.abc import Sequence

from qkv.models.bert.keys import ARCHITECTURES
from qkv.models.bert.network import BertConfig

MARK = "<!-- written by qkv: a new save writes it anew -->"

_ABOUT: dict[str, tuple[str, str]] = {
    "BertForPreTraining": (
        "an encoder with its two pre-training heads: masked words and next sentence",
        "编码器，带两个预训练头：被遮盖的词、下一句",
    ),
    "BertForMaskedLM": ("an encoder that fills in masked words", "编码器，可填出被遮盖的词"),
    "BertForNextSentencePrediction": (
        "an encoder that says whether one sentence follows another",
        "编码器，可判断两句是否相连",
    ),
    "BertForSequenceClassification": ("an encoder that classifies a text", "编码器，可给文本分类"),
    "BertForTokenClassification": ("an encoder that labels every token of a text", "编码器，可给每个词元打标签"),
    "BertForQuestionAnswering": ("an encoder that finds an answer in a text", "编码器，可在文本中找出答案"),
    "BertForMultipleChoice": ("an encoder that picks one of several choices", "编码器，可从几个选项中选一个"),
    "BertModel": ("an encoder", "编码器"),
}


def write_card(
    name: str, config: BertConfig, architecture: str, labels: Sequence[str], parameters: int, pooling: str | None
) -> str:
    known = ARCHITECTURES[architecture]
    pipeline = "sentence-similarity" if pooling else known.pipeline
    english, chinese = _ABOUT[architecture]
    size = f"{config.layers} × {config.width} × {config.heads}"
    lines = ["---", "library_name: transformers"]
    lines += [f"pipeline_tag: {pipeline}"] if pipeline else []
    lines += [
        "tags:",
        "- qkv",
        "- bert",
        *(["- sentence-transformers"] if pooling else []),
        "---",
        MARK,
        "",
        f"# {name}",
    ]
    lines += ["", f"BERT ({architecture}): {english}. {config.layers} layers, width {config.width}, {config.heads} "]
    lines[-1] += f"attention heads, up to {config.max_length:,} tokens, {parameters:,} parameters."
    lines += ["", f"BERT（{architecture}）：{chinese}。层数 × 宽度 × 注意力头数 = {size}，"]
    lines[-1] += f"最长 {config.max_length} 个词元，{parameters:,} 个参数。"
    if labels:
        lines += ["", f"Labels / 标签: {', '.join(f'`{label}`' for label in labels)}"]
    if pooling:
        lines += ["", f"Sentence vectors / 句向量: {pooling} pooling"]
    lines += ["", "## Use / 用法", "", "```python", "import qkv", "", 'model = qkv.load("path/to/this/folder")', "```"]
    lines += ["", "```python", f"from transformers import AutoTokenizer, {known.auto_class}", ""]
    lines += ['tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")']
    lines += [f'model = {known.auto_class}.from_pretrained("path/to/this/folder")', "```", ""]
    return "\n".join(lines)
