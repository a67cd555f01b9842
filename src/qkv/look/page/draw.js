// Drawing that every view shares: sharp canvases, heat maps through ImageData, colours of the theme, and the SVG twins of
// what is drawn, for export. Draws nothing on its own; knows no model.
//
//   canvas(width, height) → {node, ctx (null where there is none), width, height, resize(w, h), clear()}
//                                                              in CSS pixels; sharp on every screen
//   heat(ctx, u8, rows, cols, x, y, w, h, colour, {gamma}?)    one byte a cell as the colour's opacity; gamma < 1 lifts
//                                                              faint cells (default 0.7)
//   signed(ctx, f4, rows, cols, x, y, w, h, {most}?)           numbers around 0: --cold below, --warm above, clear at 0;
//                                                              most = the value of full colour (default: the largest)
//   heatSvg(u8, rows, cols, x, y, w, h, colour, {gamma}?) → string       the twins: rectangles where cells are few,
//   signedSvg(f4, rows, cols, x, y, w, h, {most}?) → string              a picture inside the SVG where they are many
//   hue(head) → "#rrggbb"                                      the head's colour in this theme; 12, then again
//   colour(name) → string                                      a CSS variable of the theme: colour("ink"), colour("accent")
//   rgb(colour) → [r, g, b]
//   font(size?, weight?) → string                              for ctx.font
//   svgText(x, y, text, {size, weight, fill, anchor, rotate, mono}?) → string     escaped
//   svgRect(x, y, w, h, fill, {radius, opacity}?) · svgLine(x1, y1, x2, y2, stroke, {width, opacity}?) → string
//   svgPath(d, {fill, stroke, width, opacity}?) → string
//   svgOf(width, height, body, title?) → string                one standalone SVG on the theme's paper
//   escaped(text) → string

const HEADS = 12;
const FEW = 2500; // cells that are drawn as rectangles in an SVG

export function canvas(width, height) {
  const node = document.createElement("canvas");
  const ctx = node.getContext?.("2d") ?? null;
  const made = {
    node, ctx, width: 0, height: 0,
    resize(w, h) {
      const ratio = window.devicePixelRatio || 1;
      made.width = w;
      made.height = h;
      node.width = Math.max(1, Math.round(w * ratio));
      node.height = Math.max(1, Math.round(h * ratio));
      node.style.width = w + "px";
      node.style.height = h + "px";
      ctx?.setTransform(ratio, 0, 0, ratio, 0, 0);
      return made;
    },
    clear() { ctx?.clearRect(0, 0, made.width, made.height); return made; },
  };
  return made.resize(width, height);
}

export function heat(ctx, u8, rows, cols, x, y, w, h, paint, { gamma = 0.7 } = {}) {
  const [r, g, b] = rgb(paint), opacity = curve(gamma);
  laid(ctx, rows, cols, x, y, w, h, (out, at) => {
    out[4 * at] = r; out[4 * at + 1] = g; out[4 * at + 2] = b; out[4 * at + 3] = opacity[u8[at]];
  });
}

export function signed(ctx, f4, rows, cols, x, y, w, h, { most = largest(f4) } = {}) {
  const warm = rgb(colour("warm")), cold = rgb(colour("cold"));
  laid(ctx, rows, cols, x, y, w, h, (out, at) => {
    const [r, g, b] = f4[at] < 0 ? cold : warm;
    out[4 * at] = r; out[4 * at + 1] = g; out[4 * at + 2] = b;
    out[4 * at + 3] = 255 * Math.min(1, Math.abs(f4[at]) / most);
  });
}

export function heatSvg(u8, rows, cols, x, y, w, h, paint, { gamma = 0.7 } = {}) {
  const opacity = curve(gamma);
  if (rows * cols > FEW) return pictured(x, y, w, h, rows, cols, ctx => heat(ctx, u8, rows, cols, 0, 0, cols, rows, paint, { gamma }));
  return cells(rows, cols, x, y, w, h, at => [paint, opacity[u8[at]] / 255]);
}

export function signedSvg(f4, rows, cols, x, y, w, h, { most = largest(f4) } = {}) {
  if (rows * cols > FEW) return pictured(x, y, w, h, rows, cols, ctx => signed(ctx, f4, rows, cols, 0, 0, cols, rows, { most }));
  return cells(rows, cols, x, y, w, h, at => [colour(f4[at] < 0 ? "cold" : "warm"), Math.min(1, Math.abs(f4[at]) / most)]);
}

export const hue = head => colour("head-" + (((head % HEADS) + HEADS) % HEADS));

// The theme's colours are read once for each theme: getComputedStyle at every stroke would cost frames.
const palette = { theme: null, known: new Map() };
export function colour(name) {
  const theme = document.documentElement.dataset.theme;
  if (palette.theme !== theme) { palette.theme = theme; palette.known.clear(); }
  if (!palette.known.has(name)) {
    const value = getComputedStyle(document.documentElement).getPropertyValue("--" + name);
    palette.known.set(name, value.replace(/\s+/g, " ").trim());
  }
  return palette.known.get(name);
}

export function rgb(paint) {
  const hex = /^#?([0-9a-f]{6}|[0-9a-f]{3})$/i.exec(paint)?.[1];
  if (hex) return hex.length === 3 ? [...hex].map(c => parseInt(c + c, 16)) : [0, 2, 4].map(at => parseInt(hex.slice(at, at + 2), 16));
  return (paint.match(/[\d.]+/g) ?? [0, 0, 0]).slice(0, 3).map(Number);
}

export const font = (size = 13, weight = 400) => `${weight} ${size}px ${colour("sans")}`;

export function escaped(text) {
  return String(text).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`);
}

export function svgText(x, y, text, { size = 13, weight = 400, fill = colour("ink"), anchor = "start", rotate, mono } = {}) {
  const turned = rotate ? ` transform="rotate(${rotate} ${near(x)} ${near(y)})"` : "";
  const family = mono ? ` font-family="${escaped(colour("mono"))}"` : "";
  return `<text x="${near(x)}" y="${near(y)}" font-size="${size}" font-weight="${weight}" fill="${fill}" ` +
    `text-anchor="${anchor}"${family}${turned} xml:space="preserve">${escaped(text)}</text>`;
}

export function svgRect(x, y, w, h, fill, { radius = 0, opacity = 1 } = {}) {
  return `<rect x="${near(x)}" y="${near(y)}" width="${near(w)}" height="${near(h)}" fill="${fill}"` +
    `${radius ? ` rx="${radius}"` : ""}${opacity < 1 ? ` fill-opacity="${near(opacity)}"` : ""}/>`;
}

export function svgLine(x1, y1, x2, y2, stroke, { width = 1, opacity = 1 } = {}) {
  return `<line x1="${near(x1)}" y1="${near(y1)}" x2="${near(x2)}" y2="${near(y2)}" stroke="${stroke}" ` +
    `stroke-width="${near(width)}"${opacity < 1 ? ` stroke-opacity="${near(opacity)}"` : ""}/>`;
}

export function svgPath(d, { fill = "none", stroke = "none", width = 1, opacity = 1 } = {}) {
  return `<path d="${d}" fill="${fill}" stroke="${stroke}" stroke-width="${width}"${opacity < 1 ? ` opacity="${near(opacity)}"` : ""}/>`;
}

export function svgOf(width, height, body, title = "") {
  const w = Math.ceil(width), h = Math.ceil(height);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" ` +
    `font-family="${escaped(colour("sans"))}">` + (title ? `<title>${escaped(title)}</title>` : "") +
    `<rect width="${w}" height="${h}" fill="${colour("paper")}"/>${body}</svg>`;
}

const near = value => Math.round(value * 1000) / 1000;

const curves = new Map();
function curve(gamma) {
  if (!curves.has(gamma)) curves.set(gamma, Uint8Array.from({ length: 256 }, (_, byte) => Math.round(255 * (byte / 255) ** gamma)));
  return curves.get(gamma);
}

function largest(values) {
  let most = 0;
  for (const value of values) most = Math.max(most, Math.abs(value));
  return most || 1;
}

let plate = null; // one hidden canvas, at the size of the numbers
function laid(ctx, rows, cols, x, y, w, h, paint) {
  if (!ctx || !rows || !cols) return;
  plate ??= document.createElement("canvas");
  if (plate.width < cols || plate.height < rows) {
    plate.width = Math.max(plate.width, cols);
    plate.height = Math.max(plate.height, rows);
  }
  const under = plate.getContext("2d"), image = under.createImageData(cols, rows);
  for (let at = 0; at < rows * cols; at += 1) paint(image.data, at);
  under.putImageData(image, 0, 0);
  const before = ctx.imageSmoothingEnabled;
  const ratio = window.devicePixelRatio || 1;
  ctx.imageSmoothingEnabled = w * ratio < cols || h * ratio < rows; // shrunk, cells are averaged; grown, they stay sharp
  ctx.drawImage(plate, 0, 0, cols, rows, x, y, w, h);
  ctx.imageSmoothingEnabled = before;
}

function cells(rows, cols, x, y, w, h, of) {
  const parts = [], cw = w / cols, ch = h / rows;
  for (let at = 0; at < rows * cols; at += 1) {
    const [fill, opacity] = of(at);
    if (opacity > 0.004) parts.push(svgRect(x + (at % cols) * cw, y + Math.floor(at / cols) * ch, cw, ch, fill, { opacity }));
  }
  return `<g shape-rendering="crispEdges">${parts.join("")}</g>`;
}

function pictured(x, y, w, h, rows, cols, paint) {
  const node = document.createElement("canvas");
  node.width = cols;
  node.height = rows;
  const ctx = node.getContext("2d");
  if (!ctx) return "";
  paint(ctx);
  return `<image x="${near(x)}" y="${near(y)}" width="${near(w)}" height="${near(h)}" preserveAspectRatio="none" ` +
    `style="image-rendering:pixelated" href="${node.toDataURL("image/png")}"/>`;
}
