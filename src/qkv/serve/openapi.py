"""The description of the routes, OpenAPI 3.1, for /openapi.json and the page /docs: one table, in English and Chinese.

Each operation has examples of requests, named by their language; a test posts them all, and compares the table with the
routes of the app. What is Chinese is in fields x-…-zh.

Not here: the pages / and /docs, and what is below /look.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from qkv.report.bilingual import Phrase

Schema = dict[str, Any]


class ApiExample(NamedTuple):
    lang: str  # "en" or "zh"
    body: Mapping[str, Any]
    task: str = ""  # what the model must do, where the path names a model


class ApiOperation(NamedTuple):
    method: str
    path: str
    family: str
    summary: Phrase
    fields: Mapping[str, Schema] = {}  # of the body
    required: tuple[str, ...] = ()
    examples: tuple[ApiExample, ...] = ()
    response: Mapping[str, Any] = {}
    query: Mapping[str, Schema] = {}


class ApiFamily(NamedTuple):
    name: Phrase
    about: Phrase
    error: Schema


def _field(kind: str | Sequence[str] | Schema, en: str, zh: str, **more: Any) -> Schema:
    start: Schema = dict(kind) if isinstance(kind, Mapping) else {"type": kind if isinstance(kind, str) else list(kind)}
    return start | {"description": en, "x-description-zh": zh} | more


def _list(items: Schema | str) -> Schema:
    return {"type": "array", "items": {"type": items} if isinstance(items, str) else items}


def _object(**properties: Schema | str) -> Schema:
    shaped = {name: {"type": one} if isinstance(one, str) else one for name, one in properties.items()}
    return {"type": "object", "properties": shaped}


def _any(*kinds: Schema | str) -> Schema:
    return {"oneOf": [{"type": one} if isinstance(one, str) else one for one in kinds]}


TEXT_OR_TEXTS = _any("string", _list("string"))
TEXTS_OR_IDS = _any("string", _list("string"), _list("integer"), _list(_list("integer")))
VECTORS = _list(_list("number"))
MODEL = _field(
    "string", "Name of the model; without it the first that has the task.", "模型名；不写则用第一个能做该任务的模型。"
)
TRUNCATE = _field(
    "boolean",
    "Cut long texts instead of reading them in windows.",
    "截断长文本，而不是分窗口读完。",
    default=False,
)
NORMALIZE = _field("boolean", "Scale vectors to length 1.", "把向量缩放到长度 1。")
DIMENSIONS = _field(
    "integer",
    "Fewer numbers a vector; only widths that the model was trained for.",
    "缩短向量；只接受模型训练过的宽度。",
)
ENCODING = _field(
    {"type": "string", "enum": ["float", "base64"]},
    "Numbers, or little-endian float32 in base64.",
    "数字，或小端 float32 的 base64。",
    default="float",
)
_SEED = _field("integer", "Of sampling; without it another one each time.", "采样的随机种子；不写则每次不同。")
SCORED_LABEL = _object(label="string", score="number", abstained="boolean")

API_FAMILIES = {
    "hf": ApiFamily(
        Phrase("Hugging Face", "Hugging Face"),
        Phrase(
            "Every task of every model, as InferenceClient sends it. The answer's shape is that of the task.",
            "所有模型的所有任务，格式同 InferenceClient；答案的形状由任务决定。",
        ),
        _object(error="string"),
    ),
    "openai": ApiFamily(
        Phrase("OpenAI", "OpenAI"),
        Phrase(
            "Embeddings, completions and models, as the openai client sends them.",
            "向量、续写与模型列表，格式同 openai 客户端。",
        ),
        _object(error=_object(message="string", type="string", param=_any("string", "null"), code="string")),
    ),
    "tei": ApiFamily(
        Phrase("text-embeddings-inference", "text-embeddings-inference"),
        Phrase(
            "As clients of TEI send them: LangChain, LlamaIndex, Haystack.",
            "格式同 TEI 的客户端：LangChain、LlamaIndex、Haystack。",
        ),
        _object(error="string", error_type="string"),
    ),
    "rerank": ApiFamily(
        Phrase("Jina and Cohere", "Jina 与 Cohere"),
        Phrase("Documents in the order in which they fit a query.", "按与查询的相关程度给文档排序。"),
        _object(detail="string", message="string"),
    ),
    "libre": ApiFamily(
        Phrase("LibreTranslate", "LibreTranslate"),
        Phrase("Translation; bodies are JSON or forms.", "翻译；请求体为 JSON 或表单。"),
        _object(error="string"),
    ),
    "ops": ApiFamily(
        Phrase("Operation", "运行"),
        Phrase("Health, metrics and this description.", "健康检查、指标和本描述。"),
        _object(error="string", error_type="string"),
    ),
}

_PARAMETERS = _field(
    _object(
        top_k=_field("integer", "How many answers, labels or candidates.", "返回几个答案、标签或候选。"),
        aggregation_strategy=_field(
            {"type": "string", "enum": ["none", "simple", "first", "average", "max"]},
            "token-classification: spans; none: the tokens of each span.",
            "token-classification：返回片段；none 返回片段里的每个词元。",
            default="simple",
        ),
        ignore_labels=_field(
            _list("string"), "token-classification: labels to leave out.", "token-classification：不返回的标签。"
        ),
        function_to_apply=_field(
            {"type": "string", "enum": ["sigmoid", "softmax", "none"]},
            "text-classification: of the raw scores; without it calibrated probabilities.",
            "text-classification：作用于原始分数；不写则返回校准后的概率。",
        ),
        handle_impossible_answer=_field(
            "boolean", "question-answering: whether no answer is one.", "question-answering：是否允许“没有答案”。"
        ),
        targets=_field(_list("string"), "fill-mask: the only candidates.", "fill-mask：只在这些候选中选。"),
        src_lang=_field("string", "translation: checked against the model.", "translation：与模型核对。"),
        tgt_lang=_field("string", "translation: checked against the model.", "translation：与模型核对。"),
        generate_parameters=_field(
            "object", "translation: num_beams, max_new_tokens, …", "translation：num_beams、max_new_tokens 等。"
        ),
        max_new_tokens=_field(
            "integer", "text-generation: tokens to write.", "text-generation：最多写几个词元。", default=100
        ),
        do_sample=_field("boolean", "text-generation: draw tokens by chance.", "text-generation：随机采样。"),
        temperature=_field("number", "text-generation: below 1 sharper.", "text-generation：低于 1 更集中。"),
        top_p=_field("number", "text-generation: nucleus sampling.", "text-generation：核采样。"),
        repetition_penalty=_field(
            "number", "text-generation: above 1 less repetition.", "text-generation：大于 1 减少重复。"
        ),
        num_return_sequences=_field(
            "integer", "text-generation: texts a prompt.", "text-generation：每个提示写几段。", default=1
        ),
        stop=_field(
            _list("string"), "text-generation: strings that end the text.", "text-generation：遇到这些字符串就停。"
        ),
        seed=_SEED,
        return_full_text=_field(
            "boolean", "text-generation: with the prompt.", "text-generation：连同提示返回。", default=False
        ),
        details=_field("boolean", "text-generation: why it ended.", "text-generation：说明为何结束。", default=False),
        truncate=TRUNCATE,
        task=_field("string", "Another task of the model than its first.", "用模型的另一个任务，而非第一个。"),
    ),
    "Of the task; one that is not supported is refused.",
    "任务的参数；不支持的会被拒绝。",
)
_HF_FIELDS = {
    "inputs": _field(
        {},
        "A text, the object of the task, or a list of them for a batch.",
        "一段文本、任务所需的对象，或它们的列表（批量）。",
    ),
    "parameters": _PARAMETERS,
    "stream": _field(
        "boolean", "text-generation: server-sent events.", "text-generation：以事件流返回。", default=False
    ),
}
_HF_EXAMPLES = (
    ApiExample("en", {"inputs": "The cat sat on the mat."}, "text-classification"),
    ApiExample("zh", {"inputs": ["今天天气很好。", "他在上海。"], "parameters": {"top_k": 1}}, "text-classification"),
    ApiExample(
        "en", {"inputs": "He was in Paris.", "parameters": {"aggregation_strategy": "none"}}, "token-classification"
    ),
    ApiExample("zh", {"inputs": "他在北京爱上了一只猫。"}, "token-classification"),
    ApiExample(
        "en", {"inputs": {"question": "Where is the cat?", "context": "The cat is on the mat."}}, "question-answering"
    ),
    ApiExample(
        "zh",
        {"inputs": {"question": "中国的首都是哪里？", "context": "中国的首都是北京。"}, "parameters": {"top_k": 3}},
        "question-answering",
    ),
    ApiExample(
        "en",
        {"inputs": {"text": "The cat is tired.", "question": "It is", "choices": ["wide", "tired"]}},
        "multiple-choice",
    ),
    ApiExample("zh", {"inputs": {"question": "中国的首都是", "choices": ["北京", "上海"]}}, "multiple-choice"),
    ApiExample("en", {"inputs": "Paris is the [MASK] of France."}, "fill-mask"),
    ApiExample("zh", {"inputs": "中国的首都是[MASK]京。", "parameters": {"targets": ["北", "上"]}}, "fill-mask"),
    ApiExample("en", {"inputs": ["a cat", "a dog"], "normalize": True}, "feature-extraction"),
    ApiExample("zh", {"inputs": "一只猫"}, "feature-extraction"),
    ApiExample(
        "zh", {"inputs": {"source_sentence": "猫吃鱼", "sentences": ["狗吃鱼", "天气很好"]}}, "sentence-similarity"
    ),
    ApiExample("en", {"inputs": "a cat sat"}, "translation"),
    ApiExample(
        "zh", {"inputs": ["猫", "天气"], "parameters": {"generate_parameters": {"num_beams": 2}}}, "translation"
    ),
    ApiExample(
        "en",
        {"inputs": "the cat", "parameters": {"max_new_tokens": 8, "do_sample": True, "seed": 1}},
        "text-generation",
    ),
    ApiExample("zh", {"inputs": "今天天气", "parameters": {"max_new_tokens": 8}, "stream": True}, "text-generation"),
)
_EMBED_FIELDS = {
    "input": _field(TEXTS_OR_IDS, "Texts, or token ids.", "文本，或词元编号。"),
    "model": MODEL,
    "encoding_format": ENCODING,
    "dimensions": DIMENSIONS,
    "truncate": TRUNCATE,
    "user": _field("string", "Not used.", "不使用。"),
}
_EMBEDDINGS = _object(
    object="string",
    data=_list(_object(object="string", index="integer", embedding=_any(_list("number"), "string"))),
    model="string",
    usage=_object(prompt_tokens="integer", total_tokens="integer"),
    n_windows="integer",
    truncated="boolean",
)
_COMPLETE_FIELDS = {
    "prompt": _field(
        TEXTS_OR_IDS, "Texts to write on from; without one a new text is begun.", "要续写的文本；不写则从头写起。"
    ),
    "model": MODEL,
    "max_tokens": _field("integer", "Tokens to write.", "最多写几个词元。", default=16),
    "temperature": _field("number", "0: the most likely token each time.", "0：每次取最可能的词元。", default=1),
    "top_p": _field("number", "Nucleus sampling.", "核采样。", default=1),
    "top_k": _field("integer", "Sample from so many tokens.", "只从前几个词元中采样。"),
    "n": _field("integer", "Texts a prompt.", "每个提示写几段。", default=1),
    "best_of": _field("integer", "Texts to choose the best n from.", "从几段里选出最好的 n 段。"),
    "stop": _field(TEXT_OR_TEXTS, "Up to 4 strings that end the text.", "最多 4 个停止字符串。"),
    "seed": _SEED,
    "echo": _field("boolean", "With the prompt.", "连同提示返回。", default=False),
    "repetition_penalty": _field("number", "Above 1 less repetition.", "大于 1 减少重复。"),
    "stream": _field("boolean", "Server-sent events.", "以事件流返回。", default=False),
    "stream_options": _field(
        _object(include_usage="boolean"), "A last event with the usage.", "最后一个事件给出用量。"
    ),
    "user": _field("string", "Not used.", "不使用。"),
}
_COMPLETION = _object(
    id="string",
    object="string",
    created="integer",
    model="string",
    choices=_list(_object(index="integer", text="string", finish_reason="string")),
    usage=_object(prompt_tokens="integer", completion_tokens="integer", total_tokens="integer"),
)
_MODEL = _object(id="string", object="string", created="integer", owned_by="string", tasks=_list("string"))
_RERANK_FIELDS = {
    "query": _field("string", "What is looked for.", "要找的内容。"),
    "documents": _field(_list(_any("string", _object(text="string"))), "Texts.", "文档。"),
    "model": MODEL,
    "top_n": _field("integer", "How many results.", "返回几个结果。"),
    "return_documents": _field(
        "boolean", "With the texts; default true, of /v2 false.", "连同文本返回；默认 true，/v2 为 false。"
    ),
    "max_tokens_per_doc": _field("integer", "Cut documents after so many tokens.", "每篇文档只读前几个词元。"),
    "truncate": TRUNCATE,
}
_RERANK_EXAMPLES = (
    ApiExample(
        "en", {"query": "where is the cat?", "documents": ["The cat sat on the mat.", "Paris is wide."], "top_n": 1}
    ),
    ApiExample("zh", {"query": "首都", "documents": ["中国的首都是北京。", {"text": "猫爱吃鱼。"}]}),
)
_RANKED = _object(
    id="string",
    model="string",
    results=_list(_object(index="integer", relevance_score="number", document=_object(text="string"))),
    usage=_object(prompt_tokens="integer", total_tokens="integer"),
)
_TEI_FIELDS = {"model": MODEL, "truncate": TRUNCATE}
_STATUS = _object(status="string")
_API_KEY = _field("string", "The token, unless a header has it.", "令牌；也可放在请求头里。")
_ONE_OF_LABELS = _any(_list(SCORED_LABEL), _list(_list(SCORED_LABEL)))

OPERATIONS: tuple[ApiOperation, ...] = (
    ApiOperation(
        "post",
        "/models/{name}",
        "hf",
        Phrase(
            "Ask a model; the task is its first, or what the inputs say.", "向模型提问；任务为其第一个，或由输入判断。"
        ),
        _HF_FIELDS,
        ("inputs",),
        _HF_EXAMPLES,
        {},
        {"task": _field("string", "Another task of the model.", "模型的另一个任务。")},
    ),
    ApiOperation(
        "post",
        "/models/{name}/pipeline/{task}",
        "hf",
        Phrase("Ask a model for one of its tasks.", "指定任务向模型提问。"),
        _HF_FIELDS,
        ("inputs",),
        _HF_EXAMPLES,
        {},
    ),
    ApiOperation(
        "post",
        "/",
        "hf",
        Phrase("Ask the first model.", "向第一个模型提问。"),
        _HF_FIELDS,
        ("inputs",),
        (ApiExample("en", {"inputs": "The cat sat."}), ApiExample("zh", {"inputs": "猫吃鱼。"})),
        {},
    ),
    ApiOperation("get", "/models/{name}", "hf", Phrase("What a model is.", "模型说明。")),
    ApiOperation("get", "/models/{name}/info", "hf", Phrase("The same.", "同上。")),
    ApiOperation("get", "/models/{name}/health", "hf", Phrase("Whether it answers.", "是否就绪。"), response=_STATUS),
    *(
        operation
        for start in ("/v1", "")
        for operation in (
            ApiOperation(
                "post",
                f"{start}/embeddings",
                "openai",
                Phrase("Vectors of texts, of length 1.", "文本向量，长度为 1。"),
                _EMBED_FIELDS,
                ("input",),
                (
                    ApiExample("en", {"input": ["a cat", "a dog"], "encoding_format": "base64"}),
                    ApiExample("zh", {"input": "一只猫"}),
                ),
                _EMBEDDINGS,
            ),
            ApiOperation(
                "post",
                f"{start}/completions",
                "openai",
                Phrase("Write on from a text.", "续写文本。"),
                _COMPLETE_FIELDS,
                (),
                (
                    ApiExample("en", {"prompt": "the cat", "max_tokens": 8, "temperature": 0}),
                    ApiExample("zh", {"prompt": "今天天气", "max_tokens": 8, "seed": 1, "stream": True}),
                ),
                _COMPLETION,
            ),
            ApiOperation(
                "get",
                f"{start}/models",
                "openai",
                Phrase("The served models.", "所有模型。"),
                response=_object(object="string", data=_list(_MODEL)),
            ),
        )
    ),
    ApiOperation("get", "/v1/models/{name}", "openai", Phrase("One of them.", "其中一个。"), response=_MODEL),
    ApiOperation(
        "post",
        "/embed",
        "tei",
        Phrase("Vectors of texts.", "文本向量。"),
        {
            "inputs": _field(TEXTS_OR_IDS, "Texts, or token ids.", "文本，或词元编号。"),
            "normalize": NORMALIZE | {"default": True},
            **_TEI_FIELDS,
            "truncation_direction": _field(
                {"type": "string", "enum": ["left", "right"]}, "What is cut.", "从哪一端截断。"
            ),
            "dimensions": DIMENSIONS,
        },
        ("inputs",),
        (ApiExample("en", {"inputs": ["a cat", "a dog"]}), ApiExample("zh", {"inputs": "一只猫", "normalize": False})),
        VECTORS,
    ),
    ApiOperation(
        "post",
        "/embed_all",
        "tei",
        Phrase("A vector of each token.", "每个词元的向量。"),
        {"inputs": _field(TEXT_OR_TEXTS, "Texts.", "文本。"), **_TEI_FIELDS},
        ("inputs",),
        (ApiExample("en", {"inputs": "a cat"}), ApiExample("zh", {"inputs": ["猫", "狗吃鱼"]})),
        _list(VECTORS),
    ),
    ApiOperation(
        "post",
        "/predict",
        "tei",
        Phrase("Labels of a text, or of a pair.", "文本或文本对的标签。"),
        {
            "inputs": _field(
                _any("string", _list("string"), _list(_list("string"))),
                "A text, a pair [text, text], or a batch [[text], [text, text], …].",
                "一段文本、一对文本，或批量 [[文本], [文本, 文本], …]。",
            ),
            "raw_scores": _field(
                "boolean", "Before softmax and calibration.", "softmax 和校准之前的分数。", default=False
            ),
            **_TEI_FIELDS,
        },
        ("inputs",),
        (ApiExample("en", {"inputs": "The cat sat."}), ApiExample("zh", {"inputs": [["猫吃鱼。"], ["天气很好。"]]})),
        _ONE_OF_LABELS,
    ),
    ApiOperation(
        "post",
        "/rerank",
        "tei",
        Phrase(
            "Texts by how well they fit a query; with documents, as Jina has it.",
            "按相关程度排序；用 documents 时格式同 Jina。",
        ),
        {
            "query": _RERANK_FIELDS["query"],
            "texts": _field(_list("string"), "Texts.", "文本。"),
            "raw_scores": _field("boolean", "Scores before any function.", "原始分数。", default=False),
            "return_text": _field("boolean", "With the texts.", "连同文本返回。", default=False),
            **_TEI_FIELDS,
        },
        ("query",),
        (
            ApiExample("en", {"query": "cat", "texts": ["a dog", "a cat"], "return_text": True}),
            ApiExample("zh", {"query": "首都", "documents": ["北京", "猫"]}),
        ),
        _any(_list(_object(index="integer", score="number", text="string")), _RANKED),
    ),
    ApiOperation(
        "post",
        "/similarity",
        "tei",
        Phrase("Cosines of one text with others.", "一段文本与其他文本的余弦相似度。"),
        {
            "inputs": _field(_object(source_sentence="string", sentences=_list("string")), "Texts.", "文本。"),
            "parameters": _field(_object(truncate=TRUNCATE), "Options.", "选项。"),
            "model": MODEL,
        },
        ("inputs",),
        (
            ApiExample("en", {"inputs": {"source_sentence": "a cat", "sentences": ["a dog", "the cat"]}}),
            ApiExample("zh", {"inputs": {"source_sentence": "猫", "sentences": ["狗", "鱼"]}}),
        ),
        _list("number"),
    ),
    ApiOperation(
        "post",
        "/tokenize",
        "tei",
        Phrase("Tokens of texts.", "文本的词元。"),
        {
            "inputs": _field(TEXT_OR_TEXTS, "Texts.", "文本。"),
            "add_special_tokens": _field("boolean", "With [CLS] and [SEP].", "加上 [CLS] 和 [SEP]。", default=True),
            "model": MODEL,
        },
        ("inputs",),
        (ApiExample("en", {"inputs": "a cat"}), ApiExample("zh", {"inputs": ["猫吃鱼"], "add_special_tokens": False})),
        _list(
            _list(
                _object(
                    id="integer",
                    text="string",
                    special="boolean",
                    start=_any("integer", "null"),
                    stop=_any("integer", "null"),
                )
            )
        ),
    ),
    ApiOperation(
        "post",
        "/decode",
        "tei",
        Phrase("Texts of token ids.", "由词元编号还原文本。"),
        {
            "ids": _field(_any(_list("integer"), _list(_list("integer"))), "Token ids.", "词元编号。"),
            "skip_special_tokens": _field("boolean", "Without [CLS] and [SEP].", "去掉 [CLS] 和 [SEP]。", default=True),
            "model": MODEL,
        },
        ("ids",),
        (ApiExample("en", {"ids": [5, 6]}), ApiExample("zh", {"ids": [[7], [8, 9]]})),
        _list("string"),
    ),
    ApiOperation(
        "get",
        "/info",
        "tei",
        Phrase("What a model is: the first, or the named one.", "模型说明：第一个，或指定的模型。"),
        query={"model": MODEL},
    ),
    *(
        ApiOperation(
            "post",
            f"/{version}/rerank",
            "rerank",
            Phrase("Documents by how well they fit a query.", "按与查询的相关程度给文档排序。"),
            _RERANK_FIELDS,
            ("query", "documents"),
            _RERANK_EXAMPLES,
            _RANKED,
        )
        for version in ("v1", "v2")
    ),
    ApiOperation(
        "post",
        "/translate",
        "libre",
        Phrase("Translate texts.", "翻译文本。"),
        {
            "q": _field(TEXT_OR_TEXTS, "Texts.", "文本。"),
            "source": _field("string", "Its language, or auto.", "源语言，或 auto。", default="auto"),
            "target": _field("string", "Language of the translation.", "目标语言。"),
            "format": _field({"type": "string", "enum": ["text"]}, "Plain text.", "纯文本。", default="text"),
            "alternatives": _field("integer", "More translations of each text.", "每段文本再给几个译文。", default=0),
            "api_key": _API_KEY,
        },
        ("q", "target"),
        (
            ApiExample("en", {"q": "a cat sat", "source": "en", "target": "zh"}),
            ApiExample("zh", {"q": ["猫", "一只猫"], "source": "auto", "target": "en", "alternatives": 1}),
        ),
        _object(
            translatedText=TEXT_OR_TEXTS,
            alternatives=_list(_any("string", _list("string"))),
            detectedLanguage=_any(_object(language="string", confidence="number"), _list("object")),
        ),
    ),
    ApiOperation(
        "post",
        "/detect",
        "libre",
        Phrase("The language of a text.", "判断文本的语言。"),
        {"q": _field("string", "A text.", "文本。"), "api_key": _API_KEY},
        ("q",),
        (ApiExample("en", {"q": "The cat is here."}), ApiExample("zh", {"q": "猫在这里。"})),
        _list(_object(language="string", confidence="number")),
    ),
    ApiOperation(
        "get",
        "/languages",
        "libre",
        Phrase("What can be translated into what.", "可翻译的语言。"),
        response=_list(_object(code="string", name="string", targets=_list("string"))),
    ),
    ApiOperation("get", "/livez", "ops", Phrase("The process answers.", "进程存活。"), response=_STATUS),
    ApiOperation(
        "get",
        "/readyz",
        "ops",
        Phrase("All models have answered once; else 503.", "所有模型就绪，否则 503。"),
        response=_STATUS,
    ),
    ApiOperation("get", "/health", "ops", Phrase("As /readyz.", "同 /readyz。"), response=_STATUS),
    ApiOperation("get", "/ping", "ops", Phrase("As /readyz.", "同 /readyz。"), response=_STATUS),
    ApiOperation(
        "get", "/metrics", "ops", Phrase("For Prometheus.", "供 Prometheus 读取。"), response={"type": "string"}
    ),
    ApiOperation("get", "/openapi.json", "ops", Phrase("This description.", "本描述。")),
)
REFUSALS = {
    "400": Phrase("Wrong JSON or input.", "JSON 或输入有误。"),
    "401": Phrase("The token is missing or wrong.", "令牌缺失或错误。"),
    "404": Phrase("No such model; the message names those that are served.", "没有这个模型；消息里列出现有的模型。"),
    "413": Phrase("The body is too large.", "请求体过大。"),
    "422": Phrase("A field or a text that cannot be used.", "字段或文本无法使用。"),
    "429": Phrase("Overloaded; try again after Retry-After seconds.", "过载；请在 Retry-After 秒后重试。"),
    "503": Phrase("Starting or stopping.", "正在启动或停止。"),
}


def describe_api(models: Sequence[tuple[str, Sequence[str]]], version: str) -> dict[str, Any]:
    """The document for models, each with its name and tasks; examples are those that a model can answer."""
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method] = _describe_operation(one, models)
    return {
        "openapi": "3.1.0",
        "info": {"title": "qkv serve", "version": version},
        "tags": [
            {
                "name": family.name.en,
                "x-name-zh": family.name.zh,
                "description": family.about.en,
                "x-description-zh": family.about.zh,
            }
            for family in API_FAMILIES.values()
        ],
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _describe_operation(one: ApiOperation, models: Sequence[tuple[str, Sequence[str]]]) -> dict[str, Any]:
    family = API_FAMILIES[one.family]
    known = {task for _, tasks in models for task in tasks}
    refused = {
        status: {"description": said.en, "x-description-zh": said.zh, "content": _json(family.error)}
        for status, said in REFUSALS.items()
        if one.method == "post" or status in ("401", "404")
    }
    found: dict[str, Any] = {
        "tags": [family.name.en],
        "summary": one.summary.en,
        "x-summary-zh": one.summary.zh,
        "operationId": f"{one.method}{one.path}".replace("/", "_").replace("{", "").replace("}", "").replace(".", "_"),
        "parameters": [*_path_parameters(one.path, [name for name, _ in models], sorted(known)), *_query(one.query)],
        "responses": {
            "200": {"description": "The answer.", "x-description-zh": "答案。", "content": _json(one.response)}
        }
        | refused,
    }
    if one.method == "post":
        able = [example for example in one.examples if not example.task or example.task in known]
        content = {
            "schema": {"type": "object", "required": list(one.required), "properties": dict(one.fields)},
            "examples": {
                f"{number}-{example.task or 'any'}-{example.lang}": {"value": example.body}
                for number, example in enumerate(able, 1)
            },
        }
        found["requestBody"] = {"required": True, "content": {"application/json": content}}
    return found


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _path_parameters(path: str, names: Sequence[str], tasks: Sequence[str]) -> list[dict[str, Any]]:
    choices = {"name": list(names), "task": list(tasks)}
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "enum": options}}
        for name, options in choices.items()
        if f"{{{name}}}" in path
    ]


def _query(fields: Mapping[str, Schema]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "schema": schema, "description": schema["description"]}
        | {"x-description-zh": schema["x-description-zh"]}
        for name, schema in fields.items()
    ]
