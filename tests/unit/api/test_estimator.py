"""qkv.Classifier by itself, and inside scikit-learn."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from qkv import Classifier, InputError
from tests.support.folders import make_folder

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = [f"{who}{what}" for who in "我你他她人" for what in ("爱吃鱼", "不爱狗", "有大猫", "在北京", "欠万元", "很好")]
GOOD = ["爱" in text or "好" in text for text in TEXTS]
NAMES = ["good" if good else "bad" for good in GOOD]
QUICK: dict[str, Any] = {"epochs": 2, "threads": 1, "dev_share": 0.2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("estimator") / "model")


@pytest.fixture(scope="module")
def fitted(folder: Path) -> Classifier:
    return Classifier(folder, epochs=20, lr=3e-3, threads=1, dev_share=0.2).fit(TEXTS, NAMES)


def test_it_learns_and_answers_in_the_words_of_y(fitted: Classifier) -> None:
    assert fitted.classes_.tolist() == ["bad", "good"]
    answers = fitted.predict(TEXTS)
    assert isinstance(answers, np.ndarray) and set(answers) <= {"bad", "good"}
    assert fitted.score(TEXTS, NAMES) > 0.9
    assert fitted.score(np.array(TEXTS), np.array(NAMES)) == np.mean(answers == np.array(NAMES))
    shares = fitted.predict_proba(TEXTS)
    assert shares.shape == (len(TEXTS), 2) and np.allclose(shares.sum(1), 1)
    assert (fitted.classes_[shares.argmax(1)] == answers).all()
    assert fitted.result_["dev"]["examples"] == 6 and fitted.model_.labels == ("bad", "good")
    assert fitted.predict([]).shape == (0,) and fitted.predict_proba([]).shape == (0, 2)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (GOOD, [False, True]),
        ([10 if good else 9 for good in GOOD], [9, 10]),
        (np.array(GOOD, dtype=np.float64), [0.0, 1.0]),
        ([1 if good else "none" for good in GOOD], [1, "none"]),
    ],
)
def test_labels_come_back_as_what_they_were(folder: Path, y: Any, classes: list[Any]) -> None:
    made = Classifier(folder, transfer="features", **QUICK).fit(TEXTS, y)
    assert made.classes_.tolist() == classes
    assert [type(one) for one in made.classes_.tolist()] == [type(one) for one in classes]
    answers = made.predict(TEXTS[:3]).tolist()
    assert all(answer in classes and type(answer) in map(type, classes) for answer in answers)
    assert made.predict_proba(TEXTS[:3]).shape == (3, 2)


def test_pairs(folder: Path) -> None:
    pairs = [(text, "你很好") for text in TEXTS]
    made = Classifier(folder, transfer="freeze", **QUICK).fit(pairs, NAMES)
    assert len(made.predict(np.array(pairs, dtype=object)[:4])) == 4
    with pytest.raises(InputError, match="reads a pair"):
        made.predict(["alone"])


def test_several_labels(folder: Path) -> None:
    y = [[word for word in ("鱼", "狗", "猫") if word in text] for text in TEXTS]
    y[7] = ["only once"]  # it must not be held out: nothing would have taught it
    made = Classifier(folder, transfer="features", **QUICK).fit(TEXTS, y)
    assert made.classes_.tolist() == sorted(["鱼", "狗", "猫", "only once"])
    assert made.predict_proba(TEXTS).shape == (30, 4)
    assert all(isinstance(row, list) for row in made.predict(TEXTS)) and 0 <= made.score(TEXTS, y) <= 1
    table = np.array([[int(word in text) for word in ("鱼", "狗", "龙")] for text in TEXTS])
    made.fit(TEXTS, table)
    answers = made.predict(TEXTS)
    assert answers.shape == (30, 3) and set(answers.ravel()) <= {0, 1}
    assert (made.predict_proba(TEXTS)[:, 2] == 0).all()  # 龙 was never there
    assert made.score(TEXTS, table) == np.mean((answers == table).all(1))


def test_numbers(folder: Path) -> None:
    y = [float(len(text)) + 0.5 for text in TEXTS]
    with pytest.raises(InputError, match="kind='regression'"):
        Classifier(folder, **QUICK).fit(TEXTS, y)
    made = Classifier(folder, transfer="features", kind="regression", **QUICK).fit(TEXTS, y)
    answers = made.predict(TEXTS)
    assert answers.dtype == np.float64 and made.score(TEXTS, y) <= 1
    assert made.score(TEXTS, answers) == 1
    with pytest.raises(InputError, match="no probabilities"):
        made.predict_proba(TEXTS)


def test_the_same_seed_gives_the_same_answers(folder: Path) -> None:
    one, two, other = (
        Classifier(folder, seed=seed, **QUICK).fit(TEXTS, NAMES).predict_proba(TEXTS) for seed in (0, 0, 1)
    )
    assert (one == two).all() and (one != other).any()


def test_it_is_kept_as_a_folder_and_as_a_pickle(fitted: Classifier, tmp_path: Path) -> None:
    expected = fitted.predict_proba(TEXTS)
    place = fitted.save(tmp_path / "kept")
    again = Classifier.load(place)
    np.testing.assert_allclose(again.predict_proba(TEXTS), expected, atol=1e-6)
    assert again.classes_.tolist() == ["bad", "good"]
    assert again.result_["dev"]["examples"] == 6
    assert qkv.load(place).predict(TEXTS[0])[0].label == fitted.predict(TEXTS[:1])[0]
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(copied.predict_proba(TEXTS), expected, atol=1e-6)
    assert copied.get_params() == fitted.get_params()
    new = pickle.loads(pickle.dumps(Classifier("somewhere", lr=0.5)))
    assert new.lr == 0.5 and not hasattr(new, "classes_")


def test_types_survive_a_folder(folder: Path, tmp_path: Path) -> None:
    made = Classifier(folder, transfer="features", **QUICK).fit(TEXTS, [int(good) for good in GOOD])
    again = Classifier.load(made.save(tmp_path / "kept"))
    assert again.classes_.tolist() == [0, 1] and again.predict(TEXTS).tolist() == made.predict(TEXTS).tolist()


def test_parameters() -> None:
    made = Classifier("m", lr=1e-3)
    assert made.get_params()["lr"] == 1e-3 and made.set_params(transfer="top:1") is made
    assert repr(made) == "Classifier(model='m', transfer='top:1', lr=0.001)"
    with pytest.raises(InputError, match="Did you mean 'epochs'"):
        made.set_params(epoch=3)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([], [], "X is empty"),
        (TEXTS, NAMES[:4], "X has 30 texts and y has 4 labels"),
        (TEXTS, ["a"] * 30, "Every label in y is 'a'"),
        (TEXTS, (name for name in ["a"] * 30), "Every label in y is 'a'"),
        ("one text", ["a"], "a list of texts"),
        (TEXTS, "bad", "one label for every text"),
        (TEXTS, [None, *NAMES[1:]], r"y\[0\] is None"),
        (TEXTS, [1, "1", *NAMES[2:]], "look the same"),
        (TEXTS, [{"a": 1}, *NAMES[1:]], r"y\[0\] is {'a': 1}"),
        ([3.5, *TEXTS[1:]], NAMES, "Input 1 is 3.5"),
        (["  ", *TEXTS[1:]], NAMES, r"1 of the 30 texts in X are missing or empty: X\[0\]. .*skip_bad"),
        (["\u200b", *TEXTS[1:]], NAMES, r"missing or empty: X\[0\]"),
        (np.zeros((4, 3)), NAMES[:4], r"shape \(4, 3\)"),
        (TEXTS[:2], ["a", "b"], "nothing could be"),
        (TEXTS, np.full((30, 2), 3), "0 and 1"),
    ],
)
def test_what_cannot_be_learned_from(folder: Path, x: Any, y: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Classifier(folder, **QUICK).fit(x, y)


def test_rows_without_a_text_or_a_label_are_named_or_skipped(folder: Path, fitted: Classifier) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"text": TEXTS, "label": NAMES})
    frame.loc[[2, 11], "text"] = [None, "\u200b"]
    with pytest.raises(InputError, match=r"1 of the 30 texts in X are missing or empty: X\[2\]"):
        Classifier(folder, **QUICK).fit(frame, "label")
    frame.loc[5, "label"] = None
    weights = np.arange(30)
    made = Classifier(folder, transfer="features", skip_bad=True, **QUICK).fit(frame, "label", sample_weight=weights)
    assert made.skipped_.tolist() == [2, 5, 11] and made.classes_.tolist() == ["bad", "good"]
    assert made.result_["examples"]["train"] + made.result_["examples"]["dev"] == 27
    kept = frame.drop(index=[2, 5, 11])
    assert made.score(frame[["text"]], frame["label"]) == made.score(kept[["text"]], kept["label"])
    table = np.array([[1.0, 0.0], [0.0, 1.0], [np.nan, 1.0]] * 10)
    made = Classifier(folder, transfer="features", skip_bad=True, **QUICK).fit(TEXTS, table)
    assert len(made.skipped_) == 10 and np.isnan(made.predict(["我爱吃鱼", None])[1]).all()
    with pytest.raises(InputError, match=r"missing or empty: X\[1\]"):
        fitted.score([TEXTS[0], ""], NAMES[:2])
    with pytest.raises(InputError, match=r"y\[1\] is None: every text needs a label"):
        fitted.score(TEXTS[:2], [NAMES[0], None])
    with pytest.raises(InputError, match="No row of X and y has a text and a label"):
        Classifier(folder, skip_bad=True, **QUICK).fit(["", None], NAMES[:2])
    with pytest.raises(InputError, match="0 and 1"):
        Classifier(folder, **QUICK).fit(TEXTS, table)


def test_before_it_is_fitted(folder: Path) -> None:
    with pytest.raises(InputError, match="learned nothing yet"):
        Classifier(folder).predict(TEXTS)
    with pytest.raises(InputError, match="Unknown kind 'singel'"):
        Classifier(folder, kind="singel").fit(TEXTS, NAMES)
    with pytest.raises(InputError, match="cannot predict"):
        Classifier.load(folder)


def test_inside_scikit_learn(folder: Path) -> None:
    base = pytest.importorskip("sklearn.base")
    selection = pytest.importorskip("sklearn.model_selection")
    pipeline, preprocessing = (pytest.importorskip(f"sklearn.{name}") for name in ("pipeline", "preprocessing"))

    made = Classifier(folder, transfer="features", settings=["texts_per_step=8"], **QUICK)
    assert base.is_classifier(made) and not base.is_regressor(made)
    assert base.is_regressor(Classifier("m", kind="regression"))
    assert base.clone(made).get_params() == made.get_params()
    assert selection.cross_val_predict(made, TEXTS, GOOD, cv=2, method="predict_proba").shape == (30, 2)
    choices = {"transfer": ["features", "top:1"], "lr": np.array([1e-2])}
    grid = selection.GridSearchCV(made, choices, cv=2, refit=False).fit(TEXTS, NAMES)
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all() and len(grid.cv_results_["params"]) == 2
    louder = preprocessing.FunctionTransformer(lambda texts: [text + "！" for text in texts])
    line = pipeline.make_pipeline(louder, made).fit(TEXTS, NAMES)
    assert set(line.predict(TEXTS)) <= {"good", "bad"} and line.classes_.tolist() == ["bad", "good"]
    table = np.array([[int(word in text) for word in ("鱼", "狗")] for text in TEXTS])
    assert np.isfinite(selection.cross_val_score(made, TEXTS, table, cv=2)).all()


def test_callbacks_follow_the_run(folder: Path) -> None:
    class Tracker:
        def __init__(self) -> None:
            self.lines: list[Any] = []
            self.results: list[Any] = []

        def on_log(self, line: Any) -> None:
            self.lines.append(line)

        def on_end(self, result: Any) -> None:
            self.results.append(result)

    tracker = Tracker()
    made = Classifier(folder, callbacks=[tracker], **QUICK).fit(TEXTS, NAMES)
    steps = [line["step"] for line in tracker.lines]
    assert steps == sorted(steps) and {"loss", "evaluation"} <= {key for line in tracker.lines for key in line}
    assert tracker.results == [made.result_]


@pytest.mark.parametrize("transfer", ["full", "features"])
def test_sample_weights(folder: Path, transfer: str) -> None:
    """Every text has both labels; the weights say which one is meant."""
    texts, y = [text for text in TEXTS for _ in range(2)], ["good", "bad"] * len(TEXTS)
    weights = [weight for good in GOOD for weight in ((1.0, 0.0) if good else (0.0, 1.0))]
    how: dict[str, Any] = {"threads": 1, "dev_share": 0.2}
    if transfer == "full":
        how |= {"epochs": 20, "lr": 3e-3}
    made = Classifier(folder, transfer=transfer, **how).fit(texts, y, sample_weight=np.array(weights))
    if transfer == "features":  # the others are chosen by held-out texts, which have both labels too
        assert made.score(TEXTS, NAMES) > 0.8
    again = Classifier(folder, transfer=transfer, **how).fit(texts, y, [5 * one for one in weights])
    assert np.allclose(made.predict_proba(TEXTS), again.predict_proba(TEXTS), atol=1e-4), "only their ratios matter"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1.0], r"X has 30 texts and sample_weight has 1 numbers"),
        ([-1.0] + [1.0] * 29, r"sample_weight\[0\] is -1.0; a weight is a number, 0 or more"),
        ([1.0, float("nan")] + [1.0] * 28, r"sample_weight\[1\] is nan"),
        (["a"] * 30, r"sample_weight\[0\] is 'a'"),
        ([0.0] * 30, r"every training example is 0"),
    ],
)
def test_sample_weights_that_are_none(folder: Path, given: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Classifier(folder, transfer="features", threads=1).fit(TEXTS, NAMES, sample_weight=given)
