"""RUN/sessions.jsonl: each time somebody began a run or went on with it, and what that adds up to."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from qkv.atomic import write_text
from qkv.run.folder import read_lines
from qkv.run.peak import peak_memory
from qkv.train.loop import Outcome

FILE = "sessions.jsonl"


@dataclass(frozen=True)
class Sessions:
    lines: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, run: Path) -> Self:
        return cls(tuple(read_lines(run / FILE)))

    def ended(self, outcome: Outcome, began: float, device: torch.device) -> Self:
        """These and the one that is ending now; `began` is by time.perf_counter()."""
        line = {"from": outcome.started, "to": outcome.step, "seconds": round(time.perf_counter() - began, 1)}
        return type(self)((*self.lines, line | {"peak_memory": peak_memory(device)}))

    def write(self, run: Path) -> None:
        """The last thing a session does: a session to the last step means that all the rest was written."""
        write_text(run / FILE, "".join(json.dumps(line) + "\n" for line in self.lines))

    @property
    def reached(self) -> int:
        return max((line["to"] for line in self.lines), default=0)

    @property
    def seconds(self) -> float:
        return sum(line["seconds"] for line in self.lines)

    @property
    def peak_memory(self) -> int | None:
        return max((line["peak_memory"] or 0 for line in self.lines), default=0) or None

    @property
    def resumed_from(self) -> tuple[int, ...]:
        return tuple(line["from"] for line in self.lines if line["from"])
