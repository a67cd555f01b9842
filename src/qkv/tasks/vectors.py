"""What the encoder says about every row, computed once and kept in a file: the features of `--transfer features`.

Shapes: R rows, N tokens of all rows, D width.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.atomic import replaced_file
from qkv.batch import Batch
from qkv.data.batching import Integers, plan
from qkv.data.examples import Fault
from qkv.data.ranges import ranges
from qkv.data.windowed import Windowed
from qkv.tasks.model import VECTORS, TaskModel
from qkv.tasks.task import Features


class Vectors:
    """Features whose batches carry their vectors, so that nobody runs the encoder for them."""

    def __init__(self, features: Features, vectors: NDArray[np.float32], reads_rows: bool) -> None:
        self.features, self.vectors, self.reads_rows = features, vectors, reads_rows
        self._begins = np.cumsum(self.rows.lengths) - self.rows.lengths

    @property
    def rows(self) -> Windowed:
        return self.features.rows

    @property
    def n_tokens(self) -> Integers:
        return self.features.n_tokens

    @property
    def n_windows(self) -> Integers:
        return self.features.n_windows

    def faults(self) -> list[Fault]:
        return self.features.faults()

    @property
    def unit_tokens(self) -> Integers:
        return self.features.unit_tokens

    def batch(self, units: Integers, draw: np.random.Generator) -> Batch:
        batch = self.features.batch(units, draw)
        rows = self.rows.first_row[batch.examples.numpy()] + batch.windows.numpy()
        return replace(batch, labels={**batch.labels, VECTORS: self.of(rows)})

    def of(self, rows: Integers) -> torch.Tensor:
        """(R, D) or (N, D) of these rows, in their order."""
        places = rows if self.reads_rows else ranges(self._begins[rows], self.rows.lengths[rows])
        return torch.from_numpy(self.vectors[places])


def without_vectors(features: Features) -> Features:
    """The features behind vectors, or themselves."""
    return features.features if isinstance(features, Vectors) else features


def found_vectors(features: Features, file: Path, reads_rows: bool) -> Vectors | None:
    """What an earlier session of the same run wrote: files are written whole or not at all."""
    if not file.is_file():
        return None
    vectors = np.load(file, mmap_mode="r")
    rows = len(features.rows) if reads_rows else int(features.rows.lengths.sum())
    return Vectors(features, vectors, reads_rows) if len(vectors) == rows else None


@torch.inference_mode()
def write_vectors(model: TaskModel, features: Features, file: Path, tokens_per_batch: int) -> Vectors:
    """Run the encoder over all rows, into a file that is mapped and not loaded: it may be larger than memory."""
    rows = features.rows
    device = next(model.parameters()).device
    begins = np.cumsum(rows.lengths) - rows.lengths
    shape = (len(rows) if model.reads_rows else int(rows.lengths.sum()), model.network.config.width)
    model.eval()
    with replaced_file(file) as part:
        with part.open("wb") as stream:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
            start = stream.tell()
            stream.truncate(start + 4 * shape[0] * shape[1])
        found = np.memmap(part, np.float32, "r+", offset=start, shape=shape)
        for chosen in plan(rows.lengths, tokens_per_batch):
            values = model.vectors(rows.collate(chosen).to(device)).float().cpu().numpy()
            found[chosen if model.reads_rows else ranges(begins[chosen], rows.lengths[chosen])] = values
        found.flush()
        del found
    return Vectors(features, np.load(file, mmap_mode="r"), model.reads_rows)
