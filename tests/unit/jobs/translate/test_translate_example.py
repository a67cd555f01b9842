"""The first example: half a minute on a CPU, and every row of digits comes back right."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from qkv.api.translator import load_translator
from qkv.config import Requested
from qkv.errors import InputError
from qkv.jobs.translate.data import write_digit_pairs
from qkv.jobs.translate.settings import example_settings, resolve_translation_settings
from qkv.jobs.translate.training import start_example
from qkv.train.log import Silent


def test_settings_for_both_models() -> None:
    for model in ("transformer", "seq2seq"):
        config = resolve_translation_settings(
            Requested(assignments=["train.steps=3"]), example_settings("reverse", model)
        )
        assert config.model_type == model and config.train.steps == 3 and config.select == "exact"
    with pytest.raises(InputError, match="Did you mean 'reverse'"):
        example_settings("revers", "transformer")


@pytest.mark.parametrize("was_there", [False, True])
def test_an_example_that_did_not_begin_leaves_nothing(
    tmp_path: Path, was_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = partial(write_digit_pairs, train=30, dev=3, test=3)
    monkeypatch.setattr("qkv.jobs.translate.training.write_digit_pairs", few)
    run = tmp_path / "run"
    if was_there:
        run.mkdir()
    config = example_settings("reverse", "transformer")
    with pytest.raises(InputError, match="longer than max_length"):
        start_example("reverse", replace(config, max_length=2), run, Silent())
    assert run.exists() == was_there and not (was_there and any(run.iterdir()))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("qkv.jobs.lifecycle.Lifecycle.start_in", interrupted)
    with pytest.raises(KeyboardInterrupt):  # and not: is not an empty folder
        start_example("reverse", config, run, Silent())
    assert run.exists() == was_there and not (was_there and any(run.iterdir()))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["transformer", "seq2seq"])
def test_it_learns_to_reverse(tmp_path: Path, model: str) -> None:
    done = start_example("reverse", example_settings("reverse", model), tmp_path / "run", Silent())
    assert done.result["scores"]["test"]["exact"] > 0.98
    translator = load_translator(tmp_path / "run")
    found = translator.translate(["1 2 3 4 5"], alignments=True)[0]
    assert found.text == "5 4 3 2 1"
    # each digit was written while looking at itself, or at its neighbour
    assert all(abs(link.source.start - (8 - link.target.start)) <= 2 for link in found.best.alignments)
