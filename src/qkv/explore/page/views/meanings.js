// One word, many meanings: the sentences a word stands in, and its vectors there in every model of the room, side by side.
// word2vec has one point, ELMo and BERT a cloud that comes apart with the layers. The planes are meanings_plot.js; where a
// word stands and what its vectors are is worked out by inside/meanings.py. Here: the fields, the list, the depth.

import { clear, clip, debounced, frame, h, sliced } from "look/dom.js";
import { colour, hue, svgOf, svgText } from "look/draw.js";
import { aborted, Refusal } from "look/wire.js";
import { course } from "look/views/meanings_course.js";
import { keyOf, plot, ringed } from "look/views/meanings_plot.js";

export const id = "meanings";
export const inputs = [];
export const keys = [["← →", "key.layer"], ["p", "key.play"]];

export const words = {
  en: {
    "title": "One word, many meanings", "word": "Word", "sentences": "Sentences, one a line", "edit": "Edit the sentences", "go": "attention →", "go.title": "Look at this sentence’s attention", "done": "Done",
    "depth": "Layers", "play": "Play", "stop": "Stop", "below": "embeddings", "top": "highest layer",
    "course": "How alike the word is to itself (mean cosine over the sentences)", "layer": "after layer {layer}", "no.layers": "one vector a word", "one.layer": "one layer", "one.point": "One point: the same vector in all {n} places, whatever stands around it.",
    "pieces": "{word} is cut into {pieces}; drawn is the mean of their vectors.", "unknown": "“{word}” (in {where}) has no vector here.",
    "without": "does not contain “{word}”", "held": "The plane holds {share} % of the spread.", "picture": "{word} in {model}",
    "caption": "Each number is a sentence, placed by the two directions in which the word’s vectors differ most in that layer (PCA, each layer on a scale of its own). Lines and cosines go to the nearest contexts. Near in the highest layer, near in colour. Layers count from 0, as in Attention; below them are the embeddings.",
    "key.layer": "a layer down, up", "key.play": "play through the layers", "nobody": "No model of the room gives vectors of words.",
    "refusal.word_not_found": "None of the sentences contains “{word}”.", "refusal.empty": "Write a word and a few sentences that contain it.",
    "near": "Near it in spelling: {near}", "refusal.no_vector": "“{word}” has no vector in {model}.", "refusal.number": "That is more than is shown: {most} at most.",
  },
  zh: {
    "title": "一词多义", "word": "词", "sentences": "句子，每行一句", "edit": "编辑句子", "go": "注意力 →", "go.title": "看这句话的注意力", "done": "完成",
    "depth": "层", "play": "播放", "stop": "停止", "below": "嵌入层", "top": "最高层",
    "course": "同一个词在各句之间有多相似（余弦的平均）", "layer": "第 {layer} 层之后", "no.layers": "一词一个向量", "one.layer": "只有一层", "one.point": "只有一个点：{n} 处用的是同一个向量，与上下文无关。",
    "pieces": "“{word}”被切成 {pieces}，图中取它们向量的平均。", "unknown": "“{word}”（第 {where} 句）在这里没有向量。",
    "without": "不含“{word}”", "held": "这个平面保留了 {share} % 的差异。", "picture": "{model} 中的“{word}”",
    "caption": "每个编号是一个句子，位置由这一层中该词各向量差别最大的两个方向决定（主成分分析，各层单独定标）。连线和余弦值指向最相近的语境。在最高层离得近的，颜色也相近。层从 0 数起，与“注意力”一致；最下面是嵌入层。",
    "key.layer": "下一层、上一层", "key.play": "逐层播放", "nobody": "这里没有能给出词向量的模型。",
    "refusal.word_not_found": "没有一个句子含有“{word}”。", "refusal.empty": "写一个词，再写几个含有它的句子。",
    "near": "拼写相近的词：{near}", "refusal.no_vector": "“{word}”在 {model} 中没有向量。", "refusal.number": "太多了，最多显示 {most} 处。",
  },
};

export const css = `
[data-view=meanings] .top { display: flex; flex-wrap: wrap; align-items: end; gap: 14px 36px; margin-bottom: 26px; }
[data-view=meanings] .word { font: 400 26px/1.5 var(--serif); width: 8em; padding: 2px; }
[data-view=meanings] .depth { flex: 1 1 320px; display: flex; align-items: center; gap: 12px; max-width: 560px; margin-left: auto; }
[data-view=meanings] .depth input { flex: 1; }
[data-view=meanings] .both { display: grid; grid-template-columns: minmax(250px, 19.5rem) minmax(0, 1fr); gap: 34px; align-items: start; }
[data-view=meanings] .lines { list-style: none; margin: 0; padding: 0; font: 16px/1.5 var(--serif); max-height: max(320px, calc(100vh - 250px)); overflow-y: auto; scrollbar-width: thin; }
[data-view=meanings] .lines li { position: relative; display: grid; grid-template-columns: 26px 1fr; gap: 8px; padding: 6px 8px 6px 0; border-radius: 8px; cursor: default; transition: opacity .15s, background .15s; }
[data-view=meanings] .lines li.hot { background: var(--panel); }
[data-view=meanings] .lines li.without { opacity: .5; }
[data-view=meanings] .go { position: absolute; right: 4px; bottom: 4px; opacity: 0; background: var(--raised); font: 12.5px/1.6 var(--sans); padding: 0 8px; box-shadow: 0 1px 3px rgb(0 0 0 / .1); } [data-view=meanings] .lines li:hover .go, [data-view=meanings] .go:focus-visible { opacity: 1; }
[data-view=meanings] .lines b { font-weight: 650; border-radius: 4px; padding: 0 2px; margin: 0 -2px; background: color-mix(in srgb, var(--own) 14%, transparent); color: var(--own); }
[data-view=meanings] .mark { display: inline-grid; place-items: center; width: 20px; height: 20px; border-radius: 50%; font: 650 10.5px/1 var(--sans); color: var(--paper); margin-top: 3px; }
[data-view=meanings] .planes { display: grid; grid-template-columns: repeat(auto-fit, minmax(216px, 1fr)); gap: 28px 22px; align-items: start; }
[data-view=meanings] .one { max-width: 440px; min-width: 0; }
[data-view=meanings] .one header { display: flex; align-items: baseline; justify-content: space-between; gap: 10px; margin-bottom: 8px; white-space: nowrap; }
[data-view=meanings] .who { color: var(--ink); overflow: hidden; text-overflow: ellipsis; } [data-view=meanings] .where { font-size: 12.5px; }
[data-view=meanings] .one .refusal { flex-wrap: nowrap; margin: 0; } [data-view=meanings] .one .refusal p { flex: 1 1 auto; }
[data-view=meanings] .plane { display: block; width: 100%; background: var(--panel); border-radius: 14px; touch-action: manipulation; }
[data-view=meanings] .plane .axes { stroke: var(--rule); fill: none; } [data-view=meanings] .plane line { stroke-width: 1.4; }
[data-view=meanings] .dot { cursor: pointer; transition: opacity .15s; } [data-view=meanings] .dot circle { stroke: var(--panel); stroke-width: 1.6; transition: stroke .15s; }
[data-view=meanings] .dot text { font: 650 10.5px var(--sans); fill: var(--paper); pointer-events: none; }
[data-view=meanings] .dot.lit circle { stroke: var(--ink); } [data-view=meanings] .dot.hot circle { stroke: var(--ink); stroke-width: 2; } [data-view=meanings] .dot.far { opacity: .38; }
[data-view=meanings] .many { font: 12px var(--sans); fill: var(--soft); }
[data-view=meanings] .strip { display: flex; gap: 2px; margin: 6px 0 8px; }
[data-view=meanings] .stamp { flex: 1 1 0; min-width: 0; max-width: 34px; border-radius: 5px; opacity: .55; } [data-view=meanings] .stamp svg { display: block; width: 100%; }
[data-view=meanings] .stamp:hover { opacity: 1; background: var(--panel); } [data-view=meanings] .stamp[data-on] { opacity: 1; background: var(--tint); }
[data-view=meanings] .said-of { font-size: 12.5px; line-height: 1.45; margin-bottom: 8px; } [data-view=meanings] .said-of:empty { margin: 0; }
[data-view=meanings] .near { list-style: none; margin: 0; padding: 0; font-size: 13px; }
[data-view=meanings] .near li { display: grid; grid-template-columns: 20px 32px 42px minmax(0, 1fr); gap: 7px; align-items: center; padding: 3px 0; cursor: pointer; color: var(--soft); }
[data-view=meanings] .near li:hover { color: var(--ink); } [data-view=meanings] .near .mark { width: 18px; height: 18px; margin: 0; font-size: 10px; }
[data-view=meanings] .context { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-family: var(--serif); font-size: 14px; }
[data-view=meanings] .course { margin-top: 26px; } [data-view=meanings] .course h3 { margin-bottom: 6px; } [data-view=meanings] .course svg { display: block; max-width: 100%; cursor: ew-resize; }
[data-view=meanings] .grid { stroke: var(--rule); fill: none; } [data-view=meanings] .now { stroke: var(--faint); stroke-dasharray: 1 3; fill: none; } [data-view=meanings] .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
[data-view=meanings] .tick { font: 11.5px var(--sans); fill: var(--faint); } [data-view=meanings] .name { font: 13px var(--sans); }
[data-view=meanings] textarea { font: 16px/1.6 var(--serif); min-height: 320px; }
@media (max-width: 900px) { [data-view=meanings] .both { grid-template-columns: minmax(0, 1fr); } [data-view=meanings] .lines { max-height: 240px; min-height: 0; } }
`;

const FIRST = {
  en: { word: "Python", sentences: ["He got bit by Python in the grass", "Python is my favorite programming language"] },
  zh: { word: "苹果", sentences: ["我每天早上吃一个苹果。", "苹果发布了新款手机。"] },
};
const LAST = 1000, SECONDS = 6;

export function view(app) {
  const { t, state, set } = app;
  const word = h("input", { class: "field word", spellcheck: "false", autocomplete: "off", on: { input: () => typed(), keydown: event => event.key === "Enter" && typed.now() } });
  const slider = h("input", { type: "range", min: 0, max: LAST, step: 1, on: { input: () => { if (run) halt(); moved(slider.value / LAST); }, change: () => kept(), keydown: stepped } });
  const playing = h("button", { type: "button", class: "quiet", on: { click: () => (playingOn ? halt() : play()) } });
  const edit = h("button", { type: "button", class: "quiet", on: { click: () => edited() } });
  const area = h("textarea", { class: "field", rows: 12, spellcheck: "false", on: { input: () => typed() } });
  const lines = h("ol", { class: "lines" }), planes = h("div", { class: "planes" }), caption = h("p", { class: "caption" });
  const labels = { word: h("span", { class: "label" }), depth: h("span", { class: "label" }), low: h("span", { class: "label" }), high: h("span", { class: "label" }) };
  const list = h("div", { class: "stack" }, lines, edit), along = course(app);
  const root = h("section", {}, h("div", { class: "top" }, h("label", {}, h("div", {}, labels.word), word), h("div", { class: "depth" }, labels.low, slider, labels.high, playing)),
    h("div", { class: "both" }, list, h("div", {}, planes, caption, along.root)));
  const plots = new Map(); // index of a subject → its plot
  let depth = 1, hot = null, pinned = null, colours = new Map(), sentences = [], run = 0, editing = false, drawnKey = "", turn = 0, playingOn = false, goal = 1;

  const subjects = () => app.room.subjects.filter(one => app.has("meanings", one));
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
    editing = !editing;
    if (editing) area.value = sentences.join("\n");
    else typed.now();
    clear(list, editing ? area : lines, edit);
    worded();
    if (editing) area.focus();
  }

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
    else if (event.key.startsWith("Arrow") && root.isConnected && !event.target.closest?.("details")) stepped(event);
  }

  const hear = {
    hover: key => { hot = key; drawSoon(); },
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
    caption.textContent = t("caption");
  }

  // A sentence with the word in the colour of its point, wherever it stands.
  function lined() {
    const shown = reference(), found = shown?.reply.head.occurrences ?? [];
    clear(lines, sentences.map((sentence, number) => {
      const here = found.filter(one => one.sentence === number), parts = [];
      let end = 0;
      for (const one of here) {
        parts.push(sliced(sentence, end, one.start), h("b", { style: { "--own": hue(colours.get(keyOf(one)) ?? 0) } }, sliced(sentence, one.start, one.end)));
        end = one.end;
      }
      parts.push(sliced(sentence, end));
      const key = here.length ? keyOf(here[0]) : null, without = shown?.reply.head.without.includes(number);
      const pin = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); hear.pin(key); } };
      const heard = key ? { pointerenter: () => hear.hover(key), pointerleave: () => hear.hover(null), focus: () => hear.hover(key), blur: () => hear.hover(null), click: () => hear.pin(key), keydown: pin } : {};
      const go = app.has("attention") && h("button", { type: "button", class: "quiet go", title: t("go.title"), on: { click: event => { event.stopPropagation(); set({ view: "attention", text: sentence, pair: "", chosen: null, token: null }); }, keydown: event => event.stopPropagation() } }, t("go"));
      const mark = h("span", { class: "mark", style: { background: key ? hue(colours.get(key) ?? 0) : "var(--faint)" } }, number + 1);
      return h("li", { class: without ? "without" : "", tabindex: key ? "0" : null, on: heard, data: { key: key ?? "" } }, mark,
        h("span", {}, parts, without && h("span", { class: "note" }, "  " + t("without", { word: own().word }))), go);
    }));
  }

  // Who gives the colours: the chosen model, if its points are a cloud, else the first that has one.
  function reference() {
    const ready = [plots.get(state.model), ...plots.values()].filter(one => one?.reply);
    return ready.find(one => !one.reply.head.one_point) ?? ready[0];
  }

  function draw() {
    const shown = hot ?? pinned ?? lines.querySelector("[data-key]:not([data-key=''])")?.dataset.key ?? null;
    for (const one of plots.values()) one.draw(depth, shown, sentences, hot ?? pinned);
    along.draw(subjects().map(one => ({ title: one.title, reply: plots.get(one.index)?.reply })), depth, hear);
    caption.hidden = !reference();
    for (const line of lines.children) line.classList.toggle("hot", line.dataset.key !== "" && line.dataset.key === shown);
  }

  async function load() {
    const wanted = own(), all = subjects();
    sentences = wanted.sentences ?? [];
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
      if (reply instanceof Error) plots.get(one.index).refuse([app.refusal(reply), reply.about?.near && h("p", { class: "note" }, t("near", reply.about))]);
      else plots.get(one.index).fill(reply, colours);
    }
    lined();
    draw();
  }

  async function show(changed) {
    if (changed && [...changed].every(name => name === "token" || name === "chosen" || name === "text" || name === "pair")) return;
    const wanted = own(), key = JSON.stringify([wanted.word, wanted.sentences, state.lang, state.theme, state.model, document.documentElement.dataset.theme]);
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
      parts.push(svgText(24, down, number + 1, { size: 12, weight: 650, fill: one ? hue(colours.get(keyOf(one)) ?? 0) : colour("faint") }), svgText(50, down, clip(sentence, /[\u3400-\u9fff]/.test(sentence) ? 20 : 44), { size: 13.5 }));
      down += 23;
    });
    const shown = hot ?? pinned ?? lines.querySelector("[data-key]:not([data-key=''])")?.dataset.key ?? null;
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

  return { root, show, hide: () => { cancelAnimationFrame(run); run = 0; playingOn = false; removeEventListener("keydown", pressed); }, svg, numbers };
}
