"""A whole training of ELMo: shards in, a model folder out, exactly resumable; and the folder opened again.

The folder of a run is that of a language model's (language_model.py). Checkpoints hold the states that both directions
carry, so that a run which was killed goes on in the middle of its texts.
"""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.batch import Batch
from qkv.data.manifest import COUNTS
from qkv.data.shard_file import map_arrays
from qkv.data.shards import Shards
from qkv.errors import InputError
from qkv.interop.folder import read_folder, save_folder
from qkv.models.elmo import Elmo, ElmoConfig
from qkv.nn.characters import Highway
from qkv.nn.halves import Halves
from qkv.nn.recurrent import LSTM
from qkv.objectives.both_directions import BothDirections, CarryingBoth, TrainingFlops, TwoWayBatches, TwoWays
from qkv.objectives.sampled_softmax import Unigram
from qkv.report.elmo_page import elmo_page
from qkv.report.run_page import RunPage
from qkv.run.elmo_config import MODEL_TYPE, ElmoTraining
from qkv.run.elmo_evaluation import TwoWayEvaluation
from qkv.run.from_shards import Finished, Training, opened
from qkv.run.language_model import facts_of, row_sizes
from qkv.run.places import device_named
from qkv.run.sessions import Sessions
from qkv.tokenizer import Tokenizer
from qkv.train.loop import Job, Trainer
from qkv.train.progress import Progress, Silent


class LoadedElmo(NamedTuple):
    network: Elmo
    tokenizer: Tokenizer
    record: dict[str, Any]

    def vectors(self, batch: Batch) -> Tensor:
        """(N, layers + 1, 2 width) for the tokens of packed rows. Every row begins with nothing seen, so that the same
        text has the same vectors (up to rounding, whatever rows lie beside it)."""
        with torch.inference_mode():
            return self.network(batch.ids, batch.lengths)


class TwoWayTrainer(Trainer[TwoWays]):
    """A trainer whose checkpoints hold the carried states as well, and whose trials leave none behind."""

    def _begin(self) -> None:
        super()._begin()
        assert isinstance(self.job.model, CarryingBoth)
        self.job.model.forget()

    def trained(self) -> dict[str, Tensor]:
        carried = {name: part for name, part in self.job.model.named_buffers() if name.startswith("carried_")}
        return super().trained() | carried


def start(config: ElmoTraining, out: Path, progress: Progress) -> Finished:
    """Begin a run in a new folder."""
    return _training().start(config, out, progress)


def resume(run: Path, progress: Progress) -> Finished:
    """Go on with a run where its newest checkpoint left off; a finished one stays as it is."""
    return _training().resume(run, progress)


def _training() -> Training[ElmoTraining, TwoWays]:
    return Training(ElmoTraining(), _trainer, _save, _page)


def load_elmo(path: str | Path) -> LoadedElmo:
    """The network of a folder that a run has written, ready to be asked."""
    folder = read_folder(path, MODEL_TYPE)
    try:
        config = ElmoConfig(**(folder.config | {"filters": tuple(folder.config["filters"])}))
        network = Elmo(config, _tokens(folder.tokenizer))
        network.load_state_dict(folder.tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"{path}: config.json and model.safetensors do not fit together: {error}") from None
    return LoadedElmo(network.eval(), folder.tokenizer, folder.record)


def _tokens(tokenizer: Tokenizer) -> list[str]:
    """By id; a vocabulary may have gaps."""
    tokens = [""] * tokenizer.size
    for token, number in tokenizer.vocabulary.items():
        tokens[number] = token
    return tokens


def _trainer(config: ElmoTraining, out: Path, progress: Progress, begins: bool) -> TwoWayTrainer:
    tell = progress.message if begins else Silent().message  # of what was told when it began, nothing again
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    device = device_named(config.device)
    corpus, held_out = opened(config.data, config.data_sha256, begins=begins)
    tokenizer = corpus.tokenizer()
    torch.manual_seed(config.train.seed)  # the initial weights
    network = Elmo(config.model.config(tokenizer.size), _tokens(tokenizer))
    sizes = network.sizes().numpy()
    batches = TwoWayBatches(
        corpus,
        tokenizer,
        config.text,
        rows=config.rows,
        accumulate=config.train.accumulate,
        seed=config.train.seed,
        sizes=sizes,
    )
    sampler, words = None, float(tokenizer.size)  # and how many words a target is scored against
    if config.samples(tokenizer.size):
        sampler = Unigram(_counts(config, corpus, tokenizer).to(device), config.negatives)
        words = sampler.log_chances.exp().sum().item()
    evaluate = TwoWayEvaluation(held_out, tokenizer, config.text, config.rows, config.evaluation_tokens, sizes)
    if not evaluate.count:
        tell("No text is held out, so nothing is evaluated. For that, prepare the corpus with --hold-out.")
    return TwoWayTrainer(
        Job(
            CarryingBoth(network, batches.streams).to(device),
            BothDirections(sampler),
            batches.two_ways,
            out,
            evaluate=evaluate if evaluate.count else None,
            flops=TrainingFlops(network, words),
            matrices=_matrices(network),
            sizes=row_sizes(batches, out, TwoWayBatches.two_ways),
            around=Halves,
        ),
        config.train,
        progress,
    )


def _counts(config: ElmoTraining, corpus: Shards, tokenizer: Tokenizer) -> Tensor:
    """(V,) How often each token is to be predicted: those of the shards, and what running text puts between them."""
    counts = torch.from_numpy(map_arrays(corpus.folder / COUNTS)["counts"].astype("int64"))
    counts[tokenizer.cls_id] += corpus.n_documents
    counts[tokenizer.sep_id] += corpus.n_sentences if config.text.ends == "sentence" else corpus.n_documents
    return counts


def _matrices(network: Elmo) -> dict[str, int]:
    """What Muon takes: the weights inside, and how many matrices lie in each; not the tables of bytes and words."""
    found = {"network.characters.project.weight": 1}
    for name, module in network.named_modules(prefix="network"):
        if isinstance(module, LSTM):
            found |= {f"{name}.from_input.weight": 4, f"{name}.from_state.weight": 4, f"{name}.project.weight": 1}
        elif isinstance(module, Highway):
            found |= {f"{name}.change.weight": 1, f"{name}.gate.weight": 1}
    return found


def _save(config: ElmoTraining, out: Path, trainer: Trainer[TwoWays], corpus: Shards) -> None:
    network = _trained(trainer)
    record = {"job": "pretrain", "steps": config.train.steps, "config": dataclasses.asdict(config)}
    sizes = dataclasses.asdict(network.config)
    save_folder(out / "model", MODEL_TYPE, sizes, network.state_dict(), corpus.tokenizer(), record)


def _trained(trainer: Trainer[TwoWays]) -> Elmo:
    assert isinstance(trainer.job.model, CarryingBoth)
    return trainer.job.model.network


def _page(config: ElmoTraining, out: Path, trainer: Trainer[TwoWays], corpus: Shards, sessions: Sessions) -> RunPage:
    network = _trained(trainer)
    sampled = config.negatives if config.samples(network.config.vocabulary_size) else None
    return elmo_page(out, facts_of(MODEL_TYPE, network, corpus, sessions), sampled)
