// Lines between words on a canvas: the left column asks, the right column is looked at. The token under the pointer
// (or the pinned one) shares its 100 % out in ribbons as thick as the weights; behind it, faintly, what all the others
// do. Long texts are fitted to the height, labels that would overlap left out, the strongest kept. Asks no questions
// and knows no layers: it draws a scene, {left, right: items, map, row(head, i, out), heads, head, all, ink, asks, seen}.

import { dotted, fit, shade, shorten, widthOf } from "look/views/attention_ink.js";
import { strongCells, strongest } from "look/views/attention_data.js";

const SIZE = 13, PILL = 22, TALLEST = 33, READABLE = 13.5, FAINTEST = 0.006;
const HEAD = 26; // what the columns are, above them
const MOST_BEHIND = 900; // faint lines of all tokens together

export class Lines {
  constructor(canvas, on) {
    this.canvas = canvas;
    this.on = on;
    this.base = document.createElement("canvas");
    this.scene = this.focus = null;
    this.width = this.height = 0;
    this.zoom = 1;
    this.top = 0;
    this.hovered = { side: "", at: -1 };
    canvas.addEventListener("pointermove", event => this.moved(event));
    canvas.addEventListener("pointerleave", () => this.left());
    canvas.addEventListener("click", event => { const hit = this.hit(event); if (hit) on.pin(hit.side, hit.at); });
    canvas.addEventListener("wheel", event => this.wheeled(event), { passive: false });
  }

  resize(width, height) {
    if (width === this.width && height === this.height) return;
    this.width = width;
    this.height = height;
    if (this.scene) this.show(this.scene);
  }

  show(scene) {
    const longer = !this.scene || this.scene.left.length !== scene.left.length || this.scene.right.length !== scene.right.length;
    this.scene = scene;
    if (longer) { this.zoom = 1; this.top = 0; }
    if (!this.width) return;
    this.lay();
    this.paintBase();
    this.paint();
  }

  light(focus) {
    this.focus = focus;
    if (!this.scene || !this.width) return;
    if (focus && this.zoom > 1) this.reveal(focus);
    this.paint();
  }

  // Where everything stands; allocates, and so runs when the scene or the size changes, never while hovering.
  lay() {
    const { scene, width } = this;
    const pen = this.pen = fit(this.canvas, width, this.height);
    pen.font = `${SIZE}px ${scene.ink.font}`;
    const room = Math.max(52, Math.min(150, width * 0.27)), numbers = scene.all ? Math.min(84, scene.heads * 5 + 6) : 38;
    const columns = [scene.left, scene.right].map(side => {
      const labels = side.map(item => shorten(pen, item.label, room));
      return { labels, widths: Float32Array.from(labels, label => widthOf(pen, label)), unit: units(side), y: new Float32Array(side.length) };
    });
    [this.asks, this.seen] = columns;
    const wide = column => column.widths.reduce((most, one) => Math.max(most, one), 28);
    this.x0 = Math.round(wide(this.asks) + 20 + 34); // there are percentages on the left, too, when a word is looked at
    this.x1 = Math.round(width - wide(this.seen) - 20 - numbers);
    if (this.x1 - this.x0 > 300) { // lines longer than this only part what belongs together
      const spare = this.x1 - this.x0 - 300;
      this.x0 += spare / 2;
      this.x1 -= spare / 2;
    }
    this.longest = Math.max(last(this.asks.unit), last(this.seen.unit)) + 0.5;
    this.row1 = Math.min(TALLEST, (this.height - HEAD - 8) / this.longest);
    this.weights = new Float32Array(Math.max(scene.left.length, scene.right.length));
    this.perHead = Array.from({ length: scene.heads }, () => new Float32Array(this.weights.length));
    this.taken = new Uint8Array(Math.ceil(this.height) + 40);
    this.settle();
  }

  settle() {
    this.row = this.row1 * this.zoom;
    const inside = this.longest * this.row + HEAD + 8;
    this.top = Math.max(0, Math.min(this.top, inside - this.height));
    const start = HEAD - this.top;
    for (const column of [this.asks, this.seen]) {
      for (let at = 0; at < column.y.length; at++) column.y[at] = start + column.unit[at] * this.row;
    }
    this.legible = this.row >= READABLE;
  }

  // What does not change while the pointer moves: the faint lines of all tokens.
  paintBase(pen = fit(this.base, this.width, this.height)) {
    const { scene, x0, x1 } = this;
    pen.clearRect(0, 0, this.width, this.height);
    if (scene.map) {
      const columns = scene.right.length;
      pen.strokeStyle = scene.ink.soft;
      const found = strongCells(scene.map, MOST_BEHIND, 0.03), pale = Math.max(0.2, Math.min(1, 110 / found.length));
      for (const at of found) { // the more there are, the paler: together they stay behind
        const i = Math.floor(at / columns), j = at % columns, weight = scene.map[at];
        pen.globalAlpha = pale * ((scene.right[j].special ? 0.05 : 0.07) + 0.22 * weight);
        pen.lineWidth = 0.6 + 1.6 * weight * pale;
        curve(pen, x0 + 4, this.asks.y[i], x1 - 4, this.seen.y[j]);
      }
    }
    if (!this.legible) {
      for (const [column, side, x] of [[this.asks, scene.left, x0 - 5], [this.seen, scene.right, x1 + 2]]) {
        pen.fillStyle = scene.ink.soft;
        const high = Math.max(0.7, this.row - 0.5);
        for (let at = 0; at < side.length; at++) {
          pen.globalAlpha = side[at].special ? 0.9 : side[at].segment ? 0.28 : 0.45;
          pen.fillRect(x, column.y[at] - high / 2, 3, high);
        }
      }
    }
    pen.globalAlpha = 1;
  }

  paint() {
    const { pen, scene, focus, width, height } = this;
    if (!pen || !scene) return;
    pen.clearRect(0, 0, width, height);
    if (pen.vector) this.paintBase(pen);
    else {
      pen.globalAlpha = focus ? 0.75 : 1;
      pen.drawImage(this.base, 0, 0, width, height);
      pen.globalAlpha = 1;
    }
    pen.font = `${SIZE}px ${scene.ink.font}`;
    pen.textBaseline = "middle";
    const ready = focus && scene.map && this.fill(focus);
    if (ready) { if (scene.all) this.strands(focus); else this.ribbons(focus); }
    const answers = ready && focus.side === "left" ? "right" : "left";
    this.column("left", ready && answers === "left", focus);
    this.column("right", ready && answers === "right", focus);
    if (this.top > 4) return;
    pen.font = `12px ${scene.ink.font}`;
    pen.fillStyle = scene.ink.faint;
    pen.textAlign = "right";
    pen.fillText(scene.asks, this.x0 - 7, 9);
    pen.textAlign = "left";
    pen.fillText(scene.seen, this.x1 + 7, 9);
  }

  // The weights of the focus: a row (what it looks at) or a column (who looks at it). No allocation.
  fill({ side, at }) {
    const { scene, weights, perHead } = this, rows = scene.left.length, columns = scene.right.length;
    if (at < 0 || at >= (side === "left" ? rows : columns)) return false;
    if (scene.all) {
      weights.fill(0);
      for (let head = 0; head < scene.heads; head++) {
        scene.row(head, side, at, perHead[head]);
        for (let j = 0; j < weights.length; j++) weights[j] += perHead[head][j] / scene.heads;
      }
    } else if (side === "left") weights.set(scene.map.subarray(at * columns, (at + 1) * columns));
    else for (let i = 0; i < rows; i++) weights[i] = scene.map[i * columns + at];
    return true;
  }

  ribbons({ side, at }) {
    const { pen, scene, weights, x0, x1 } = this, out = side === "left";
    const near = (out ? this.asks : this.seen).y[at], far = out ? this.seen.y : this.asks.y, count = far.length;
    let total = 0;
    for (let j = 0; j < count; j++) total += weights[j];
    const thick = (PILL - 2) / Math.max(1, total);
    let from = near - thick * total / 2;
    for (let j = 0; j < count; j++) {
      const weight = weights[j], width = weight * thick;
      if (weight >= FAINTEST) {
        const grey = (out ? scene.right[j] : scene.left[j]).special;
        pen.strokeStyle = grey ? scene.ink.soft : scene.ink.head(scene.head);
        pen.globalAlpha = (grey ? 0.14 : 0.3) + (grey ? 0.3 : 0.6) * shade(weight);
        pen.lineWidth = Math.max(0.7, width);
        const y = from + width / 2;
        if (out) curve(pen, x0 + 2, y, x1 - 2, far[j]); else curve(pen, x0 + 2, far[j], x1 - 2, y);
      }
      from += width;
    }
    pen.globalAlpha = 1;
  }

  strands({ side, at }) {
    const { pen, scene, perHead, x0, x1 } = this, out = side === "left", { heads } = scene;
    const near = (out ? this.asks : this.seen).y[at], far = out ? this.seen.y : this.asks.y;
    const spread = Math.min(PILL - 4, this.legible ? this.row - 6 : 10) / heads;
    for (let head = 0; head < heads; head++) {
      const weights = perHead[head], shift = (head - (heads - 1) / 2);
      pen.strokeStyle = scene.ink.head(head);
      for (let j = 0; j < far.length; j++) {
        const weight = weights[j];
        if (weight < 0.02) continue;
        pen.globalAlpha = (out ? scene.right[j] : scene.left[j]).special ? 0.05 + 0.28 * weight : 0.16 + 0.8 * weight;
        pen.lineWidth = 0.7 + 4.2 * weight;
        const start = near + shift * (PILL - 4) / heads, end = far[j] + shift * spread;
        if (out) curve(pen, x0 + 2, start, x1 - 2, end); else curve(pen, x0 + 2, end, x1 - 2, start);
      }
    }
    pen.globalAlpha = 1;
  }

  // One column of labels; `answering`: its tokens carry the weights. Where rows are narrow, the strongest come first.
  column(side, answering, focus) {
    const left = side === "left", { scene, weights, taken } = this, items = left ? scene.left : scene.right;
    const chosen = focus && focus.side === side ? focus.at : -1;
    const mirrored = focus && focus.twin && focus.side !== side ? focus.twin : -1;
    if (this.legible) {
      const column = left ? this.asks : this.seen;
      for (let at = 0; at < items.length; at++) {
        if (column.y[at] < -PILL || column.y[at] > this.height + PILL) continue;
        this.label(side, at, answering ? weights[at] : 0, at === chosen, at === mirrored);
      }
      return;
    }
    taken.fill(0);
    if (chosen >= 0) this.squeeze(side, chosen, 0, true);
    if (answering) {
      for (const at of strongest(items.length === weights.length ? weights : weights.subarray(0, items.length), 40, 0.012)) {
        this.squeeze(side, at, weights[at], false);
      }
    } else {
      const step = Math.max(1, Math.ceil(READABLE * 1.5 / this.row));
      for (let at = 0; at < items.length; at += step) this.squeeze(side, at, 0, false);
    }
  }

  squeeze(side, at, weight, chosen) {
    const y = Math.round((side === "left" ? this.asks : this.seen).y[at]);
    if (y < 0 || y >= this.height || this.taken[y]) return;
    this.taken.fill(1, Math.max(0, y - SIZE - 2), y + SIZE + 2);
    this.label(side, at, weight, chosen, false);
  }

  label(side, at, weight, chosen, mirrored) {
    const { pen, scene, x0, x1 } = this, left = side === "left", column = left ? this.asks : this.seen;
    const item = (left ? scene.left : scene.right)[at], y = column.y[at], wide = column.widths[at] + 14;
    const colour = scene.all ? scene.ink.ink : scene.ink.head(scene.head), gap = this.legible ? 0 : 5;
    const x = left ? x0 - wide - gap : x1 + gap, high = Math.min(PILL, Math.max(16, this.row - 2));
    if (chosen || weight >= 0.01) {
      pen.globalAlpha = chosen ? 1 : 0.05 + 0.5 * shade(weight);
      pen.fillStyle = chosen || !item.special ? colour : scene.ink.soft;
      pen.beginPath();
      pen.roundRect(x, y - high / 2, wide, high, 6);
      pen.fill();
      pen.globalAlpha = 1;
    }
    pen.textAlign = left ? "right" : "left";
    pen.fillStyle = chosen ? scene.ink.paper : item.special ? scene.ink.faint : scene.ink.ink;
    if (mirrored) pen.fillStyle = colour;
    pen.fillText(column.labels[at], left ? x0 - 7 - gap : x1 + 7 + gap, y + 0.5);
    if (item.unknown) dotted(pen, x + 7, y + 8, column.widths[at]);
    if (weight >= 0.01) {
      if (scene.all && !left) this.strip(x + wide + 5, y, at);
      else {
        pen.font = `11px ${scene.ink.font}`;
        pen.fillStyle = item.special ? scene.ink.soft : colour;
        pen.fillText(Math.round(weight * 100) + "%", left ? x - 5 : x + wide + 5, y + 0.5);
        pen.font = `${SIZE}px ${scene.ink.font}`;
      }
    }
  }

  // How much each head gives to one token: as many small squares as heads, in their hues.
  strip(x, y, at) {
    const { pen, scene, perHead } = this, step = Math.min(9, 78 / scene.heads);
    for (let head = 0; head < scene.heads; head++) {
      pen.fillStyle = scene.ink.head(head);
      pen.globalAlpha = 0.08 + 0.92 * shade(perHead[head][at]);
      pen.fillRect(x + head * step, y - 5, Math.max(2, step - 1), 10);
    }
    pen.globalAlpha = 1;
  }

  // The same picture with another pen (an SVG's), at the same size.
  with(pen) {
    const held = this.pen;
    this.pen = pen;
    this.paint();
    this.pen = held;
  }

  hit(event) {
    if (!this.scene || !this.pen) return null;
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const side = x < (this.x0 + this.x1) / 2 ? "left" : "right", ys = (side === "left" ? this.asks : this.seen).y;
    if (!ys.length) return null;
    let low = 0, high = ys.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (y > (ys[middle] + ys[middle + 1]) / 2) low = middle + 1; else high = middle;
    }
    if (Math.abs(y - ys[low]) > Math.max(this.row, 14)) return null;
    this.found.side = side;
    this.found.at = low;
    return this.found;
  }
  found = { side: "", at: -1 };

  moved(event) {
    const hit = this.hit(event);
    if (!hit) { this.left(); return; }
    if (hit.side === this.hovered.side && hit.at === this.hovered.at) return;
    this.hovered.side = hit.side;
    this.hovered.at = hit.at;
    this.on.hover(hit.side, hit.at);
  }

  left() {
    if (this.hovered.at < 0) return;
    this.hovered.at = -1;
    this.on.hover(null, -1);
  }

  // A plain wheel scrolls what does not fit and leaves the page alone only then; with Ctrl it zooms.
  wheeled(event) {
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); this.magnify(Math.exp(-event.deltaY * 0.004), event.offsetY); return; }
    if (this.longest * this.row + HEAD + 8 <= this.height + 1) return;
    const before = this.top;
    this.top += event.deltaY;
    this.settle();
    if (this.top === before) return;
    event.preventDefault();
    this.again();
  }

  magnify(by, around = this.height / 2) {
    if (!this.pen) return;
    const before = this.row;
    this.zoom = Math.max(1, Math.min(TALLEST / this.row1, this.zoom * by));
    this.top = (this.top + around) * (this.row1 * this.zoom / before) - around;
    this.settle();
    this.again();
  }

  reveal({ side, at }) {
    const y = (side === "left" ? this.asks : this.seen).y[at];
    if (y > 16 && y < this.height - 16) return;
    this.top += y - this.height / 2;
    this.settle();
    this.paintBase();
  }

  waiting = 0;
  again() {
    this.waiting ||= requestAnimationFrame(() => { this.waiting = 0; this.paintBase(); this.paint(); });
  }

  get squeezed() { return Boolean(this.scene) && this.row1 < READABLE; }
}

// Middles of the rows, in rows; a second segment stands a little apart.
function units(side) {
  const found = new Float32Array(side.length);
  let at = 0.5;
  side.forEach((item, number) => {
    if (number && item.segment !== side[number - 1].segment) at += 0.6;
    found[number] = at;
    at += 1;
  });
  return found;
}

const last = list => list.length ? list[list.length - 1] : 0;

export function curve(pen, x0, y0, x1, y1) {
  const bend = (x1 - x0) * 0.5;
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  pen.stroke();
}
