"""A learning curve: one fine-tuning after the other on growing parts of the training examples.

Every point is a short run of its own, judged on the same held-out examples, with its best evaluation, as a run of
`qkv finetune` is. A power law through the points says what more labels would bring, or that the points cannot tell.

RUN/config.toml    the resolved settings; a resumed run reads nothing else
RUN/points.jsonl   one line a finished point
RUN/report.html    the curve as a page, rewritten after every point
RUN/result.json    the figures; written last, so its presence means: finished
"""

import math
import shutil
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from qkv.atomic import write_text
from qkv.config import merge, read_toml, to_toml
from qkv.json_file import to_json
from qkv.metrics.power_law import fit_power_law
from qkv.report.bilingual import Phrase, Words
from qkv.report.curve_page import CurveFacts, curve_page, verdict
from qkv.report.run_page import write_report
from qkv.run.curve_points import CurveConfig, Plan, Point, Within, measured, plan_of, steps_of
from qkv.run.finetune import Finished
from qkv.run.finetune_data import check_pinned, pinned, read_data
from qkv.run.finetune_job import Prepared, prepare
from qkv.run.finetune_model import again, begun
from qkv.run.finish import baseline
from qkv.run.folder import add_line, begin, config_of, read_lines, remove_drafts
from qkv.run.places import device_named
from qkv.train.progress import Progress


def start(config: CurveConfig, out: Path, progress: Progress) -> Finished:
    """Begin a curve in a new folder."""
    begin(out, "curve")
    device_named(config.finetune.device)
    tuned, folder = begun(config.finetune, progress.message)
    config = replace(config, finetune=replace(tuned, data=pinned(tuned.data)))
    # all examples are made ready once: the task knows every label, whatever a small draw happens to hold
    prepared = prepare(config.finetune, folder, read_data(config.finetune, progress.message), progress.message)
    write_text(out / "config.toml", to_toml(config))
    return _go(config, prepared, out, progress)


def resume(run: Path, progress: Progress) -> Finished:
    """Go on with a curve; what is finished of it stays as it is."""
    file = config_of(run)
    if (run / "result.json").is_file():
        return Finished(run, finished=True, already=True)
    config = merge(CurveConfig(), read_toml(file), str(file))
    device_named(config.finetune.device)
    check_pinned(config.finetune.data)
    folder = again(config.finetune, progress.message)
    remove_drafts(run)
    prepared = prepare(config.finetune, folder, read_data(config.finetune), progress.message)
    return _go(config, prepared, run, progress)


def finished_points(run: Path) -> list[dict[str, Any]]:
    return read_lines(run / "points.jsonl")


def _go(config: CurveConfig, prepared: Prepared, out: Path, progress: Progress) -> Finished:
    if config.finetune.train.threads is not None:
        torch.set_num_threads(config.finetune.train.threads)
    device = device_named(config.finetune.device)
    plan = plan_of(config, prepared, out, device)
    known = {Point(line["n"], line["draw"]) for line in finished_points(out)}
    costs = [steps_of(plan, point.n) for point in plan.points]
    done = sum(cost for point, cost in zip(plan.points, costs, strict=True) if point in known)
    progress.start(done, sum(costs))
    for number, (point, cost) in enumerate(zip(plan.points, costs, strict=True), 1):
        if point in known:
            continue
        progress.message(
            f"point {number} of {len(plan.points)}: {point.n:,} of {len(prepared.data.train.examples):,} examples, "
            f"draw {point.draw + 1} of {config.draws}"
        )
        folder = out / "points" / f"{point.n}-{point.draw}"
        found = measured(plan, point, folder, device, Within(progress, done, cost))
        if isinstance(found, Finished):
            return replace(found, run=out)
        main = plan.task.main
        progress.message(f"point {number} of {len(plan.points)}: {main} {found['score']:.4f}")
        add_line(out / "points.jsonl", found)
        shutil.rmtree(folder, ignore_errors=True)
        write_report(out, curve_page(out, _facts(plan, out)))
        done += cost
    facts = _facts(plan, out)
    write_report(out, curve_page(out, facts))
    shutil.rmtree(out / "points", ignore_errors=True)
    shutil.rmtree(out / "vectors", ignore_errors=True)
    write_text(out / "result.json", to_json(_result(facts)))
    return Finished(out, finished=True)


def _facts(plan: Plan, out: Path) -> CurveFacts:
    prepared, config = plan.prepared, plan.config.finetune
    found: dict[int, list[float]] = {}
    lines = finished_points(out)
    for line in sorted(lines, key=lambda line: (line["n"], line["draw"])):
        found.setdefault(line["n"], []).append(line["score"])
    usual = baseline(prepared)
    points = [(n, score) for n, scores in found.items() for score in scores if math.isfinite(score)]
    return CurveFacts(
        task=config.task,
        kind=getattr(prepared.task, "kind", ""),
        model=prepared.folder.path.resolve().name,
        transfer=config.transfer,
        main=prepared.task.main,
        source=Path(prepared.data.train.source).name,
        available=len(prepared.data.train.examples),
        dev_examples=len(prepared.data.dev.examples),
        points=tuple((n, tuple(scores)) for n, scores in found.items()),
        fit=fit_power_law(points),
        baseline=None if usual is None else (Phrase(f"always '{usual[0]}'", f"总答“{usual[0]}”"), usual[1]),
        seconds=sum(line["seconds"] for line in lines),
        notes=(*prepared.notes, *_notes(plan)),
        config=(out / "config.toml").read_text(encoding="utf-8"),
    )


def _notes(plan: Plan) -> list[Words]:
    notes: list[Words] = [
        Phrase(
            "Every point was judged on the same held-out examples, with its best evaluation there.",
            "每个点都在同一份留出样本上评分，取其中最好的一次评估。",
        )
    ]
    wanted = min(plan.config.shares) * len(plan.prepared.data.train.examples)
    least = min(point.n for point in plan.points)
    if least > wanted + 1:
        notes.append(
            Phrase(
                f"The smallest share is {wanted:,.0f} examples; {least:,} were taken, so that no label is missing.",
                f"最小的一份本应是 {wanted:,.0f} 条；为了不缺任何标签，取了 {least:,} 条。",
            )
        )
    return notes


def _result(facts: CurveFacts) -> dict[str, Any]:
    remark = verdict(facts)
    return {
        "task": facts.task,
        "kind": facts.kind,
        "model": facts.model,
        "transfer": facts.transfer,
        "main": facts.main,
        "examples": {"train": facts.available, "dev": facts.dev_examples},
        "points": [
            {
                "n": n,
                "mean": statistics.fmean(scores),
                "deviation": statistics.stdev(scores) if len(scores) > 1 else None,
                "scores": list(scores),
            }
            for n, scores in facts.points
        ],
        "fit": facts.fit.to_dict(),
        "verdict": None if remark is None else {"level": remark.level, **remark.text._asdict()},
        "baseline": None if facts.baseline is None else facts.baseline[1],
        "seconds": facts.seconds,
    }
