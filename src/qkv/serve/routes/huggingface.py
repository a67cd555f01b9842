"""Hugging Face's shapes: every task at `POST /models/NAME` with `inputs` and `parameters`, as its clients send them.

    InferenceClient(model="http://127.0.0.1:8080/models/ner").token_classification("他在北京。")

The task is that of the path (/models/NAME/pipeline/TASK), of ?task= or of parameters.task; else what the keys of
`inputs` say ({"question", "context"}), else the model's first task. A list of inputs is answered by a list.

Where the task leaves a choice:
    text-classification     a score is the calibrated probability that `qkv predict` gives; `function_to_apply` asks for
                            a function of the raw scores instead
    token-classification    our taggers find spans: simple, first, average and max all give these. "none" gives the
                            tokens of each span as B-x, I-x, …, with the probability of the span. What is outside (O) is
                            never listed, whatever `ignore_labels` says
    question-answering      without `handle_impossible_answer`, as the model was trained: an answer may be "" at 0
    feature-extraction      without `normalize`, as the folder says
    text-generation         the text without the prompt, unless `return_full_text`; greedy without options of sampling.
                            `details` say why it ended and how long it is, and list no tokens; streams have parts in
                            whole characters, not tokens
    multiple-choice         ours, since there is no such task there: {"text", "question", "choices"}
A parameter that would change the answer and is not supported is refused.
"""

import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np
from starlette.responses import Response
from starlette.routing import Route

from qkv.api.embedder import Blank, BlankCandidate
from qkv.search.options import NAMES_ELSEWHERE, GenerateConfig
from qkv.serve.fields import FieldError, Fields, require_text, require_texts
from qkv.serve.routes.exchange import Exchange, endpoint, reply, reply_list, reply_stream
from qkv.serve.routes.vectors import (
    ENCODING_FORMATS,
    cosines,
    embed_inputs,
    list_tokens,
    read_dimensions,
    read_inputs,
    reply_vectors,
)
from qkv.serve.routes.writing import Completion, Writing, read_seed, stream_text, write_texts
from qkv.serve.served import Models, Served, ServeSettings
from qkv.tasks.answer import AnswerResult
from qkv.tasks.choice import ChoiceResult
from qkv.tasks.classify import Classification, PredictedLabels, PredictedNumber, softmax
from qkv.tasks.tag import TagResult
from qkv.text.languages import base_of

AGGREGATIONS = ("none", "simple", "first", "average", "max")
_MOST_CANDIDATES = 1000
"""Candidates of a blank, or answers to a question."""
MOST_FILLED = 20_000_000
"""Characters of texts in an answer of fill-mask."""
DEFAULT_NEW_TOKENS = 100
MOST_SEQUENCES = 64
TRUNCATIONS = ("do_not_truncate", "longest_first", "only_first", "only_second")


def routes(models: Models, settings: ServeSettings) -> list[Route]:
    async def answer_model(exchange: Exchange) -> Response:
        path = exchange.request.path_params
        return await _answer(exchange, path.get("name"), path.get("task"))

    async def show(exchange: Exchange) -> Response:
        served = exchange.models[exchange.request.path_params["name"]]
        exchange.log["model"] = served.name
        return reply(describe_served(served) | {"name": served.name} | served.info)

    async def show_health(exchange: Exchange) -> Response:
        served = exchange.models[exchange.request.path_params["name"]]
        ready = exchange.models.ready and not exchange.models.draining
        response = reply({"model": served.name, "status": "ready" if ready else "not ready"})
        response.status_code = 200 if ready else 503
        return response

    return [
        # names may have a slash: owner/name
        endpoint("/models/{name:path}/pipeline/{task}", answer_model, models, settings),
        endpoint("/models/{name:path}/info", show, models, settings, method="GET"),
        endpoint("/models/{name:path}/health", show_health, models, settings, method="GET"),
        endpoint("/models/{name:path}", answer_model, models, settings),
        endpoint("/models/{name:path}", show, models, settings, method="GET"),
        endpoint("/", answer_model, models, settings),
    ]


STARTED = int(time.time())
_NAMES = {
    "beams": "num_beams",
    "n_best": "num_return_sequences",
    "sample": "do_sample",
    "max_length": "max_new_tokens",
    "min_length": "min_new_tokens",
    "no_repeat": "no_repeat_ngram_size",
}
"""What these clients call the options of decoding."""


def describe_served(served: Served) -> dict[str, Any]:
    """A model as lists of models have it."""
    return {"id": served.name, "object": "model", "created": STARTED, "owned_by": "qkv"}


async def _answer(exchange: Exchange, name: str | None, task: str | None) -> Response:
    fields, served = exchange.fields, next(iter(exchange.models)) if name is None else exchange.models[name]
    parameters = fields.inside("parameters")
    asked = parameters.maybe_text("task")
    task = task or exchange.request.query_params.get("task") or asked or _infer_task(fields.raw("inputs"), served)
    exchange.use(task, served.name)
    fields.ignore("options")  # use_cache, wait_for_model: of their service
    return await _TASKS[task](exchange, served, parameters)


def _infer_task(inputs: Any, served: Served) -> str:
    one = inputs[0] if isinstance(inputs, list) and inputs else inputs
    if isinstance(one, dict):
        for key, task in (("source_sentence", "sentence-similarity"), ("context", "question-answering")):
            if key in one and task in served.tasks:
                return task
    return served.tasks[0]


def _read_truncate(parameters: Fields) -> bool:
    """`truncate`, or `truncation` as pipelines call it."""
    if isinstance(parameters.raw("truncation"), str):
        return parameters.choice("truncation", TRUNCATIONS, TRUNCATIONS[0]) != TRUNCATIONS[0]
    return parameters.flag("truncation", False) or parameters.flag("truncate", False)


def _read_objects(fields: Fields, names: Sequence[str]) -> tuple[list[Fields], bool]:
    """`inputs` as an object or a list of objects with these fields, and whether it is a list."""
    wanted = f"an object with {', '.join(names)}, or a list of them"
    found = fields.raw("inputs", wanted)
    many = isinstance(found, list)
    if many and not found:
        raise FieldError("empty", "'inputs' is an empty list. Give one object or more.", "inputs")
    for number, one in enumerate(found if many else [found]):
        if not isinstance(one, dict):
            where = f"inputs[{number}]" if many else "inputs"
            raise FieldError("kind", f"'{where}' must be an object with {', '.join(names)}.", where)
    return [
        Fields(one, f"inputs[{at}]." if many else "inputs.") for at, one in enumerate(found if many else [found])
    ], many


def _reply_each(results: Sequence[Any], write: Callable[[Any], Any], many: bool, numbers: int = 8) -> Response:
    """A list for a list, else the one result."""
    return reply_list(results, write, numbers) if many else reply(write(results[0]))


# Classification


async def _classify(exchange: Exchange, served: Served, parameters: Fields) -> Response:
    fields = exchange.fields
    inputs = _read_texts_or_pairs(fields)
    top_k = parameters.whole("top_k", 1, 1 << 20, None)
    function = parameters.choice("function_to_apply", ("sigmoid", "softmax", "none"), None)
    truncate = _read_truncate(parameters)
    fields.done()
    results, write = await classify(exchange, served, inputs, function, truncate)
    # one text, too, is answered by a list of lists: the client takes the first
    return reply_list(results, lambda one: write(one)[:top_k], 4 * len(write(results[0])))


LabelList = list[dict[str, Any]]


async def classify(
    exchange: Exchange, served: Served, inputs: Sequence[Any], function: str | None, truncate: bool
) -> tuple[Sequence[Any], Callable[[Any], LabelList]]:
    """The results, and what writes the labels of one; with a function, of the raw scores."""
    if function is None:
        results = await served.predict(inputs, exchange.call, truncate=truncate)
        return results, lambda one: list_labels(served, one)
    scores = await served.scores(inputs, exchange.call, truncate=truncate)
    return list(scores), lambda row: label_scores(served, row, function)


def _read_texts_or_pairs(fields: Fields) -> list[Any]:
    """Texts; pairs are {"text", "text_pair"} or lists of two in a list."""
    found = fields.raw("inputs", "a text, a pair of texts, or a list of them")
    if isinstance(found, str):
        return [require_text(found, "inputs")]
    several = found if isinstance(found, list) else [found]
    if not several:
        raise FieldError("empty", "'inputs' is an empty list. Give one text or more.", "inputs")
    return [
        _read_text_or_pair(one, f"inputs[{at}]" if found is several else "inputs") for at, one in enumerate(several)
    ]


def _read_text_or_pair(one: Any, where: str) -> Any:
    if isinstance(one, dict):
        inner = Fields(one, f"{where}.")
        pair = inner.text("text"), inner.maybe_text("text_pair")
        inner.done()
        return pair[0] if pair[1] is None else pair
    if isinstance(one, list):
        texts = require_texts(one, where)
        if len(texts) > 2:
            raise FieldError("kind", f"'{where}' has {len(texts)} texts; a pair has two.", where)
        return texts[0] if len(texts) == 1 else tuple(texts)
    return require_text(one, where)


def list_labels(served: Served, result: Any) -> LabelList:
    """The labels of a text, most probable first, as `Model.predict` has them."""
    if isinstance(result, Classification):
        return [
            {"label": label, "score": score, "abstained": result.abstained and label == result.label}
            for label, score in result.probabilities.items()
        ]
    if isinstance(result, PredictedLabels):
        order = sorted(result.probabilities.items(), key=lambda one: -one[1])
        return [{"label": label, "score": score, "predicted": label in result.labels} for label, score in order]
    assert isinstance(result, PredictedNumber)
    return [{"label": label_names(served, 1)[0], "score": result.value}]


def label_names(served: Served, number: int) -> list[str]:
    names = list(served.info.get("labels") or ())
    return names if len(names) == number else [f"LABEL_{at}" for at in range(number)]


def label_scores(served: Served, scores: Any, function: str) -> LabelList:
    """Raw scores (L,) or a function of them, largest first."""
    values = np.asarray(scores, np.float64)
    if function == "softmax":
        values = softmax(values)
    elif function == "sigmoid":
        values = 1 / (1 + np.exp(-values))
    names = label_names(served, len(values))
    order = np.argsort(-values, kind="stable").tolist()
    return [{"label": names[at], "score": float(values[at])} for at in order]


# Tags


async def _tag(exchange: Exchange, served: Served, parameters: Fields) -> Response:
    fields = exchange.fields
    texts, many = fields.texts("inputs"), isinstance(fields.raw("inputs"), list)
    strategy = parameters.choice("aggregation_strategy", AGGREGATIONS, "simple")
    ignored = set(parameters.strings("ignore_labels"))
    parameters.refuse("stride", "long texts are read in windows that overlap as in training. Leave it out.")
    truncate = _read_truncate(parameters)
    fields.done()
    results: list[TagResult] = await served.predict(texts, exchange.call, truncate=truncate)
    encoded = await list_tokens(exchange, served, texts, True) if strategy == "none" else []
    key = "entity" if strategy == "none" else "entity_group"

    def write_one(at: int) -> LabelList:
        found = _write_pieces(results[at], encoded[at], texts[at]) if encoded else _write_entities(results[at])
        return [one for one in found if one[key] not in ignored]

    return _reply_each(range(len(results)), write_one, many, 32)


def _write_entities(result: TagResult) -> list[dict[str, Any]]:
    return [
        {
            "entity_group": one.label,
            "score": one.probability,
            "word": one.text,
            "start": one.start,
            "end": one.end,
            "abstained": one.abstained,
        }
        for one in result.entities
    ]


def _write_pieces(result: TagResult, encoded: Any, text: str) -> list[dict[str, Any]]:
    """Each token of each span; the first has B-."""
    found = []
    tokens = [(at, start, end) for at, (start, end) in enumerate(encoded.offsets) if start < end]
    for entity in result.entities:
        inside = [one for one in tokens if one[1] < entity.end and one[2] > entity.start]
        for number, (at, start, end) in enumerate(inside):
            piece = {"entity": f"{'I' if number else 'B'}-{entity.label}", "score": entity.probability, "index": at}
            found.append(piece | {"word": text[start:end], "start": start, "end": end, "abstained": entity.abstained})
    return found


# Answers and choices


async def _answer_questions(exchange: Exchange, served: Served, parameters: Fields) -> Response:
    fields = exchange.fields
    objects, many = _read_objects(fields, ("question", "context"))
    pairs = []
    for one in objects:
        pairs.append((one.text("question"), one.text("context")))
        one.done()
    top_k = parameters.whole("top_k", 1, _MOST_CANDIDATES, 1)
    may_be_nothing = parameters.flag("handle_impossible_answer", None)
    for name in ("doc_stride", "max_seq_len", "max_question_len"):
        parameters.refuse(name, "long contexts are read in windows that overlap as in training. Leave it out.")
    parameters.refuse("max_answer_len", "the model has its own limit, from training. Leave it out.")
    parameters.refuse("align_to_words", "an answer ends where the model says. Leave it out.", False)
    truncate = _read_truncate(parameters)
    fields.done()
    results: list[AnswerResult] = await served.predict(pairs, exchange.call, truncate=truncate)

    def write_one(result: AnswerResult) -> Any:
        found = write_answers(result, top_k, may_be_nothing is not False)
        return found[0] if top_k == 1 else found

    return _reply_each(results, write_one, many, 8 * top_k)


def write_answers(result: AnswerResult, most: int, may_be_nothing: bool) -> list[dict[str, Any]]:
    """What the model answers, then other answers by their probability."""
    said = {
        "no_answer_probability": result.no_answer_probability,
        "abstained": result.abstained,
        "n_tokens": result.n_tokens,
        "n_windows": result.n_windows,
    }
    others: list[dict[str, Any]] = [
        {"answer": one.text, "score": one.probability, "start": one.start, "end": one.end} for one in result.n_best
    ]
    if may_be_nothing:
        first = {"answer": result.text, "score": result.probability, "start": result.start, "end": result.end}
        if result.no_answer_probability > 0:
            nothing = {"answer": "", "score": result.no_answer_probability, "start": 0, "end": 0}
            others = sorted([*others, nothing], key=lambda one: -one["score"])
        span = (result.text, result.start, result.end)
        others = [one for one in others if (one["answer"], one["start"], one["end"]) != span]
    else:
        first, others = others[0], others[1:]
    return [first | said, *others[: most - 1]]


async def _choose(exchange: Exchange, served: Served, parameters: Fields) -> Response:
    fields = exchange.fields
    objects, many = _read_objects(fields, ("text", "question", "choices"))
    inputs = []
    for one in objects:
        choices = one.raw("choices", "a list of two or more texts")
        if not isinstance(choices, list) or len(choices) < 2:
            raise one.wrong("choices", "a list of two or more texts")
        text = one.string("text") or one.string("context")  # as question-answering calls it
        question = one.string("question")
        inputs.append({"text": text, "question": question, "choices": require_texts(choices, one.name("choices"))})
        one.done()
    truncate = _read_truncate(parameters)
    fields.done()
    results: list[ChoiceResult] = await served.predict(inputs, exchange.call, truncate=truncate)

    def write_one(at: int) -> dict[str, Any]:
        result, texts = results[at], inputs[at]["choices"]
        scored = [{"text": text, "score": score} for text, score in zip(texts, result.probabilities, strict=True)]
        said = {"choice": result.text, "index": result.choice, "score": result.probability, "choices": scored}
        return said | {"abstained": result.abstained, "n_tokens": result.n_tokens, "n_windows": result.n_windows}

    return _reply_each(range(len(results)), write_one, many)


# Blanks


async def _fill(exchange: Exchange, served: Served, parameters: Fields) -> Response:
    fields = exchange.fields
    texts, many = fields.texts("inputs"), isinstance(fields.raw("inputs"), list)
    targets = parameters.strings("targets")
    top_k = parameters.whole("top_k", 1, _MOST_CANDIDATES, len(targets) or 5)
    fields.done()
    _check_filled(served, texts, top_k)
    found = await served.fill(texts, exchange.call, k=top_k, targets=targets or None)

    def write_text(one: tuple[str, list[Blank]]) -> Any:
        text, blanks = one
        listed = [_write_blank(served, text, blank) for blank in blanks]
        return listed[0] if len(listed) == 1 else listed

    return _reply_each(list(zip(texts, found, strict=True)), write_text, many, 4 * top_k)


def _check_filled(served: Served, texts: Sequence[str], top_k: int) -> None:
    """Refuse an answer that would have the text too often: once for every candidate of every blank."""
    mask = served.opened.tokenizer.token(served.opened.tokenizer.mask_id)
    size = top_k * sum(text.count(mask) * len(text) for text in texts)
    if size > MOST_FILLED:
        message = f"The answer would have {size:,} characters of texts; {MOST_FILLED:,} are the limit."
        raise FieldError("too_long", f"{message} Send fewer blanks in one request, or a smaller top_k.")


def _write_blank(served: Served, text: str, blank: Blank) -> list[dict[str, Any]]:
    return [
        {
            "score": one.probability,
            "token": served.opened.tokenizer.id(one.token),
            "token_str": one.token,
            "sequence": _fill_in(text, blank, one),
        }
        for one in blank.candidates
    ]


def _fill_in(text: str, blank: Blank, candidate: BlankCandidate) -> str:
    """The text with one blank filled; a subword (##s) joins the word before it."""
    before = text[: blank.start]
    if candidate.token != candidate.text:
        before = before.rstrip()
    return before + candidate.text + text[blank.end :]


# Vectors


async def _extract(exchange: Exchange, served: Served, parameters: Fields) -> Response:
    fields = exchange.fields
    # this client sends its parameters at the root
    where = next((one for one in (parameters, fields) if any(name in one for name in _OF_VECTORS)), fields)
    inputs = read_inputs(fields, "inputs")
    normalize = where.flag("normalize", None)
    dimensions = read_dimensions(where, served)
    encoding = where.choice("encoding_format", ENCODING_FORMATS, "float")
    where.refuse("prompt_name", "put the prompt before the text yourself.")
    truncate = where.flag("truncate", False)
    direction = where.choice("truncation_direction", ("left", "right", "Left", "Right"), "right").lower()
    fields.done()
    found = await embed_inputs(
        exchange,
        served,
        inputs,
        normalize=normalize,
        dimensions=dimensions,
        truncate=truncate,
        truncation_direction=direction,
    )
    return reply_vectors(found.vectors, encoding)


_OF_VECTORS = ("normalize", "dimensions", "encoding_format", "prompt_name", "truncate", "truncation_direction")


async def _compare(exchange: Exchange, served: Served, parameters: Fields) -> Response:
    fields = exchange.fields
    objects, many = _read_objects(fields, ("source_sentence", "sentences"))
    wanted = []
    for one in objects:
        wanted.append((one.text("source_sentence"), one.texts("sentences")))
        one.done()
    truncate = _read_truncate(parameters)
    fields.done()
    found = [await cosines(exchange, served, source, texts, truncate=truncate) for source, texts in wanted]
    return _reply_each(found, lambda row: row.tolist(), many, max(map(len, found)))


# Translation

_OF_DECODING = frozenset(field.name for field in dataclasses.fields(GenerateConfig))


async def _translate(exchange: Exchange, served: Served, parameters: Fields) -> Response:
    fields = exchange.fields
    texts = fields.texts("inputs")
    for name, which in (("src_lang", "source"), ("tgt_lang", "target")):
        check_translated(served, parameters, name, which)
    parameters.refuse("clean_up_tokenization_spaces", "spaces are as the model writes them. Leave it out.", False)
    parameters.refuse("truncation", "long texts are translated sentence by sentence, never cut.", "do_not_truncate")
    options = {}
    inner = parameters.inside("generate_parameters")
    for name, value in (parameters.raw("generate_parameters") or {}).items():
        if (own := NAMES_ELSEWHERE.get(name, name)) in _OF_DECODING:
            inner.ignore(name)  # checked by the model
            options[own] = value
    fields.done()
    n_best, exchange.names = options.pop("n_best", 1), _NAMES
    found = await served.translate(texts, exchange.call, n_best=n_best, split=n_best == 1, **options)

    def write_one(one: Any) -> Any:
        listed = [
            {
                "translation_text": candidate.text,
                "score": candidate.score,
                "finished": candidate.finished,
                "n_tokens": candidate.n_tokens,
                "n_parts": one.n_parts,
                "n_unknown": len(one.unknown),
            }
            for candidate in one.candidates
        ]
        return listed[0] if n_best == 1 else listed

    return reply_list(found, write_one)


def languages_of(served: Served) -> tuple[str, str]:
    """Codes of source and target without a country; "" where a folder does not say."""
    source, target = (base_of(str(one or "")) for one in served.info["languages"])
    return source, target


def check_translated(served: Served, fields: Fields, name: str, which: str) -> None:
    """Refuse a language that the model does not translate; codes may have a country (zh_CN)."""
    wanted = fields.maybe_text(name)
    own = languages_of(served)[which == "target"]
    if wanted is not None and own and base_of(wanted) != own:
        message = f"'{fields.name(name)}' is '{wanted:.20}', and the {which} language of {served.name} is '{own}'."
        raise FieldError("unknown", message, fields.name(name))


# Generation


def _read_writing(parameters: Fields) -> Writing:
    for name in ("adapter_id", "grammar", "watermark", "top_n_tokens", "decoder_input_details"):
        parameters.refuse(name, "leave it out.", False, 0)
    parameters.refuse("truncate", "a prompt that is too long is refused, never cut. Leave it out.")
    parameters.refuse("typical_p", "use top_p or top_k. Leave it out.", 1)
    parameters.refuse("frequency_penalty", "use repetition_penalty. Leave it out.", 0)
    n = parameters.whole("num_return_sequences", 1, MOST_SEQUENCES, 1)
    best_of = parameters.whole("best_of", 1, MOST_SEQUENCES, n)
    options: dict[str, Any] = {"n_best": max(n, best_of), "seed": read_seed(parameters)}
    if (longest := parameters.whole("max_new_tokens", 1, 1 << 20, None)) is not None:
        options |= {"max_length": longest, "fit": False}
    else:
        options["max_length"] = DEFAULT_NEW_TOKENS
    temperature = parameters.number("temperature", 0, 1e6, None)
    shaped: Mapping[str, Any] = {
        "temperature": temperature or None,
        "top_k": parameters.whole("top_k", 1, 1 << 20, None),
        "top_p": parameters.number("top_p", 0, 1, None),
    }
    given = {name: value for name, value in shaped.items() if value is not None}
    sample = parameters.flag("do_sample", None)
    options["sample"] = bool(given) if sample is None else sample
    options |= given
    if beams := parameters.whole("num_beams", 1, MOST_SEQUENCES, None):
        options["beams"] = beams
    if penalty := parameters.number("repetition_penalty", 0, 1e6, None):
        options["repetition_penalty"] = penalty
    stop = parameters.strings("stop") or parameters.strings("stop_sequences")
    return Writing(options, tuple(filter(None, stop)), n)


_REASONS = {"end": "eos_token", "stop": "stop_sequence", "length": "length"}


async def _generate(exchange: Exchange, served: Served, parameters: Fields) -> Response:
    fields = exchange.fields
    prompts, many = fields.texts("inputs", blank=True), isinstance(fields.raw("inputs"), list)
    whole = parameters.flag("return_full_text", False)
    details = parameters.flag("details", False)
    how, exchange.names = _read_writing(parameters), _NAMES
    streamed = fields.flag("stream", False)
    fields.done()
    if streamed:
        if len(prompts) > 1 or how.options["n_best"] > 1:
            raise FieldError("unsupported", "'stream' is for one prompt and one text.", "stream")
        return await reply_stream(exchange, _stream_tokens(exchange, served, prompts[0], how, whole))
    found = await write_texts(served, prompts, exchange.call, how)

    def write_one(prompt: str, one: Completion) -> dict[str, Any]:
        said: dict[str, Any] = {"generated_text": prompt + one.text if whole else one.text}
        if details:
            said["details"] = {
                "finish_reason": _REASONS[one.reason or "length"],
                "generated_tokens": one.n_tokens,
                "seed": how.seed,
                "prefill": [],
                "tokens": [],
            }
        return said

    written = [[write_one(prompt, one) for one in texts] for prompt, texts in zip(prompts, found, strict=True)]
    return _reply_each(written, lambda one: one, many, 16)


async def _stream_tokens(
    exchange: Exchange, served: Served, prompt: str, how: Writing, whole: bool
) -> AsyncIterator[Mapping[str, Any]]:
    """Parts of the text in the shape of tokens; the last has the whole text and why it ended."""
    written, index = "", 0
    async for part in stream_text(served, prompt, exchange.call, how):
        index += 1
        written += part.text
        token = {"id": None, "text": part.text, "logprob": None, "special": False}  # it may be several tokens
        event: dict[str, Any] = {"index": index, "token": token, "generated_text": None, "details": None}
        if part.reason is not None:
            event["generated_text"] = prompt + written if whole else written
            event["details"] = {
                "finish_reason": _REASONS[part.reason],
                "generated_tokens": part.n_tokens,
                "input_length": part.n_prompt_tokens,
                "seed": how.seed,
            }
        yield event


_TASKS: Mapping[str, Callable[[Exchange, Served, Fields], Awaitable[Response]]] = {
    "text-classification": _classify,
    "token-classification": _tag,
    "question-answering": _answer_questions,
    "multiple-choice": _choose,
    "fill-mask": _fill,
    "feature-extraction": _extract,
    "sentence-similarity": _compare,
    "translation": _translate,
    "text-generation": _generate,
}
