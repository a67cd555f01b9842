// Word vectors: the neighbours of a word, an analogy with its parallelogram, and a map of words (vectors_map.js). Scores
// are worked out by look/vectors.py, as `qkv similar` and `qkv analogy` do; here are the fields and the drawing.

import { clear, debounced, h, s } from "look/dom.js";
import { colour, hue, svgLine, svgOf, svgPath, svgRect, svgText } from "look/draw.js";
import { aborted, Refusal } from "look/wire.js";
import { wordMap } from "look/views/vectors_map.js";

export { css } from "look/views/vectors_style.js";
export { words } from "look/views/vectors_words.js";
export const id = "vectors";
export const inputs = [];
export const keys = [["n b", "key.next"], ["Enter", "key.choose"], ["+ −", "key.zoom"], ["0", "key.whole"], ["← ↑ → ↓", "key.pan"]];

const FIRST = { word: "king", a: "he", b: "she", c: "king" };
const WIDE = 384, TALL = 230, ON_MAP = 500, SCRIPTS = ["letters", "chinese", "all"];

export function view(app) {
  const { t, state, set } = app;
  const field = (name, kind) => h("input",
    {
      class: "field " + kind, spellcheck: "false", autocomplete: "off", data: { field: name },
      on: { input: () => typed(), keydown: event => { if (event.key === "Enter") { typed(); typed.now(); } if (event.key === "Escape") event.target.blur(); } }
    });
  const word = field("word", "word"), abc = { a: field("a", ""), b: field("b", ""), c: field("c", "") };
  const near = h("div"), facts = h("p", { class: "note" }), bars = h("ol", { class: "bars" }), told = h("div"), picture = h("div"),
    answersNote = h("p", { class: "note by" }), answers = h("ol", { class: "bars" }), planeNote = h("p", { class: "note" });
  const names = Object.fromEntries(["neighbours", "analogy", "map", "is.to", "as", "is.to.what"
  ].map(key => [key, h(["neighbours", "analogy", "map"].includes(key) ? "h3" : "span")])),
    mapNote = h("p", { class: "caption" }), scripts = h("div", { class: "segmented", role: "group" });
  const chart = wordMap(app, { chosen: one => set({ vectors: { word: one } }) });
  const root = h("section", {}, h("div", { class: "both" },
    h("div", {}, h("div", { class: "part" }, names.neighbours, word, near, facts, bars),
      h("div", { class: "part" }, names.analogy,
        h("div", { class: "equation" }, abc.a, names["is.to"], abc.b, names.as, abc.c, names["is.to.what"]), told, picture, planeNote,
        answersNote, answers)),
    h("div", {}, h("div", { class: "row head" }, names.map, scripts), chart.root, mapNote)));
  let found = { neighbours: null, analogy: null, map: null }, drawn = {}, wanted = {}, corners = null;

  // What is asked, by the address or an example; an address may say anything.
  const own = () => {
    const list = app.examples(), first = (list.find(one => one.lang === state.lang) ?? list[0])?.set?.vectors ?? {};
    const given = { ...FIRST, ...first, ...state.vectors }, script = SCRIPTS.includes(given.script) ? given.script : undefined;
    return { word: String(given.word ?? ""), a: String(given.a ?? ""), b: String(given.b ?? ""), c: String(given.c ?? ""), script };
  };
  // As was chosen, else that of the word: a map of two scripts is a map of which is which.
  const script = () => own().script ?? (/[\u3400-\u9fff]/.test(own().word ?? "") ? "chinese" : "letters");
  const typed = debounced(() => set({ vectors: { word: word.value, a: abc.a.value, b: abc.b.value, c: abc.c.value } }), 350);

  function worded() {
    for (const [key, node] of Object.entries(names)) node.textContent = t(key);
    const asked = own();
    for (const [name, node] of Object.entries({ word, ...abc })) {
      node.setAttribute("aria-label", name === "word" ? t("word") : `${t("analogy")} ${name}`);
      if (document.activeElement !== node) node.value = asked[name] ?? "";
    }
    scripts.setAttribute("aria-label", t("script"));
    clear(scripts,
      SCRIPTS.map(one => h("button",
        { type: "button", "aria-pressed": String(one === script()), on: { click: () => set({ vectors: { script: one } }) } }, t(one))));
    chart.worded();
  }

  // What was refused, and words spelled like the one that is missing, each a press away.
  function refused(error, where, name) {
    if (aborted(error)) throw error;
    const list = (error.about?.near ?? "").split(", ").filter(Boolean);
    const fields = name === "word" ? ["word"] : ["a", "b", "c"].filter(one => own()[one].trim() === error.about?.word);
    clear(where, app.refusal(error),
      list.length > 0 && h("div", { class: "near-words note" }, t("near"),
        list.map(one => h("button",
          { type: "button", class: "chip", on: { click: () => set({ vectors: Object.fromEntries(fields.map(key => [key, one])) }) } }, one))
      ));
  }

  async function once(name, fields, fill, fail) {
    const key = wanted[name] = JSON.stringify([state.model, fields]);
    if (drawn[name] !== key) {
      try {
        if (Object.values(fields).some(value => typeof value === "string" && !value.trim())) throw new Refusal("empty");
        const reply = await app.ask(name === "map" ? "word_map" : name, fields);
        if (wanted[name] !== key) return undefined; // something else was asked since
        found[name] = reply;
        drawn[name] = key;
      } catch (error) {
        if (wanted[name] !== key && !aborted(error)) return undefined;
        found[name] = null;
        drawn[name] = "";
        return fail(error);
      }
    }
    return fill(found[name]);
  }

  function barred(list, chosen) {
    return list.map(one => h("li", {}, h("button", { type: "button", title: one.word, on: { click: () => chosen(one.word) } }, one.word),
      h("span", { class: "bar-line" }, h("i", { style: { "--part": Math.max(0, one.score) } })
      ), h("span", { class: "num" }, one.score.toFixed(3))));
  }

  function neighboured({ head }) {
    clear(near);
    facts.textContent = t("rank", { rank: head.rank + 1, words: head.words, width: head.width });
    clear(bars, barred(head.neighbours, one => set({ vectors: { word: one } })));
  }

  // The corners a, b, b − a + c, c as they lie in their plane, and where the answers fall upon it.
  function paralleled({ head, arrays }) {
    clear(told);
    const points = Array.from({ length: arrays.points.shape[0] }, (_, at) => [arrays.points.data[2 * at], arrays.points.data[2 * at + 1]]);
    const shown = points.slice(0, 4 + Math.min(3, head.answers.length)), xs = shown.map(one => one[0]), ys = shown.map(one => one[1]);
    const low = [Math.min(...xs), Math.min(...ys)], range = [Math.max(...xs) - low[0] || 1, Math.max(...ys) - low[1] || 1];
    const scale = Math.min((WIDE - 110) / range[0], (TALL - 64) / range[1]), left = (WIDE - range[0] * scale) / 2,
      tall = range[1] * scale + 64;
    const place = ([x, y]) => [left + (x - low[0]) * scale, tall - 32 - (y - low[1]) * scale];
    corners = { places: shown.map(place), head, tall };
    const [a, b, c, goal, best] = corners.places, to = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
    const named = ([x, y], text, dy, kind = "") => s("text", { x, y: y + dy, "text-anchor": "middle", class: kind }, text);
    const taken = []; // heights of names beside dots: the next one goes lower
    const beside = ([x, y], text, kind = "") => {
      while (taken.some(other => Math.abs(other - y) < 15)) y += 3;
      taken.push(y);
      return s("text", { x: x + 10, y: y + 4.5, class: kind }, text);
    };
    const bestName = best && beside(best, head.answers[0].word); // first, so that the others give way
    clear(picture,
      s("svg",
        {
          class: "parallel", viewBox: `0 0 ${WIDE} ${tall}`, role: "img",
          "aria-label": `${head.a} : ${head.b} = ${head.c} : ${head.answers[0]?.word ?? "?"}`
        },
      s("path", { d: `M${to(a)}L${to(b)}L${to(goal)}L${to(c)}Z`, fill: colour("tint"), "fill-opacity": 0.6 }),
      arrow(a, b, hue(0)), arrow(c, goal, hue(0)), arrow(a, c, colour("faint")), arrow(b, goal, colour("faint")),
      best && s("path",
        { d: `M${to(goal)}L${to(best)}`, stroke: colour("hot"), "stroke-dasharray": "3 4", fill: "none", "stroke-width": 1.4 }),
      corners.places.slice(5).map((place, at) => [s("circle", { cx: place[0], cy: place[1], r: 2.6, fill: colour("faint") }),
        [a, b, c].every(([x, y]) => Math.hypot(x - place[0], y - place[1]) > 44) && beside(place, head.answers[at + 1].word, "other")]),
      [a, b, c].map(([x, y]) => s("circle", { cx: x, cy: y, r: 4, fill: hue(0) })), s("circle",
        { cx: goal[0], cy: goal[1], r: 4, fill: colour("paper"), stroke: colour("faint") }),
      best && s("circle", { cx: best[0], cy: best[1], r: 5, fill: colour("hot") }),
      named(a, head.a, 20), named(b, head.b, -11), named(c, head.c, 20), named(goal, t("target", head), -11, "goal"), bestName));
    planeNote.textContent = head.answers.length ? t("plane.note", { above: arrays.above.data[4].toFixed(2) }) : "";
    answersNote.textContent = head.answers.length ? t("answers.note", head) : "";
    // a score is a sum of three cosines and may pass 1; the cosine to the corner orders the answers alike
    clear(answers, barred(head.answers.map(one => ({ word: one.word, score: one.to_target })), one => set({ vectors: { word: one } })));
  }

  function arrow([x1, y1], [x2, y2], stroke) {
    const far = Math.hypot(x2 - x1, y2 - y1) || 1, [ux, uy] = [(x2 - x1) / far, (y2 - y1) / far], [ex, ey] = [x2 - ux * 8, y2 - uy * 8];
    return s("path",
      {
        d: `M${x1 + ux * 6} ${y1 + uy * 6}L${ex} ${ey}M${ex - ux * 7 - uy * 4} ${ey - uy * 7 + ux * 4}L${ex} ${ey}L${ex - ux * 7 + uy * 4} ${ey - uy * 7 - ux * 4}`,
        stroke, fill: "none", "stroke-width": 1.5, "stroke-linecap": "round"
      });
  }

  function mapped(reply) {
    if (drawn.shown !== reply) { chart.fill(reply); drawn.shown = reply; } else chart.draw();
    const { head } = reply;
    chart.mark(new Set([found.neighbours?.head.word,
      ...(found.analogy ? [found.analogy.head.a, found.analogy.head.b, found.analogy.head.c, found.analogy.head.answers[0]?.word] : [])]));
    mapNote.textContent = t("map.note",
      { n: head.words.length - head.named, of: head.of, share: Math.round(100 * (head.variance[0] + head.variance[1])) });
  }

  async function show(changed) {
    if (changed && [...changed].every(name => ["token", "word", "chosen", "text", "pair"].includes(name))) return;
    worded();
    const { word: one = "", a = "", b = "", c = "" } = own();
    await Promise.all([
      once("neighbours", { word: one.trim(), k: 10 }, neighboured,
        error => { clear(bars); facts.textContent = ""; refused(error, near, "word"); }),
      once("analogy", { a: a.trim(), b: b.trim(), c: c.trim(), k: 6 }, paralleled,
        error => { clear(picture); clear(answers); planeNote.textContent = answersNote.textContent = ""; corners = null; refused(error, told, "abc"); }),
    ]);
    const asked = [found.neighbours?.head.word, ...(found.neighbours?.head.neighbours.slice(0, 10).map(other => other.word) ?? []),
      ...(found.analogy ? [found.analogy.head.a, found.analogy.head.b, found.analogy.head.c,
        ...found.analogy.head.answers.slice(0, 3).map(other => other.word)] : [])];
    const list = [...new Set(asked.filter(other => other && !/\s/.test(other)))];
    await once("map", { words: list.join(" ") || null, most: ON_MAP, script: script() }, mapped,
      error => { if (aborted(error)) throw error; clear(mapNote, app.refusal(error)); });
  }

  function svg() {
    if (!found.map) return null;
    const left = 400, wide = 700, parts = [svgText(24, 38, t("title"), { size: 18, weight: 620 })];
    let down = 76;
    if (found.neighbours) {
      parts.push(svgText(24, down, found.neighbours.head.word, { size: 22 }));
      for (const one of found.neighbours.head.neighbours) {
        down += 22;
        parts.push(svgText(24, down + 4, one.word, { size: 13.5 }), svgRect(150, down - 5, 170, 6, colour("rule"), { radius: 3 }),
          svgRect(150, down - 5, 170 * Math.max(0, one.score), 6, colour("accent"), { radius: 3 }),
          svgText(366, down + 2, one.score.toFixed(3), { size: 12, anchor: "end", fill: colour("soft") }));
      }
      down += 40;
    }
    if (corners) {
      const [a, b, c, goal, best] = corners.places.map(([x, y]) => [x + 8, y + down]), { head } = corners;
      parts.push(svgPath(`M${a}L${b}L${goal}L${c}Z`, { fill: colour("tint") }), svgLine(...a, ...b, hue(0), { width: 1.5 }),
        svgLine(...c, ...goal, hue(0), { width: 1.5 }), svgLine(...a, ...c, colour("faint")), svgLine(...b, ...goal, colour("faint")));
      if (best) parts.push(svgLine(...goal, ...best, colour("hot"), { width: 1.4 }),
        svgPath(`M${best[0] - 5} ${best[1]}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0`, { fill: colour("hot") }),
        svgText(best[0], best[1] - 11, head.answers[0].word, { size: 14, anchor: "middle", weight: 600 }));
      [[a, head.a, 20], [b, head.b, -11], [c, head.c, 20]
      ].forEach(([[x, y], text, dy]) => parts.push(svgText(x, y + dy, text, { size: 14, anchor: "middle" })));
      parts.push(svgText(goal[0], goal[1] - 11, t("target", head), { size: 12, anchor: "middle", fill: colour("faint") }));
      down += corners.tall;
    }
    const map = chart.svg(left + 24, 60, wide);
    parts.push(map.text);
    return svgOf(left + wide + 48, Math.max(down, 60 + map.height) + 30, parts.join(""), t("title"));
  }

  return {
    root, show, hide: () => typed.drop(), svg,
    numbers: () => ({ neighbours: found.neighbours?.head.neighbours, answers: found.analogy?.head.answers, map: chart.numbers() })
  };
}
