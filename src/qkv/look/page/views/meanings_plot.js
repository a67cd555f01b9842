// One model's picture of a word in many sentences: a plane of points that moves with the depth, a strip of all layers, the
// nearest contexts of one occurrence. Gets its reply ready made; asks nothing and keeps no state but what is drawn.
//
//   plot(app, title, hear) → { root, fill(reply, colours), refuse(node), draw(depth, hot, sentences, alone), layer(depth), reply, svg(…) }
//       depth     0 … 1 of the layers; between two layers the points lie between their places
//       hot       key of an occurrence ("sentence:start") or null; alone: what is not near it is faint
//       hear      { hover(key | null), pin(key), depth(depth) }
//   keyOf(occurrence) · ringed(points, colours) → Map key → colour of the theme, by the angle around the middle

import { clear, clip, h, s, sliced } from "look/dom.js";
import { colour, hue, svgLine, svgPath, svgRect, svgText } from "look/draw.js";

const SIDE = 300, EDGE = 24, DOT = 9.5, FEW = 4;
const RING = [0, 5, 10, 3, 8, 1, 6, 11, 4, 9, 2, 7]; // the theme's hues in the order of the rainbow

export const keyOf = one => `${one.sentence}:${one.start}`;

// Of the highest layer: what lies together there has one colour everywhere.
export function ringed({ head, arrays }) {
  const [layers, n] = arrays.points.shape, at = (layers - 1) * n;
  return new Map(head.occurrences.map((one, i) => {
    const angle = Math.atan2(arrays.points.data[2 * (at + i) + 1], arrays.points.data[2 * (at + i)]);
    return [keyOf(one), RING[Math.floor(((angle / (2 * Math.PI)) + 1) * 12 + 0.5) % 12]];
  }));
}

export function plot(app, subject, hear) {
  const { t, state } = app;
  const title = h("h3", { class: "who" }), where = h("span", { class: "where faint" });
  const links = s("g"), dots = s("g"), many = s("text", { class: "many", "text-anchor": "middle" });
  const picture = s("svg", { class: "plane", viewBox: `0 0 ${SIDE} ${SIDE}`, role: "img", tabindex: "0" },
    s("path", { class: "axes", d: `M${SIDE / 2} ${EDGE / 2}V${SIDE - EDGE / 2}M${EDGE / 2} ${SIDE / 2}H${SIDE - EDGE / 2}` }
    ), links, dots, many);
  const strip = h("div", { class: "strip" });
  const note = h("div", { class: "said-of note" }), held = h("p"), near = h("ol", { class: "near" });
  const body = h("div", {}, picture, strip, note, near), told = h("div");
  const root = h("section", { class: "one", data: { model: subject.index } }, h("header", {}, title, where), told, body);
  let reply = null, colours = new Map(), marks = [], scales = [], minis = [], places = [], listed = "";

  const count = () => reply.arrays.points.shape[0];
  const layer = depth => Math.round(depth * (count() - 1));

  function refuse(node) {
    reply = null;
    title.textContent = subject.title;
    where.textContent = "";
    body.hidden = true;
    clear(told, node);
  }

  function fill(found, given) {
    reply = found;
    listed = "";
    colours = given;
    body.hidden = false;
    clear(told);
    title.textContent = subject.title;
    const [layers, n] = reply.arrays.points.shape, { data } = reply.arrays.points;
    scales = Array.from({ length: layers }, (_, at) => {
      let most = 0;
      for (let i = at * n * 2; i < (at + 1) * n * 2; i += 1) most = Math.max(most, Math.abs(data[i]));
      return most || 1;
    });
    marks = reply.head.occurrences.map(one => {
      const key = keyOf(one),
        heard = { pointerenter: () => hear.hover(key), pointerleave: () => hear.hover(null), click: () => hear.pin(key) };
      return s("g", { class: "dot", on: heard, data: { key } }, s("circle", { r: DOT, fill: painted(key) }),
        s("text", { y: 3.7, "text-anchor": "middle" }, one.sentence + 1));
    });
    clear(dots, marks);
    minis = layers > 1 ? scales.map((_, at) => mini(at)) : [];
    clear(strip, minis);
    clear(note, held, notes().map(text => h("p", {}, text)));
  }

  // What lies below the layers is layer 0 to Python; readers know the layers from Attention, where the first is 0.
  const named = at => (reply.head.layers[at] === 0 ? t("below") : t("layer", { layer: reply.head.layers[at] - 1 }));
  const painted = key => hue(colours.get(key) ?? 0);

  function notes() {
    const { head } = reply, cut = head.occurrences.find(one => one.pieces.length > 1), said = [];
    if (head.one_point) said.push(t("one.point", { n: head.occurrences.length }));
    if (cut) said.push(t("pieces", { word: cut.written, pieces: cut.pieces.map(one => one.replace(/^▁(?=.)/u, "")).join(" + ") }));
    if (head.unknown.length) said.push(t("unknown",
      { word: head.unknown[0].written, where: head.unknown.map(one => one.sentence + 1).join(", ") }));
    return said;
  }

  // A layer as a stamp; pressed, it is shown.
  function mini(at) {
    const [, n] = reply.arrays.points.shape, { data } = reply.arrays.points;
    const side = 26, far = side / 2 - 3;
    const spots = reply.head.occurrences.map((one, i) => {
      const x = data[2 * (at * n + i)] / scales[at], y = data[2 * (at * n + i) + 1] / scales[at];
      return s("circle", { cx: side / 2 + far * x, cy: side / 2 - far * y, r: 1.5, fill: painted(keyOf(one)) });
    });
    const name = named(at);
    return h("button",
      { type: "button", class: "stamp", title: name, "aria-label": name, on: { click: () => hear.depth(at / (count() - 1)) } },
      s("svg", { viewBox: `0 0 ${side} ${side}` }, spots));
  }

  // Where the points are at a depth: between two layers, between their places there.
  function placed(depth) {
    const [layers, n] = reply.arrays.points.shape, { data } = reply.arrays.points;
    const exact = depth * (layers - 1), low = Math.floor(exact), high = Math.min(layers - 1, low + 1), part = exact - low;
    const far = SIDE / 2 - EDGE, found = [];
    for (let i = 0; i < n; i += 1) {
      const [x, y] = [0, 1].map(axis => (1 - part) * data[2 * (low * n + i) + axis] / scales[low] + part * data[2 * (high * n + i) + axis] / scales[high]);
      found.push([SIDE / 2 + far * x, SIDE / 2 - far * y]);
    }
    return found;
  }

  function nearest(hot, depth) {
    const me = reply.head.occurrences.findIndex(one => keyOf(one) === hot);
    if (me < 0) return { me, found: [] };
    const [, n] = reply.arrays.cosine.shape, start = (layer(depth) * n + me) * n;
    const found = reply.head.occurrences.map((one, i) => ({
      one, i, cosine: reply.arrays.cosine.data[start + i]
    })).filter(({ i }) => i !== me);
    return { me, found: found.sort((a, b) => b.cosine - a.cosine).slice(0, FEW) };
  }

  function draw(depth, hot, sentences, alone) {
    if (!reply) return;
    places = placed(depth);
    const { me, found } = nearest(hot, depth), at = layer(depth);
    marks.forEach((mark, i) => {
      mark.setAttribute("transform", `translate(${places[i][0].toFixed(2)} ${places[i][1].toFixed(2)})`);
      mark.classList.toggle("hot", i === me);
      mark.classList.toggle("far", Boolean(alone) && me >= 0 && i !== me && !found.some(other => other.i === i));
    });
    if (me >= 0 && dots.lastChild !== marks[me]) dots.append(marks[me]);
    const same = [hot, at, state.lang, document.documentElement.dataset.theme].join();
    if (same !== listed) {
      listed = same;
      listNear(found, hot, sentences);
    }
    found.forEach(({ i }, number) => {
      const line = links.children[number], [x1, y1] = places[me], [x2, y2] = places[i];
      for (const [name, value] of Object.entries({ x1, y1, x2, y2 })) line.setAttribute(name, value.toFixed(1));
    });
    const together = places.length > 1 && places.every(([x, y]) => Math.hypot(x - places[0][0], y - places[0][1]) < 1);
    clear(many, together && "× " + places.length);
    many.setAttribute("x", places[0][0]);
    many.setAttribute("y", places[0][1] + DOT + 18);
    held.textContent = scaled(depth);
    where.textContent = count() > 1 ? named(at) : t(["table", "nnlm"].includes(subject.kind) ? "no.layers" : "one.layer");
    picture.setAttribute("aria-label", t("picture", { word: reply.head.word, model: subject.title }));
    picture.dataset.layer = reply.head.layers[at];
    minis.forEach((stamp, i) => stamp.toggleAttribute("data-on", i === at));
  }

  // What stays while the points move: the lines' strength, and the list under the plane.
  function listNear(found, hot, sentences) {
    clear(links, found.map(({ cosine }) => s("line", { stroke: painted(hot), "stroke-opacity": 0.15 + 0.6 * Math.max(0, cosine) })));
    clear(near, found.map(({ one, i, cosine }) => {
      const key = keyOf(one), lit = on => () => marks[i].classList.toggle("lit", on); // the list itself must not change under the pointer
      return h("li", { on: { pointerenter: lit(true), pointerleave: lit(false), click: () => hear.pin(key) } },
        h("span", { class: "mark", style: { background: painted(key) } }, one.sentence + 1), h("span", { class: "num" }, cosine.toFixed(2)),
        h("span", { class: "bar-line" }, h("i", { style: { "--part": Math.max(0, cosine), "--bar": painted(key) } })),
        h("span", { class: "context" }, around(sentences[one.sentence] ?? "", one)));
    }));
  }

  const scaled = depth => {
    const { data } = reply.arrays.variance, share = data[2 * layer(depth)] + data[2 * layer(depth) + 1];
    return share > 0 ? t("held", { share: Math.round(100 * share) }) : ""; // one point has no spread to hold
  };

  // The same as a part of an exported picture, w wide; returns its text and its height.
  function svg(x, y, w, depth, hot, sentences) {
    const part = w / SIDE, px = at => x + at * part, py = at => y + 34 + at * part, middle = SIDE / 2;
    const out = [svgText(x, y + 12, subject.title, { size: 14, weight: 600 })];
    if (!reply) return { text: out.join(""), height: w + 40 };
    const { me, found } = nearest(hot, depth);
    out.push(svgText(x + w, y + 12, where.textContent, { size: 12, fill: colour("faint"), anchor: "end" }),
      svgRect(px(0), py(0), w, w, colour("panel"), { radius: 12 }),
      svgLine(px(middle), py(EDGE / 2), px(middle), py(SIDE - EDGE / 2), colour("rule")
      ), svgLine(px(EDGE / 2), py(middle), px(SIDE - EDGE / 2), py(middle), colour("rule")));
    for (const { i, cosine } of found) out.push(svgLine(px(places[me][0]), py(places[me][1]), px(places[i][0]), py(places[i][1]),
      painted(hot), { width: 1.3, opacity: 0.15 + 0.6 * Math.max(0, cosine) }));
    const order = reply.head.occurrences.map((one, i) => ({ one, i })).sort((a, b) => (a.i === me) - (b.i === me)); // the hot one above all
    order.forEach(({ one, i }) => {
      const r = DOT, [cx, cy] = [px(places[i][0]), py(places[i][1])];
      out.push(svgPath(`M${cx - r} ${cy}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
        { fill: painted(keyOf(one)), stroke: colour(i === me ? "ink" : "panel"), width: 1.7 }),
        svgText(cx, cy + 3.7, one.sentence + 1, { size: 10.5, weight: 650, anchor: "middle", fill: colour("paper") }));
    });
    if (many.textContent) out.push(svgText(px(Number(many.getAttribute("x"))), py(Number(many.getAttribute("y"))), many.textContent,
      { size: 12, anchor: "middle", fill: colour("soft") }));
    let down = y + 34 + w + 20;
    for (const text of [scaled(depth), ...notes()].filter(Boolean)) { out.push(svgText(x, down, clip(text, Math.floor(w / 6)),
      { size: 11.5, fill: colour("faint") })); down += 17; }
    for (const { one, cosine } of found) {
      out.push(svgText(x, down + 4, one.sentence + 1, { size: 12, weight: 650, fill: painted(keyOf(one)) }),
        svgText(x + 24, down + 4, cosine.toFixed(2), { size: 12 }),
        svgText(x + 58, down + 4, clip(around(sentences[one.sentence] ?? "", one), Math.floor((w - 60) / 7)),
          { size: 12, fill: colour("soft") }));
      down += 19;
    }
    return { text: out.join(""), height: down - y };
  }

  return { root, fill, refuse, draw, layer, svg, scaled, get reply() { return reply; } };
}

// What stands around an occurrence, short enough for a line.
function around(sentence, one) {
  const letters = [...sentence];
  let before = Math.max(0, one.start - 10);
  if (before > 0 && /[a-z]/i.test(letters[before - 1] + letters[before])) before = letters.indexOf(" ", before) + 1 || before; // words stay whole
  before = Math.min(before, one.start);
  return (before > 0 ? "…" : "") + sliced(sentence, before);
}
