"""What a checkpoint knows before any fine-tuning: hidden words and next sentences of text that it has not read.

    python bench/checkpoint_masked.py --model FOLDER                       # held-out Wikipedia, English and Chinese
    python bench/checkpoint_masked.py --model FOLDER --text en=a.txt zh=b.txt.xz --rows 500 --json masked.json

Words: spans of one document, 15 % of the tokens hidden by whole words, every hidden token a [MASK] (--as-trained: 80 %
[MASK], 10 % another token, 10 % left as they are). Accuracy is of tokens, and so is perplexity: models with other
vocabularies cannot be compared by it. Beside it stands what the frequencies of this text alone would reach.

Pairs: what follows in the document or something from another document of the same language, half each, nothing hidden.

Rows, words and pairs are drawn from fixed seeds. Whole words of Chinese need rjieba, here or when --prepared was made.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from qkv.data.batch import Batch
from qkv.data.corpus.prepare import prepare_corpus
from qkv.data.corpus.rows import IS_NEXT, NOT_NEXT, Instances, PairConfig, instances
from qkv.data.corpus.shards import MANIFEST, Shards
from qkv.metrics.intervals import wilson_interval
from qkv.metrics.numbers import perplexity
from qkv.models.bert import folder as hf
from qkv.models.bert.network import BertWithHeads
from qkv.models.bert.objective import MaskedAndNextSentence, MaskingConfig, PretrainingBatches, evaluate_pretraining
from qkv.models.bert.pretrain import SEED
from qkv.models.folders.hub import locate
from qkv.text.tokenizer import Tokenizer
from qkv.train.device import device_named

ROOT = Path(__file__).parents[1]
WIKIPEDIA = {
    language: ROOT.parent / "shared" / "data" / f"{language}wiki_text/valid-00.txt.xz" for language in ("en", "zh")
}
ROWS_AT_ONCE = {"cpu": 16}
ROWS_AT_ONCE_ELSEWHERE = 256
HIDDEN = (1.0, 0.0, 0.0)  # [MASK], another token, kept
AS_TRAINED = (0.8, 0.1, 0.1)


def corpus(text: Path, tokenizer: Tokenizer, folder: Path) -> Shards:
    """The text as shards, all of it in one part; what is prepared already is used as it is."""
    if not (folder / MANIFEST).is_file():
        prepare_corpus(text, tokenizer, folder, hold_out=0.0)
    shards = Shards.open(folder)
    shards.check_tokenizer(tokenizer, "the model's")
    return shards


def hidden_words(
    model: BertWithHeads, tokenizer: Tokenizer, shards: Shards, rows: int, length: int, treatment: tuple[float, ...]
) -> dict[str, Any]:
    pairs, masking = PairConfig("none", length, short_share=0.0), MaskingConfig(0.15, treatment)
    build = PretrainingBatches(shards, tokenizer, pairs, masking, rows=1)
    drawn = instances(shards, pairs, SEED, 0)
    draw = np.random.default_rng(SEED)
    chosen = draw.permutation(len(drawn))[:rows]
    batches = [build.batch(drawn.take(part), draw) for part in _parts(chosen, model)]
    with torch.inference_mode():
        loss, right, count = evaluate_pretraining(model, MaskedAndNextSentence(next_sentence=False), batches)["masked"]
    manifest = shards.manifest
    return {
        "rows": len(chosen),
        "tokens": count,
        "accuracy": right / count,
        "loss": loss,
        "perplexity": perplexity(loss),
        "unigram_perplexity": perplexity(manifest["unigram_entropy"]),
        "segmenter": manifest["settings"]["segmenter"],
    }


def next_sentences(
    model: BertWithHeads, tokenizer: Tokenizer, shards: Shards, rows: int, length: int
) -> dict[str, Any]:
    drawn = instances(shards, PairConfig("document", length), SEED, 1)
    order = np.random.default_rng(SEED).permutation(len(drawn))
    kinds = [order[drawn.label[order] == label] for label in (IS_NEXT, NOT_NEXT)]
    each = min(rows // 2, *(len(kind) for kind in kinds))
    chosen = np.concatenate([kind[:each] for kind in kinds])
    right = {IS_NEXT: 0, NOT_NEXT: 0}
    device = next(model.parameters()).device
    with torch.inference_mode():
        for part in _parts(chosen, model):
            pairs = drawn.take(part)
            pooled = model.encoder(**_plain(pairs, shards, tokenizer).to(device).inputs()).pooled
            said = model.predict("next_sentence", pooled).argmax(-1).cpu().numpy()
            for label in right:
                right[label] += int(((said == label) & (pairs.label == label)).sum())
    total = sum(right.values())
    return {
        "pairs": 2 * each,
        "accuracy": total / (2 * each),
        "interval": wilson_interval(total, 2 * each),
        "accuracy_next": right[IS_NEXT] / each,
        "accuracy_other": right[NOT_NEXT] / each,
    }


def _parts(chosen: NDArray[np.int64], model: BertWithHeads) -> Iterator[NDArray[np.int64]]:
    size = ROWS_AT_ONCE.get(next(model.parameters()).device.type, ROWS_AT_ONCE_ELSEWHERE)
    return (chosen[begin : begin + size] for begin in range(0, len(chosen), size))


def _plain(pairs: Instances, shards: Shards, tokenizer: Tokenizer) -> Batch:
    """[CLS] A [SEP] B [SEP] with nothing hidden."""
    rows, segments = [], []
    for row in range(len(pairs)):
        one = pairs.take(np.array([row]))
        a, b = shards.tokens(one.a_start, one.a_length), shards.tokens(one.b_start, one.b_length)
        ids, sides = tokenizer.with_special(a.tolist(), b.tolist())
        rows.append(ids)
        segments.append(sides)
    return Batch.of(rows, segments=segments)


def show(results: dict[str, dict[str, Any]]) -> None:
    table = Table(title="text that was not learned from")
    for heading in (
        "",
        "masked tokens",
        "accuracy",
        "perplexity",
        "unigram",
        "words by",
        "pairs",
        "next sentence (95 %)",
    ):
        table.add_column(heading, justify="right" if heading else "left")
    for language, found in results.items():
        words, pairs = found["masked"], found.get("next_sentence")
        said = ["", ""]
        if pairs:
            low, high = pairs["interval"]
            said = [f"{pairs['pairs']:,}", f"{pairs['accuracy']:.1%} ({low:.1%} to {high:.1%})"]
        table.add_row(
            language,
            f"{words['tokens']:,}",
            f"{words['accuracy']:.1%}",
            f"{words['perplexity']:.2f}",
            f"{words['unigram_perplexity']:.0f}",
            words["segmenter"],
            *said,
        )
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder with a head for masked words")
    parser.add_argument("--text", nargs="+", metavar="LANGUAGE=FILE", help="instead of held-out Wikipedia")
    parser.add_argument("--rows", type=int, default=2_000, help="of each language, of spans and of pairs")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row")
    parser.add_argument("--as-trained", action="store_true", help="hide words as in training")
    parser.add_argument("--prepared", type=Path, help="a folder where the prepared texts stay, and are looked for")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    texts = dict(WIKIPEDIA)
    if options.text:
        texts = {name: Path(file) for name, _, file in (one.partition("=") for one in options.text)}
    there = [
        name
        for name, file in texts.items()
        if file.is_file() or (options.prepared is not None and (options.prepared / name / MANIFEST).is_file())
    ]
    if options.model is None or not there:
        print("Give --model FOLDER, and --text LANGUAGE=FILE where the shared data are absent: nothing was measured.")
        return
    folder = hf.load(locate(options.model))
    model, tokenizer = folder.model.to(device_named(options.device)).eval(), folder.tokenizer
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="qkv-masked-") as name:
        for language in there:
            shards = corpus(texts[language], tokenizer, (options.prepared or Path(name)) / language)
            treatment = AS_TRAINED if options.as_trained else HIDDEN
            found = {"masked": hidden_words(model, tokenizer, shards, options.rows, options.length, treatment)}
            if "next_sentence" in folder.model.heads:
                found["next_sentence"] = next_sentences(model, tokenizer, shards, options.rows, options.length)
            results[language] = found
    show(results)
    if options.json is not None:
        settings = {"rows": options.rows, "length": options.length, "as_trained": options.as_trained}
        options.json.write_text(
            json.dumps({"settings": settings, "results": results}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
