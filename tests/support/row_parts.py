"""Jobs over rows in parts, done in this process: what a cluster must end with, byte for byte."""

from pathlib import Path
from typing import Any

from qkv.api.part_jobs import EmbedParts, JobModel, PredictParts, TranslateParts, join_facts
from qkv.api.parts import PartFolder, PartLimits, RowPlan, cut_file, find_files, plan_rows, suffix_of_parts

AnyJob = PredictParts | EmbedParts | TranslateParts
SMALL = PartLimits(7)


def model_of(name: str) -> JobModel:
    return JobModel.of(name, "cpu", 1)


def plan_of(job: AnyJob, suffix: str, *files: Path, limits: PartLimits = SMALL) -> RowPlan:
    found = find_files([str(file) for file in files], "out")
    return plan_rows([cut_file(job, file, limits, suffix) for file in found], suffix)


def do(job: AnyJob, out: Path, *files: Path, limits: PartLimits = SMALL) -> dict[str, Any]:
    """Do a whole job here, and return its facts; parts of an earlier one are kept."""
    suffix = suffix_of_parts(str(out))
    plan, folder = plan_of(job, suffix, *files, limits=limits), PartFolder(str(out), suffix, job.settings())
    done = folder.take_over(plan, folder.check_target())
    kept, answer = len(done), job.open_model()
    for part in plan.parts:
        if part.number not in done:
            done[part.number] = folder.write(job, answer, part)
    facts = join_facts([done[number]["facts"] for number in range(len(plan.parts))])
    folder.finish(plan, done, facts)
    return facts | {"n_parts": len(plan.parts), "n_kept": kept}


def write_csv(path: Path, count: int = 40, empty: int = 6) -> Path:
    texts = ["" if n % empty == 0 else f'"the cat, {n}\n在北京 the dog"' for n in range(count)]
    rows = [f"{n},{text},备注{n}" for n, text in enumerate(texts)]
    path.write_text("编号,text,label\n\n" + "\n".join(rows) + "\n\n", encoding="utf-8")
    return path
