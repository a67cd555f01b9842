// What is on screen as one SVG for a paper: a pen that understands what the drawings ask of a canvas and writes SVG
// instead, so that the picture on paper is the picture on screen. No script, no font file; fonts are named.

import { escaped, font, svgOf, svgText } from "look/draw.js";
import { shade } from "look/views/attention_ink.js";

const near = value => Math.round(value * 100) / 100;
let clips = 0;

class SvgPen {
  vector = true;
  fillStyle = "#000"; strokeStyle = "#000"; globalAlpha = 1; lineWidth = 1; font = "13px sans-serif"; textAlign = "left"; textBaseline = "middle";
  parts = [];
  path = "";
  stack = [];
  open = 0;

  constructor() { this.measure = document.createElement("canvas").getContext("2d"); }

  clearRect() {}
  measureText(text) { this.measure.font = this.font; return this.measure.measureText(text); }
  beginPath() { this.path = ""; this.box = null; }
  moveTo(x, y) { this.path += `M${near(x)} ${near(y)}`; }
  bezierCurveTo(...at) { this.path += `C${at.map(near).join(" ")}`; }
  rect(x, y, width, height) { this.box = { x, y, width, height, radius: 0 }; }
  roundRect(x, y, width, height, radius) { this.box = { x, y, width, height, radius }; }
  fill() { if (this.box) this.rectangle(this.box, `fill="${this.fillStyle}"${this.alpha("fill")}`); }
  stroke() {
    const style = `fill="none" stroke="${this.strokeStyle}" stroke-width="${near(this.lineWidth)}"${this.alpha("stroke")}`;
    if (this.box) this.rectangle(this.box, style); else this.parts.push(`<path d="${this.path}" ${style}/>`);
  }
  fillRect(x, y, width, height) { this.rectangle({ x, y, width, height, radius: 0 }, `fill="${this.fillStyle}"${this.alpha("fill")}`); }
  strokeRect(x, y, width, height) {
    this.rectangle({ x, y, width, height, radius: 0 }, `fill="none" stroke="${this.strokeStyle}" stroke-width="${near(this.lineWidth)}"`);
  }
  rectangle({ x, y, width, height, radius }, style) {
    this.parts.push(`<rect x="${near(x)}" y="${near(y)}" width="${near(width)}" height="${near(height)}"${radius ? ` rx="${radius}"` : ""} ${style}/>`);
  }
  fillText(text, x, y) {
    const [, size] = /([\d.]+)px/.exec(this.font), anchor = { left: "start", right: "end", center: "middle" }[this.textAlign];
    this.parts.push(`<text x="${near(x)}" y="${near(y + size * 0.35)}" font-size="${near(Number(size))}" fill="${this.fillStyle}" ` +
      `text-anchor="${anchor}"${this.alpha("fill")}>${escaped(text)}</text>`);
  }
  drawImage(image, x, y, width, height) {
    this.parts.push(`<image x="${near(x)}" y="${near(y)}" width="${near(width)}" height="${near(height)}" preserveAspectRatio="none" ` +
      `style="image-rendering:pixelated" href="${image.toDataURL("image/png")}"/>`);
  }
  alpha(what) { return this.globalAlpha < 1 ? ` ${what}-opacity="${near(this.globalAlpha)}"` : ""; }

  save() { this.stack.push([this.open, this.fillStyle, this.font, this.textAlign]); this.open = 0; }
  restore() {
    this.parts.push("</g>".repeat(this.open));
    [this.open, this.fillStyle, this.font, this.textAlign] = this.stack.pop();
  }
  translate(x, y) { this.group(`transform="translate(${near(x)} ${near(y)})"`); }
  rotate(angle) { this.group(`transform="rotate(${near(angle * 180 / Math.PI)})"`); }
  clip() {
    const id = `clip${clips += 1}`, { x, y, width, height } = this.box;
    this.parts.push(`<clipPath id="${id}"><rect x="${near(x)}" y="${near(y)}" width="${near(width)}" height="${near(height)}"/></clipPath>`);
    this.group(`clip-path="url(#${id})"`);
  }
  group(attributes) { this.parts.push(`<g ${attributes}>`); this.open += 1; }

  // A map cell by cell, so that it stays sharp at every size.
  cells(scene, x0, y0, cell) {
    const columns = scene.right.length, colour = scene.ink.head(scene.head);
    scene.map.forEach((weight, at) => {
      if (weight < 0.002) return;
      const fill = scene.right[at % columns].special ? scene.ink.soft : colour;
      const place = { x: x0 + (at % columns) * cell, y: y0 + Math.floor(at / columns) * cell, width: cell, height: cell, radius: 0 };
      this.rectangle(place, `fill="${fill}" fill-opacity="${near(shade(Math.min(1, weight)))}"`);
    });
  }
}

function drawn(drawing, x, y) {
  const pen = new SvgPen();
  drawing.with(pen);
  return `<g transform="translate(${near(x)} ${near(y)})">${pen.parts.join("")}</g>`;
}

// panes: those on screen; each its lines and its large map under a title with model, layer and head.
export function pictureOf(panes, note) {
  const shown = panes.filter(pane => pane.scene?.map && pane.lines.pen);
  if (!shown.length) return null;
  const margin = 28, top = 92, parts = [];
  let x = margin, high = 0;
  for (const pane of shown) {
    const { ink } = pane.scene, colour = pane.options.lines === "all" ? ink.ink : ink.head(pane.head);
    parts.push(svgText(x, 42, pane.title.textContent, { size: 20, weight: 620, fill: colour }));
    parts.push(svgText(x, 64, pane.about.textContent, { size: 13, fill: ink.soft }));
    parts.push(svgText(x, 82, pane.sentence(), { size: 13, fill: ink.ink }));
    parts.push(drawn(pane.lines, x, top), drawn(pane.large, x + pane.lines.width + 24, top));
    x += pane.lines.width + 24 + pane.large.width + 40;
    high = Math.max(high, Math.max(used(pane.lines), pane.large.y0 + pane.large.shownHigh + 8));
  }
  const lines = wrapped(note, x - 40 - margin);
  lines.forEach((line, at) => parts.push(svgText(margin, top + high + 28 + 15 * at, line, { size: 11, fill: shown[0].scene.ink.faint })));
  const title = shown.map(pane => `${pane.subject.title}, ${pane.title.textContent}`).join("; ");
  return svgOf(x - 40 + margin, top + high + 34 + 15 * lines.length, parts.join(""), title);
}

// A long line broken where words end (or anywhere between Chinese characters).
function wrapped(text, room) {
  const pen = document.createElement("canvas").getContext("2d"), lines = [""];
  pen.font = font(11);
  // what opens stays with what follows it, what closes with what it closes
  for (const part of text.match(/[“（]*(?:\p{Script=Han}|[^\s\p{Script=Han}，。；：（）“”]+)[，。；：）”]*|\s|./gu) ?? []) {
    if (pen.measureText(lines.at(-1) + part).width > room) lines.push("");
    if (lines.at(-1) || part.trim()) lines[lines.length - 1] += part;
  }
  return lines;
}

const used = lines => Math.min(lines.height, lines.longest * lines.row + 34);
