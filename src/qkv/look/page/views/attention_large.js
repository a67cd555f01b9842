// One head's whole map, enlarged: rows ask, columns are looked at. Wheel, drag and +/− move and zoom; a text too long
// for the screen is drawn through the strongest cell of each block, so that no line is lost. The picture lies on one
// canvas and changes with the scene alone; what follows the pointer lies on a second one above. Asks no questions.

import { dotted, fit, picture, shade, shorten, widthOf } from "look/views/attention_ink.js";
import { pooled } from "look/views/attention_data.js";

const WIDEST = 34, SLANT = Math.SQRT1_2, LABELLED = 12, SLANTED = 17, NUMBERED = 25, CROWDED = 60;

export class Large {
  constructor(under, over, on) {
    this.under = under;
    this.over = over;
    this.on = on;
    this.scene = this.focus = this.point = null;
    this.width = this.height = this.waiting = 0;
    this.zoom = 1;
    this.x = this.y = 0; // what of the map stands at its upper left corner, in pixels
    this.drag = null;
    this.found = { i: -1, j: -1 };
    over.addEventListener("pointermove", event => this.moved(event));
    over.addEventListener("pointerdown", event => this.pressed(event));
    over.addEventListener("pointerup", event => this.released(event));
    over.addEventListener("pointerleave", () => this.left());
    over.addEventListener("wheel", event => this.wheeled(event), { passive: false });
    over.addEventListener("dblclick", () => this.magnify(1e-3));
  }

  resize(width, height) {
    if (width === this.width && height === this.height) return;
    this.width = width;
    this.height = height;
    if (this.scene) this.show(this.scene);
  }

  show(scene) {
    const other = !this.scene || this.scene.left.length !== scene.left.length || this.scene.right.length !== scene.right.length;
    this.scene = scene;
    this.levels = [];
    if (other) { this.zoom = 1; this.x = this.y = 0; }
    if (!this.width) return;
    this.lay();
    this.paint();
    this.paintOver();
  }

  lay() {
    const { scene, width, height } = this, rows = scene.left.length, columns = scene.right.length;
    this.pen = fit(this.under, width, height);
    this.top = fit(this.over, width, height);
    this.size = 12.5;
    this.pen.font = this.font();
    const room = rows > CROWDED ? 64 : Math.min(104, width * 0.2);
    this.rows = scene.left.map(item => shorten(this.pen, item.label, room));
    this.columns = scene.right.map(item => shorten(this.pen, item.label, columns > CROWDED ? 64 : 96));
    const most = list => list.reduce((wide, label) => Math.max(wide, widthOf(this.pen, label)), 0);
    this.x0 = Math.ceil(most(this.rows)) + 12;
    this.y0 = Math.ceil(most(this.columns) * SLANT) + 16;
    const hang = most(this.columns.slice(-3)) * SLANT; // the last slanted labels reach past the map
    this.wide = Math.max(60, width - this.x0 - Math.min(hang, 70) - 2);
    this.high = Math.max(60, height - this.y0 - 4);
    this.fitted = Math.min(WIDEST, this.wide / columns, this.high / rows);
    if (this.fitted > 3) this.fitted = Math.floor(this.fitted * 2) / 2;
    this.settle();
  }

  font = () => `${this.size}px ${this.scene.ink.font}`;

  settle() {
    const rows = this.scene.left.length, columns = this.scene.right.length;
    this.cell = this.fitted * this.zoom;
    this.shownWide = Math.min(this.wide, columns * this.cell);
    this.shownHigh = Math.min(this.high, rows * this.cell);
    this.x = Math.max(0, Math.min(this.x, columns * this.cell - this.shownWide));
    this.y = Math.max(0, Math.min(this.y, rows * this.cell - this.shownHigh));
    this.step = this.cell >= LABELLED ? 1 : Math.ceil(1.6 * LABELLED / this.cell); // every step-th label, where they stand too close
    this.slant = this.cell >= SLANTED ? 1 : Math.ceil(1.4 * SLANTED / this.cell);
  }

  // The map at half, a quarter … of its size, each the strongest of the four before; made when it is needed.
  level(number) {
    if (this.levels[number]) return this.levels[number];
    const { scene } = this, rows = Math.ceil(scene.left.length / 2 ** number), columns = Math.ceil(scene.right.length / 2 ** number);
    const bytes = number ? pooled(scene.bytes, scene.left.length, scene.right.length, rows, columns) : scene.bytes;
    const at = column => scene.right[Math.min(scene.right.length - 1, column * 2 ** number)].special ? scene.ink.dull : scene.ink.table(scene.head);
    return this.levels[number] = picture(bytes, rows, columns, scene.ink.table(scene.head), at);
  }

  paint() {
    const { pen, scene, x0, y0, cell, shownWide, shownHigh } = this;
    if (!pen || !scene) return;
    const rows = scene.left.length, columns = scene.right.length;
    pen.clearRect(0, 0, this.width, this.height);
    pen.fillStyle = scene.ink.panel;
    pen.fillRect(x0, y0, shownWide, shownHigh);
    if (scene.bytes) {
      pen.save();
      pen.beginPath();
      pen.rect(x0, y0, shownWide, shownHigh);
      pen.clip();
      pen.imageSmoothingEnabled = false;
      const pixel = cell * (window.devicePixelRatio || 1);
      const level = this.level(pixel >= 1 || pen.vector ? 0 : Math.ceil(-Math.log2(pixel)));
      if (pen.cells && rows * columns <= 4096) pen.cells(scene, x0 - this.x, y0 - this.y, cell);
      else pen.drawImage(level, x0 - this.x, y0 - this.y, columns * cell, rows * cell);
      this.paintRules(pen);
      if (cell >= NUMBERED) this.paintNumbers(pen);
      pen.restore();
    }
    this.paintLabels(pen);
  }

  paintRules(pen) {
    const { scene, x0, y0, cell } = this, rows = scene.left.length, columns = scene.right.length;
    pen.fillStyle = scene.ink.paper;
    const thin = cell >= 9 ? 1 : 0;
    for (let j = 1; j < columns; j++) {
      const apart = scene.right[j].segment !== scene.right[j - 1].segment ? 3 : thin;
      if (apart) pen.fillRect(x0 - this.x + j * cell - apart / 2, y0, apart, this.shownHigh);
    }
    for (let i = 1; i < rows; i++) {
      const apart = scene.left[i].segment !== scene.left[i - 1].segment ? 3 : thin;
      if (apart) pen.fillRect(x0, y0 - this.y + i * cell - apart / 2, this.shownWide, apart);
    }
  }

  paintNumbers(pen) {
    const { scene, x0, y0, cell } = this, columns = scene.right.length;
    pen.font = `${Math.min(11, cell * 0.37)}px ${scene.ink.font}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const [i0, i1, j0, j1] = this.inside();
    for (let i = i0; i < i1; i++) for (let j = j0; j < j1; j++) {
      const weight = scene.map[i * columns + j];
      if (weight < 0.095) continue;
      pen.fillStyle = shade(weight) > 0.45 ? scene.ink.paper : scene.ink.ink;
      pen.fillText(Math.round(100 * weight), x0 - this.x + (j + 0.5) * cell, y0 - this.y + (i + 0.5) * cell + 0.5);
    }
  }

  // The cells on the screen: first and one past the last, of rows and of columns.
  inside() {
    const { cell, scene } = this;
    return [
      Math.floor(this.y / cell), Math.min(scene.left.length, Math.ceil((this.y + this.shownHigh) / cell)),
      Math.floor(this.x / cell), Math.min(scene.right.length, Math.ceil((this.x + this.shownWide) / cell)),
    ];
  }

  paintLabels(pen) {
    const { scene, step, slant } = this, [i0, i1, j0, j1] = this.inside();
    const colour = (item, apart) => item.special ? scene.ink.faint : apart > 1 ? scene.ink.soft : scene.ink.ink;
    pen.font = this.font();
    pen.textBaseline = "middle";
    for (let i = Math.ceil(i0 / step) * step; i < i1; i += step) this.rowLabel(pen, i, colour(scene.left[i], step));
    for (let j = Math.ceil(j0 / slant) * slant; j < j1; j += slant) this.columnLabel(pen, j, colour(scene.right[j], slant));
  }

  rowLabel(pen, i, colour) {
    const y = this.y0 - this.y + (i + 0.5) * this.cell;
    if (y < this.y0 - 2 || y > this.y0 + this.shownHigh + 2) return;
    pen.textAlign = "right";
    pen.fillStyle = colour;
    pen.fillText(this.rows[i], this.x0 - 7, y + 0.5);
    if (this.scene.left[i].unknown) dotted(pen, this.x0 - 7 - widthOf(pen, this.rows[i]), y + 8, widthOf(pen, this.rows[i]));
  }

  columnLabel(pen, j, colour) {
    const x = this.x0 - this.x + (j + 0.5) * this.cell;
    if (x < this.x0 - 2 || x > this.x0 + this.shownWide + 2) return;
    pen.save();
    pen.translate(x, this.y0 - 7);
    pen.rotate(-Math.PI / 4);
    pen.textAlign = "left";
    pen.fillStyle = colour;
    pen.fillText(this.columns[j], 0, 0);
    if (this.scene.right[j].unknown) dotted(pen, 0, 7, widthOf(pen, this.columns[j]));
    pen.restore();
  }

  light(focus) {
    this.focus = focus;
    if (!this.scene || !this.top) return;
    if (focus && this.zoom > 1 && !this.point) {
      this.reveal(focus.side, focus.at);
      if (focus.cell >= 0) this.reveal("right", focus.cell);
    }
    this.paintOver();
  }

  paintOver() {
    const { top: pen, scene, focus, x0, y0, cell } = this;
    if (!pen || !scene) return;
    pen.clearRect(0, 0, this.width, this.height);
    const colour = scene.ink.head(scene.head);
    const i = focus?.side === "left" ? focus.at : -1;
    const j = focus?.side === "right" ? focus.at : focus?.cell ?? -1;
    pen.font = this.font();
    pen.textBaseline = "middle";
    if (i >= 0 && i < scene.left.length) this.mark(pen, "row", i, colour);
    if (j >= 0 && j < scene.right.length) this.mark(pen, "column", j, colour);
    const [i0, i1, j0, j1] = this.inside();
    if (i >= i0 && i < i1 && j >= j0 && j < j1) {
      const x = x0 - this.x + j * cell, y = y0 - this.y + i * cell;
      pen.lineWidth = 2;
      pen.strokeStyle = scene.ink.ink;
      pen.strokeRect(x, y, Math.max(cell, 2), Math.max(cell, 2));
    }
  }

  // A row or a column that is looked at: framed, its label on a ground of the head's colour.
  mark(pen, what, at, colour) {
    const { scene, x0, y0, cell } = this, row = what === "row";
    const start = row ? y0 - this.y + at * cell : x0 - this.x + at * cell, wide = Math.max(cell, 2);
    const from = row ? y0 : x0, long = row ? this.shownHigh : this.shownWide;
    if (start + wide < from - 1 || start > from + long + 1) return;
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    if (row) pen.strokeRect(x0 - 0.75, start - 0.25, this.shownWide + 1.5, wide + 0.5);
    else pen.strokeRect(start - 0.25, y0 - 0.75, wide + 0.5, this.shownHigh + 1.5);
    const label = row ? this.rows[at] : this.columns[at], width = widthOf(pen, label);
    pen.save();
    if (row) pen.translate(x0 - 7 - width, start + wide / 2);
    else { pen.translate(start + wide / 2, y0 - 7); pen.rotate(-Math.PI / 4); }
    pen.fillStyle = scene.ink.paper; // over the labels it would run into
    if (row) pen.fillRect(width + 7 - x0, -9, x0 - 4, 18); else pen.fillRect(-4, -9, Math.max(width, this.y0 / SLANT - 24) + 8, 18);
    pen.fillStyle = colour;
    pen.beginPath();
    pen.roundRect(-5, -9, width + 10, 18, 5);
    pen.fill();
    pen.fillStyle = scene.ink.paper;
    pen.textAlign = "left";
    pen.fillText(label, 0, 0.5);
    pen.restore();
  }

  at(event) {
    if (!this.scene) return null;
    const box = this.over.getBoundingClientRect();
    const x = event.clientX - box.left - this.x0, y = event.clientY - box.top - this.y0;
    if (y < 0 || y >= this.shownHigh || x < -this.x0 || x >= this.shownWide) return null;
    this.found.i = Math.min(this.scene.left.length - 1, Math.floor((y + this.y) / this.cell));
    this.found.j = x < 0 ? -1 : Math.min(this.scene.right.length - 1, Math.floor((x + this.x) / this.cell));
    return this.found;
  }

  moved(event) {
    if (this.drag) {
      const dx = event.clientX - this.drag.x, dy = event.clientY - this.drag.y;
      if (!this.drag.far && Math.abs(dx) + Math.abs(dy) < 5) return;
      this.drag.far = true;
      if (this.zoom > 1) {
        this.x = this.drag.fromX - dx;
        this.y = this.drag.fromY - dy;
        this.settle();
        this.again();
      }
      return;
    }
    const hit = this.at(event);
    if (!hit) { this.left(); return; }
    if (this.point && this.point.i === hit.i && this.point.j === hit.j) return;
    this.point = hit.j >= 0 ? hit : null;
    this.on.hover(hit.i, hit.j);
  }

  left() {
    if (this.drag?.far) return;
    this.drag = null;
    if (this.point || this.found.i >= 0) { this.point = null; this.found.i = -1; this.on.hover(-1, -1); }
  }

  pressed(event) {
    if (event.button) return;
    this.drag = { x: event.clientX, y: event.clientY, fromX: this.x, fromY: this.y, far: false };
    if (this.zoom > 1) this.over.setPointerCapture(event.pointerId);
  }

  released(event) {
    const far = this.drag?.far;
    this.drag = null;
    const hit = this.at(event);
    if (!far && hit) this.on.pin(hit.i, hit.j);
  }

  // Zooming is what a wheel does over a map that is too dense to read; over a small one the page scrolls on.
  wheeled(event) {
    if (!this.scene || !(event.ctrlKey || event.metaKey || this.dense || this.zoom > 1)) return;
    event.preventDefault();
    const box = this.over.getBoundingClientRect();
    this.magnify(Math.exp(-event.deltaY * 0.0022), event.clientX - box.left - this.x0, event.clientY - box.top - this.y0);
  }

  magnify(by, x = this.shownWide / 2, y = this.shownHigh / 2) {
    if (!this.scene || !this.pen) return;
    const before = this.cell;
    this.zoom = Math.max(1, Math.min(Math.max(1, WIDEST / this.fitted), this.zoom * by));
    const grown = this.fitted * this.zoom / before;
    this.x = (this.x + x) * grown - x;
    this.y = (this.y + y) * grown - y;
    this.settle();
    this.again();
  }

  reveal(side, at) {
    const from = side === "left" ? this.y : this.x, shown = side === "left" ? this.shownHigh : this.shownWide;
    const place = (at + 0.5) * this.cell;
    if (place > from && place < from + shown) return;
    if (side === "left") this.y = place - shown / 2; else this.x = place - shown / 2;
    this.settle();
    this.paint();
  }

  // The same picture with another pen (an SVG's), at the same size.
  with(pen) {
    const held = [this.pen, this.top];
    this.pen = this.top = pen;
    this.paint();
    this.paintOver();
    [this.pen, this.top] = held;
  }

  again() {
    this.waiting ||= requestAnimationFrame(() => { this.waiting = 0; this.paint(); this.paintOver(); });
  }

  get dense() { return Boolean(this.scene) && this.fitted < LABELLED; }
}
