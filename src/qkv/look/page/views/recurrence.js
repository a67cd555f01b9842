// View 8, Recurrence: hidden state, cell and gates of recurrent layers as strips, stepped through word by word; one unit's
// equation with its numbers; what the language model expects next. Asks `states` for one layer and direction at a time,
// and `next_words` of language models. Drawing: recurrence_strips.js and recurrence_unit.js.

import { clear, h, put as appended } from "look/dom.js";
import { canvas, colour, svgOf, svgText } from "look/draw.js";
import { canvasPen, measured, painted, placeAt, svgPen } from "look/views/recurrence_strips.js";
import { equation, nextPanel, unitPanel } from "look/views/recurrence_unit.js";
import { labelOf, near, words } from "look/views/recurrence_words.js";
import { sign } from "look/views/translation_steps.js";
import { Refusal } from "look/wire.js";

export const id = "recurrence";
export { css } from "look/views/recurrence_style.js";
export { words };
export const keys = [["← →", "key.step"], ["↑ ↓", "key.unit"], ["␣", "key.play"]];

const ROWS = [16, 32, 64, 0], SORTS = ["change", "value", "number"], PACE = 800;
// Where reading ends: the last word, marks left aside.
const last = (tokens, back) => Math.max(0, back ? tokens.findIndex(one => !one.special) : tokens.findLastIndex(one => !one.special));
const LIGHT = new Set(["token", "word"]); // follow the pointer

export function view(app) {
  const { t } = app, surface = canvas(10, 10);
  const figure = h("figure", { class: "figure rc-figure", tabindex: 0, role: "application" }, surface.node);
  const title = h("h2", {}), controls = h("div", { class: "row rc-top" });
  const readout = h("p", { class: "rc-readout", "aria-live": "off" }), note = h("p", { class: "caption" }), unknown = h("p", { class: "note" });
  const player = h("div", { class: "row rc-controls" }), now = h("div", { class: "rc-now" });
  const chooser = h("div", { class: "row rc-unit" }), panel = h("div", {}), expected = h("div", {});
  const body = h("div", { hidden: true }, title, controls,
    h("div", { class: "rc-grid" }, h("div", {}, figure, readout, unknown, note), h("div", {}, player, now, chooser, panel, expected)));
  const slider = h("input", { class: "rc-slider", type: "range", min: 0, max: 0, on: { input: event => go(+event.target.value) } });
  const root = h("section", {}, body);
  let found = null, layout = null, shown = null, timer = 0;

  // An address may say anything: what is no number of its kind is left out.
  const own = () => {
    const { way, step, unit, sort, rows } = app.state.recurrence ?? {}, whole = value => (Number.isInteger(value) && value >= 0 ? value : null);
    return {
      way: Math.min(63, whole(way) ?? 0), step: whole(step), unit: whole(unit),
      sort: SORTS.includes(sort) ? sort : "change", rows: ROWS.includes(rows) ? rows : 16,
    };
  };
  const put = patch => app.set({ recurrence: patch });
  const keyNow = () => JSON.stringify([app.state.model, app.state.text, own().way]);

  function show(changed) {
    if (changed && [...changed].every(name => LIGHT.has(name))) return undefined;
    if (found?.key !== keyNow()) return asked().then(changed === null ? linked : undefined);
    draw();
    if (changed === null) linked();
    return undefined;
  }

  // Begin at the word that was pointed at last, if that was in another view.
  let pointed = null;
  function linked() {
    const { word } = app.state, [start, end] = (word ?? "").split("-").map(Number);
    if (!found || !(end > start) || word === pointed) return;
    pointed = word;
    const step = found.head.tokens.findIndex(one => one.start < end && start < one.end);
    if (step >= 0) put({ step });
  }

  async function asked() {
    const key = keyNow(), text = app.state.text, before = found;
    stop();
    try {
      if (!text.trim()) throw new Refusal("empty");
      const next = app.has("next") ? app.ask("next_words", { text, k: 8 }) : null;
      next?.catch(() => {}); // said once, by the question below
      const reply = await app.ask("states", { text, way: own().way });
      const words_ = await next;
      if (key !== keyNow()) return;
      found = { key, ...reply, next: words_ };
      const another = before && (before.head.text !== reply.head.text || before.head.width !== reply.head.width);
      if (another) put({ step: null, unit: null });
      draw();
    } catch (error) {
      if (error.code === "range" && own().way > 0) return void put({ way: 0 }); // another model has fewer layers
      if (key === keyNow()) { found = null; body.hidden = true; }
      throw error;
    }
  }

  // Units by how much they change over the text, by their value now, or by number.
  function ordered(letter, step) {
    const { data, shape: [T, units] } = found.arrays[letter], order = Array.from({ length: units }, (_, unit) => unit);
    if (own().sort === "number") return order;
    const score = new Float64Array(units);
    for (let unit = 0; unit < units; unit += 1) {
      if (own().sort === "value") score[unit] = data[step * units + unit];
      else for (let at = 1; at < T; at += 1) score[unit] += Math.abs(data[at * units + unit] - data[(at - 1) * units + unit]);
    }
    return order.sort((a, b) => score[b] - score[a]);
  }

  function draw() {
    const { head, arrays } = found, T = head.tokens.length, back = head.direction === "backward";
    body.hidden = false;
    const step = own().step !== null ? Math.min(T - 1, own().step) : last(head.tokens, back);
    const order = ordered(arrays.c ? "c" : "h", step), unit = own().unit !== null && own().unit < head.width ? own().unit : order[0];
    const { rows } = own();
    if (rows && order.indexOf(unit) >= rows) order.splice(rows - 1, 0, ...order.splice(order.indexOf(unit), 1)); // the chosen one stays in sight
    shown = { step, unit, order, ownOrder: head.projected ? ordered("h", step) : order, read: column => (back ? column >= step : column <= step) };
    heads(step, T, back, rows);
    clear(panel, unitPanel(app, found, step, unit));
    clear(expected, nextPanel(app, found, step));
    if (!surface.ctx) return table();
    const wide = figure.clientWidth || 720;
    layout = measured(found, wide, rows);
    surface.resize(layout.width, layout.height).clear();
    painted(canvasPen(surface.ctx), app, found, layout, shown);
    const x = layout.left + step * layout.column; // kept in sight
    if (x < figure.scrollLeft + layout.left || x + layout.column > figure.scrollLeft + wide) figure.scrollLeft = x - wide / 2;
    Object.assign(figure.dataset, { layer: head.layer, direction: head.direction, step, unit });
    figure.setAttribute("aria-label", t("title"));
    return undefined;
  }

  function heads(step, T, back, rows) {
    const { head } = found, position = back ? T - step : step + 1;
    clear(title, t("title"));
    const options = head.ways.map((way, at) => h("option", { value: at, selected: at === head.way }, wayName(way, head.ways)));
    const group = (name, values, chosen, label) => h("div", { class: "row", role: "group", "aria-label": t(name) },
      h("span", { class: "label" }, t(name)),
      h("div", { class: "segmented" }, values.map(value => h("button", {
        type: "button", "aria-pressed": String(value === chosen), data: { [name]: value }, on: { click: () => put({ [name]: value }) },
      }, label(value)))));
    clear(controls,
      h("label", { class: "chooser" }, h("span", { class: "label" }, t("way")),
        h("select", { on: { change: event => put({ way: +event.target.value }) } }, options)),
      group("sort", SORTS, own().sort, value => t("sort." + value)),
      group("rows", ROWS.filter(value => value < head.width), rows, value => (value ? String(value) : t("all"))));
    const button = (name, press) => h("button", {
      type: "button", class: "rc-key", title: t(name), "aria-label": t(name), data: { press: name === "pause" ? "play" : name }, on: { click: press },
    }, sign(name));
    const held = document.activeElement?.dataset?.press;
    slider.max = T - 1;
    slider.value = position - 1;
    slider.setAttribute("aria-label", t("at", { step: position, steps: T }));
    const buttons = [button("first", () => go(0)), button("back", () => go(position - 2)), button(timer ? "pause" : "play", toggle), button("on", () => go(position))];
    if (!player.contains(slider)) appended(player, h("span", { class: "row rc-keys" }), slider, h("span", { class: "soft rc-count" }));
    clear(player.querySelector(".rc-keys"), buttons);
    clear(player.querySelector(".rc-count"), `${position} / ${T}`);
    if (held) player.querySelector(`[data-press=${held}]`)?.focus();
    const label = labelOf(head.tokens[step]), parts = t("after", { word: "\u0001" }).split("\u0001");
    clear(now, parts[0], h("b", {}, label), parts[1]);
    const place = shown.order.indexOf(shown.unit), step_ = by => put({ unit: shown.order[Math.max(0, Math.min(shown.order.length - 1, place + by))] });
    const chosen = event => put({ unit: Math.max(0, Math.min(head.width - 1, Math.round(+event.target.value) || 0)) });
    clear(chooser, h("h3", {}, t("equation")), h("div", { class: "row" },
      h("label", { class: "label" }, t("unit"), " ",
        h("input", { class: "field num", type: "number", min: 0, max: head.width - 1, value: shown.unit, on: { change: chosen } })),
      h("span", { class: "faint" }, t("of", { n: head.width }))));
    moves = { unit: step_, go, position };
    const lost = head.tokens.filter(one => one.token === "[UNK]" && !one.special);
    clear(unknown, lost.length > 0 && t("unknown", { words: [...new Set(lost.map(one => one.text))].join(" · ") }));
    const tinted = name => h("b", { style: { color: colour(name), fontWeight: 500 } }, t(name));
    clear(note, `${t("cell." + head.cell)} · ${t("units", { n: head.width })}`,
      t("note", { warm: "\u0001", cold: "\u0002" }).split(/([\u0001\u0002])/).map(part => (part === "\u0001" ? tinted("warm") : part === "\u0002" ? tinted("cold") : part)));
  }
  let moves = null;

  function wayName(way, ways) {
    const several = name => new Set(ways.map(one => one[name])).size > 1;
    return [several("part") && t("part." + way.part), t("layer", { layer: String(way.layer) }), several("direction") && t(way.direction)].filter(Boolean).join(" · ");
  }

  // By places in the order of reading, from 0.
  function go(place) {
    const T = found.head.tokens.length, at = Math.max(0, Math.min(T - 1, place));
    put({ step: found.head.direction === "backward" ? T - 1 - at : at });
  }

  function toggle() {
    if (timer) return stop();
    const T = found.head.tokens.length;
    if (moves.position >= T) go(0);
    timer = setInterval(() => { if (moves.position >= T) stop(); else go(moves.position); }, PACE);
    return draw();
  }

  function stop() {
    if (!timer) return;
    clearInterval(timer);
    timer = 0;
    if (found) draw();
  }

  // Without a canvas: the numbers of this step.
  function table() {
    const { head, arrays } = found, letters = head.parts.map(part => part.letter).filter(letter => arrays[letter].shape[1] === head.width);
    const value = (letter, unit) => near(arrays[letter].data[shown.step * head.width + unit], 4);
    clear(figure, app.refusal(new Refusal("no_canvas")), h("table", { class: "table" },
      h("tr", {}, h("th", {}, t("unit")), letters.map(letter => h("th", { class: "num" }, letter))),
      shown.order.slice(0, 32).map(unit => h("tr", {}, h("td", {}, unit), letters.map(letter => h("td", { class: "num" }, value(letter, unit)))))));
  }

  function at(event) {
    const box = surface.node.getBoundingClientRect();
    return layout && found ? placeAt(layout, event.clientX - box.left, event.clientY - box.top) : null;
  }

  surface.node.addEventListener("pointermove", event => {
    const place = at(event);
    const token = place && found.head.tokens[place.column];
    if (token && token.start < token.end) pointed = `${token.start}-${token.end}`;
    app.set({ token: place?.column ?? null, ...(token && token.start < token.end ? { word: pointed } : {}) });
    const order = place?.own ? shown.ownOrder : shown?.order, unit = place && place.row >= 0 ? order[place.row] : null;
    if (unit === null || unit === undefined) return void clear(readout);
    const array = found.arrays[place.letter];
    const value = near(array.data[place.column * array.shape[1] + unit], 4);
    clear(readout, t("readout", { letter: place.letter, unit: String(unit), word: labelOf(found.head.tokens[place.column]), value }));
  });
  surface.node.addEventListener("pointerleave", () => { clear(readout); app.set({ token: null }); });
  surface.node.addEventListener("click", event => {
    const place = at(event);
    if (!place) return;
    stop();
    put({ step: place.column, ...(place.row >= 0 && !place.own ? { unit: shown.order[place.row] } : {}) });
  });
  root.addEventListener("keydown", event => {
    if (!found || event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowLeft: () => sideways(-1), ArrowRight: () => sideways(1), ArrowUp: () => moves.unit(-1), ArrowDown: () => moves.unit(1),
      Home: () => go(0), End: () => go(Infinity), " ": event.target.matches("button") ? null : toggle,
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  const sideways = by => put({ step: Math.max(0, Math.min(found.head.tokens.length - 1, shown.step + by)) });

  function svg() {
    if (!found || !layout) return null;
    const pen = svgPen(), pad = 32, { head } = found, x = layout.width + 24, lines = equation(found, shown.step, shown.unit);
    painted(pen, app, found, layout, shown);
    const side = lines.flatMap((one, row) => [
      svgText(x, 50 + 46 * row, `${one.name} = ${one.symbols}`, { size: 13, fill: colour("soft") }),
      svgText(x, 69 + 46 * row, `= ${one.numbers}`, { size: 14 }), svgText(x + 300, 69 + 46 * row, near(one.value, 3), { size: 15, weight: 620, anchor: "end" })]);
    side.unshift(svgText(x, 22, `${t("unit")} ${shown.unit}, ${t("after", { word: labelOf(head.tokens[shown.step]) })}`, { size: 14, weight: 600 }));
    const what = `${app.subject()?.title ?? ""} · ${t("cell." + head.cell)} · ${wayName(head.ways[head.way], head.ways)}`;
    const body = svgText(pad, 38, t("title"), { size: 20, weight: 620 }) + svgText(layout.width + 356, 38, what, { anchor: "end", fill: colour("faint") }) +
      `<g transform="translate(${pad} 58)">${pen.out.join("")}${side.join("")}</g>`;
    return svgOf(layout.width + 324 + 2 * pad, Math.max(layout.height, 60 + 46 * lines.length) + 80, body, t("title"));
  }

  function numbers() {
    if (!found) return {};
    const { head, arrays } = found, own_ = head.parts.map(part => part.letter).filter(letter => letter !== "h" || !head.projected);
    const values = Object.fromEntries(own_.map(letter => [letter, arrays[letter].data[shown.step * head.width + shown.unit]]));
    return {
      way: head.way, step: shown.step, unit: shown.unit, order: shown.order, values,
      hidden: { data: Array.from(arrays.h.data), shape: arrays.h.shape },
    };
  }

  return { root, show, hide: stop, svg, numbers };
}
