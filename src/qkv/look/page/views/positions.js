// Positions: the tables that tell a token where it stands (positions_tables.js), and what becomes of the vectors of words
// when their order changes (positions_order.js). Here: the two texts, the questions, the page's two halves.

import { clear, debounced, h } from "look/dom.js";
import { svgOf, svgText } from "look/draw.js";
import { aborted, Refusal } from "look/wire.js";
import { order } from "look/views/positions_order.js";
import { tables } from "look/views/positions_tables.js";

export { css } from "look/views/positions_style.js";
export { words } from "look/views/positions_words.js";
export const id = "positions";
export const inputs = [];
export const keys = [["← ↑ → ↓", "key.arrows"]];

const FIRST = { en: { text: "the dog bites the man", other: "the man bites the dog" }, zh: { text: "他欠我100万", other: "我欠他100万" } };

export function view(app) {
  const { t, state, set } = app;
  const above = tables(app), below = order(app);
  const fields = Object.fromEntries(["text", "other"].map(name => [name,
    h("input",
      {
        class: "field", spellcheck: "false", autocomplete: "off",
        on: { input: () => typed(), keydown: event => { if (event.key === "Enter") typed.now(); if (event.key === "Escape") event.target.blur(); } }
      })]));
  const labels = { text: h("span", { class: "label" }), other: h("span", { class: "label" }) }, heading = h("h2"), title = h("h2");
  const swap = h("button",
    { type: "button", class: "quiet", on: { click: () => set({ positions: { text: own().other, other: own().text } }) } });
  const go = h("button", {
    type: "button", class: "quiet",
    on: { click: () => set({ view: "attention", text: own().text, pair: "", chosen: null, token: null, word: below.word() }) }
  });
  const root = h("section", {}, title, above.root,
    h("section", { class: "order" }, heading,
      h("div", { class: "writing-two" }, h("label", {}, labels.text, fields.text), swap, h("label", {}, labels.other, fields.other), go),
      below.root));
  const typed = debounced(() => set({ positions: { text: fields.text.value, other: fields.other.value } }), 350);
  let drawnTables = "", drawnOrder = "", turn = 0;

  const own = () => {
    const list = app.examples(), first = (list.find(one => one.lang === state.lang) ?? list[0])?.set?.positions ?? FIRST[state.lang];
    return {
      text: String(state.positions?.text ?? first.text), other: String(state.positions?.other ?? first.other)
    }; // an address may say anything
  };

  function worded() {
    title.textContent = t("title");
    heading.textContent = t("order");
    swap.textContent = t("swap");
    go.textContent = t("go");
    go.hidden = !app.has("attention");
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
    if (changed && [...changed].every(name => ["token", "word", "chosen", "text", "pair"].includes(name))) return;
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
    return svgOf(one.width + 48, 64 + one.height + 60 + two.height + 24,
      svgText(24, 38, t("title"), { size: 18, weight: 620 }) + one.text + svgText(24, 64 + one.height + 34, t("order"),
        { size: 16, weight: 620 }) + two.text,
      t("title"));
  }

  return { root, show, hide: () => typed.drop(), svg, numbers: () => ({ ...above.numbers(), order: below.numbers() }) };
}
