// The shell: which view is on screen, with which subject and text. Loads a view when it is first wanted, tells it what
// changed, shows what was refused in place, and keeps the address. Draws no view; the top bar is bar.js.
//
// A view module ("look/views/ID.js") exports
//   id, words                 words = {en: {key: text}, zh: {…}}; inside the view t("key") finds its own first
//   view(app) → { root, show(changed), hide(), svg(), numbers? }
//       root      HTMLElement; the shell sets data-view, and data-ready="1" when show() has ended
//       show      called first with null, then with a Set of the state's names that changed; also "size" (the window),
//                 "lang", "theme". May be async. What it throws is shown in place; an abort is ignored
//       svg       () → string | null: what is on screen as one standalone SVG
//       numbers   () → {…}: what is drawn, at full precision (window.look.numbers() adds the view's id)
//   inputs?                   which fields of the shell it uses: ["text"] (default), ["text", "pair"], []; or a function
//                             of the subject that says so
//   offers?                   (example, subject) → whether the example is one for this subject (default: all are)
//   compares?                 true: it shows the compare subject too; else the menu for it is hidden
//   css?                      its own rules, adopted once
//   keys?                     [[keys, word key], …] for the `?` panel
// app = { ask(name, fields, {signal}?)   model: state.model where none is given; aborted when text, pair, model, compare
//                                        or view change, unless a signal of one's own is given
//         state, set, subscribe, t, room, subject(), compare() (or null), examples(),
//         has(view, subject?)            whether a subject has a view
//         busy(promise) → promise        shows that something is computed while it lasts
//         say(refusal, where?)           shows a refusal in `where` (an element), or above the view; say(null) clears
//         refusal(refusal) → HTMLElement the same as an element }

import { bar } from "look/bar.js";
import { clear, debounced, h, press, redrawn } from "look/dom.js";
import { icon } from "look/icons.js";
import { hash, restore, set, state, subscribe } from "look/state.js";
import { aborted, ask, recorded, Refusal, room as asked } from "look/wire.js";
import { add, kindName, refusalText, t } from "look/words.js";

const VIEWS = ["attention", "fill", "next", "meanings", "positions", "translation", "vectors", "tasks", "recurrence"];
const LACKS = {
  attention: "no_attention", fill: "no_mask_head", next: "no_next_words", meanings: "no_meanings", positions: "no_positions",
  translation: "no_translation", vectors: "no_vectors", tasks: "no_task", recurrence: "no_recurrence",
};
const ASKS = { // what a view's picture is made of; by this a saved page knows which examples it can show
  attention: ["attention"], fill: ["fill", "next_sentence"], next: ["next_words"], meanings: ["meanings"], positions: ["order"],
  translation: ["translate"], vectors: ["neighbours", "analogy"], tasks: ["task"], recurrence: ["states"],
};
const ASKED_ANEW = ["text", "pair", "model", "compare", "view"]; // what makes older questions idle

const PASSING = ["server_gone", "fault", "busy"]; // refusals that may be over in a moment
const LIGHT = new Set(["token", "word", "size", "theme", "lang"]);

let room = { subjects: [], examples: {}, limits: {} };
const modules = new Map(); // id → {module, made}
let current = null; // {id, module, made}
let questions = new AbortController();
let turn = 0; // counts shows: an older one that ends late says nothing
let computing = 0;

const rail = h("nav", { class: "rail" });
const slot = h("div", { class: "slot" });
const notice = h("div", { class: "notice", "aria-live": "polite" });
const progress = h("div", { class: "progress", role: "status" });
const stage = h("main", { class: "stage", id: "stage", tabindex: "-1" }, notice, slot);

const subject = () => room.subjects[state.model] ?? room.subjects[0];
const compare = () => (state.compare === state.model ? null : room.subjects[state.compare ?? -1] ?? null);
const has = (view, one = subject()) => !one?.views || one.views.includes(view);
const offered = one => current?.module.offers?.(one, subject()) ?? true;
const showable = one => offered(one) && (!recorded() || isRecorded(one));
const examples = () => (room.examples?.[state.view] ?? []).filter(showable);
const shell = {
  subject, has, examples, choose, go, refusal, views: VIEWS, current: () => current,
  get room() { return room; },
};

let preferred = null; // the subject that somebody chose
function choose(index) {
  preferred = index;
  set({ model: index, chosen: null, token: null, layer: null, head: null });
}

// To a view, with the subject that was chosen, or else with the first that has the view.
function go(view) {
  const wanted = [preferred ?? state.model, state.model, ...room.subjects.map(one => one.index)];
  const model = wanted.find(index => has(view, room.subjects[index])) ?? state.model;
  preferred ??= state.model;
  set(model === state.model ? { view } : { view, model, chosen: null, token: null, layer: null, head: null });
}

function textsIn(value) {
  if (typeof value === "string") return [value];
  return Object.entries(value ?? {}).flatMap(([name, part]) => (name === "hide" ? [] : textsIn(part)));
}

function isRecorded(example) {
  const texts = textsIn(example.set).map(text => JSON.stringify(text));
  const asks = key => ASKS[state.view]?.includes(key.split(" ", 1)[0]);
  return Object.keys(recorded().replies).some(key => asks(key) && texts.every(text => key.includes(text)));
}

function refusal(one, id = current?.id ?? "") {
  const said = h("p", {}, refusalText(one, id));
  const note = h("div", { class: "refusal", role: "status", data: { refusal: one.code } }, said);
  if (PASSING.includes(one.code)) {
    note.append(press("quiet", () => (room.subjects.length ? shown(null) : location.reload()), t("try.again")));
  }
  return note;
}

let lastSaid = null; // above the view, to be said again in another language
function say(one, where = notice) {
  if (where === notice) {
    if (!one && !lastSaid) return;
    lastSaid = one;
  }
  clear(where, one && refusal(one));
}

function busy(promise) {
  computing += 1;
  const drawn = () => {
    progress.classList.toggle("on", computing > 0);
    progress.setAttribute("aria-label", computing ? t("busy") : "");
  };
  setTimeout(drawn, 120); // what is there sooner needs no sign
  const over = () => { computing -= 1; if (!computing) drawn(); };
  promise.then(over, over);
  return promise;
}

function appFor(id) {
  return {
    state, set, subscribe, subject, compare, examples, has, busy, say,
    get room() { return room; },
    t: (key, about) => t(key, about, id),
    refusal: one => refusal(one, id),
    ask(name, fields, { signal = questions.signal } = {}) {
      return busy(ask(name, { model: state.model, ...fields }, { signal }));
    },
  };
}

async function loaded(id) {
  if (!modules.has(id)) {
    const module = await import("look/views/" + id + ".js");
    add(id, module.words);
    if (module.css) {
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(module.css);
      document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    }
    const made = module.view(appFor(id));
    made.root.dataset.view = id;
    made.root.classList.add("view");
    modules.set(id, { id, module, made });
  }
  return modules.get(id);
}

// A view the subject lacks: why, and who in the room has it.
function lacking(id) {
  const one = subject();
  const others = room.subjects.filter(other => has(id, other));
  const note = refusal(new Refusal(LACKS[id], "", { model: one.title, kind: kindName(one) }), "");
  for (const other of others) {
    note.append(press("quiet", () => choose(other.index), t("use", { model: other.title })));
  }
  const can = VIEWS.filter(view => has(view));
  return h("section", { class: "view lacking", data: { view: id, ready: "1" } }, note,
    !others.length && h("p", { class: "note live" }, alive(id)),
    can.length && h("p", { class: "row" }, h("span", { class: "soft" }, t("can", { model: one.title })),
      can.map(view => press("chip", () => go(view), t("view." + view)))));
}

// What would make a view live that no subject has.
const alive = id => [t("live." + id), room.subjects.length === 1 && t("live.all")].filter(Boolean).join(" ");

async function opened(id) {
  const mine = (turn += 1);
  let next = null;
  try {
    next = await loaded(id);
  } catch (error) {
    if (mine !== turn) return;
    console.info(`view ${id}:`, error);
    leave();
    const note = h("p", { class: "note" }, t("missing"));
    clear(slot, h("section", { class: "view", data: { view: id, ready: "1" } }, note));
    top.drawn();
    return;
  }
  if (mine !== turn) return;
  if (current !== next) leave();
  current = next;
  const missing = !has(id);
  if (!missing) begun();
  clear(slot, missing ? lacking(id) : next.made.root);
  top.drawn();
  if (!missing) await told(null);
}

// Where nobody wrote a text, a view begins with its first example for this subject, in the reader's language if it can.
let given = false;
function begun() {
  if (given) return;
  const fitting = examples().filter(one => one.set.text);
  const one = fitting.find(example => example.lang === state.lang) ?? fitting[0];
  if (!one || one.set.text === state.text) return;
  state.text = one.set.text;
  state.pair = one.set.pair ?? "";
  if (one.set[state.view]) state[state.view] = { ...state[state.view], ...one.set[state.view] };
}

function leave() {
  current?.made.hide?.();
  current = null;
  say(null);
}

// A light change (the pointer, the window) leaves what is under way alone; any other is a new turn, and an older one
// that fails late says nothing. Ready is a view with nothing under way.
async function told(changed) {
  const light = changed !== null && [...changed].every(name => LIGHT.has(name));
  const mine = light ? turn : (turn += 1), shownView = current, { root } = current.made;
  say(light ? lastSaid : null);
  shownView.pending = (shownView.pending ?? 0) + 1;
  try {
    const ending = shownView.made.show(changed);
    if (ending?.then) {
      delete root.dataset.ready;
      await ending;
    }
  } catch (error) {
    if (!aborted(error)) {
      if (!(error instanceof Refusal)) console.error(error);
      if (mine === turn) say(error instanceof Refusal ? error : new Refusal("fault", String(error?.message ?? error)));
    }
  } finally {
    shownView.pending -= 1;
    if (!shownView.pending) root.dataset.ready = "1";
  }
}

function shown(changed) {
  if (changed === null || changed.has("view") || changed.has("model")) return opened(state.view);
  if (!current || !has(current.id)) return undefined;
  return told(changed);
}

function numbers() {
  return { view: state.view, ...current?.made.numbers?.() };
}

function themed() {
  const dark = state.theme === "system" ? matchMedia("(prefers-color-scheme: dark)").matches : state.theme === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

// Why a view cannot be shown at all: no subject has it, or a saved page holds nothing of it. Else "".
function closed(id) {
  const one = subject();
  if (one && !room.subjects.some(other => has(id, other))) {
    const lacks = room.subjects.length === 1 ? refusalText(new Refusal(LACKS[id], "", { model: one.title, kind: kindName(one) })) : t("rail.nobody");
    return `${lacks} ${alive(id)}`;
  }
  return one && recorded() && !anythingOf(id) ? t("rail.not_saved") : "";
}

// Whether a saved page holds an answer that a view is drawn of; what was refused (it begins with "{") is none.
function anythingOf(id) {
  const asks = new Set([...ASKS[id], ...(id === "positions" ? ["positions"] : [])]);
  return Object.entries(recorded().replies).some(([key, text]) => asks.has(key.split(" ", 1)[0]) && atob(text.slice(0, 4))[0] !== "{");
}

function railDrawn() {
  rail.setAttribute("aria-label", t("rail"));
  redrawn(rail,
    h("div", { class: "brand" }, h("span", {}, "q", h("i", {}, "k"), "v"), h("span", { class: "what" }, "look")),
    VIEWS.map((id, at) => {
      const name = t("view." + id), why = closed(id);
      return h("button", {
        type: "button", class: "place", data: { to: id }, title: `${name}  (${at + 1})${why && "\n" + why}`,
        "aria-current": state.view === id ? "page" : null, "aria-label": why ? `${name}. ${why}` : name,
        "aria-disabled": why ? "true" : null, on: { click: () => shell.go(id) },
      }, icon(id), h("span", {}, name));
    }));
}

function heard(_, changed) {
  if (changed.has("lang")) document.documentElement.lang = state.lang === "zh" ? "zh-CN" : "en";
  if (changed.has("theme")) themed();
  // a text that somebody wrote, or chose a word of, goes along to the other views
  if (["text", "pair", "fill"].some(name => changed.has(name)) || changed.has("chosen") && state.chosen !== null) given = true;
  if (ASKED_ANEW.some(name => changed.has(name))) {
    questions.abort();
    questions = new AbortController();
  }
  if (changed.has("view") || changed.has("lang") || changed.has("model")) railDrawn();
  if (changed.has("text") && !changed.has("word")) state.word = null; // it counted in another text
  if (![...changed].every(name => name === "token" || name === "word")) top.drawn();
  if (changed.has("view") || changed.has("lang")) document.title = `${t("view." + state.view)} · qkv look`;
  shown(changed);
}

const top = bar(shell);

async function started() {
  const saved = recorded();
  const found = restore(saved && !location.hash ? saved.hash ?? "" : location.hash);
  themed();
  document.documentElement.lang = state.lang === "zh" ? "zh-CN" : "en";
  document.body.append(press("skip", () => stage.focus(), t("skip")), rail, h("div", { class: "page" }, top.root, progress, stage));
  import("look/views/" + state.view + ".js").catch(() => {}); // fetched while the room is asked for
  try {
    room = await asked();
  } catch (error) {
    say(error instanceof Refusal ? error : new Refusal("fault", String(error)));
  }
  mended(found);
  railDrawn();
  top.drawn();
  document.title = `${t("view." + state.view)} · qkv look`;
  subscribe(heard);
  if (room.subjects.length) await opened(state.view);
  document.documentElement.dataset.started = "1";
}

// What an address said, held against what is in the room.
function mended(found) {
  if (!VIEWS.includes(state.view)) state.view = "attention";
  if (!room.subjects[state.model]) state.model = 0;
  if (state.compare !== null && !room.subjects[state.compare]) state.compare = null;
  if (found.view === undefined) state.view = VIEWS.find(id => has(id)) ?? state.view;
  else if (found.model === undefined && !has(state.view)) state.model = Math.max(0, room.subjects.findIndex(one => has(state.view, one)));
  given = Boolean(found.text);
  const first = room.examples?.attention?.find(one => one.lang === state.lang);
  if (!state.text) state.text = first?.set.text ?? "";
}

window.look = { numbers, state, set, hash, get room() { return room; } };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  themed();
  if (current) shown(new Set(["theme"]));
});
addEventListener("hashchange", () => {
  if (location.hash === hash()) return;
  const before = { ...state }, found = restore();
  mended(found);
  if (current?.id === state.view) begun();
  const differs = name => JSON.stringify(state[name]) !== JSON.stringify(before[name]);
  const changed = new Set(Object.keys({ ...before, ...state }).filter(differs));
  if (changed.size) heard(state, changed);
  given = Boolean(found.text);
});
let width = 0; // its height follows what is drawn, and is no reason to draw
new ResizeObserver(debounced(() => {
  const before = width;
  width = stage.clientWidth;
  if (before && before !== width && current) shown(new Set(["size"]));
}, 120)).observe(stage);
started();
