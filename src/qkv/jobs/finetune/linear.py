"""The head of a classifier on stored vectors, fitted to its optimum (`--transfer features`).

Multinomial logistic regression for one label, one logistic regression per label for several, ridge regression for a
number, on standardised vectors (train/linear.py). The strength of the penalty has the lowest cross-validated loss on
the training examples; the development set is not used. A text of several windows counts with the mean of their vectors:
the head is linear, so this gives the mean of their scores. The result is stored in the linear layer of the head, with
the standardisation folded in.

A fit takes seconds: a run that was stopped fits again, with the same result.

Shapes: E examples, R rows, D width, L outputs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.data.batch import Batch
from qkv.data.labelled.examples import relative_weights
from qkv.data.windows import merge_windows
from qkv.models.encoder import LinearHead
from qkv.tasks.predictor import Vectors
from qkv.tasks.task import Features
from qkv.tasks.texts import TextTask, linear_targets
from qkv.tasks.transfer import TaskModel
from qkv.train.launch import interruptible
from qkv.train.linear import Standard, Tried, fit_linear, fold_numbers, try_strengths
from qkv.train.log import Log, Progress
from qkv.train.loop import Best, Job
from qkv.train.run_folder import Outcome

STRENGTHS = (10.0**4, 10.0**3.5, 10.0**3, 10.0**2.5, 10.0**2, 10.0**1.5, 10.0, 10.0**0.5, 1.0, 10.0**-0.5, 10.0**-1)
"""Of the penalty, from strong to weak: the fit of one is a good start for the next."""
_RISES = 2  # losses above the lowest after which weaker penalties are not tried
_FOLDS = 5
_MOST_SEARCHED = 5_000  # examples that choose the strength; all of them are fitted
_ROWS_AT_ONCE = 8_192


class HeadFit:
    """Takes the place of a `Trainer`: `run`, `restore`, `take_best`, `best` and `job`."""

    def __init__(
        self,
        job: Job[Batch],
        features: Features,
        examples: Sequence[Any],
        task: TextTask,
        class_weights: Sequence[float] | None,
        seed: int,
        progress: Progress,
    ) -> None:
        assert isinstance(job.model, TaskModel) and isinstance(features, Vectors)
        self.job, self.model, self.features, self.progress = job, job.model, features, progress
        self.examples, self.task, self.seed = examples, task, seed
        self.class_weights = class_weights
        self.best = Best()
        self.origin = 0  # a fit is not restarted
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        self._linear.requires_grad_(True)

    @property
    def _linear(self) -> torch.nn.Linear:
        head = self.model.network.heads[self.model.head]
        assert isinstance(head, LinearHead)
        return head.linear

    def run(self) -> Outcome:
        """Choose the strength, fit the head and evaluate it; the log has a line per strength."""
        log = Log(self.job.out, 0, self.progress.log)
        self.progress.start(0, len(STRENGTHS))
        try:
            with interruptible() as interruption:
                tried = self._search(log, interruption)
                if tried is None:
                    return Outcome(0, 0, finished=False, signal=interruption.signal)
                self._fit(min(tried, key=lambda one: one.loss).strength)
                self._evaluate(log, len(tried))
        finally:
            log.close()
        return Outcome(0, self.best.step, finished=True)

    def _search(self, log: Log, interruption: Any) -> list[Tried] | None:
        """Try the strengths; None if interrupted."""
        self._vectors = self._pooled_vectors()
        self._targets = linear_targets(self.task, self.examples, self.class_weights)
        self._standard = Standard.of(self._vectors, self._has_bias, relative_weights(self.examples))
        generator = np.random.default_rng(np.random.SeedSequence((self.seed, 12)))
        n = len(self.examples)
        chosen = np.sort(generator.permutation(n)[:_MOST_SEARCHED])
        fold = self._folds([self.examples[number] for number in chosen.tolist()])
        rows, targets = self._standard.rows(self._vectors[chosen]), self._targets.take(chosen)
        found: list[Tried] = []
        for one in try_strengths(rows, targets, STRENGTHS, fold, self._has_bias):
            found.append(one)
            step = len(found)
            figures = {"loss": one.loss, "strength": one.strength, "score": one.score}
            log.write("log.jsonl", {"step": step, **figures})
            self.progress.step(step, figures)
            if interruption:
                return None
            if step - 1 - min(range(step), key=lambda place: found[place].loss) >= _RISES:
                break
        return found

    def _folds(self, examples: Sequence[Any]) -> NDArray[np.int64]:
        """(n,) the fold of each example; as in a split of a file, equal texts and those of one group are in one."""
        groups: dict[Any, int] = {}
        of_example = [groups.setdefault(example.together(), len(groups)) for example in examples]
        if len(groups) < 2:
            return np.arange(len(examples)) % _FOLDS
        _, firsts = np.unique(of_example, return_index=True)
        strata = ["" if self.task.numbers else examples[first].stratum() for first in firsts.tolist()]
        return fold_numbers(strata, min(_FOLDS, len(strata)), self.seed)[of_example]

    def _fit(self, strength: float) -> None:
        """Set the head to the optimum of this strength on all examples."""
        rows = self._standard.rows(self._vectors)
        fitted = fit_linear(rows, self._targets, strength, intercept=self._has_bias)
        weight, bias = self._standard.folded(fitted)
        with torch.no_grad():
            self._linear.weight.copy_(torch.from_numpy(weight.T))
            if self._has_bias:
                self._linear.bias.copy_(torch.from_numpy(bias))

    @property
    def _has_bias(self) -> bool:
        """A GPT's head has none: then vectors are not centred either."""
        return self._linear.bias is not None

    def _evaluate(self, log: Log, step: int) -> None:
        assert self.job.evaluate is not None and self.job.best_by is not None
        self.model.eval()
        with torch.inference_mode():
            result = self.job.evaluate(self.model)
        log.write("log.jsonl", {"step": step, "evaluation": result})
        self.best.offer(step, result[self.job.best_by], result["loss"], {"linear": self._linear.weight})

    @torch.inference_mode()
    def _pooled_vectors(self) -> NDArray[np.float64]:
        """(E, D) the mean over the rows of each example of what the head reads."""
        rows = self.features.rows
        device = next(self.model.parameters()).device
        self.model.eval()
        chunks = np.array_split(np.arange(len(rows)), -(-len(rows) // _ROWS_AT_ONCE))
        parts = [self.model.pooled(self.features.of(chunk).to(device)).cpu() for chunk in chunks]
        return merge_windows(torch.cat(parts).numpy(), rows.n_rows).astype(np.float64)

    def restore(self) -> None:
        """Fit again: nothing is saved in between. Without a fit there is no head to save."""
        if not self.best.weights and not self.run().finished:
            raise KeyboardInterrupt

    def take_best(self) -> None:
        """Nothing to do: the fitted head is in place."""


def fitted_strength(log: Sequence[dict[str, Any]]) -> float:
    """The strength that a log of `HeadFit` chose."""
    strength: float = min((line for line in log if "strength" in line), key=lambda line: line["loss"])["strength"]
    return strength
