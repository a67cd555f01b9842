"""`qkv finetune`: a labelled file to a model you can trust."""

from typing import Annotated, Any

import typer

from qkv.cli.columns import (
    AnswerColumn,
    ChoicesColumn,
    ContextColumn,
    FormatOption,
    GroupColumn,
    LabelColumn,
    PairColumn,
    QuestionColumn,
    SeparatorOption,
    TextColumn,
)
from qkv.cli.options import JsonOption
from qkv.cli.training import (
    DevOption,
    EpochsOption,
    KindOption,
    PretrainedOption,
    RateOption,
    RecipeOption,
    ResumeOption,
    RunOption,
    SetOption,
    TaskArgument,
    TokenizerOption,
    TrainingDevice,
    TrainOption,
    TransferOption,
    VectorsOption,
    check_spelling,
    checked_task,
    refuse_beside_resume,
    tell,
)
from qkv.errors import InputError
from qkv.interop.zoo import DEFAULT_MODEL


def finetune(
    task: TaskArgument = None,
    model: PretrainedOption = DEFAULT_MODEL,
    embeddings: VectorsOption = None,
    tokenizer: TokenizerOption = None,
    train: TrainOption = None,
    dev: DevOption = None,
    test: Annotated[
        str | None, typer.Option("--test", metavar="FILE", help="Examples to judge by, once, at the end.")
    ] = None,
    out: RunOption = None,
    transfer: TransferOption = None,
    seeds: Annotated[int | None, typer.Option("--seeds", metavar="N", help="Train N times; mean ± std.")] = None,
    epochs: EpochsOption = None,
    lr: RateOption = None,
    class_weights: Annotated[
        str | None, typer.Option("--class-weights", metavar="none|auto", help="auto: rare classes weigh more.")
    ] = None,
    kind: KindOption = None,
    crf: Annotated[bool, typer.Option("--crf", help="Of tag: a conditional random field on top.")] = False,
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
    recipe: RecipeOption = None,
    device: TrainingDevice = None,
    settings: SetOption = None,
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
    --transfer full       everything learns (fine-tuning)
    --transfer top:2      the last two layers and the head learn
    --transfer freeze     the head learns, the encoder stays
    --transfer features   the encoder is run once; the head learns from its vectors: the cheapest way

    \b
    --model scratch:KIND begins from nothing, with an encoder that has no attention; --set reader.layers=2 … for sizes:
    lookup, textcnn, cnn, rnn, lstm, gru, peephole, coupled.
    With --embeddings it begins from word vectors, and freeze holds these still; or it reads the vectors of ELMo, which
    is held still unless --transfer full, or those of a recurrent language model.
    --model with word vectors, ELMo or a language model is --model scratch:lookup on them.

    \b
    RUN/model        the model with labels and calibration: qkv predict, transformers, …
    RUN/report.html  scores, confusion, calibration, the hardest examples: to be handed on
    RUN/config.toml  every setting; these are the keys of --set
    RUN/faults.jsonl examples that were dropped or mended, with their lines

    Look through a file first: qkv check FILE. Ctrl-C saves and stops; --resume goes on, and ends as if never stopped.
    --json prints one document: run, finished, result.
    """
    from qkv.cli.scores import print_result
    from qkv.interop.folder import KINDS, model_type_of
    from qkv.train.progress import for_stderr

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
        "data.columns.question": question,
        "data.columns.context": context,
        "data.columns.answer": answer,
        "data.columns.choices": choices,
        "seeds": seeds,
        "epochs": epochs,
        "train.lr": lr,
        "class_weights": class_weights,
        "classify.kind": kind,
        "device": device,
    }
    flags = {key: value for key, value in given.items() if value is not None}
    if resume is not None:
        refuse_beside_resume(task, flags, out, recipe, settings, transfer, crf)
        from qkv.run.finetune import resume as go_on

        with for_stderr() as progress:
            finished = go_on(resume, progress)
    else:
        task, out = checked_task("finetune", task, train, out, kind)
        check_spelling(model)
        if crf:
            if task != "tag":
                raise InputError(f"--crf is for tag, not for {task}.")
            flags["tag.crf"] = True
        from qkv.run.finetune import start
        from qkv.run.finetune_start import configured_for

        with for_stderr() as progress:
            config = configured_for(task, model, transfer, recipe, flags, settings or [])
            finished = start(config, out, progress)
    run = finished.run
    readers = "qkv" if model_type_of(run / "model") in KINDS else "qkv and transformers"
    left = f"\n{run / 'model'}: the model, for {readers}\n{run / 'report.html'}: the whole story"
    tell("finetune", finished, as_json, print_result, left)
