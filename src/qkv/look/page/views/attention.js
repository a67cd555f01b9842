// The attention view: which word looks at which, in every head. Holds one pane a subject (two in a comparison), the
// choices above them, the panel below (step by step, or the input row), keys, export. Draws nothing itself.
//
// Of the shared state it uses text, pair, model, compare, token (under the pointer), chosen (pinned), word (the
// characters pointed at last, here or in another view: where it begins), layer and head
// (null: a head worth seeing is picked); its own, state.attention: see CHOICES in attention_controls.js, and layer2,
// head2 of the second subject. Tokens of the state are numbers of the first subject's tokens; a second subject follows
// by the characters they hold.

import { clear, debounced, h } from "look/dom.js";
import { aborted, Refusal } from "look/wire.js";
import { chosenFrom, Controls, pairs } from "look/views/attention_controls.js";
import { rowFrom, sameCharacters } from "look/views/attention_data.js";
import { ink } from "look/views/attention_ink.js";
import { InputRow } from "look/views/attention_input.js";
import { Pane } from "look/views/attention_pane.js";
import { pictureOf } from "look/views/attention_picture.js";
import { Steps } from "look/views/attention_steps.js";

export const id = "attention";
export const compares = true;
export const inputs = subject => pairs(subject) ? ["text", "pair"] : ["text"];
export { css } from "look/views/attention_style.js";
export { keys, words } from "look/views/attention_words.js";

const PASSING = new Set(["token", "chosen", "word"]);
const EVERY_ROW = 64; // tokens up to which the steps of all rows come in one answer

export function view(app) {
  const { state, set, t } = app;
  const on = { choose, pin, pointed, shared };
  const panes = [new Pane(app, on)];
  const controls = new Controls(app);
  const row = h("div", { class: "at-panes" });
  const tabs = h("div", { class: "at-tabs", role: "tablist" });
  const trouble = h("div", {});
  const parts = { steps: new Steps(t), input: new InputRow(t) };
  const panel = h("div", {});
  const foot = h("p", { class: "note at-foot" });
  const below = h("div", { class: "at-below" }, tabs, trouble, panel);
  const root = h("section", {}, controls.root, row, below, foot);
  root.addEventListener("keydown", key);
  let active = panes[0], asking = null, loading = null, frame = 0, kindAsked = "", drawn = null;

  const chosen = () => chosenFrom(state.attention);
  const two = () => panes.length > 1;

  function show(changed) {
    if (changed && [...changed].every(name => PASSING.has(name))) {
      if (changed.has("chosen") && chosen().order === "focus") for (const pane of panes) pane.drawMaps();
      for (const pane of panes) pane.light();
      if (changed.has("chosen")) order();
      later();
      return undefined;
    }
    if (changed?.size === 1 && changed.has("size")) { lay(); return undefined; }
    const anew = !changed || ["text", "pair", "model", "compare"].some(name => changed.has(name)) || chosen().kind !== kindAsked;
    return anew ? load() : update(changed);
  }

  async function load() {
    loading?.abort();
    const mine = loading = new AbortController();
    const subjects = [app.subject(), app.compare()].filter(one => one && app.has(id, one));
    while (panes.length < subjects.length) panes.push(new Pane(app, on));
    panes.length = subjects.length;
    active = panes[0];
    kindAsked = chosen().kind;
    clear(row, panes.map(pane => pane.root));
    row.classList.toggle("two", two());
    if (two()) controls.root.after(controls.heads); else panes[0].mapsBox.prepend(controls.heads);
    await Promise.all(panes.map((pane, at) => pane.load(subjects[at], chosen().kind, mine.signal).then(() => pane.refuse(null), error => pane.refuse(error))));
    if (mine.signal.aborted) throw mine.signal.reason;
    await update(null);
  }

  async function update(changed) {
    if (changed?.has("lang") || changed?.has("theme")) drawn = null;
    panes.forEach((pane, at) => { pane.options = optionsOf(at); });
    choices();
    lay();
    await Promise.all(panes.map((pane, at) => pane.update(optionsOf(at)).catch(error => pane.refuse(error))));
    if (two()) level(row.clientWidth > 700); // titles and notes have their words only now
    order();
    foot.textContent = `${t("caution")} ${t("count")}`;
    tabsDrawn();
    later.drop();
    explain();
  }

  function optionsOf(at) {
    const own = chosen();
    return at ? { ...own, layer: own.layer2 ?? state.layer, head: own.head2 ?? state.head } : { ...own, layer: state.layer, head: state.head };
  }

  function choices() {
    const first = panes[0], { overview } = first;
    controls.root.hidden = !overview;
    if (!overview) return;
    about = {
      kinds: first.kinds, pair: first.paired, heads: overview.heads, marks: overview.marks, ends: overview.ends, separator: overview.separator, measures: first.measures(), colour: head => ink().head(head),
      pieces: ["left", "right"].some(side => overview.words?.[side].some(([from, to]) => to > from)),
    };
    controls.draw({ ...chosen(), kind: first.kind }, { ...about, token: first.token(first.kept()), measure: first.measure() });
  }
  let about = {};

  function order() {
    const [first] = panes;
    if (first.overview) controls.drawOrder(chosen(), { ...about, token: first.token(first.kept()), measure: first.measure() });
  }

  function lay() {
    const gap = 36, width = two() && row.clientWidth > 700 ? (row.clientWidth - gap) / 2 : row.clientWidth;
    if (!row.clientWidth) return;
    const above = panes[0].figure.getBoundingClientRect().top + window.scrollY; // the figure fits the first screen, where it can
    const high = Math.max(500, Math.min(860, window.innerHeight - above - 24));
    for (const pane of panes) pane.lay(width, high);
    level(width < row.clientWidth);
    for (const part of Object.values(parts)) part.resize(below.clientWidth);
  }

  // Of two panes side by side, what belongs together stands at one height.
  function level(beside) {
    for (const part of ["header", "linesBox", "mapsBox"]) {
      for (const pane of panes) pane[part].style.minHeight = "";
      const most = Math.max(...panes.map(pane => pane[part].offsetHeight));
      if (two() && beside) for (const pane of panes) pane[part].style.minHeight = most + "px";
    }
  }

  // The pointer: at most once a frame, however often it moves.
  function pointed(pane) {
    active = pane;
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      active.light();
      const { local } = active;
      let token = null;
      if (local && active.linked) token = (local.side === "left" ? active.scene.left : active.scene.right)[local.at].first;
      if (token !== null && active !== panes[0]) token = found(active.overview.left[token], panes[0]);
      if (state.token !== token) set(token === null ? { token } : { token, ...wordOf(panes[0], token) }); else later();
    });
  }

  function found(token, pane) {
    const at = pane.overview && pane.linked ? sameCharacters(token, pane.overview.left) : -1;
    return at < 0 ? null : at;
  }

  // A token of the state as this pane counts it; null where it has none.
  function shared(pane, token) {
    const [first] = panes;
    if (token === null || !first.overview || !first.linked || token >= first.overview.left.length) return null;
    return pane === first ? token : found(first.overview.left[token], pane);
  }

  function choose(pane, flat) {
    const layer = Math.floor(flat / pane.heads), head = flat % pane.heads;
    active = pane;
    set(pane === panes[0] ? { layer, head } : { attention: { layer2: layer, head2: head } });
  }

  function pin(pane, token) {
    active = pane;
    if (!pane.linked) {
      pane.pinned = pane.pinned === token ? null : token;
      pane.light(true);
      later();
      return;
    }
    const own = pane === panes[0] ? token : found(pane.overview.left[token], panes[0]);
    if (own !== null) set({ chosen: state.chosen === own ? null : own, ...wordOf(panes[0], own) });
  }

  // The characters of a token's word, which other views begin at; those of the first text alone.
  function wordOf(pane, token) {
    const { left, words } = pane.overview, [first, last] = words?.left.find(([from, to]) => from <= token && token <= to) ?? [token, token];
    return left[first].special || left[first].segment ? {} : { word: `${left[first].start}-${left[last].end}` };
  }

  function tabsDrawn() {
    const open = chosen().panel;
    below.hidden = !panes[0].overview || panes[0].blind;
    clear(tabs, ["steps", "input"].map(name => h("button", {
      type: "button", class: "chip", role: "tab", "aria-selected": String(open === name), data: { panel: name },
      on: { click: () => set({ attention: { panel: open === name ? "none" : name } }) },
    }, t(name))));
    clear(panel, parts[open]?.root);
    if (parts[open]) parts[open].resize(below.clientWidth);
  }

  // The panel follows the token at a walking pace: what the pointer only passes is not asked for.
  const later = debounced(() => explain(), 110);

  async function explain() {
    const name = chosen().panel, part = parts[name], pane = active;
    if (!part || !pane.scene || pane.blind || !root.isConnected) return;
    const what = { layer: pane.layer, head: pane.head, row: pane.focusToken(), left: pane.overview.left, right: pane.overview.right, unknown: pane.overview.unknown, kind: pane.subject.kind, ink: ink() };
    const every = Math.max(what.left.length, what.right.length) <= EVERY_ROW;
    const fields = { ...pane.fields, ...(name === "steps" && { layer: what.layer, head: what.head }), ...(!every && { row: what.row }) };
    const now = JSON.stringify([name, fields, what.row, state.lang, document.documentElement.dataset.theme]);
    if (now === drawn) return;
    asking?.abort();
    const mine = asking = new AbortController();
    try {
      const reply = await app.ask(name === "steps" ? "steps" : "inputs", fields, { signal: mine.signal });
      if (mine.signal.aborted) return;
      drawn = now;
      clear(trouble);
      part.root.hidden = false;
      below.style.setProperty("--head", ink().head(what.head));
      part.show(every ? rowFrom(reply, what.row) : reply, what);
    } catch (error) {
      if (aborted(error)) return;
      if (!(error instanceof Refusal)) console.error(error);
      drawn = null;
      part.root.hidden = true;
      if (error.code === "not_saved") { clear(trouble, h("p", { class: "note" }, t("panel.not_saved"))); return; }
      app.say(error instanceof Refusal ? error : new Refusal("fault", String(error?.message ?? error)), trouble);
    }
  }

  function key(event) {
    const part = event.target.dataset?.part, pane = panes.find(one => one.root.contains(event.target));
    if (!part || !pane?.scene || event.altKey || event.ctrlKey || event.metaKey) return;
    const dx = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0, dy = { ArrowUp: -1, ArrowDown: 1 }[event.key] ?? 0;
    const zoom = { "+": 1.5, "=": 1.5, "-": 1 / 1.5, "−": 1 / 1.5, 0: 1e-3 }[event.key];
    if (event.key === "Enter") pin(pane, pane.focusToken());
    else if (event.key === "Escape") { pane.local = pane.pinned = null; set({ chosen: null, token: null }); pane.light(true); }
    else if (zoom && part !== "maps") pane[part].magnify(zoom);
    else if ((dx || dy) && part === "maps") choose(pane, pane.maps.neighbour(pane.flat, dx, dy));
    else if (dx && part === "lines") choose(pane, pane.flat - pane.head + (pane.head + dx + pane.heads) % pane.heads);
    else if (dx || dy) {
      pane.local = pane.step(dx, dy);
      pointed(pane);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  return {
    root,
    show,
    hide() {
      loading?.abort();
      asking?.abort();
      later.drop();
    },
    svg: () => pictureOf(panes, [...new Set(panes.map(pane => pane.lost.textContent)), t("caution"), t("made")].filter(Boolean).join(" ")),
    numbers() {
      const pane = panes[0];
      if (!pane.overview || pane.layer === undefined) return {};
      const { left, right } = pane.overview, { scene, large } = pane;
      return {
        layer: pane.layer, head: pane.head, kind: pane.kind, attn: pane.bytesOf(pane.head), left, right, // as they came
        map: scene?.map ?? null, rows: scene?.left.map(item => item.label), columns: scene?.right.map(item => item.label), // as drawn
        place: { x: large.x0 - large.x, y: large.y0 - large.y, cell: large.cell }, // of the first cell, in the enlarged map's pixels
      };
    },
  };
}
