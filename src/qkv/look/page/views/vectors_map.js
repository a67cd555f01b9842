// A map of words on a canvas: dots, and as many names as fit without lying on each other, the named and the frequent first;
// zoom, pan, the word under the pointer with its true neighbours. Gets its reply ready made; asks nothing.
//
//   wordMap(app, hear) → { root, fill(reply), draw(), mark(words), svg(x, y, w) → {text, height}, numbers() }
//       hear.chosen(word)      a word was pressed
//       mark(words)            a Set of words that are shown first and strongly

import { frame, h } from "look/dom.js";
import { canvas, colour, font, hue, svgLine, svgPath, svgRect, svgText } from "look/draw.js";

const EDGE = 46, SIZE = 13, NEAR = 16, MOST = 24, MOVE = 600;
const CHINESE = /[\u3400-\u9fff]/;

export function wordMap(app, hear) {
  const { t } = app;
  const plate = canvas(10, 10);
  const button = (text, key, heard) => h("button", { type: "button", class: "tool", data: { key }, on: { click: heard } }, text);
  const tools = [button("+", "closer", () => zoomed(1.5)), button("−", "farther", () => zoomed(1 / 1.5)),
    button("⤢", "whole", () => whole())];
  const box = h("div", { class: "map-box", tabindex: "0", role: "application" }, plate.node, h("div", { class: "zoom" }, tools));
  const root = h("figure", { class: "figure word-map" }, box);
  let reply = null, words = [], spots = [], from = null, began = 0, zoom = 1, pan = [0, 0], hot = -1, marked = new Set(), bounds = null,
    labels = [], drag = null;
  const widths = new Map();

  function fill(found) {
    const old = new Map(words.map((word, at) => [word, spots[at]]));
    reply = found;
    words = reply.head.words;
    const { data } = reply.arrays.points;
    spots = words.map((_, at) => [data[2 * at], data[2 * at + 1]]);
    // an axis has no sign: a map that is drawn anew keeps its left and right
    for (const axis of [0, 1]) {
      const agree = words.reduce((sum, word, at) => sum + (old.has(word) ? old.get(word)[axis] * spots[at][axis] : 0), 0);
      if (agree < 0) for (const spot of spots) spot[axis] *= -1;
    }
    const before = bounds;
    bounds = [0, 1].map(axis => { const all = spots.map(spot => spot[axis]); return [Math.min(...all), Math.max(...all)]; });
    from = old.size && before ? { spots: words.map((word, at) => old.get(word) ?? spots[at]), bounds: before } : null;
    began = performance.now();
    hot = -1;
    box.setAttribute("aria-label", t("map.label", { n: words.length }));
    moving();
  }

  function mark(set) { marked = set; draw(); }

  function moving() {
    const done = !from || performance.now() - began >= MOVE || matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (done) from = null;
    draw();
    if (!done) requestAnimationFrame(moving);
  }

  const eased = () => { const part = from ? Math.min(1, (performance.now() - began) / MOVE) : 1; return 1 - (1 - part) ** 3; };
  function placer(width, height) {
    const part = eased();
    const box = bounds.map((range, axis) => range.map((end, side) => (from ? from.bounds[axis][side] * (1 - part) + end * part : end)));
    const scale = (value, [low, high], begin, end) => begin + (high > low ? (value - low) / (high - low) : 0.5) * (end - begin);
    return at => {
      const [x, y] = from ? spots[at].map((value, axis) => from.spots[at][axis] * (1 - part) + value * part) : spots[at];
      return [scale(x, box[0], EDGE, width - EDGE) * zoom + pan[0], scale(y, box[1], height - EDGE / 2, EDGE / 2) * zoom + pan[1]];
    };
  }

  const widthOf = word => {
    if (!widths.has(word)) {
      if (plate.ctx) plate.ctx.font = font(SIZE);
      widths.set(word, plate.ctx ? plate.ctx.measureText(word).width : [...word].length * 8);
    }
    return widths.get(word);
  };

  // Which words are written: greedily, on a grid of the boxes that are taken.
  function placed(width, height) {
    const place = placer(width, height), taken = new Map(), found = [], dots = [];
    const first = hot >= 0 ? [hot, ...neighbours(hot).map(one => one.at)] : [], strong = new Set(first);
    words.forEach((word, at) => { if (marked.has(word) && !strong.has(at)) { first.push(at); strong.add(at); } });
    const order = [...first, ...words.keys()], seen = new Set();
    for (const at of order) {
      if (seen.has(at)) continue;
      seen.add(at);
      const [x, y] = place(at);
      if (x < -60 || x > width + 60 || y < -20 || y > height + 20) continue;
      const isStrong = strong.has(at), half = widthOf(words[at]) / 2 * (isStrong ? 1.1 : 1) + 4, tall = SIZE / 2 + 3;
      const cells = [];
      let free = true;
      for (let cx = Math.floor((x - half) / 40); cx <= Math.floor((x + half) / 40); cx += 1) {
        for (let cy = Math.floor((y - tall) / 20); cy <= Math.floor((y + tall) / 20); cy += 1) {
          const key = cx * 4096 + cy, there = taken.get(key);
          cells.push(key);
          if (there?.some(other => Math.abs(other.x - x) < other.half + half && Math.abs(other.y - y) < other.tall + tall)) free = false;
        }
      }
      const one = { at, x, y, half, tall, strong: isStrong };
      if (!free) { dots.push(one); continue; }
      for (const key of cells) taken.has(key) ? taken.get(key).push(one) : taken.set(key, [one]);
      found.push(one);
    }
    return { found, dots, place };
  }

  function neighbours(at) {
    const { nearest, nearest_cosine: cosine } = reply.arrays, k = nearest.shape[1];
    return Array.from({ length: k }, (_, i) => ({ at: nearest.data[at * k + i], cosine: cosine.data[at * k + i] }));
  }

  const inked = word => (CHINESE.test(word) ? hue(1) : /\p{L}/u.test(word) ? hue(0) : colour("faint"));

  const draw = frame(() => {
    if (!reply) return;
    const width = box.clientWidth || 640, height = box.clientHeight || 600;
    if (plate.width !== width || plate.height !== height) plate.resize(width, height);
    const { ctx } = plate;
    if (!ctx) { root.replaceChildren(app.refusal({ code: "no_canvas", about: {} }), listed()); return; }
    plate.clear();
    const { found, dots, place } = placed(width, height);
    labels = found;
    const dim = hot >= 0;
    for (const { at, x, y } of dots) {
      ctx.globalAlpha = dim ? 0.15 : 0.4;
      ctx.fillStyle = inked(words[at]);
      ctx.beginPath();
      ctx.arc(x, y, 2, 0, 7);
      ctx.fill();
    }
    if (dim) {
      const [x, y] = place(hot);
      ctx.strokeStyle = colour("hot");
      for (const { at, cosine } of neighbours(hot)) {
        const [tx, ty] = place(at);
        ctx.globalAlpha = 0.2 + 0.7 * Math.max(0, cosine);
        ctx.lineWidth = 1.3;
        ctx.beginPath();
        ctx.moveTo(x, y);
        ctx.lineTo(tx, ty);
        ctx.stroke();
      }
    }
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.lineJoin = "round";
    ctx.strokeStyle = colour("panel");
    for (const { at, x, y, strong } of [...found].reverse()) {
      ctx.font = font(strong ? SIZE + 1 : SIZE, strong ? 650 : 400);
      ctx.globalAlpha = strong ? 1 : dim ? 0.25 : 0.86;
      ctx.lineWidth = 3.5;
      ctx.strokeText(words[at], x, y);
      ctx.fillStyle = at === hot ? colour("hot") : strong && marked.has(words[at]) ? colour("ink") : inked(words[at]);
      ctx.fillText(words[at], x, y);
    }
    if (dim) {
      ctx.globalAlpha = 1;
      ctx.font = font(11);
      const written = new Set(found.map(one => one.at));
      for (const { at, cosine } of neighbours(hot).filter(one => written.has(one.at))) {
        const [x, y] = place(at);
        ctx.fillStyle = colour("soft");
        ctx.lineWidth = 3;
        ctx.strokeText(cosine.toFixed(2), x, y + 14);
        ctx.fillText(cosine.toFixed(2), x, y + 14);
      }
    }
    ctx.globalAlpha = 1;
  });

  function listed() {
    return h("table", { class: "table" },
      words.slice(0, 40).map((word, at) => h("tr", {}, h("td", {}, word), h("td", { class: "num" }, spots[at][0].toFixed(3)),
        h("td", { class: "num" }, spots[at][1].toFixed(3)))));
  }

  // The pointer: over a name, else near a dot.
  function under(event) {
    const { left, top, width, height } = box.getBoundingClientRect(), x = event.clientX - left, y = event.clientY - top;
    const name = labels.find(one => Math.abs(one.x - x) < one.half && Math.abs(one.y - y) < one.tall);
    if (name) return name.at;
    const place = placer(width, height);
    let best = -1, nearest = NEAR;
    for (const at of words.keys()) {
      const [px, py] = place(at), far = Math.hypot(px - x, py - y);
      if (far < nearest) { nearest = far; best = at; }
    }
    return best;
  }

  function zoomed(by, x = box.clientWidth / 2, y = box.clientHeight / 2) {
    const next = Math.min(MOST, Math.max(1, zoom * by)), real = next / zoom;
    pan = next === 1 ? [0, 0] : [x - (x - pan[0]) * real, y - (y - pan[1]) * real];
    zoom = next;
    draw();
  }
  function whole() { zoom = 1; pan = [0, 0]; draw(); }

  box.addEventListener("wheel", event => {
    if (!event.ctrlKey && zoom === 1 && event.deltaY > 0) return; // the page scrolls on
    event.preventDefault();
    const { left, top } = box.getBoundingClientRect();
    zoomed(Math.exp(-event.deltaY / 400), event.clientX - left, event.clientY - top);
  }, { passive: false });
  box.addEventListener("pointerdown", event => {
    if (event.target.closest("button")) return;
    drag = { x: event.clientX, y: event.clientY, pan: [...pan], far: false };
    box.setPointerCapture(event.pointerId);
  });
  box.addEventListener("pointermove", event => {
    if (drag) {
      const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
      drag.far ||= Math.hypot(dx, dy) > 4;
      if (drag.far) { pan = [drag.pan[0] + dx, drag.pan[1] + dy]; box.classList.add("held"); draw(); }
      return;
    }
    if (!reply) return;
    const at = under(event);
    box.classList.toggle("over", at >= 0);
    if (at !== hot) { hot = at; draw(); }
  });
  box.addEventListener("pointerup", event => {
    const pressed = drag && !drag.far && reply ? under(event) : -1;
    drag = null;
    box.classList.remove("held");
    if (pressed >= 0) hear.chosen(words[pressed]);
  });
  box.addEventListener("pointerleave", () => { if (hot >= 0 && !drag) { hot = -1; draw(); } });
  box.addEventListener("dblclick", () => whole());
  box.addEventListener("keydown", event => {
    const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    if (event.key === "+" || event.key === "=") zoomed(1.4);
    else if (event.key === "-") zoomed(1 / 1.4);
    else if (event.key === "0") whole();
    else if (event.key === "n" || event.key === "b") stepped(event.key === "n" ? 1 : -1);
    else if (event.key === "Enter" && hot >= 0) hear.chosen(words[hot]);
    else if (step) { pan = [pan[0] + step[0], pan[1] + step[1]]; draw(); } else return;
    event.preventDefault();
    event.stopPropagation();
  });

  // From one written word to the next, from left to right.
  function stepped(by) {
    const order = labels.filter(one => one.x > 0 && one.x < plate.width && one.y > 0 && one.y < plate.height).sort((a, b) => a.x - b.x || a.y - b.y);
    if (!order.length) return;
    const from = order.findIndex(one => one.at === hot);
    hot = order[(from + by + order.length) % order.length].at;
    draw();
  }

  new ResizeObserver(() => draw()).observe(box);

  function svg(x0, y0, width) {
    if (!reply) return { text: "", height: 0 };
    const seen = [box.clientWidth || width, box.clientHeight || width], part = width / seen[0], height = seen[1] * part;
    const { found, dots, place } = placed(...seen), inside = ({ x, y }) => x > 0 && y > 0 && x < seen[0] && y < seen[1];
    const parts = [svgRect(x0, y0, width, height, colour("panel"), { radius: 14 })], X = x => x0 + x * part, Y = y => y0 + y * part;
    for (const one of dots.filter(inside)) parts.push(svgPath(`M${X(one.x) - 2} ${Y(one.y)}a2 2 0 1 0 4 0a2 2 0 1 0 -4 0`,
      { fill: inked(words[one.at]), opacity: 0.4 }));
    if (hot >= 0) for (const { at, cosine } of neighbours(hot)) parts.push(svgLine(X(place(hot)[0]), Y(place(hot)[1]), X(place(at)[0]),
      Y(place(at)[1]), colour("hot"), { width: 1.3, opacity: 0.2 + 0.7 * Math.max(0, cosine) }));
    for (const one of found.filter(inside)) parts.push(svgText(X(one.x), Y(one.y) + 4, words[one.at],
      {
        size: (one.strong ? SIZE + 1 : SIZE) * part, weight: one.strong ? 650 : 400, anchor: "middle",
        fill: one.strong ? colour("ink") : inked(words[one.at])
      }));
    return { text: parts.join(""), height };
  }

  const numbers = () => reply && ({
    words, points: [...reply.arrays.points.data], zoom,
    labels: labels.map(({ at, x, y, half, tall }) => ({ word: words[at], x, y, half, tall }))
  });

  return { root, fill, draw, mark, svg, numbers, worded: () => tools.forEach(one => one.setAttribute("aria-label", t(one.dataset.key))) };
}
