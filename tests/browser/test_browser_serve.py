"""The pages of `qkv serve` in Chromium before the real routes with tiny models: every task is tried, in both languages;
what is drawn is what the server answered, and what is copied is what was sent."""

import contextlib
import io
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from tests.support.look_server import running, sent
from tests.support.served_models import make_served_folders, open_served

if TYPE_CHECKING:  # it need not be installed: then each test says so
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, Page

    from qkv.serve.listen import Server
    from qkv.serve.served import Models

TOKEN = "a-token-of-this-test"
TRIED = {
    "topics": "text-classification",
    "pairs": "text-classification",
    "stars": "text-classification",
    "tags": "text-classification",
    "ner": "token-classification",
    "squad": "question-answering",
    "quiz": "multiple-choice",
    "mini": "fill-mask",
    "sentences": "similarity",
    "en-zh": "translation",
    "zh-en": "translation",
    "gpt": "text-generation",
}
"""By model, the task that it is shown with first."""


def build_server(models: "Models", token: str | None = None) -> "Server":
    """As `qkv serve` builds it."""
    from qkv.cli.serve import build_server_app
    from qkv.serve.app import Worker
    from qkv.serve.listen import Server

    worker, settings = Worker(), models.settings
    return Server(
        (), worker, token=token, make_app=lambda word, cookie: build_server_app(models, settings, word, cookie, worker)
    )


@pytest.fixture(scope="module")
def models(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Models]":
    folders = make_served_folders(tmp_path_factory.mktemp("served"))
    with open_served(folders, access_log=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def server(models: "Models") -> "Iterator[Server]":
    with running(build_server(models)) as started:
        yield started


@dataclass
class Front:
    """A page of the server, and what it complained of."""

    page: "Page"
    server: "Server"
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, place: str = "") -> "Front":
        if self.page.url != "about:blank":  # a change of what stands after # alone would not load the page
            self.page.goto("about:blank")
        self.page.goto(f"http://127.0.0.1:{self.server.port}/{place}")
        self.page.wait_for_selector("html[data-started='1']", state="attached")
        return self

    def send(self) -> "Locator":
        """Press the button; the answer when it is there."""
        self.page.locator(".primary").click()
        return self.answer()

    def answer(self) -> "Locator":
        found = self.page.locator(".answered[aria-busy=false]")
        found.locator(".stats, .refusal").first.wait_for()
        return found

    def code(self, tab: str) -> str:
        self.page.locator(f".codebox [data-tab='{tab}']").click()
        return self.page.locator(".codebox code").inner_text()

    def switch(self, tool: str) -> None:
        self.page.locator(f"[data-tool='{tool}']").click()


@contextlib.contextmanager
def opening(browser: "Browser", server: "Server", **options: Any) -> Iterator[Front]:
    context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, "locale": "en-US"} | options)
    context.set_default_timeout(20_000)
    front = Front(context.new_page(), server)

    def heard(message: "ConsoleMessage") -> None:
        refused = "Failed to load resource" in message.text  # Chromium's note on a refusal, which the page shows
        if message.type in ("error", "warning") and not refused:
            front.complaints.append(message.text)

    def dismissed(dialog: "Dialog") -> None:
        front.complaints.append(dialog.message)
        dialog.dismiss()

    front.page.on("console", heard)
    front.page.on("dialog", dismissed)
    front.page.on("pageerror", lambda error: front.complaints.append(f"thrown: {error}"))
    context.on("request", lambda request: front.asked.append(request.url))
    try:
        yield front
    finally:
        context.close()
    assert front.complaints == []
    hosts = {urlsplit(one).hostname for one in front.asked if one.startswith("http")}
    assert hosts <= {"127.0.0.1"}, "the page asks nobody but its server"


@pytest.fixture(scope="module")
def shared_front(browser: "Browser", server: "Server") -> Iterator[Front]:
    with opening(browser, server) as front:
        yield front


@pytest.fixture
def front(shared_front: Front) -> Front:
    if shared_front.page.url != "about:blank":
        shared_front.page.evaluate("() => localStorage.clear()")
    return shared_front


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_task_is_tried_and_drawn(front: Front, lang: str) -> None:
    front.open()
    if lang == "zh":
        front.switch("language")
    page = front.page
    for model, task in TRIED.items():
        page.locator(f"[data-model='{model}']").click()
        assert page.locator("h1").inner_text() == model
        pressed = page.locator(".head [aria-pressed=true]")
        assert pressed.count() == 0 or pressed.get_attribute("data-task") == task
        answer = front.send() if task == "text-generation" else front.answer()
        assert answer.locator(".refusal").count() == 0, f"{model}: {answer.inner_text()}"
        assert "ms" in answer.inner_text() or "毫秒" in answer.inner_text()
        reply = json.loads(front.code("reply")) if task != "similarity" else None
        check_drawn(answer, task, model, reply)
    assert front.page.locator("html").get_attribute("lang") == ("zh-CN" if lang == "zh" else "en")


def check_drawn(answer: "Locator", task: str, model: str, reply: Any) -> None:
    """What is on the page against the reply."""

    def texts(selector: str) -> list[str]:
        return answer.locator(selector).all_inner_texts()

    if model == "stars":
        assert texts(".said") == [f"{reply[0][0]['score']:.3f}"]
    elif task == "text-classification":
        assert texts(".weighed .what") == [one["label"] for one in reply[0]]
        assert texts(".weighed .num")[0].removesuffix(" %") == f"{100 * reply[0][0]['score']:.1f}"
    elif task == "token-classification":
        assert [text.split("\n")[0] for text in texts("mark")] == [one["word"] for one in reply]
    elif task == "question-answering":
        assert texts("mark.answer") == ([reply["answer"]] if reply["answer"] else [])
    elif task == "multiple-choice":
        assert texts(".first .what") == [reply["choice"]] and len(texts(".weighed")) == 3
    elif task == "fill-mask":
        assert texts(".weighed .what") == [one["token_str"] for one in reply]
    elif task == "similarity":
        cells = texts(".heat tbody td")
        assert len(cells) == 36 and cells[0] == cells[7] == "1.00" and cells[1] == cells[6]
    elif task == "translation":
        assert texts(".translation") == [reply[0]["translation_text"]]
    else:
        assert texts(".written .made") == [reply["choices"][0]["text"]]
        assert reply["usage"]["completion_tokens"] > 0


def test_documents_are_ranked(front: Front) -> None:
    front.open("#model=pairs&task=rerank")
    answer = front.answer()
    reply = json.loads(front.code("reply"))
    places = answer.locator(".ranked b").all_inner_texts()
    assert places == [str(one["index"] + 1) for one in reply["results"]] and sorted(places) == list("12345")


def test_an_example_is_one_click(front: Front) -> None:
    front.open("#model=topics")
    front.answer()
    chips = front.page.locator("[data-example]")
    chips.nth(1).click()
    text = front.page.locator("#field-text").input_value()
    assert text == chips.nth(1).get_attribute("title") and chips.nth(1).get_attribute("aria-pressed") == "true"
    front.answer()
    assert json.dumps(text) in front.code("curl")
    front.page.locator("#field-text").fill("something else")
    assert front.page.locator("[data-example][aria-pressed=true]").count() == 0


def test_the_python_shown_gets_the_reply_shown(front: Front) -> None:
    front.open("#model=topics")
    text = 'it\'s "quoted" \\ 他欠我100万 😀'
    front.page.locator("#field-text").fill(text)
    front.page.keyboard.press("Control+Enter")
    front.answer()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(front.code("Python"), {})
    assert eval(printed.getvalue()) == json.loads(front.code("reply"))
    command = shlex.split(front.code("curl").replace("\\\n", " "))
    body = json.loads(command[command.index("-d") + 1])
    assert command[:2] == ["curl", f"http://127.0.0.1:{front.server.port}/models/topics"] and body["inputs"] == text


def test_a_stream_can_be_read_by_the_python_shown(front: Front) -> None:
    front.open("#model=gpt&task=text-generation")
    front.page.locator("#field-temperature").fill("0")
    front.send()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(front.code("Python"), {})
    assert printed.getvalue() == json.loads(front.code("reply"))["choices"][0]["text"]


def test_a_refusal_is_shown_as_the_server_says_it(front: Front) -> None:
    front.open("#model=mini&task=fill-mask")
    front.page.locator("#field-text").fill("nothing is hidden")
    refusal = front.send().locator(".refusal")
    assert refusal.get_attribute("data-status") == "422"
    said = json.loads(front.code("reply"))["error"]
    assert said in refusal.inner_text()
    front.page.locator("#field-text").fill(" ")
    assert front.send().locator(".refusal").inner_text()


def test_what_a_busy_server_and_an_unsure_model_say(front: Front) -> None:
    """Which tiny models never do: the replies are made up here."""
    unsure = [[{"label": "place", "score": 0.51, "abstained": True}, {"label": "animal", "score": 0.49}]]
    busy = {"status": 429, "headers": {"Retry-After": "3"}, "body": json.dumps({"error": "The queue is full."})}
    front.open("#model=topics")
    front.page.route("**/models/topics", lambda route: route.fulfill(json=unsure))
    answer = front.send()
    assert answer.locator(".verdict.unsure .said").inner_text() == "place"
    assert "Not sure enough" in answer.locator(".unsure-note").inner_text()
    front.page.unroute_all()
    front.page.route("**/models/topics", lambda route: route.fulfill(**busy))
    refusal = front.send().locator(".refusal")
    assert refusal.get_attribute("data-status") == "429"
    assert refusal.inner_text().split("\n")[-1] == "The queue is full. Try again in 3 s."
    front.page.unroute_all()


def test_markup_stays_text(front: Front) -> None:
    front.open("#model=topics")
    text = "<img src=x onerror=alert(1)> <script>alert(2)</script>"
    front.page.locator("#field-text").fill(text)
    front.send()
    assert text in front.code("curl")


def test_language_and_theme_are_kept(front: Front) -> None:
    front.open("#model=topics")
    assert front.page.locator(".primary").inner_text() == "Send"
    front.switch("language")
    assert front.page.locator(".primary").inner_text() == "发送"
    front.switch("theme")
    front.switch("theme")
    front.open("#model=topics")
    assert front.page.locator(".primary").inner_text() == "发送"
    assert front.page.locator("html").get_attribute("data-theme") == "dark"


def test_both_languages_say_the_same(front: Front) -> None:
    front.open()
    keys = front.page.evaluate(
        "async () => { const { WORDS } = await import(new URL('assets/words.js', location.href));"
        " return Object.values(WORDS).map(Object.keys); }"
    )
    assert keys[0] == keys[1] and len(keys[0]) > 60


def test_a_narrow_screen_needs_no_scrolling_sideways(browser: "Browser", server: "Server") -> None:
    with opening(browser, server, viewport={"width": 390, "height": 800}, locale="zh-CN") as front:
        for model in ("sentences", "topics", "squad"):
            front.open(f"#model={model}").answer()
            assert front.page.evaluate("document.documentElement.scrollWidth") <= 390, model
        front.open("docs")
        front.page.locator("summary").nth(1).click()
        assert front.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_link_with_the_token_opens_the_page(browser: "Browser", models: "Models") -> None:
    with running(build_server(models, TOKEN)) as server, opening(browser, server) as front:
        assert sent(server, "GET", "/").status == 401
        front.open(f"?token={TOKEN}#model=topics")
        assert TOKEN not in front.page.url
        assert front.answer().locator(".weighed").count() == 2
        assert "Bearer $QKV_TOKEN" in front.code("curl") and TOKEN not in front.page.content()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_api_is_listed_and_can_be_tried(front: Front, lang: str) -> None:
    front.open("docs")
    if lang == "zh":
        front.switch("language")
    with urlopen(f"http://127.0.0.1:{front.server.port}/openapi.json") as response:
        described = json.load(response)
    wanted = {f"{method} {path}" for path, item in described["paths"].items() for method in item}
    operations = front.page.locator("[data-operation]")
    assert {one.get_attribute("data-operation") for one in operations.all()} == wanted
    first = described["paths"]["/models/{name}"]["post"]
    node = front.page.locator("[data-operation='post /models/{name}']")
    assert first["x-summary-zh" if lang == "zh" else "summary"] in node.locator("summary").inner_text()
    node.locator("summary").click()
    node.locator(".primary").click()
    node.locator(".note").get_by_text("200").wait_for()
    assert json.loads(node.locator("code").inner_text())
    node.locator("textarea").fill("{")
    assert "JSON" in node.locator(".note").inner_text()


def test_the_page_of_look_shows_the_same_models(front: Front) -> None:
    front.open("#model=mini")
    front.page.locator(".links a[href='look/']").click()
    front.page.wait_for_selector('[data-view="attention"][data-ready="1"]')
    options = front.page.locator(".chooser select").first.locator("option").all_inner_texts()
    assert options[0].startswith("mini") and len(options) == len(TRIED)


def test_files_of_the_page_and_no_others(server: "Server") -> None:
    page = sent(server, "GET", "/")
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert sent(server, "GET", "/assets/app.js").headers["Content-Type"].startswith("text/javascript")
    for name in ("front.py", "index.html", "../app.py", "%2e%2e/app.py", "app.js/", "nothing.js", ""):
        assert sent(server, "GET", f"/assets/{name}").status == 404, name
