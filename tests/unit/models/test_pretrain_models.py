"""What `qkv pretrain` begins and goes on with for each model but BERT (tests/stories/test_cli_pretrain.py), and what it
says."""

import json
from pathlib import Path

import pytest
import typer

from qkv.cli.main import main
from qkv.cli.pretrain import report_pretrained
from qkv.errors import InputError
from qkv.jobs.lifecycle import Finished
from qkv.jobs.pretrain import read_model_name, start
from qkv.models.bert import network
from qkv.models.elmo import network as elmo
from qkv.models.gpt import network as gpt
from qkv.models.nnlm import network as nnlm
from qkv.models.rnnlm import network as rnnlm
from qkv.models.table import PRETRAINED
from qkv.train.log import Silent
from qkv.train.run_folder import Outcome
from tests.conftest import ROOT
from tests.support.small_run import configured, make_shards

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = {
    "word2vec": ("train.kernel=torch", "train.chunk=400", "train.epochs=1", "model.width=8"),
    "elmo": ("rows=4", "text.length=8", "model.filters=[4, 4]", "model.width=6", "model.cell_width=10"),
    "rnnlm": ("rows=4", "text.length=8", "rnnlm.width=8"),
    "nnlm": ("rows=4", "text.length=8", "nnlm.width=8", "nnlm.hidden_width=8"),
    "gpt": ("rows=4", "length=16", "model.layers=1"),
}
SIZES = {"elmo": "mini", "rnnlm": "small", "nnlm": "small", "gpt": "tiny"}
SAID = {
    "word2vec": ("the word vectors. Try: qkv similar WORD --model ", "curves, neighbours, a map of words"),
    "elmo": ("perplexity ", " forward and ", " backward, on ", ": the model\n", "curves, remarks"),
    "rnnlm": ("perplexity ", " held-out tokens", ": the model\n", "curves, remarks"),
    "nnlm": ("perplexity ", " held-out tokens", ": the model\n", "curves, remarks"),
    "gpt": (
        " bits per character",
        ": the model, for qkv and transformers. Try: qkv generate ",
        "curves, what it writes",
    ),
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("data"))


def words(model: str) -> list[str]:
    steps = () if model == "word2vec" else ("train.steps=3",)
    size = ["--size", SIZES[model]] if model in SIZES else []
    return size + [word for one in (*FEW[model], *steps, "train.threads=1") for word in ("--set", one)]


@pytest.mark.parametrize("model", FEW)
def test_a_run_and_what_is_said_of_it(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    run = tmp_path / "run"
    assert main(["pretrain", model, "--data", str(shards), "--out", str(run), *words(model)]) == 0
    out, err = capsys.readouterr()
    assert out == "" and all(part in err for part in SAID[model]) and f"{run / 'model'}: " in err
    assert read_model_name(run) == model and (run / "report.html").is_file()
    assert main(["pretrain", "--resume", str(run)]) == 0
    assert f"{run} is finished: " in capsys.readouterr().err
    assert main(["pretrain", "--resume", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["run", "finished", "step", "steps", "model", "report", "evaluation"]
    assert document["finished"] and document["model"] == str(run / "model") and document["evaluation"]


def test_settings_from_a_recipe_and_from_flags(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("[sampling]\nwindow = 3\n", encoding="utf-8")
    settings = [*FEW["word2vec"], "train.threads=1"]
    config = configured("word2vec", str(shards), tmp_path / "recipe.toml", {"device": "cpu"}, settings)
    start(config, tmp_path / "run", Silent())
    written = (tmp_path / "run" / "config.toml").read_text(encoding="utf-8")
    assert "window = 3" in written and 'device = "cpu"' in written


def test_a_run_that_was_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text("[train]\nsteps = 5000\n")
    stopped = Finished(tmp_path, Outcome(0, 1200, finished=False, signal=2))
    with pytest.raises(typer.Exit) as exit_code:
        report_pretrained("elmo", stopped)
    assert exit_code.value.exit_code == 130
    assert capsys.readouterr().err == (
        f"Stopped and saved at step 1,200. Resume with: qkv pretrain --resume {tmp_path}\n"
    )
    with pytest.raises(typer.Exit):
        report_pretrained("elmo", stopped, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert not document["finished"] and document["model"] is None and document["steps"] == 5000


def test_without_held_out_text_nothing_is_said_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text("[train]\nsteps = 3\n")
    report_pretrained("rnnlm", Finished(tmp_path, Outcome(0, 3, finished=True)))
    assert capsys.readouterr().err == f"{tmp_path}/model: the model\n{tmp_path}/report.html: curves, remarks\n"


@pytest.mark.parametrize("model", [model for model in PRETRAINED if model != "bert"])
def test_flags_of_other_models(tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str) -> None:
    if model != "gpt":
        with pytest.raises(InputError, match=f"--init is for bert and gpt; {model} begins from nothing"):
            configured(model, "shards", flags={"init": "qkv-mini"})
    assert main(["pretrain", model, "--data", "shards", "--out", str(tmp_path / "run"), "--size", "huge"]) == 2
    expected = "--size is not for word2vec" if model == "word2vec" else "Unknown size 'huge'."
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a run: it has no config.toml"),
        (
            'model_type = "gtp"\n',
            "unknown model_type 'gtp'. Did you mean 'gpt'? Known: bert, word2vec, elmo, nnlm, rnnlm, gpt.",
        ),
        ('task = "classify"\n', "RUN is a fine-tuning run: qkv finetune --resume RUN."),
    ],
)
def test_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "config.toml").write_text(text)
    assert main(["pretrain", "--resume", str(tmp_path)]) == 2
    assert message.replace("RUN", str(tmp_path)) in capsys.readouterr().err


def test_the_model_beside_resume_is_that_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text('model_type = "word2vec"\nwords = "all"\n')
    assert main(["pretrain", "bert", "--resume", str(tmp_path)]) == 2
    assert f"{tmp_path} is a run of word2vec, not of bert: qkv pretrain --resume" in capsys.readouterr().err
    assert main(["pretrain", "word2vec", "--resume", str(tmp_path)]) == 2
    assert "Unknown words 'all'" in capsys.readouterr().err  # it was read as a run of word2vec


def test_the_help_names_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "--help"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.replace(",", "").replace("│", "").splitlines()]
    sizes = {"bert": network.PRESETS, "elmo": elmo.PRESETS, "nnlm": nnlm.PRESETS, "rnnlm": rnnlm.PRESETS}
    sizes["gpt"] = gpt.PRESETS
    for model, known in sizes.items():
        assert [set(rest) for first, *rest in filter(None, lines) if first == model].count(set(known)) == 1, model


SMALLER = {
    "word2vec": (*FEW["word2vec"], "sampling.window=3"),
    "elmo": (*FEW["elmo"], "device=cpu", "negatives=20", "train.steps=2"),
    "rnnlm": (*FEW["rnnlm"], "train.steps=2"),
    "gpt": (*FEW["gpt"], "device=cpu", "model.size=tiny", "train.steps=2"),
}


@pytest.mark.parametrize("model", SMALLER)
def test_the_recipe_of_a_model_runs(shards: Path, tmp_path: Path, model: str) -> None:
    """With all that is not its size, precision and rates among it."""
    recipe = ROOT / "src" / "qkv" / "zoo" / "recipes" / f"{model}.toml"
    config = configured(model, str(shards), recipe, {}, [*SMALLER[model], "train.threads=1"])
    finished = start(config, tmp_path / "run", Silent())
    assert finished.outcome.finished and finished.evaluation is not None
