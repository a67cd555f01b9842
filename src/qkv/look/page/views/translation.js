// View 5, Translation: source and translation with the alignment, the n best, and decoding played token by token. Asks
// `translate` and `beam_steps` once for a text; everything else is drawn from the two replies. The figures are in
// translation_alignment.js, translation_steps.js and translation_tree.js.

import { clear, h, sliced } from "look/dom.js";
import { colour, svgOf, svgText } from "look/draw.js";
import { alignment, LEAST } from "look/views/translation_alignment.js";
import { player } from "look/views/translation_steps.js";
import { percent, words } from "look/views/translation_words.js";
import { Refusal } from "look/wire.js";

export const id = "translation";
export { css } from "look/views/translation_style.js";
export { words };
// An example is for a model that translates from its language; of a model that does not say, all are.
export const offers = (example, subject) => {
  const from = String(subject?.facts?.source_language ?? "").toLowerCase().slice(0, 2);
  return !from || example.lang === from;
};
export const keys = [["← →", "key.step"], ["␣", "key.play"]];

const LIGHT = new Set(["token", "word"]); // follow the pointer
const OWN = { beams: 4, candidate: 0, step: 0, temperature: 1, node: null };

export function view(app) {
  const { t } = app, pair = alignment(app), played = player(app, () => own());
  const title = h("h2", {}), caption = h("p", { class: "caption" }), unknown = h("p", { class: "note" });
  const listTitle = h("h3", {}), best = h("ol", { class: "tr-best" });
  const beams = h("select", { on: { change: () => app.set({ translation: { beams: +beams.value, candidate: 0, step: 0, node: null } }) } },
    Array.from({ length: 8 }, (_, at) => h("option", { value: at + 1 }, at + 1)));
  const beamLabel = h("span", { class: "label" });
  const body = h("div", { class: "tr-body", hidden: true },
    h("div", { class: "tr-top" },
      h("div", {}, title, h("div", { class: "tr-space" }, pair.root), caption, unknown),
      h("div", {}, h("div", { class: "row" }, listTitle, h("label", { class: "chooser" }, beamLabel, beams)), best)),
    played.root);
  const root = h("section", {}, body);
  let drawn = ""; // what the alignment was drawn for: steps leave it alone
  let found = null; // {key, whole: reply of translate, steps: reply of beam_steps}

  // An address may say anything: what is no number of its kind is left out.
  const own = () => {
    const { beams: k, candidate, step, temperature, node } = { ...OWN, ...app.state.translation }, whole = value => Number.isInteger(value) && value >= 0;
    return {
      beams: whole(k) ? k : OWN.beams, candidate: whole(candidate) ? candidate : 0, step: whole(step) ? step : 0,
      temperature: Number.isFinite(temperature) ? temperature : 1, node: whole(node) ? node : null,
    };
  };
  const wanted = () => Math.max(1, Math.min(8, own().beams));
  const keyNow = () => JSON.stringify([app.state.model, app.state.text, wanted()]);

  function show(changed) {
    if (changed && [...changed].every(name => LIGHT.has(name))) return undefined;
    if (found?.key !== keyNow()) return asked().then(changed === null ? pair.ring : undefined);
    draw();
    if (changed === null) pair.ring();
    return undefined;
  }

  async function asked() {
    const key = keyNow(), fields = { text: app.state.text, beams: wanted() };
    played.stop();
    try {
      if (!app.state.text.trim()) throw new Refusal("empty");
      const [whole, steps] = await Promise.all([app.ask("translate", fields), app.ask("beam_steps", fields)]);
      if (key !== keyNow()) return;
      const again = found !== null && found.key !== key;
      found = { key, whole, steps };
      if (again && (own().step || own().candidate || own().node !== null)) app.set({ translation: { step: 0, candidate: 0, node: null } });
      draw();
    } catch (error) {
      if (key === keyNow()) { found = null; body.hidden = true; }
      throw error;
    }
  }

  function draw() {
    const { head, arrays } = found.whole, number = Math.max(0, Math.min(head.candidates.length - 1, own().candidate));
    body.hidden = false;
    const width = root.clientWidth || 1000;
    clear(title, t("title"));
    clear(listTitle, t("candidates"));
    clear(beamLabel, t("beams"));
    beams.value = String(wanted());
    const drawing = JSON.stringify([found.key, number, width, app.state.lang, document.documentElement.dataset.theme]);
    if (drawing !== drawn) pair.draw(found.whole, number, width);
    drawn = drawing;
    const seen = head.context === "attention";
    clear(caption, seen ? [t(head.kind === "seq2seq" ? "note.seq2seq" : "note.layer"), " ", t("note", { least: percent(LEAST).replace(".00", "") })]
      : t("no_attention." + head.context, { width: arrays.context.data.length }));
    clear(unknown, head.unknown.length > 0 && t("unknown", { words: head.unknown.map(span => sliced(head.text, ...span)).join(" · ") }));
    clear(best, head.candidates.map((one, at) => h("li", {}, h("button", {
      type: "button", "aria-pressed": String(at === number), data: { candidate: at },
      on: { click: () => app.set({ translation: { candidate: at, step: 0, node: null } }) },
    }, h("span", { class: "tr-said" }, one.text || "—"), h("span", { class: "num", title: t("probability") }, percent(Math.exp(one.log_probability))),
    h("span", { class: "note" }, one.finished ? `${t("score")} ${one.score.toFixed(3).replace("-", "−")}` : t("stopped")), h("span", {}),
    h("span", { class: "bar-line" }, h("i", { style: { "--part": Math.exp(one.log_probability) } }))))));
    root.dataset.candidate = number;
    played.draw(found.steps, number, width);
  }

  function svg() {
    if (!found) return null;
    const parts = [], { head } = found.whole, pad = 32;
    let y = 62, wide = 760;
    const place = (node, x, top) => {
      const copy = node.cloneNode(true);
      copy.setAttribute("x", x);
      copy.setAttribute("y", top);
      for (const one of copy.querySelectorAll("*")) {
        for (const name of one.getAttributeNames()) if (/^(data-|tabindex|role|class|aria-)/.test(name)) one.removeAttribute(name);
      }
      return new XMLSerializer().serializeToString(copy);
    };
    let x = pad, tall = 0;
    for (const node of pair.parts()) {
      parts.push(place(node, x, y));
      x += node.width.baseVal.value + 48;
      tall = Math.max(tall, node.height.baseVal.value);
    }
    wide = Math.max(wide, x - 48 - pad);
    y += tall + 36;
    const steps = played.exported(wide);
    parts.push(`<g transform="translate(${pad} ${y})">${steps.body}</g>`);
    y += steps.height + 24;
    if (steps.tree) {
      parts.push(place(steps.tree, pad, y));
      wide = Math.max(wide, steps.tree.width.baseVal.value);
      y += steps.tree.height.baseVal.value;
    }
    const candidate = head.candidates[Math.min(head.candidates.length - 1, own().candidate)];
    parts.unshift(svgText(pad, 38, `${head.text}  →  ${candidate.text}`, { size: 20, weight: 600 }),
      svgText(pad + wide, 38, app.subject()?.title ?? "", { anchor: "end", fill: colour("faint") }));
    return svgOf(wide + 2 * pad, y + 28, parts.join(""), t("title"));
  }

  function numbers() {
    if (!found) return {};
    const { head, arrays } = found.whole, number = Math.min(head.candidates.length - 1, own().candidate);
    const weights = arrays["alignment" + number];
    return {
      candidate: number, text: head.candidates[number].text,
      alignment: weights ? { data: Array.from(weights.data), shape: weights.shape } : null, ...played.numbers(),
    };
  }

  return { root, show, hide: () => played.stop(), svg, numbers };
}
