// The same words in another order: the two texts with each word joined to itself, and how far its vector moves from one to
// the other, layer by layer; beside it what a bag of words and attention without positions see. Gets its reply ready made.
//
//   order(app) → { root, fill(reply, text, other), refuse(node), draw(), svg(x, y, w) → {text, height}, numbers(), word() }

import { clear, frame, h, s, sliced } from "look/dom.js";
import { colour, font, hue, svgLine, svgPath, svgText } from "look/draw.js";

const TALL = 250, LEFT = 46, RIGHT = 96, TOP = 14, BOTTOM = 34, LINE = 150, SIZE = 27, SPACE = 17;

export function order(app) {
  const { t, state, set } = app;
  const joined = h("div", { class: "joined" }), chart = h("div", { class: "chart" }), said = h("div", { class: "verdicts" }),
    told = h("div");
  const body = h("div", { class: "order-both" }, h("div", {}, joined, said), chart), root = h("div", {}, told, body);
  let reply = null, texts = ["", ""], hot = null, last = null, layer = 0;

  function refuse(node) {
    reply = null;
    body.hidden = true;
    clear(told, node);
  }

  function fill(found, text, other) {
    reply = found;
    texts = [text, other];
    hot = last = null;
    layer = reply.head.layers.length - 1;
    body.hidden = false;
    clear(told);
    draw();
  }

  const off = pair => (hot === null || hot === pair ? "" : " off"); // what is not pointed at, while something is
  // What lies below the layers is layer 0 to Python; readers know the layers from Attention, where the first is 0.
  const layerName = number => (number === 0 ? t("below") : number - 1);
  const moved = (name, at, word) => reply.arrays[name].data[at * reply.arrays[name].shape[1] + word];
  const largest = () => Math.max(0.05, ...reply.arrays.moved.data, ...(reply.arrays.moved_without?.data ?? []));
  const widthOf = (() => {
    const ctx = document.createElement("canvas").getContext("2d");
    return text => {
      if (!ctx) return [...text].length * (/[\u3400-\u9fff]/.test(text) ? SIZE : SIZE * 0.55);
      ctx.font = font(SIZE).replace(colour("sans"), colour("serif"));
      return ctx.measureText(text).width;
    };
  })();

  // Every word of both texts and where it stands on its line; those of one text alone have no partner.
  function laid(wide) {
    const rows = [0, 1].map(side => {
      const place = one => (side ? one.there : one.here);
      const words = [...reply.head.words.map((one, pair) => ({ text: sliced(texts[side], ...place(one)), at: place(one)[0], pair })),
        ...[...reply.head.lonely[side], ...reply.head.unknown[side]
        ].map(one => ({ text: one.text, at: one.at[0], pair: null }))].sort((a, b) => a.at - b.at);
      let x = 0;
      for (const one of words) { one.width = widthOf(one.text); one.x = x; x += one.width + SPACE; }
      return { words, width: x - SPACE };
    });
    const scale = Math.min(1, wide / Math.max(rows[0].width, rows[1].width, 1));
    return { rows, scale };
  }

  function lines(wide) {
    const { rows, scale } = laid(wide), size = SIZE * scale, tops = [size, LINE];
    const found = reply.head.words.map((_, pair) => {
      const [one, two] = rows.map(({ words }) => words.find(word => word.pair === pair));
      const [x1, x2] = [one, two].map(word => (word.x + word.width / 2) * scale), [y1, y2] = [tops[0] + 9, tops[1] - size - 1];
      return {
        pair, path: `M${x1.toFixed(1)} ${y1}C${x1.toFixed(1)} ${(y1 + y2) / 2} ${x2.toFixed(1)} ${(y1 + y2) / 2} ${x2.toFixed(1)} ${y2}`,
        part: moved("moved", layer, pair) / largest()
      };
    });
    return { rows, scale, size, tops, found };
  }

  const hover = frame(pair => {
    hot = pair;
    last = pair ?? last;
    draw();
    if (pair !== null && texts[0] === state.text) set({ word: word() });
  });

  // The characters of what was pointed at last, in the first text: by these the views know each other's words.
  const word = () => (reply && last !== null ? reply.head.words[last].here.join("-") : null);

  function draw() {
    if (!reply) return;
    const wide = Math.max(240, Math.min(520, joined.clientWidth || 480)), { rows, scale, size, tops, found } = lines(wide);
    const heard = pair => ({ pointerenter: () => hover(pair), pointerleave: () => hover(null) });
    clear(joined,
      s("svg", { viewBox: `0 0 ${wide} ${LINE + 10}`, width: wide, height: LINE + 10, role: "img", "aria-label": texts.join(" / ") },
      found.map(({ pair, path, part }) => s("path",
        {
          class: "tie" + off(pair), d: path, stroke: hue(pair), "stroke-width": 1.2 + 5 * part,
          on: heard(pair)
        })),
      rows.map(({ words }, side) => words.map(one => s("text",
        {
          x: (one.x * scale).toFixed(1), y: tops[side], "font-size": size, class: "said" + off(one.pair),
          fill: one.pair === null ? colour("faint") : hue(one.pair), on: one.pair === null ? {} : heard(one.pair)
        },
        one.text)))));
    charted();
    stated();
  }

  function frameOf(wide) {
    const layers = reply.head.layers.length, most = largest() * 1.06;
    const x = at => LEFT + (layers > 1 ? at / (layers - 1) : 0.5) * (wide - LEFT - RIGHT),
      y = value => TOP + (1 - value / most) * (TALL - TOP - BOTTOM);
    const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find(one => most / one <= 5) ?? 0.5;
    const ticks = Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => at * step);
    const path = (name, word) => reply.head.layers.map((_, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(moved(name, at, word)).toFixed(1)}`).join("");
    // names at the right end, moved apart where they would lie on each other
    const names = reply.head.words.map((one, pair) => ({
      pair, text: one.text, y: y(moved("moved", layers - 1, pair))
    })).sort((a, b) => a.y - b.y);
    names.forEach((one, at) => { if (at) one.y = Math.max(one.y, names[at - 1].y + 14); });
    const over = Math.max(0, (names.at(-1)?.y ?? 0) - (TALL - BOTTOM));
    for (const one of names) one.y -= over;
    return { layers, x, y, ticks, path, names };
  }

  // Where there is one layer: each word and how far it moves.
  function listed() {
    const most = largest(), all = reply.head.words.map((one, pair) => ({ pair, text: one.text, by: moved("moved", 0, pair) }));
    if (all.every(one => one.by < 1e-5)) return h("p", { class: "note" }, t("one.vector"));
    return all.sort((a, b) => b.by - a.by).map(({ pair, text, by }) => h("div", {
      class: "verdict" + off(pair), on: { pointerenter: () => hover(pair), pointerleave: () => hover(null) },
    }, h("span", { style: { color: hue(pair) } }, text), h("span", { class: "num" }, by.toFixed(3)),
    h("span", { class: "bar-line" }, h("i", { style: { "--part": Math.min(1, by / most) } }))));
  }

  function charted() {
    if (reply.head.layers.length === 1) { clear(chart, h("h3", {}, t("chart")), listed()); return; } // one point is no course
    const wide = Math.max(320, chart.clientWidth || 560), { layers, x, y, ticks, path, names } = frameOf(wide);
    const pairs = reply.head.words.map((_, pair) => pair), without = reply.arrays.moved_without;
    const every = layers > 14 ? 4 : layers > 8 ? 2 : 1;
    const picture = s("svg",
      { viewBox: `0 0 ${wide} ${TALL}`, width: wide, height: TALL, role: "img", tabindex: "0", "aria-label": t("chart") },
      ticks.map(value => [s("path", { class: "zero", d: `M${LEFT} ${y(value)}H${wide - RIGHT}` }),
        s("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end", class: "tick" }, value.toFixed(2))]),
      s("path", { class: "here", d: `M${x(layer)} ${TOP}V${TALL - BOTTOM}` }),
      reply.head.layers.map((number, at) => (at === 0 || (at - 1) % every === 0) && s("text",
        {
          x: x(at) + (at || layers === 1 ? 0 : 16), y: TALL - BOTTOM + 18, "text-anchor": at || layers === 1 ? "middle" : "end",
          class: "tick"
        },
        layerName(number))),
      s("text", { x: (LEFT + wide - RIGHT) / 2, y: TALL - 1, "text-anchor": "middle", class: "tick" }, t("by.layer")),
      without && pairs.map(pair => s("path",
        { class: "course without" + off(pair), d: path("moved_without", pair), stroke: hue(pair) })),
      pairs.map(pair => s("path",
        { class: "course" + off(pair), d: path("moved", pair), stroke: hue(pair) })),
      pairs.map(pair => s("circle",
        {
          cx: x(layer), cy: y(moved("moved", layer, pair)), r: hot === pair ? 4.5 : 3.2, fill: hue(pair),
          class: off(pair)
        })),
      names.map(one => s("text", {
        x: wide - RIGHT + 12, y: one.y + 4, fill: hue(one.pair), class: "name" + off(one.pair),
        on: { pointerenter: () => hover(one.pair), pointerleave: () => hover(null) }
      },
        one.text, s("tspan", { class: "tick", dx: 6 }, moved("moved", layer, one.pair).toFixed(3)))));
    picture.addEventListener("pointermove", event => {
      const { left, width } = picture.getBoundingClientRect(),
        at = Math.round(((event.clientX - left) * wide / width - LEFT) / (wide - LEFT - RIGHT) * (layers - 1));
      const next = Math.min(layers - 1, Math.max(0, at));
      if (next !== layer && event.clientX - left < (wide - RIGHT + 8) * width / wide) { layer = next; hover(hot); }
    });
    picture.addEventListener("keydown", event => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      layer = Math.min(layers - 1, Math.max(0, layer + by));
      draw();
      chart.querySelector("svg").focus();
    });
    clear(chart, h("h3", {}, t("chart")), picture);
    picture.dataset.layer = reply.head.layers[layer];
  }

  // Three readers of the two texts, one line each.
  function verdicts() {
    const { head, arrays } = reply, found = [],
      words = head.words.map((one, pair) => ({ text: one.text, by: moved("moved", layer, pair) })).sort((a, b) => b.by - a.by);
    if (head.bag !== null) found.push({ name: t("bag"), by: head.bag, text: head.same_bag ? t("bag.same") : t("bag.other") });
    if (arrays.moved_without) {
      const most = Math.max(...head.words.map((_, pair) => moved("moved_without", layer, pair)));
      found.push({ name: t("without"), by: most, text: most < 1e-4 ? t("without.same") : t("without.causal") });
    }
    if (head.layers.length > 1 || head.bag === null) found.push({
      name: head.layers[layer] === 0 ? t("with.below", { model: head.model }) : t("with",
        { model: head.model, layer: head.layers[layer] - 1 }),
      by: words[0].by, text: words[0].by < 1e-5 ? t("with.none") : t("with.most", { word: words[0].text })
    });
    return found;
  }

  function stated() {
    const most = largest(), lost = reply.head.unknown.flat().map(one => one.text);
    clear(said,
      verdicts().map(({ name, by, text }) => h("div", { class: "verdict" }, h("span", { class: "name" }, name), h("span", { class: "num" }, by.toFixed(3)),
      h("span", { class: "bar-line" }, h("i", { style: { "--part": Math.min(1, by / most) } })), h("span", { class: "note" }, text))),
      lost.length > 0 && h("p", { class: "note" }, t("unknown", { words: [...new Set(lost)].join(" ") })));
  }

  function svg(x0, y0, wide) {
    if (!reply) return { text: "", height: 0 };
    const half = Math.floor((wide - 50) / 2), { rows, scale, size, tops, found } = lines(Math.min(520, half)), parts = [], at = y0 + 10;
    const shift = (d, dx, dy) => d.replace(/([-\d.]+) ([-\d.]+)/g,
      (_, a, b) => `${(Number(a) + dx).toFixed(1)} ${(Number(b) + dy).toFixed(1)}`);
    for (const { pair, path, part } of found) parts.push(svgPath(shift(path, x0, at),
      { stroke: hue(pair), width: 1.2 + 5 * part, opacity: 0.6 }));
    rows.forEach(({ words }, side) => words.forEach(one => parts.push(svgText(x0 + one.x * scale, at + tops[side], one.text,
      { size, fill: one.pair === null ? colour("faint") : hue(one.pair) }))));
    verdicts().forEach(({ name, by, text }, row) => parts.push(svgText(x0, at + LINE + 36 + 22 * row,
      `${name}   ${by.toFixed(3)}   ${text}`, { size: 12.5, fill: colour("soft") })));
    const left = x0 + half + 50, { layers, x, y, ticks, path, names } = frameOf(half);
    parts.push(svgText(left, y0 + 4, t("chart"), { size: 13, weight: 600 }));
    if (layers === 1) {
      const none = !reply.arrays.moved.data.some(one => one >= 1e-5);
      (none ? [{ text: t("one.vector") }] : names).forEach((one, row) => parts.push(svgText(left, at + 22 + 20 * row,
        none ? one.text : `${one.text}   ${moved("moved", 0, one.pair).toFixed(3)}`, { size: 13, fill: none ? colour("soft") : hue(one.pair) })));
      return { text: parts.join(""), height: Math.max(LINE + 90, 40 + 20 * names.length) };
    }
    for (const value of ticks) parts.push(svgLine(left + LEFT, at + y(value), left + half - RIGHT, at + y(value), colour("rule")),
      svgText(left + LEFT - 8, at + y(value) + 4, value.toFixed(2), { size: 11, anchor: "end", fill: colour("faint") }));
    reply.head.layers.forEach((number, i) => (i === 0 || layers < 9 || i % 2 === 1) && parts.push(svgText(
      left + x(i) + (i || layers === 1 ? 0 : 16), at + TALL - BOTTOM + 18, layerName(number),
      { size: 11, anchor: i || layers === 1 ? "middle" : "end", fill: colour("faint") })));
    reply.head.words.forEach((_, pair) => parts.push(svgPath(shift(path("moved", pair).replace(/[ML]/g, c => c), left, at),
      { stroke: hue(pair), width: 1.8 })));
    for (const one of names) parts.push(svgText(left + half - RIGHT + 12, at + one.y + 4, one.text, { size: 13, fill: hue(one.pair) }));
    parts.push(svgText(left + (LEFT + half - RIGHT) / 2, at + TALL, t("by.layer"), { size: 11, anchor: "middle", fill: colour("faint") }));
    return { text: parts.join(""), height: TALL + 40 };
  }

  const numbers = () => reply && ({
    layer, words: reply.head.words, moved: [...reply.arrays.moved.data], shape: reply.arrays.moved.shape, bag: reply.head.bag
  });

  return { root, fill, refuse, draw, svg, numbers, word };
}
