"""LibreTranslate's shape: /translate, /languages, /detect, with bodies in JSON or as a form.

    {"q": "你好", "source": "auto", "target": "en"}  →  {"translatedText": "…", "detectedLanguage": {…}}

The languages choose the model. A text that is in the target language already is returned as it is. The confidence of a
detected language is the share of letters of its script in the text, in percent. HTML is refused: tags would be
translated as words.
"""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from qkv.serve.fields import FieldError, Fields, parse_form
from qkv.serve.routes.exchange import Exchange, endpoint, reply
from qkv.serve.routes.huggingface import languages_of
from qkv.serve.served import Models, Served, ServeSettings
from qkv.text.languages import Letters, base_of, detect_language, in_latin, language_name

KEY_PATHS = frozenset({"/translate", "/detect"})
"""Whose clients send the token as a field."""
KEY = "api_key"
TASK = "translation"
AUTO = "auto"
MOST_ALTERNATIVES = 10


def routes(models: Models, settings: ServeSettings) -> list[Route]:
    return [
        endpoint("/translate", _translate, models, settings, parse=parse_form, key=KEY),
        endpoint("/detect", _detect, models, settings, parse=parse_form, key=KEY),
        endpoint("/languages", _list_languages, models, settings, method="GET"),
    ]


def _translators(models: Models) -> dict[tuple[str, str], Served]:
    """By languages; of two models for the same the first."""
    return {languages_of(one): one for one in reversed(list(models)) if TASK in one.tasks}


async def _translate(exchange: Exchange) -> Response:
    fields = exchange.fields
    given = fields.raw("q", "a text or a list of texts")
    texts = fields.texts("q", blank=True)
    source, target = _read_code(fields, "source", AUTO), _read_code(fields, "target", "")
    if fields.choice("format", ("text", "html"), "text") == "html":
        message = "'format' html is not supported: tags would be translated as words. Send plain text."
        raise FieldError("unsupported", message, "format")
    alternatives = _read_number(fields, "alternatives")
    fields.ignore(KEY, "secret")
    fields.done()
    detected = [_detected(text, target, exchange.models) for text in texts] if source == AUTO else []
    sources = [one["language"] for one in detected] or [source] * len(texts)
    found: list[list[str]] = [[text] for text in texts]
    for code in sorted(set(sources) - {target}):
        served = _choose(exchange, code, target)
        places = [at for at, one in enumerate(sources) if one == code and texts[at].strip()]
        wanted = [texts[at] for at in places]
        options: dict[str, Any] = {"beams": alternatives + 1} if alternatives else {}
        n_best = alternatives + 1
        translated = await served.translate(wanted, exchange.call, n_best=n_best, split=n_best == 1, **options)
        for at, one in zip(places, translated, strict=True):
            found[at] = [candidate.text for candidate in one.candidates]
    one_text = isinstance(given, str)

    def shaped(values: Sequence[Any]) -> Any:
        return values[0] if one_text else list(values)

    said: dict[str, Any] = {"translatedText": shaped([texts[0] for texts in found])}
    if alternatives:
        said["alternatives"] = shaped([texts[1:] for texts in found])
    if detected:
        said["detectedLanguage"] = shaped(detected)
    return reply(said)


def _read_code(fields: Fields, name: str, default: str) -> str:
    found = fields.text(name) if name in fields or not default else default
    return found if found == AUTO and default == AUTO else base_of(found)


def _read_number(fields: Fields, name: str) -> int:
    """Forms have numbers as text."""
    given = fields.raw(name)
    if isinstance(given, str) and given.isdecimal() and len(given) <= len(str(MOST_ALTERNATIVES)):
        return Fields({name: int(given)}).whole(name, 0, MOST_ALTERNATIVES, 0)
    return fields.whole(name, 0, MOST_ALTERNATIVES, 0)


def _choose(exchange: Exchange, source: str, target: str) -> Served:
    translators = _translators(exchange.models)
    if not translators:
        exchange.models.default(TASK)  # says what is served
    name = translators.get((source, target))
    if name is None and ("", "") in translators:  # a folder that does not say is asked last
        name = translators["", ""]
    if name is None:
        known = ", ".join(f"{one} → {other}" for one, other in translators)
        message = f"{language_name(source)} → {language_name(target)} is not served here. Served: {known}."
        raise FieldError("language", message, "target")
    return exchange.use(TASK, name.name)


def _detected(text: str, target: str, models: Models) -> dict[str, Any]:
    """The language of a text. One without letters counts as what is translated into the target."""
    code = detect_language(text)
    if not code:
        code = next((one for one, other in _translators(models) if other == target and one), target)
        return {"confidence": 0.0, "language": code}
    return {"confidence": _confidence(text, code), "language": code}


def _confidence(text: str, code: str) -> float:
    chinese, latin, other = Letters().count(text).tolist()
    own = chinese if code == "zh" else latin if in_latin(code) else other + (chinese if code == "ja" else 0)
    return round(100 * own / max(1, chinese + latin + other), 1)


async def _detect(exchange: Exchange) -> Response:
    text = exchange.fields.text("q")
    exchange.fields.ignore(KEY)
    exchange.fields.done()
    code = detect_language(text)
    return reply([{"confidence": _confidence(text, code), "language": code}] if code else [])


async def _list_languages(exchange: Exchange) -> Response:
    pairs = list(_translators(exchange.models))
    codes = dict.fromkeys(code for pair in pairs for code in pair if code)
    return reply(
        [
            {
                "code": code,
                "name": language_name(code),
                "targets": [code, *(other for one, other in pairs if one == code)],
            }
            for code in codes
        ]
    )
