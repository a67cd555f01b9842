// What the page shows, in one object, and its twin in the address (#view=attention&text=…), so that a link restores it.
// Knows no view: a view's own choices lie under its name, state.fill = {…}, one level deep.
//
//   state       {view, model, compare (index or null), text, pair, token (under the pointer, or null), word, chosen (clicked,
//               or null), layer, head (null: not chosen yet), lang ("zh" | "en"), theme ("system" | "light" | "dark"),
//               VIEW: {…}}
//   set(patch)  merges; a view's own part is merged too ({fill: {k: 5}} keeps the rest of state.fill); tells the
//               subscribers once, if something changed
//   subscribe(fn) → unsubscribe       fn(state, changed: Set of the top names that changed)
//   hash({whole}?) → string           the address's part for what is shown now; without what is too long for an address,
//                                     unless it is wanted whole
//   unaddressed() → boolean           whether something is too long for it
//   restore(hash?) → patch            reads an address (the window's) into the state, without telling anybody: what the
//                                     address does not name is as in the beginning, but for the language and the theme
// `token` and `word` are not in the address: they follow the pointer. A token is a number of one model's own; `word`
// ("12-18": characters of the text, in code points) is what was pointed at last in any view, and links the views.

const FIRST = {
  view: "attention", model: 0, compare: null, text: "", pair: "", token: null, word: null, chosen: null, layer: null, head: null,
  lang: (navigator.language ?? "en").toLowerCase().startsWith("zh") ? "zh" : "en", theme: "system",
};
const PASSING = new Set(["token", "word"]);
const PLAIN = new Set(["view", "text", "pair", "lang", "theme"]); // texts, whatever they look like
const REMEMBERED = ["lang", "theme"]; // between visits, where the browser allows it

export const state = { ...FIRST, ...remembered() };
const listeners = new Set();

export function set(patch) {
  const changed = merge(patch);
  if (!changed.size) return;
  if ([...changed].some(name => !PASSING.has(name))) written();
  for (const name of REMEMBERED) if (changed.has(name)) remember(name);
  for (const heard of [...listeners]) heard(state, changed);
}

export function subscribe(heard) {
  listeners.add(heard);
  return () => listeners.delete(heard);
}

const LONGEST = 4000; // characters of a text in an address: browsers and chats cut what is much longer
const isLong = value => value != null && (typeof value === "string" ? value : JSON.stringify(value)).length > LONGEST;
export const unaddressed = () => Object.values(state).some(value => (own(value) ? Object.values(value) : [value]).some(isLong));

export function hash({ whole = false } = {}) {
  const parts = [];
  for (const [name, value] of Object.entries({ ...FIRST, ...state })) {
    if (PASSING.has(name) || same(value, FIRST[name]) && name !== "view" && name !== "lang") continue;
    const goes = part => part != null && (whole || !isLong(part));
    if (own(value)) {
      for (const [key, part] of Object.entries(value)) if (goes(part)) parts.push(`${name}.${key}=${spelt(part)}`);
    } else if (goes(value)) parts.push(`${name}=${spelt(value, PLAIN.has(name))}`);
  }
  return "#" + parts.join("&");
}

export function restore(from = location.hash) {
  const patch = {};
  for (const part of from.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at < 1) continue;
    const [name, key] = part.slice(0, at).split(".");
    const value = read(part.slice(at + 1), PLAIN.has(name));
    if (value === undefined || PASSING.has(name) || name === "__proto__" || key === "__proto__") continue;
    if (key !== undefined) { if (!(name in FIRST)) (patch[name] ??= {})[key] = value; }
    else if (name in FIRST && fits(name, value)) patch[name] = value;
  }
  for (const name of Object.keys(state)) if (!REMEMBERED.includes(name)) delete state[name];
  Object.assign(state, { ...FIRST, ...state, ...patch });
  return patch;
}

function merge(patch) {
  const changed = new Set();
  for (const [name, value] of Object.entries(patch)) {
    const next = own(value) && own(state[name]) ? { ...state[name], ...value } : value;
    if (!same(next, state[name])) {
      state[name] = next;
      changed.add(name);
    }
  }
  return changed;
}

// Texts as they are (percent-encoded where an address wants it); what would read as something else, quoted.
function spelt(value, always = false) {
  const plain = always || typeof value === "string" && parsed(value) === undefined;
  return encodeURIComponent(plain ? value : JSON.stringify(value)).replace(/%20/g, "+").replace(/%2C/g, ",");
}

function read(text, always) {
  let plain;
  try { plain = decodeURIComponent(text.replace(/\+/g, "%20")); } catch { return undefined; }
  const value = always ? undefined : parsed(plain);
  return value === undefined ? plain : value;
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return undefined; }
}

function fits(name, value) {
  if (name === "lang") return value === "zh" || value === "en";
  if (name === "theme") return ["system", "light", "dark"].includes(value);
  if (["text", "pair", "view"].includes(name)) return typeof value === "string";
  return value === null ? FIRST[name] === null : Number.isInteger(value) && value >= 0;
}

const own = value => value !== null && typeof value === "object" && !Array.isArray(value);
const same = (a, b) => a === b || (typeof a === "object" && JSON.stringify(a) === JSON.stringify(b));

let waiting = 0;
function written() {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    try { history.replaceState(null, "", hash()); } catch { /* too often, or a page without an address */ }
  }, 150);
}

function remember(name) {
  try { localStorage.setItem("qkv." + name, state[name]); } catch { /* not allowed here */ }
}

function remembered() {
  const found = {};
  for (const name of REMEMBERED) {
    try {
      const value = localStorage.getItem("qkv." + name);
      if (value !== null && fits(name, value)) found[name] = value;
    } catch { /* not allowed here */ }
  }
  return found;
}
