"""Tagging: what goes in as characters comes out as characters, whatever lies between."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qkv.data.labelled.examples import Place, Span, TagExample
from qkv.data.labelled.reader import labelled
from qkv.errors import InputError
from qkv.models.bert.network import BertWithHeads
from qkv.models.gpt.tokenizer import TaskTokenizer
from qkv.tasks.tag import Entity, TagLabels, TagResult, TagTask
from qkv.tasks.tag_units import TagFeatures, cut_units, tokenize_texts
from qkv.tasks.task import Calibration, TagSettings
from qkv.tasks.transfer import TaskModel
from qkv.text.tokenizer import Tokenizer
from tests.support.folders import make_model, make_tokenizer

TOKENIZER = make_tokenizer()
LEFTWARD = TaskTokenizer(TOKENIZER)  # a GPT's
PLAIN = Calibration()
NASTY = (
    "the cat 北京 cafe\u0301 👩\u200d👩\u200d👧 ❤️ ＡＢ１２ שלום עולם "
    "한국 \u200b\u200d\x00 [UNK] 龘 İstanbul ﬁ x\u0301\u0327"
)


def tag(crf: bool = False, unit: str = "word", labels: Sequence[str] = ("LOC", "PER"), overlap: int = 64) -> TagTask:
    return TagTask(TagLabels.of(labels), TagSettings(crf=crf, unit=unit, overlap=overlap))


def zeros(task: TagTask) -> dict[str, NDArray[np.float32]]:
    return {name: np.zeros(shape, np.float32) for name, shape in task.extra_tensors().items()}


def perfect(features: TagFeatures, outputs: int, by: float = 30.0) -> NDArray[np.float32]:
    """Sure of the right tag where a unit is counted; loud nonsense everywhere else, which nobody may read."""
    draw = np.random.default_rng(0)
    scores = draw.normal(0, 1000, (int(features.rows.lengths.sum()), outputs)).astype(np.float32)
    scores[features.places] = 0.0
    scores[features.places, features.tags] = by
    return scores


def answered(
    task: TagTask, examples: Sequence[TagExample], max_length: int = 64, tokenizer: Tokenizer = TOKENIZER
) -> list[TagResult]:
    task.check(examples)
    features = task.features(tokenizer, examples, max_length, training=False)
    return task.decode(features, perfect(features, task.outputs), zeros(task), PLAIN)


texts = st.text() | st.lists(st.sampled_from([*NASTY.split(), " ", "", "a"]), max_size=12).map("".join)


@settings(max_examples=120, deadline=None)
@given(st.lists(texts, min_size=1, max_size=3), st.sampled_from(["word", "piece"]), st.booleans(), st.data())
def test_spans_come_back_as_they_went(texts: list[str], unit: str, crf: bool, data: st.DataObject) -> None:
    """Any Unicode, any spans on units, one window or many."""
    task = tag(crf, unit, overlap=2)
    units = cut_units(tokenize_texts(TOKENIZER, texts), texts, [None] * len(texts), unit).spans()
    examples = []
    for text, bounds in zip(texts, units, strict=True):
        cuts = sorted(data.draw(st.sets(st.integers(0, len(bounds)), max_size=8)))
        pairs = [pair for pair in itertools.pairwise(cuts) if data.draw(st.booleans())]
        spans = [Span(bounds[a][0], bounds[b - 1][1], data.draw(st.sampled_from(["LOC", "PER"]))) for a, b in pairs]
        examples.append(TagExample(text, tuple(spans)))
    max_length = data.draw(st.sampled_from([6, 10, 64]))
    assert task.misaligned(TOKENIZER, examples) == []
    results = answered(task, examples, max_length, data.draw(st.sampled_from([TOKENIZER, LEFTWARD])))
    for example, result in zip(examples, results, strict=True):
        assert result.spans == example.spans
        assert all(entity.text == example.text[entity.start : entity.end] for entity in result.entities)
        assert all(entity.probability > 0.999 for entity in result.entities)
        assert result.probability > 0.99 and result.loss < 0.01
        assert task.judge(example, result).right


def test_a_nasty_text_by_hand() -> None:
    spans = tuple(
        Span(NASTY.index(word), NASTY.index(word) + len(word), label)
        for word, label in [("北京", "LOC"), ("cafe\u0301", "LOC"), ("👩\u200d👩\u200d👧", "PER"), ("İstanbul", "LOC")]
    )
    [result] = answered(tag(), [TagExample(NASTY, spans)])
    assert result.spans == spans
    assert [entity.text for entity in result.entities] == ["北京", "cafe\u0301", "👩\u200d👩\u200d👧", "İstanbul"]
    assert result.to_dict()["entities"][0] == {
        "start": 8,
        "end": 10,
        "label": "LOC",
        "text": "北京",
        "probability": pytest.approx(1.0),
        "abstained": False,
    }


def test_neighbours_of_one_label_stay_two() -> None:
    example = TagExample("北京上海", (Span(0, 2, "LOC"), Span(2, 4, "LOC")))
    assert answered(tag(), [example])[0].spans == example.spans


@pytest.mark.parametrize("crf", [False, True])
def test_an_entity_longer_than_a_window(crf: bool) -> None:
    text = "的" * 20 + "北京" * 50 + "的" * 20
    example = TagExample(text, (Span(20, 120, "LOC"),))
    task = tag(crf, overlap=4)
    [result] = answered(task, [example], max_length=16)
    assert result.spans == example.spans
    assert result.n_windows > 10 and result.n_tokens == 142


def test_a_hundred_thousand_characters() -> None:
    text = "我在北京。" * 20_000
    spans = tuple(Span(at, at + 2, "LOC") for at in range(2, 100_000, 50))
    [result] = answered(tag(), [TagExample(text, spans)])
    assert result.spans == spans


def test_impossible_tags_are_never_answered() -> None:
    """The best tag of each unit by itself would be O I-LOC I-LOC; the best path that makes sense begins with B."""
    task = tag()
    features = task.features(TOKENIZER, [TagExample("的北京")], 64, training=False)
    scores = np.zeros((5, 5), np.float32)
    scores[1, 0], scores[2, 2], scores[3, 2] = 9, 9, 9
    scores[2, 1] = 5
    [result] = task.decode(features, scores, {}, PLAIN)
    assert result.spans == (Span(1, 3, "LOC"),)
    assert math.isnan(result.loss), "nobody said what is right"


@pytest.mark.parametrize("crf", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_probability_of_an_entity_is_its_share_of_all_paths(crf: bool, temperature: float) -> None:
    task = tag(crf)
    example = TagExample("我在北京", (Span(2, 4, "LOC"),))
    draw = np.random.default_rng(3)
    extra = {name: draw.normal(0, 1, shape).astype(np.float32) for name, shape in task.extra_tensors().items()}
    features = task.features(TOKENIZER, [example], 64, training=False)
    scores = draw.normal(0, 2, (6, 5)).astype(np.float32)
    scores[3, 1], scores[4, 2] = 3.0, 4.0
    total, by_span, right = 0.0, dict[Span, float](), 0.0
    paths: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(5), repeat=4):
        if path[0] in (2, 4) or any(b in (2, 4) and a not in (b - 1, b) for a, b in itertools.pairwise(path)):
            continue
        score = sum(float(scores[1 + place, one]) for place, one in enumerate(path))
        if crf:
            score += float(extra["crf_start"][path[0]] + extra["crf_end"][path[-1]])
            score += sum(float(extra["crf_transitions"][a, b]) for a, b in itertools.pairwise(path))
        paths[path] = math.exp(score / temperature)
        total += paths[path]
        for span in spans_of(path):
            by_span[span] = by_span.get(span, 0.0) + paths[path]
        right += paths[path] if spans_of(path) == example.spans else 0.0
    [result] = task.decode(features, scores, extra, Calibration(temperature))
    best = max(paths, key=paths.__getitem__)
    assert result.spans == spans_of(best) and result.spans
    assert result.probability == pytest.approx(paths[best] / total)
    for entity in result.entities:
        assert entity.probability == pytest.approx(by_span[Span(*entity[:3])] / total)
    assert result.loss == pytest.approx(-math.log(right / total))
    assert task.losses(features, scores, extra, temperature).tolist() == pytest.approx([result.loss])


def spans_of(path: Sequence[int]) -> tuple[Span, ...]:
    found: list[Span] = []
    for place, one in enumerate(path):
        if one in (1, 3):
            found.append(Span(place, place + 1, {1: "LOC", 3: "PER"}[one]))
        elif one:
            found[-1] = found[-1]._replace(end=place + 1)
    return tuple(found)


def test_units_of_a_column_file_are_labelled_at_their_first_token() -> None:
    example = TagExample("unhappyness didn't cross", (Span(12, 18, "PER"),), units=((0, 11), (12, 18), (19, 24)))
    task = tag()
    features = task.features(TOKENIZER, [example], 64, training=True)
    batch = features.batch(np.array([0]), np.random.default_rng(0))
    assert batch.labels["tag"].tolist() == [0, 3, 0]
    assert batch.labels["tag_at"].tolist() == [1, 4, 7]  # [CLS] un ##happy ##ness didn ' t cross [SEP]
    assert batch.labels["tag_chains"].tolist() == [3] and batch.labels["tag_ends"].tolist() == [[True, True]]


def test_rows_of_training_count_every_unit_once() -> None:
    examples = [TagExample("我在北京" * 10, (Span(2, 4, "LOC"), Span(30, 32, "LOC"))), TagExample("", ())]
    task = tag(overlap=4)
    features = task.features(TOKENIZER, examples, 16, training=True)
    assert features.unit_tokens.tolist() == features.rows.lengths.tolist()
    batch = features.batch(np.arange(len(features.rows)), np.random.default_rng(0))
    tags = batch.labels["tag"].tolist()
    assert len(tags) == 40 and tags.count(1) == tags.count(2) == 2
    ids = batch.ids[batch.labels["tag_at"]]
    assert sorted(ids.tolist()) == sorted(TOKENIZER.encode(examples[0].text, special=False).ids)
    assert all(TOKENIZER.token(int(i)) == "北" for i, tag in zip(ids, tags, strict=True) if tag == 1)
    ends = batch.labels["tag_ends"]
    assert batch.lengths[0] == 2 and batch.labels["tag_chains"][0] == 0
    assert ends[1:, 0].sum() == ends[1:, 1].sum() == 1


@pytest.mark.parametrize(
    ("file", "vocabulary"),
    [("conll2003/eng.testa", "bert-base-cased"), ("msra_ner/dev.bio.xz", "bert-base-chinese")],
)
def test_real_files_come_back_whole(shared_data: Path, file: str, vocabulary: str) -> None:
    """In windows of 40 tokens."""
    tokenizer = Tokenizer.load(shared_data / "vocab" / f"{vocabulary}-vocab.txt")
    read = itertools.islice(labelled(shared_data / file, "tag"), 400)
    examples = [example for example in read if isinstance(example, TagExample)]
    task = TagTask.learn(examples, TagSettings(), tokenizer)
    assert task.misaligned(tokenizer, examples) == []
    features = task.features(tokenizer, examples, 40, training=False)
    results = task.decode(features, perfect(features, task.outputs), {}, PLAIN)
    assert [result.spans for result in results] == [example.spans for example in examples]
    assert max(result.n_windows for result in results) > 1


# What cannot be used


def test_learning_and_coming_back() -> None:
    examples = [TagExample("我在北京", (Span(2, 4, "地名"),)), TagExample("he is tired", (Span(0, 2, "PER"),))]
    task = TagTask.learn(examples, TagSettings(crf=True), TOKENIZER)
    assert task.labels == ("O", "B-PER", "I-PER", "B-地名", "I-地名")
    assert task.record() == {
        "kind": "crf",
        "settings": {"crf": True, "unit": "word", "overlap": 64, "nested": "refuse"},
    }
    again = TagTask.restored(task.labels, task.record())
    assert again.settings == task.settings and again.labels == task.labels and again.outputs == 5
    assert set(again.extra_tensors()) == {"crf_start", "crf_transitions", "crf_end"}


def test_labels_of_another_order_are_read() -> None:
    task = TagTask.restored(["B-PER", "I-LOC", "O", "I-PER", "B-LOC"], {})
    example = TagExample("我在北京", (Span(0, 1, "PER"), Span(2, 4, "LOC")))
    assert answered(task, [example])[0].spans == example.spans


@pytest.mark.parametrize("labels", [["LABEL_0", "LABEL_1"], ["O", "I-PER"], ["B-PER", "I-PER"], ["O", "B-", "I-"]])
def test_other_labels_are_refused(labels: list[str]) -> None:
    with pytest.raises(InputError, match="'B-x' and 'I-x'"):
        TagTask.restored(labels, {})


def test_pieces_are_taken_where_words_cannot_hold_the_spans() -> None:
    inside = TagExample("unhappyness", (Span(2, 7, "x"),))
    whole = TagExample("unhappyness", (Span(0, 11, "x"),))
    nowhere = TagExample("unhappyness", (Span(3, 6, "x"),))
    assert TagTask.learn([inside, whole], TagSettings(), TOKENIZER).settings.unit == "piece"
    assert TagTask.learn([inside] + [whole] * 200, TagSettings(), TOKENIZER).settings.unit == "word"
    assert TagTask.learn([nowhere, whole], TagSettings(), TOKENIZER).settings.unit == "word"
    assert TagTask.learn([inside], TagSettings(unit="word"), TOKENIZER).settings.unit == "word"


def test_misaligned_spans_are_listed() -> None:
    place = Place("train.jsonl", 7)
    example = TagExample("unhappyness \x01 cat", (Span(3, 6, "x"), Span(12, 13, "y"), Span(14, 17, "z")), place=place)
    widened, lost = tag().misaligned(TOKENIZER, [TagExample("cat", ()), example])
    assert widened.place == lost.place == place
    assert widened.message == (
        "x 'app' (characters 3 to 6) does not lie on whole units: training takes x 'unhappyness' (characters 0 to 11)."
    )
    assert widened.action == lost.action == "mended"  # the example stays
    assert "holds no token of its own" in lost.message


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (TagExample("北京", (Span(0, 3, "LOC"),)), "from character 0 to 3, in a text of 2"),
        (TagExample("北京", (Span(1, 1, "LOC"),)), "from character 1 to 1"),
        (TagExample("北京", (Span(0, 1, ""),)), "empty label"),
        (TagExample("北京", (Span(0, 2, "LOC"), Span(1, 2, "PER"))), "LOC '北京' .* and PER '京' .* overlap"),
        (TagExample("北京", (Span(0, 1, "LOK"),)), "'LOK' is not one .* Did you mean 'LOC'"),
        (TagExample("北京", None), "has no labels"),
        (TagExample("北京", (), units=((0, 2), (1, 2))), "a unit ends at character 2"),
        (TagExample("北京", (), units=((0, 5),)), "the unit goes from character 0 to 5"),
    ],
)
def test_what_makes_no_sense_is_refused_by_place(example: TagExample, message: str) -> None:
    bad = TagExample(example.text, example.spans, example.units, Place("dev.jsonl", 3))
    with pytest.raises(InputError, match=f"dev.jsonl, line 3.*{message}"):
        tag().check([TagExample("好", ()), bad])
    with pytest.raises(InputError, match=f"Text 2.*{message}"):
        tag().check([TagExample("好", ()), example])


def test_the_outer_of_two_spans_can_be_learned() -> None:
    example = TagExample(
        "在北京大小人", (Span(1, 3, "LOC"), Span(1, 5, "ORG"), Span(4, 6, "PER")), place=Place("a.json", 2)
    )
    with pytest.raises(InputError, match="a.json, line 2: .* overlap"):
        TagTask.learn([example], TagSettings(), TOKENIZER)
    task = TagTask.learn([example], TagSettings(nested="outer"), TOKENIZER)
    [result] = answered(task, [example])
    assert result.spans == (Span(1, 5, "ORG"),)
    assert not task.judge(example, result).right
    faults = task.misaligned(TOKENIZER, [example])
    assert {fault.action for fault in faults} == {"mended"}  # "dropped" counts examples, and this one is learned from
    assert [fault.message for fault in faults] == [
        "LOC '北京' (characters 1 to 3) overlaps a longer span: training leaves it out.",
        "PER '小人' (characters 4 to 6) overlaps a longer span: training leaves it out.",
    ]


def test_texts_without_labels_can_be_asked_about() -> None:
    tag().check([TagExample("北京")], needs_labels=False)


def test_nothing_to_learn_from() -> None:
    with pytest.raises(InputError, match="No span is labelled in a.conll"):
        TagTask.learn([TagExample("好", (), place=Place("a.conll", 1))], TagSettings(), TOKENIZER)
    with pytest.raises(InputError, match="Unknown unit 'words'.*'word'"):
        TagSettings(unit="words")
    with pytest.raises(InputError, match="Unknown nested 'inner'"):
        TagSettings(nested="inner")
    with pytest.raises(InputError, match="Class weights"):
        tag(crf=True).objective([1.0] * 5)


# Figures


def test_scores_and_confidences() -> None:
    examples = [
        TagExample("我在北京", (Span(2, 4, "LOC"),)),
        TagExample("他在上海", (Span(0, 1, "PER"), Span(2, 4, "LOC"))),
    ]
    results = [
        TagResult((Entity(2, 4, "LOC", "北京", 0.9),), 6, 1),
        TagResult((Entity(2, 3, "LOC", "上", 0.4),), 6, 1, probability=0.3, loss=4.0),
    ]
    task = tag()
    scorer = task.scorer()
    scorer.add(examples[:1], results[:1])
    scorer.add(examples[1:], results[1:])
    scored = scorer.result()
    assert scored.main == task.main and scored.n == 2
    assert scored.value == pytest.approx(2 * 0.5 * (1 / 3) / (0.5 + 1 / 3))
    low, high = scored.intervals["f1"]
    assert 0 <= low <= scored.value <= high <= 1
    location, person = scored.per_label
    assert (location.label, location.support, location.answered, location.f1) == ("LOC", 2, 2, 0.5)
    assert (person.label, person.support, person.answered, person.f1) == ("PER", 1, 0, 0.0)
    sure = task.confidences(examples, results)
    assert sure.confidence.tolist() == [0.9, 0.4]
    assert sure.right.tolist() == [True, False] and sure.example.tolist() == [0, 1]
    judged = task.judge(examples[1], results[1])
    assert (judged.expected, judged.answered, judged.right) == ("PER 他; LOC 上海", "LOC 上", False)
    assert (judged.confidence, judged.loss) == (0.3, 4.0)


def test_unsure_entities_are_marked() -> None:
    task = tag()
    features = task.features(TOKENIZER, [TagExample("北京")], 64, training=False)
    scores = np.zeros((4, 5), np.float32)
    scores[1, 1] = scores[2, 2] = 2.0
    [result] = task.decode(features, scores, {}, Calibration(abstain_below=0.9))
    [entity] = result.entities
    assert entity.abstained and entity.probability < 0.9


def test_a_word_is_labelled_where_all_of_it_was_read() -> None:
    example = TagExample("unhappyness the unhappyness", (Span(0, 11, "LOC"), Span(16, 27, "PER")))
    for tokenizer, places in ((TOKENIZER, [1, 4, 5]), (LEFTWARD, [3, 4, 7])):
        features = tag().features(tokenizer, [example], 64, training=True)
        assert features.places.tolist() == places
        batch = features.batch(np.array([0]), np.random.default_rng(0))
        assert batch.labels["tag_at"].tolist() == places
    # a word that lies in two windows counts in the one that counts its last token
    features = tag(overlap=2).features(LEFTWARD, [example], 6, training=True)
    assert features.n_windows[0] > 1
    marks = [LEFTWARD.token(number) for number in features.rows.collate(np.arange(len(features.rows))).ids.tolist()]
    assert [marks[place] for place in features.places] == ["##ness", "the", "##ness"]


@pytest.mark.parametrize("crf", [False, True])
def test_weights_multiply_the_losses_of_their_texts(crf: bool) -> None:
    task = tag(crf)
    examples = [TagExample("the cat sat", (Span(4, 7, "PER"),)), TagExample("北京 " * 30, (Span(0, 2, "LOC"),))]
    weighted = [replace(one, weight=weight) for one, weight in zip(examples, (1.0, 3.0), strict=True)]
    network = make_model("BertForTokenClassification", labels=task.outputs)
    assert isinstance(network, BertWithHeads)
    model, draw = TaskModel(network, "token", task.extra_tensors()).eval(), np.random.default_rng(0)
    objective = task.objective(None)

    def loss(chosen: Sequence[TagExample], rows: slice = slice(None)) -> float:
        features = task.features(TOKENIZER, chosen, 32, training=True)
        batch = features.batch(np.arange(len(features.rows))[rows], draw)
        return float(objective.terms(model, batch)["tag"].loss.detach())

    assert len(task.features(TOKENIZER, examples, 32, training=True).rows) > 2, "a text of several windows"
    expected = 0.5 * loss(examples, slice(1)) + 1.5 * loss(examples, slice(1, None))
    assert loss(weighted) == pytest.approx(expected, rel=1e-4)
    assert task.features(TOKENIZER, weighted, 32, training=False).weights is None
