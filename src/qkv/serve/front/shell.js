// What both pages have around them: the name, the switches of language and theme, the links to the other pages.
//
//   brand(), tools(), links([[address, icon, text], …]) → elements

import { h, icon } from "./dom.js";
import { choose, nextTheme, state, t } from "./state.js";

const THEME_ICONS = { system: "system", light: "sun", dark: "moon" };

export function brand() {
  return h("a", { class: "brand", href: "./" }, h("span", {}, "q", h("i", {}, "k"), "v"), h("span", { class: "what" }, "serve"));
}

export function tools() {
  const other = state.lang === "zh" ? "en" : "zh";
  return h("div", { class: "tools" },
    tool("language", t("language.label"), () => choose({ lang: other }), t("language")),
    tool("theme", t("theme." + state.theme), () => choose({ theme: nextTheme() }), icon(THEME_ICONS[state.theme])));
}

export function links(places) {
  return h("div", { class: "links" }, places.map(([address, name, text]) => h("a", { href: address }, icon(name), h("span", {}, text))));
}

function tool(name, label, heard, inside) {
  const about = { type: "button", class: "tool", title: label, "aria-label": label, data: { tool: name } };
  return h("button", { ...about, on: { click: heard } }, inside);
}
