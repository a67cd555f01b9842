"""`qkv finetune` and `qkv curve`: fine-tune on a labelled file; measure how the score grows with its size."""

from typing import Annotated, Any

import typer

from qkv.cli.options import (
    AnswerColumn,
    ChoicesColumn,
    ClusterOption,
    ContextColumn,
    DevOption,
    EmbeddingsOption,
    EpochsOption,
    FormatOption,
    GroupColumn,
    JsonOption,
    KindOption,
    LabelColumn,
    MinProcessesOption,
    MinutesOption,
    OverwriteOption,
    PairColumn,
    PretrainedOption,
    ProcessesOption,
    QuestionColumn,
    RateOption,
    RecipeOption,
    ResumeOption,
    RunOption,
    SeparatorOption,
    SetOption,
    SkipBadOption,
    TaskArgument,
    TextColumn,
    TokenizerOption,
    TrainingDevice,
    TrainOption,
    TransferOption,
    WeightColumn,
    check_spelling,
    check_task,
    end_other_process,
    join_processes,
    quick_start,
    refuse_with_resume,
    report_result,
)
from qkv.errors import InputError
from qkv.models.folders.hub import DEFAULT_MODEL
from qkv.text.messages import language, write


def finetune(
    invocation: typer.Context,
    task: TaskArgument = None,
    model: PretrainedOption = DEFAULT_MODEL,
    embeddings: EmbeddingsOption = None,
    tokenizer: TokenizerOption = None,
    train: TrainOption = None,
    dev: DevOption = None,
    test: Annotated[
        str | None, typer.Option("--test", metavar="FILE", help="Test set, evaluated once after training.")
    ] = None,
    out: RunOption = None,
    transfer: TransferOption = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", help="Train with N seeds; report mean ± standard deviation.")
    ] = None,
    epochs: EpochsOption = None,
    minutes: MinutesOption = None,
    lr: RateOption = None,
    class_weights: Annotated[
        str | None,
        typer.Option("--class-weights", metavar="none|auto", help="auto: weight classes by inverse frequency."),
    ] = None,
    kind: KindOption = None,
    crf: Annotated[bool, typer.Option("--crf", help="tag: add a conditional random field.")] = False,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    group: GroupColumn = None,
    weight: WeightColumn = None,
    question: QuestionColumn = None,
    context: ContextColumn = None,
    answer: AnswerColumn = None,
    choices: ChoicesColumn = None,
    format: FormatOption = None,
    separator: SeparatorOption = None,
    skip_bad: SkipBadOption = False,
    recipe: RecipeOption = None,
    device: TrainingDevice = None,
    processes: ProcessesOption = None,
    cluster: ClusterOption = None,
    min_processes: MinProcessesOption = None,
    settings: SetOption = None,
    overwrite: OverwriteOption = False,
    resume: ResumeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune a model on a labelled file: classes, entities, answers or choices.

    \b
    qkv finetune classify --train intents.csv --out run
    qkv finetune tag --train train.bio --dev dev.bio --out run --seeds 3
    qkv finetune answer --train cmrc2018_train.json --out run --model FOLDER
    qkv finetune classify --train 评论.tsv --text 内容 --label 情感 --out run --transfer features
    qkv finetune classify --train intents.csv --out run --model scratch:lstm --embeddings vectors.vec
    qkv finetune tag --train train.bio --out run --model scratch:lstm --embeddings ELMO
    qkv finetune --resume run

    \b
    --transfer full       train all parameters
    --transfer top:2      train the last two layers and the head
    --transfer freeze     train the head; the encoder is frozen
    --transfer features   run the encoder once and fit the head on its vectors; the cheapest

    Without --epochs or --minutes a run is planned for at most 10 minutes, if 2 epochs fit: the first steps are timed.

    \b
    --model scratch:KIND trains a new encoder without attention:
    lookup, textcnn, cnn, rnn, lstm, gru, peephole, coupled.
    --set reader.layers=2 … sets its sizes.
    --embeddings adds pretrained word vectors (--transfer freeze keeps them fixed), ELMo (fixed unless --transfer full)
    or a recurrent language model below it.
    --model with word vectors, ELMo or a language model means --model scratch:lookup on them.

    \b
    RUN/model        the model with labels and calibration: qkv predict, transformers, …
    RUN/report.html  scores, confusion matrix, calibration, hardest examples
    RUN/config.toml  all settings; these are the keys of --set
    RUN/faults.jsonl examples that were dropped or repaired, with file and line

    Check a file first: qkv check FILE. Ctrl-C saves and stops; --resume continues and ends with the same result.
    --json prints one document: run, finished, result.
    """
    join_processes(invocation, processes, cluster, min_processes)
    with quick_start():
        from qkv.cli.terminal import print_result
        from qkv.jobs.finetune.run import FINETUNING
        from qkv.models.folders.own import OWN_TYPES, model_type_of
        from qkv.train.log import for_stderr

    given: dict[str, Any] = {
        "embeddings": embeddings,
        "tokenizer": tokenizer,
        "data.train": train,
        "data.dev": dev,
        "data.test": test,
        "data.format": format,
        "data.separator": separator,
        "data.columns.text": text,
        "data.columns.pair": pair,
        "data.columns.label": label,
        "data.columns.group": group,
        "data.columns.weight": weight,
        "data.columns.question": question,
        "data.columns.context": context,
        "data.columns.answer": answer,
        "data.columns.choices": choices,
        "data.skip_bad": skip_bad or None,
        "seeds": seeds,
        "epochs": epochs,
        "train.minutes": minutes,
        "train.lr": lr,
        "class_weights": class_weights,
        "classify.kind": kind,
        "tag.crf": crf or None,
        "device": device,
    }
    flags = {key: value for key, value in given.items() if value is not None}
    if resume is not None:
        refuse_with_resume(task, flags, out, recipe, settings, transfer, overwrite)
        with for_stderr() as progress:
            finished = FINETUNING.resume(resume, progress)
    else:
        task, out = check_task("finetune", task, train, out, flags)
        check_spelling(model)
        from qkv.jobs.finetune.settings import resolve_finetune_settings

        with for_stderr() as progress:
            config = resolve_finetune_settings(task, model, transfer, recipe, flags, settings or [])
            finished = FINETUNING.start(config, out, progress, overwrite)
    end_other_process(finished)
    run = finished.run
    readers = "qkv" if model_type_of(run / "model") in OWN_TYPES else "qkv and transformers"
    left = f"\n{run / 'model'}: the model, for {readers}\n{run / 'report.html'}: the report"
    report_result("finetune", finished, as_json, print_result, left)


def curve(
    task: TaskArgument = None,
    model: PretrainedOption = DEFAULT_MODEL,
    embeddings: EmbeddingsOption = None,
    tokenizer: TokenizerOption = None,
    train: TrainOption = None,
    dev: DevOption = None,
    out: RunOption = None,
    shares: Annotated[
        str | None,
        typer.Option("--shares", metavar="LIST", help="Shares of the training set (default 0.1,0.2,0.4,0.7,1)."),
    ] = None,
    draws: Annotated[
        int | None, typer.Option("--draws", metavar="N", help="Random samples per share (default 3).")
    ] = None,
    transfer: TransferOption = None,
    epochs: EpochsOption = None,
    lr: RateOption = None,
    kind: KindOption = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    group: GroupColumn = None,
    question: QuestionColumn = None,
    context: ContextColumn = None,
    answer: AnswerColumn = None,
    choices: ChoicesColumn = None,
    format: FormatOption = None,
    separator: SeparatorOption = None,
    skip_bad: SkipBadOption = False,
    recipe: RecipeOption = None,
    device: TrainingDevice = None,
    settings: SetOption = None,
    overwrite: OverwriteOption = False,
    resume: ResumeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train on growing shares of a labelled file and estimate what more labels would bring.

    \b
    qkv curve classify --train intents.csv --out curve --transfer features
    qkv curve tag --train train.bio --dev dev.bio --out curve --shares 0.05,0.2,0.5,1 --draws 5 --model FOLDER
    qkv curve --resume curve

    All points use the same development set. --transfer features runs the encoder once for the whole curve, which takes
    minutes; otherwise the model is trained again for every share and draw.

    \b
    RUN/report.html   the curve, and predictions for 2, 4 and 10 times as many labels, with intervals
    RUN/points.jsonl  one line per training: n, draw, score
    RUN/result.json   the same as --json prints under "result"

    Ctrl-C saves and stops; --resume trains the missing points. --json prints one document: run, finished,
    result.
    """
    from qkv.train.log import for_stderr

    given: dict[str, Any] = {
        "embeddings": embeddings,
        "tokenizer": tokenizer,
        "data.train": train,
        "data.dev": dev,
        "data.format": format,
        "data.separator": separator,
        "data.columns.text": text,
        "data.columns.pair": pair,
        "data.columns.label": label,
        "data.columns.group": group,
        "data.columns.question": question,
        "data.columns.context": context,
        "data.columns.answer": answer,
        "data.columns.choices": choices,
        "data.skip_bad": skip_bad or None,
        "epochs": epochs,
        "train.lr": lr,
        "classify.kind": kind,
        "device": device,
    }
    flags = {key: value for key, value in given.items() if value is not None}
    if resume is not None:
        refuse_with_resume(task, flags, out, shares, draws, recipe, settings, transfer, overwrite)
        from qkv.jobs.curve import CURVES

        with for_stderr() as progress:
            finished = CURVES.resume(resume, progress)
    else:
        task, out = check_task("curve", task, train, out, flags)
        check_spelling(model)
        wanted: dict[str, Any] = {} if shares is None else {"shares": _shares(shares)}
        if draws is not None:
            wanted["draws"] = draws
        from qkv.jobs.curve import CURVES, CurveConfig
        from qkv.jobs.finetune.settings import resolve_finetune_settings

        with for_stderr() as progress:
            tuned = resolve_finetune_settings(task, model, transfer, recipe, flags, settings or [])
            finished = CURVES.start(CurveConfig(**wanted, finetune=tuned), out, progress, overwrite)
    report_result("curve", finished, as_json, _print, f"\n{finished.run / 'report.html'}: the curve")


def _shares(words: str) -> tuple[float, ...]:
    try:
        return tuple(sorted({float(word) for word in words.split(",")}))
    except ValueError:
        raise InputError(f"--shares '{words}': write shares with commas between them, such as 0.1,0.3,1.") from None


def _print(result: dict[str, Any]) -> None:
    from qkv.cli.terminal import METRIC_NAMES, bar, print_table

    main = METRIC_NAMES.get(result["main"], result["main"].replace("_", " "))
    rows: list[tuple[object, ...]] = []
    for point in result["points"]:
        spread = "" if point["deviation"] is None else f" ± {point['deviation']:.4f}"
        rows.append((f"{point['n']:,}", f"{point['mean']:.4f}{spread}", bar(point["mean"])))
    for one in result["fit"]["predictions"]:
        between = f"{one['score']:.4f} ({one['low']:.4f} – {one['high']:.4f})"
        rows.append((f"{one['n']:,}, expected", between, bar(one["score"])))
    print_table(["examples", main, ""], rows)
    if result["verdict"]:
        write(f"\n{result['verdict'][language()]}".replace("\u00a0", " "))
