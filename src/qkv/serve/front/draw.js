// Replies as pictures, one function a task: bars, marked texts, a heat map. Asks nothing and keeps nothing.
//
//   draw[task](data, values, info) → elements      data: the JSON of the reply
//   writing(prompt) → {root, add(piece)}           a text that is being written
//   shortened(data) → string                       the reply as JSON; of long lists of numbers only the beginning

import { json, Raw } from "./code.js";
import { h, languageOf, letters } from "./dom.js";
import { number, percent, t } from "./state.js";

const HUES = 12;
const LONGEST_LIST = 8; // numbers of a vector that are shown

export const draw = {
  "text-classification": classes,
  "token-classification": entities,
  "question-answering": answer,
  "multiple-choice": choices,
  "fill-mask": blanks,
  similarity: heat,
  rerank: ranked,
  translation: translated,
};

const hueOf = (label, labels) => `var(--hue-${Math.max(0, labels.indexOf(label)) % HUES})`;
const signed = (value, digits) => value.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−"); // no minus before 0.00
const unsure = () => h("p", { class: "unsure-note" }, h("strong", {}, t("abstained")), " ", t("abstained.note"));

function verdict(said, chance, isUnsure = false) {
  return h("div", { class: `verdict${isUnsure ? " unsure" : ""}` }, h("span", { class: "said", lang: languageOf(said) }, said),
    chance !== null && h("span", { class: "chance" }, chance));
}

function bar(name, part, said, { first = false, hue, note } = {}) {
  return h("li", { class: `weighed${first ? " first" : ""}`, style: hue ? { "--bar": hue } : {} },
    h("span", { class: "what", lang: languageOf(name) }, name, note && h("small", {}, note)),
    h("span", { class: "bar" }, h("i", { style: { "--part": Math.max(0, Math.min(1, part)) } })),
    h("span", { class: "num" }, said));
}

const list = lines => h("ol", { class: "weights" }, lines);

function classes(data, values, info) {
  const rows = Array.isArray(data[0]) ? data[0] : data;
  if (info.kind === "regression") return [verdict(number(rows[0].score, 3), t("value"))];
  const isMulti = info.kind === "multi", best = rows[0];
  const said = isMulti ? rows.filter(one => one.predicted).map(one => one.label) : [best.label];
  return [
    verdict(said.join(", ") || t("no.labels"), isMulti ? null : percent(best.score), best.abstained),
    best.abstained && unsure(),
    list(rows.map(one => bar(one.label, one.score, percent(one.score), { first: said.includes(one.label) }))),
  ];
}

function entities(data, { text }) {
  const found = [...(Array.isArray(data[0]) ? data[0] : data)].sort((a, b) => a.start - b.start);
  const labels = [...new Set(found.map(one => one.entity_group ?? one.entity))].sort();
  const named = one => one.entity_group ?? one.entity, characters = letters(text), parts = [];
  let at = 0;
  for (const one of found) {
    parts.push(characters.slice(at, one.start).join(""), h("mark", {
      class: `entity${one.abstained ? " unsure" : ""}`, style: { "--mine": hueOf(named(one), labels) }, title: percent(one.score),
    }, characters.slice(one.start, one.end).join(""), h("small", {}, named(one))));
    at = one.end;
  }
  parts.push(characters.slice(at).join(""));
  return [
    h("p", { class: "marked entities", lang: languageOf(text) }, parts),
    found.length ? list(found.map(one => bar(one.word, one.score, percent(one.score), { hue: hueOf(named(one), labels), note: named(one) })))
      : h("p", { class: "note" }, t("no.entities")),
    found.some(one => one.abstained) && h("p", { class: "note" }, t("abstained.some")),
  ];
}

function answer(data, { context }) {
  const best = Array.isArray(data) ? data[0] : data, characters = letters(context);
  const found = best.answer !== "" && best.end > best.start;
  const cut = (from, to) => characters.slice(from, to).join("");
  return [
    verdict(found ? best.answer : t("no.answer"), percent(best.score), best.abstained),
    best.abstained && unsure(),
    h("p", { class: "marked", lang: languageOf(context) },
      found ? [cut(0, best.start), h("mark", { class: "answer" }, cut(best.start, best.end)), cut(best.end)] : context),
  ];
}

function choices(data) {
  return [
    verdict(data.choice, percent(data.score), data.abstained), data.abstained && unsure(),
    list(data.choices.map((one, at) => bar(one.text, one.score, percent(one.score), { first: at === data.index }))),
  ];
}

const plain = token => token.replace(/^##/, "").trim(); // a subword joins the word before it

function blanks(data, { text }, info) {
  const groups = Array.isArray(data[0]) ? data : [data], mask = info.mask_token ?? "[MASK]";
  const parts = text.split(mask), filled = [parts[0]];
  for (const [at, group] of groups.entries()) {
    filled.push(h("mark", { class: "answer" }, plain(group[0]?.token_str ?? mask)), parts[at + 1] ?? "");
  }
  return [
    h("p", { class: "marked large", lang: languageOf(text) }, filled),
    groups.map((group, at) => [
      groups.length > 1 && h("h3", {}, t("fill.blank", { n: at + 1 })),
      list(group.map((one, place) => bar(one.token_str, one.score, percent(one.score), { first: place === 0 }))),
    ]),
  ];
}

// Vectors of unit length: the products are cosines.
function heat(data, { sentences }) {
  const lines = sentences.map(line => line.trim()).filter(Boolean);
  const cosine = (a, b) => data[a].reduce((sum, value, at) => sum + value * data[b][at], 0);
  const rows = lines.map((line, row) => h("tr", {},
    h("th", { scope: "row", lang: languageOf(line) }, h("b", {}, row + 1), h("span", {}, line)),
    lines.map((other, column) => {
      const value = cosine(row, column), part = Math.max(0, value) ** 1.6;
      return h("td", { class: part > 0.45 ? "deep" : "", style: { "--part": `${(100 * part).toFixed(1)}%` }, title: `${line}\n${other}` }, signed(value, 2));
    })));
  return [
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": t("task.similarity") },
      h("table", { class: "heat" }, h("thead", {}, h("tr", {}, h("td", {}), lines.map((_, at) => h("th", { scope: "col" }, at + 1)))), h("tbody", {}, rows))),
    h("p", { class: "note" }, t("similarity.note", { dims: number(data[0].length) })),
  ];
}

function ranked(data, { documents }) {
  const lines = documents.map(line => line.trim()).filter(Boolean);
  const scores = data.results.map(one => one.relevance_score), low = Math.min(0, ...scores), high = Math.max(1e-9, ...scores);
  return [
    h("ol", { class: "ranked" }, data.results.map((one, at) => h("li", { class: at === 0 ? "first" : "" },
      h("b", { title: t("rerank.was", { n: one.index + 1 }) }, one.index + 1),
      h("span", { class: "what", lang: languageOf(lines[one.index]) }, lines[one.index]),
      h("span", { class: "bar" }, h("i", { style: { "--part": (one.relevance_score - low) / Math.max(1, high - low) } })),
      h("span", { class: "num" }, signed(one.relevance_score, 3))))),
    h("p", { class: "note" }, t("rerank.note")),
  ];
}

function translated(data) {
  const rows = Array.isArray(data) ? data : [data];
  return rows.map((one, at) => h("p", { class: at ? "translation other" : "translation", lang: languageOf(one.translation_text) }, one.translation_text));
}

export function writing(prompt) {
  const made = h("span", { class: "made" });
  const root = h("p", { class: "written", lang: languageOf(prompt), "aria-live": "off" }, h("span", { class: "given" }, prompt), made, h("i", { class: "caret" }));
  return { root, add: piece => made.append(piece), done: () => root.classList.add("done") };
}

export function shortened(data) {
  const cut = value => {
    if (value === null || typeof value !== "object") return value;
    if (!Array.isArray(value)) return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, cut(one)]));
    if (value.length <= LONGEST_LIST || !value.every(one => typeof one === "number")) return value.map(cut);
    return new Raw(`[${value.slice(0, LONGEST_LIST).join(", ")}, … ${number(value.length - LONGEST_LIST)}]`);
  };
  return json(cut(data));
}
