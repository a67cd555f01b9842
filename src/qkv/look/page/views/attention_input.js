// What one token enters the first layer as: token + segment + position = input, each a strip of all its numbers, cold
// below nought and warm above, on one scale. Draws a reply of "inputs"; asks nothing itself.

import { h } from "look/dom.js";
import { fit, picture } from "look/views/attention_ink.js";
import { figure, labelAt } from "look/views/attention_data.js";
import { largest, signed, subscript } from "look/views/attention_steps.js";

const ROW = 34, STRIP = 22, LABEL = 176, LENGTH = 74;
const PARTS = ["token", "segment", "position", "task", "sum", "normed"];
const TRANSFORMER = { token: "scaled", position: "waves" }; // what a Transformer calls them
const SIGNS = { segment: "+", position: "+", task: "+", sum: "=", normed: "→" };

export class InputRow {
  constructor(t) {
    this.t = t;
    this.canvas = h("canvas", { tabindex: "0", role: "application" });
    this.heading = h("h3", {});
    this.about = h("span", { class: "faint" });
    this.reading = h("div", { class: "at-reading num" });
    this.root = h("div", { class: "at-steps" }, h("div", { class: "row" }, this.heading, this.about), h("div", { class: "at-scroll" }, this.canvas), this.reading);
    this.reply = null;
    this.d = -1;
    this.canvas.addEventListener("pointermove", event => {
      if (!this.reply || !this.cell) return;
      const d = Math.floor((event.clientX - this.canvas.getBoundingClientRect().left - LABEL) / this.cell);
      this.pointed(d >= 0 && d < this.width ? d : -1);
    });
    this.canvas.addEventListener("pointerleave", () => this.pointed(-1));
    this.canvas.addEventListener("keydown", event => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || !this.reply) return;
      event.preventDefault();
      this.pointed(Math.max(0, Math.min(this.width - 1, this.d + step * (event.shiftKey ? 10 : 1))));
    });
  }

  show(reply, what) {
    this.reply = reply;
    this.what = what;
    this.parts = PARTS.filter(name => reply.arrays[name]);
    this.width = reply.arrays[this.parts[0]].data.length;
    // What is added stands on one scale, so that a strip shows its share; the normed one has its own.
    const added = Math.max(...this.parts.filter(name => name !== "normed").map(name => spread(reply.arrays[name].data)));
    this.images = this.parts.map(name => {
      const { data } = reply.arrays[name];
      return picture(signed(data, name === "normed" ? spread(data) : added), 1, this.width, what.ink.signed);
    });
    this.d = Math.min(this.d, this.width - 1);
    this.say();
    this.paint();
  }

  say() {
    const { t, what } = this;
    this.heading.textContent = t("input.of", { token: labelAt(what.left, what.row) });
    this.about.textContent = t("input.width", { width: this.width });
    this.canvas.setAttribute("aria-label", this.heading.textContent);
    this.read();
  }

  resize(width) {
    this.room = width;
    if (this.reply) this.paint();
  }

  paint() {
    if (!this.reply || !this.room) return;
    const { t, what, parts } = this, { ink } = what, { head, arrays } = this.reply;
    this.cell = Math.max(0.5, Math.min(6, (this.room - LABEL - LENGTH) / this.width));
    if (this.cell > 1) this.cell = Math.floor(this.cell * 4) / 4;
    const wide = this.width * this.cell, high = parts.length * ROW + 22;
    const pen = this.pen = fit(this.canvas, LABEL + wide + LENGTH, high);
    pen.clearRect(0, 0, LABEL + wide + LENGTH, high);
    pen.imageSmoothingEnabled = this.cell < 1;
    pen.textBaseline = "middle";
    pen.font = `11px ${ink.font}`;
    pen.textAlign = "left";
    pen.fillStyle = ink.faint;
    pen.fillText(t("input.norm"), LABEL + wide + 14, 8);
    const token = what.left[what.row];
    const about = { token: what.unknown?.left.includes(what.row) ? token.token : labelAt(what.left, what.row), segment: head.segment ?? token.segment, position: what.row };
    parts.forEach((name, at) => {
      const y = 20 + at * ROW, middle = y + STRIP / 2;
      if (name === "sum") { pen.fillStyle = ink.rule; pen.fillRect(LABEL, y - 7, wide, 1); }
      pen.font = `14px ${ink.font}`;
      pen.fillStyle = ink.faint;
      pen.textAlign = "center";
      if (SIGNS[name]) pen.fillText(SIGNS[name], 7, middle);
      pen.textAlign = "left";
      pen.font = `13px ${ink.font}`;
      pen.fillStyle = name === "sum" || name === "normed" ? ink.ink : ink.soft;
      const text = t("input." + (what.kind === "transformer" && TRANSFORMER[name] || name)), extra = about[name];
      pen.fillText(text, 20, middle);
      if (extra !== undefined) {
        const from = 20 + pen.measureText(text).width + 8;
        pen.fillStyle = ink.ink;
        pen.fillText(String(extra), from, middle, Math.max(20, LABEL - from - 8));
      }
      pen.fillStyle = ink.panel;
      pen.fillRect(LABEL, y, wide, STRIP);
      pen.drawImage(this.images[at], 0, 0, this.width, 1, LABEL, y, wide, STRIP);
      let square = 0;
      for (const value of arrays[name].data) square += value * value;
      pen.fillStyle = ink.soft;
      pen.fillText(Math.sqrt(square).toFixed(2), LABEL + wide + 14, middle);
    });
    if (this.d >= 0) {
      pen.strokeStyle = ink.ink;
      pen.strokeRect(LABEL + this.d * this.cell - 0.5, 17.5, Math.max(2, this.cell), parts.length * ROW - 6);
    }
  }

  pointed(d) {
    if (d === this.d) return;
    this.d = d;
    this.read();
    this.waiting ||= requestAnimationFrame(() => { this.waiting = 0; this.paint(); });
  }

  read() {
    const { t, d, parts } = this;
    if (d < 0) { this.reading.textContent = t("input.hint"); return; }
    const text = parts.map(name => `${SIGNS[name] ? ` ${SIGNS[name]} ` : ""}${figure(this.reply.arrays[name].data[d])}`);
    this.reading.textContent = `${t("input.at", { d: subscript(d) })}  ${text.join("")}`;
  }
}

// The value of full colour: nearly the largest, so that one outlier does not bleach the rest.
function spread(values) {
  const sorted = Float32Array.from(values, Math.abs).sort();
  return Math.max(sorted[Math.floor(sorted.length * 0.985)] ?? 0, largest(values) / 4);
}
