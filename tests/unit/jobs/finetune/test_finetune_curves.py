"""Curves of a fine-tuning run, from its log."""

from pathlib import Path

from qkv.jobs.finetune.page import draw_training_curves
from qkv.report.bilingual import phrase
from qkv.report.charts import render_chart
from qkv.report.run_log import read_run
from tests.support.finetune_runs import SEEDS, make_run


def test_loss_score_and_rate(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "f1")
    logs = {seed.seed: read_run(run / seed.folder) for seed in SEEDS}
    kept = logs.pop(1)
    loss, score, rate = draw_training_curves(kept, "f1", 0.12, 560, logs)
    assert phrase(score.title).zh == "验证集 F1" and phrase(rate.title).en == "Learning rate"
    assert [len(one.points) for one in loss.series] == [64, 8]
    assert [one.role for one in score.series] == ["other", "other", "evaluation", "kept"]
    assert score.series[-1].points == ((560, SEEDS[1].score),) and score.levels[0].value == 0.12
    text = render_chart(score)
    assert text.count("other seeds") == text.count("其他种子") == 1 + 2, (
        "once in the legend, and in what can be read out"
    )


def test_what_is_not_there_is_not_drawn(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", seeds=SEEDS[:1])
    (run / "seed-0" / "log.jsonl").write_text('{"step": 10, "loss": 1.0}\n')
    loss, score = draw_training_curves(read_run(run / "seed-0"), "accuracy", None, None, {})
    assert "<svg" in render_chart(loss) and "Nothing was logged." in render_chart(score)


def test_what_a_gpt_learns_beside_its_task_is_drawn_by_itself(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", seeds=SEEDS[:1])
    line = '{"step": %d, "loss": 3.5, "tag_loss": 1.0, "tag_accuracy": 0.5, "language_model_loss": 5.0}\n'
    (run / "seed-0" / "log.jsonl").write_text("".join(line % step for step in (10, 20)), encoding="utf-8")
    loss, words, _ = draw_training_curves(read_run(run / "seed-0"), "f1", None, None, {})
    assert phrase(loss.title).en == "Loss of the task" and phrase(words.title).zh == "下一个词的损失"
    assert loss.series[0].points == ((10, 1.0), (20, 1.0))  # what dev's can be held against
    assert words.series[0].points == ((10, 5.0), (20, 5.0))
