"""What is handed to `predict` in Python: one input or several, examples with labels, the wrong kind of thing."""

from pathlib import Path

import pytest
import torch

from qkv.api.model import load
from qkv.api.predict import make_examples
from qkv.data.labelled.examples import (
    AnswerExample,
    AnswerSpan,
    ChoiceExample,
    Example,
    Place,
    Span,
    TagExample,
    TextExample,
)
from qkv.errors import InputError
from tests.support.folders import make_tokenizer
from tests.support.task_folders import task_folder

pytestmark = pytest.mark.usefixtures("one_thread")
TOKENIZER = make_tokenizer()
PLACE = Place("a.csv", 3)

LABELLED: dict[str, tuple[Example, Example]] = {
    # with a label that no model here knows, and without
    "classify": (TextExample("the cat", label="fruit", place=PLACE), TextExample("the cat", place=PLACE)),
    "tag": (
        TagExample("the cat", (Span(0, 99, "X"),), ((0, 3), (4, 7))),
        TagExample("the cat", None, ((0, 3), (4, 7))),
    ),
    "answer": (
        AnswerExample("who", "the cat", (AnswerSpan(9, "dog"),), id="7", others=("a dog",)),
        AnswerExample("who", "the cat", id="7"),
    ),
    "choice": (
        ChoiceExample("the cat", "who", ("cat", "dog"), answer=5),
        ChoiceExample("the cat", "who", ("cat", "dog")),
    ),
}


@pytest.mark.parametrize("task", LABELLED)
def test_labels_are_not_looked_at(tmp_path: Path, task: str) -> None:
    given, wanted = LABELLED[task]
    assert list(make_examples(type(given), [given], TOKENIZER)) == [wanted]
    model = load(task_folder(tmp_path / "model", task))
    (one,), (other,), (lone,) = model.predict([given]), model.predict([wanted]), model.predict(given)
    assert one.to_dict() == other.to_dict() == lone.to_dict()


@pytest.mark.parametrize("task", LABELLED)
def test_an_example_of_another_task_is_refused(task: str) -> None:
    for other, (example, _) in LABELLED.items():
        if other != task:
            with pytest.raises(InputError, match=f"Input 2 is an? {type(example).__name__}; this model reads"):
                list(make_examples(type(LABELLED[task][0]), [LABELLED[task][0], example], TOKENIZER))


def test_a_tuple_of_two_texts_is_one_pair_to_who_reads_pairs(tmp_path: Path) -> None:
    pairs = load(task_folder(tmp_path / "pairs", "classify", paired=True))
    assert pairs.predict(("the cat", "the dog")) == pairs.predict([("the cat", "the dog")])
    assert len(pairs.predict((("the cat", "the dog"), ("a cat", "a dog")))) == 2
    with pytest.raises(InputError):
        pairs.predict(["the cat", "the dog"])  # a list is two inputs
    reader = load(task_folder(tmp_path / "reader", "answer"))
    assert reader.predict(("who sat", "the cat sat")) == reader.predict([("who sat", "the cat sat")])
    single = load(task_folder(tmp_path / "single", "classify"))
    assert single.predict(("the cat", "the dog")) == single.predict(["the cat", "the dog"])
    tagger = load(task_folder(tmp_path / "tagger", "tag"))
    assert len(tagger.predict(("the cat", "the dog"))) == 2


def test_a_text_without_tokens_is_named_by_its_number() -> None:
    with pytest.raises(InputError, match=r"Input 2: the text is empty \(nothing is left"):
        list(make_examples(TextExample, ["the cat", "\u200b"], TOKENIZER))
    with pytest.raises(InputError, match="Input 1: the question is empty"):
        list(make_examples(AnswerExample, [(" ", "the cat")], TOKENIZER))


def test_each_model_uses_its_own_number_of_threads(tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "model", "classify")
    two, three = load(folder, threads=2), load(folder, threads=3)
    two.predict("the cat")
    assert torch.get_num_threads() == 2
    three.predict("the cat")
    assert torch.get_num_threads() == 3
    # also when the two take turns, part by part
    texts = ["the cat"] * 5000
    seen = []
    for _ in zip(two.predict_stream(texts), three.predict_stream(texts), strict=True):
        seen.append(torch.get_num_threads())
    assert len(seen) == 3 and set(seen) == {3}
    parts = two.predict_stream(texts)
    next(parts)
    assert torch.get_num_threads() == 2
    three.predict("the cat")
    next(parts)
    assert torch.get_num_threads() == 2
