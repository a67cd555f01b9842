"""`qkv export`: write an encoder as an ONNX graph that runs without qkv."""

from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.api.export.formats import EXPORT_FORMATS, LEAST_COSINE, MOST_LOSS
from qkv.cli.options import JsonOption
from qkv.text.messages import write


def export_graph(
    model: Annotated[
        str, typer.Argument(metavar="RUN|FOLDER", help="Fine-tuning run, model folder, model of qkv, or hf:owner/name.")
    ],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="Format to write: onnx.")] = EXPORT_FORMATS[0],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Folder to write (default: NAME-onnx, here).")
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="NAME",
            help="sequence, token, span, choice, masked or none: vectors of tokens (default: that of the task).",
        ),
    ] = None,
    packed: Annotated[
        bool, typer.Option("--packed", help="Also write model_packed.onnx: tokens end to end, without padding.")
    ] = False,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="Also write the graphs in 8 bits, if they agree with float32 on held-out texts."),
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            metavar="FILE",
            help="Held-out texts, or labelled examples, for --int8 (default: the run's own, or texts of the package).",
        ),
    ] = None,
    least_cosine: Annotated[
        float, typer.Option("--least-cosine", metavar="C", help="Refuse int8 below this cosine with float32.")
    ] = LEAST_COSINE,
    most_loss: Annotated[
        float, typer.Option("--most-loss", metavar="S", help="Refuse int8 if the score of the task falls by more.")
    ] = MOST_LOSS,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export in --out.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Export an encoder with its head as an ONNX graph: a folder that onnxruntime runs without qkv.

    The graph has the inputs of BERT (input_ids, attention_mask, token_type_ids) with batches and texts of any length,
    and outputs as optimum names them: last_hidden_state, sentence_embedding, logits, start_logits, end_logits.
    README.md in the folder has a script of 20 lines; labels, temperature, thresholds and a CRF are in export.json.

    \b
    qkv export run --to onnx --out graph
    qkv export run --int8 --check test.csv
    qkv export qkv-sentences --packed --int8 --out sentences
    qkv export hf:google-bert/bert-base-chinese --head none --out bert

    BERT, RoBERTa, XLM-RoBERTa, DistilBERT, ELECTRA, ALBERT and ERNIE can be exported. Int8 is right on CPUs with and
    without VNNI; it is compared with float32 first, and refused with the figures if it differs too much.

    --json prints the document that is written to export.json.
    """
    from qkv.api.export.folder import export
    from qkv.cli.terminal import print_json
    from qkv.models.folders.hub import shown_name

    name = model.removeprefix("hf:").rpartition("/")[2] if model.startswith("hf:") else shown_name(model)
    target = Path(f"{name}-onnx") if out is None else out
    found = export(
        model,
        target,
        to=to,
        head=head,
        packed=packed,
        int8=int8,
        check=check,
        least_cosine=least_cosine,
        most_loss=most_loss,
        overwrite=overwrite,
    )
    if as_json:
        print_json({"path": str(target), **found})
        return
    _report(target, found)


def _report(target: Path, found: dict[str, Any]) -> None:
    for file, graph in found["graphs"].items():
        names = f"{', '.join(graph['inputs'])} → {', '.join(graph['outputs'])}"
        typer.echo(f"{target / file}: {graph['bytes'] / 1e6:,.1f} MB, {names}")
    if (figures := found["int8"]) is not None:
        write(
            f"int8 against float32, {figures['n_texts']:,} texts ({figures['held_out']}): cosine at least "
            f"{figures['least_cosine']:.4f}, mean {figures['mean_cosine']:.4f}"
        )
        if (score := figures.get("score")) is not None:
            write(f"{score['name']}: {score['float32']:.4f} in float32, {score['int8']:.4f} in int8")
    if found["not_in_graph"]:
        write("note: the CRF is not part of the graph; its weights are in export.json")
    write(f"{target / 'README.md'} has a script that runs it with onnxruntime, tokenizers and numpy alone")
