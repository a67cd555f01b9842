// Elements without a framework. Text goes in as text nodes alone, never as markup, so that HTML in what people typed or
// in what a server answered stays text.
//
//   h(tag, attrs?, ...children)     an HTML element; attrs: {class, on: {click: fn}, style: {name: value}, data: {…}, any
//                                   attribute; true = present, false/null/undefined = left out}; "value", "checked",
//                                   "disabled", "selected" are properties. children: nodes, texts, numbers, arrays
//   clear(node, ...children)        empties a node and puts children in
//   button(kind, heard, ...children)
//   icon(name)                      strokes on a 20 × 20 grid, in the colour of the text
//   letters(text)                   the characters as Python counts them (code points): offsets of answers count these
//   languageOf(text)                for the lang attribute, which decides the font

const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "open"]);
const SVG = "http://www.w3.org/2000/svg";
const PATHS = {
  sun: "M10 6.6a3.4 3.4 0 1 0 0 6.8a3.4 3.4 0 1 0 0-6.8 M10 2v1.6 M10 16.4V18 M2 10h1.6 M16.4 10H18 M4.3 4.3l1.2 1.2 M14.5 14.5l1.2 1.2 M4.3 15.7l1.2-1.2 M14.5 5.5l1.2-1.2",
  moon: "M15.8 12.3A6.6 6.6 0 0 1 7.7 4.2a6.6 6.6 0 1 0 8.1 8.1z",
  system: "M3 4.5h14v9H3z M7.5 16.5h5 M10 13.5v3",
  copy: "M7 7h9v10H7z M13 7V3H4v10h3",
  done: "M4 10.5l4 4 8-9",
  book: "M3 4.5h5.5a1.5 1.5 0 0 1 1.5 1.5v10a1.5 1.5 0 0 0-1.5-1.5H3z M17 4.5h-5.5A1.5 1.5 0 0 0 10 6v10a1.5 1.5 0 0 1 1.5-1.5H17z",
  look: "M8.5 3.5a5 5 0 1 0 0 10a5 5 0 1 0 0-10 M12.2 12.2L17 17",
  try: "M3 10h12 M11 5.5l4.5 4.5-4.5 4.5",
  stop: "M6 6h8v8H6z",
};

export function h(tag, attrs, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attrs ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [name, heard] of Object.entries(value)) node.addEventListener(name, heard);
    else if (key === "style") for (const [name, rule] of Object.entries(value)) node.style.setProperty(name, rule);
    else if (key === "data") Object.assign(node.dataset, value);
    else if (PROPERTIES.has(key)) node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  return put(node, children);
}

export function clear(node, ...children) {
  node.replaceChildren();
  return put(node, children);
}

export function button(kind, heard, ...children) {
  return h("button", { type: "button", class: kind, on: { click: heard } }, ...children);
}

export function icon(name) {
  const [svg, path] = ["svg", "path"].map(tag => document.createElementNS(SVG, tag));
  const about = { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true", focusable: "false" };
  for (const [key, value] of Object.entries(about)) svg.setAttribute(key, value);
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

export const letters = text => [...text];
export const languageOf = text => (/\p{Script=Han}/u.test(text) ? "zh-CN" : "en");

function put(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child instanceof Node ? child : String(child));
  }
  return node;
}
