"""The generator: order, batches, prompts with and without a mark before them, room, what is refused."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.batch import Batch
from qkv.errors import InputError
from qkv.generate.options import GenerateConfig
from qkv.interop.folder import save_folder
from qkv.interop.gpt2 import load, save
from qkv.models.gpt import GPT, GPTConfig
from qkv.models.rnnlm import RNNLM, RNNLMConfig
from qkv.run import generate
from qkv.run.generate import Generator, Text
from qkv.tokenizer import Tokenizer
from tests.byte_pairs import gpt2_backend, gpt_backend
from tests.folders import make_folder, make_tokenizer, randomise

pytestmark = pytest.mark.usefixtures("one_thread")

POSITIONS = 24
PROMPTS = ["the cat", "he owes me money", "今天天气", "the"]


def make_gpt(folder: Path, tokenizer: Tokenizer, record: dict[str, Any] | None = None, **changes: Any) -> Path:
    sizes = {"layers": 2, "width": 16, "heads": 2, "inner_width": 32, "max_length": POSITIONS} | changes
    model = GPT(GPTConfig(tokenizer.size, **sizes))
    randomise(model)
    return save(folder, model, tokenizer, record)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    folder = make_gpt(tmp_path_factory.mktemp("ours") / "gpt", make_tokenizer(), {"job": "pretrain"})
    return Generator(folder)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    return Generator(make_gpt(tmp_path_factory.mktemp("theirs") / "gpt", Tokenizer(gpt2_backend(), "byte-pair")))


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    tokenizer = make_tokenizer()
    network = RNNLM(RNNLMConfig(tokenizer.size, width=16))
    randomise(network)
    folder = tmp_path_factory.mktemp("recurrent") / "rnnlm"
    return Generator(save_folder(folder, "rnnlm", vars(network.config), network.state_dict(), tokenizer))


def plainly(generator: Generator, ids: list[int], n: int) -> list[int]:
    """The likeliest tokens, each from the whole text, without a cache; marks are not written."""
    model, written = load(generator.path).model, list[int]()
    for _ in range(n):
        whole = torch.tensor(ids + written)
        with torch.no_grad():
            hidden = model(whole, Batch.of([whole.tolist()]).packing)
        scores = model.scores(hidden[-1])
        scores[generator.never] = -torch.inf
        written.append(int(scores.argmax()))
        if written[-1] == generator.end_id:
            break
    return written


def texts_of(found: Iterable[list[Text]]) -> list[list[str]]:
    return [[one.text for one in texts] for texts in found]


def test_greedy_is_the_likeliest_token_of_the_whole_text(ours: Generator) -> None:
    config = GenerateConfig(max_length=8)
    for prompt, (found,) in zip(PROMPTS, ours.generate(PROMPTS, config), strict=True):
        ids = [ours.tokenizer.sep_id, *ours.tokenizer.encode_ids([prompt])[0]]
        tokens = plainly(ours, ids, 8)
        assert found.prompt == prompt and found.n_prompt_tokens == len(ids) and found.n_tokens == len(tokens)
        assert ours.tokenizer.decode([*ids, *tokens]) == (ours.tokenizer.decode(ids) + found.text)


def test_a_prompt_begins_a_document_if_the_model_was_trained_so(ours: Generator, theirs: Generator) -> None:
    assert ours.generate(["the"])[0][0].n_prompt_tokens == 2 and ours.begins_documents
    assert ours.generate(["the"], begins=False)[0][0].n_prompt_tokens == 1
    assert theirs.generate(["the"])[0][0].n_prompt_tokens == 1
    assert theirs.generate(["the"], begins=True)[0][0].n_prompt_tokens == 2
    for generator in (ours, theirs):  # from nothing
        ((found,),) = generator.generate([""], GenerateConfig(max_length=3))
        assert found.n_prompt_tokens == 1 and found.prompt == "" and found.n_tokens <= 3


def test_whatever_is_beside_a_prompt_changes_nothing(ours: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    config = GenerateConfig(max_length=6, sample=True, n_best=2)
    together = texts_of(ours.generate(PROMPTS, config, seed=5))
    monkeypatch.setattr(generate, "TOKENS", 1)  # one at a time
    assert texts_of(ours.generate(PROMPTS, config, seed=5)) == together
    monkeypatch.setattr(generate, "CHUNK", 3)
    placed = [(prompt, "here") for prompt in PROMPTS]
    assert texts_of(ours.generate_all(iter(placed), config, seed=5)) == together
    assert texts_of(ours.generate(PROMPTS, config, seed=6)) != together


@pytest.mark.parametrize("name", ["ours", "theirs", "recurrent"])
@pytest.mark.parametrize("sample", [False, True])
def test_a_stream_is_the_text(name: str, sample: bool, request: pytest.FixtureRequest) -> None:
    generator = request.getfixturevalue(name)
    config = GenerateConfig(max_length=12, sample=sample, seed=3)
    for prompt in ("", "the cat", "今天"):
        pieces = list(generator.stream(prompt, config))
        ((found,),) = generator.generate([prompt], config)
        assert "".join(pieces) == found.text and "" not in pieces


def test_beams(ours: Generator, recurrent: Generator) -> None:
    for generator in (ours, recurrent):
        found = generator.generate(["the cat"], GenerateConfig(beams=4, n_best=3, max_length=5))[0]
        scores = [one.score for one in found]
        assert len(found) == 3 and scores == sorted(scores, reverse=True)
        with pytest.raises(InputError, match="4 texts grow at once"):
            next(generator.stream("the cat", GenerateConfig(beams=4, max_length=5)))


def test_a_length_that_nobody_asked_for_is_what_there_is_room_for(ours: Generator, recurrent: Generator) -> None:
    ((found,),) = ours.generate(["the cat sat"], GenerateConfig(max_length=100, min_length=99), fit=True)
    assert found.n_tokens == POSITIONS + 1 - 4 or found.finished
    with pytest.raises(InputError, match=r"Prompt 1 \('the cat sat'\) has 4 tokens, .* room for 21 of the 24"):
        ours.generate(["the cat sat"], GenerateConfig(max_length=22))
    assert ours.generate(["the cat sat"], GenerateConfig(max_length=21))
    ((found,),) = recurrent.generate(["the cat sat"], GenerateConfig(max_length=70, min_length=69))
    assert found.n_tokens == 70  # it has no positions to run out of


def test_a_prompt_may_be_as_long_as_the_positions(ours: Generator) -> None:
    longest = " ".join(["cat"] * (POSITIONS - 1))
    assert ours.generate([longest])[0][0].n_tokens == 1
    with pytest.raises(InputError, match=r"has 25 tokens, and the model of .* reads 24 at most. Shorten it"):
        ours.generate(["the", longest + " cat"], places=["a", "b.txt, line 2"])
    with pytest.raises(InputError, match=r"^b.txt, line 2 "):
        ours.check([("the", "a"), (longest + " cat", "b.txt, line 2")])
    assert ours.check([("the", "a"), ("cat", "b")]) == 2


@pytest.mark.parametrize("text", ["   ", "\n", "\u200d"])
def test_a_prompt_without_tokens(ours: Generator, text: str) -> None:
    with pytest.raises(InputError, match="has no token: nothing but spaces"):
        ours.generate([text])


def test_a_vocabulary_without_a_mark(tmp_path: Path) -> None:
    generator = Generator(
        make_gpt(tmp_path / "gpt", Tokenizer(gpt_backend(), "byte-pair"), order="post", inner_width=64)
    )
    assert generator.end_id is None and not generator.begins_documents
    config = GenerateConfig(max_length=5, min_length=4)
    ((found,),) = generator.generate(["the cat"], config)
    assert not found.finished and found.n_tokens == 5
    assert "".join(generator.stream("the cat", config)) == found.text
    assert len(generator.generate(["the cat"], GenerateConfig(beams=2, max_length=5, min_length=4))[0]) == 1
    with pytest.raises(InputError, match="has no mark to begin a text with"):
        generator.generate([""])
    with pytest.raises(InputError, match="has no mark that stands before documents"):
        generator.generate(["the"], begins=True)


def test_marks_and_rows_without_a_token_are_never_written(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    model = GPT(GPTConfig(tokenizer.size + 9, 1, 16, 2, 32, POSITIONS))
    randomise(model)
    with torch.no_grad():
        model.embedding.weight[tokenizer.size :] *= 100
        model.embedding.weight[tokenizer.mask_id] *= 100
    generator = Generator(save(tmp_path / "gpt", model, tokenizer))
    assert set(range(tokenizer.size, tokenizer.size + 9)) < set(generator.never)
    text = generator.generate(["the cat"], GenerateConfig(sample=True, max_length=20))[0][0].text
    assert "[" not in text


def test_unknown_tokens_are_counted(ours: Generator) -> None:
    assert [one[0].n_unknown for one in ours.generate(["the zebra", "the cat"])] == [1, 0]


@pytest.mark.parametrize("changes", [{"max_ratio": 2.0}, {"coverage_penalty": 0.1}])
def test_options_of_translation_are_refused(ours: Generator, changes: dict[str, float]) -> None:
    with pytest.raises(InputError, match="is for models that translate"):
        ours.generate(["the"], GenerateConfig.of(changes))


def test_a_bert_says_what_it_can_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write on .* fills it: qkv fill TEXT --model .*bert"):
        Generator(make_folder(tmp_path / "bert"))
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5" / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(InputError, match="It holds a model of type t5"):
        Generator(tmp_path / "t5")


def test_other_mistakes(ours: Generator) -> None:
    with pytest.raises(InputError, match="give a list"):
        ours.generate("the cat")
    with pytest.raises(InputError, match="threads must be 1"):
        Generator(ours.path, threads=0)
    with pytest.raises(InputError, match="Did you mean 'float32'"):
        Generator(ours.path, dtype="float23")
    assert Generator(ours.path, dtype="bfloat16").generate(["the"], GenerateConfig(max_length=3))
