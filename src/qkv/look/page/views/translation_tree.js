// The beam as a tree: every beginning that lived, a column a step. The chosen translation runs straight along the top;
// what branched off lies below, and lanes are used again once a branch has died. Draws SVG, asks nothing.
//
//   laidOut(nodes, path) → {lane: [...], lanes, onPath: Set}
//   tree(app, heard) → {root, draw(reply, path, step, node, width), part() → <svg>}     heard(node) when one is clicked

import { clear, clip, h, s } from "look/dom.js";
import { colour } from "look/draw.js";
import { picture } from "look/views/translation_alignment.js";
import { percent, shownToken, widthOf } from "look/views/translation_words.js";

const scored = hypothesis => hypothesis.score.toFixed(2).replace("-", "−");
const ROW = 30, SIZE = 14, LEFT = 16;

export function laidOut(nodes, path) {
  const children = nodes.map(() => []), reach = nodes.map((_, at) => nodes[at].log_probability);
  for (let at = nodes.length - 1; at >= 1; at -= 1) children[nodes[at].parent].push(at);
  const deepest = nodes.map(one => one.length);
  for (const at of nodes.map((_, place) => place).sort((a, b) => nodes[b].length - nodes[a].length)) {
    const up = nodes[at].parent;
    if (up >= 0) deepest[up] = Math.max(deepest[up], deepest[at]);
  }
  const onPath = new Set(path), lane = new Array(nodes.length).fill(0), taken = []; // of a lane: [[from, to], …]
  const better = (a, b) => onPath.has(b) - onPath.has(a) || deepest[b] - deepest[a] || reach[b] - reach[a];
  const waiting = [[0, 0]]; // a node to begin a lane with, and the lane it branched off from
  while (waiting.length) {
    const [start, from] = waiting.shift(), chain = [start];
    while (children[chain.at(-1)].length) chain.push([...children[chain.at(-1)]].sort(better)[0]);
    const span = [nodes[start].length - 1, nodes[chain.at(-1)].length + 0.6];
    let mine = start === 0 ? 0 : from + 1;
    while ((taken[mine] ??= []).some(([a, b]) => a < span[1] && span[0] < b)) mine += 1;
    taken[mine].push(span);
    for (const at of chain) lane[at] = mine;
    const sides = [];
    for (const at of chain) for (const child of [...children[at]].sort(better)) if (!chain.includes(child)) sides.push([child, mine]);
    waiting.unshift(...sides.reverse()); // those that branch off last lie nearest
  }
  return { lane, lanes: taken.length, onPath };
}

export function tree(app, heard) {
  const root = h("figure", { class: "figure tr-tree" });
  let shown = null;

  function draw(reply, path, step, current, width) {
    const { nodes, hypotheses } = reply.head;
    const { lane, lanes, onPath } = laidOut(nodes, path);
    const deepest = Math.max(...nodes.map(node => node.length));
    const labels = nodes.map(node => (node.parent < 0 ? "" : clip(shownToken(node.token), 14)));
    const widest = Math.min(120, Math.max(...labels.map((label, at) => (nodes[at].ended ? 0 : widthOf(label, SIZE)))));
    const column = Math.max(widest + 34, Math.min(118, (width - LEFT - widest - 92) / Math.max(1, deepest)));
    const x = at => LEFT + nodes[at].length * column, y = at => 24 + lane[at] * ROW;
    const wide = Math.max(width, LEFT + deepest * column + widest + 90);
    const svg = picture(wide, 24 + lanes * ROW, app.t("tree"));
    svg.append(s("rect", { x: LEFT + step * column - 10, y: 0, width: column, height: 20 + lanes * ROW, rx: 8, fill: colour("tint"), opacity: 0.75 }));
    const edges = s("g", { fill: "none" }), marks = s("g", {});
    svg.append(edges, marks);
    const ends = new Map(hypotheses.map((hypothesis, place) => [hypothesis.node, place]));
    const lives = new Set(nodes.flatMap((node, at) => (node.length === step && (node.scored || node.ended) ? [at] : [])));
    const lineage = new Set(nodes.length ? ancestors(nodes, current) : []);
    nodes.forEach((node, at) => {
      const future = node.length > step, main = lineage.has(at) || (onPath.has(at) && future);
      const faded = future ? 0.28 : lives.has(at) || lineage.has(at) ? 1 : 0.5;
      const ink = lineage.has(at) ? colour("accent") : main ? colour("accent") : colour("soft");
      if (node.parent >= 0) {
        const x0 = x(node.parent), y0 = y(node.parent), x1 = x(at), y1 = y(at), p = Math.exp(node.log_probability - nodes[node.parent].log_probability);
        const begin = x0 + (node.parent === 0 ? 6 : 8 + widthOf(labels[node.parent], SIZE) + 6);
        const bend = Math.min(46, Math.max(12, (x1 - begin) * 0.5));
        edges.append(s("path", {
          d: y0 === y1 ? `M${begin} ${y0}L${x1 - 4} ${y1}` : `M${begin} ${y0}C${begin + bend} ${y0} ${x1 - 4 - bend} ${y1} ${x1 - 4} ${y1}`,
          stroke: main ? colour("accent") : colour("faint"), "stroke-width": (0.8 + 3.4 * p).toFixed(2), opacity: faded * (main ? 0.9 : 0.55),
        }, s("title", {}, percent(p))));
      }
      const group = s("g", {
        opacity: faded, data: { node: at }, class: "tr-node", tabindex: node.scored ? 0 : null, role: node.scored ? "button" : null,
        "aria-label": node.text || app.t("nothing"),
      });
      const aside = (x_, text) => group.append(s("text", { x: x_, y: y(at), dy: ".35em", "font-size": 12, fill: colour("soft") }, text));
      if (node.parent < 0) group.append(s("circle", { cx: x(at), cy: y(at), r: 4, fill: colour("accent") }));
      else if (node.ended) {
        const place = ends.get(at), won = place !== undefined;
        group.append(s("circle", { cx: x(at) + 5, cy: y(at), r: 4.5, fill: won ? ink : "none", stroke: ink, "stroke-width": 1.5 }));
        if (won) aside(x(at) + 15, `${place + 1}.  ${scored(hypotheses[place])}`);
      } else {
        const here = at === current, wide_ = widthOf(labels[at], SIZE);
        const fill = here ? colour("on-accent") : lineage.has(at) || onPath.has(at) ? colour("ink") : colour("soft");
        if (here) group.append(s("rect", { x: x(at) - 2, y: y(at) - 12, width: wide_ + 16, height: 24, rx: 6, fill: colour("accent") }));
        group.append(s("text", { x: x(at) + 6, y: y(at), dy: ".35em", "font-size": SIZE, fill, "font-weight": lives.has(at) ? 600 : 400 }, labels[at]));
        if (ends.has(at)) aside(x(at) + wide_ + 18, `${ends.get(at) + 1}.  ${scored(hypotheses[ends.get(at)])} …`);
      }
      group.append(s("title", {}, `${node.text}${node.parent < 0 ? "" : "  " + percent(Math.exp(node.log_probability))}`));
      if (node.scored) {
        group.addEventListener("click", () => heard(at));
        group.addEventListener("keydown", event => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          event.stopPropagation(); // a space plays, elsewhere
          heard(at);
        });
      }
      marks.append(group);
    });
    shown = svg;
    const before = root.scrollLeft;
    clear(root, svg);
    const want = LEFT + step * column - width * 0.6; // the current step stays in sight
    root.scrollLeft = wide > width ? Math.max(0, Math.abs(before - want) > width * 0.35 ? want : before) : 0;
  }

  return { root, draw, part: () => shown };
}

export function ancestors(nodes, at) {
  const found = [];
  for (let node = at; node >= 0; node = nodes[node].parent) found.unshift(node);
  return found;
}
