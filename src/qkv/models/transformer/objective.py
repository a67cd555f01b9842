"""The objective of translation models: the next token of the target, given the source and the target so far.

With label smoothing (Szegedy et al. 2016; Vaswani et al. 2017, §5.4) a share ε of the certainty is spread evenly over
the vocabulary: the model is not pressed to be surer than it can be. With the scores s of all V tokens, what is
minimised for a token y is

    (1 − ε) · −log p(y)  +  ε · mean over v of −log p(v)   =   −log p(y)  +  ε · (s_y − mean over v of s_v)

The right-hand side needs the plain loss and two products that never see the whole vocabulary; on a GPU one kernel has
it all (nn/gpu/layers.py). The plain loss, which can be compared with other models', is noted beside it.

Shapes: M target tokens, D width, V vocabulary.
"""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from qkv.data.pairs.batching import NEXT, PairBatch
from qkv.errors import InputError
from qkv.models.seq2seq.network import Seq2Seq
from qkv.models.transformer.network import Transformer
from qkv.nn.gpu import layers
from qkv.nn.gpu.layers import word_loss
from qkv.train.loop import Term


class TranslationObjective:
    """`next` is minimised; `plain`, the loss without smoothing, is only logged."""

    weights: Mapping[str, float] = {"next": 1.0, "plain": 0.0}

    def __init__(self, smoothing: float = 0.1) -> None:
        if not 0 <= smoothing < 1:
            raise InputError(f"smoothing is a share from 0 to less than 1, not {smoothing}.")
        self.smoothing = smoothing

    def counts(self, batch: PairBatch) -> dict[str, int]:
        return {"next": batch.n_tokens, "plain": batch.n_tokens}

    def terms(self, model: nn.Module, batch: PairBatch) -> dict[str, Term]:
        smoothed, plain, right = losses(*_before_words(model, batch), batch.target.labels[NEXT], self.smoothing)
        return {"next": Term(smoothed, right), "plain": Term(plain.detach(), right)}


def _before_words(model: nn.Module, batch: PairBatch) -> tuple[Tensor, Tensor, Tensor]:
    assert isinstance(model, Transformer | Seq2Seq)
    source, target = batch.source, batch.target
    return model.before_words(model(source.ids, source.packing, target.ids, target.packing))


def losses(x: Tensor, table: Tensor, bias: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """x (M, D), scored against the table (V, D) → the summed smoothed and plain losses, and the number of correct
    predictions.

    >>> table = torch.tensor([[2.0], [0], [1]])
    >>> smoothed, plain, right = losses(torch.ones(1, 1), table, torch.zeros(3), torch.tensor([0]), 0.3)
    >>> round(plain.item(), 4), round(smoothed.item(), 4), right.item()
    (0.4076, 0.7076, 1)
    """
    if smoothing and layers.has_kernels(x):
        return layers.smoothed_cross_entropy(x, table, bias, labels, smoothing)
    plain, right = word_loss(x, table, bias, labels)
    if not smoothing:
        return plain, plain, right
    lifted = functional.embedding(labels, table) - table.mean(0)  # (M, D)
    with torch.autocast(x.device.type, enabled=False):  # a sum over so many is for all digits
        beyond = (x.float() * lifted.float()).sum() + (bias.index_select(0, labels) - bias.mean()).float().sum()
    return plain + smoothing * beyond, plain, right


def evaluate_translation(model: nn.Module, batches: Iterable[PairBatch]) -> tuple[float, int, int]:
    """The mean loss without smoothing, the number of correct predictions, and their total."""
    device = next(model.parameters()).device
    loss, right, count = 0.0, 0, 0
    for batch in batches:
        here = batch.to(device)
        plain, correct = word_loss(*_before_words(model, here), here.target.labels[NEXT])
        loss, right, count = loss + plain.item(), right + int(correct), count + batch.n_tokens
    return loss / max(1, count), right, count


def translation_flops(model: Transformer | Seq2Seq) -> Callable[[PairBatch], float]:
    """Floating-point operations of forward and backward: 6 per weight and token."""
    of_source = ("encoder.", "to_hidden.", "to_memory.")
    weights = {"source": 0, "target": model.config.width * len(model.words.bias)}  # the scores of words
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and "embedding" not in name and not name.startswith("words."):
            reads_source = name.startswith(of_source) or "cross_attention.key_value" in name
            weights["source" if reads_source else "target"] += weight.numel()
    return lambda batch: 6.0 * (weights["source"] * batch.source.n_tokens + weights["target"] * batch.n_tokens)
