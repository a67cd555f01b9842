// How the answers of the four tasks are drawn, each from one reply: bars of classes and choices, entities over their
// characters, start and end under every token of a passage. Asks nothing and keeps nothing.
//
//   drawnBy[task](reply, question, t) → elements
// Characters are counted as Python counts them, by code points.

import { clip, h } from "look/dom.js";
import { hue } from "look/draw.js";
import { number, percent } from "look/words.js";

const FEW = 24; // classes or entities that are listed before somebody asks for all
const MOST_ENTITIES = 1200; // that are marked in a text; of the others it is said how many there are
const MOST_TOKENS = 2500; // of a passage that are drawn; the others are part of the answer and said to be
const LONGEST = 40; // characters of an answer in the list
const START = 1, END = 0; // the hues of the two strips

export const drawnBy = { classify: classified, tag: tagged, answer: answered, choice: chosen };

const languageOf = text => (/\p{Script=Han}/u.test(text) ? "zh-CN" : "en");
const signed = value => (value < 0 ? "−" : "") + number(Math.abs(value), 2);

// A verdict in large type, and what stands behind it.
function verdict(said, chance, note, extra = "") {
  return h("div", { class: `tasks-verdict ${extra}` }, h("span", { class: "tasks-said", lang: languageOf(said) }, said),
    chance && h("span", { class: "tasks-chance" }, chance), note && h("span", { class: "tasks-note" }, note));
}

function unsure(head, t) {
  const from = head.calibration.abstain_below;
  return from === null ? null : h("p", { class: "caption" }, t(from > 1 ? "never" : head.abstained ? "abstained" : "sure", { from: percent(from) }));
}

const bar = (part, mark) => h("span", { class: "tasks-bar" }, h("span", { class: "bar-line" }, h("i", { style: { "--part": part } })), mark);

// One line of weighed things: its name, its score, a bar, its probability, and where it would have to reach.
function weighed(name, score, probability, { said = false, from = null, hint = "" } = {}) {
  return h("div", { class: `tasks-line${said ? " said" : ""}`, role: "listitem" },
    h("span", { class: "what", lang: languageOf(name) }, name), h("span", { class: "num soft score" }, signed(score)),
    bar(probability, from !== null && from <= 1 && h("span", { class: "tasks-from", title: hint, style: { left: `${100 * from}%` } })),
    h("span", { class: "num chance" }, percent(probability)));
}

function heading(t, temperature, kind) {
  return h("div", { class: "tasks-line head", "aria-hidden": "true" },
    h("span", { class: "what" }, t(kind === "choice" ? "choice" : "label")), h("span", { class: "num score" }, t("score")),
    h("span", {}, t(kind === "multi" ? "sigmoid" : "softmax", { temperature: number(temperature, 2) })),
    h("span", { class: "num chance" }, t("probability")));
}

// Some lines, and the others when they are asked for.
function listed(all, line, t) {
  const list = h("div", { class: "tasks-list", role: "list" }, all.slice(0, FEW).map(line));
  const rest = () => {
    more.remove();
    list.append(...all.slice(FEW).map((one, at) => line(one, at + FEW)));
  };
  const more = all.length > FEW && h("button", { type: "button", class: "quiet", on: { click: rest } }, t("more", { n: all.length - FEW }));
  return [list, more];
}

function classified({ head, arrays }, question, t) {
  if (head.value !== undefined) return [verdict(number(head.value, 3), "", t("value"))];
  const { temperature, thresholds, abstain_below: below } = head.calibration;
  const several = head.kind === "multi", said = head.classes.filter(one => one.said);
  const line = (one, at) => weighed(one.label, arrays.scores.data[at], arrays.probabilities.data[at], {
    said: one.said, from: several ? thresholds[one.label] ?? 0.5 : at === 0 ? below : null, hint: t("threshold"),
  });
  return [
    several ? verdict(said.map(one => one.label).join(", ") || t("none.said"), "", "")
      : verdict(said[0].label, percent(said[0].probability), "", head.abstained ? "unsure" : ""),
    heading(t, temperature, head.kind), listed(head.classes, line, t), !several && unsure(head, t),
    h("p", { class: "caption" }, t(head.n_windows > 1 ? "read.windows" : "read", { tokens: head.n_tokens, windows: head.n_windows })),
  ];
}

function tagged({ head }, { text }, t) {
  const characters = [...text], parts = [], mine = label => hue(head.labels.indexOf(label));
  const drawn = head.entities.slice(0, MOST_ENTITIES), left = head.entities.length - drawn.length;
  let at = 0;
  for (const one of drawn) {
    parts.push(characters.slice(at, one.start).join(""));
    parts.push(h("span", {
      class: `tasks-entity${one.abstained ? " unsure" : ""}`, data: { start: one.start, end: one.end, label: one.label },
      style: { "--mine": mine(one.label) }, title: `${one.label}  ${percent(one.probability)}`,
    }, h("span", { class: "what" }, characters.slice(one.start, one.end).join("")), h("span", { class: "kind" }, one.label)));
    at = one.end;
  }
  parts.push(characters.slice(at).join(""));
  const row = one => h("div", {
    class: `tasks-line entity${one.abstained ? " unsure" : ""}`, role: "listitem", style: { "--bar": mine(one.label), "--mine": mine(one.label) },
  },
    h("span", { class: "what", lang: languageOf(one.text) }, one.text), h("span", { class: "kind" }, one.label),
    bar(one.probability), h("span", { class: "num chance" }, percent(one.probability)));
  return [
    h("p", { class: "tasks-text", lang: languageOf(text) }, parts),
    left > 0 && h("p", { class: "note" }, t("entities.left", { n: left, drawn: drawn.length })),
    h("div", { class: "legend" }, head.labels.map(label => h("span", { class: "tasks-key", style: { "--mine": mine(label) } }, label))),
    drawn.length ? listed(drawn, row, t) : h("p", { class: "note" }, t("no.entities")),
    h("p", { class: "caption" }, t("whole", { chance: percent(head.probability) })),
    drawn.some(one => one.abstained) && h("p", { class: "caption" },
      head.calibration.abstain_below > 1 ? t("never") : t("abstained.some", { from: percent(head.calibration.abstain_below) })),
  ];
}

function answered({ head, arrays }, { text }, t) {
  const { answer, nothing } = head, said = answer.text !== "";
  const spans = [
    ...head.spans.slice(0, 5).map(one => ({
      name: one.text, probability: one.probability, said: said && one.start === answer.start && one.end === answer.end,
    })),
    ...(nothing ? [{ name: t("nothing"), probability: nothing.probability, said: !said, silent: true }] : []),
  ].sort((a, b) => b.probability - a.probability);
  return [
    verdict(said ? answer.text : t("nothing"), percent(answer.probability), "", answer.abstained ? "unsure" : ""),
    passage(arrays, text, said ? answer : null, nothing, t),
    h("h3", { class: "tasks-heading" }, t("spans")),
    h("div", { class: "tasks-list", role: "list" }, spans.map(one => h("div", {
      class: `tasks-line span${one.said ? " said" : ""}${one.silent ? " silent" : ""}`, role: "listitem",
    },
      h("span", { class: "what", lang: languageOf(one.name), title: one.name }, clip(one.name, LONGEST)),
      bar(one.probability), h("span", { class: "num chance" }, percent(one.probability))))),
    h("p", { class: "caption" }, t("strips.note", { temperature: number(head.calibration.temperature, 2) }), " ",
      head.n_windows > 1 ? t("windows", { windows: head.n_windows }) : ""),
  ];
}

// Every token over its two strips; a pointer or a focus on one tells both numbers.
function passage(arrays, text, answer, nothing, t) {
  const characters = [...text], tokens = arrays.tokens.data, n = arrays.tokens.shape[0];
  const start = arrays.start.data, end = arrays.end.data;
  const largest = values => values.reduce((best, value, at) => (value > values[best] ? at : best), 0);
  const [first, last] = drawnRange(tokens, n, answer);
  const bestStart = largest(start), bestEnd = largest(end);
  const word = at => characters.slice(tokens[2 * at], tokens[2 * at + 1]).join("");
  const readout = h("span", { class: "tasks-readout", "aria-live": "polite" });
  const told = at => {
    readout.replaceChildren();
    const sides = at === null ? [["start.best", bestStart, start, START], ["end.best", bestEnd, end, END]]
      : [["start.at", at, start, START], ["end.at", at, end, END]];
    for (const [key, place, chances, side] of sides) {
      const said = t(key, { word: word(place), chance: percent(chances[place]) });
      readout.append(h("span", { class: "tasks-key", style: { "--mine": hue(side) } }, said));
    }
    if (!nothing || at !== null) return;
    readout.append(h("span", { class: "soft" }, t("cls", { start: percent(nothing.start), end: percent(nothing.end) })));
  };
  const parts = [];
  let at = first > 0 ? tokens[2 * first] : 0;
  const inside = place => answer && tokens[2 * place] < answer.end && answer.start < tokens[2 * place + 1];
  for (let place = first; place < last; place += 1) {
    const [a, b] = [tokens[2 * place], tokens[2 * place + 1]];
    const between = characters.slice(at, a).join("");
    if (between) parts.push(inside(place) && inside(place - 1) ? h("span", { class: "inside" }, between) : between);
    parts.push(h("span", { class: `tasks-token${inside(place) ? " inside" : ""}`, data: { token: place } },
      characters.slice(Math.max(at, a), b).join(""), strip("start", start[place], START), strip("end", end[place], END)));
    at = Math.max(at, b);
  }
  parts.push(characters.slice(at, last < n ? at : characters.length).join(""));
  const shown = h("p", { class: "tasks-passage", lang: languageOf(text), tabindex: "0", "aria-label": t("passage.keys") },
    first > 0 && "… ", parts, last < n && " …");
  let held = null;
  const under = event => event.target.closest?.("[data-token]");
  const marked = one => {
    shown.querySelector(".on")?.classList.remove("on");
    one?.classList.add("on");
    told(one ? Number(one.dataset.token) : null);
  };
  shown.addEventListener("pointerover", event => marked(under(event) ?? held));
  shown.addEventListener("pointerleave", () => marked(held));
  shown.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") { held = null; marked(null); }
    if (!step) return;
    event.preventDefault();
    const from = held ? Number(held.dataset.token) : bestStart - step;
    held = shown.querySelector(`[data-token="${Math.min(last - 1, Math.max(first, from + step))}"]`);
    marked(held);
  });
  told(null);
  return h("div", { class: "tasks-figure" }, readout, shown, (first > 0 || last < n) && h("p", { class: "note" }, t("part", { from: first + 1, to: last, n })));
}

function strip(side, chance, shade) {
  const part = (100 * Math.max(chance ** 0.45, 0.1)).toFixed(1); // faint ones are lifted, and nothing is still a strip
  return h("i", { class: side, style: { background: `color-mix(in srgb, ${hue(shade)} ${part}%, transparent)` } });
}

// Which tokens are drawn of a long passage: those around the answer.
function drawnRange(tokens, n, answer) {
  if (n <= MOST_TOKENS) return [0, n];
  let middle = 0;
  while (answer && middle < n - 1 && tokens[2 * middle + 1] <= answer.start) middle += 1;
  const first = Math.max(0, Math.min(n - MOST_TOKENS, middle - MOST_TOKENS / 2));
  return [first, first + MOST_TOKENS];
}

function chosen({ head, arrays }, question, t) {
  const best = head.choices.find(one => one.said);
  return [
    verdict(best.text, percent(best.probability), "", head.abstained ? "unsure" : ""),
    heading(t, head.calibration.temperature, "choice"),
    h("div", { class: "tasks-list", role: "list" }, head.choices.map((one, at) => weighed(
      one.text, arrays.scores.data[at], arrays.probabilities.data[at],
      { said: one.said, from: one.said ? head.calibration.abstain_below : null, hint: t("threshold") },
    ))),
    unsure(head, t),
  ];
}
