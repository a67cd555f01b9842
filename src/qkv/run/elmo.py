"""A whole training of ELMo: shards in, a model folder out, exactly resumable; and the folder opened again.

The folder of a run is that of a language model's (language_model.py). Checkpoints hold the states that both directions
carry, so that a run which was killed goes on in the middle of its texts.
"""

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qkv.atomic import write_text
from qkv.batch import Batch
from qkv.config import merge, read_toml, to_toml
from qkv.data.manifest import COUNTS
from qkv.data.shard_file import map_arrays
from qkv.data.shards import Shards
from qkv.errors import InputError
from qkv.interop.folder import read_folder, save_folder
from qkv.models.elmo import Elmo, ElmoConfig
from qkv.nn.characters import Highway
from qkv.nn.recurrent import LSTM
from qkv.objectives.both_directions import BothDirections, CarryingBoth, TrainingFlops, TwoWayBatches, TwoWays
from qkv.objectives.sampled_softmax import Unigram
from qkv.report.elmo_page import elmo_page
from qkv.report.language_model_page import LanguageModelFacts
from qkv.report.run_page import write_report
from qkv.run.elmo_config import MODEL_TYPE, ElmoTraining
from qkv.run.elmo_evaluation import TwoWayEvaluation
from qkv.run.folder import begin, config_of, read_lines, remove_drafts
from qkv.run.from_shards import Finished, ended, in_time, opened, recognised
from qkv.run.load import device_named
from qkv.run.peak import peak_memory
from qkv.tokenizer import Tokenizer
from qkv.train.loop import Job, Trainer
from qkv.train.memory import Sizes, divisors, rows_and_accumulation
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
    begin(out, "pretrain")
    data, data_sha256 = recognised(config.data)
    config = replace(config, data=data, data_sha256=data_sha256)
    trainer = _trainer(config, out, progress, begins=True)
    config = replace(config, train=in_time(trainer, progress))
    write_text(out / "config.toml", to_toml(config))
    return _finish(config, out, trainer)


def resume(run: Path, progress: Progress) -> Finished:
    """Go on with a run where its newest checkpoint left off; a finished one stays as it is."""
    file = config_of(run)
    config = merge(ElmoTraining(), read_toml(file), str(file))
    if before := ended(run, config.train.steps):
        return before
    remove_drafts(run)
    return _finish(config, run, _trainer(config, run, progress, begins=False))


def is_elmo(run: Path) -> bool:
    """Whether a run that is to go on is one of these."""
    return read_toml(config_of(run)).get("model_type") == MODEL_TYPE


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


def _trainer(config: ElmoTraining, out: Path, progress: Progress, *, begins: bool) -> TwoWayTrainer:
    tell = progress.message if begins else Silent().message  # of what was told when it began, nothing again
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    device = device_named(config.device)
    corpus, held_out = opened(config.data, config.data_sha256, begins=begins)
    tokenizer = corpus.tokenizer()
    torch.manual_seed(config.train.seed)  # the initial weights
    network = Elmo(config.model.config(tokenizer.size), _tokens(tokenizer))
    batches = TwoWayBatches(
        corpus, tokenizer, config.text, rows=config.rows, accumulate=config.train.accumulate, seed=config.train.seed
    )
    sampler, words = None, float(tokenizer.size)  # and how many words a target is scored against
    if config.samples(tokenizer.size):
        sampler = Unigram(_counts(config, corpus, tokenizer).to(device), config.negatives)
        words = sampler.log_chances.exp().sum().item()
    evaluate = TwoWayEvaluation(held_out, tokenizer, config.text, config.rows, config.evaluation_tokens)
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
            sizes=_sizes(batches, out),
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


def _sizes(batches: TwoWayBatches, out: Path) -> Sizes[TwoWays]:
    """The rows of a step in smaller batches, and more of them."""

    def settings(rows: int) -> str:
        return rows_and_accumulation(rows, batches.streams // rows, out)

    def cut(rows: int, step: int) -> list[TwoWays]:
        return batches.resized(rows, batches.streams // rows).two_ways(step)

    return Sizes(batches.rows, "rows", divisors(batches.rows), cut, settings)


def _finish(config: ElmoTraining, out: Path, trainer: TwoWayTrainer) -> Finished:
    """Train, then write the model and the report."""
    began = time.perf_counter()
    outcome = trainer.run()
    model = trainer.job.model
    assert isinstance(model, CarryingBoth)
    network, corpus = model.network, Shards.open(config.data)
    if outcome.finished:
        record = {"job": "pretrain", "steps": config.train.steps, "config": dataclasses.asdict(config)}
        sizes = dataclasses.asdict(network.config)
        save_folder(out / "model", MODEL_TYPE, sizes, network.state_dict(), corpus.tokenizer(), record)
    session = {"from": outcome.started, "to": outcome.step, "seconds": round(time.perf_counter() - began, 1)}
    sessions = [*read_lines(out / "sessions.jsonl"), session | {"peak_memory": peak_memory(trainer.device)}]
    sampled = config.negatives if config.samples(network.config.vocabulary_size) else None
    write_report(out, elmo_page(out, _facts(network, corpus, sessions), sampled))
    write_text(out / "sessions.jsonl", "".join(json.dumps(one) + "\n" for one in sessions))
    return Finished(out, outcome, config.train.steps)


def _facts(network: nn.Module, corpus: Shards, sessions: Sequence[Mapping[str, Any]]) -> LanguageModelFacts:
    manifest, tokenizer = corpus.manifest, corpus.tokenizer()
    return LanguageModelFacts(
        model_type=MODEL_TYPE,
        vocabulary_size=tokenizer.size,
        unigram_entropy=manifest["unigram_entropy"],
        documents=corpus.n_documents,
        held_out_documents=manifest["valid"]["documents"],
        sentences=corpus.n_sentences,
        tokens=corpus.n_tokens,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        seconds=sum(session["seconds"] for session in sessions),
        peak_memory=max(session["peak_memory"] or 0 for session in sessions) or None,
        resumed_from=tuple(session["from"] for session in sessions if session["from"]),
    )
