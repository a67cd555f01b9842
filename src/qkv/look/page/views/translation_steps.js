// One step of decoding: what is written, what may come next (logit, exp, share, at any temperature), where the network
// looks. The player moves the step; the tree lies below. Draws, asks nothing.
//
//   player(app, own) → {root, draw(reply, candidate, width), stop(), numbers(), exported(width) → {body, height}}

import { clear, h, s } from "look/dom.js";
import { colour, svgRect, svgText } from "look/draw.js";
import { ancestors, tree } from "look/views/translation_tree.js";
import { percent, shownToken, widthOf } from "look/views/translation_words.js";

const PACE = 1100; // milliseconds a step
const small = value => (value >= 0.0005 ? value.toFixed(3) : value.toExponential(0).replace("e-", "e−"));
const minus = text => text.replace("-", "−");

export function player(app, own) {
  const { t } = app;
  const put = patch => app.set({ translation: patch });
  const button = (name, face, press) => h("button", { type: "button", class: "tr-key", data: { press: name }, on: { click: press } }, face);
  const keys = {
    first: button("first", sign("first"), () => go(0)), back: button("back", sign("back"), () => go(now.step - 1)),
    play: button("play", sign("play"), toggle), on: button("on", sign("on"), () => go(now.step + 1)),
  };
  const slider = h("input", { type: "range", min: 0, max: 0, class: "tr-slider", on: { input: () => go(+slider.value) } });
  const count = h("span", { class: "soft tr-count" });
  const heat = h("input", {
    type: "range", min: 0, max: 19, class: "tr-heat", on: { input: () => put({ temperature: now.reply.head.temperatures[+heat.value] }) },
  });
  const degree = h("output", { class: "tr-degree" });
  const title = h("h2", {}), heatLabel = h("label", { class: "label" });
  const written = h("div", { class: "tr-written" }), other = h("div", { class: "row soft tr-other" });
  const candidates = h("div", { class: "tr-candidates" }), looks = h("div", { class: "tr-looks" });
  const branches = tree(app, node => {
    stop();
    put({ step: Math.min(now.reply.head.nodes[node].length, now.steps - 1), node: now.path.includes(node) ? null : node });
  });
  const treeTitle = h("h3", {}), treeNote = h("p", { class: "caption" });
  const root = h("section", { class: "tr-player", tabindex: -1 },
    h("div", { class: "row tr-head" }, title,
      h("div", { class: "row tr-controls" }, Object.values(keys), slider, count),
      h("div", { class: "row tr-warmth" }, heatLabel, heat, degree)),
    written, other, treeTitle, branches.root, treeNote,
    h("div", { class: "tr-columns" }, candidates, looks));
  let timer = 0, now = null;

  function go(step) {
    if (!now) return;
    put({ step: Math.max(0, Math.min(now.steps - 1, step)), node: null });
  }

  function toggle() {
    if (timer) return stop();
    if (now.step >= now.steps - 1) go(0);
    timer = setInterval(() => { if (now.step >= now.steps - 1) stop(); else go(now.step + 1); }, PACE);
    return faces();
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    faces();
  }

  function faces() {
    clear(keys.play, sign(timer ? "pause" : "play"));
    for (const [name, node] of Object.entries(keys)) {
      const said = t(name === "play" && timer ? "pause" : name);
      node.title = said;
      node.setAttribute("aria-label", said);
    }
  }

  function draw(reply, candidate, width) {
    const { nodes, hypotheses, temperatures } = reply.head;
    const path = ancestors(nodes, hypotheses[Math.min(candidate, hypotheses.length - 1)].node), steps = path.length - 1;
    const step = Math.max(0, Math.min(steps - 1, own().step));
    const aside = nodes[own().node]?.scored ? own().node : null;
    const node = aside ?? path[step], place = nearest(temperatures, own().temperature);
    now = { reply, path, steps, step, node, place, aside, width };
    clear(title, t("steps"));
    clear(heatLabel, t("temperature"));
    heatLabel.title = t("temperature.note");
    slider.max = steps - 1;
    slider.value = step;
    slider.setAttribute("aria-label", t("step", { step: step + 1, steps }));
    clear(count, t("step", { step: step + 1, steps }));
    heat.max = temperatures.length - 1;
    heat.value = place;
    heat.setAttribute("aria-label", t("temperature"));
    clear(degree, temperatures[place].toFixed(1));
    faces();
    drawWritten();
    drawCandidates();
    drawLooks();
    clear(treeTitle, t("tree"));
    branches.draw(reply, path, nodes[node].length, node, width);
    clear(treeNote, t(reply.head.beams > 1 ? "tree.note" : "tree.note.one", { beams: reply.head.beams }), reply.head.forbids_repeats && " " + t("repeats"));
  }

  const nextOf = () => (now.aside === null ? now.path[now.step + 1] : null);

  function drawWritten() {
    const { nodes } = now.reply.head, node = nodes[now.node], next = nextOf() === null ? null : nodes[nextOf()];
    const grown = next && next.text.startsWith(node.text) ? next.text.slice(node.text.length) : next ? shownToken(next.token) : "";
    clear(written, h("span", { class: "tr-text" }, node.text || h("i", { class: "faint" }, t("nothing"))),
      h("span", { class: "tr-caret", "aria-hidden": "true" }),
      next && h("span", { class: "tr-coming", title: t("chosen") }, next.ended ? shownToken(next.token) : grown));
    clear(other, now.aside !== null && [h("span", {}, t("other_path")),
      h("button", { type: "button", class: "quiet", on: { click: () => put({ node: null }) } }, t("follow"))]);
  }

  // The best next tokens of the node: z, exp((z − z₁) / T) and its share.
  function table() {
    const { head, arrays } = now.reply, C = arrays.ids.shape[1], T = head.temperatures[now.place];
    const total = arrays.log_totals.data[now.node * head.temperatures.length + now.place];
    const rows = [];
    for (let at = 0; at < arrays.n_scored.data[now.node]; at += 1) {
      const id = arrays.ids.data[now.node * C + at], z = arrays.logits.data[now.node * C + at];
      const first = arrays.logits.data[now.node * C];
      rows.push({ id, token: head.vocabulary[id], z, exp: Math.exp((z - first) / T), share: Math.exp(z / T - total) });
    }
    const rest = Math.max(0, 1 - rows.reduce((sum, one) => sum + one.share, 0));
    return { rows, rest, T, sum: Math.exp(total - arrays.logits.data[now.node * C] / T), others: head.vocabulary_size - rows.length };
  }

  function drawCandidates() {
    const { rows, sum, rest, others, T } = table(), { nodes } = now.reply.head;
    const kept = new Set(nodes.flatMap(one => (one.parent === now.node ? [one.id] : [])));
    const next = nextOf() === null ? null : nodes[nextOf()].id;
    clear(candidates, h("h3", {}, t("next")),
      h("table", { class: "tr-table" },
        h("thead", {}, h("tr", {}, h("th", {}, t("token")), h("th", { class: "num" }, t("logit")),
          h("th", { class: "num" }, t(T === 1 ? "exp.one" : "exp")), h("th", { colspan: 2 }, t("share")))),
        h("tbody", {},
          rows.map(one => h("tr", { class: one.id === next ? "next" : kept.has(one.id) ? "kept" : "", data: { id: one.id } },
            h("td", { class: "tr-token" }, shownToken(one.token)),
            h("td", { class: "num" }, minus(one.z.toFixed(2))),
            h("td", { class: "num" }, small(one.exp)),
            h("td", { class: "tr-share" }, h("span", { class: "bar-line" }, h("i", { style: { "--part": one.share } }))),
            h("td", { class: "num" }, percent(one.share)))),
          others > 0 && h("tr", { class: "rest" }, h("td", { colspan: 3 }, t("others", { n: others })),
            h("td", { class: "tr-share" }, h("span", { class: "bar-line" }, h("i", { style: { "--part": rest, "--bar": "var(--faint)" } }))),
            h("td", { class: "num" }, percent(rest))))),
      h("p", { class: "caption" }, t("sum", { n: now.reply.head.vocabulary_size, sum: sum.toFixed(sum < 10 ? 3 : 1) }), " ", t("temperature.note")));
  }

  function drawLooks() {
    const { head, arrays } = now.reply;
    if (!arrays.attention) return clear(looks, h("h3", {}, t("looks")), h("p", { class: "soft" }, t("looks.none")));
    const S = head.source.length, at = now.node * S, most = Math.max(...arrays.attention.data.subarray(at, at + S));
    return clear(looks, h("h3", {}, t("looks")), h("div", { class: "tr-look-list" + (S > 14 ? " many" : "") },
      head.source.map((token, place) => {
        const weight = arrays.attention.data[at + place];
        const label = token.special || !token.text ? shownToken(token.token) : token.token.startsWith("##") ? token.token : token.text;
        return h("div", { class: "tr-look", data: { place } },
          h("span", { class: "tr-look-token" + (token.special ? " faint" : "") + (weight === most ? " most" : "") }, label),
          h("span", { class: "bar-line" }, h("i", { style: { "--part": weight, "--bar": token.special ? "var(--faint)" : "var(--hot)" } })),
          h("span", { class: "num soft" }, percent(weight)));
      })));
  }

  function numbers() {
    if (!now) return {};
    const { rows, T } = table(), { head, arrays } = now.reply, S = head.source.length;
    const looked = arrays.attention?.data.subarray(now.node * S, now.node * S + S);
    return {
      step: now.step, node: now.node, temperature: T, candidates: rows, written: head.nodes[now.node].text,
      attention: looked ? Array.from(looked) : null,
    };
  }

  // The same as lines of an SVG, from (0, 0).
  function exported(width) {
    if (!now) return { body: "", height: 0 };
    const { rows, T } = table(), { head } = now.reply, parts = [], size = 14;
    const said = `${t("step", { step: now.step + 1, steps: now.steps })} · T = ${T.toFixed(1)}`;
    parts.push(svgText(0, 18, t("steps"), { size: 16, weight: 620 }), svgText(width, 18, said, { anchor: "end", size: 13, fill: colour("soft") }));
    const text = head.nodes[now.node].text || t("nothing");
    parts.push(svgText(0, 52, text, { size: 21 }));
    const next = nextOf() === null ? null : head.nodes[nextOf()];
    parts.push(svgRect(Math.min(width - 100, widthOf(text, 21) + 6), 34, 2, 24, colour("hot")));
    if (next) parts.push(svgText(Math.min(width - 90, widthOf(text, 21) + 14), 52, shownToken(next.token), { size: 21, fill: colour("hot") }));
    const x = [0, 190, 300, 330, 640];
    const headings = [[x[0], "token", "start"], [x[1], "logit", "end"], [x[2], T === 1 ? "exp.one" : "exp", "end"], [x[3], "share", "start"]];
    parts.push(...headings.map(([at, key, anchor]) => svgText(at, 86, t(key), { size: 12, anchor, fill: colour("faint") })));
    rows.forEach((one, at) => {
      const y = 110 + 24 * at, hot = next && one.id === next.id;
      parts.push(svgText(x[0], y, shownToken(one.token), { size, weight: hot ? 650 : 400, fill: hot ? colour("hot") : colour("ink") }),
        svgText(x[1], y, minus(one.z.toFixed(2)), { size, anchor: "end", fill: colour("soft") }),
        svgText(x[2], y, small(one.exp), { size, anchor: "end", fill: colour("soft") }),
        svgRect(x[3], y - 8, 240, 6, colour("panel"), { radius: 3 }), svgRect(x[3], y - 8, 240 * one.share, 6, colour("accent"), { radius: 3 }),
        svgText(x[4], y, percent(one.share), { size, anchor: "end" }));
    });
    return { body: parts.join(""), height: 110 + 24 * rows.length, tree: branches.part() };
  }

  root.addEventListener("keydown", event => {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowLeft: () => go(now.step - 1), ArrowRight: () => go(now.step + 1), Home: () => go(0), End: () => go(now.steps - 1),
      " ": event.target.matches("button, [role=button]") ? null : toggle,
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  return { root, draw, stop, numbers, exported };
}

const SIGNS = {
  first: "M5 4v12M16 4L7.5 10 16 16z", back: "M13.5 4.5L6 10l7.5 5.5z", on: "M6.5 4.5L14 10l-7.5 5.5z", play: "M6.5 4L15.5 10 6.5 16z", pause: "M6.5 4.5v11M13.5 4.5v11",
};
export const sign = name => s("svg", { viewBox: "0 0 20 20", class: "tr-sign", "aria-hidden": "true" }, s("path", { d: SIGNS[name] }));

function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, at) => { if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = at; });
  return best;
}
