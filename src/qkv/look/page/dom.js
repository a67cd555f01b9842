// Elements without a framework: small makers for HTML and SVG nodes. Text goes in as text nodes alone, never as markup,
// so that HTML in what people typed stays text. No state, no drawing.
//
//   h(tag, attrs?, ...children)   an HTML element;  attrs: {class, on: {click: fn}, style: {name: value}, data: {…},
//                                 any attribute; true = present (aria-*: "true"), false/null/undefined = left out}
//                                 "value", "checked", "disabled", "selected" are set as properties.
//                                 children: nodes, texts, numbers, arrays of them; null, undefined, false are left out
//   s(tag, attrs?, ...children)   the same in SVG
//   press(kind, heard, ...children)   a button of class `kind` that calls heard() on a click
//   clear(node, ...children)      empties a node and puts children in
//   put(node, ...children)        appends children, as h does
//   redrawn(node, ...children)    clear(), and what had the focus inside has it again (the one at the same place)
//   sliced(text, start, end?)     characters of a text counted as Python counts them (code points, not UTF-16 units)
//   clip(text, most)              a text cut for show alone, with …
//   debounced(fn, ms)             fn after ms of quiet; .now() at once if waiting; .drop() forgets
//   frame(fn)                     fn at the next frame, once, with the latest arguments

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "open", "htmlFor"]);

export function h(tag, attrs, ...children) {
  return dress(document.createElement(tag), attrs, children);
}

export function s(tag, attrs, ...children) {
  return dress(document.createElementNS(SVG, tag), attrs, children);
}

export function press(kind, heard, ...children) {
  return h("button", { type: "button", class: kind, on: { click: () => heard() } }, ...children);
}

export function put(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

export function clear(node, ...children) {
  node.replaceChildren();
  return put(node, ...children);
}

export function redrawn(node, ...children) {
  const places = () => [...node.querySelectorAll("button, select, summary, input, a[href]")];
  const at = places().indexOf(document.activeElement);
  clear(node, ...children);
  if (at >= 0) places()[at]?.focus({ preventScroll: true });
  return node;
}

export const sliced = (text, start, end) => [...text].slice(start, end).join("");

export function clip(text, most) {
  const characters = [...text];
  return characters.length > most ? characters.slice(0, most - 1).join("") + "…" : text;
}

export function debounced(fn, ms) {
  let timer = 0, given = [];
  const run = () => { timer = 0; fn(...given); };
  const later = (...args) => { given = args; clearTimeout(timer); timer = setTimeout(run, ms); };
  later.now = () => { if (timer) { clearTimeout(timer); run(); } };
  later.drop = () => { clearTimeout(timer); timer = 0; };
  return later;
}

export function frame(fn) {
  let waiting = 0, given = [];
  return (...args) => {
    given = args;
    if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; fn(...given); });
  };
}

function dress(node, attrs, children) {
  for (const [key, value] of Object.entries(attrs ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [name, heard] of Object.entries(value)) node.addEventListener(name, heard);
    else if (key === "style") styled(node, value);
    else if (key === "data") Object.assign(node.dataset, value);
    else if (PROPERTIES.has(key) && key in node) node[key] = value;
    else node.setAttribute(key, value !== true ? value : key.startsWith("aria-") ? "true" : "");
  }
  return put(node, ...children);
}

// Through the style object: a page whose policy forbids style attributes allows this.
function styled(node, rules) {
  for (const [name, value] of Object.entries(rules)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.style[name] = value;
  }
}
