// How alike a word is to itself across its sentences, layer by layer: the mean cosine of its occurrences, a line a model.
// A word with one vector stays at 1; the lower a line goes, the more the sentence has changed the word.
//
//   course(app) → { root, draw(plots: [{title, reply, hue}], depth, hear), svg(x, y, w) → string }

import { clear, h, s } from "look/dom.js";
import { colour, hue, svgLine, svgPath, svgText } from "look/draw.js";

const TALL = 150, LEFT = 34, RIGHT = 118, TOP = 10, BOTTOM = 24;
const HUES = [0, 1, 2, 3, 4, 5];

// (layers,) the mean of all cosines but those of an occurrence with itself
export function meanCosines({ arrays: { cosine: { data, shape: [layers, n] } } }) {
  return Array.from({ length: layers }, (_, layer) => {
    let sum = 0;
    for (let at = 0; at < n * n; at += 1) if (Math.floor(at / n) !== at % n) sum += data[layer * n * n + at];
    return n > 1 ? sum / (n * (n - 1)) : 1;
  });
}

export function course(app) {
  const { t } = app;
  const title = h("h3"), body = h("div"), root = h("div", { class: "course" }, title, body);
  let lines = [], frame = null, drawn = "", parts = null;

  function framed(wide, depth) {
    const low = Math.min(0.6, ...lines.flatMap(one => one.values)), floor = Math.floor(low * 5) / 5;
    const x = part => LEFT + part * (wide - LEFT - RIGHT), y = value => TOP + (1 - value) / (1 - floor) * (TALL - TOP - BOTTOM);
    const at = (one, i) => [x(one.values.length > 1 ? i / (one.values.length - 1) : 0), y(one.values[i])];
    const names = lines.map(one => {
      const exact = depth * (one.values.length - 1), low = Math.floor(exact), high = Math.min(one.values.length - 1, low + 1);
      return { ...one, now: one.values[low] * (1 - exact + low) + one.values[high] * (exact - low), y: y(one.values.at(-1)) };
    }).sort((a, b) => a.y - b.y);
    names.forEach((one, i) => { if (i) one.y = Math.max(one.y, names[i - 1].y + 15); });
    const path = one => (one.values.length > 1 ? one.values.map((_, i) => (i ? "L" : "M") + at(one, i).map(v => v.toFixed(1)).join(" ")).join("") : `M${x(0)} ${y(one.values[0]).toFixed(1)}L${x(1)} ${y(one.values[0]).toFixed(1)}`);
    const ticks = [];
    for (let value = 1; value >= floor - 1e-9; value -= 0.2) ticks.push(Math.round(value * 10) / 10);
    return { wide, x, y, at, names, path, ticks, depth };
  }

  function draw(plots, depth, hear) {
    lines = plots.filter(one => one.reply).map((one, i) => ({
      title: one.title, values: meanCosines(one.reply), hue: HUES[i % HUES.length]
    }));
    root.hidden = !lines.length;
    if (!lines.length) return;
    const wide = Math.max(320, Math.min(820, root.clientWidth || 640));
    frame = framed(wide, depth);
    const key = JSON.stringify([wide, lines, t("course"), document.documentElement.dataset.theme]);
    if (key !== drawn) built(hear);
    drawn = key;
    parts.now.setAttribute("d", `M${frame.x(depth)} ${TOP - 4}V${TALL - BOTTOM + 4}`);
    frame.names.forEach((one, i) => { parts.numbers[i].textContent = one.now.toFixed(2); });
  }

  // All but what goes with the depth.
  function built(hear) {
    const { wide, x, y, at, names, path, ticks } = frame;
    title.textContent = t("course");
    parts = { now: s("path", { class: "now" }), numbers: names.map(() => s("tspan", { class: "tick", dx: 6 })) };
    const picture = s("svg", { viewBox: `0 0 ${wide} ${TALL}`, width: wide, height: TALL, role: "img", "aria-label": t("course") },
      ticks.map(value => [s("path", { class: "grid", d: `M${x(0)} ${y(value)}H${x(1)}` }),
        s("text", { class: "tick", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(1))]),
      parts.now,
      lines.map(one => [s("path", { class: "line", d: path(one), stroke: hue(one.hue) }),
        one.values.length > 1 && one.values.map((_, i) => s("circle", { cx: at(one, i)[0], cy: at(one, i)[1], r: 2.4, fill: hue(one.hue) }))
      ]),
      names.map((one, i) => s("text", { class: "name", x: x(1) + 12, y: one.y + 4, fill: hue(one.hue) }, one.title, parts.numbers[i])),
      s("text", { class: "tick", x: x(0), y: TALL - 4 }, t("below")
      ), s("text", { class: "tick", x: x(1), y: TALL - 4, "text-anchor": "end" }, t("top")));
    picture.addEventListener("pointerdown", event => {
      const { left, width } = picture.getBoundingClientRect();
      hear.depth(Math.min(1, Math.max(0, ((event.clientX - left) * wide / width - LEFT) / (wide - LEFT - RIGHT))));
    });
    clear(body, picture);
  }

  function svg(x0, y0) {
    if (!lines.length) return { text: "", height: 0 };
    const { x, y, names, path, ticks, depth } = frame,
      moved = d => d.replace(/([-\d.]+) ([-\d.]+)/g, (_, a, b) => `${(Number(a) + x0).toFixed(1)} ${(Number(b) + y0 + 14).toFixed(1)}`);
    const parts = [svgText(x0, y0, t("course"), { size: 13, weight: 600 })];
    for (const value of ticks) parts.push(svgLine(x0 + x(0), y0 + 14 + y(value), x0 + x(1), y0 + 14 + y(value), colour("rule")),
      svgText(x0 + LEFT - 8, y0 + 18 + y(value), value.toFixed(1), { size: 11, anchor: "end", fill: colour("faint") }));
    parts.push(svgLine(x0 + x(depth), y0 + 14 + TOP - 4, x0 + x(depth), y0 + 14 + TALL - BOTTOM, colour("faint")));
    for (const one of lines) parts.push(svgPath(moved(path(one)), { stroke: hue(one.hue), width: 1.8 }));
    for (const one of names) parts.push(svgText(x0 + x(1) + 12, y0 + 18 + one.y, `${one.title}  ${one.now.toFixed(2)}`,
      { size: 12.5, fill: hue(one.hue) }));
    return { text: parts.join(""), height: TALL + 24 };
  }

  return { root, draw, svg };
}
