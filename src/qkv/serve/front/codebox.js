// A box with tabs of code and a button that copies what is shown; both pages have it.
//
//   codebox() → {root, show(tabs, heading?), choose(name)}     tabs: [{name, text, label?, note?}]; the tab that was chosen
//                                                              stays chosen, on the whole page

import { button, clear, h, icon } from "./dom.js";
import { t } from "./state.js";

let chosen = "curl";

export function codebox() {
  const root = h("section", { class: "codebox" });
  let tabs = [], heading = "";

  function turned(name) {
    chosen = name;
    drawn();
    root.querySelector("[aria-pressed=true]")?.focus();
  }

  function drawn() {
    const shown = tabs.find(one => one.name === chosen) ?? tabs[0];
    if (!shown) { clear(root); return; }
    const copy = button("tool copy", async () => {
      try { await navigator.clipboard.writeText(shown.text); } catch { marked(); return; }
      clear(copy, icon("done"), t("copied"));
      setTimeout(() => clear(copy, icon("copy"), t("copy")), 1500);
    }, icon("copy"), t("copy"));
    const code = h("pre", { tabindex: "0" }, h("code", {}, shown.text));
    const marked = () => getSelection().selectAllChildren(code); // where a page may not copy, the reader can
    clear(root, heading && h("h2", {}, heading),
      h("div", { class: "codebar" }, h("div", { class: "segmented", role: "group" }, tabs.map(one => h("button", {
        type: "button", "aria-pressed": String(one === shown), data: { tab: one.name }, on: { click: () => turned(one.name) },
      }, one.label ?? one.name))), copy),
      code, shown.note && h("p", { class: "note" }, shown.note));
  }
  return {
    root,
    show(given, title = "") { tabs = given; heading = title; drawn(); },
    choose(name) { chosen = name; drawn(); },
  };
}
