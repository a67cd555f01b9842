// How one token comes to its weights in one head, with the model's own numbers: q over the keys, q·k, ÷√d, softmax,
// × v, and the sum. Strips of colour (cold below nought, warm above); the arithmetic of one row is written out below.
// Draws a reply of "steps"; asks nothing itself.

import { clear, h } from "look/dom.js";
import { dotted, fit, picture, shade, shorten, widthOf } from "look/views/attention_ink.js";
import { figure, labelAt, percent, strongest } from "look/views/attention_data.js";

const ROW = 21, SHOWN = 12, TERMS = 4;

export class Steps {
  constructor(t) {
    this.t = t;
    this.canvas = h("canvas", { tabindex: "0", role: "application" });
    this.reading = h("div", { class: "at-reading num" });
    this.sums = h("div", { class: "at-sums" });
    this.heading = h("h3", {});
    this.about = h("span", { class: "faint" });
    this.order = h("button", { type: "button", class: "quiet", on: { click: () => { this.strong = !this.strong; this.arrange(); this.paint(); } } });
    this.rest = h("p", { class: "note at-rest" });
    this.root = h("div", { class: "at-steps" },
      h("div", { class: "row" }, this.heading, this.about, h("span", { class: "grow" }), this.order), this.rest,
      h("div", { class: "at-scroll" }, this.canvas), this.reading, this.sums);
    this.reply = null;
    this.top = this.chosen = 0;
    this.point = { part: "", j: -1, d: -1 };
    this.canvas.addEventListener("pointermove", event => this.moved(event));
    this.canvas.addEventListener("pointerleave", () => this.pointed("", -1, -1));
    this.canvas.addEventListener("click", () => { if (this.point.j >= 0) { this.chosen = this.point.j; this.paint(); this.write(); } });
    this.canvas.addEventListener("wheel", event => {
      const before = this.top;
      this.scroll(this.top + Math.sign(event.deltaY) * Math.max(1, Math.round(Math.abs(event.deltaY) / ROW)));
      if (this.top !== before) event.preventDefault();
    }, { passive: false });
    this.canvas.addEventListener("keydown", event => this.key(event));
  }

  // what: {layer, head, row, left, right: tokens, ink}
  show(reply, what) {
    const same = this.reply && this.what.row === what.row && this.what.right.length === what.right.length;
    this.reply = reply;
    this.what = what;
    const { q, k, v, output, weights } = reply.arrays;
    this.width = q.data.length; // of a query; a value may be of another width
    this.values = output.data.length;
    this.count = weights.data.length;
    this.masked = reply.head.masked ?? [];
    this.divisor = reply.head.divided_by ?? Math.sqrt(this.width);
    this.squareRoot = Math.abs(this.divisor - Math.sqrt(this.width)) < 1e-3 ? `√${this.width}` : figure(this.divisor, 2);
    const table = what.ink.signed;
    this.most = { q: largest(q.data), k: largest(k.data), v: largest(v.data), output: largest(output.data) };
    this.k = picture(signed(k.data, this.most.k), this.count, this.width, table);
    this.v = picture(signed(v.data, this.most.v), this.count, this.values, table);
    this.q = picture(signed(q.data, this.most.q), 1, this.width, table);
    this.out = picture(signed(output.data, this.most.output), 1, this.values, table);
    this.strong ??= this.count > SHOWN + 4;
    if (!same) { this.chosen = strongest(weights.data, 1, 0)[0] ?? 0; this.top = 0; }
    this.arrange();
    this.say();
    this.paint();
    this.write();
  }

  say() {
    const { t, what, reply } = this, token = labelAt(what.left, what.row);
    this.heading.textContent = t("steps.of", { token });
    this.about.textContent = t("steps.sum", { layer: what.layer, head: what.head, width: this.width });
    this.order.textContent = t(this.strong ? "steps.strong" : "steps.text");
    this.canvas.setAttribute("aria-label", this.heading.textContent);
    this.named = reply.head.score && reply.head.score !== "scaled" ? reply.head.score : "";
  }

  arrange() {
    const weights = this.reply.arrays.weights.data;
    this.rows = Array.from({ length: this.count }, (_, j) => j);
    if (this.strong) this.rows.sort((a, b) => weights[b] - weights[a]);
    this.order.textContent = this.t(this.strong ? "steps.strong" : "steps.text");
    this.shown = Math.min(this.count, SHOWN + (this.count <= SHOWN + 4 ? 4 : 0));
    this.scroll(this.top, false);
  }

  scroll(to, again = true) {
    this.top = Math.max(0, Math.min(to, this.count - this.shown));
    if (again) this.paint();
  }

  resize(width) {
    this.room = width;
    if (this.reply) this.paint();
  }

  lay() {
    const label = 96, numbers = 80, bar = 116, gaps = 5 * 18;
    const cell = Math.max(1, Math.min(9, Math.floor((Math.max(640, this.room) - label - 2 * numbers - bar - gaps) / (this.width + this.values))));
    const places = { label: 0, k: label + 18 };
    places.scores = places.k + this.width * cell + 18;
    places.scaled = places.scores + numbers;
    places.weights = places.scaled + (this.named ? 0 : numbers) + 18;
    places.v = places.weights + bar + 18;
    this.end = places.v + this.values * cell;
    return Object.assign(this, { cell, places, y0: 62 });
  }

  paint() {
    if (!this.reply || !this.room) return;
    this.lay();
    const { places, y0, what, t, cell } = this, { ink } = what, { arrays } = this.reply;
    const high = y0 + this.shown * ROW + 54, pen = this.pen = fit(this.canvas, Math.max(this.end + 4, 200), high);
    pen.clearRect(0, 0, this.end + 4, high);
    this.rest.textContent = this.end > this.room ? t("steps.rest") : "";
    this.canvas.parentElement.classList.toggle("cut", this.end > this.room);
    pen.imageSmoothingEnabled = false;
    pen.textBaseline = "middle";
    const small = `12px ${ink.font}`, token = labelAt(what.left, what.row);
    const head = (x, y, text, colour = ink.soft) => { pen.fillStyle = colour; pen.font = small; pen.textAlign = "left"; pen.fillText(text, x, y); };
    head(places.k, 9, t("steps.q", { token }), ink.head(what.head));
    this.strip(this.q, 0, places.k, 18, this.width);
    head(places.k, 48, t("steps.k"));
    head(places.scores + 14, 48, this.named || t("steps.scores"));
    if (!this.named) head(places.scaled + 10, 48, `÷ ${this.squareRoot}`);
    head(places.weights, 48, t("steps.weights"));
    head(places.v, 48, t("steps.v"));
    let widest = 1e-9;
    for (const value of arrays.scores.data) if (Number.isFinite(value)) widest = Math.max(widest, Math.abs(value));
    for (let line = 0; line < this.shown; line++) {
      const j = this.rows[this.top + line], y = y0 + line * ROW, middle = y + ROW / 2, hidden = this.masked[j];
      const special = what.right[j].special, weight = arrays.weights.data[j];
      if (j === this.chosen) {
        pen.fillStyle = ink.head(what.head);
        pen.globalAlpha = 0.1;
        pen.beginPath();
        pen.roundRect(0, y, this.end + 4, ROW, 4);
        pen.fill();
        pen.globalAlpha = 1;
      }
      pen.font = `13px ${ink.font}`;
      pen.textAlign = "right";
      pen.fillStyle = hidden || special ? ink.faint : ink.ink;
      const label = shorten(pen, labelAt(what.right, j), 92);
      pen.fillText(label, 98, middle);
      if (what.unknown?.right.includes(j)) dotted(pen, 98 - widthOf(pen, label), middle + 7.5, widthOf(pen, label));
      pen.globalAlpha = hidden ? 0.25 : 1;
      this.strip(this.k, j, places.k, y + 3, this.width);
      this.strip(this.v, j, places.v, y + 3, this.values);
      pen.globalAlpha = 1;
      if (hidden) { head(places.scores, middle, t("steps.masked"), ink.faint); continue; }
      this.signedBar(places.scores, y, arrays.scores.data[j], widest);
      if (!this.named) this.signedBar(places.scaled, y, arrays.scaled.data[j], 0);
      pen.fillStyle = special ? ink.soft : ink.head(what.head);
      pen.globalAlpha = 0.25 + 0.75 * shade(weight);
      pen.fillRect(places.weights, y + 5, Math.max(0.6, weight * 66), ROW - 10);
      pen.globalAlpha = 1;
      pen.textAlign = "left";
      pen.fillStyle = ink.ink;
      pen.fillText(percent(weight), places.weights + Math.max(0.6, weight * 66) + 6, middle);
    }
    const foot = y0 + this.shown * ROW;
    if (this.count > this.shown) head(0, foot + 12, t("steps.more", { count: this.count - this.shown }), ink.faint);
    pen.fillStyle = ink.rule;
    pen.fillRect(places.v, foot + 3, this.values * cell, 1);
    this.strip(this.out, 0, places.v, foot + 9, this.values);
    head(places.v, foot + 38, t("steps.output"), ink.head(what.head));
    this.mark();
  }

  strip(image, row, x, y, width) {
    const { pen, cell, what } = this;
    pen.fillStyle = what.ink.panel;
    pen.fillRect(x, y, width * cell, ROW - 6);
    pen.drawImage(image, 0, row, width, 1, x, y, width * cell, ROW - 6);
  }

  // A number, and beside it how large it is among the others.
  signedBar(x, y, value, most) {
    const { pen, what: { ink } } = this;
    if (most) {
      pen.fillStyle = value < 0 ? ink.cold : ink.warm;
      pen.globalAlpha = 0.4;
      pen.fillRect(x + 50, y + 7, Math.max(0.6, Math.abs(value) / most * 26), ROW - 14);
      pen.globalAlpha = 1;
    }
    pen.font = `12.5px ${ink.font}`;
    pen.fillStyle = ink.ink;
    pen.textAlign = "right";
    pen.fillText(figure(value, 2), x + 44, y + ROW / 2);
  }

  // The dimension under the pointer, in every strip it belongs to.
  mark() {
    const { pen, point, places, cell, y0, what } = this;
    if (point.d < 0) return;
    pen.strokeStyle = what.ink.ink;
    pen.lineWidth = 1;
    const wide = Math.max(2, cell), values = point.part === "v" || point.part === "output";
    const x = (values ? places.v : places.k) + point.d * cell - 0.5, foot = y0 + this.shown * ROW;
    if (!values) pen.strokeRect(x, 17.5, wide, ROW - 5);
    else pen.strokeRect(x, foot + 8.5, wide, ROW - 5);
    const line = this.rows.indexOf(point.j) - this.top;
    if (point.j >= 0 && line >= 0 && line < this.shown) pen.strokeRect(x, y0 + line * ROW + 2.5, wide, ROW - 5);
  }

  moved(event) {
    if (!this.reply || !this.places) return;
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const { places, y0, cell } = this, line = Math.floor((y - y0) / ROW);
    const j = line >= 0 && line < this.shown ? this.rows[this.top + line] : -1;
    const inK = x >= places.k && x < places.k + this.width * cell, inV = x >= places.v && x < places.v + this.values * cell;
    const part = inK && y > 16 && y < 36 ? "q" : inV && y > y0 + this.shown * ROW ? "output" : j >= 0 && inK ? "k" : j >= 0 && inV ? "v" : "";
    const d = !part ? -1 : Math.floor((x - (part === "q" || part === "k" ? places.k : places.v)) / cell);
    this.canvas.style.cursor = j >= 0 ? "pointer" : "";
    this.pointed(part, j, d);
  }

  pointed(part, j, d) {
    const { point, t } = this;
    if (point.part === part && point.j === j && point.d === d) return;
    Object.assign(point, { part, j, d });
    if (!this.reply) return;
    const { q, k, v, weights, output } = this.reply.arrays, index = subscript(d);
    let text = t("steps.pick");
    if (part === "q") text = t("steps.at.q", { d: index, q: figure(q.data[d]) });
    if (part === "k") {
      const a = q.data[d], b = k.data[j * this.width + d];
      text = `${labelAt(this.what.right, j)}   ` + t("steps.at.qk", { d: index, q: figure(a), k: figure(b), product: figure(a * b) });
    }
    if (part === "v") {
      const a = weights.data[j], b = v.data[j * this.values + d];
      text = `${labelAt(this.what.right, j)}   ` + t("steps.at.v", { d: index, weight: figure(a), v: figure(b), product: figure(a * b) });
    }
    if (part === "output") text = t("steps.at.output", { d: index, value: figure(output.data[d]) });
    this.reading.textContent = text;
    this.waiting ||= requestAnimationFrame(() => { this.waiting = 0; this.paint(); });
  }

  key(event) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step || !this.reply) return;
    event.preventDefault();
    event.stopPropagation();
    const line = Math.max(0, Math.min(this.count - 1, this.rows.indexOf(this.chosen) + step));
    this.chosen = this.rows[line];
    this.scroll(line < this.top ? line : line >= this.top + this.shown ? line - this.shown + 1 : this.top);
    this.write();
  }

  // The chosen row as a sum that can be followed on paper.
  write() {
    const { t, what, chosen: j, width, values } = this, { q, k, v, scores, scaled, weights } = this.reply.arrays;
    const label = labelAt(what.right, j), lines = [];
    const line = (name, ...parts) => lines.push(h("span", { class: "at-step soft" }, name), h("span", { class: "num at-sum" }, ...parts));
    if (!this.point.part) this.reading.textContent = t("steps.pick");
    if (!this.named) {
      const products = Array.from({ length: width }, (_, d) => q.data[d] * k.data[j * width + d]);
      const first = products.map((_, d) => d).sort((a, b) => Math.abs(products[b]) - Math.abs(products[a])).slice(0, TERMS);
      const terms = first.map(d => `${bracketed(q.data[d])} × ${bracketed(k.data[j * width + d])}`).join(" + ");
      line("q · k", terms, width > TERMS ? " + …" : "", " = ", h("b", {}, figure(scores.data[j])), aside(t("steps.dot", { width })));
      line(`÷ ${this.squareRoot}`, `${figure(scores.data[j])} ÷ ${figure(this.divisor)} = `, h("b", {}, figure(scaled.data[j])));
    } else line(this.named, this.named === "additive" ? "v · tanh(q + k) = " : "q · k = ", h("b", {}, figure(scores.data[j])));
    let most = -Infinity, total = 0;
    for (let at = 0; at < this.count; at++) if (!this.masked[at]) most = Math.max(most, scaled.data[at]);
    const off = most > 12 ? most : 0;
    for (let at = 0; at < this.count; at++) if (!this.masked[at]) total += Math.exp(scaled.data[at] - off);
    const power = Math.exp(scaled.data[j] - off);
    if (this.masked[j]) line("softmax", `0 (${t("steps.masked")})`);
    else {
      line("softmax", "e", h("sup", {}, figure(scaled.data[j] - off)), " ÷ Σ e", h("sup", {}, "…"), ` = ${figure(power)} ÷ ${figure(total)} = `,
        h("b", {}, (100 * weights.data[j]).toFixed(2) + "%"), aside(t("steps.tokens", { count: this.count }) + (off ? "; " + t("steps.shift") : "")));
    }
    const some = Array.from({ length: Math.min(TERMS, values) }, (_, d) => v.data[j * values + d]), tail = values > TERMS ? ", …" : "";
    line("× v", `${figure(weights.data[j])} × (${some.map(value => figure(value, 2)).join(", ")}${tail}) = (`,
      h("b", {}, some.map(value => figure(value * weights.data[j])).join(", ")), `${tail})`);
    clear(this.sums, h("span", { class: "at-step-name" }, label), ...lines);
  }
}

const aside = text => h("span", { class: "faint" }, "   " + text);
const bracketed = value => value < 0 ? `(${figure(value, 2)})` : figure(value, 2);
const subscript = d => String(d).replace(/\d/g, digit => "₀₁₂₃₄₅₆₇₈₉"[digit]);

function largest(values) {
  let most = 1e-9;
  for (const value of values) most = Math.max(most, Math.abs(value));
  return most;
}

function signed(values, most) {
  const bytes = new Uint8Array(values.length);
  for (let at = 0; at < values.length; at++) bytes[at] = Math.round(128 + 127 * Math.max(-1, Math.min(1, values[at] / most)));
  return bytes;
}
export { largest, signed, subscript };
