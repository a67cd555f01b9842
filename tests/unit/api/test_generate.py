"""The generator: order, batches, prompts with and without a mark before them, room, what is refused."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch

from qkv.api import generator as generate
from qkv.api.generator import GeneratedText, Generator
from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.folders.own import save_folder
from qkv.models.gpt.folder import save
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.rnnlm.network import RNNLM, RNNLMConfig
from qkv.search.options import GenerateConfig
from qkv.text.tokenizer import Tokenizer
from tests.support.byte_pairs import gpt2_backend, gpt_backend
from tests.support.folders import make_folder, make_tokenizer, randomise
from tests.support.gpt_folders import load_gpt

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
    model, written = load_gpt(generator.path).model, list[int]()
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


def texts_of(found: Iterable[list[GeneratedText]]) -> list[list[str]]:
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
    monkeypatch.setattr(generate, "_TOKENS", 1)  # one at a time
    assert texts_of(ours.generate(PROMPTS, config, seed=5)) == together
    monkeypatch.setattr(generate, "_CHUNK", 3)
    placed = [(prompt, "here") for prompt in PROMPTS]
    assert texts_of(ours.generate_all(iter(placed), config, seed=5)) == together
    assert texts_of(ours.generate(PROMPTS, config, seed=6)) != together


def test_a_draw_is_of_its_prompt_and_of_no_place(ours: Generator) -> None:
    """Whatever stands before it: only the same prompt, the second time, is drawn anew."""
    config = GenerateConfig(max_length=8, sample=True)
    alone = {prompt: texts_of(ours.generate([prompt], config, seed=5))[0] for prompt in PROMPTS}
    assert texts_of(ours.generate(PROMPTS[::-1], config, seed=5)) == [alone[prompt] for prompt in PROMPTS[::-1]]
    assert ["".join(ours.stream(prompt, config, seed=5)) for prompt in PROMPTS] == [text for (text,) in alone.values()]
    twice = texts_of(ours.generate(["the", "the cat", "the"], config, seed=5))
    assert twice[0] == alone["the"] and twice[1] == alone["the cat"] and twice[2] != twice[0]


def test_the_same_prompt_later_is_drawn_anew(ours: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "_CHUNK", 2)
    config = GenerateConfig(max_length=8, sample=True)
    found = texts_of(ours.generate_all([("the", "here")] * 5, config, seed=5))
    assert len({text for (text,) in found}) > 3 and found == texts_of(ours.generate(["the"] * 5, config, seed=5))


@pytest.mark.parametrize("precision", ["int8", "drafted"])
def test_precisions(ours: Generator, recurrent: Generator, precision: str) -> None:
    config = GenerateConfig(max_length=8)
    faster = Generator(ours.path, precision=precision)
    assert isinstance(faster.writer, GPT) and faster.writer.decoding.precision == precision
    ((found,),) = faster.generate(["the cat"], config)
    if precision == "drafted":
        assert found.text == ours.generate(["the cat"], config)[0][0].text
    with pytest.raises(InputError, match=f"Precision {precision} is for a GPT, and .* is a recurrent network"):
        Generator(recurrent.path, precision=precision)
    with pytest.raises(InputError, match=r"these are torch.bfloat16"):
        Generator(ours.path, dtype="bfloat16", precision=precision)
    with pytest.raises(InputError, match="Unknown precision 'int4'"):
        Generator(ours.path, precision="int4")


@pytest.mark.parametrize("changes", [{"repetition_penalty": 100.0}, {"no_repeat": 1}])
def test_a_text_begun_from_nothing_may_end(ours: Generator, changes: dict[str, Any]) -> None:
    """The mark before it is the one that ends it, and was not written."""
    config = GenerateConfig.of({"sample": True, "max_length": 20, "n_best": 40, **changes})
    assert any(one.finished for one in ours.generate([""], config)[0])


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
    ((found,),) = ours.generate(["the cat sat"], GenerateConfig(max_length=100, min_length=20), fit=True)
    assert found.n_tokens == POSITIONS + 1 - 4
    with pytest.raises(InputError, match=r"leaves room for 21, and min_length 21 .* Set it to 20 or less"):
        ours.generate(["the cat sat"], GenerateConfig(max_length=100, min_length=21), fit=True)
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


def test_a_folder_by_others_names_its_marks(tmp_path: Path) -> None:
    """In config.json: any token may end a text."""
    tokenizer = Tokenizer(gpt2_backend(), "byte-pair")
    folder = make_gpt(tmp_path / "gpt", tokenizer)
    fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(fields | {"eos_token_id": 7, "bos_token_id": 9}), encoding="utf-8")
    generator = Generator(folder)
    assert (generator.begin_id, generator.end_id, generator.notes) == (9, 7, ())
    assert 0 in generator.never and 7 not in generator.never
    (folder / "config.json").write_text(json.dumps(fields | {"eos_token_id": 50_256}), encoding="utf-8")
    generator = Generator(folder)
    assert generator.end_id == generator.begin_id == tokenizer.sep_id
    assert generator.notes == (
        "config.json: eos_token_id 50256 is no token of the vocabulary; <|endoftext|> (0) is taken",
    )


def test_a_vocabulary_of_texts_alone(tmp_path: Path) -> None:
    """Bytes without a mark: the first one is a token like all others."""
    state = json.loads(gpt2_backend().to_str())
    state["added_tokens"] = []
    state["model"]["vocab"] = {
        token: number - 1 for token, number in state["model"]["vocab"].items() if token != "<|endoftext|>"
    }
    tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)), "byte-pair")
    generator = Generator(make_gpt(tmp_path / "gpt", tokenizer))
    assert generator.never == [] and generator.tokenizer.special_ids == frozenset()
    first = tokenizer.token(0)
    assert generator.n_unknown(first) == 0 and first in generator.tokenizer.decode(
        generator.tokenizer.encode_ids([first])[0]
    )
    names = json.loads((tmp_path / "gpt" / "special_tokens_map.json").read_text(encoding="utf-8"))
    assert names == {}


def test_unknown_tokens_are_counted(ours: Generator) -> None:
    assert (ours.n_unknown("the zebra"), ours.n_unknown("the cat")) == (1, 0)
    assert [one[0].n_unknown for one in ours.generate(["the zebra", "the cat"])] == [1, 0]


@pytest.mark.parametrize("changes", [{"max_ratio": 2.0}, {"coverage_penalty": 0.1}])
def test_options_of_translation_are_refused(ours: Generator, changes: dict[str, float]) -> None:
    with pytest.raises(InputError, match="is for models that translate"):
        ours.generate(["the"], GenerateConfig.of(changes))


def test_a_bert_says_what_it_can_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write on .* fill a blank \(qkv fill TEXT --model .*bert"):
        Generator(make_folder(tmp_path / "bert"))
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5" / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(InputError, match="says model_type 't5'"):
        Generator(tmp_path / "t5")
    (tmp_path / "t5" / "config.json").rename(tmp_path / "t5" / "notes.txt")
    with pytest.raises(InputError, match=r"t5 is not a model folder: it has no config.json, only notes.txt"):
        Generator(tmp_path / "t5")


def test_other_mistakes(ours: Generator) -> None:
    with pytest.raises(InputError, match="give a list"):
        ours.generate("the cat")
    with pytest.raises(InputError, match="threads must be 1"):
        Generator(ours.path, threads=0)
    with pytest.raises(InputError, match="Did you mean 'float32'"):
        Generator(ours.path, dtype="float23")
    assert Generator(ours.path, dtype="bfloat16").generate(["the"], GenerateConfig(max_length=3))
