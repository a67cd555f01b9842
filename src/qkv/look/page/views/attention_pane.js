// One subject's attention on screen: it asks for the overview and, for a long text, for the layer that is shown, and
// holds the three drawings (all heads small, lines, one map large). Two of them stand side by side in a comparison.
// What is chosen comes from the view; what the pointer does is told to it.

import { clear, h } from "look/dom.js";
import { aborted, Refusal } from "look/wire.js";
import { ink } from "look/views/attention_ink.js";
import { KINDS, pairs } from "look/views/attention_controls.js";
import {
  bestHead, bytesFrom, focusOf, items, labelAt, mapOf, MEASURES, percent, places, restingToken, sharpest, strongest, told, touched,
} from "look/views/attention_data.js";
import { layout } from "look/views/attention_layout.js";
import { Large } from "look/views/attention_large.js";
import { Lines } from "look/views/attention_lines.js";
import { Maps } from "look/views/attention_maps.js";

const NAMED = 5; // tokens that the sentence above the lines names

export class Pane {
  constructor(app, on) {
    this.app = app;
    this.on = on;
    const canvas = (name, attrs) => this[name] = h("canvas", attrs);
    this.title = h("h2", { class: "at-title" });
    this.about = h("span", { class: "soft at-about" });
    this.lead = h("b", {});
    this.list = Array.from({ length: NAMED }, () => h("span", {}));
    this.badge = h("span", { class: "faint at-pinned" });
    this.says = h("p", { class: "at-says", "aria-live": "polite" }, this.lead, this.list, this.badge);
    this.caveat = h("p", { class: "note at-caveat" });
    this.lost = h("p", { class: "note at-lost" });
    this.note = h("p", { class: "note at-note" });
    this.trouble = h("div", {});
    this.hint = h("p", { class: "note at-hint" });
    this.reading = h("p", { class: "note at-hint" });
    const keyed = part => ({ tabindex: "0", role: "application", data: { part } });
    this.mapsBox = h("div", { class: "at-maps" }, canvas("mapsCanvas", keyed("maps")), this.hint, this.reading);
    this.linesBox = h("div", { class: "at-lines" }, this.zoomers("lines"), canvas("linesCanvas", keyed("lines")));
    this.largeBox = h("div", { class: "at-large" }, this.zoomers("large"), canvas("under", {}), canvas("over", keyed("large")));
    this.figure = h("div", { class: "at-figure" }, this.mapsBox, this.linesBox, this.largeBox);
    this.header = h("header", {}, h("div", { class: "at-heading" }, this.title, this.about), this.says, this.caveat, this.lost);
    this.root = h("section", { class: "at-pane" }, this.header, this.trouble, this.figure, this.note);
    this.maps = new Maps(this.mapsCanvas, { choose: flat => on.choose(this, flat), hover: flat => this.preview(flat) });
    this.lines = new Lines(this.linesCanvas, { hover: (side, at) => this.hover(side, at), pin: (side, at) => this.pin(side, at) });
    this.large = new Large(this.under, this.over, { hover: (i, j) => this.cell(i, j), pin: i => this.pin("left", i) });
    this.overview = this.scene = this.local = null;
    this.layers = new Map();
    this.options = {};
    this.blind = !this.under.getContext?.("2d"); // a browser without a canvas gets a table
  }

  zoomers(what) {
    const button = (sign, key, by) => h("button", {
      type: "button", class: "at-zoom", tabindex: "-1", data: { zoom: key },
      on: { click: () => this[what].magnify(by) },
    }, sign);
    return h("div", { class: "at-zooms", data: { zooms: what } }, button("−", "out", 1 / 1.6), button("+", "in", 1.6), button("⤢", "fit", 1e-3));
  }

  get linked() { return !["decoder", "cross"].includes(this.kind); } // whether its tokens are those of the shared text
  get heads() { return this.overview?.heads ?? 0; }

  async load(subject, wanted, signal) {
    const { state, ask } = this.app, kinds = KINDS[subject.kind] ?? ["self"];
    this.subject = subject;
    this.kinds = kinds;
    this.kind = kinds.includes(wanted) ? wanted : kinds[0];
    this.fields = { text: state.text, kind: this.kind, model: subject.index };
    if (state.pair && pairs(subject)) this.fields.pair = state.pair;
    this.overview = this.scene = this.local = this.pinned = null;
    this.layers.clear();
    this.control?.abort(); // a layer of the text before
    const { fields } = this, { head, arrays } = await ask("attention", fields, { signal });
    if (fields !== this.fields) throw new DOMException("another text is asked for", "AbortError");
    const { small, measures } = arrays;
    this.overview = { ...head, small, measures, layers: small.shape[0], heads: small.shape[1], cross: this.kind === "cross", measured: head.measures };
    const marks = tokens => [...new Set(tokens.filter(token => token.special).map(token => token.token))].slice(0, 2).join(" ");
    this.overview.marks = marks([...head.left, ...head.right]); // that can be hidden
    this.overview.ends = marks(head.right); // that are looked at
    this.overview.separator = head.right.findLast((token, at) => at && token.special)?.token ?? "[SEP]";
    this.exact = small.shape[2] === head.left.length && small.shape[3] === head.right.length;
    const begun = this.linked ? touched(head.left, state.word) : -1;
    this.resting = begun < 0 ? restingToken(head.left, head.words?.left, head.texts) : begun;
    this.best = bestHead(focusOf(this.overview, this.kept()), this.heads);
  }

  // What could not be shown stands in the pane's place, and the page goes on; null: all is well.
  refuse(error) {
    if (aborted(error)) throw error;
    if (error && !(error instanceof Refusal)) console.error(error);
    this.app.say(error && !(error instanceof Refusal) ? new Refusal("fault", String(error.message ?? error)) : error, this.trouble);
    this.figure.hidden = this.says.hidden = this.caveat.hidden = this.lost.hidden = Boolean(error);
    if (!error) return;
    this.overview = this.scene = null;
    this.title.textContent = this.note.textContent = "";
    this.about.textContent = this.subject.title;
  }

  // Bytes of one head of the chosen layer, (left × right); null until they came.
  bytesOf(head) {
    const { left, right, small } = this.overview, size = left.length * right.length;
    if (this.exact) return small.data.subarray((this.layer * this.heads + head) * size, (this.layer * this.heads + head + 1) * size);
    return this.layers.get(this.layer)?.subarray(head * size, (head + 1) * size) ?? null;
  }

  async fetchLayer() {
    if (this.exact || this.layers.has(this.layer)) return;
    const { layer, fields } = this;
    this.control?.abort();
    this.control = new AbortController();
    const { arrays } = await this.app.ask("attention", { ...fields, layer }, { signal: this.control.signal });
    if (fields !== this.fields) return; // it is of the text before
    this.layers.set(layer, arrays.attn.data);
    if (this.layers.size > 4) this.layers.delete(this.layers.keys().next().value); // the wire keeps what it can
  }

  // options: the view's choices, layer and head among them (null: one worth seeing)
  async update(options) {
    if (!this.overview) return;
    const { fields } = this;
    this.options = options;
    const fits = (value, count) => Number.isInteger(value) && value >= 0 && value < count;
    [this.layer, this.head] = this.best;
    if (fits(options.layer, this.overview.layers)) this.layer = options.layer;
    if (fits(options.head, this.heads)) this.head = options.head;
    this.flat = this.layer * this.heads + this.head;
    this.drawMaps();
    if (!this.bytesOf(this.head)) this.arrange();
    await this.fetchLayer();
    if (fields === this.fields && this.overview) this.arrange();
  }

  arrange() {
    const { overview, options, app: { t } } = this, special = options.special === "shown", merged = options.pieces === "words";
    const pair = options.block !== "all" && this.paired ? options.block : null;
    const made = (side, segment) => items(overview[side], overview.words?.[side], overview.texts, { merged, special, segment, unknown: overview.unknown?.[side] });
    const left = made("left", pair && Number(pair[0])), right = made("right", pair && Number(pair[1]));
    const whole = options.special === "whole", bytes = this.bytesOf(this.head), columns = overview.right.length, maps = [];
    const mapFor = head => maps[head] ??= this.bytesOf(head) && mapOf(this.bytesOf(head), columns, left, right, whole);
    const map = bytes && mapFor(this.head);
    this.asks = places(left, overview.left.length);
    this.spare = map ? sharpest(map, left, right) : 0; // to look at when the chosen token is hidden
    this.scene = {
      left, right, map, bytes: map && bytesFrom(map), ink: ink(), heads: this.heads, head: this.head, all: options.lines === "all",
      asks: t("asks"), seen: t("seen"),
      row: (head, side, at, out) => {
        const from = mapFor(head), wide = right.length;
        if (side === "left") for (let j = 0; j < wide; j++) out[j] = from[at * wide + j];
        else for (let i = 0; i < left.length; i++) out[i] = from[i * wide + at];
      },
    };
    this.local = null;
    const hidden = !special && overview.left.some(token => token.special) || pair;
    this.note.textContent = whole ? t("whole.note") : hidden ? t("part.note") : "";
    this.entitle();
    if (this.blind) { this.table(); this.say(this.focus()); return; }
    this.lines.show(this.scene);
    this.large.show(this.scene);
    this.light(true);
    this.marked();
  }

  get paired() { return this.kind === "self" && new Set(this.overview.left.map(token => token.segment)).size > 1; }

  entitle() {
    const { t } = this.app, { left, right } = this.overview, { layer, head } = this;
    this.title.textContent = this.options.lines === "all" ? t("layer_all", { layer, heads: this.heads }) : t("layer_head", { layer, head });
    this.title.style.setProperty("--head", this.options.lines === "all" ? ink().ink : ink().head(head));
    this.root.style.setProperty("--head", ink().head(head));
    const count = this.kind === "cross" ? t("tokens.two", { left: left.length, right: right.length }) : t("tokens", { count: left.length });
    this.about.textContent = [this.subject.title, t(`kind.${this.kind}.long`), count].join(" · ");
    for (const box of [this.under, this.over, this.largeBox]) Object.assign(box.dataset, { layer, head });
    this.mapsCanvas.setAttribute("aria-label", t("maps.label"));
    this.reading.textContent = this.options.order === "none" ? t(this.exact ? "maps.read" : "maps.click") : "";
    this.linesCanvas.setAttribute("aria-label", t("lines.label"));
    for (const button of this.root.querySelectorAll("[data-zoom]")) button.title = button.ariaLabel = t("zoom." + button.dataset.zoom);
    this.over.setAttribute("aria-label", `${this.heading()}. ${t("large.label")}`);
    this.caveat.textContent = t("caveat");
    this.lost.textContent = this.unknown();
  }

  // The words that the vocabulary lacks, each once, and what the model reads in their place.
  unknown() {
    const { overview, app: { t } } = this, found = new Map();
    for (const side of ["left", "right"]) {
      for (const at of overview.unknown?.[side] ?? []) found.set(overview[side][at].text.trim(), overview[side][at].token);
    }
    return found.size ? t(found.size > 1 ? "unknown" : "unknown.one", { words: [...found.keys()].join(" · "), token: [...new Set(found.values())].join(", ") }) : "";
  }

  heading() { return this.app.t("layer_head", { layer: this.layer, head: this.head }); }

  // The measure by which heads are ordered, for each of them, 0 … 1.
  measure() {
    const { order } = this.options, { measures, heads, layers, measured } = this.overview, at = measured.indexOf(order);
    if (order === "focus") return focusOf(this.overview, this.kept());
    if (at < 0) return null;
    return Float32Array.from({ length: layers * heads }, (_, flat) => measures.data[flat * measures.shape[2] + at]);
  }

  // Those of its measures that say something here, by name.
  measures() {
    const { right, ends } = this.overview, behind = right.some((token, at) => at && token.special);
    const said = name => ({ itself: this.kind !== "cross", ends, separators: right[0].special && behind })[name] ?? true; // else as `ends`
    return MEASURES.filter(name => this.overview.measured.includes(name) && said(name));
  }

  drawMaps() {
    if (!this.overview || !this.sizes || this.blind) return;
    const { low, high, down } = this.options, values = this.measure(), count = this.overview.layers * this.heads;
    const out = new Uint8Array(count);
    let order = null;
    if (values) {
      order = Array.from({ length: count }, (_, flat) => flat).sort((a, b) => (down ? values[b] - values[a] : values[a] - values[b]) || a - b);
      values.forEach((value, flat) => { out[flat] = value * 100 < low - 0.5 || value * 100 > high + 0.5 ? 1 : 0; });
    }
    this.values = values;
    this.maps.show({ small: this.overview.small, chosen: this.flat, order, turned: this.turned, out, ink: ink(), all: this.options.lines === "all" }, ...this.sizes);
    this.measured(-1);
  }

  // A head under the pointer is shown at once where its weights are at hand; leaving shows the chosen one again.
  preview(flat) {
    this.measured(flat);
    const shown = flat < 0 ? this.flat : flat;
    if (!this.exact || !this.scene || shown === this.layer * this.heads + this.head) return;
    [this.layer, this.head] = [Math.floor(shown / this.heads), shown % this.heads];
    this.arrange();
  }

  measured(flat) {
    if (!this.overview) return;
    const { t } = this.app, { measures, measured, ends, separator } = this.overview, at = flat < 0 ? this.flat : flat;
    const value = name => percent(measures.data[at * measures.shape[2] + measured.indexOf(name)]);
    const parts = this.measures().map(name => t("measure." + name, { value: value(name), marks: ends, separator }));
    this.hint.textContent = `${Math.floor(at / this.heads)}·${at % this.heads}   ${parts.join("  ")}`;
  }

  // Where everything goes: one beside the other where there is room, else one below the other.
  lay(width, high) {
    if (!this.overview || this.blind) return;
    const { left, right, words } = this.overview, merged = this.options.pieces === "words" && words;
    const most = Math.max((merged ? words.left : left).length, (merged ? words.right : right).length);
    const sorted = Boolean(this.options.order) && this.options.order !== "none";
    const { mode, maps, lines, large } = layout(width, high, { layers: this.overview.layers, heads: this.heads, most, sorted });
    this.figure.dataset.mode = mode;
    this.sizes = maps;
    this.turned = mode !== "beside" && this.overview.layers > 1.5 * this.heads; // a tall grid lies down where it stands above others
    this.mapsBox.style.width = Math.floor(maps[0]) + "px";
    this.drawMaps();
    this.lines.resize(...lines.map(Math.floor));
    this.large.resize(...large.map(Math.floor));
    this.marked();
  }

  marked() {
    this.linesBox.classList.toggle("dense", this.lines.squeezed);
    this.largeBox.classList.toggle("dense", this.large.dense);
  }

  // What is looked at now: under the pointer, else linked from elsewhere, else pinned, else where the view rests.
  focus() {
    if (this.local) return this.local;
    const { state } = this.app, hovered = this.linked ? this.on.shared(this, state.token) : null;
    const pinned = this.linked ? this.on.shared(this, state.chosen) : this.pinned;
    const token = hovered ?? pinned ?? this.resting, at = this.asks?.[token] ?? -1;
    return { side: "left", at: at < 0 ? this.spare : at, pinned: at >= 0 && hovered === null && pinned !== null };
  }

  focusToken() {
    const focus = this.scene && this.focus();
    return focus && focus.side === "left" ? this.scene.left[focus.at].first : this.resting;
  }

  // The pinned token, else where the view rests: what does not follow the pointer.
  kept() {
    return (this.linked ? this.on.shared(this, this.app.state.chosen) : this.pinned) ?? this.resting;
  }

  light(force = false) {
    if (!this.scene) return;
    const focus = this.focus(), name = focus ? `${focus.side}${focus.at}.${focus.cell ?? ""}.${focus.pinned}` : "";
    if (!force && name === this.lit) return;
    this.lit = name;
    this.lines.light(focus);
    this.large.light(focus);
    this.say(focus);
  }

  say(focus) {
    const { t } = this.app, { scene } = this;
    for (const span of this.list) span.textContent = "";
    this.lead.textContent = "\u00a0";
    this.badge.textContent = focus?.pinned ? t("pinned") : "";
    if (!focus || !scene.map) return;
    const out = focus.side === "left", item = (out ? scene.left : scene.right)[focus.at], others = out ? scene.right : scene.left;
    if (focus.cell >= 0) {
      this.lead.textContent = t("cell", { left: told(scene.left[focus.at]), right: told(scene.right[focus.cell]) });
      const weight = scene.map[focus.at * scene.right.length + focus.cell];
      this.list[0].textContent = weight ? ` ${(100 * weight).toFixed(1)}%` : " < 0.2%"; // one byte a weight
      return;
    }
    const row = scene.map.subarray(focus.at * others.length, (focus.at + 1) * others.length);
    if (!this.blind && (!this.lines.weights || !this.lines.fill(focus))) return;
    const weights = this.blind ? row : this.lines.weights.subarray(0, others.length), best = strongest(weights, NAMED);
    this.lead.textContent = t(out ? "looks" : "looked", { token: told(item) });
    best.forEach((at, number) => { this.list[number].textContent = `${number ? t("comma") : " "}${told(others[at])} ${percent(weights[at])}`; });
    if (!best.length) this.list[0].textContent = " " + t("nothing");
  }

  sentence() { return [this.lead, ...this.list].map(part => part.textContent).join("").trim(); }

  hover(side, at) {
    this.local = side ? { side, at } : null;
    this.on.pointed(this);
  }

  cell(i, j) {
    this.local = i >= 0 ? { side: "left", at: i, cell: j >= 0 ? j : undefined } : null;
    this.on.pointed(this);
  }

  pin(side, at) {
    const { scene } = this, token = side === "left" ? scene.left[at]?.first : this.linked ? scene.right[at]?.first : undefined;
    if (token !== undefined) this.on.pin(this, token);
  }

  // Without a canvas: the numbers themselves.
  table() {
    const { scene, app: { t } } = this;
    if (!scene?.map) return;
    const wide = scene.right.length, option = now => at => h("option", { value: String(at), selected: at === now }, String(at));
    const chooser = (name, count, now, flat) => h("label", { class: "chooser" }, h("span", { class: "label" }, t(name)),
      h("select", { on: { change: event => this.on.choose(this, flat(Number(event.target.value))) } }, [...Array(count).keys()].map(option(now))));
    const row = (item, i) => h("tr", {}, h("th", { scope: "row" }, item.label),
      scene.right.map((_, j) => h("td", { class: "num" }, String(Math.round(100 * scene.map[i * wide + j])))));
    this.figure.dataset.mode = "stacked";
    clear(this.figure, this.app.refusal(new Refusal("no_canvas")),
      h("div", { class: "row" },
        chooser("layer", this.overview.layers, this.layer, at => at * this.heads + this.head),
        chooser("head", this.heads, this.head, at => this.layer * this.heads + at)),
      h("div", { class: "at-table" }, h("table", { class: "table num", data: { layer: this.layer, head: this.head } },
        h("caption", { class: "note" }, t("table", { title: this.heading() })),
        h("tr", {}, h("th", {}), scene.right.map(item => h("th", { scope: "col" }, item.label))), scene.left.map(row))));
  }

  // The row, column or head one key away.
  step(dx, dy) {
    const focus = this.focus() ?? { side: "left", at: 0 }, { scene } = this;
    const at = Math.max(0, Math.min(scene.left.length - 1, (focus.side === "left" ? focus.at : 0) + dy));
    if (dx) return { side: "left", at, cell: Math.max(0, Math.min(scene.right.length - 1, (focus.cell ?? -1) + dx)) };
    return { side: "left", at, cell: focus.cell };
  }

  // What a token is called in a choice: the word it is a piece of, while words are shown.
  token(at) {
    const { left, words, texts } = this.overview, range = words?.left.find(([from, to]) => from <= at && at <= to);
    return range && this.options.pieces === "words" ? items(left, [range], texts)[0].label : labelAt(left, at);
  }
}
