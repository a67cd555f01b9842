"""How far back a network can look: every recurrent cell, stacked convolutions and self-attention, at equal size.

    python bench/distance.py                          # a few minutes on 2 cores; the table alone
    python bench/distance.py --out docs/images        # also the figures of docs/distance.md and their numbers
    python bench/distance.py --quick                  # a look: one seed, fewer distances and steps
    python bench/distance.py --device cuda
    python bench/distance.py --sweep                  # learning rates, of which RATE is one; nothing else

Three questions, on rows of recall.py (a symbol is to be named d steps after it was seen):

    gradient   the norm of ∂ (output at the last token) / ∂ (input vector of the symbol): before training, and after it
    learned    trained on rows of distance d and no other: what share is right on new rows of that distance?
    kept       recurrent cells trained on all distances up to a farthest, short ones too: what share is right at each
               distance, also beyond those of training?

All networks have about the same number of parameters (widths are whole numbers) and see as many rows in as many steps
of the same optimizer: Adam, a linear warm-up and decline, gradients clipped to norm 1. The learning rate is one of
three that were tried with a seed that is not among those shown (docs/distance.md). A seed draws weights and rows.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import torch
from distance_networks import BODIES, REACH, Network, network, parameters
from recall import SYMBOLS, VOCABULARY, Rows, at_distance, up_to_distance
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from qkv.nn.recurrent import CELLS

DOCS = Path(__file__).resolve().parent.parent / "docs"
WARM_UP = 30
"""Steps."""
SWEPT, SWEPT_DISTANCES, SWEPT_SEED = (1e-3, 3e-3, 1e-2), (8, 16), 100
RATE = 1e-2
"""The learning rate of all."""
DIRECTIONS = 4
"""Random ones, into which the outputs are looked at for the norm of their gradient."""


@dataclass(frozen=True)
class Settings:
    distances: tuple[int, ...] = (2, 4, 8, 12, 16, 32, 64)
    kept_distances: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    farthest: int = 32  # that is trained, of `kept`
    seeds: int = 3
    budget: int = 10_000  # parameters
    steps: int = 300
    kept_steps: int = 400
    rows: int = 32  # of a step
    test_rows: int = 512
    device: str = "cpu"


QUICK = Settings(distances=(2, 8, 16, 32), kept_distances=(1, 8, 32, 128), seeds=1, steps=150, kept_steps=200)
TINY = Settings(
    distances=(1, 4), kept_distances=(1, 8), farthest=4, seeds=1, budget=1500, steps=2, kept_steps=2, test_rows=16
)


@dataclass(frozen=True)
class Job:
    """One network to train."""

    question: Literal["learned", "kept"]
    name: str  # of BODIES
    distance: int  # of the rows, or the farthest
    seed: int
    lr: float


def jobs(settings: Settings) -> list[Job]:
    """Those that take long first, so that none is left running alone at the end."""
    seeds = range(settings.seeds)
    found = [
        Job("learned", name, distance, seed, RATE)
        for name in BODIES
        for distance in settings.distances
        for seed in seeds
    ]
    found += [Job("kept", name, settings.farthest, seed, RATE) for name in CELLS for seed in seeds]
    return sorted(found, key=lambda job: -job.distance)


def sweep_jobs() -> list[Job]:
    return [Job("learned", name, d, SWEPT_SEED, lr) for name in BODIES for lr in SWEPT for d in SWEPT_DISTANCES]


def trained(built: Network, draw: Callable[[], Rows], steps: int, lr: float) -> None:
    optimizer = torch.optim.Adam(built.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / WARM_UP) * (1 - step / steps)
    )
    device = built.scores.weight.device
    for _ in range(steps):
        rows = draw()
        loss = functional.cross_entropy(built(rows.tokens.to(device)), rows.answers.to(device))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(built.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def share_right(built: Network, rows: Rows) -> float:
    device = built.scores.weight.device
    return (built(rows.tokens.to(device)).argmax(-1).cpu() == rows.answers).double().mean().item()


def gradient_norm(built: Network, rows: Rows, generator: torch.Generator) -> float:
    """The Frobenius norm of ∂ (last output) / ∂ (input of the symbol), root mean square over rows.

    For v of independent normal numbers, the mean of |Jᵀ v|² is that norm squared: a few directions do for many rows.
    """
    device = built.scores.weight.device
    x = built.embedding(rows.tokens.to(device)).detach().requires_grad_()
    output = built.body(x)  # (R, D)
    at = torch.arange(len(rows.places), device=device), rows.places.to(device)
    squares = []
    for _ in range(DIRECTIONS):
        direction = torch.randn(output.shape, generator=generator).to(output)
        (gradient,) = torch.autograd.grad(output, x, direction, retain_graph=True)
        squares.append(gradient[at].square().sum(-1).mean())
    return torch.stack(squares).mean().sqrt().item()


def run(job: Job, settings: Settings) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    built = network(job.name, settings.budget, VOCABULARY, SYMBOLS).to(settings.device)
    train_rows, test_rows = (torch.Generator().manual_seed(2 * job.seed + part) for part in (1_000, 1_001))
    begin = time.perf_counter()
    found: dict[str, Any] = {"parameters": parameters(built), "width": built.body.width}
    if job.question == "learned":
        rows = at_distance(64, job.distance, test_rows)
        found["gradient_before"] = gradient_norm(built, rows, test_rows)
        trained(built, partial(at_distance, settings.rows, job.distance, train_rows), settings.steps, job.lr)
        found["gradient_after"] = gradient_norm(built, rows, test_rows)
        found["right"] = share_right(built, at_distance(settings.test_rows, job.distance, test_rows))
    else:
        draw = partial(up_to_distance, settings.rows, job.distance, train_rows)
        trained(built, draw, settings.kept_steps, job.lr)
        found["right_at"] = [
            share_right(built, at_distance(settings.test_rows, distance, test_rows))
            for distance in settings.kept_distances
        ]
    return asdict(job) | found | {"seconds": time.perf_counter() - begin}


def every(work: Sequence[Job], settings: Settings, workers: int) -> list[dict[str, Any]]:
    if workers == 1:
        return [run(job, settings) for job in work]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(partial(run, settings=settings), work))


def curves(runs: list[dict[str, Any]], settings: Settings) -> dict[str, dict[str, list[list[float]]]]:
    """Question → network → distance by distance, a number of every seed."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for key in ("gradient_before", "gradient_after", "right"):
        found[key] = {
            name: [
                [one[key] for one in runs if key in one and (one["name"], one["distance"]) == (name, distance)]
                for distance in settings.distances
            ]
            for name in BODIES
        }
    found["kept"] = {
        name: [list(values) for values in zip(*(one["right_at"] for one in of_cell(runs, name)), strict=True)]
        for name in CELLS
    }
    return found


def of_cell(runs: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [one for one in runs if one["question"] == "kept" and one["name"] == name]


TITLES = {
    "gradient_before": "Norm of the gradient, before training",
    "gradient_after": "Norm of the gradient, of a network trained at that distance",
    "right": "Right of 100, trained at that distance alone (mean; lowest to highest seed where they differ)",
    "kept": "Right of 100, trained on all distances up to {farthest}",
}


def cell(values: list[float], is_share: bool) -> str:
    mean = statistics.fmean(values)
    if not is_share:
        return f"{mean:.0e}" if mean else "0"
    low, high = (round(100 * end) for end in (min(values), max(values)))
    return f"{100 * mean:.0f}" + (f" ({low}–{high})" if high - low > 3 else "")


def show(found: dict[str, Any]) -> None:
    console = Console(width=150)
    for key, title in TITLES.items():
        table = Table(title=title.format(**found["settings"]))
        table.add_column("distance")
        for distance in found["settings"]["kept_distances" if key == "kept" else "distances"]:
            table.add_column(str(distance), justify="right")
        for name, points in found["curves"][key].items():
            table.add_row(name, *(cell(values, not key.startswith("gradient")) for values in points))
        console.print(table)
    sizes = ", ".join(f"{name} {count:,}" for name, count in found["parameters"].items())
    console.print(f"Guessing: {100 / SYMBOLS:.1f} of 100. Convolutions see back: {REACH}. Parameters: {sizes}.")
    console.print(f"{found['seconds']:.0f} s")


def show_sweep(runs: list[dict[str, Any]]) -> None:
    table = Table(title=f"Right of 100 at distances {' and '.join(map(str, SWEPT_DISTANCES))}, by learning rate")
    for heading in ("", *map(str, SWEPT)):
        table.add_column(heading, justify="left" if not heading else "right")
    for name in BODIES:
        by_rate = ([one["right"] for one in runs if (one["name"], one["lr"]) == (name, lr)] for lr in SWEPT)
        table.add_row(name, *(" ".join(f"{100 * right:.0f}" for right in rights) for rights in by_rate))
    Console(width=150).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="every path once, and no figures worth reading")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--steps", type=int, help="of a network trained at one distance; also with --sweep")
    parser.add_argument("--kept-steps", type=int, help="of one trained on all distances up to a farthest")
    parser.add_argument("--sweep", action="store_true", help="try learning rates, and nothing else")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--out", type=Path, help="a folder for distance.json, distance.svg and distance.zh.svg")
    options = parser.parse_args()
    settings = TINY if options.tiny else QUICK if options.quick else Settings()
    changes = {name: getattr(options, name) for name in ("seeds", "steps", "kept_steps", "device")}
    settings = replace(settings, **{name: value for name, value in changes.items() if value is not None})
    if options.sweep:
        return show_sweep(every(sweep_jobs(), settings, options.workers))
    begin = time.perf_counter()
    runs = every(jobs(settings), settings, options.workers)
    found = {
        "settings": asdict(settings),
        "rate": RATE,
        "chance": 1 / SYMBOLS,
        "reach": REACH,
        "parameters": {one["name"]: one["parameters"] for one in runs},
        "curves": curves(runs, settings),
        "seconds": time.perf_counter() - begin,
    }
    show(found)
    places = [options.json] if options.json else []
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        places.append(options.out / "distance.json")
    for place in places:
        place.write_text(json.dumps(found) + "\n", encoding="utf-8")
    if options.out:
        # the pen lies in docs/, and draws again from the numbers alone
        command = [sys.executable, str(DOCS / "measured_figures.py"), str(options.out / "distance.json")]
        subprocess.run(command, check=True)
    return None


if __name__ == "__main__":
    main()
