// Every layer and head as a small map, all on one canvas: layers down, heads across (turned, where that fits better),
// each in its head's hue; or all of them in the order of a measure. The overview's small maps are drawn as they came, the strongest cell of a block
// for each pixel. Asks no questions and computes no measure.

import { fit } from "look/views/attention_ink.js";

const LEFT = 26, TOP = 20, GAP = 4;

export class Maps {
  constructor(canvas, on) {
    this.canvas = canvas;
    this.on = on;
    this.base = document.createElement("canvas");
    this.scene = null;
    this.hovered = -1;
    this.width = this.room = 0;
    canvas.addEventListener("pointermove", event => this.hover(this.at(event)));
    canvas.addEventListener("pointerleave", () => this.hover(-1));
    canvas.addEventListener("click", event => { const at = this.at(event); if (at >= 0) on.choose(at); });
  }

  // scene: {small: {data, shape}, chosen (layer · heads + head), order: [flat places] | null, turned, out: Uint8Array, ink}
  show(scene, width, room) {
    this.scene = scene;
    this.width = width;
    this.room = room;
    this.lay();
    this.paintBase();
    this.paint();
  }

  lay() {
    const { scene, width, room } = this, [layers, heads] = scene.small.shape;
    this.named = scene.order ? 13 : 0; // sorted, every map carries its own name
    const count = layers * heads;
    this.turned = scene.turned && !scene.order;
    this.across = this.turned ? layers : heads;
    this.down = this.turned ? heads : layers;
    const left = this.left = scene.order ? 0 : LEFT, top = this.top = scene.order ? 0 : TOP;
    const sideOf = (across, down) => Math.min(62, Math.floor((width - left) / across - GAP), Math.floor((room - top) / down - GAP - this.named));
    if (scene.order) { // as many beside each other as make them largest
      let best = 0;
      for (let across = 1; across <= count; across++) {
        const side = sideOf(across, Math.ceil(count / across));
        if (side > best) { best = side; this.across = across; }
      }
      this.down = Math.ceil(count / this.across);
    }
    this.side = Math.max(14, sideOf(this.across, this.down));
    this.wide = left + this.across * (this.side + GAP);
    this.high = top + this.down * (this.side + GAP + this.named);
    // which head stands where, and where each head stands
    this.flats = scene.order ?? Array.from({ length: count }, (_, at) => this.turned ? (at % layers) * heads + Math.floor(at / layers) : at);
    this.place = new Int32Array(count);
    this.flats.forEach((flat, at) => { this.place[flat] = at; });
    this.pen = fit(this.canvas, this.wide, this.high);
    return this;
  }

  box(flat) {
    const at = this.place[flat];
    return [this.left + (at % this.across) * (this.side + GAP) + 1, this.top + Math.floor(at / this.across) * (this.side + GAP + this.named) + 1 + this.named];
  }

  paintBase() {
    const { scene } = this, [layers, heads, rows, columns] = scene.small.shape;
    const pen = fit(this.base, this.wide, this.high), ratio = window.devicePixelRatio || 1;
    pen.clearRect(0, 0, this.wide, this.high);
    const side = Math.round(this.side * ratio);
    const plate = Object.assign(document.createElement("canvas"), { width: side, height: side });
    const under = plate.getContext("2d"), image = new ImageData(side, side), pixels = new Uint32Array(image.data.buffer);
    for (let flat = 0; flat < layers * heads; flat++) {
      const [x, y] = this.box(flat), table = scene.ink.table(flat % heads);
      pen.globalAlpha = scene.out[flat] ? 0.14 : 1;
      pen.fillStyle = scene.ink.panel;
      pen.fillRect(x, y, this.side, this.side);
      const bytes = scene.small.data.subarray(flat * rows * columns, (flat + 1) * rows * columns);
      reduced(bytes, rows, columns, side, pixels, table);
      under.putImageData(image, 0, 0);
      pen.drawImage(plate, x, y, this.side, this.side);
    }
    pen.globalAlpha = 1;
    this.paintNames(pen);
  }

  paintNames(pen) {
    const { scene } = this, [layers, heads] = scene.small.shape;
    pen.textBaseline = "middle";
    if (scene.order) {
      pen.font = `10px ${scene.ink.font}`;
      pen.textAlign = "left";
      for (let flat = 0; flat < layers * heads; flat++) {
        const [x, y] = this.box(flat);
        pen.fillStyle = scene.ink.faint;
        pen.globalAlpha = scene.out[flat] ? 0.4 : 1;
        pen.fillText(`${Math.floor(flat / heads)}·${flat % heads}`, x, y - 6.5);
      }
      pen.globalAlpha = 1;
      return;
    }
    pen.font = `11px ${scene.ink.font}`;
    const beside = at => this.box(at)[1] + this.side / 2, above = at => this.box(at)[0] + this.side / 2;
    const name = (number, x, y, align) => { pen.textAlign = align; pen.fillText(number, x, y); };
    pen.fillStyle = scene.ink.faint;
    for (let layer = 0; layer < layers; layer++) {
      if (this.turned) name(layer, above(layer * heads), TOP / 2, "center"); else name(layer, LEFT - 8, beside(layer * heads), "right");
    }
    for (let head = 0; head < heads; head++) {
      pen.fillStyle = scene.ink.head(head);
      if (this.turned) name(head, LEFT - 8, beside(head), "right"); else name(head, above(head), TOP / 2, "center");
    }
  }

  paint() {
    const { pen, scene } = this;
    if (!pen || !scene) return;
    pen.clearRect(0, 0, this.wide, this.high);
    pen.drawImage(this.base, 0, 0, this.wide, this.high);
    const heads = scene.small.shape[1];
    if (scene.all) { // the whole layer is shown: its maps stand under one line
      for (let head = 0; head < heads; head++) this.frame(Math.floor(scene.chosen / heads) * heads + head, 1);
    }
    if (this.hovered >= 0) this.frame(this.hovered, 1);
    this.frame(scene.chosen, 2);
  }

  frame(flat, width) {
    const { pen, scene } = this, [x, y] = this.box(flat);
    pen.strokeStyle = scene.ink.head(flat % scene.small.shape[1]);
    pen.lineWidth = width;
    pen.beginPath();
    pen.roundRect(x - 1, y - 1, this.side + 2, this.side + 2, 2);
    pen.stroke();
  }

  at(event) {
    if (!this.scene) return -1;
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left - this.left, y = event.clientY - box.top - this.top;
    const column = Math.floor(x / (this.side + GAP)), row = Math.floor(y / (this.side + GAP + this.named));
    if (x < 0 || y < 0 || column >= this.across || row >= this.down) return -1;
    return this.flats[row * this.across + column] ?? -1;
  }

  hover(at) {
    if (at === this.hovered) return;
    this.hovered = at;
    this.canvas.style.cursor = at >= 0 ? "pointer" : "";
    this.paint();
    this.on.hover(at);
  }

  // The head that stands one step away, by arrow keys.
  neighbour(flat, dx, dy) {
    const at = this.place[flat], count = this.place.length;
    const next = dx ? at + dx : at + dy * this.across;
    if (next < 0 || next >= count || (dx && Math.floor(next / this.across) !== Math.floor(at / this.across))) return flat;
    return this.flats[next];
  }
}

// rows × columns bytes into side × side pixels: the strongest where it shrinks, the cell itself where it grows.
function reduced(bytes, rows, columns, side, pixels, table) {
  for (let v = 0; v < side; v++) {
    const i0 = Math.floor(v * rows / side), i1 = Math.max(i0 + 1, Math.floor((v + 1) * rows / side));
    for (let u = 0; u < side; u++) {
      const j0 = Math.floor(u * columns / side), j1 = Math.max(j0 + 1, Math.floor((u + 1) * columns / side));
      let most = 0;
      for (let i = i0; i < i1; i++) for (let j = j0; j < j1; j++) if (bytes[i * columns + j] > most) most = bytes[i * columns + j];
      pixels[v * side + u] = table[most];
    }
  }
}

