"""One page of `qkv look` in a browser, as a test drives it: opens, waits until it is drawn, reads what is drawn.

Nothing here waits for a fixed time: a view says when it is drawn (data-ready), and Playwright waits for what is asked.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from qkv.look.subject import Subject
from qkv.serve.listen import Server

if TYPE_CHECKING:  # it need not be installed: then each test says so
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

TEXT = "the animal didn't cross the street because it was too tired."
CATS = ["the cat sat on the mat.", "a cat is too tired", "the dog was a cat", "he owes me a cat"]
OWN: dict[str, dict[str, Any]] = {
    "fill": {"hide": "4-10"},  # the animal
    "meanings": {"word": "cat", "sentences": CATS},
    "positions": {"text": "他欠我100万", "other": "我欠他100万"},
    "vectors": {"word": "king", "a": "man", "b": "woman", "c": "king"},
}
"""What views have of their own, in words that the tiny vocabularies know."""
MODELS = {
    "attention": "bert",
    "fill": "bert",
    "next": "gpt",
    "meanings": "elmo",
    "positions": "bert",
    "translation": "transformer",
    "vectors": "word2vec",
    "tasks": "answer",
    "recurrence": "rnnlm",
}
"""By view, one that has it."""
SECONDS = 20_000  # milliseconds that anything may take on a busy machine
LOCAL = ("127.0.0.1", "localhost")
NUMBERS = (
    "() => JSON.stringify(look.numbers(), (key, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value))"
)
INK = """(node) => {
  const { width, height } = node, copy = new OffscreenCanvas(width, height), seen = new Set();
  const pen = copy.getContext("2d", { willReadFrequently: true });
  pen.drawImage(node, 0, 0);
  const pixels = new Uint32Array(pen.getImageData(0, 0, width, height).data.buffer);
  for (const pixel of pixels) if (pixel >>> 24) seen.add(pixel);
  return seen.size;
}"""
"""How many colours a canvas has on it."""


@dataclass(frozen=True)
class Room:
    server: Server
    subjects: Mapping[str, Subject]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.port}/"

    def index(self, name: str) -> int:
        return list(self.subjects).index(name)


@dataclass
class Look:
    page: "Page"
    room: Room
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # addresses

    def forget(self) -> None:
        """For the next test: nothing that was set, remembered, allowed or pointed at is left."""
        if self.page.url.startswith(self.room.address):
            self.page.evaluate("() => localStorage.clear()")
        self.page.unroute_all()
        self.page.goto("about:blank")
        self.page.mouse.move(0, 0)
        self.page.context.clear_permissions()

    def check(self, allowed: tuple[str, ...] = ()) -> None:
        """Nobody but this machine was asked, and there was nothing to complain of but what is allowed."""
        addresses = [urlsplit(one) for one in self.asked]
        left = [one.geturl() for one in addresses if one.scheme in ("http", "https") and one.hostname not in LOCAL]
        assert left == [], f"the page reached for {left}"
        complaints = [one for one in self.complaints if not any(part in one for part in allowed)]
        assert complaints == [], complaints

    def open(self, view: str, model: str = "bert", **state: Any) -> "Look":
        """The page with this state in its address, when it is drawn."""
        given = {"view": view, "model": self.room.index(model), "lang": "en", "text": TEXT} | state
        parts = [
            f"{name}={quote(value if isinstance(value, str) else json.dumps(value))}" for name, value in given.items()
        ]
        if self.page.url != "about:blank":  # a change of what stands after # alone would not load the page
            self.page.goto("about:blank")
        self.page.goto(f"{self.room.address}#{'&'.join(parts)}")
        return self.ready(view)

    def ready(self, view: str) -> "Look":
        self.page.wait_for_selector(f'[data-view="{view}"][data-ready="1"]', timeout=SECONDS)
        self.page.wait_for_selector("html[data-started='1']", timeout=SECONDS, state="attached")
        return self

    def set(self, **patch: Any) -> "Look":
        """As a click would: the state changes, and the view is drawn anew."""
        self.page.evaluate("patch => look.set(patch)", patch)
        return self.ready(patch.get("view") or self.state("view"))

    def state(self, name: str) -> Any:
        return self.page.evaluate("name => look.state[name]", name)

    def numbers(self) -> dict[str, Any]:
        """What is drawn, as the page has it."""
        found: dict[str, Any] = json.loads(self.page.evaluate(NUMBERS))
        return found

    def until(self, condition: str) -> None:
        """Frame by frame; Playwright's own way of waiting for a function needs eval, and the page's policy has none."""
        waiting = f"""async () => {{
          const end = performance.now() + {SECONDS};
          while (performance.now() < end) {{
            if ({condition}) return true;
            await new Promise(done => requestAnimationFrame(done));
          }}
          return false;
        }}"""
        assert self.page.evaluate(waiting), f"not within {SECONDS // 1000} s: {condition}"

    def colours(self, selector: str) -> int:
        """Of a canvas."""
        return int(self.page.locator(selector).first.evaluate(INK))

    def refusal(self) -> str:
        """The code of what the page says it cannot show."""
        node = self.page.locator("[data-refusal]:visible").first
        node.wait_for(timeout=SECONDS)
        return node.get_attribute("data-refusal") or ""

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text(timeout=SECONDS)


@contextmanager
def looking(
    browser: "Browser",
    room: Room,
    *,
    script: str = "",
    offline: bool = False,
    allowed: tuple[str, ...] = (),
    **options: Any,
) -> Iterator[Look]:
    """`script` runs before the page's own; `allowed` are parts of complaints that the test itself provokes."""
    context: BrowserContext = browser.new_context(
        viewport={"width": 1400, "height": 900}, locale="en-US", offline=offline, accept_downloads=True, **options
    )
    context.set_default_timeout(SECONDS)
    if script:
        context.add_init_script(script)
    page = context.new_page()
    look = Look(page, room)

    def heard(message: "ConsoleMessage") -> None:
        refused = "status of 400" in message.text and "/api/" in str(message.location)  # Chromium's note on a refusal
        if message.type in ("error", "warning") and not refused:
            look.complaints.append(f"{message.type}: {message.text}")

    def requested(request: "Request") -> None:
        look.asked.append(request.url)

    def dismissed(dialog: "Dialog") -> None:
        look.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("console", heard)
    page.on("pageerror", lambda error: look.complaints.append(f"thrown: {error}"))
    page.on("dialog", dismissed)
    context.on("request", requested)
    try:
        yield look
    finally:
        context.close()
    look.check(allowed)
