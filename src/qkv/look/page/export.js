// What leaves the page: the picture on screen as SVG or PNG, a link, the whole page as one offline file. Everything is
// made in the browser; nothing is sent anywhere.
//
//   saveSvg(svg, name) → Promise<file name>       savePng(svg, name, scale = 2) → Promise<file name>
//   copyLink() → Promise<boolean>                 savePage(room, name) → Promise<file name>
//   pictureOf(root, {without: nodes, margin}?) → string   an SVG of elements as the browser laid them out

import { escaped, svgOf, svgRect } from "look/draw.js";
import { hash } from "look/state.js";
import { kept, recorded, Refusal } from "look/wire.js";

export async function saveSvg(svg, name) {
  return downloaded(new Blob([svg], { type: "image/svg+xml" }), name + ".svg");
}

export async function savePng(svg, name, scale = 2) {
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode().catch(() => { throw new Refusal("too_large"); });
    const node = document.createElement("canvas");
    node.width = image.naturalWidth * scale;
    node.height = image.naturalHeight * scale;
    const ctx = node.getContext("2d");
    if (!ctx) throw new Refusal("no_canvas");
    ctx.drawImage(image, 0, 0, node.width, node.height);
    const blob = await new Promise(done => node.toBlob(done, "image/png"));
    if (!blob) throw new Refusal("too_large");
    return await downloaded(blob, name + ".png");
  } finally {
    URL.revokeObjectURL(address);
  }
}

export async function copyLink() {
  const link = location.href.replace(/#.*$/s, "") + hash();
  try { history.replaceState(null, "", hash()); } catch { /* an address of its own is not given to every page */ }
  try {
    await navigator.clipboard.writeText(link);
    return true;
  } catch {
    return false;
  }
}

const EMPTY = /(<script type="application\/json" id="recorded">)[^<]*(<\/script>)/;

export async function savePage(room, name) {
  // where a model lies on this machine is nobody's business
  const subjects = room.subjects.map(one => ({ ...one, name: one.title }));
  const record = { room: { ...room, subjects, saved: true }, replies: kept(), hash: hash({ whole: true }) };
  const spelt = JSON.stringify(record).replace(/</g, "\\u003c"); // "</script>" in a text would end the element
  const page = recorded() ? "<!doctype html>\n" + original : await template();
  if (!EMPTY.test(page)) throw new Refusal("fault", "The server gave no page to save into.");
  const whole = page.replace(EMPTY, (_, open, close) => open + spelt + close);
  return downloaded(new Blob([whole], { type: "text/html" }), name + ".html");
}

const original = recorded() ? document.documentElement.outerHTML : ""; // before the shell is in it

async function template() {
  const answer = await fetch("page.html", { credentials: "same-origin" }).catch(() => null);
  if (!answer) throw new Refusal("server_gone");
  if (!answer.ok) throw new Refusal("fault", `page.html: ${answer.status}`);
  return answer.text();
}

async function downloaded(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 30000);
  return name;
}

// What is on screen as one SVG: backgrounds, texts line by line, pictures; read off the elements as the browser laid
// them out. For views made of words and bars; a view that draws on a canvas had better draw its own.
export function pictureOf(root, { without = [], margin = 28 } = {}) {
  const place = root.getBoundingClientRect(), parts = [];
  const x0 = place.left - margin, y0 = place.top - margin;
  let right = 0, bottom = 0;
  const reach = box => { right = Math.max(right, box.right - x0); bottom = Math.max(bottom, box.bottom - y0); };
  const walk = node => {
    if ([without].flat().includes(node)) return;
    if (node.nodeType === Node.TEXT_NODE) {
      for (const line of linesOf(node)) { reach(line); parts.push(written(node.parentElement, line, x0, y0)); }
      return;
    }
    if (node.nodeType !== Node.ELEMENT_NODE) return;
    const style = getComputedStyle(node), box = node.getBoundingClientRect();
    if (style.display === "none" || style.visibility === "hidden" || Number(style.opacity) === 0) return;
    const ground = style.backgroundColor;
    if (box.width > 0 && box.height > 0 && !/^rgba?\(.*[, /] ?0\)$|transparent/.test(ground)) {
      reach(box);
      const shape = { radius: parseFloat(style.borderTopLeftRadius) || 0, opacity: alpha(ground) };
      parts.push(svgRect(box.left - x0, box.top - y0, box.width, box.height, hex(ground), shape));
    }
    const under = /(rgba?\([^)]*\)|color\([^)]*\)) 0px -?(\d+)px 0px 0px( inset)?/.exec(style.boxShadow);
    if (under && box.height) { // a line below, drawn as a shadow
      const inset = under[3] ? -Number(under[2]) : 0;
      parts.push(svgRect(box.left - x0, box.bottom - y0 + inset, box.width, Number(under[2]), hex(under[1])));
    }
    if (node instanceof HTMLCanvasElement) {
      reach(box);
      parts.push(`<image x="${box.left - x0}" y="${box.top - y0}" width="${box.width}" height="${box.height}" ` +
        `href="${node.toDataURL("image/png")}"/>`);
      return;
    }
    for (const child of node.childNodes) walk(child);
  };
  walk(root);
  return svgOf(right + margin, bottom + margin, parts.join(""), document.title);
}

function alpha(paint) {
  const parts = paint.match(/[\d.]+/g) ?? [];
  return Number(parts[3] ?? 1);
}

// color-mix() comes back as color(srgb r g b / a), which not every reader of SVG knows.
function hex(paint) {
  const parts = (paint.match(/[\d.]+/g) ?? ["0", "0", "0"]).slice(0, 3).map(Number);
  const scale = /^color/.test(paint) ? 255 : 1;
  return "#" + parts.map(part => Math.round(part * scale).toString(16).padStart(2, "0")).join("");
}

function linesOf(node) {
  const range = document.createRange(), lines = [];
  const text = node.data;
  for (let at = 0; at < text.length;) {
    const size = text.codePointAt(at) > 0xffff ? 2 : 1;
    range.setStart(node, at);
    range.setEnd(node, at + size);
    const box = range.getClientRects()[0];
    if (box && box.width > 0) {
      const last = lines.at(-1), { left, right, top, bottom } = box;
      if (last && Math.abs(last.top - top) < 3) Object.assign(last, { text: last.text + text.slice(at, at + size), right });
      else lines.push({ text: text.slice(at, at + size), left, right, top, bottom });
    }
    at += size;
  }
  return lines.filter(line => line.text.trim());
}

function written(element, line, x0, y0) {
  const style = getComputedStyle(element), size = parseFloat(style.fontSize);
  const middle = (line.top + line.bottom) / 2 - y0;
  let opacity = 1;
  for (let up = element; up; up = up.parentElement) opacity *= Number(getComputedStyle(up).opacity);
  return `<text x="${line.left - x0}" y="${middle + size * 0.35}" font-size="${size}" font-weight="${style.fontWeight}" ` +
    `font-family="${escaped(style.fontFamily)}" fill="${hex(style.color)}" opacity="${opacity}" ` +
    `textLength="${line.right - line.left}" xml:space="preserve">${escaped(line.text)}</text>`;
}
