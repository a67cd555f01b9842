// The top bar: subject and compare, the text and the second text, examples, language, theme, export, keys. It reads and
// sets the state and knows no view but by what the view says of itself (inputs, keys).
//
//   bar(shell) → {root, drawn()}     drawn: the words, choices and fields as the state has them now

import { clear, debounced, h, press, redrawn } from "look/dom.js";
import { copyLink, savePage, savePng, saveSvg } from "look/export.js";
import { icon } from "look/icons.js";
import { set, state, unaddressed } from "look/state.js";
import { recorded } from "look/wire.js";
import { kindName, refusalText, t } from "look/words.js";

const QUIET = 250; // milliseconds without a key after which a text is taken
const THEMES = { system: "system", light: "sun", dark: "moon" }; // and their icons, in the order of the switch
const KEYS = [
  ["1 – 9", "key.views"], ["/", "key.text"], ["Ctrl + Enter", "key.now"], ["e", "key.examples"], ["l", "key.lang"],
  ["d", "key.theme"], ["Esc", "key.escape"], ["?", "key.help"],
];

export function bar(shell) {
  const fields = { text: field("text"), pair: field("pair") };
  const choices = h("div", { class: "choices" });
  const tools = h("div", { class: "tools" });
  const writing = h("div", { class: "writing" });
  const said = h("p", { class: "toast", role: "status", "aria-live": "polite" });
  const root = h("header", { class: "bar" }, h("div", { class: "line" }, choices, tools), writing, said);
  let pairOpen = false, silence = 0;

  function tell(text) {
    clear(said, text);
    clearTimeout(silence);
    silence = setTimeout(() => clear(said), 6000);
  }

  // One text field: grows with what is in it, tells the state after a pause or at Ctrl+Enter.
  function field(name) {
    const area = h("textarea", {
      class: "text", id: "field-" + name, rows: 1, spellcheck: "false", autocomplete: "off",
    });
    let typing = false; // what is in the field is ahead of the state
    const take = debounced(() => { typing = false; set({ [name]: area.value, chosen: null, token: null }); }, QUIET);
    const grow = () => {
      area.style.height = "auto";
      area.style.height = Math.min(area.scrollHeight, innerHeight * 0.3) + "px";
      area.style.overflowY = area.scrollHeight > innerHeight * 0.3 ? "auto" : "hidden";
    };
    area.addEventListener("input", event => {
      typing = true;
      grow();
      if (!event.isComposing) take(); // 拼音 that is still being chosen is no text yet
    });
    area.addEventListener("compositionend", () => take());
    area.addEventListener("keydown", event => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) {
        event.preventDefault();
        take();
        take.now();
      }
      if (event.key === "Escape") area.blur();
    });
    area.addEventListener("blur", () => take.now());
    const drawn = () => {
      if (area.value !== state[name] && !typing) area.value = state[name];
      area.setAttribute("aria-label", t(name));
      area.placeholder = t(name + ".hint");
      area.lang = /[\u3400-\u9fff]/.test(area.value) ? "zh-CN" : "en";
      grow();
    };
    return { area, drawn, force: () => { take.drop(); typing = false; area.value = state[name]; drawn(); } };
  }

  function chooser(label, value, options, heard) {
    const option = ([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text);
    const list = h("select", { "aria-label": label, on: { change: event => heard(event.target.value) } },
      options.map(one => (one.among ? h("optgroup", { label: one.label }, one.among.map(option)) : option(one))));
    return h("label", { class: "chooser" }, h("span", { class: "label" }, label), list, icon("down"));
  }

  function factsOf({ facts = {} }) {
    const { layers, heads, parameters } = facts, parts = [];
    if (layers) parts.push(heads ? t("facts.layers", { layers, heads }) : t("facts.only", { layers }));
    const millions = parameters / 1e6;
    const counted = { millions: millions.toFixed(millions < 1 ? 2 : 1), wan: String(Math.round(parameters / 1e4)) };
    if (parameters) parts.push(t("facts.parameters", counted));
    return parts.join("  ·  ");
  }

  function menu(name, label, body) {
    const panel = h("div", { class: "menu-panel" }, body);
    const handle = h("summary", { "aria-label": label, title: label },
      icon(name === "share" ? "share" : "list"), h("span", {}, label));
    const made = h("details", { class: "menu " + name, name: "menu" }, handle, panel);
    made.addEventListener("keydown", event => stepped(event, made, panel));
    panel.addEventListener("click", event => {
      if (!event.target.closest("button")) return;
      made.open = false;
      handle.focus({ preventScroll: true });
    });
    return made;
  }

  function stepped(event, made, panel) {
    const items = [...panel.querySelectorAll("button")];
    const at = items.indexOf(document.activeElement);
    if (event.key === "Escape") { made.open = false; made.querySelector("summary").focus(); event.stopPropagation(); }
    if (!made.open || (event.key !== "ArrowDown" && event.key !== "ArrowUp") || !items.length) return;
    event.preventDefault();
    items[(at + (event.key === "ArrowDown" ? 1 : items.length - 1)) % items.length].focus();
  }

  function exampleList() {
    const list = [...shell.examples()].sort((a, b) => (b.lang === state.lang) - (a.lang === state.lang));
    if (!list.length) return h("p", { class: "note" }, t("examples.none"));
    return list.map((one, at) => h("button", {
      type: "button", class: "item", data: { example: at }, lang: one.lang === "zh" ? "zh-CN" : "en",
      on: { click: () => exampled(one) },
    }, one.title[state.lang] ?? one.title.en));
  }

  function inputsOf() {
    const { inputs = ["text"] } = shell.current()?.module ?? {};
    return typeof inputs === "function" ? inputs(shell.subject()) : inputs;
  }

  function exampled(one) {
    const alone = "text" in one.set ? { pair: "" } : {}; // a new text has no second one but its own
    set({ ...alone, chosen: null, token: null, ...one.set });
    pairOpen = false;
    for (const each of Object.values(fields)) each.force();
    drawn();
  }

  function tool(name, label, heard, extra = {}) {
    const about = { type: "button", class: "tool", title: label, "aria-label": label, on: { click: heard } };
    return h("button", { ...about, ...extra }, name ? icon(name) : t("language"));
  }

  const themeNext = () => {
    const names = Object.keys(THEMES);
    set({ theme: names[(names.indexOf(state.theme) + 1) % names.length] });
  };
  const langNext = () => set({ lang: state.lang === "zh" ? "en" : "zh" });

  function shareList() {
    const named = () => `qkv-${state.view}`;
    const done = saving => saving.then(name => t("said.saved", { name }), error => refusalText(error));
    const picture = save => async () => {
      const svg = shell.current()?.made.svg?.();
      tell(svg ? await done(save(svg, named())) : t("said.no_picture"));
    };
    const item = (key, heard) => {
      return h("button", { type: "button", class: "item", data: { act: key }, on: { click: heard } }, t(key));
    };
    return [
      item("export.svg", picture(saveSvg)), item("export.png", picture(savePng)),
      item("copy.link", async () => tell(t(!await copyLink() ? "said.not_copied" : unaddressed() ? "said.link.part" : "said.link"))),
      item("save.page", async () => {
        tell(await done(savePage(shell.room, named())));
      }),
    ];
  }

  const help = h("dialog", { class: "help" });
  document.body.append(help);
  function helped() {
    const own = (shell.current()?.module.keys ?? []).map(([keys, word]) => [keys, t(word, {}, state.view)]);
    const rows = [...own, ...KEYS.map(([keys, word]) => [keys, t(word)])];
    const key = one => (/^[+–]$/.test(one) ? ` ${one} ` : h("kbd", {}, one));
    clear(help, h("h2", {}, t("keys")),
      h("dl", {}, rows.map(([keys, text]) => [h("dt", {}, keys.split(" ").map(key)), h("dd", {}, text)])),
      press("quiet", () => help.close(), t("close")));
    help.showModal();
  }
  help.addEventListener("click", event => { if (event.target === help) help.close(); });

  function writingDrawn() {
    const inputs = inputsOf();
    const wanted = inputs.includes("text"), paired = inputs.includes("pair");
    writing.hidden = !wanted;
    if (!wanted) return;
    const open = paired && (pairOpen || state.pair !== "");
    const shape = [...inputs, open, state.lang].join();
    if (writing.dataset.shape !== shape) { // built anew only then: a field that is moved loses its caret
      writing.dataset.shape = shape;
      const held = document.activeElement;
      clear(writing,
        h("div", { class: "writing-one" }, fields.text.area, paired && !open && press("quiet pair-add", () => {
          pairOpen = true;
          drawn();
          fields.pair.area.focus();
        }, icon("plus"), t("pair.add"))),
        open && h("div", { class: "writing-one" }, fields.pair.area, tool("cross", t("pair.drop"), () => {
          pairOpen = false;
          set({ pair: "", chosen: null, token: null });
          fields.pair.force();
          drawn();
        }, { data: { tool: "pair" } })));
      if (held === fields.text.area || held === fields.pair.area) held.focus();
    }
    for (const each of Object.values(fields)) each.drawn();
  }

  let wordsOf = "";
  function drawn() {
    const subjects = shell.room.subjects;
    const { lang, theme, view, model } = state;
    const shape = [lang, theme, view, model, state.compare, subjects.length, shell.current()?.id].join();
    if (shape !== wordsOf) {
      wordsOf = shape;
      const named = one => [one.index, `${one.title}  ·  ${kindName(one)}`];
      const others = [["", t("compare.none")], ...subjects.filter(one => one.index !== model).map(named)];
      const able = subjects.filter(one => shell.has(view, one)), unable = subjects.filter(one => !shell.has(view, one));
      const grouped = [{ label: t("models.able"), among: able.map(named) }, { label: t("models.others"), among: unable.map(named) }];
      redrawn(choices,
        chooser(t("model"), model, able.length && unable.length ? grouped : subjects.map(named), value => shell.choose(Number(value))),
        others.length > 1 && shell.current()?.module.compares && chooser(t("compare"), state.compare ?? "", others, value => {
          set({ compare: value === "" ? null : Number(value) });
        }),
        (subjects.length === 1 || !shell.current()?.module.compares) && shell.subject() && h("span", { class: "facts" }, factsOf(shell.subject())),
        recorded() && h("span", { class: "badge", title: t("saved.note") }, t("saved.badge")));
      redrawn(tools, menu("examples", t("examples"), exampleList()), menu("share", t("share"), shareList()),
        tool(null, t("language.label"), langNext, { class: "tool lang", data: { tool: "language" } }),
        tool(THEMES[theme], t("theme." + theme), themeNext, { data: { tool: "theme" } }),
        tool("help", t("keys"), helped, { data: { tool: "help" } }));
    }
    writingDrawn();
  }

  addEventListener("pointerdown", event => {
    for (const open of root.querySelectorAll("details[open]")) if (!open.contains(event.target)) open.open = false;
  });
  addEventListener("keydown", event => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target.closest?.("input, textarea, select, [contenteditable]")) return;
    const view = shell.views[Number(event.key) - 1];
    if (view) shell.go(view);
    else if (event.key === "?") helped();
    else if (event.key === "/") fields.text.area.focus();
    else if (event.key === "l") langNext();
    else if (event.key === "d") themeNext();
    else if (event.key === "e") {
      const list = root.querySelector("details.examples");
      list.open = true;
      list.querySelector("summary").focus();
    } else return;
    event.preventDefault();
  });
  return { root, drawn };
}
