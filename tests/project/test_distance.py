"""How far back a network looks: the rows of the task, sizes that are alike, gradients by hand, the whole program."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.support.bench_modules import ROOT, bench_module

recall = bench_module("recall")
networks = bench_module("distance_networks")
distance = bench_module("distance")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_symbol_stands_after_the_mark() -> None:
    rows = recall.at_distance(200, 5, generator())
    assert rows.tokens.shape == (200, 5 + recall.BEFORE + 1)
    every = torch.arange(200)
    assert (rows.places == rows.tokens.size(1) - 1 - 5).all()
    assert (rows.tokens[every, rows.places] == rows.answers).all()
    assert (rows.tokens[every, rows.places - 1] == recall.MARK).all()
    assert (rows.tokens[:, -1] == recall.ASK).all()
    assert ((rows.tokens >= recall.SYMBOLS).sum(1) == 2).all()  # one mark, one question
    counts = rows.answers.bincount(minlength=recall.SYMBOLS)
    assert len(counts) == recall.SYMBOLS and counts.min() > 10


def test_short_distances_are_as_frequent_as_long_ones() -> None:
    rows = recall.up_to_distance(4000, 15, generator())
    distances = rows.tokens.size(1) - 1 - rows.places
    assert distances.min() == 1 and distances.max() == 15
    octaves = distances.double().log2().long().bincount()
    assert len(octaves) == 4 and octaves.min() > 800  # 1, 2 to 3, 4 to 7, 8 to 15: a quarter each


def test_the_same_seed_gives_the_same_rows() -> None:
    one, same, other = (recall.at_distance(8, 3, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.tokens, same.tokens) and not torch.equal(one.tokens, other.tokens)


def test_no_room_for_the_mark() -> None:
    with pytest.raises(AssertionError, match="no room"):
        recall.rows_of(torch.tensor([4]), 5, generator())


@pytest.mark.parametrize("name", networks.BODIES)
def test_all_networks_are_of_about_one_size(name: str) -> None:
    built = networks.network(name, 10_000, recall.VOCABULARY, recall.SYMBOLS)
    assert networks.parameters(built) == pytest.approx(10_000, rel=0.06)
    assert built(torch.zeros(2, 7, dtype=torch.long)).shape == (2, recall.SYMBOLS)


def test_convolutions_see_as_far_as_they_say() -> None:
    torch.manual_seed(0)
    for name, back in networks.REACH.items():
        built = networks.network(name, 3_000, recall.VOCABULARY, recall.SYMBOLS)
        norms = [
            distance.gradient_norm(built, recall.at_distance(4, at, generator()), generator())
            for at in (back, back + 1)
        ]
        assert norms[0] > 0 and norms[1] == 0, name


def test_without_positions_order_is_nothing() -> None:
    torch.manual_seed(0)
    tokens = torch.tensor([[1, 2, 3, 9], [3, 1, 2, 9]])
    for name, same in (("attention", False), ("attention, no positions", True)):
        one, other = networks.network(name, 3_000, recall.VOCABULARY, recall.SYMBOLS).eval()(tokens)
        assert torch.allclose(one, other, atol=1e-5) == same


def test_the_gradient_of_an_rnn_by_hand() -> None:
    """∂ h_T / ∂ x_k is a product: diag(1 − h²) U for every step between, and diag(1 − h²) W at k."""
    torch.manual_seed(0)
    built = networks.network("rnn", 300, recall.VOCABULARY, recall.SYMBOLS)
    rows = recall.at_distance(500, 3, generator())
    cell = built.body.stack.cells[0]
    U, W, b = cell.from_state.weight.detach(), cell.from_input.weight.detach(), cell.from_input.bias.detach()
    hidden, jacobian = torch.zeros(500, built.body.width), None
    for step, tokens in enumerate(rows.tokens.t()):
        hidden = torch.tanh(built.embedding(tokens).detach() @ W.t() + hidden @ U.t() + b)
        slope = (1 - hidden**2)[:, :, None]
        if step == int(rows.places[0]):
            jacobian = slope * W
        elif jacobian is not None:
            jacobian = slope * (U @ jacobian)
    assert jacobian is not None
    by_hand = jacobian.square().sum((1, 2)).mean().sqrt().item()
    assert distance.gradient_norm(built, rows, generator()) == pytest.approx(by_hand, rel=0.05)  # a few directions


def test_a_short_distance_is_learned() -> None:
    torch.manual_seed(0)
    built = networks.network("gru", 4_000, recall.VOCABULARY, recall.SYMBOLS)
    distance.trained(built, partial(recall.at_distance, 32, 1, generator()), steps=60, lr=1e-2)
    assert distance.share_right(built, recall.at_distance(200, 1, generator(1))) > 0.9


def test_curves_have_a_number_of_every_seed() -> None:
    settings = distance.TINY
    learned = [
        {
            "question": "learned",
            "name": name,
            "distance": at,
            "gradient_before": 1.0,
            "gradient_after": 2.0,
            "right": 0.5,
        }
        for name in networks.BODIES
        for at in settings.distances
    ]
    kept = [{"question": "kept", "name": name, "distance": 4, "right_at": [1.0, 0.5]} for name in distance.CELLS]
    found = distance.curves([*learned, *learned, *kept], settings)
    assert found["right"]["rnn"] == [[0.5, 0.5], [0.5, 0.5]] and found["kept"]["lstm"] == [[1.0], [0.5]]
    assert distance.cell([0.5, 0.9], True) == "70 (50–90)" and distance.cell([0.5, 0.51], True) == "50"
    assert distance.cell([0.0], False) == "0" and distance.cell([3e-5], False) == "3e-05"


def drawn(numbers: dict[str, object], folder: Path, name: str) -> list[str]:
    file = folder / f"{name}.json"
    file.write_text(json.dumps(numbers), encoding="utf-8")
    subprocess.run([sys.executable, str(ROOT / "docs" / "measured_figures.py"), str(file)], check=True)
    return [(folder / f"{name}{ending}.svg").read_text(encoding="utf-8") for ending in ("", ".zh")]


def test_the_figure_in_both_languages(tmp_path: Path) -> None:
    distances = [2, 4]
    curve = {name: [[1.0, 0.5], [0.0, 0.1]] for name in networks.BODIES}
    numbers = {
        "settings": {"distances": distances, "kept_distances": distances, "farthest": 2},
        "chance": 0.125,
        "reach": networks.REACH,
        "curves": {
            **dict.fromkeys(("gradient_before", "gradient_after", "right"), curve),
            "kept": {"rnn": curve["rnn"]},
        },
    }
    english, chinese = drawn(numbers, tmp_path, "distance")
    assert "self-attention" in english and "自注意力" in chinese and "guessing: 12.5 %" in english
    assert english.count("<path") == chinese.count("<path") > 60 and "prefers-color-scheme:dark" in english


@pytest.mark.slow
def test_the_whole_program(tmp_path: Path) -> None:
    few = ["--tiny", "--kept-steps", "3", "--workers", "1"]
    command = [sys.executable, str(ROOT / "bench" / "distance.py"), *few, "--out", str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"distance.json", "distance.svg", "distance.zh.svg"}
    settings = json.loads((tmp_path / "distance.json").read_text(encoding="utf-8"))["settings"]
    assert (settings["steps"], settings["kept_steps"]) == (2, 3)  # each by its own option
