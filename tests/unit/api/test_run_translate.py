"""The translator: order, long texts, sentences, candidates, alignments; OPUS-MT folders."""

from pathlib import Path
from typing import cast

import pytest
from safetensors.torch import save_file

from qkv.api.translator import TranslationCandidate, Translator, _join, load_translator
from qkv.errors import InputError
from qkv.files import to_json
from qkv.jobs.translate.training import TRANSLATING
from qkv.models.table import describe_model, load_family
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.nn.cpu.precision import explain_no_int8
from qkv.search.options import GenerateConfig
from qkv.train.log import Silent
from tests.support.folders import randomise
from tests.support.marian_folders import FIELDS, SMALL, tensors_of
from tests.support.translation_runs import digit_files, settings
from tests.unit.text.test_sentencepiece import MODEL, WORDS

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("translator")
    config = settings("transformer", digit_files(folder / "digits"), "train.steps=30", "train.lr=0.01")
    return load_translator(TRANSLATING.start(config, folder / "run", Silent()).run)


def test_in_the_order_given(translator: Translator) -> None:
    texts = ["1 2 3 4 5 6 7", "8", "", "4 5 6"]
    found = translator.translate(texts)
    assert [one.source for one in found] == texts
    assert [one.text for one in found] == [translator.translate([text])[0].text for text in texts]
    assert found[2].text == "" and found[2].n_tokens == 1 and found[1].n_tokens == 2
    assert list(translator.stream(iter(texts))) == found
    assert translator.decoding.beams == 2 and translator.max_length == 32


def test_candidates_come_best_first(translator: Translator) -> None:
    found = translator.translate(["1 2 3"], GenerateConfig(beams=4, n_best=3, max_length=20))[0]
    scores = [one.score for one in found.candidates]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True) and found.best is found.candidates[0]
    assert [one["translation"] for one in found.to_dict()["n_best"]] == [one.text for one in found.candidates]


def test_alignments_are_spans_of_both_texts(translator: Translator) -> None:
    config = GenerateConfig(min_length=4, max_length=8)
    found = translator.translate(["1 2 3 4"], config, alignments=True)[0]
    assert found.best.alignments
    for link in found.best.alignments:
        assert found.source[slice(*link.source)].isdigit() and found.text[slice(*link.target)].isdigit()
    assert translator.translate(["1 2 3 4"], config)[0].best.attention is None


def test_a_long_text_is_refused_or_translated_by_sentences(translator: Translator) -> None:
    long = "1 2 3 " * 12
    with pytest.raises(InputError, match=r"Text 2 \('1 2 3.* has 37 tokens.* made for 32 at most. .*split=True"):
        translator.translate(["1 2", long])
    with pytest.raises(InputError, match="Text 1 has a sentence .* of 37 tokens.* Shorten it"):
        translator.translate([long], split=True)
    two = "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9\n9 8 7 6 5 4 3 2 1 9 8 7 6 5 4 3 2 1"
    found = translator.translate([two, "4 5"], split=True)
    lines = [translator.translate([line])[0].text for line in two.split("\n")]
    assert found[0].n_parts == 2 and found[0].text == "\n".join(lines) and found[1].n_parts == 1
    with pytest.raises(InputError, match="Sentence by sentence .* leave out alignments"):
        translator.translate([two], split=True, alignments=True)
    with pytest.raises(InputError, match="Sentence by sentence .* leave out n_best = 2"):
        translator.translate([two], GenerateConfig(beams=2, n_best=2), split=True)


def test_a_stream_counts_through(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.api.translator._CHUNK", 3)
    texts = ["1 2", "", "3", "4", "1 2 3 " * 12]
    with pytest.raises(InputError, match=r"^Text 5 \('1 2 3"):
        list(translator.stream(texts))
    with pytest.raises(InputError, match=r"^Text 5 has a sentence \('1 2 3"):
        list(translator.stream(texts, split=True))
    with pytest.raises(InputError, match=r"^in\.txt, line 9 \('1 2 3"):
        list(translator.stream_placed((text, f"in.txt, line {number}") for number, text in enumerate(texts, 5)))


def test_long_texts_are_found_before_any_is_translated(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.api.translator._CHUNK", 3)
    texts = [("1 2" if n % 4 else "1 2 3 " * 12, f"in.txt, line {n}") for n in range(1, 18)]
    assert translator.check(texts[:3]) == 3 and translator.check([]) == 0
    message = (
        r"^in\.txt, line 4 \('1 2 3.*\) has 37 tokens.* made for 32 at most\. Too long as well: in\.txt, line 8; "
        r"in\.txt, line 12; and 1 more\. Have it translated"
    )
    with pytest.raises(InputError, match=message):
        translator.check(iter(texts))
    # a text is named once, however many of its sentences are too long
    two = "1 2 3 " * 12 + "\n" + "1 2 3 " * 12
    with pytest.raises(InputError, match=r"^Text 1 has a sentence .* 32 at most\. Shorten it"):
        translator.check([(two, "Text 1")], split=True)
    several = [(two, f"Text {number}") for number in range(1, 6)]  # over two chunks
    with pytest.raises(InputError, match=r"Too long as well: Text 2; Text 3; and 2 more\."):
        translator.check(several, split=True)
    assert translator.check([("1 2 3 4 5 6 7 8 9\n" * 6, "Text 1")], split=True) == 1


def test_what_the_vocabulary_lacks_is_told(translator: Translator) -> None:
    text = "1 猫 2\n3 🐱"
    for split in (False, True):
        found = translator.translate([text, "1 2"], split=split)
        assert found[0].unknown_words == ["猫", "🐱"] and found[1].unknown == ()
        assert found[0].to_dict()["n_unknown"] == 2
        assert found[0].to_dict()["unknown"][1] == {"start": 8, "end": 9, "text": "🐱"}
        assert found[0].n_parts == 1 + split


def test_what_is_drawn_hangs_on_the_place_in_the_stream(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = GenerateConfig(sample=True, temperature=5.0, max_length=12, seed=1)
    texts = ["1 2 3"] * 8
    whole = [one.text for one in translator.translate(texts, config)]
    assert len(set(whole)) == len(whole)
    blank = [one.text for one in translator.translate(["", *texts[1:]], config)]
    assert blank == ["", *whole[1:]]  # and none draws what the one before it drew
    by_sentences = translator.translate(["1 2 3\n1 2 3", "1 2 3"], config, split=True)
    assert by_sentences[0].n_parts == 2 and by_sentences[0].text.startswith(whole[0])
    assert by_sentences[0].text != f"{whole[0]}\n{whole[0]}" and by_sentences[1].text == whole[1]
    monkeypatch.setattr("qkv.api.translator._CHUNK", 3)
    assert [one.text for one in translator.stream(texts, config)] == whole


def test_what_is_refused(translator: Translator, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Give a list of texts"):
        translator.translate("1 2")
    for missing, kind in ((None, "NoneType"), (float("nan"), "float")):
        with pytest.raises(InputError, match=f"Text 2 is of type {kind}; a text is a string"):
            translator.translate(["1 2", cast(str, missing)])
    with pytest.raises(InputError, match="not a model folder|There is no"):
        load_translator(tmp_path / "nowhere")
    with pytest.raises(InputError, match="threads must be 1 or more"):
        load_translator(translator.path, threads=0)
    with pytest.raises(InputError, match="Unknown precision 'int9'. Did you mean 'int8'"):
        load_translator(translator.path, precision="int9")


@pytest.mark.skipif(explain_no_int8() is not None, reason=str(explain_no_int8()))
def test_in_8_bits(translator: Translator) -> None:
    assert isinstance(translator.network, Transformer) and translator.network.decoding.precision == "fp32"
    eight = load_translator(translator.path, precision="int8")
    exact, near = (one.translate(["1 2 3 4", "5 6"], GenerateConfig(max_length=8)) for one in (translator, eight))
    assert isinstance(eight.network, Transformer) and eight.network.decoding.int8_bytes() > 0
    for one, other in zip(exact, near, strict=True):
        assert other.best.log_probability == pytest.approx(one.best.log_probability, rel=0.1, abs=0.1)
        assert other.best.log_probability != one.best.log_probability


@pytest.mark.skipif(explain_no_int8() is not None, reason=str(explain_no_int8()))
def test_guessing_ahead_is_exact(translator: Translator) -> None:
    drafted = load_translator(translator.path, precision="drafted")
    assert isinstance(drafted.network, Transformer) and drafted.network.decoding.precision == "drafted"
    for texts in (["1 2 3 4"], ["1 2 3 4", "5 6"]):
        exact, found = (one.translate(texts, GenerateConfig(max_length=8)) for one in (translator, drafted))
        assert [one.best.text for one in found] == [one.best.text for one in exact]
        for one, other in zip(exact, found, strict=True):
            assert other.best.log_probability == pytest.approx(one.best.log_probability, abs=1e-4)


def test_chinese_needs_no_space_between_sentences() -> None:
    def whole(*texts: str) -> str:
        return _join("a. b.", [(0, 2), (3, 5)], [TranslationCandidate(text, 0, 0, True, 1) for text in texts]).text

    assert whole("One.", "Two.") == "One. Two." and whole("一。", "二。") == "一。二。" and whole("", "x") == "x"


def test_a_folder_of_opus_mt(tmp_path: Path) -> None:
    """Random weights: what is written is nonsense, but made of the right pieces, with the right beginning and end."""
    network = Transformer(TransformerConfig(30, **SMALL))
    randomise(network)
    words = [token for token in WORDS.split() if token != "<pad>" and ">>" not in token]
    vocabulary = {token: place for place, token in enumerate(words)} | {"<pad>": 29}
    (tmp_path / "config.json").write_text(to_json(FIELDS))
    (tmp_path / "vocab.json").write_text(to_json(vocabulary))
    for side in ("source", "target"):
        (tmp_path / f"{side}.spm").write_bytes(MODEL)
    save_file(tensors_of(network), tmp_path / "model.safetensors")
    translator = load_translator(tmp_path)
    assert (translator.languages.begin, translator.languages.end, translator.languages.never) == (29, 0, (29,))
    assert translator.decoding.beams == 6 and translator.max_length == 64
    assert translator.languages.read(["Tom chases"]) == [
        [vocabulary[token] for token in ("▁Tom", "▁chase", "s", "</s>")]
    ]
    only = GenerateConfig(max_length=5)
    found = translator.translate(["Tom chases", "汤姆"], only, alignments=True)
    assert [one.n_tokens for one in found] == [4, 3] and found[0].best.attention is not None
    facts = describe_model(tmp_path)
    shown = dict(load_family(facts.family).info(facts.document | {"licence": None}))
    assert shown["model"].startswith("marian: ") and "30 tokens" in shown["vocabulary"]
    assert facts.notes == translator.notes
