// View 5, Translation: source and translation with the alignment, the n best, and decoding played token by token. Asks
// `translate` and `beam_steps` once for a text; everything else is drawn from the two replies. The figures are in
// translation_alignment.js, translation_steps.js and translation_tree.js.

import { clear, h } from "look/dom.js";
import { colour, svgOf, svgText } from "look/draw.js";
import { alignment, LEAST, units } from "look/views/translation_alignment.js";
import { player } from "look/views/translation_steps.js";
import { percent, words } from "look/views/translation_words.js";
import { Refusal } from "look/wire.js";

export const id = "translation";
export { words };
// An example is for a model that translates from its language; of a model that does not say, all are.
export const offers = (example, subject) => {
  const from = String(subject?.facts?.source_language ?? "").toLowerCase().slice(0, 2);
  return !from || example.lang === from;
};
export const keys = [["← →", "key.step"], ["␣", "key.play"]];
export const css = `
[data-view=translation] { min-height: 60px; }
[data-view=translation] .tr-top { display: grid; grid-template-columns: var(--tr-columns, minmax(0, 1fr)); gap: 28px 8px; align-items: start; }
[data-view=translation] .tr-alignment { display: flex; flex-wrap: wrap; gap: 16px 44px; align-items: flex-start; margin-top: -12px; }
[data-view=translation] .tr-alignment .figure { max-width: 100%; max-height: 640px; overflow: auto; }
[data-view=translation] .tr-alignment text { cursor: default; }
[data-view=translation] .tr-alignment svg text, [data-view=translation] .tr-alignment path, [data-view=translation] .tr-alignment g { transition: opacity .12s; }
[data-view=translation] .tr-best { display: flex; flex-direction: column; gap: 1px; margin: 8px 0 0 -12px; max-width: 640px; padding: 0; list-style: none; counter-reset: place; }
[data-view=translation] .tr-best button { width: 100%; display: grid; grid-template-columns: 1fr auto; gap: 1px 14px; padding: 7px 12px 8px; border-radius: 10px; }
[data-view=translation] .tr-best button:hover { background: var(--panel); }
[data-view=translation] .tr-best button[aria-pressed=true] { background: var(--tint); }
[data-view=translation] .tr-best .tr-said { font: 400 17px/1.4 var(--serif); overflow-wrap: anywhere; }
[data-view=translation] .tr-best button[aria-pressed=true] .tr-said { color: var(--accent); }
[data-view=translation] .tr-best .bar-line { grid-column: 1 / -1; height: 3px; }
[data-view=translation] .tr-player { margin-top: 34px; border-top: 1px solid var(--rule); padding-top: 22px; outline: none; }
[data-view=translation] .tr-head { justify-content: space-between; }
[data-view=translation] .tr-controls { gap: 4px 6px; flex: 1 1 340px; justify-content: center; flex-wrap: nowrap; }
[data-view=translation] .tr-key { width: 34px; height: 34px; border-radius: 50%; display: grid; place-items: center; color: var(--soft); }
[data-view=translation] .tr-sign { width: 18px; height: 18px; fill: currentColor; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
[data-view=translation] .tr-key:hover { background: var(--panel); color: var(--ink); }
[data-view=translation] .tr-key[data-press=play] { background: var(--accent); color: var(--on-accent); }
[data-view=translation] .tr-slider { flex: 1 1 120px; max-width: 260px; margin: 0 8px; min-width: 80px; }
[data-view=translation] .tr-count { font-size: 13.5px; white-space: nowrap; min-width: 92px; }
[data-view=translation] .tr-warmth { gap: 10px; flex-wrap: nowrap; } [data-view=translation] .tr-heat { width: 120px; } [data-view=translation] .tr-degree { min-width: 2.2em; font-weight: 560; }
[data-view=translation] .tr-written { font: 400 26px/1.5 var(--serif); margin: 16px 0 14px; min-height: 40px; overflow-wrap: anywhere; }
[data-view=translation] .tr-other:not(:empty) { margin: -6px 0 14px; font-size: 14px; }
[data-view=translation] .tr-caret { display: inline-block; width: 2px; height: 1.1em; vertical-align: -.18em; background: var(--hot); margin: 0 5px; }
[data-view=translation] .tr-coming { color: var(--hot); white-space: pre; }
[data-view=translation] .tr-columns { display: grid; grid-template-columns: minmax(440px, 1.25fr) minmax(260px, 1fr); gap: 20px 64px; margin: 26px 0 16px; }
[data-view=translation] .tr-table { width: 100%; border-collapse: collapse; font-size: 14.5px; margin-top: 6px; }
[data-view=translation] .tr-table th { font-weight: 500; font-size: 12.5px; color: var(--faint); text-align: left; padding: 2px 16px 4px 0; white-space: nowrap; } [data-view=translation] .tr-table th.num { text-align: right; }
[data-view=translation] .tr-table td { padding: 2.5px 16px 2.5px 0; } [data-view=translation] .tr-table td.num { color: var(--soft); white-space: nowrap; } [data-view=translation] .tr-table td:last-child { padding-right: 0; min-width: 66px; color: var(--ink); }
[data-view=translation] .tr-token { font-size: 16px; white-space: pre; max-width: 160px; overflow: hidden; text-overflow: ellipsis; } [data-view=translation] .tr-share { width: 40%; min-width: 90px; }
[data-view=translation] tr.next .tr-token { color: var(--hot); font-weight: 620; } [data-view=translation] tr.next .bar-line { --bar: var(--hot); }
[data-view=translation] tr.kept .tr-token { color: var(--accent); font-weight: 560; } [data-view=translation] tr.rest td { color: var(--faint); font-size: 13.5px; }
[data-view=translation] .tr-look-list { display: flex; flex-direction: column; gap: 6px; margin-top: 10px; max-height: 330px; overflow-y: auto; }
[data-view=translation] .tr-look { display: grid; grid-template-columns: minmax(70px, 150px) 1fr 64px; gap: 14px; align-items: center; }
[data-view=translation] .tr-look-list.many { gap: 1px; font-size: 13.5px; }
[data-view=translation] .tr-look-token { text-align: right; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; } [data-view=translation] .tr-look-token.most { color: var(--hot); font-weight: 600; }
[data-view=translation] .tr-tree { margin-top: 10px; padding-bottom: 4px; } [data-view=translation] .tr-node[role=button] { cursor: pointer; } [data-view=translation] .tr-node:focus-visible { outline: none; } [data-view=translation] .tr-node:focus-visible text { text-decoration: underline; }
@media (max-width: 860px) { [data-view=translation] .tr-columns { grid-template-columns: minmax(0, 1fr); } }
`;

const OWN = { beams: 4, candidate: 0, step: 0, temperature: 1, node: null };

export function view(app) {
  const { t } = app, pair = alignment(app), played = player(app);
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

  const own = () => ({ ...OWN, ...app.state.translation });
  const wanted = () => Math.max(1, Math.min(8, Math.round(own().beams) || OWN.beams));
  const keyNow = () => JSON.stringify([app.state.model, app.state.text, wanted()]);

  function show(changed) {
    if (changed && [...changed].every(name => name === "token")) return undefined;
    if (found?.key === keyNow()) return void draw();
    return asked();
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
    const { head, arrays } = found.whole, number = Math.max(0, Math.min(head.candidates.length - 1, own().candidate | 0));
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
    clear(unknown, head.unknown.length > 0 && t("unknown", { words: head.unknown.map(span => head.text.slice(...units(head.text, span))).join(" · ") }));
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
    const candidate = head.candidates[Math.min(head.candidates.length - 1, own().candidate | 0)];
    parts.unshift(svgText(pad, 38, `${head.text}  →  ${candidate.text}`, { size: 20, weight: 600 }),
      svgText(pad + wide, 38, app.subject()?.title ?? "", { anchor: "end", fill: colour("faint") }));
    return svgOf(wide + 2 * pad, y + 28, parts.join(""), t("title"));
  }

  function numbers() {
    if (!found) return {};
    const { head, arrays } = found.whole, number = Math.min(head.candidates.length - 1, own().candidate | 0);
    const weights = arrays["alignment" + number];
    return {
      candidate: number, text: head.candidates[number].text,
      alignment: weights ? { data: Array.from(weights.data), shape: weights.shape } : null, ...played.numbers(),
    };
  }

  return { root, show, hide: () => played.stop(), svg, numbers };
}
