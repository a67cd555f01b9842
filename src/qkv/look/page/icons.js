// The page's icons, drawn for it: one path table on a 20 × 20 grid, strokes alone, in the colour of the text.
//
//   icon(name) → SVGElement

import { s } from "look/dom.js";

const DOT = (x, y, r = 1.4) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;

const PATHS = {
  attention: `${DOT(3.5, 5)} ${DOT(3.5, 15)} ${DOT(16.5, 5)} ${DOT(16.5, 10)} ${DOT(16.5, 15)} M5 5.2C10 6 10 9.6 15 10 M5 14.8C10 14 10 10.6 15 10.2 M5 5h10`,
  fill: "M2.5 14.5h3 M14.5 14.5h3 M7.5 6.5h5v8h-5z M2.5 10.5h3 M14.5 10.5h3",
  next: "M2.5 6.5h8 M2.5 13.5h5 M11.5 13.5h5.5 M14 10.5l3 3-3 3",
  meanings: `${DOT(10, 10, 1.7)} ${DOT(4, 4.5)} ${DOT(15.5, 3.8)} ${DOT(16.5, 13)} ${DOT(5.5, 16)} M8.7 8.8L5.1 5.5 M11.1 8.7L14.6 4.9 M11.6 10.7L15.2 12.4 M9 11.4L6.4 14.9`,
  positions: "M2 10c1.3-6.5 2.7-6.5 4 0s2.7 6.5 4 0 2.7-6.5 4 0 2.7 6.5 4 0",
  translation: "M2.5 5.5h9 M2.5 14.5h15 M4 5.7L6.5 14.3 M7 5.7L12.5 14.3 M10 5.7L4.2 14.3",
  vectors: "M4 16L15.5 4.5 M11.5 4h4.5v4.5 M4 16L9 6 M4 16l11-3.4 M2.8 17.2L4 16",
  tasks: "M3 5.2l1.6 1.6L7.4 4 M3 11.2l1.6 1.6L7.4 10 M10.5 5.5h7 M10.5 11.5h7 M3.2 17h14.3",
  recurrence: "M4.5 10a5.5 5.5 0 1 1 2.4 4.5 M6.6 17.4l.2-3 3 .3 M1.5 10h1.4 M14 10h-4",
  sun: "M10 6.6a3.4 3.4 0 1 0 0 6.8a3.4 3.4 0 1 0 0-6.8 M10 2v1.6 M10 16.4V18 M2 10h1.6 M16.4 10H18 M4.3 4.3l1.2 1.2 M14.5 14.5l1.2 1.2 M4.3 15.7l1.2-1.2 M14.5 5.5l1.2-1.2",
  moon: "M15.8 12.3A6.6 6.6 0 0 1 7.7 4.2a6.6 6.6 0 1 0 8.1 8.1z",
  system: "M3 4.5h14v9H3z M7.5 16.5h5 M10 13.5v3",
  share: "M10 3v9 M6.5 6L10 2.8 13.5 6 M4 10.5v6h12v-6",
  plus: "M10 4.5v11 M4.5 10h11",
  cross: "M5 5l10 10 M15 5L5 15",
  menu: "M3 5.5h14 M3 10h14 M3 14.5h14",
  list: "M3 5h.01 M3 10h.01 M3 15h.01 M6.5 5H17 M6.5 10H17 M6.5 15H17",
  help: "M7.3 7.4a2.8 2.8 0 1 1 4 2.6c-.9.4-1.3 1-1.3 2.1 M10 15.2h.01",
  down: "M5.5 8l4.5 4.5L14.5 8",
};

export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true", focusable: "false" }, s("path", { d: PATHS[name] }));
}
