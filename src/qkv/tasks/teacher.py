"""A teacher's vectors: computed once, brought to the student's width, turned towards the student, kept on disk.

    raw vectors (texts, W) in 16 bits, named by teacher and texts: other runs find them in the same folder
    matrix (W, D): principal directions of the raw vectors, the strongest first, so that cosines stay as near as
        D numbers allow; a narrower teacher is followed by zeros
    turn: a rotation of these D numbers, which changes no cosine, to where the student's vectors already are (orthogonal
        Procrustes); between two `widths` each, so that the first numbers still matter most

Without the turn a student has to give up its own directions for those of the teacher before it gets better.
Not here: the loss (tasks/embed.py).
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.data.pairs.groups import GroupTable, encode_texts, make_rows
from qkv.errors import InputError
from qkv.files import replaced_file
from qkv.models.family import ENCODES, Opened
from qkv.tasks.embed import GroupSource, TextArray, scale_to_unit, vectors_of_rows

_AT_A_TIME = 65_536  # texts whose vectors are held in memory
_SAMPLE = 4_096  # texts by which the turn is found


@dataclass(frozen=True)
class Teacher:
    opened: Opened
    device: torch.device
    tokens: int  # of a batch
    key: str  # of its weights and precision

    @property
    def width(self) -> int:
        return self.opened.ability(ENCODES).sizes.width

    def name_of(self, texts: Sequence[str]) -> str:
        """The file for the vectors of these texts."""
        found = hashlib.sha256(self.key.encode())
        for text in texts:
            found.update(b"\0" + text.encode())
        return f"{found.hexdigest()[:20]}.npy"

    def write(self, texts: Sequence[str], file: Path) -> None:
        """(texts, width) into a file, to be mapped and not loaded."""
        encodes, pooling = self.opened.ability(ENCODES), self.opened.sentence.pooling or "mean"
        with replaced_file(file) as part:
            found = np.lib.format.open_memmap(part, "w+", np.float16, (len(texts), self.width))
            for begin in range(0, len(texts), _AT_A_TIME):
                chunk = texts[begin : begin + _AT_A_TIME]
                ids = encode_texts(chunk, encodes.tokenizer)
                for text, row in zip(chunk, ids, strict=True):
                    if not len(row):
                        raise InputError(f"The teacher reads nothing in {text[:40]!r}. Leave this text out.")
                rows = make_rows(ids, encodes.tokenizer, encodes.sizes.max_length)
                vectors = vectors_of_rows(encodes, encodes.hidden, rows, pooling, self.device, self.tokens)
                found[begin : begin + len(chunk)] = scale_to_unit(vectors.vectors)
            found.flush()
            del found


def fit_width(vectors: Sequence[NDArray[np.float16]], width: int, sample: int = 65_536) -> tuple[TextArray, float]:
    """The matrix (W, D) that takes a teacher's vectors of width W to `width`, and the share of their squares it keeps.

    The principal directions of a sample, without centring, so that cosines stay as near as they can; a narrower teacher
    is turned, and zeros follow.
    """
    every = max(1, sum(map(len, vectors)) // sample)
    rows = np.concatenate([np.asarray(one[::every], np.float64) for one in vectors])
    values, directions = np.linalg.eigh(rows.T @ rows)  # ascending
    directions = directions[:, ::-1][:, :width]
    directions = directions * np.where(directions.sum(0) < 0, -1.0, 1.0)  # signs are free: fix them
    kept = float(values[::-1][:width].sum() / values.sum())
    padded = np.zeros((rows.shape[1], width), np.float32)
    padded[:, : directions.shape[1]] = directions
    return padded, kept


def turn_towards(aims: TextArray, vectors: TextArray, widths: Sequence[int] = ()) -> TextArray:
    """The rotation (D, D) that brings unit vectors (E, D) of a teacher nearest to a student's of the same texts.

    Numbers are turned among those between two `widths` only.
    """
    ends = sorted({*widths, aims.shape[1]})
    found = np.zeros((aims.shape[1], aims.shape[1]), np.float32)
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        left, _, right = np.linalg.svd(aims[:, begin:end].T.astype(np.float64) @ vectors[:, begin:end])
        found[begin:end, begin:end] = left @ right
    return found


def teach(
    sources: Sequence[GroupSource],
    teacher: Teacher,
    folder: Path,
    width: int,
    widths: Sequence[int],
    see: Callable[[Sequence[str]], TextArray],
    tell: Callable[[str], None],
    kept_in: Path | None = None,
) -> list[GroupSource]:
    """The sources with the teacher's vectors, computed or read from the folder, or from `kept_in`, as other runs are.

    `see` gives the student's vectors of texts before training.
    """
    files = [folder / f"targets-{number}.npy" for number in range(len(sources))]
    taught = [number for number, source in enumerate(sources) if source.targets is not None]
    if not all(files[number].is_file() for number in taught):
        texts = {number: _taught_texts(sources[number].table) for number in taught}
        raw = _raw_vectors(texts, teacher, folder, tell, kept_in)
        matrix, kept = fit_width([np.load(one, mmap_mode="r") for one in raw.values()], width)
        if teacher.width > width:
            tell(
                f"the teacher's {teacher.width} numbers become {width} by principal components, which keep "
                f"{100 * kept:.1f} % of their squares"
            )
        matrix = matrix @ _find_turn(list(texts.values()), list(raw.values()), matrix, widths, see)
        for number, file in raw.items():
            _write_targets(np.load(file, mmap_mode="r"), matrix, files[number])
            if kept_in is None:
                file.unlink(missing_ok=True)  # two sources may have the same texts
    return [
        replace(source, targets=np.load(files[number], mmap_mode="r")) if number in taught else source
        for number, source in enumerate(sources)
    ]


def _raw_vectors(
    texts: dict[int, list[str]], teacher: Teacher, folder: Path, tell: Callable[[str], None], kept_in: Path | None
) -> dict[int, Path]:
    found = {number: (kept_in or folder) / teacher.name_of(own) for number, own in texts.items()}
    missing = [number for number, file in found.items() if not file.is_file()]
    if known := sum(len(texts[number]) for number in found if number not in missing):
        tell(f"{known:,} vectors of the teacher are read from {kept_in or folder}")
    if missing:
        total = sum(len(texts[number]) for number in missing)
        tell(f"computing {total:,} vectors of the teacher {teacher.opened.path.name} (width {teacher.width})")
    for number in missing:
        teacher.write(texts[number], found[number])
    return found


def _find_turn(
    texts: Sequence[Sequence[str]],
    raw: Sequence[Path],
    matrix: TextArray,
    widths: Sequence[int],
    see: Callable[[Sequence[str]], TextArray],
) -> TextArray:
    """By a sample of all texts, the same in every run."""
    every = max(1, sum(map(len, texts)) // _SAMPLE)
    rows = [np.asarray(np.load(file, mmap_mode="r")[::every], np.float32) for file in raw]
    sample = [text for own in texts for text in own[::every]]
    return turn_towards(scale_to_unit(np.concatenate(rows) @ matrix), scale_to_unit(see(sample)), widths)


def _write_targets(raw: NDArray[np.float16], matrix: TextArray, file: Path) -> None:
    with replaced_file(file) as part:
        found = np.lib.format.open_memmap(part, "w+", np.float16, (len(raw), matrix.shape[1]))
        for begin in range(0, len(found), _AT_A_TIME):
            rows = np.asarray(raw[begin : begin + _AT_A_TIME], np.float32)
            found[begin : begin + _AT_A_TIME] = scale_to_unit(rows @ matrix)
        found.flush()
        del found


def _taught_texts(table: GroupTable) -> list[str]:
    return [table.texts[number] for number in np.unique(table.anchors).tolist()]
