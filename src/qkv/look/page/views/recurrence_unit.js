// One unit at one step: the cell's equation with its real numbers, and what the language model expects around the word.
// Makes elements, asks nothing.
//
//   equation(found, step, unit) → [{letter, symbols, numbers, value, gate}]     in the order of computing
//   unitPanel(app, found, step, unit) → [elements]
//   nextPanel(app, found, step) → element | null

import { h } from "look/dom.js";
import { hue } from "look/draw.js";
import { HUES, labelOf, near } from "look/views/recurrence_words.js";
import { percent, shownToken } from "look/views/translation_words.js";

const factor = value => (near(value).startsWith("−") ? `(${near(value)})` : near(value));
const plus = value => (value < 0 ? `− ${near(-value)}` : `+ ${near(value)}`);

export function equation({ head, arrays }, step, unit) {
  const H = arrays.given.shape[2], G = head.blocks.length, before = head.direction === "forward" ? step - 1 : step + 1;
  const T = head.tokens.length, first = before < 0 || before >= T;
  const of = letter => arrays[letter].data[step * H + unit], was = letter => (first ? 0 : arrays[letter].data[before * H + unit]);
  const block = letter => {
    const at = (step * G + head.blocks.indexOf(letter)) * H + unit;
    return [arrays.given.data[at], arrays.from_state.data[at]];
  };
  const peep = (letter, c) => arrays.peepholes.data[{ i: 0, f: 1, o: 2 }[letter] * H + unit] * c;
  const line = (letter, name, symbols, numbers) => ({ letter, name, symbols, numbers, value: of(letter), gate: "ifozr".includes(letter) });
  const sum = (letter, squash) => {
    const [w, u] = block(letter);
    return line(letter, letter, `${squash}(Wx + b + Uh)`, `${squash}(${near(w)} ${plus(u)})`);
  };
  const seen = (letter, c, mark) => {
    const [w, u] = block(letter);
    return line(letter, letter, `σ(Wx + b + Uh + p · ${mark})`, `σ(${near(w)} ${plus(u)} ${plus(peep(letter, c))})`);
  };
  const c = head.cell === "rnn" || head.cell === "gru" ? 0 : was("c");
  const out = head.projected ? "m" : "h";
  const last = () => line(out, out + "′", "o · tanh(c′)", `${near(of("o"))} · ${factor(Math.tanh(of("c")))}`);
  if (head.cell === "rnn") return [line("h", "h′", "tanh(Wx + b + Uh)", sum("h", "tanh").numbers)];
  if (head.cell === "gru") {
    const [w, u] = block("n");
    return [sum("r", "σ"), sum("z", "σ"), line("n", "n", "tanh(Wx + b + r · Uh)", `tanh(${near(w)} + ${near(of("r"))} · ${factor(u)})`),
      line("h", "h′", "(1 − z) · n + z · h", `${near(1 - of("z"))} · ${factor(of("n"))} + ${near(of("z"))} · ${factor(was("h"))}`)];
  }
  if (head.cell === "coupled") {
    const mixed = `${near(of("f"))} · ${factor(c)} + ${near(1 - of("f"))} · ${factor(of("g"))}`;
    return [sum("f", "σ"), sum("g", "tanh"), line("c", "c′", "f · c + (1 − f) · g", mixed), sum("o", "σ"), last()];
  }
  const cell = line("c", "c′", "f · c + i · g", `${near(of("f"))} · ${factor(c)} + ${near(of("i"))} · ${factor(of("g"))}`);
  if (head.cell === "peephole") return [seen("f", c, "c"), seen("i", c, "c"), sum("g", "tanh"), cell, seen("o", of("c"), "c′"), last()];
  return [sum("f", "σ"), sum("i", "σ"), sum("g", "tanh"), cell, sum("o", "σ"), last()];
}

export function unitPanel(app, found, step, unit) {
  const { t } = app, { head } = found, lines = equation(found, step, unit);
  const clip = head.clips.find(one => one !== null);
  const said = [
    first(head, step) && t("begin"), head.projected && t("projected", { n: head.width, p: head.output_width }),
    clip && t("clipped", { clip }), head.adds_input && t("residual"),
  ];
  return [
    h("div", { class: "rc-equation" }, lines.map(one => h("div", {
      class: "rc-line" + ("chm".includes(one.letter) ? " state" : ""), data: { letter: one.letter, value: one.value },
    },
      h("i", { class: "rc-letter", style: { color: hue(HUES[one.letter]) }, title: t("name." + one.letter) }, one.name),
      h("span", { class: "rc-how" }, h("span", { class: "rc-symbols" }, "= " + one.symbols), h("span", { class: "rc-numbers" }, "= " + one.numbers)),
      h("b", { class: "num" }, near(one.value, 3)),
      h("span", { class: "rc-meter" + (one.gate ? "" : " both") }, h("i", { style: meter(one) }))))),
    h("p", { class: "caption" }, said.filter(Boolean).join(" ")),
  ];
}

const first = (head, step) => step === (head.direction === "forward" ? 0 : head.tokens.length - 1);

function meter({ letter, gate, value }) {
  const part = Math.min(1, Math.abs(value)), paint = gate ? hue(HUES[letter]) : value < 0 ? "var(--cold)" : "var(--warm)";
  if (gate) return { left: 0, width: 100 * part + "%", background: paint };
  return { left: (value < 0 ? 50 - 50 * part : 50) + "%", width: 50 * part + "%", background: paint };
}

export function nextPanel(app, { head, next }, step) {
  const { t } = app, way = head.direction, list = next?.head.words[way];
  if (!list) return null;
  const k = list[0].length, p = next.arrays[way].data, came = next.arrays[way + "_came"].data[step], rank = next.arrays[way + "_rank"].data[step];
  const there = head.tokens[step + (way === "forward" ? 1 : -1)];
  const said = !there ? t(way === "forward" ? "nothing.came" : "nothing.before")
    : rank < 0 ? t("unknown.came", { word: labelOf(there) }) : t("came." + way, { word: labelOf(there), p: percent(came), rank: rank + 1 });
  return h("div", { class: "rc-next" }, h("h3", {}, t("next." + way)),
    h("div", { class: "rc-list" }, list[step].map((word, at) => h("div", { class: "rc-word" + (at === rank ? " came" : "") },
      h("span", { class: "rc-token" }, shownToken(word)),
      h("span", { class: "bar-line" }, h("i", { style: { "--part": p[step * k + at] } })),
      h("span", { class: "num soft" }, percent(p[step * k + at]))))),
    h("p", { class: "caption" }, said));
}
