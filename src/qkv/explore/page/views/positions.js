// Positions: the tables that tell a token where it stands (positions_tables.js), and what becomes of the vectors of words
// when their order changes (positions_order.js). Here: the two texts, the questions, the page's two halves.

import { clear, debounced, h } from "look/dom.js";
import { svgOf, svgText } from "look/draw.js";
import { aborted, Refusal } from "look/wire.js";
import { order } from "look/views/positions_order.js";
import { tables } from "look/views/positions_tables.js";

export const id = "positions";
export const inputs = [];
export const keys = [["← ↑ → ↓", "key.arrows"]];

export const words = {
  en: {
    "title": "Where a word stands", "waves": "Waves (Transformer)", "likeness": "How alike positions are", "own.learned": "Learned by {model}", "own.interleaved": "Waves of {model}", "own.halved": "Waves of {model}, sines first",
    "axis.table": "position 0 – {rows} ↓   dimension 0 – {columns} →", "axis.likeness": "cosine of any two positions", "first": "   (the first {rows} of {of})",
    "own.none": "{model} has no table of positions: it reads one word after the other, and so knows their order.", "own.bag": "{model} has no table of positions, and no order: a text is a bag of words to it.",
    "alike": "cosine of positions {one} and {two}:", "apart": "{n} apart", "learned.note": "learned in training, by no formula", "wavelength": "one wave in {n} positions",
    "dimension": "Dimension {column} at every position", "near.position": "How alike position {row} is to the others (cosine)", "position": "position {n}",
    "order": "The same words in another order", "text": "One order", "other": "Another order", "swap": "Exchange", "chart": "How far each word’s vector moves (1 − cosine)", "by.layer": "after layer",
    "unknown": "Not in its vocabulary, and left out: {words}", "bag": "Bag of words", "bag.same": "both texts are the same", "bag.other": "the two texts have other words", "without": "Attention without positions", "without.same": "cannot tell them apart either",
    "without.causal": "looking to the left alone gives some order", "below": "embeddings", "with": "{model}, after layer {layer}", "with.below": "{model}, embeddings", "with.most": "“{word}” moves most", "key.arrows": "in a map: position and dimension; in the chart: layer",
    "refusal.no_common_words": "The two texts have no word in common: nothing can be compared.", "refusal.empty": "Write the same words in two orders.",
    "refusal.no_vectors": "{model} shows no vectors of words (kind {kind}).", "refusal.no_vector": "None of these words has a vector here.",
  },
  zh: {
    "title": "词的位置", "waves": "正弦位置编码（Transformer）", "likeness": "位置之间的相似度", "own.learned": "{model} 学到的位置嵌入", "own.interleaved": "{model} 的正弦编码", "own.halved": "{model} 的正弦编码（先正弦后余弦）",
    "axis.table": "↓ 位置 0 – {rows}   → 维度 0 – {columns}", "axis.likeness": "任意两个位置的余弦", "first": "   （{of} 个中的前 {rows} 个）",
    "own.none": "{model} 没有位置编码：它一个词一个词地读，自然知道顺序。", "own.bag": "{model} 没有位置编码，也不管顺序：在它看来，一句话就是一袋词。",
    "alike": "位置 {one} 与位置 {two} 的余弦：", "apart": "相距 {n}", "learned.note": "训练中学到，没有公式", "wavelength": "每 {n} 个位置一个周期",
    "dimension": "第 {column} 维在各个位置的取值", "near.position": "位置 {row} 与其他位置的相似度（余弦）", "position": "位置 {n}",
    "order": "同样的词，换个顺序", "text": "一种顺序", "other": "另一种顺序", "swap": "对调", "chart": "每个词的向量变了多少（1 − 余弦）", "by.layer": "第几层之后",
    "unknown": "不在它的词表里，没有计入：{words}", "bag": "词袋", "bag.same": "两句话完全一样", "bag.other": "两句话用词不同", "without": "去掉位置的注意力", "without.same": "同样分不出两句话",
    "without.causal": "只看左边，仍留下一些顺序", "below": "嵌入层", "with": "{model} 第 {layer} 层之后", "with.below": "{model} 嵌入层", "with.most": "“{word}”变化最大", "key.arrows": "图中：位置与维度；曲线中：层",
    "refusal.no_common_words": "两句话没有相同的词，无从比较。", "refusal.empty": "请用同样的词写出两种顺序。",
    "refusal.no_vectors": "{model} 不显示词的向量（类型：{kind}）。", "refusal.no_vector": "这些词在这里都没有向量。",
  },
};

export const css = `
[data-view=positions] h2 { margin: 0 0 14px; }
[data-view=positions] .maps { display: flex; flex-wrap: wrap; gap: 22px 30px; }
[data-view=positions] figcaption { font-size: 13.5px; font-weight: 600; color: var(--soft); margin-bottom: 7px; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
[data-view=positions] .map { overflow: visible; }
[data-view=positions] .box { position: relative; cursor: crosshair; background: var(--panel); touch-action: none; } [data-view=positions] .box canvas { display: block; }
[data-view=positions] .over { position: absolute; inset: 0; width: 100%; height: 100%; pointer-events: none; overflow: hidden; } [data-view=positions] .cross { stroke: var(--ink); stroke-opacity: .55; fill: none; stroke-width: 1; }
[data-view=positions] .axis { font-size: 12px; margin-top: 6px; white-space: nowrap; }
[data-view=positions] .none { flex: 1 1 240px; max-width: 44ch; align-self: center; font-size: 15px; }
[data-view=positions] .formula { font: 17px/1.5 var(--serif); margin: 14px 0 10px; min-height: 30px; white-space: pre-wrap; } [data-view=positions] .formula sup { font-size: .68em; line-height: 0; } [data-view=positions] .formula b { color: var(--accent); font-weight: 620; } [data-view=positions] .formula .faint { font: 13.5px var(--sans); }
[data-view=positions] .charts { display: grid; grid-template-columns: 1fr 1fr; gap: 30px; }
[data-view=positions] .curve { fill: none; stroke: var(--accent); stroke-width: 1.6; stroke-linejoin: round; } [data-view=positions] .zero { stroke: var(--rule); fill: none; } [data-view=positions] .spot { fill: var(--hot); }
[data-view=positions] .tick { font: 11.5px var(--sans); fill: var(--faint); font-variant-numeric: tabular-nums; }
[data-view=positions] .order { margin-top: 38px; }
[data-view=positions] .writing-two { display: flex; flex-wrap: wrap; align-items: end; gap: 10px 22px; margin-bottom: 20px; } [data-view=positions] .writing-two label { flex: 1 1 260px; } [data-view=positions] .writing-two input { width: 100%; font: 19px/1.5 var(--serif); }
[data-view=positions] .order-both { display: grid; grid-template-columns: minmax(0, 5fr) minmax(0, 6fr); gap: 44px; align-items: start; }
[data-view=positions] .joined { margin-bottom: 18px; } [data-view=positions] .joined svg, [data-view=positions] .chart svg { display: block; max-width: 100%; }
[data-view=positions] .tie { fill: none; stroke-opacity: .55; transition: opacity .15s; } [data-view=positions] .said { font-family: var(--serif); cursor: default; transition: opacity .15s; } [data-view=positions] .off { opacity: .16; }
[data-view=positions] .course { fill: none; stroke-width: 1.8; stroke-linejoin: round; transition: opacity .15s; } [data-view=positions] .course.without { stroke-dasharray: 2 4; stroke-width: 1.4; } [data-view=positions] .here { stroke: var(--faint); stroke-dasharray: 1 3; fill: none; }
[data-view=positions] text.name { font: 14px var(--serif); cursor: default; }
[data-view=positions] .verdict { display: grid; grid-template-columns: 12em 42px 60px 1fr; gap: 10px; align-items: center; padding: 4px 0; font-size: 13.5px; } [data-view=positions] .verdict .name { color: var(--soft); }
@media (max-width: 1180px) { [data-view=positions] .order-both { grid-template-columns: minmax(0, 1fr); } }
@media (max-width: 830px) { [data-view=positions] .charts { grid-template-columns: minmax(0, 1fr); } }
`;

const FIRST = { en: { text: "the dog bites the man", other: "the man bites the dog" }, zh: { text: "他欠我100万", other: "我欠他100万" } };

export function view(app) {
  const { t, state, set } = app;
  const above = tables(app), below = order(app);
  const fields = Object.fromEntries(["text", "other"].map(name => [name, h("input", { class: "field", spellcheck: "false", autocomplete: "off", on: { input: () => typed(), keydown: event => event.key === "Enter" && typed.now() } })]));
  const labels = { text: h("span", { class: "label" }), other: h("span", { class: "label" }) }, heading = h("h2"), title = h("h2");
  const swap = h("button", { type: "button", class: "quiet", on: { click: () => set({ positions: { text: own().other, other: own().text } }) } });
  const root = h("section", {}, title, above.root,
    h("section", { class: "order" }, heading, h("div", { class: "writing-two" }, h("label", {}, labels.text, fields.text), swap, h("label", {}, labels.other, fields.other)), below.root));
  const typed = debounced(() => set({ positions: { text: fields.text.value, other: fields.other.value } }), 350);
  let drawnTables = "", drawnOrder = "", turn = 0;

  const own = () => {
    const list = app.examples(), first = (list.find(one => one.lang === state.lang) ?? list[0])?.set?.positions ?? FIRST[state.lang];
    return { text: String(state.positions?.text ?? first.text), other: String(state.positions?.other ?? first.other) }; // an address may say anything
  };

  function worded() {
    title.textContent = t("title");
    heading.textContent = t("order");
    swap.textContent = t("swap");
    for (const name of ["text", "other"]) {
      labels[name].textContent = t(name);
      fields[name].setAttribute("aria-label", t(name));
      if (document.activeElement !== fields[name]) fields[name].value = own()[name];
    }
  }

  async function ordered() {
    const { text, other } = own(), key = JSON.stringify([state.model, text, other]);
    if (key === drawnOrder) return below.draw();
    const mine = (turn += 1);
    try {
      if (!text.trim() || !other.trim()) throw new Refusal("empty");
      const found = await app.ask("order", { text, other });
      if (mine !== turn) return undefined; // something else was asked since
      drawnOrder = key;
      below.fill(found, text, other);
    } catch (error) {
      if (aborted(error)) throw error;
      if (mine !== turn) return undefined;
      drawnOrder = "";
      below.refuse(app.refusal(error));
    }
    return undefined;
  }

  async function show(changed) {
    if (changed && [...changed].every(name => ["token", "chosen", "text", "pair"].includes(name))) return;
    worded();
    const key = String(state.model);
    if (key !== drawnTables) {
      const found = await app.ask("positions", {});
      drawnTables = key;
      above.fill(found);
    } else above.draw();
    await ordered();
  }

  function svg() {
    const one = above.svg(24, 64);
    if (!one.height) return null;
    const two = below.svg(24, 64 + one.height + 60, one.width);
    return svgOf(one.width + 48, 64 + one.height + 60 + two.height + 24, svgText(24, 38, t("title"), { size: 18, weight: 620 }) + one.text + svgText(24, 64 + one.height + 34, t("order"), { size: 16, weight: 620 }) + two.text, t("title"));
  }

  return { root, show, hide: () => typed.drop(), svg, numbers: () => ({ ...above.numbers(), order: below.numbers() }) };
}
