// The strips: hidden state, cell and gates as heat maps, time × units, under the words; the chosen unit as lines, and how
// surprising each word was. One drawing for the screen (canvas) and for export (SVG), through two pens. Asks nothing.
//
//   canvasPen(ctx), svgPen() → {heat, signed, text, rect, line, path, out?}
//   measured(found, width) → layout      where everything lies
//   painted(pen, found, layout, shown)   shown = {step, unit, order: [...], ownOrder: [...], read: column → boolean}
//   placeAt(layout, x, y) → {letter, column, row} | null

import { clip } from "look/dom.js";
import { colour, escaped, font, heat, heatSvg, hue, signed, signedSvg, svgLine, svgPath, svgRect, svgText } from "look/draw.js";
import { HUES, labelOf } from "look/views/recurrence_words.js";
import { widthOf } from "look/views/translation_words.js";

const ORDER = ["c", "h", "m", "f", "i", "o", "g", "r", "z", "n"];
const LEFT = 128, GAP = 12, LETTER = 11; // pixels
const FULL = 0.88; // how strong an open gate is drawn

export function canvasPen(ctx) {
  return {
    heat: (...args) => heat(ctx, ...args), signed: (...args) => signed(ctx, ...args),
    rect(x, y, w, high, fill, { opacity = 1, stroke } = {}) {
      ctx.globalAlpha = opacity;
      if (stroke) { ctx.strokeStyle = stroke; ctx.lineWidth = 1.5; ctx.strokeRect(x, y, w, high); } else { ctx.fillStyle = fill; ctx.fillRect(x, y, w, high); }
      ctx.globalAlpha = 1;
    },
    line(x1, y1, x2, y2, stroke, { width = 1, opacity = 1 } = {}) {
      ctx.globalAlpha = opacity; ctx.strokeStyle = stroke; ctx.lineWidth = width;
      ctx.beginPath(); ctx.moveTo(x1, y1); ctx.lineTo(x2, y2); ctx.stroke(); ctx.globalAlpha = 1;
    },
    path(points, stroke, { width = 1.5, opacity = 1 } = {}) {
      ctx.globalAlpha = opacity; ctx.strokeStyle = stroke; ctx.lineWidth = width; ctx.lineJoin = "round";
      ctx.beginPath(); points.forEach(([x, y], at) => (at ? ctx.lineTo(x, y) : ctx.moveTo(x, y))); ctx.stroke(); ctx.globalAlpha = 1;
    },
    text(x, y, text, { size = 13, weight = 400, fill = colour("ink"), anchor = "start", rotate = 0, italic = false } = {}) {
      ctx.save();
      ctx.translate(x, y); ctx.rotate((rotate * Math.PI) / 180);
      ctx.font = (italic ? "italic " : "") + (italic ? `${weight} ${size}px ${colour("serif")}` : font(size, weight));
      ctx.fillStyle = fill; ctx.textAlign = anchor === "middle" ? "center" : anchor;
      ctx.fillText(text, 0, 0);
      ctx.restore();
    },
  };
}

export function svgPen() {
  const out = [];
  return {
    out,
    heat: (...args) => out.push(heatSvg(...args)), signed: (...args) => out.push(signedSvg(...args)),
    rect(x, y, w, high, fill, { opacity = 1, stroke } = {}) {
      out.push(stroke ? svgPath(`M${x} ${y}h${w}v${high}h${-w}z`, { stroke, width: 1.5 }) : svgRect(x, y, w, high, fill, { opacity }));
    },
    line: (x1, y1, x2, y2, stroke, how) => out.push(svgLine(x1, y1, x2, y2, stroke, how)),
    path(points, stroke, { width = 1.5, opacity = 1 } = {}) {
      out.push(svgPath("M" + points.map(one => one.map(value => value.toFixed(1)).join(" ")).join("L"), { stroke, width, opacity }));
    },
    text(x, y, text, how = {}) {
      const slanted = `<text font-style="italic" font-family="${escaped(colour("serif"))}" `;
      out.push(how.italic ? svgText(x, y, text, how).replace("<text ", slanted) : svgText(x, y, text, how));
    },
  };
}

// found = {head, arrays, next: reply of next_words | null}
export function measured(found, width, rows) {
  const { head, arrays } = found, T = head.tokens.length;
  const column = Math.max(13, Math.min(104, Math.floor((width - LEFT - 22) / T)));
  const size = Math.min(15, Math.max(10.5, column * 0.42)), labels = head.tokens.map(token => clip(labelOf(token), 18));
  const slanted = labels.some(label => widthOf(label, size) > column - 4);
  const top = slanted ? Math.min(110, Math.max(...labels.map(label => 0.71 * widthOf(label, size)))) + 16 : 28;
  const letters = ORDER.filter(letter => arrays[letter]);
  const each = Math.max(58, rows === 64 ? rows : 0, Math.min(150, Math.floor((letters.length > 4 ? 490 : 420) / letters.length) - GAP));
  const strips = letters.map((letter, at) => {
    const units = arrays[letter].shape[1], own = letter === "h" && head.projected, count = rows === 0 ? units : Math.min(rows, units);
    return { letter, own, units, count, y: top + at * (each + GAP), height: each, range: head.parts.find(part => part.letter === letter).range };
  });
  const chart = { y: top + letters.length * (each + GAP) + 6, height: 74 };
  const bars = found.next?.head.words[head.direction] ? { y: chart.y + chart.height + 22, height: 34 } : null;
  const right = LEFT + T * column + (slanted ? 0.71 * widthOf(labels.at(-1), size) : 0);
  const bottom = bars ? bars.y + bars.height : chart.y + chart.height;
  return { T, column, left: LEFT, size, labels, slanted, top, strips, chart, bars, width: right + 14, height: bottom + 14 };
}

// (rows, T): the units of a strip in their order. Where there are more than pixels, gates that share one are averaged; of
// states, whose mean would be nothing, the one farthest from 0 is shown.
export function gathered(array, order, count, most, averaged) {
  const [T, units] = array.shape, rows = Math.min(count, most), out = new Float32Array(rows * T);
  for (let place = 0; place < count; place += 1) {
    const row = Math.floor((place * rows) / count);
    for (let at = 0; at < T; at += 1) {
      const value = array.data[at * units + order[place]];
      if (averaged) out[row * T + at] += (value * rows) / count;
      else if (Math.abs(value) > Math.abs(out[row * T + at])) out[row * T + at] = value;
    }
  }
  return { values: out, rows };
}

export function painted(pen, app, found, layout, shown) {
  const { arrays } = found, { T, column, left } = layout, wide = T * column, { t } = app;
  layout.labels.forEach((label, at) => {
    const now = at === shown.step, plain = shown.read(at) && !found.head.tokens[at].special;
    const fill = colour(now ? "hot" : plain ? "ink" : "faint");
    const x = left + (at + 0.5) * column;
    if (layout.slanted) pen.text(x + 2, layout.top - 9, label, { size: layout.size, fill, weight: now ? 650 : 450, rotate: -45 });
    else pen.text(x, layout.top - 10, label, { size: layout.size, fill, weight: now ? 650 : 450, anchor: "middle" });
  });
  for (const strip of layout.strips) {
    const order = strip.own ? shown.ownOrder : shown.order;
    const { values, rows } = gathered(arrays[strip.letter], order, strip.count, strip.height, strip.range === "gate"), tint = hue(HUES[strip.letter]);
    pen.text(left - 84, strip.y + strip.height / 2 + 6, strip.letter, { size: 21, italic: true, anchor: "end", fill: strip.range === "gate" ? tint : colour("ink") });
    pen.text(left - 76, strip.y + strip.height / 2 + 4, clipped(t("name." + strip.letter), 64), { size: 12, fill: colour("soft") });
    pen.rect(left, strip.y, wide, strip.height, colour("panel"));
    const bytes = strip.range === "gate" && Uint8Array.from(values, value => Math.round(255 * FULL * Math.min(1, value)));
    if (bytes) pen.heat(bytes, rows, T, left, strip.y, wide, strip.height, tint, { gamma: 1 });
    else pen.signed(values, rows, T, left, strip.y, wide, strip.height, { most: strip.range === "cell" ? largest(values) : Math.max(0.25, largest(values)) });
    layout.labels.forEach((_, at) => { if (!shown.read(at)) pen.rect(left + at * column, strip.y, column, strip.height, colour("paper"), { opacity: 0.78 }); });
    const row = strip.own ? -1 : order.indexOf(shown.unit);
    if (row >= 0 && row < strip.count) {
      const high = strip.height / strip.count, y = strip.y + row * high;
      pen.rect(left - 5, y, 3, Math.max(2, high), colour("hot"));
      pen.rect(left + shown.step * column, y, column, Math.max(2, high), "", { stroke: colour("hot") });
    }
  }
  const last = layout.strips.at(-1);
  for (const x of [left + shown.step * column, left + (shown.step + 1) * column]) pen.line(x, layout.top, x, last.y + last.height, colour("hot"), { opacity: 0.5 });
  drawChart(pen, app, found, layout, shown);
  if (layout.bars) drawBars(pen, app, found, layout, shown);
}

// The chosen unit: every letter as a line over the words.
function drawChart(pen, app, { arrays }, { chart, left, column, T, strips }, shown) {
  const lines = strips.filter(strip => !strip.own).map(({ letter, range, units }) => ({
    letter, gate: range === "gate", values: Array.from({ length: T }, (_, at) => arrays[letter].data[at * units + shown.unit]),
  }));
  // the cell may go far beyond ±1, where all else stays: it has a scale of its own
  const memory = lines.find(line => line.letter === "c"), most = memory ? Math.max(1, ...memory.values.map(Math.abs)) : 1;
  const y = (value, letter) => chart.y + (chart.height / 2) * (1 - value / (letter === "c" ? most : 1)), x = at => left + (at + 0.5) * column;
  pen.text(left - 8, chart.y + chart.height / 2 + 4, app.t("unit") + " " + shown.unit, { size: 12, anchor: "end", fill: colour("soft") });
  if (most > 1) pen.text(left - 8, chart.y + 8, `c ± ${most.toFixed(1)}`, { size: 11, anchor: "end", fill: colour("faint") });
  pen.line(left, y(0), left + T * column, y(0), colour("rule"));
  pen.line(x(shown.step), chart.y, x(shown.step), chart.y + chart.height, colour("hot"), { opacity: 0.5 });
  for (const { letter, gate, values } of lines) {
    const stroke = hue(HUES[letter]), strong = letter === "c" || (letter === "h" && !arrays.c);
    pen.path(values.map((value, at) => [x(at), y(value, letter)]), stroke, { width: strong ? 2.6 : 1.3, opacity: gate ? 0.8 : 1 });
  }
  // letters at the end of their lines, none on top of another
  const ends = lines.map(({ letter, values }) => ({ letter, at: y(values[T - 1], letter) + 4 })).sort((one, other) => one.at - other.at);
  ends.forEach((one, place) => { if (place) one.at = Math.max(one.at, ends[place - 1].at + LETTER); });
  const over = ends.at(-1).at - (chart.y + chart.height + 6);
  ends.forEach((one, place) => { if (over > 0) one.at = Math.min(one.at, chart.y + chart.height + 6 - (ends.length - 1 - place) * LETTER); });
  for (const { letter, at } of ends) pen.text(x(T - 1) + column / 2 + 5, at, letter, { size: 13, italic: true, fill: hue(HUES[letter]) });
}

// −log₂ p of what came; a bar a word, under the word that was to be predicted.
function drawBars(pen, app, { next, head }, { bars, left, column, T }, shown) {
  const came = next.arrays[head.direction + "_came"].data, step = head.direction === "forward" ? 1 : -1, most = 16;
  pen.text(left - 8, bars.y + bars.height - 6, app.t("surprise"), { size: 12, anchor: "end", fill: colour("soft") });
  pen.line(left, bars.y + bars.height + 0.5, left + T * column, bars.y + bars.height + 0.5, colour("rule"));
  for (let at = 0; at < T; at += 1) {
    const p = came[at - step];
    if (!(p > 0) || at - step < 0 || at - step >= T) continue;
    const bits = Math.min(most, -Math.log2(p)), high = Math.max(1, (bars.height * bits) / most);
    const y = bars.y + bars.height - high, fill = colour(at === shown.step + step ? "hot" : "faint");
    pen.rect(left + at * column + column * 0.22, y, column * 0.56, high, fill, { opacity: shown.read(at) ? 0.85 : 0.35 });
    if (column >= 30) pen.text(left + (at + 0.5) * column, y - 4, (-Math.log2(p)).toFixed(1), { size: 10.5, anchor: "middle", fill: colour("faint") });
  }
}

export function placeAt(layout, x, y) {
  const column = Math.floor((x - layout.left) / layout.column);
  if (column < 0 || column >= layout.T) return null;
  const strip = layout.strips.find(one => y >= one.y && y < one.y + one.height);
  return { column, letter: strip?.letter ?? null, own: strip?.own ?? false, row: strip ? Math.floor(((y - strip.y) / strip.height) * strip.count) : -1 };
}

function clipped(text, width) {
  let shown = text;
  while (shown.length > 1 && widthOf(shown, 12) > width + 12) shown = shown.slice(0, -1);
  return shown === text ? text : shown.trimEnd() + "…";
}

function largest(values) {
  let most = 0;
  for (const value of values) most = Math.max(most, Math.abs(value));
  return most || 1;
}
