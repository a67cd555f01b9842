// The tables of positions as maps: the waves of the Transformer, the model's own, and how alike positions are in each; with
// the formula and its numbers, the wave of one dimension and the likeness of one position under the pointer. Gets its
// reply ready made; asks nothing.
//
//   tables(app) → { root, fill(reply), draw(), svg(x, y) → {text, width, height}, numbers() }
//   point = {which: "sinusoid" | "own", row, column}    under the pointer, else as it was pinned (kept in state.positions)

import { clear, frame, h, s } from "look/dom.js";
import { canvas, colour, signed, signedSvg, svgLine, svgPath, svgRect, svgText } from "look/draw.js";

const GAP = 30, TALL = 124, SIDE = 320;

export function tables(app) {
  const { t, state, set } = app;
  const maps = h("div", { class: "maps" }), formula = h("p", { class: "formula" }), charts = h("div", { class: "charts" });
  const root = h("section", {}, maps, formula, charts);
  let reply = null, figures = [], point = { which: "sinusoid", row: 20, column: 12 }, waves = null, built = "", drawn = [];

  // Four maps in a row where they fit, else two, else one.
  const side = () => {
    const room = maps.clientWidth || 1120, across = room > 760 ? 4 : room > 420 ? 2 : 1;
    return Math.min(across === 1 ? 360 : across === 2 ? 340 : SIDE, Math.floor((room - (across - 1) * GAP) / across));
  };
  const table = which => reply.arrays[which];
  const likeness = which => reply.arrays[which + "_similarity"];
  const clamp = (value, most) => Math.min(most - 1, Math.max(0, value));

  function fill(found) {
    reply = found;
    const kept = state.positions ?? {};
    point = held({ which: kept.which ?? "sinusoid", row: kept.row ?? 20, column: kept.column ?? 12 });
    figures = [];
    for (const which of ["sinusoid", ...(reply.arrays.own ? ["own"] : [])]) figures.push(figure(which, "table"), figure(which, "likeness"));
    clear(maps, figures.map(one => one.root),
      !reply.arrays.own && h("p", { class: "note none" },
        t(["table", "nnlm"].includes(reply.head.kind) ? "own.bag" : "own.none", { model: reply.head.model })));
    draw();
  }

  function held({ which, row, column }) {
    const real = reply.arrays[which] && (which === "sinusoid" || which === "own") ? which : "sinusoid";
    const [rows, columns] = table(real).shape, whole = (value, first) => (Number.isInteger(value) ? value : first);
    return { which: real, row: clamp(whole(row, 20), rows), column: clamp(whole(column, 12), columns) };
  }

  // One map. Of a table rows are positions and columns dimensions; of likeness both are positions.
  function figure(which, what) {
    const plate = canvas(10, 10), line = s("path", { class: "cross" });
    const over = s("svg", { class: "over" }, line);
    const box = h("div", { class: "box", tabindex: "0", role: "application", on: { keydown: event => keyed(event) } }, plate.node, over);
    const root = h("figure", { class: "figure map", data: { map: which + "." + what } }, h("figcaption", {}), box,
      h("p", { class: "axis note" }));
    const one = { which, what, root, plate, box, line };
    const at = event => {
      const { left, top, width, height } = box.getBoundingClientRect(),
        [rows, columns] = (what === "table" ? table : likeness)(which).shape;
      const row = clamp(Math.floor((event.clientY - top) / height * rows), rows),
        column = clamp(Math.floor((event.clientX - left) / width * columns), columns);
      return what === "table" ? { which, row, column } : { which, row, column: point.which === which ? point.column : 0, other: column };
    };
    box.addEventListener("pointermove", event => pointed(at(event)));
    box.addEventListener("pointerdown",
      event => { const found = at(event); set({ positions: { which: found.which, row: found.row, column: found.column } }); });
    function keyed(event) {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const from = point.which === which ? point : { row: 0, column: 0 };
      point = held({ which, row: from.row + step[0], column: from.column + step[1] });
      set({ positions: point });
      marked();
    }
    return one;
  }

  const pointed = frame(found => { point = found; marked(); });

  function painted(one) {
    const { data, shape: [rows, columns] } = (one.what === "table" ? table : likeness)(one.which), wide = side();
    one.plate.resize(wide, wide).clear();
    if (!one.plate.ctx) { clear(one.box, app.refusal({ code: "no_canvas", about: {} }), numbered(data, rows, columns)); return; }
    signed(one.plate.ctx, data, rows, columns, 0, 0, wide, wide, { most: strongest(one) });
    one.box.style.width = one.box.style.height = one.root.style.width = wide + "px";
  }

  // Full colour: 1 for what lies between −1 and 1, else nearly the largest there is.
  function strongest(one) {
    if (one.what === "likeness" || one.which === "sinusoid") return 1;
    const sizes = Float32Array.from(table("own").data, Math.abs).sort();
    return sizes[Math.floor(0.995 * (sizes.length - 1))] || 1;
  }

  function numbered(data, rows, columns) {
    return h("table", { class: "table" }, Array.from({ length: Math.min(8, rows) }, (_, row) =>
      h("tr", {},
        Array.from({ length: Math.min(6, columns) }, (_, column) => h("td", { class: "num" }, data[row * columns + column].toFixed(2))))));
  }

  function draw() {
    if (!reply) return;
    for (const one of figures) {
      painted(one);
      const { own } = reply.head;
      const title = one.which === "sinusoid" ? t("waves") : t("own." + own.kind, { model: reply.head.model });
      one.root.querySelector("figcaption").textContent = one.what === "table" ? title : t("likeness");
      const shown = one.which === "own" && own.rows < own.of ? t("first", { rows: own.rows, of: own.of }) : "";
      one.root.querySelector(".axis").textContent = one.what === "table" ? t("axis.table",
        { rows: table(one.which).shape[0] - 1, columns: table(one.which).shape[1] - 1 }) + shown : t("axis.likeness");
    }
    marked();
  }

  function marked() {
    for (const one of figures) {
      const [rows, columns] = (one.what === "table" ? table : likeness)(one.which).shape, wide = one.plate.width;
      const on = one.which === point.which, y = (point.row + 0.5) / rows * wide,
        x = ((one.what === "table" ? point.column : point.other ?? point.row) + 0.5) / columns * wide;
      one.line.setAttribute("d", on ? `M0 ${y}H${wide}M${x} 0V${wide}` : "");
    }
    stated();
    charted();
  }

  // The number under the pointer, and how it comes about.
  function stated() {
    const { which, row, column, other } = point, { data, shape: [, columns] } = table(which);
    if (other !== undefined) {
      const cosine = likeness(which).data[row * likeness(which).shape[1] + other];
      clear(formula, t("alike", { one: row, two: other }), " ", h("b", {}, cosine.toFixed(3)),
        h("span", { class: "faint" }, "   " + t("apart", { n: Math.abs(row - other) })));
      return;
    }
    const value = data[row * columns + column];
    const wave = which === "sinusoid" || reply.head.own.kind !== "learned";
    if (!wave) { clear(formula, `P[${row}, ${column}] = `, h("b", {}, value.toFixed(4)),
      h("span", { class: "faint" }, "   " + t("learned.note"))); return; }
    const halved = which === "own" && reply.head.own.kind === "halved";
    const pair = halved ? column % (columns / 2) : Math.floor(column / 2), isSine = halved ? column < columns / 2 : column % 2 === 0;
    const name = isSine ? "sin" : "cos", angle = row / 10000 ** (2 * pair / columns), length = 2 * Math.PI * 10000 ** (2 * pair / columns);
    clear(formula, h("i", {}, "PE"), "(", row, ", ", column, ") = ", name, "( ", h("i", {}, "pos"), " / 10000", h("sup", {}, "2i / D"),
      " ) = ", name, "( ", row, " / 10000", h("sup", {}, `${2 * pair} / ${columns}`), " ) = ",
      name, "( ", angle.toFixed(4), " ) = ", h("b", {}, value.toFixed(4)), h("span", { class: "faint" },
        "   " + t("wavelength", { n: length < 1000 ? length.toFixed(1) : Math.round(length) })));
  }

  // Two curves: the dimension over all positions, and how alike this position is to all others.
  function charted() {
    const { which, row, column } = point, { data, shape: [rows, columns] } = table(which), like = likeness(which);
    const one = Array.from({ length: rows }, (_, at) => data[at * columns + column]);
    const two = Array.from(like.data.subarray(row * rows, (row + 1) * rows));
    const room = charts.clientWidth || 1120, wide = room > 700 ? Math.floor((room - GAP) / 2) : room;
    waves = [{ values: one, title: t("dimension", { column }), at: row }, { values: two, title: t("near.position", { row }), at: row }
    ].map(chart => ({ ...chart, wide, ...curve(chart.values, wide) }));
    const key = [wide, rows, state.lang].join();
    if (key !== built) {
      built = key;
      drawn = waves.map(() => ({
        title: h("figcaption"), zero: s("path", { class: "zero" }), line: s("path", { class: "curve" }),
        spot: s("circle", { r: 4.5, class: "spot" })
      }));
      clear(charts,
        drawn.map(({ title, zero, line, spot }) => h("figure", { class: "figure" }, title, s("svg", {
          viewBox: `0 0 ${wide} ${TALL}`, width: wide, height: TALL
        }, zero, line, spot,
        s("text", { x: wide, y: TALL - 2, "text-anchor": "end", class: "tick" }, t("position", { n: rows - 1 })
        ), s("text", { x: 0, y: TALL - 2, class: "tick" }, t("position", { n: 0 }))))));
    }
    waves.forEach(({ title, path, zero, spot, at }, number) => {
      const parts = drawn[number], [x, y] = spot(at);
      parts.title.textContent = title;
      parts.zero.setAttribute("d", `M0 ${zero}H${wide}`);
      parts.line.setAttribute("d", path);
      parts.spot.setAttribute("cx", x);
      parts.spot.setAttribute("cy", y);
    });
  }

  function curve(values, wide) {
    const low = Math.min(0, ...values), high = Math.max(0, ...values), range = high - low || 1, tall = TALL - 22;
    const spot = at => [6 + at / Math.max(1, values.length - 1) * (wide - 12), 8 + (high - values[at]) / range * (tall - 14)];
    return {
      path: values.map((_, at) => (at ? "L" : "M") + spot(at).map(x => x.toFixed(1)).join(" ")).join(""),
      zero: 8 + high / range * (tall - 14), spot
    };
  }

  function svg(x, y) {
    if (!reply) return { text: "", width: 0, height: 0 };
    const wide = side(), parts = [];
    figures.forEach((one, number) => {
      const { data, shape: [rows, columns] } = (one.what === "table" ? table : likeness)(one.which), left = x + number * (wide + GAP);
      parts.push(svgText(left, y + 12, one.root.querySelector("figcaption").textContent, { size: 13, weight: 600 }),
        svgRect(left, y + 24, wide, wide, colour("panel")),
        signedSvg(data, rows, columns, left, y + 24, wide, wide, { most: strongest(one) }
        ), svgText(left, y + wide + 42, one.root.querySelector(".axis").textContent, { size: 11, fill: colour("faint") }));
    });
    const width = Math.max(4 * wide + 3 * GAP, waves.length * (waves[0].wide + GAP)), down = y + wide + 76;
    const plain = [...formula.childNodes].map(node => (node.nodeName.toLowerCase() === "sup" ? `^(${node.textContent})` : node.textContent)).join("");
    parts.push(svgText(x, down, plain, { size: 14 }));
    waves.forEach(({ title, path, zero, wide: w, spot, at }, number) => {
      const left = x + number * (w + GAP),
        move = d => d.replace(/([ML])([-\d.]+) ([-\d.]+)/g,
          (_, c, a, b) => `${c}${(left + Number(a)).toFixed(1)} ${(down + 40 + Number(b)).toFixed(1)}`);
      const [cx, cy] = spot(at);
      parts.push(svgText(left, down + 32, title, { size: 13, weight: 600 }),
        svgLine(left, down + 40 + zero, left + w, down + 40 + zero, colour("rule")),
        svgPath(move(path), { stroke: colour("accent"), width: 1.6 }
        ), svgPath(`M${left + cx - 4} ${down + 40 + cy}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0`, { fill: colour("hot") }));
    });
    return { text: parts.join(""), width, height: wide + 76 + 40 + TALL };
  }

  const numbers = () => reply && ({ point, value: table(point.which).data[point.row * table(point.which).shape[1] + point.column], shape: table(point.which).shape,
    table: [...table(point.which).data.subarray(0, table(point.which).shape[1] * 8)], similarity: [...likeness(point.which).data.subarray(0, 64)] });

  return { root, fill, draw, svg, numbers };
}
