// The front page of `qkv serve`: every model with what it can do, fields to try it, the answer drawn, and the request as
// code. It speaks the same HTTP that programs speak, and knows of a model what GET /models/NAME/info says.
//
// The address (#model=NAME&task=TASK) says what is shown. Texts stay in this tab.

import { codeOf } from "./code.js";
import { codebox } from "./codebox.js";
import { button, clear, h, icon, languageOf } from "./dom.js";
import { draw, shortened, writing } from "./draw.js";
import { examplesOf } from "./examples.js";
import { brand, links, tools } from "./shell.js";
import { apply, has, number, state, subscribe, t, words } from "./state.js";
import { fieldsOf, requestOf, tasksOf } from "./tasks.js";
import { complaint, Failed, needsToken, read, send } from "./wire.js";
import { WORDS } from "./words.js";

words(WORDS);
let models = [], info = null, task = "", failed = null;
const typed = new Map(); // "model task" → values of the fields
let last = null; // {request, reply, values, task, info, live}: what was sent
let under = null; // AbortController of the request under way

const rail = h("nav", { class: "rail" });
const head = h("header", { class: "head" });
const asking = h("form", { class: "asking", id: "asking", on: { submit: event => { event.preventDefault(); isWriting() ? under.abort() : ask(); } } });
const answered = h("section", { class: "answered", "aria-live": "polite" });
const box = codebox();
const stage = h("main", { class: "stage" }, h("div", { class: "try" }, asking, answered), box.root);

const isWriting = () => under !== null && last?.live; // a stream, which can be stopped; anything else is over in a moment
const key = () => `${info.name} ${task}`;
const values = () => {
  if (!typed.has(key())) typed.set(key(), { ...(examplesOf(task, info, state.lang)[0]?.values ?? {}) });
  return typed.get(key());
};

// --- what is there

function railDrawn() {
  rail.setAttribute("aria-label", t("models"));
  clear(rail,
    brand(),
    h("div", { class: "places" }, models.map(one => h("button", {
      type: "button", class: "place", data: { model: one.name }, "aria-current": one === info ? "page" : null, on: { click: () => go(one.name) },
    }, h("span", { class: "name" }, one.name), h("small", {}, tasksOf(one).map(name => t("task." + name)).join(" · "))))),
    links([["docs", "book", t("docs")], ["look/", "look", t("look")]]));
  const here = rail.querySelector("[aria-current]"); // on a narrow screen the models are a strip
  if (here) here.parentNode.scrollLeft = here.offsetLeft - here.parentNode.offsetLeft - 40;
}

function factsOf() {
  const { model_type: type, parameters, languages, max_input_length: most, labels, calibrated, precision, width } = info;
  const [from, to] = info.tasks.includes("translation") ? languages : [];
  const codes = new Intl.DisplayNames([state.lang === "zh" ? "zh-CN" : "en"], { type: "language" });
  const named = code => { try { return codes.of(code); } catch { return code; } };
  return [
    type, parameters && t("facts.parameters", { n: (parameters / 1e6).toFixed(1), wan: number(Math.round(parameters / 1e4)) }),
    from && to ? `${named(from)} → ${named(to)}` : languages?.length && languages.map(named).join(state.lang === "zh" ? "、" : ", "),
    most && t("facts.max", { n: number(most) }),
    info.tasks.includes("feature-extraction") && width && t("facts.dimensions", { n: number(width) }),
    labels?.length > 1 && t("facts.labels", { n: number(labels.length) }),
    calibrated && t("facts.calibrated"), precision && t("facts.precision", { precision }),
  ].filter(Boolean);
}

function headDrawn() {
  const able = info ? tasksOf(info) : [];
  clear(head,
    h("div", { class: "line" }, info && h("h1", {}, info.name), tools()),
    info && h("p", { class: "facts" }, factsOf().map(fact => h("span", {}, fact))),
    able.length > 1 && h("div", { class: "segmented", role: "group", "aria-label": t("tasks") }, able.map(name => h("button", {
      type: "button", data: { task: name }, "aria-pressed": String(name === task), on: { click: () => go(info.name, name) },
    }, t("task." + name)))));
}

// --- the fields

function fieldDrawn({ name, kind, first, optional, ...limits }) {
  const now = values(), label = t("field." + name);
  if (kind === "number") {
    const about = { class: "field small", type: "number", id: "field-" + name, value: now[name] ?? first, ...limits };
    const node = h("input", { ...about, on: { input: () => { now[name] = node.valueAsNumber; } } });
    return h("label", { class: "number" }, h("span", { class: "label" }, label), node);
  }
  const text = kind === "lines" ? (now[name] ?? []).join("\n") : now[name] ?? "";
  const rows = { text: 1, passage: 5, lines: Math.max(3, text.split("\n").length) }[kind];
  const node = h("textarea", { class: `field ${kind}`, id: "field-" + name, rows, spellcheck: "false", value: text, lang: languageOf(text) });
  const grow = () => {
    node.style.height = "auto";
    node.style.height = Math.min(node.scrollHeight + 2, innerHeight * 0.4) + "px";
    node.lang = languageOf(node.value);
  };
  node.addEventListener("input", () => { now[name] = kind === "lines" ? node.value.split("\n") : node.value; grow(); pressedDrawn(); });
  node.addEventListener("keydown", event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) { event.preventDefault(); ask(); }
  });
  requestAnimationFrame(grow);
  return h("label", { class: "one" }, h("span", { class: "label" }, label), node);
}

function askingDrawn() {
  if (!task) { clear(asking, h("p", { class: "note" }, info ? t("no.tasks") : "")); return; }
  const fields = fieldsOf(task, info), numbers = fields.filter(one => one.kind === "number");
  clear(asking,
    fields.filter(one => one.kind !== "number").map(fieldDrawn),
    numbers.length > 0 && h("div", { class: "numbers" }, numbers.map(fieldDrawn)),
    h("div", { class: "sending" }, h("div", { class: "examples", role: "group", "aria-label": t("examples") }, examplesOf(task, info, state.lang).map(one => h("button", {
      type: "button", class: "chip", lang: one.lang === "zh" ? "zh-CN" : "en", title: one.title, "aria-pressed": "false", data: { example: "" },
      on: { click: () => { typed.set(key(), { ...values(), ...structuredClone(one.values) }); askingDrawn(); ask(); } },
    }, one.title))), h("button", { type: "submit", class: "primary", title: t("send.key") })));
  pressedDrawn();
  sendingDrawn();
}

// Which example the fields hold, if any.
function pressedDrawn() {
  const now = values(), list = examplesOf(task, info, state.lang);
  for (const [at, node] of asking.querySelectorAll("[data-example]").entries()) {
    const given = Object.entries(list[at].values);
    node.setAttribute("aria-pressed", String(given.every(([name, value]) => JSON.stringify(value) === JSON.stringify(now[name]))));
  }
}

function sendingDrawn() {
  const node = asking.querySelector(".primary");
  if (node) clear(node, icon(isWriting() ? "stop" : "try"), t(isWriting() ? "stop" : "send"));
  answered.setAttribute("aria-busy", String(under !== null));
}

// --- a request and its answer

async function ask() {
  under?.abort();
  let request;
  try {
    request = requestOf(task, info, values());
  } catch (error) {
    if (!has(error.message)) throw error;
    clear(answered, note(t(error.message)));
    return;
  }
  const mine = (under = new AbortController()), given = structuredClone(values());
  const live = request.streams ? writing(given.prompt) : null;
  last = { request, values: given, task, info, live };
  sendingDrawn();
  if (live) clear(answered, live.root);
  else answered.classList.add("stale");
  let count = 0, begin = performance.now();
  try {
    last.reply = await send(request, { signal: mine.signal, piece: piece => { count += 1; live?.add(piece); } });
    if (live) last.reply.facts.speed = 1000 * (last.reply.data?.usage?.completion_tokens ?? count) / (performance.now() - begin);
  } catch (error) {
    if (mine !== under) return; // a later one took its place
    if (error.name === "AbortError") last.stopped = true;
    else if (error instanceof Failed) last.failed = error;
    else throw error;
  } finally {
    if (mine === under) { under = null; sendingDrawn(); }
  }
  if (last.request !== request) return;
  live?.done();
  answerDrawn();
  await codeDrawn();
}

const note = (...parts) => h("div", { class: "refusal", role: "status" }, h("p", {}, ...parts));

function errorDrawn({ status, retryAfter }, message) {
  return h("div", { class: "refusal", role: "alert", data: { status } }, status > 0 && h("b", {}, status),
    h("p", {}, message, retryAfter && ` ${t("retry", { n: retryAfter })}`));
}

function answerDrawn() {
  answered.classList.remove("stale");
  if (!last || last.info !== info || last.task !== task) { clear(answered); return; }
  const { reply, live, values: given } = last;
  if (last.failed) { clear(answered, errorDrawn(last.failed, last.failed.message || t("fault.gone"))); return; }
  if (last.stopped) { clear(answered, live?.root, h("p", { class: "note" }, t("stopped"))); return; }
  if (!reply) { clear(answered, live?.root); return; }
  if (!reply.ok) { clear(answered, live?.root, errorDrawn(reply, complaint(reply))); return; }
  const reason = reply.data?.choices?.[0]?.finish_reason;
  let shown;
  try {
    shown = live ? [live.root, reason && h("p", { class: "note" }, t("finish." + reason))] : draw[task](reply.data, given, info);
  } catch (error) { // the server is of another version than the page
    console.error(error);
    shown = h("p", { class: "note" }, t("fault.shape"));
  }
  clear(answered, shown, statsDrawn(reply.facts));
}

// The time as a bar of its parts, where the server says what they are.
function statsDrawn({ ms, tokens, windows, truncated, tokenise, queue, inference, speed }) {
  const parts = Object.entries({ tokenise, queue, inference }).filter(([, value]) => value !== undefined);
  const rest = Math.max(0, ms - parts.reduce((sum, [, value]) => sum + value, 0)), all = [...parts, ["rest", rest]];
  const time = value => t("stat.ms", { n: value < 9.95 ? value.toFixed(1) : number(Math.round(value)) });
  return h("footer", { class: "stats" },
    h("span", { class: "soft" }, [time(ms), tokens && t(tokens === 1 ? "stat.token" : "stat.tokens", { n: number(tokens) }),
      windows && t(windows === 1 ? "stat.window" : "stat.windows", { n: number(windows) }), speed && t("stat.speed", { n: number(Math.round(speed)) }),
      truncated && t("stat.truncated")].filter(Boolean).join("  ·  ")),
    parts.length > 0 && [
      h("span", { class: "course" }, all.map(([name, value]) => h("i", { class: name, style: { "--part": value / ms } }))),
      h("span", { class: "legend" }, all.map(([name, value]) => h("span", { class: name }, `${t("part." + name)} ${time(value)}`))),
    ]);
}

async function codeDrawn() {
  const token = last && await needsToken();
  if (!last || last.info !== info || last.task !== task) { box.show([]); return; }
  const tabs = codeOf(last.request, task, info, token).map(one => (token ? { ...one, note: t("token.note") } : one));
  if (last.reply) tabs.push({ name: "reply", label: t("reply"), text: last.reply.data === null ? last.reply.text : shortened(last.reply.data) });
  box.show(tabs, t("request"));
}

// --- the shell

function go(name, wanted) {
  info = models.find(one => one.name === name) ?? models[0] ?? null;
  const able = info ? tasksOf(info) : [];
  task = able.includes(wanted) ? wanted : able[0] ?? "";
  under?.abort();
  under = null;
  if (info) history.replaceState(null, "", `#model=${encodeURIComponent(info.name)}${task && `&task=${task}`}`);
  drawn();
  // what is quick is answered at once; a text is written when somebody asks for it
  if (task && task !== "text-generation" && !(last?.info === info && last.task === task)) ask();
}

function drawn() {
  document.title = info ? `${info.name} · qkv serve` : "qkv serve";
  railDrawn();
  headDrawn();
  askingDrawn();
  answerDrawn();
  codeDrawn();
  if (failed) {
    const why = failed.status === 401 ? t("fault.token") : "";
    clear(answered, errorDrawn(failed, failed.message || t("fault.gone")), why && h("p", { class: "note" }, why), button("quiet", start, t("again")));
  }
}

async function start() {
  failed = null;
  document.body.classList.add("waiting");
  try {
    const names = (await read("v1/models")).data.map(one => one.id);
    models = await Promise.all(names.map(async name => ({ tasks: [], ...await read(`models/${name}/info`), name })));
    if (!models.length) failed = new Failed(0, t("fault.none"));
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
    failed = error;
  }
  document.body.classList.remove("waiting");
  const address = new URLSearchParams(location.hash.slice(1));
  go(address.get("model"), address.get("task"));
  document.documentElement.dataset.started = "1";
}

apply();
document.body.append(button("skip", () => asking.querySelector("textarea")?.focus(), t("skip")), rail, h("div", { class: "page" }, head, stage));
subscribe(() => { drawn(); head.querySelector(".tool")?.focus({ preventScroll: true }); });
addEventListener("hashchange", () => { const address = new URLSearchParams(location.hash.slice(1)); go(address.get("model"), address.get("task")); });
start();
