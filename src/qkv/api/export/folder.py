"""`export`: an encoder with its head as a folder of ONNX graphs that is used without qkv.

    model.onnx                     the padded graph, float32
    model_packed.onnx              with `packed`: padding only inside attention
    model_quantized.onnx           with `int8`, and model_packed_quantized.onnx with both
    export.json                    labels, pooling, calibration, a CRF, inputs and outputs, figures of int8
    config.json, tokenizer.json …  of the model, as transformers names them
    README.md                      a card with a script (card.py)

Names of files, inputs and outputs are those that optimum's and sentence-transformers' loaders look for. The folder is
written whole or not at all.
"""

import copy
import os
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qkv.api.export.card import make_export_card
from qkv.api.export.formats import EXPORT_FORMATS, EXPORTED_HEADS, LEAST_COSINE, MOST_LOSS
from qkv.api.export.gate import check_figures, compare_graph, find_held_out, import_onnxruntime
from qkv.api.export.graph import ROW_HEADS, ExportedNetwork, write_graph
from qkv.api.export.nodes import OPSET, WEIGHTS_SUFFIX, import_onnx
from qkv.api.model import Model
from qkv.errors import InputError, did_you_mean, listed
from qkv.files import check_replaceable, replaced_folder, to_json
from qkv.models.bert.network import BertWithHeads
from qkv.models.family import ENCODES, HAS_TASK, Facts, Loading, Opened
from qkv.models.folders.fields import MODULES, read_sentence, write_sentence
from qkv.models.folders.hub import locate, shown_name
from qkv.models.folders.own import CARD, CONFIG, EXPORT, own_version, read_licences
from qkv.models.table import describe_model, open_model
from qkv.tasks.predictor import Solver, extra_record, make_solver
from qkv.text.tokenizer import FILES

EXPORT_FORMAT = 1
"""Of export.json."""
GRAPHS = {
    (False, False): "model.onnx",
    (True, False): "model_packed.onnx",
    (False, True): "model_quantized.onnx",
    (True, True): "model_packed_quantized.onnx",
}
"""By packed, int8."""
_EXPORTED_FILES = (
    *(name + ending for name in GRAPHS.values() for ending in ("", WEIGHTS_SUFFIX)),
    *(EXPORT, CONFIG, CARD, *FILES, "LICENSE*", "NOTICE", MODULES, "[0-9]_Pooling", "[0-9]_Normalize"),
    *("sentence_bert_config.json", "config_sentence_transformers.json"),
)
_CAN = "BERT, RoBERTa, XLM-RoBERTa, DistilBERT, ELECTRA, ALBERT and ERNIE, with or without a head"


def export(
    model: str | os.PathLike[str] | Model,
    out: str | os.PathLike[str],
    *,
    to: str = "onnx",
    head: str | None = None,
    packed: bool = False,
    int8: bool = False,
    check: str | os.PathLike[str] | None = None,
    least_cosine: float = LEAST_COSINE,
    most_loss: float = MOST_LOSS,
    overwrite: bool = False,
) -> dict[str, Any]:
    """See `qkv.export`."""
    if to not in EXPORT_FORMATS:
        raise InputError(
            f"Unknown format '{to}'.{did_you_mean(to, EXPORT_FORMATS)} Known: {', '.join(EXPORT_FORMATS)}."
        )
    if not -1 <= least_cosine <= 1:
        raise InputError(f"A cosine is between -1 and 1: {least_cosine} cannot be asked for.")
    if check is not None and not int8:
        raise InputError("A file to check on is for int8, which is not asked for: add --int8, or leave --check out.")
    target = Path(os.path.expanduser(out))
    if not overwrite and (any(target.iterdir()) if target.is_dir() else target.exists()):
        raise InputError(f"{out} already exists. Give another name, or add --overwrite.")
    check_replaceable(target, _reason_to_keep)
    import_onnx()
    if int8:
        import_onnxruntime()
    opened = _open(model)
    exported, solver = _choose(opened, head)
    held_out = (
        find_held_out(opened, solver, None if check is None else Path(os.path.expanduser(check))) if int8 else None
    )
    source = model.name if isinstance(model, Model) else shown_name(opened.path)
    about = _describe(opened, exported, solver, source)
    max_length = about["max_length"]
    with replaced_folder(target, _reason_to_keep) as fresh:
        if held_out is not None:
            trial = fresh / "trial.onnx"
            # the scores of a head are for examples of its task
            tried = exported if held_out.examples else replace(exported, head="none")
            write_graph(trial, tried, packed=True, int8=True, hidden=True)
            about["int8"] = compare_graph(trial, exported, opened.tokenizer, max_length, solver, held_out)
            for file in fresh.iterdir():
                file.unlink()
            check_figures(about["int8"], least_cosine, most_loss)
            about["int8"]["asked_for"] = {"least_cosine": least_cosine, "most_loss": most_loss}
        for is_packed in (False, True) if packed else (False,):
            for is_int8 in (False, True) if int8 else (False,):
                name = GRAPHS[is_packed, is_int8]
                inputs, outputs = write_graph(fresh / name, exported, packed=is_packed, int8=is_int8)
                size = sum(
                    (fresh / file).stat().st_size for file in (name, name + WEIGHTS_SUFFIX) if (fresh / file).exists()
                )
                about["graphs"][name] = {"inputs": inputs, "outputs": outputs, "bytes": size}
        for name, content in _files(opened, about, target).items():
            (fresh / name).parent.mkdir(exist_ok=True)
            (fresh / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return about


def _open(model: str | os.PathLike[str] | Model) -> Opened:
    if isinstance(model, Model):
        _check_family(model.opened.facts)
        return _copy(model)
    place = locate(model if isinstance(model, str) else Path(model))
    if (place / EXPORT).is_file():
        raise InputError(f"{place} is an exported model already. Export the model that it was made of.")
    _check_family(describe_model(place))  # before the weights are read
    return open_model(place, Loading())


def _copy(model: Model) -> Opened:
    """What a model was opened as, to be computed in float32 on a CPU; the model itself stays where and as it is."""
    if all(weight.device.type == "cpu" and weight.dtype.itemsize == 4 for weight in model.network.parameters()):
        return model.with_precision("fp32").opened  # with the same weights in memory
    tokenizer = model.opened.tokenizer
    return copy.deepcopy(model.opened, {id(tokenizer): tokenizer})


def _check_family(facts: Facts) -> None:
    if facts.view_kind != "bert":
        raise InputError(
            f"{facts.path} cannot be exported: it holds {facts.about.en}. What can be exported: {_CAN}. For other "
            "programs, offer this one over HTTP: qkv serve."
        )


def _choose(opened: Opened, wanted: str | None) -> tuple[ExportedNetwork, Solver | None]:
    """What is exported: the head of a task, else sentence vectors, else masked words, else vectors of tokens."""
    encodes = opened.ability(ENCODES)
    network = encodes.network.cpu().float().eval()
    assert isinstance(network, BertWithHeads), "the family was checked"
    held = [head for head in EXPORTED_HEADS if head in network.heads]
    if wanted not in (None, "none", *held):
        known = [*held, "none"]
        hint = did_you_mean(str(wanted), known)
        raise InputError(f"{opened.path} has no head '{wanted}'.{hint} It can be exported with: {', '.join(known)}.")
    pools = opened.sentence.pooling is not None
    chosen = wanted or next((head for head in held if not (head == "masked" and pools)), "none")
    if chosen in ("none", "masked"):
        return ExportedNetwork(
            network, chosen, opened.sentence.pooling if chosen == "none" else None, _unit(opened)
        ), None
    if not opened.has(HAS_TASK):
        return ExportedNetwork(network, chosen, "cls" if chosen in ROW_HEADS else None), None
    import torch

    solver = make_solver(opened, torch.device("cpu"))
    if solver.task.head != chosen:
        return ExportedNetwork(network, chosen, "cls" if chosen in ROW_HEADS else None), None
    pooling = solver.task.pooling if chosen in ROW_HEADS else None
    return ExportedNetwork(network, chosen, pooling, solver.task.normalize), solver


def _unit(opened: Opened) -> bool:
    return opened.sentence.pooling is not None and opened.sentence.normalize


def _describe(opened: Opened, exported: ExportedNetwork, solver: Solver | None, source: str) -> dict[str, Any]:
    """export.json, without its graphs."""
    tokenizer, config = opened.tokenizer, exported.network.config
    calibration = None if solver is None else solver.calibration.to_dict()
    if exported.head == "sequence" and calibration is None:
        calibration = {"temperature": 1.0, "thresholds": {}, "abstain_below": None}
    return {
        "format": EXPORT_FORMAT,
        "qkv": own_version(),
        "source": source,
        "model_type": opened.facts.model_type,
        "title": opened.facts.about.zh,
        "head": exported.head,
        "task": None if solver is None else solver.task.name,
        "kind": None if solver is None else solver.task.kind or None,
        "reads_pairs": bool(solver is not None and solver.task.paired),
        "labels": list(opened.labels) if exported.head in ("sequence", "token") else [],
        "max_length": config.max_length if solver is None else min(config.max_length, solver.max_length),
        "pooling": exported.pooling,
        "normalize": exported.normalize,
        "pad_id": tokenizer.pad_id,
        "pad_token": tokenizer.token(tokenizer.pad_id),
        "mask_token": tokenizer.token(tokenizer.mask_id),
        "segmenter": tokenizer.segmenter,
        "calibration": calibration,
        "not_in_graph": {} if solver is None else extra_record(solver.model),
        "opset": OPSET,
        "graphs": {},
        "int8": None,
    }


def _notes(about: dict[str, Any]) -> list[tuple[str, str]]:
    notes = [
        (
            "Texts longer than that are cut by the script below; qkv itself reads them in windows.",
            "更长的文本会被下面的脚本截断；qkv 自己会分窗口读完。",
        )
    ]
    if about["not_in_graph"]:
        notes.append(
            (
                "The graph gives the scores of single tokens; the CRF between them is in `export.json` "
                "(`not_in_graph`), and is not part of the graph.",
                "图只给出每个词元的分数；它们之间的 CRF 转移分数在 `export.json` 里，不在图中。",
            )
        )
    if about["calibration"] is not None:
        notes.append(
            (
                "The temperature, thresholds and the probability below which it should not answer are in `export.json` "
                "(`calibration`), and are not part of the graph.",
                "温度、阈值和「低于此概率不作答」的界限在 `export.json` 里，不在图中。",
            )
        )
    if about["segmenter"] is not None:
        notes.append(
            (
                f"Tokens are Chinese words: put spaces between them ({about['segmenter']}) before the tokenizer.",
                f"词元是中文词：分词（{about['segmenter']}）并用空格隔开，再交给 tokenizer。",
            )
        )
    return notes


def _read_config(opened: Opened) -> bytes:
    if (opened.path / CONFIG).is_file():
        return (opened.path / CONFIG).read_bytes()
    with TemporaryDirectory() as folder:  # a model that was fitted in memory has none any more
        return (opened.save(Path(folder) / "model") / CONFIG).read_bytes()


def _files(opened: Opened, about: dict[str, Any], out: Path) -> dict[str, str | bytes]:
    """Everything but the graphs."""
    place = opened.path
    files: dict[str, str | bytes] = {**read_licences(place), **opened.tokenizer.files(about["max_length"])}
    files[CONFIG] = _read_config(opened)
    if about["head"] == "none" and about["pooling"] is not None:
        kept = read_sentence(place).files
        files |= kept or write_sentence(about["pooling"], about["normalize"], opened.facts.document["width"])
    files[EXPORT] = to_json(about)
    files[CARD] = make_export_card(out.resolve().name, about, _notes(about))
    return files


def _reason_to_keep(folder: Path) -> str | None:
    foreign = [entry.name for entry in folder.iterdir() if not any(fnmatch(entry.name, one) for one in _EXPORTED_FILES)]
    if foreign:
        return f"it holds {listed(foreign)}, which is not part of an exported model"
    if not (folder / EXPORT).is_file():
        return f"it is not an exported model (no {EXPORT})"
    return None
