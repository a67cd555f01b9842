// The reader's language and theme, kept where qkv look keeps them, so that both pages agree; and words in that language.
//
//   state {lang: "zh" | "en", theme: "system" | "light" | "dark"}
//   choose(patch)                 changes, remembers and applies them; then tells the subscriber
//   subscribe(fn)                 one
//   words(table)                  adds {en: {key: text}, zh: {…}}
//   t(key, about?)                the text, {name} filled from about; missing: English, then the key itself
//   has(key)

const THEMES = ["system", "light", "dark"];
const TABLE = { en: {}, zh: {} };
let heard = () => {};

export const state = {
  lang: remembered("lang", ["zh", "en"]) ?? ((navigator.languages ?? ["en"])[0]?.startsWith("zh") ? "zh" : "en"),
  theme: remembered("theme", THEMES) ?? "system",
};

export function choose(patch) {
  Object.assign(state, patch);
  for (const [name, value] of Object.entries(patch)) {
    try { localStorage.setItem("qkv." + name, value); } catch { /* not allowed here */ }
  }
  apply();
  heard();
}

export function subscribe(fn) { heard = fn; }

export function apply() {
  const dark = state.theme === "system" ? matchMedia("(prefers-color-scheme: dark)").matches : state.theme === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.documentElement.lang = state.lang === "zh" ? "zh-CN" : "en";
}

export const nextTheme = () => THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length];

export function words(table) {
  for (const lang of Object.keys(TABLE)) Object.assign(TABLE[lang], table[lang]);
}

export const has = key => TABLE[state.lang][key] !== undefined || TABLE.en[key] !== undefined;

export function t(key, about = {}) {
  const text = TABLE[state.lang][key] ?? TABLE.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (about[name] === undefined ? whole : String(about[name])));
}

export const number = (value, digits = 0) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });

export function percent(p) {
  if (p > 0 && p < 0.001) return "< 0.1 %";
  if (p < 1 && p > 0.999) return "> 99.9 %";
  return (100 * p).toFixed(1) + " %";
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);

function remembered(name, allowed) {
  try {
    const value = localStorage.getItem("qkv." + name);
    return allowed.includes(value) ? value : undefined;
  } catch { return undefined; }
}
