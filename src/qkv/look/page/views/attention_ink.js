// The colours of the attention view, read from the page's style sheet once a theme, as numbers that a canvas wants.
// Draws nothing.

import { colour, hue, rgb } from "look/draw.js";

const NAMES = ["paper", "panel", "raised", "ink", "soft", "faint", "rule", "hot", "warm", "cold", "accent"];
let inks = null;
let theme = null;

// {paper, panel, …: CSS colours, head(n): CSS colour, table(n): 256 packed pixels, dull: the same in grey, signed}
export function ink() {
  const now = document.documentElement.dataset.theme;
  if (inks && theme === now) return inks;
  theme = now;
  inks = { font: colour("sans"), dark: now === "dark" };
  for (const name of NAMES) inks[name] = colour(name);
  const heads = [], tables = [];
  inks.head = head => heads[head] ??= hue(head);
  inks.table = head => tables[head] ??= tableOf(inks.head(head));
  inks.dull = tableOf(inks.soft);
  inks.signed = signedTable(inks.cold, inks.warm);
  return inks;
}

// How strong a weight is drawn: weak ones are lifted, so that they can be told from nothing.
export const shade = weight => Math.pow(weight, 0.62);

const pack = ([red, green, blue], alpha) => ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;

function tableOf(colour) {
  const parts = rgb(colour), table = new Uint32Array(256);
  for (let byte = 0; byte < 256; byte++) table[byte] = pack(parts, Math.round(255 * shade(byte / 255)));
  return table;
}

// 0 … 127 cold and fading, 128 nothing, … 255 warm: for numbers with a sign.
function signedTable(cold, warm) {
  const below = rgb(cold), above = rgb(warm), table = new Uint32Array(256);
  for (let byte = 0; byte < 256; byte++) {
    const far = Math.min(1, Math.abs(byte - 128) / 127);
    table[byte] = pack(byte < 128 ? below : above, Math.round(255 * Math.pow(far, 0.8)));
  }
  return table;
}

// A canvas of CSS size, sharp on this screen; null where the browser has none. Keeps the element, resizes in place.
export function fit(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const wide = Math.max(1, Math.round(width * ratio)), high = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const pen = canvas.getContext("2d");
  if (pen) pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

// Bytes as a picture of one pixel a cell, through a table of packed pixels. `tableAt(column)`, where given, chooses.
export function picture(bytes, rows, columns, table, tableAt = null) {
  const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
  const image = new ImageData(columns, rows), pixels = new Uint32Array(image.data.buffer);
  if (tableAt) {
    const tables = Array.from({ length: columns }, (_, column) => tableAt(column));
    for (let i = 0, at = 0; i < rows; i++) for (let j = 0; j < columns; j++, at++) pixels[at] = tables[j][bytes[at]];
  } else for (let at = 0; at < pixels.length; at++) pixels[at] = table[bytes[at]];
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// Small dots under a label: a word that the vocabulary lacks.
export function dotted(pen, x, y, width) {
  for (let at = 0; at + 1.5 <= width; at += 4) pen.fillRect(x + at, y, 2, 1.5);
}

// The width of a label in pixels, remembered: measuring is dear while a pointer moves.
const widths = new Map();
export function widthOf(pen, text) {
  const name = pen.font + "\u0000" + text;
  let width = widths.get(name);
  if (width === undefined) {
    if (widths.size > 20000) widths.clear();
    widths.set(name, width = pen.measureText(text).width);
  }
  return width;
}

export function shorten(pen, text, room) {
  if (widthOf(pen, text) <= room) return text;
  const characters = [...text];
  while (characters.length > 1 && widthOf(pen, characters.join("") + "…") > room) characters.pop();
  return characters.join("") + "…";
}
