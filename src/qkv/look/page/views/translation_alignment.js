// Source and translation joined word by word: curves, and the same weights as a heat map. Without attention: all words
// flow into the one vector C, and one arrow leaves it (fixed), or one to every word (every step). Draws SVG, asks nothing.
//
//   alignment(app) → {root, draw(reply, candidate, width), point({source, target}), ring(), parts() → [<svg>, …] for export}

import { clear, clip, h, s, sliced } from "look/dom.js";
import { colour, rgb } from "look/draw.js";
import { percent, shownToken, widthOf } from "look/views/translation_words.js";

export const LEAST = 0.04; // fainter lines are not drawn
const GAP = 44, BESIDE = 250; // between figures; what the list beside them needs
const NUMBERED = 14; // columns of a map whose cells show their numbers

export function alignment(app) {
  const root = h("div", { class: "tr-alignment" });
  let tokenOf = () => null, spanOf = () => null, found = null; // of a source word; what was drawn last
  const wordOf = word => { const span = spanOf(word); return span && span[0] < span[1] ? { word: span.join("-") } : {}; };
  let drawn = [], marked = []; // <svg> nodes; [element, source or null, target or null, kind]

  function draw(reply, number, width) {
    const candidate = reply.head.candidates[number];
    marked = [];
    found = candidate.links ? aligned(reply, number) : null;
    tokenOf = found?.tokenOf ?? (word => word);
    spanOf = word => candidate.source_words?.[word] ?? (reply.head.source[word] && [reply.head.source[word].start, reply.head.source[word].end]);
    drawn = found ? [lines(found), map(found)] : [funnel(reply, candidate, Math.min(width, 760))];
    const total = drawn.reduce((sum, node) => sum + node.width.baseVal.value + GAP, 0);
    root.parentNode?.parentNode?.parentNode?.style.setProperty("--tr-columns", total + BESIDE <= width ? `${total}px minmax(0, 1fr)` : "minmax(0, 1fr)");
    clear(root, drawn.map(node => h("figure", { class: "figure" }, node)));
    point();
  }

  // The word that was pointed at last, in whatever view.
  function ring() {
    const [start, end] = (app.state.word ?? "").split("-").map(Number);
    if (found && end > start) point({ source: found.ofSpan(start, end) });
  }

  // Everything that belongs to a word stays, the rest steps back.
  function point({ source = null, target = null } = {}) {
    for (const [node, from, to, kind] of marked) {
      const on = (source === null || from === source) && (target === null || to === target);
      const idle = source === null && target === null;
      if (kind === "line") {
        node.setAttribute("stroke", on && !idle ? colour("hot") : node.dataset.link ? colour("accent") : colour("faint"));
        node.setAttribute("opacity", idle || on ? node.dataset.opacity : 0.06);
      } else if (kind === "word") {
        const hit = (source !== null && from === source) || (target !== null && to === target);
        node.setAttribute("fill", hit ? colour("hot") : node.dataset.fill);
        node.setAttribute("font-weight", hit ? 650 : 450);
      } else node.setAttribute("opacity", idle || on ? 1 : 0.25);
    }
  }

  function word(x, y, label, anchor, size, of, fill = colour("ink")) {
    const idle = of.source === undefined && of.target === undefined;
    const node = s("text", {
      x, y, dy: ".35em", "text-anchor": anchor, "font-size": size, "font-weight": 450, fill, class: "tr-word", tabindex: idle ? null : 0,
      data: { fill, ...of },
    }, label);
    marked.push([node, of.source ?? null, of.target ?? null, "word"]);
    return heard(node, of);
  }

  function heard(node, of) {
    const from = of.source === undefined ? null : +of.source, to = of.target === undefined ? null : +of.target;
    const over = () => { point({ source: from, target: to }); app.set(from === null ? { token: null } : { token: tokenOf(from), ...wordOf(from) }); };
    const left = () => { point(); app.set({ token: null }); };
    for (const name of ["pointerenter", "focus"]) node.addEventListener(name, over);
    for (const name of ["pointerleave", "blur"]) node.addEventListener(name, left);
    return node;
  }

  function lines(found) {
    const { row, size, source, target } = found;
    const headed = (key, code) => widthOf(app.t(key) + "  " + languageName(code, app.state.lang), 12.5) + 4;
    const wide = Math.max(headed("source", found.languages[0]), ...source.map(one => widthOf(one, size)));
    const other = Math.max(headed("target", found.languages[1]), ...target.map(one => widthOf(one, size)));
    const x0 = wide + 12, x1 = x0 + Math.max(120, Math.min(180, 40 + 13 * Math.max(source.length, target.length)));
    const top = found.top, high = top + row * Math.max(source.length, target.length) + 6;
    const node = picture(x1 + 12 + other + 14, high, `${app.t("source")} → ${app.t("target")}`);
    const middle = (place, count) => top + (place + 0.5 + (Math.max(source.length, target.length) - count) / 2) * row;
    heading(node, x0 - 8, middle(0, source.length) - row / 2 - 8, app.t("source"), found.languages[0], "end");
    heading(node, x1 + 8, middle(0, target.length) - row / 2 - 8, app.t("target"), found.languages[1], "start");
    const curves = s("g", { fill: "none", "stroke-linecap": "round" });
    node.append(curves);
    const strokes = [];
    for (let i = 0; i < target.length; i += 1) {
      for (let j = 0; j < source.length; j += 1) {
        const weight = found.weight(i, j);
        if (weight < LEAST) continue;
        const y0 = middle(j, source.length), y1 = middle(i, target.length), bend = (x1 - x0) * 0.46;
        const linked = found.linked.has(i + " " + j), opacity = (linked ? 0.45 + 0.5 * weight : 0.16 + 0.5 * weight).toFixed(3);
        const path = s("path", {
          d: `M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}`, stroke: linked ? colour("accent") : colour("faint"),
          "stroke-width": ((0.7 + 5 * weight) * Math.min(1, row / 26)).toFixed(2), opacity, data: { link: linked ? 1 : "", opacity, source: j, target: i },
        }, s("title", {}, `${found.target[i]} ← ${found.source[j]}  ${percent(weight)}`));
        marked.push([path, j, i, "line"]);
        strokes.push([linked, weight, path]);
      }
    }
    strokes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    curves.append(...strokes.map(one => one[2]));
    source.forEach((label, j) => node.append(word(x0 - 8, middle(j, source.length), label, "end", size, { source: j })));
    target.forEach((label, i) => node.append(word(x1 + 8, middle(i, target.length), label, "start", size, { target: i })));
    return node;
  }

  function map(found) {
    const { row, size, source, target, top } = found;
    const columns = [...source, ...(found.hasRest ? [app.t("end")] : [])];
    const left = Math.max(...target.map(one => widthOf(one, size))) + 12;
    const last = 0.71 * widthOf(columns.at(-1), size);
    const node = picture(left + row * columns.length + Math.max(8, last - row / 2), top + row * target.length + 6, app.t("title"));
    node.append(s("rect", { x: left, y: top, width: row * columns.length, height: row * target.length, fill: colour("panel"), rx: 3 }));
    const side = row >= 15 ? row - 1 : row, [r, g, b] = rgb(colour("accent")), dull = colour("faint");
    for (let i = 0; i < target.length; i += 1) {
      for (let j = 0; j < columns.length; j += 1) {
        const weight = j < source.length ? found.weight(i, j) : found.rest(i);
        if (weight < 0.02) continue;
        const x = left + j * row, y = top + i * row, real = j < source.length;
        const cell = s("g", { data: { source: j, target: i } },
          s("rect", {
            x: x + (row - side) / 2, y: y + (row - side) / 2, width: side, height: side, rx: row >= 15 ? 2 : 0,
            fill: real ? `rgb(${r},${g},${b})` : dull, "fill-opacity": (weight ** 0.75).toFixed(3),
          }),
          s("title", {}, `${target[i]} ← ${columns[j]}  ${percent(weight)}`));
        if (columns.length <= NUMBERED && row >= 20 && weight >= 0.1) {
          cell.append(s("text", {
            x: x + row / 2, y: y + row / 2, dy: ".35em", "text-anchor": "middle", "font-size": (row * 0.34).toFixed(1),
            fill: weight >= 0.5 ? colour("on-accent") : colour("ink"),
          }, Math.round(100 * weight)));
        }
        if (real) heard(cell, { source: j, target: i });
        marked.push([cell, real ? j : null, i, "cell"]);
        node.append(cell);
      }
    }
    for (const one of found.boxes) {
      node.append(s("rect", {
        x: left + one.j * row, y: top + one.first * row, width: row, height: row * (one.last - one.first + 1), rx: 4,
        fill: "none", stroke: colour("hot"), "stroke-width": 1.6,
      }));
    }
    target.forEach((label, i) => node.append(word(left - 8, top + (i + 0.5) * row, label, "end", size, { target: i })));
    columns.forEach((label, j) => {
      const x = left + (j + 0.5) * row + size * 0.3, y = top - 8, real = j < source.length;
      const shown = word(0, 0, label, "start", real ? size : Math.min(size, 12), real ? { source: j } : {}, real ? colour("ink") : colour("faint"));
      shown.setAttribute("transform", `translate(${x} ${y}) rotate(-45)`);
      shown.removeAttribute("dy");
      node.append(shown);
    });
    return node;
  }

  // Words into C, C into the decoder.
  function funnel(reply, candidate, width) {
    const source = reply.head.source.map(one => one.text || shownToken(one.token)), target = candidate.tokens.map(one => one.text || shownToken(one.token));
    const size = 15, gap = 18, every = reply.head.context === "every_step", values = reply.arrays.context.data;
    const spread = (list, y) => {
      const widths = list.map(one => widthOf(one, size)), total = widths.reduce((sum, one) => sum + one + gap, -gap);
      let x = Math.max(0, (wide - total) / 2);
      return widths.map(one => { const at = { x: x + one / 2, y }; x += one + gap; return at; });
    };
    const longest = Math.max(...[source, target].map(list => list.reduce((sum, one) => sum + widthOf(one, size) + gap, 0)));
    const wide = Math.max(width, longest + 20), node = picture(wide, 268, app.t("title"));
    const above = spread(source, 40), below = spread(target, 236), cx = wide / 2, strip = Math.min(320, wide * 0.5), cy = 138;
    const most = Math.max(...values.map(Math.abs)) || 1;
    for (const at of above) {
      const d = `M${at.x} ${at.y + 14}C${at.x} ${at.y + 52} ${cx} ${cy - 56} ${cx} ${cy - 17}`;
      node.append(s("path", { d, fill: "none", stroke: colour("faint"), "stroke-width": 1.2, opacity: 0.55 }));
    }
    const shown = Array.from(values).slice(0, 160), w = strip / shown.length;
    node.append(s("rect", { x: cx - strip / 2 - 3, y: cy - 15, width: strip + 6, height: 30, rx: 6, fill: colour("panel") }));
    shown.forEach((value, at) => node.append(s("rect", {
      x: cx - strip / 2 + at * w, y: cy - 12, width: w, height: 24,
      fill: colour(value < 0 ? "cold" : "warm"), "fill-opacity": Math.min(1, Math.abs(value) / most).toFixed(3),
    })));
    node.append(s("text", { x: cx - strip / 2 - 14, y: cy, dy: ".35em", "text-anchor": "end", "font-size": 19, "font-style": "italic", fill: colour("ink") }, "C"));
    const ends = every ? below : below.slice(0, 1);
    for (const at of ends) {
      const d = `M${cx} ${cy + 17}C${cx} ${cy + 58} ${at.x} ${at.y - 56} ${at.x} ${at.y - 20}`;
      node.append(s("path", { d, fill: "none", stroke: colour("accent"), "stroke-width": every ? 1.6 : 2.6 }),
        s("path", { d: `M${at.x - 4.5} ${at.y - 23}L${at.x} ${at.y - 15}L${at.x + 4.5} ${at.y - 23}`, fill: "none", stroke: colour("accent"), "stroke-width": 1.8 }));
    }
    above.forEach((at, j) => node.append(word(at.x, at.y, source[j], "middle", size, { source: j }, reply.head.source[j].special ? colour("faint") : colour("ink"))));
    below.forEach((at, i) => node.append(word(at.x, at.y, target[i], "middle", size, { target: i })));
    return node;
  }

  function heading(node, x, y, label, code, anchor) {
    const text = s("text", { x, y, "text-anchor": anchor, "font-size": 12, fill: colour("faint") }, label);
    if (code) text.append(s("tspan", { dx: 6, fill: colour("soft") }, languageName(code, app.state.lang)));
    node.append(text);
  }

  return { root, draw, point, ring, parts: () => drawn };
}

export function picture(width, height, label) {
  const w = Math.ceil(width), high = Math.ceil(height);
  return s("svg", { width: w, height: high, viewBox: `0 0 ${w} ${high}`, role: "img", "aria-label": label });
}

export function languageName(code, lang) {
  if (!code || /^(und|root|mul|zxx)\b/i.test(code)) return ""; // no language: the heading stands alone
  try { return new Intl.DisplayNames([lang === "zh" ? "zh-Hans" : "en"], { type: "language" }).of(code); } catch { return code; }
}

// The words of a candidate with what joins them, and the measures both figures share.
function aligned({ head, arrays }, number) {
  const candidate = head.candidates[number], { data, shape: [, X] } = arrays["alignment" + number], rest = arrays["rest" + number].data;
  const source = candidate.source_words.map(span => clip(sliced(head.text, ...span), 22));
  const target = candidate.target_words.map(span => clip(sliced(candidate.text, ...span), 22));
  const most = Math.max(source.length, target.length), row = Math.max(15, Math.min(32, Math.round(330 / most)));
  const size = Math.min(16, 5 + row * 0.37), linked = new Set(), boxes = [];
  const meets = (word, one) => word[0] < one.end && one.start < word[1];
  for (const link of candidate.links) {
    const rows = candidate.target_words.flatMap((word, i) => (meets(word, link.target) ? [i] : []));
    const j = candidate.source_words.findIndex(word => meets(word, link.source));
    for (const i of rows) linked.add(i + " " + j);
    if (rows.length && j >= 0) boxes.push({ first: rows[0], last: rows.at(-1), j });
  }
  const hasRest = rest.some(one => one >= 0.005);
  const slant = Math.max(...source.map(one => 0.71 * widthOf(one, size)), hasRest ? 44 : 0) + size;
  return {
    source, target, row, size, linked, boxes, hasRest, languages: head.languages, top: Math.max(34, slant + 12),
    weight: (i, j) => data[i * X + j], rest: i => rest[i],
    tokenOf: word => head.source.findIndex(one => one.start < candidate.source_words[word][1] && candidate.source_words[word][0] < one.end),
    ofSpan: (start, end) => {
      const place = candidate.source_words.findIndex(word => word[0] < end && start < word[1]);
      return place < 0 ? null : place;
    },
  };
}
