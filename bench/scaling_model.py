"""What pretraining BERT would take on 1, 8 and 64 GPUs, plain and with divided weights: computed, not measured.

    python bench/scaling_model.py                   # the table of docs/scale.md
    python bench/scaling_model.py --between 12.5    # with 100 Gbit/s for each GPU between machines

Measured, on one H200 (docs/gpu.md): the time of a step of BERT-base, its peak memory, and how the arithmetic a second
grows with the width. Counted: parameters, operations and bytes, from the settings and from what train/distributed.py
and train/sharded.py exchange. Assumed: the speed of the links, and that what travels during a backward pass costs
nothing as long as it takes no longer. Not in it: that copies and kernels share the memory's bandwidth, slow machines
that all wait for, and evaluation. So a real cluster is slower; the table says what cannot be the limit, and what can.

Every process computes as many tokens a step as the one that was measured, so the step grows with the cluster.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from qkv.models.bert.config import BertConfig, shapes_of_bert

TOKENS = 65_536  # a step and GPU: 512 rows of 128
LENGTH = 128
MASKED = 0.15
STEP = 0.0762  # seconds a step of BERT-base, bf16, dropout 0.1
PEAK = 19.4  # GiB at its peak
FASTER = 529 / 475  # arithmetic a second at width 1,024 over that at 768
BUILT = 12e6  # tokens a second that one thread builds; every process builds the batches of all
BUCKET = 16 << 20  # bytes of gradients that travel together
BOX = 8  # GPUs in a machine
GIB = 1 << 30


@dataclass(frozen=True)
class Model:
    name: str
    config: BertConfig
    blocks: int  # parameters in blocks
    rest: int  # and elsewhere: embeddings, heads
    faster: float  # arithmetic a second, over BERT-base's

    @classmethod
    def of(cls, name: str, faster: float) -> "Model":
        config = BertConfig.preset(name)
        shapes = shapes_of_bert(config, ("masked", "next_sentence"), 2, pooler=True)
        sizes = {key: prod(shape) for key, shape in shapes.items()}
        blocks = sum(size for key, size in sizes.items() if ".blocks." in key)
        return cls(name, config, blocks, sum(sizes.values()) - blocks, faster)

    @property
    def parameters(self) -> int:
        return self.blocks + self.rest

    @property
    def flops(self) -> float:
        """Operations a token, forward and backward (as `model_flops` counts them)."""
        config = self.config
        block = 4 * config.width**2 + 2 * config.width * config.inner_width
        head = config.width**2 + config.width * config.vocabulary_size
        attention = 12 * config.layers * config.width * LENGTH
        return 6 * (config.layers * block + MASKED * head) + attention

    @property
    def activations(self) -> float:
        """Bytes that a step holds beside weights, gradients and averages: measured for base, by layer and width."""
        base = MODELS[0]
        measured = PEAK * GIB - 16 * base.parameters
        size = self.config.layers * self.config.width
        return measured * size / (base.config.layers * base.config.width)

    @property
    def seconds(self) -> float:
        """Of a step on one GPU."""
        return STEP * self.flops / MODELS[0].flops / self.faster


MODELS = [Model.of("base", 1.0)]
MODELS.append(Model.of("large", FASTER))


@dataclass(frozen=True)
class Line:
    """What is computed for a model on so many GPUs."""

    model: Model
    gpus: int
    is_divided: bool
    link: float  # bytes a second

    @property
    def share(self) -> float:
        """What of an exchanged byte one GPU sends in a ring, each way."""
        return (self.gpus - 1) / self.gpus

    @property
    def forward(self) -> float:
        """Bytes sent in the forward pass: divided blocks are gathered in 16 bits, the rest in 32."""
        return self.share * (2 * self.model.blocks + 4 * self.model.rest) if self.is_divided else 0.0

    @property
    def backward(self) -> float:
        """Bytes sent in the backward pass: gradients in 32 bits, there and back where every GPU needs the whole."""
        if self.is_divided:  # blocks are gathered again, and sums stay where their rows are
            return self.share * (2 * self.model.blocks + 4 * self.model.parameters)
        return self.share * 2 * 4 * self.model.parameters

    @property
    def seconds(self) -> float:
        """Of a step: the arithmetic, and what of the exchange does not fit beside it."""
        alone = self.model.seconds
        if self.gpus == 1:
            return alone
        first = self.share * 4 * self.model.rest if self.is_divided else 0.0  # gathered before anything is computed
        late = max(0.0, (self.forward - first) / self.link - alone / 3)
        late += max(0.0, self.backward / self.link - alone * 2 / 3)
        return alone + late + (first + self.share * 2 * BUCKET) / self.link  # the last bucket has nothing beside it

    @property
    def tokens_per_second(self) -> float:
        return self.gpus * TOKENS / self.seconds

    @property
    def memory(self) -> float:
        """Bytes on a GPU at the peak."""
        model = self.model
        if self.is_divided:  # own rows; what is not in blocks, whole, with its gradient; two blocks on their way
            held = 16 * model.parameters / self.gpus + 8 * model.rest + 2 * 4 * model.blocks / model.config.layers
        else:  # several processes hold gradients twice: as they are, and in buckets
            held = (16 if self.gpus == 1 else 20) * model.parameters
        return held + model.activations

    def cells(self) -> list[str]:
        linear = self.tokens_per_second / (self.gpus * TOKENS / self.model.seconds)
        return [
            f"{self.model.name} ({self.model.parameters / 1e6:.0f} M)",
            f"{self.gpus}",
            "train.shard" if self.is_divided else "",
            f"{self.tokens_per_second / 1e6:.2f} M",
            f"{linear:.2f}",
            f"{self.memory / GIB:.1f}",
            f"{(self.forward + self.backward) / 1e6:,.0f}",
            f"{self.tokens_per_second / BUILT:.2f}",
        ]


HEAD = {
    "en": ["BERT", "GPUs", "", "tokens/s", "of linear", "GiB a GPU", "MB sent a GPU and step", "threads that build"],
    "zh": ["BERT", "GPU 数", "", "词元/秒", "与线性之比", "每块的 GiB", "每块每步发送的 MB", "构造批次的线程数"],
}


def lines(inside: float, between: float) -> Iterator[Line]:
    """Links in bytes a second: of a GPU to others of its machine, and to those of other machines."""
    for model in MODELS:
        for gpus in (1, 8, 64):
            for is_divided in (False, True)[: 1 if gpus == 1 else 2]:
                yield Line(model, gpus, is_divided, inside if gpus <= BOX else between)


def table(rows: Sequence[Line], lang: str) -> list[str]:
    """The table in Markdown."""
    cells = [HEAD[lang], ["---"] * len(HEAD[lang]), *(row.cells() for row in rows)]
    return ["| " + " | ".join(one) + " |" for one in cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inside", type=float, default=300.0, help="GB/s of a GPU to the others of its machine")
    parser.add_argument("--between", type=float, default=40.0, help="GB/s of a GPU to other machines")
    parser.add_argument("--lang", choices=HEAD, default="en")
    given = parser.parse_args()
    print("\n".join(table(list(lines(given.inside * 1e9, given.between * 1e9)), given.lang)))


if __name__ == "__main__":
    main()
