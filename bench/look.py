"""`qkv look` in a real browser, beside bertviz: time to the first picture, frames a second while hovering, bytes.

    python bench/look.py                                  # a minute or two
    python bench/look.py --peer PYTHON --libraries FOLDER --json look.json

A model of BERT-base's shape (12 layers × 12 heads, 110 M parameters but for the vocabulary) with drawn weights and the
tokenizer of qkv-mini is served on loopback by a process of its own; headless Chromium opens the page.

first picture   from the beginning of the navigation, with nothing in the browser's cache, until the attention view says
                that it is drawn and a frame has passed; the server has its weights in memory, as it has when it prints
                its address. The median of several, each in a new context; the very first beside it.
hovering        a text of 512 tokens; at every frame the pointer moves on to another word, and all lines and the map's
                cross are drawn anew. Frames a second, and the longest of a hundred frames.
bytes           of the answer with one layer whole (12 heads × 512 × 512), and of all that the page loads at first.
bertviz         the same model, sentence and weights, as `head_view` and `model_view` with html_action="return": seconds
                to make the page and its bytes, and the time until it shows something. Its pages load require.js, d3 and
                jQuery from a CDN, which this benchmark does not reach: they draw nothing. --libraries names a folder
                with require.min.js, d3.min.js and jquery.min.js, from which they are given instead.

Which Chromium: $QKV_CHROMIUM, else the one that is installed. bertviz stands in no extra of qkv: it asks for boto3, and
that for an older python-dateutil than ours. Give it an environment of its own, with qkv, and name its Python: --peer.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import torch
from playwright.sync_api import Browser, Page, Route, sync_playwright
from rich.console import Console
from rich.table import Table

from qkv.models.bert.folder import save
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.folders.hub import DEFAULT_MODEL, FOLDER
from qkv.text.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
SENTENCE = "The animal didn't cross the street because it was too tired."
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT = 60.0  # seconds for a page of bertviz's
GOALS = {"first picture": 1.5, "frames": 30.0, "layer": 4_000_000}
BASE: dict[str, Any] = {"layers": 12, "width": 768, "heads": 12, "inner_width": 3072, "max_length": 512}
TINY: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "inner_width": 32, "max_length": 512}
READY = '[data-view="attention"][data-ready="1"]'
SEEN = "requestAnimationFrame(() => requestAnimationFrame(() => { window.seen = performance.now(); }));"
"""A frame after the one in which it was noticed: by then it is on the screen."""
WATCH = f"""
new MutationObserver((_, self) => {{
  if (!document.querySelector('{READY}')) return;
  self.disconnect();
  {SEEN}
}}).observe(document, {{ subtree: true, childList: true, attributes: true }});
"""
THEIRS = f"""
const watch = () => {{
  if (document.querySelectorAll("#vis svg *").length > 10) {SEEN}
  else requestAnimationFrame(watch);
}};
requestAnimationFrame(watch);
"""
HOVER = """async ([selector, seconds]) => {
  const canvas = document.querySelector(selector), box = canvas.getBoundingClientRect();
  const frame = () => new Promise(done => requestAnimationFrame(done));
  const tokens = new Set(), spent = [];
  const move = y => canvas.dispatchEvent(new PointerEvent("pointermove", {
    bubbles: true, clientX: box.left + 0.2 * box.width, clientY: box.top + y }));
  await frame();
  const begin = performance.now();
  let before = begin;
  for (let at = 0; performance.now() - begin < 1000 * seconds; at += 1) {
    move(30 + (at * 7) % (box.height - 40));
    await frame();
    const now = performance.now();
    spent.push(now - before);
    before = now;
    tokens.add(look.state.token);
  }
  return { frames: spent.length, seconds: (before - begin) / 1000, tokens: tokens.size, spent };
}"""
"""One move a frame, each to another word; how long every frame took."""


def words_of(tokens: int, tokenizer: Tokenizer) -> str:
    """A text of exactly so many tokens, [CLS] and [SEP] counted in."""
    text = (SENTENCE + " ") * (tokens // 10)
    encoded = tokenizer.encode(text)
    return text[: encoded.offsets[tokens - 2][1]]


def make_model(folder: Path, sizes: dict[str, Any]) -> Tokenizer:
    tokenizer = Tokenizer.load(FOLDER / DEFAULT_MODEL)
    torch.manual_seed(0)
    model = BertWithHeads(BertConfig(vocabulary_size=tokenizer.size, **sizes), ())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "qkv" in name and parameter.dim() == 2:
                parameter.mul_(3)  # so that weights differ: an untrained head looks everywhere alike
    save(folder, model.eval(), tokenizer, (), "BertModel")
    return tokenizer


@contextmanager
def served(folder: Path, threads: int) -> Iterator[str]:
    """The address of `qkv look` in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "qkv",
        "look",
        str(folder),
        "--port",
        "0",
        "--no-browser",
        "--threads",
        str(threads),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            sys.exit("qkv look did not start.")
        yield address.partition("#")[0]
    finally:
        process.terminate()
        process.wait()


@contextmanager
def opened(browser: Browser, script: str = "", **options: Any) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
    context.set_default_timeout(120_000)
    context.add_init_script(script)
    try:
        yield context.new_page()
    finally:
        context.close()


def seen(page: Page, limit: float = 2 * WAIT) -> float | None:
    """Seconds from the beginning of the navigation until there was a picture; None if there is none."""
    end = time.perf_counter() + limit
    while time.perf_counter() < end:
        found = page.evaluate("() => window.seen ?? null")
        if found is not None:
            return float(found) / 1000
        time.sleep(0.02)
    return None


def state(text: str) -> str:
    return f"#view=attention&lang=en&theme=light&text={quote(text)}"


def first_pictures(browser: Browser, address: str, rounds: int) -> tuple[list[float], int]:
    """Seconds of each, and the bytes that the page loaded."""
    times, loaded = [], 0
    for _ in range(rounds):
        with opened(browser, WATCH) as page:
            sizes: list[int] = []
            session = page.context.new_cdp_session(page)
            session.send("Network.enable")
            session.on(
                "Network.loadingFinished", lambda event, sizes=sizes: sizes.append(int(event["encodedDataLength"]))
            )
            page.goto(address + state(SENTENCE), wait_until="commit")
            found = seen(page)
            assert found is not None, "the page drew nothing"
            times.append(found)
            loaded = sum(sizes)
    return times, loaded


def hovering(browser: Browser, address: str, text: str, seconds: float) -> dict[str, Any]:
    """Frames while the pointer moves over the words, and the bytes of one layer."""
    with opened(browser, WATCH) as page:
        layers: list[int] = []
        page.on(
            "response",
            lambda one: layers.append(len(one.body())) if '"layer"' in (one.request.post_data or "") else None,
        )
        page.goto(address + state(text), wait_until="commit")
        first = seen(page)
        found: dict[str, Any] = {"first": first}
        for part in ("lines", "large"):
            one = page.evaluate(HOVER, [f"[data-part={part}]", seconds])
            spent = sorted(one.pop("spent"))
            one |= {
                "per_second": one["frames"] / one["seconds"],
                "longest_of_100": spent[int(0.99 * (len(spent) - 1))] / 1000,
            }
            found[part] = one
        tokens = page.evaluate("() => look.numbers().left.length")
    return found | {"tokens": tokens, "layer_bytes": max(layers, default=0)}


def bertviz(
    browser: Browser, options: argparse.Namespace, folder: Path, text: str, view: str, layers: int
) -> dict[str, Any]:
    out = folder.parent / f"{view}.html"
    peer = [options.peer, str(ROOT / "bench" / "look_peer.py"), str(folder), text, view, str(out), str(layers)]
    said = subprocess.run(peer, capture_output=True, text=True, check=False)
    if said.returncode:
        return {"failure": said.stderr.strip().splitlines()[-1] if said.stderr.strip() else "it stopped"}
    found: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    asked: list[str] = []

    def given(route: Route) -> None:
        address = urlsplit(route.request.url)
        if address.scheme == "file":
            route.continue_()
            return
        asked.append(route.request.url)
        file = options.libraries / Path(address.path).name if options.libraries else None
        if file is not None and file.is_file():
            route.fulfill(path=file, content_type="text/javascript")
        else:
            route.abort()

    with opened(browser, THEIRS) as page:
        page.route("**/*", given)
        begin = time.perf_counter()
        page.goto(out.as_uri(), wait_until="commit")
        found["seconds_first"] = seen(page, WAIT if options.libraries else 5)
        found["seconds_waited"] = time.perf_counter() - begin
    return found | {"asked": sorted(set(asked))}


def show(found: dict[str, Any]) -> None:
    table = Table(title=f"qkv look, {found['layers']} layers × {found['heads']} heads, headless Chromium, loopback")
    for heading in ("", "measured", "goal"):
        table.add_column(heading, justify="left" if not heading else "right")
    first, hover = found["first_picture"], found["hovering"]
    table.add_row("first picture, median", f"{first['median']:.2f} s", f"≤ {GOALS['first picture']} s")
    table.add_row("  the very first, of a new server and browser", f"{first['seconds'][0]:.2f} s", "")
    table.add_row("  bytes loaded", f"{first['bytes'] / 1e3:,.0f} kB", "")
    for part, name in (("lines", "lines"), ("large", "enlarged map")):
        one = hover[part]
        table.add_row(
            f"hovering {hover['tokens']} tokens, {name}",
            f"{one['per_second']:.0f} frames/s",
            f"≥ {GOALS['frames']:.0f}",
        )
        table.add_row("  the longest of 100 frames", f"{1000 * one['longest_of_100']:.0f} ms", "")
    table.add_row("first picture of that text", f"{hover['first']:.2f} s", "")
    table.add_row("one layer of it", f"{hover['layer_bytes'] / 1e6:.2f} MB", f"≤ {GOALS['layer'] / 1e6:.0f} MB")
    console = Console(width=120)
    console.print(table)
    theirs = Table(title="bertviz, the same model and text")
    for heading in ("view", "tokens", "layers", "forward pass", "to make the page", "bytes", "first picture"):
        theirs.add_column(heading, justify="left" if heading == "view" else "right")
    for name, one in found["bertviz"].items():
        if "failure" in one:
            theirs.add_row(name, "", "", "", "", "", one["failure"])
            continue
        waited = "nothing is drawn" if one["seconds_waited"] < WAIT else f"nothing in {WAIT:.0f} s"
        picture = waited if one["seconds_first"] is None else f"{one['seconds_first']:.2f} s"
        theirs.add_row(
            name,
            str(one["tokens"]),
            str(one["layers"]),
            f"{one['seconds_model']:.2f} s",
            f"{one['seconds_page']:.2f} s",
            f"{one['bytes'] / 1e6:,.1f} MB",
            picture,
        )
    console.print(theirs)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="first pictures")
    parser.add_argument("--seconds", type=float, default=4.0, help="of hovering")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--peer", default=sys.executable, metavar="PYTHON", help="an interpreter that has bertviz and qkv"
    )
    parser.add_argument("--libraries", type=Path, metavar="FOLDER", help="require, d3 and jquery, for bertviz's pages")
    parser.add_argument("--chromium", default=os.environ.get("QKV_CHROMIUM"), metavar="PATH")
    parser.add_argument("--quick", action="store_true", help="one round, half a second of hovering, no bertviz")
    parser.add_argument("--tiny", action="store_true", help="a network that computes nothing, to see that all runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    options.chromium = options.chromium or next(filter(None, map(shutil.which, NAMES)), None)
    if options.chromium is None:
        sys.exit("No Chromium is installed (apt-get install chromium), and --chromium names none.")
    if options.quick:
        options.rounds, options.seconds = 1, 0.5
    return options


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    sizes = TINY if options.tiny else BASE
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        folder = Path(place) / "base"
        text = words_of(options.tokens, make_model(folder, sizes))
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        with served(folder, options.threads) as address:
            times, loaded = first_pictures(browser, address, options.rounds)
            hover = hovering(browser, address, text, options.seconds)
        runs = [
            ("head_view", SENTENCE, sizes["layers"]),
            ("model_view", SENTENCE, sizes["layers"]),
            ("head_view", text, 1),
        ]
        theirs = {
            f"{view}, {'the sentence' if given is SENTENCE else f'{options.tokens} tokens'}": bertviz(
                browser, options, folder, given, view, layers
            )
            for view, given, layers in ([] if options.quick else runs)
        }
        browser.close()
    found = {
        "layers": sizes["layers"],
        "heads": sizes["heads"],
        "first_picture": {"seconds": times, "median": statistics.median(times), "bytes": loaded},
        "hovering": hover,
        "bertviz": theirs,
    }
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
