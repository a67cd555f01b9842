// One word, many meanings: the sentences a word stands in, and its vectors there in every model of the room, side by side.
// word2vec has one point, ELMo and BERT a cloud that comes apart with the layers. The planes are meanings_plot.js; where a
// word stands and what its vectors are is worked out by look/meanings.py. Here: the fields, the list, the depth.

import { clear, clip, debounced, frame, h, sliced } from "look/dom.js";
import { colour, hue, svgOf, svgText } from "look/draw.js";
import { aborted, Refusal } from "look/wire.js";
import { course } from "look/views/meanings_course.js";
import { keyOf, plot, ringed } from "look/views/meanings_plot.js";

export { css } from "look/views/meanings_style.js";
export { words } from "look/views/meanings_words.js";
export const id = "meanings";
export const inputs = [];
export const keys = [["← →", "key.layer"], ["p", "key.play"]];

const FIRST = {
  en: { word: "Python", sentences: ["He got bit by Python in the grass", "Python is my favorite programming language"] },
  zh: { word: "苹果", sentences: ["我每天早上吃一个苹果。", "苹果发布了新款手机。"] },
};
const LAST = 1000, SECONDS = 6, MOST_PLANES = 4;

export function view(app) {
  const { t, state, set } = app;
  const word = h("input",
    {
      class: "field word", spellcheck: "false", autocomplete: "off",
      on: { input: () => typed(), keydown: event => { if (event.key === "Enter") typed.now(); if (event.key === "Escape") word.blur(); } }
    });
  const slider = h("input",
    {
      type: "range", min: 0, max: LAST, step: 1,
      on: { input: () => { if (run) halt(); moved(slider.value / LAST); }, change: () => kept(), keydown: stepped }
    });
  const playing = h("button", { type: "button", class: "quiet", on: { click: () => (playingOn ? halt() : play()) } });
  const edit = h("button", { type: "button", class: "quiet", on: { click: () => edited() } });
  const area = h("textarea", { class: "field", rows: 12, spellcheck: "false", on: { input: () => typed(), keydown: left } });
  const lines = h("ol", { class: "lines" }), planes = h("div", { class: "planes" }), caption = h("p", { class: "caption" });
  const labels = {
    word: h("span", { class: "label" }), depth: h("span", { class: "label" }), low: h("span", { class: "label" }),
    high: h("span", { class: "label" })
  };
  const add = h("button", { type: "button", class: "quiet add", hidden: true, on: { click: () => added() } });
  const list = h("div", { class: "stack" }, lines, add, edit), along = course(app);
  const root = h("section", {},
    h("div", { class: "top" }, h("label", {}, h("div", {}, labels.word), word),
      h("div", { class: "depth" }, labels.low, slider, labels.high, playing)),
    h("div", { class: "both" }, list, h("div", {}, planes, caption, along.root)));
  const plots = new Map(); // index of a subject → its plot
  let depth = 1, hot = null, pinned = null, colours = new Map(), sentences = [], run = 0, editing = false, drawnKey = "", turn = 0,
    playingOn = false, goal = 1;

  // All models of the page; of many, one of each kind that does not translate, and those that were chosen.
  const subjects = () => {
    const all = app.room.subjects.filter(one => app.has("meanings", one));
    if (all.length <= MOST_PLANES) return all;
    const first = one => !app.has("translation", one) && all.find(other => other.kind === one.kind) === one;
    return all.filter(one => first(one) || one === app.subject() || one === app.compare());
  };
  // What is asked, by the address or an example; an address may say anything.
  const own = () => {
    const first = app.examples().find(one => one.lang === state.lang)?.set?.meanings ?? app.examples()[0]?.set?.meanings ?? FIRST[state.lang];
    const { word, sentences, depth, pinned } = { ...first, ...state.meanings };
    return {
      word: String(word ?? ""), sentences: (Array.isArray(sentences) ? sentences : String(sentences ?? "").split("\n")).map(String).filter(one => one.trim()),
      depth: Number.isFinite(depth) ? Math.min(LAST, Math.max(0, depth)) : undefined, pinned: typeof pinned === "string" ? pinned : null,
    };
  };
  const typed = debounced(() => {
    const given = area.value.split("\n").map(line => line.trim()).filter(Boolean);
    set({ meanings: { word: word.value, sentences: editing ? given : own().sentences, pinned: null } });
  }, 350);

  function edited() {
    if (editing) typed.now(); // what was written last
    editing = !editing;
    if (editing) area.value = sentences.join("\n");
    clear(list, editing ? [area] : [lines, add], edit);
    worded();
    if (editing) area.focus();
  }

  function left(event) {
    if (event.key !== "Escape" || !editing) return;
    event.stopPropagation();
    edited();
    edit.focus();
  }

  // The sentence of the other views, where it has the word and is not here yet.
  const elsewhere = () => {
    const { word: one, sentences: here } = own(), said = state.text.trim(), asked = one.trim();
    if (!asked || !said || /\n/.test(said) || here.includes(said)) return null;
    const plain = asked.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), edge = /[\u3400-\u9fff]/.test(asked) ? "" : "[\\p{L}\\p{N}]";
    return new RegExp(edge ? `(?<!${edge})${plain}(?!${edge})` : plain, "iu").test(said) ? said : null;
  };
  const added = () => set({ meanings: { sentences: [...own().sentences, elsewhere()].filter(Boolean), pinned: null } });

  // The depth: drawn at once, put into the state when it rests.
  const drawSoon = frame(() => draw());
  function moved(to) {
    depth = Math.min(1, Math.max(0, to));
    slider.value = Math.round(depth * LAST);
    drawSoon();
  }
  const kept = () => set({ meanings: { depth: Math.round(depth * LAST) } });
  const steps = () => Math.max(1, ...[...plots.values()].filter(one => one.reply).map(one => one.reply.arrays.points.shape[0] - 1));
  function stepped(event) {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    glide(Math.round((run ? goal : depth) * steps() + by) / steps());
  }
  // Points wander to another layer rather than jump, so that the eye can follow them.
  function travel(from, to, seconds, ease) {
    const began = performance.now();
    goal = Math.min(1, Math.max(0, to));
    cancelAnimationFrame(run);
    const next = now => {
      const part = Math.min(1, Math.max(0, (now - began) / 1000 / seconds));
      moved(from + (goal - from) * ease(part));
      if (part < 1) run = requestAnimationFrame(next);
      else halt();
    };
    run = requestAnimationFrame(next);
  }
  const glide = to => travel(depth, to, matchMedia("(prefers-reduced-motion: reduce)").matches ? 0.001 : 0.45, part => 1 - (1 - part) ** 3);
  function play() {
    playingOn = true;
    travel(depth >= 0.999 ? 0 : depth, 1, SECONDS, part => part);
    worded();
  }
  function halt() {
    if (run) cancelAnimationFrame(run);
    run = 0;
    playingOn = false;
    worded();
    kept();
  }
  function pressed(event) {
    if (event.target.closest?.("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "p") playingOn ? halt() : play();
  }
  planes.addEventListener("keydown", event => { if (event.key === "ArrowLeft" || event.key === "ArrowRight") stepped(event); });

  const hear = {
    hover: key => {
      hot = key;
      drawSoon();
      const one = reference()?.reply.head.occurrences.find(other => keyOf(other) === key);
      if (one && sentences[one.sentence] === state.text) set({ word: `${one.start}-${one.end}` });
    },
    pin: key => { pinned = pinned === key ? null : key; set({ meanings: { pinned } }); drawSoon(); },
    depth: to => { playingOn = false; glide(to); worded(); },
  };

  function worded() {
    labels.word.textContent = t("word");
    labels.low.textContent = t("below");
    labels.high.textContent = t("top");
    slider.setAttribute("aria-label", t("depth"));
    area.setAttribute("aria-label", t("sentences"));
    word.setAttribute("aria-label", t("word"));
    playing.textContent = playingOn ? t("stop") : t("play");
    edit.textContent = editing ? t("done") : t("edit");
    const other = elsewhere();
    add.hidden = other === null;
    add.title = t("add.title");
    add.textContent = other === null ? "" : t("add", { text: clip(other, 28) });
    caption.textContent = t("caption");
  }

  // A sentence with the word in the colour of its point, wherever it stands.
  function lined() {
    const shown = reference(), found = shown?.reply.head.occurrences ?? [];
    clear(lines, sentences.map((sentence, number) => {
      const here = found.filter(one => one.sentence === number), parts = [];
      let end = 0;
      for (const one of here) {
        parts.push(sliced(sentence, end, one.start),
          h("b", { style: { "--own": hue(colours.get(keyOf(one)) ?? 0) } }, sliced(sentence, one.start, one.end)));
        end = one.end;
      }
      parts.push(sliced(sentence, end));
      const key = here.length ? keyOf(here[0]) : null, without = shown?.reply.head.without.includes(number);
      const pin = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); hear.pin(key); } };
      const heard = key ? {
        pointerenter: () => hear.hover(key), pointerleave: () => hear.hover(null), focus: () => hear.hover(key),
        blur: () => hear.hover(null), click: () => hear.pin(key), keydown: pin
      } : {};
      const go = app.has("attention") && goTo(sentence, here[0]);
      const mark = h("span", { class: "mark", style: { background: key ? hue(colours.get(key) ?? 0) : "var(--faint)" } }, number + 1);
      return h("li", { class: without ? "without" : "", tabindex: key ? "0" : null, on: heard, data: { key: key ?? "" } }, mark,
        h("span", {}, parts, without && h("span", { class: "note" }, "  " + t("without", { word: own().word }))), go);
    }));
  }

  // The same sentence in the view of attention, with the word that is looked at here.
  function goTo(sentence, one) {
    const word = one ? `${one.start}-${one.end}` : null;
    const clicked = event => {
      event.stopPropagation();
      set({ view: "attention", text: sentence, pair: "", chosen: null, token: null, word });
    };
    const on = { click: clicked, keydown: event => event.stopPropagation() };
    return h("button", { type: "button", class: "quiet go", title: t("go.title"), on }, t("go"));
  }

  // What is shown without a pointer: the sentence that the other views have, if it is here, else the first.
  function first() {
    const found = reference()?.reply.head.occurrences ?? [];
    const one = found.find(other => sentences[other.sentence] === state.text) ?? found[0];
    return one ? keyOf(one) : null;
  }

  // Who gives the colours: the chosen model, if its points are a cloud, else the first that has one.
  function reference() {
    const ready = [plots.get(state.model), ...plots.values()].filter(one => one?.reply);
    return ready.find(one => !one.reply.head.one_point) ?? ready[0];
  }

  function draw() {
    const shown = hot ?? pinned ?? first();
    for (const one of plots.values()) one.draw(depth, shown, sentences, hot ?? pinned);
    along.draw(subjects().map(one => ({ title: one.title, reply: plots.get(one.index)?.reply })), depth, hear);
    caption.hidden = !reference();
    for (const line of lines.children) line.classList.toggle("hot", line.dataset.key !== "" && line.dataset.key === shown);
  }

  async function load() {
    const wanted = own(), all = subjects();
    sentences = wanted.sentences ?? [];
    for (const index of [...plots.keys()]) if (!all.some(one => one.index === index)) plots.delete(index);
    for (const one of all) if (!plots.has(one.index)) plots.set(one.index, plot(app, one, hear));
    clear(planes, all.map(one => plots.get(one.index).root));
    if (!all.length) { clear(planes, h("p", { class: "note" }, t("nobody"))); return; }
    if (!wanted.word?.trim() || !sentences.length) throw new Refusal("empty");
    const mine = (turn += 1);
    const found = await Promise.all(all.map(async one => {
      try {
        return [one, await app.ask("meanings", { model: one.index, word: wanted.word.trim(), sentences })];
      } catch (error) {
        if (aborted(error)) throw error;
        return [one, error];
      }
    }));
    if (mine !== turn) return; // something else was asked since
    const clouds = found.filter(([, reply]) => !(reply instanceof Error));
    if (!clouds.length) {
      for (const [one] of found) plots.get(one.index).refuse(null);
      clear(planes);
      lined();
      draw();
      throw found[0][1];
    }
    const by = clouds.find(([one, { head }]) => one.index === state.model && !head.one_point) ?? clouds.find(([, { head }]) => !head.one_point) ?? clouds[0];
    colours = ringed(by[1]);
    for (const [one, reply] of found) {
      if (reply instanceof Error) plots.get(one.index).refuse([app.refusal(reply),
        reply.about?.near && h("p", { class: "note" }, t("near", reply.about))]);
      else plots.get(one.index).fill(reply, colours);
    }
    lined();
    draw();
  }

  async function show(changed) {
    if (changed && [...changed].every(name => ["token", "word", "chosen", "text", "pair"].includes(name))) return;
    const wanted = own(),
      key = JSON.stringify([wanted.word, wanted.sentences, state.lang, state.theme, state.model, document.documentElement.dataset.theme]);
    if (changed === null) addEventListener("keydown", pressed);
    worded();
    if (document.activeElement !== word) word.value = wanted.word ?? "";
    pinned = wanted.pinned;
    if (!run && wanted.depth !== undefined && document.activeElement !== slider) moved(wanted.depth / LAST);
    slider.value = Math.round(depth * LAST);
    if (key !== drawnKey) {
      drawnKey = key;
      try { await load(); } catch (error) { drawnKey = ""; throw error; }
    } else draw();
  }

  function svg() {
    if (!reference()) return null;
    const listed = 330, gap = 30, side = 280, parts = [svgText(24, 40, `${t("title")} · ${own().word}`, { size: 18, weight: 620 })];
    let x = 24 + listed + gap, down = 76, tall = 0;
    sentences.forEach((sentence, number) => {
      const one = reference().reply.head.occurrences.find(other => other.sentence === number);
      parts.push(svgText(24, down, number + 1, { size: 12, weight: 650, fill: one ? hue(colours.get(keyOf(one)) ?? 0) : colour("faint") }),
        svgText(50, down, clip(sentence, /[\u3400-\u9fff]/.test(sentence) ? 20 : 44), { size: 13.5 }));
      down += 23;
    });
    const shown = hot ?? pinned ?? first();
    for (const one of plots.values()) {
      const { text, height } = one.svg(x, 62, side, depth, shown, sentences);
      parts.push(text);
      tall = Math.max(tall, height);
      x += side + gap;
    }
    const below = along.svg(24 + listed + gap, 62 + tall + 40);
    return svgOf(x, Math.max(down, 62 + tall + 40 + below.height) + 24, parts.join("") + below.text, t("title"));
  }

  function numbers() {
    return {
      depth, subjects: [...plots].filter(([, one]) => one.reply).map(([index, one]) => ({
        model: index, layer: one.reply.head.layers[one.layer(depth)], occurrences: one.reply.head.occurrences,
        points: [...one.reply.arrays.points.data], cosine: [...one.reply.arrays.cosine.data], shape: one.reply.arrays.points.shape,
      })),
    };
  }

  return {
    root, show, hide: () => { cancelAnimationFrame(run); run = 0; playingOn = false; removeEventListener("keydown", pressed); }, svg,
    numbers
  };
}
