// What can be chosen in the attention view: kind, block of a pair, one head or all, words or pieces, special tokens,
// and how heads are ordered and which of them are left out. Makes the fields and says what was chosen; draws no map.

import { clear, h, s } from "look/dom.js";
import { MEASURES } from "look/views/attention_data.js";

export const KINDS = { bert: ["self"], reader: ["self"], gpt: ["causal"], transformer: ["cross", "encoder", "decoder"], seq2seq: ["cross"] };
export const pairs = subject => ["bert", "reader"].includes(subject?.kind) || (subject?.kind === "gpt" && Boolean(subject.task)); // reads two texts
export const CHOICES = {
  kind: "", block: "all", lines: "one", pieces: "words", special: "shown", order: "none", down: true, low: 0, high: 100, panel: "steps",
};

const ALLOWED = {
  block: ["all", "00", "01", "10", "11"], lines: ["one", "all"], pieces: ["words", "pieces"], special: ["shown", "hidden", "whole"],
  order: ["none", ...MEASURES, "focus"], panel: ["steps", "input", "none"], down: [true, false],
};

// What was chosen, held against what there is: an address may say anything.
export function chosenFrom(own) {
  const chosen = { ...CHOICES };
  for (const [name, value] of Object.entries(own ?? {})) {
    const number = Number.isInteger(value) && value >= 0;
    if (ALLOWED[name]?.includes(value)) chosen[name] = value;
    else if (["low", "high"].includes(name) && number && value <= 100) chosen[name] = value;
    else if (["layer2", "head2"].includes(name) && number) chosen[name] = value;
    else if (name === "kind" && typeof value === "string") chosen.kind = value;
  }
  return chosen;
}

export class Controls {
  constructor(app) {
    this.app = app;
    this.root = h("div", { class: "at-controls row" });
    this.heads = h("div", { class: "at-order" });
  }

  choose(patch) { this.app.set({ attention: patch }); }

  // about: {kinds, kind, pair, pieces (whether any word has several), marks (whether there are special tokens), token, measures, heads}
  draw(chosen, about) {
    const { t } = this.app, held = this.root.contains(document.activeElement) ? document.activeElement.dataset.key : "";
    const group = (name, values, label, title) => h("div", { class: "at-choice" }, h("span", { class: "label" }, label),
      h("div", { class: "segmented", role: "group", "aria-label": label, title }, values.map(([value, text]) => h("button", {
        type: "button", "aria-pressed": String(chosen[name] === value), data: { key: name + value, choice: name, value },
        on: { click: () => this.choose({ [name]: value }) },
      }, text))));
    clear(this.root,
      about.kinds.length > 1 && group("kind", about.kinds.map(kind => [kind, t("kind." + kind)]), t("kind")),
      about.pair && group("block", ["all", "00", "01", "10", "11"].map(block => [block, t("block." + block)]), t("block")),
      about.heads > 1 && group("lines", [["one", t("lines.one")], ["all", t("lines.all")]], t("lines")),
      about.pieces && group("pieces", [["words", t("pieces.words")], ["pieces", t("pieces.pieces")]], t("pieces"), t("pieces.hint")),
      about.marks && group("special", ["shown", "hidden", "whole"].map(value => [value, t("special." + value)]), about.marks));
    if (held) this.root.querySelector(`[data-key="${held}"]`)?.focus();
    this.drawOrder(chosen, about);
  }

  drawOrder(chosen, about) {
    const { t } = this.app, held = this.heads.contains(document.activeElement) ? document.activeElement.dataset.key : "";
    const names = [...new Set(["none", ...about.measures, "focus", chosen.order])];
    const choice = h("select", {
      "aria-label": t("order"), data: { key: "order" }, on: { change: event => this.choose({ order: event.target.value, low: 0, high: 100 }) },
    }, names.map(name => h("option", { value: name, selected: chosen.order === name }, t("order." + name, { token: about.token, marks: about.ends, separator: about.separator }))));
    choice.value = chosen.order;
    const said = t(chosen.down ? "order.down" : "order.up");
    const turn = chosen.order !== "none" && h("button", {
      type: "button", class: "at-zoom", title: said, "aria-label": said, data: { key: "down" }, on: { click: () => this.choose({ down: !chosen.down }) },
    }, chosen.down ? "↓" : "↑");
    clear(this.heads, h("div", { class: "row at-order-line" }, h("span", { class: "label" }, t("order")), choice, turn),
      chosen.order !== "none" && this.range(chosen, about));
    if (held) this.heads.querySelector(`[data-key="${held}"]`)?.focus();
  }

  // Every head as a dot on the measure's axis, and two handles: heads outside them fade.
  range(chosen, about) {
    const { t } = this.app, values = about.measure;
    const dots = s("svg", { class: "at-dots", "aria-hidden": "true" },
      s("line", { x1: 0, x2: "100%", y1: 23.5, y2: 23.5, stroke: "currentColor", "stroke-opacity": 0.2 }),
      Array.from(values, (value, flat) => s("circle", {
        cx: `${2 + 96 * value}%`, cy: 4 + 14 * ((flat * 0.381966) % 1), r: 2.1, fill: about.colour(flat % about.heads),
        "fill-opacity": value * 100 >= chosen.low - 0.5 && value * 100 <= chosen.high + 0.5 ? 0.85 : 0.15,
      })));
    const handle = name => h("input", {
      type: "range", min: "0", max: "100", value: String(chosen[name]), "aria-label": t("range." + name), data: { key: name },
      on: { input: event => {
        const value = Number(event.target.value);
        this.choose(name === "low" ? { low: Math.min(value, chosen.high) } : { high: Math.max(value, chosen.low) });
      } },
    });
    const left = Array.from(values).filter(value => value * 100 >= chosen.low - 0.5 && value * 100 <= chosen.high + 0.5).length;
    const said = [`${chosen.low}%`, t("range.left", { count: left, all: values.length }), `${chosen.high}%`].map(text => h("span", {}, text));
    return h("div", { class: "at-range", title: t("range") }, dots, h("div", { class: "at-handles" }, handle("low"), handle("high")),
      h("div", { class: "faint at-range-say" }, said));
  }
}
