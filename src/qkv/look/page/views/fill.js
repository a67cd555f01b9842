// Fill the blank: the text as words to click; a hidden word's candidates, with the chance of each, and what stood there
// really; for two texts, whether the second follows the first. Asks `fill` and `next_sentence`; computes no chance itself.
//
// state.fill = {hide: "25-30 40-42" (characters of the text, in code points; "" = nothing, missing = what the example that
//               the text is from hides, else nothing),
//               k (candidates), by: "character" | "word" (of Chinese)}

import { clear, h, redrawn } from "look/dom.js";
import { hue } from "look/draw.js";
import { pictureOf } from "look/export.js";
import { aborted, Refusal } from "look/wire.js";
import { number, percent } from "look/words.js";
import { grown, moved, spanned, spelled, unitsOf } from "look/views/fill_units.js";

export const id = "fill";
export const inputs = ["text", "pair"];
export const compares = true;
export const keys = [["← →", "key.move"], ["Enter", "key.hide"]];

export const words = {
  en: {
    "lead": "Click a word to hide it: the model guesses it from what stands around it. Click a guess to put it in.",
    "sentence": "Words of the text", "hide": "hide {word}", "unhide": "show {word} again", "put": "put in {word}",
    "blank": "Blank {n}", "was": "It was “{word}”: chance {chance}, place {rank}.", "was.first": "It was “{word}”, and the model says so.",
    "was.unknown": "What stood there is not in the vocabulary.", "as.written": "Left open in the text.",
    "rank": "place {rank}", "by.character": "汉字", "by.word": "Chinese words", "by": "A click hides", "k": "Guesses",
    "next.title": "Does the second text follow the first?", "next.yes": "it follows", "next.no": "it does not",
    "pair": "Only words of the first text can be hidden, and the guesses do not see the second text.",
    "rest": "{n} more words are part of the text and cannot be clicked here.",
    "key.move": "from word to word", "key.hide": "hide or show the word", "none": "Nothing is hidden. Click a word above.",
    "refusal.span": "The hidden words do not fit the text any more.",
    "refusal.too_many_blanks": "{blanks} tokens are hidden; {most} are filled at most.",
  },
  zh: {
    "lead": "点一个词把它遮住，模型根据上下文来猜；点一个候选词把它填进去。",
    "sentence": "文本中的词", "hide": "遮住“{word}”", "unhide": "恢复“{word}”", "put": "填入“{word}”",
    "blank": "第 {n} 空", "was": "原词“{word}”：概率 {chance}，排第 {rank}。", "was.first": "原词“{word}”，模型猜对了。",
    "was.unknown": "原词不在词表里。", "as.written": "文本里原本就空着。",
    "rank": "第 {rank} 名", "by.character": "单字", "by.word": "整词", "by": "每次遮住", "k": "候选数",
    "next.title": "第二句是第一句的下一句吗？", "next.yes": "是下一句", "next.no": "不是",
    "pair": "只能遮住第一句里的词，猜词时也不看第二句。",
    "rest": "后面还有 {n} 个词属于文本，这里不能点。",
    "key.move": "在词之间移动", "key.hide": "遮住或恢复这个词", "none": "还没有遮住任何词，点上面的一个词试试。",
    "refusal.span": "遮住的位置和文本对不上了。",
    "refusal.too_many_blanks": "遮住了 {blanks} 个词元，最多填 {most} 个。",
  },
};

export { css } from "look/views/fill_style.js";

const MOST_WORDS = 1200; // that are buttons; the rest of a text is shown as it is
const HAN = /\p{Script=Han}/u;
const MOST_DRAWN = 4000; // characters of a text that is drawn before anybody said whether the model reads so much
const NOT_HIDDEN = ["no_mask", "no_mask_head", "not_saved"]; // refusals that only say that nobody hid anything
const TOO_MUCH = ["too_many_tokens", "too_long", "too_big"];
const MOST_GUESSES = 50;
const COUNTS = [5, 8, 20];
const DEFAULT_COUNT = 8;

export function view(app) {
  const { state, t } = app;
  const controls = h("div", { class: "row" });
  const lead = h("p", { class: "fill-lead" });
  const sentence = h("div", { class: "sentence", role: "group" });
  const paired = h("p", { class: "note fill-pair" }), answers = h("div", {}), next = h("div", {});
  const heading = h("div", { class: "row fill-head" }, lead, controls);
  const root = h("section", {}, heading, sentence, paired, answers, next);
  let textBefore = null, textRead = null, at = 0, drawn = { blanks: [] };

  // As an address may have it, held against what there is.
  function own() {
    const { hide, k, by } = state.fill ?? {};
    return {
      hide: hide === undefined ? undefined : String(hide),
      k: Number.isInteger(k) && k >= 1 && k <= MOST_GUESSES ? k : DEFAULT_COUNT,
      by: by === "word" ? by : "character",
    };
  }
  const spans = () => spanned(own().hide ?? "", [...state.text].length);

  // Hidden places belong to a text: an edit moves them, another text has none but those of its example.
  function settled(changed) {
    const before = textBefore;
    textBefore = state.text;
    if (before !== null && before !== state.text && !changed?.has("fill")) {
      const was = spanned(own().hide ?? "", [...before].length);
      return exemplary() ?? spelled(moved(was, before, state.text));
    }
    return own().hide ?? exemplary() ?? "";
  }

  const exemplary = () => app.examples().find(one => one.set.text === state.text)?.set.fill?.hide;

  function toggled(unit) {
    const now = spans(), inside = ([a, b]) => a < unit.end && unit.start < b;
    const rest = now.filter(span => !inside(span));
    app.set({ fill: { hide: spelled(rest.length < now.length ? rest : [...now, [unit.start, unit.end]]) } });
  }

  // A guess in the place of its blank, as it was shown: a word of several pieces goes in whole, with the best guesses for
  // the others. What is hidden after it moves along.
  function put(blank, guess, blanks) {
    const word = unitsOf(state.text).find(unit => blank.start < unit.end && unit.start < blank.end) ?? blank;
    const pieces = blanks.filter(one => one.start < word.end && word.start < one.end);
    const characters = [...state.text], start = pieces[0].start;
    let end = pieces.at(-1).end;
    while (/^\p{M}/u.test(characters[end] ?? "")) end += 1; // an accent that a tokenizer left out
    const guessed = pieces.map(one => (one === blank ? guess : one.candidates[0]).text).join("");
    const capital = /^\p{Lu}/u.test(characters[start]);
    const given = capital ? guessed.charAt(0).toUpperCase() + guessed.slice(1) : guessed;
    const text = [...characters.slice(0, start), ...given, ...characters.slice(end)].join("");
    const by = [...given].length - (end - start);
    const left = spans().map(([a, b]) => [a, Math.min(b, start)]);
    const right = spans().map(([a, b]) => [Math.max(a, end) + by, b + by]);
    textBefore = text;
    app.set({ text, fill: { hide: spelled([...left, ...right].filter(([a, b]) => a < b)) } });
  }

  function controlsDrawn() {
    clear(lead, t("lead"));
    const choice = (name, values, label) => {
      const option = value => h("button", {
        type: "button", "aria-pressed": String(own()[name] === value), data: { [name]: value },
        on: { click: () => app.set({ fill: { [name]: value } }) },
      }, label(value));
      return h("div", { class: "row" }, h("span", { class: "label" }, t(name)),
        h("div", { class: "segmented", role: "group", "aria-label": t(name) }, values.map(option)));
    };
    redrawn(controls,
      HAN.test(state.text) && choice("by", ["character", "word"], value => t("by." + value)),
      choice("k", COUNTS, String));
  }

  function sentenceDrawn() {
    const units = unitsOf(state.text, own().by), now = grown(units, spans());
    sentence.setAttribute("aria-label", t("sentence"));
    sentence.lang = HAN.test(state.text) ? "zh-CN" : "en";
    const shown = units.slice(0, MOST_WORDS), parts = [];
    const focus = sentence.contains(document.activeElement);
    at = Math.min(at, Math.max(0, shown.length - 1));
    let end = 0, blank = 0;
    const characters = [...state.text];
    shown.forEach((unit, place) => {
      parts.push(characters.slice(end, unit.start).join(""));
      end = unit.end;
      const hidden = unit.mask || now.some(([a, b]) => a < unit.end && unit.start < b);
      const mine = hidden ? blank++ : 0;
      parts.push(h("button", {
        type: "button", class: `word ${unit.kind}${hidden ? " hidden" : ""}`, data: { start: unit.start, end: unit.end },
        tabindex: place === at ? "0" : "-1", disabled: unit.mask, style: hidden ? { "--mine": hue(mine) } : null,
        "aria-pressed": String(hidden), "aria-label": t(hidden ? "unhide" : "hide", { word: unit.text }),
        on: { click: () => { at = place; toggled(unit); }, pointerenter: () => pointed(unit), focus: () => pointed(unit) },
      }, hidden ? h("em", { class: "waiting" }, "…") : unit.text));
    });
    parts.push(characters.slice(end).join(""));
    const more = units.length - shown.length;
    clear(sentence, parts, more > 0 && h("p", { class: "note" }, t("rest", { n: more })));
    if (focus) sentence.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
  }

  // The word that was pointed at last, here or in another view.
  const pointed = unit => app.set({ word: `${unit.start}-${unit.end}` });
  function linked() {
    const [span] = spanned(state.word, [...state.text].length);
    for (const word of sentence.querySelectorAll(".word")) {
      word.classList.toggle("linked", Boolean(span) && span[0] < +word.dataset.end && +word.dataset.start < span[1]);
    }
  }

  sentence.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [...sentence.querySelectorAll(".word")];
    at = Math.max(0, Math.min(all.length - 1, at + step));
    all.forEach((one, place) => one.setAttribute("tabindex", place === at ? "0" : "-1"));
    all[at]?.focus();
  });

  // What stands in a blank on screen: the best guess, or the one under the pointer.
  function previewed(blanks, under = null, guess = null) {
    for (const word of hiddenWords()) {
      const mine = blanks.filter(blank => isIn(blank, word));
      if (!mine.length) continue;
      const text = mine.map(blank => (blank === under ? guess : blank.candidates[0]).text).join("");
      clear(word, h("em", { class: guess && mine.includes(under) ? "" : "waiting" }, text));
    }
  }

  const hiddenWords = () => [...sentence.querySelectorAll(".word.hidden")];
  const isIn = (blank, word) => blank.start < +word.dataset.end && +word.dataset.start < blank.end;

  function card(blank, n, blanks) {
    const truth = blank.truth;
    const listed = truth && blank.candidates.some(one => one.token === truth.token);
    const row = (one, extra = "") => {
      const chance = percent(one.probability);
      const tried = () => previewed(blanks, blank, one), left = () => previewed(blanks);
      return h("button", {
        type: "button", class: `guess${truth?.token === one.token ? " true" : ""}${extra}`,
        "aria-label": `${t("put", { word: one.text })}, ${chance}`,
        on: { click: () => put(blank, one, blanks), pointerenter: tried, pointerleave: left, focus: tried, blur: left },
      },
      h("span", { class: "what" }, one.token),
      h("span", { class: "bar-line" }, h("i", { style: { "--part": one.probability } })),
      h("span", { class: "chance" }, chance));
    };
    const mine = hue(Math.max(0, hiddenWords().findIndex(word => isIn(blank, word))));
    return h("article", { class: "card", style: { "--mine": mine }, data: { blank: n } },
      h("header", {}, h("b", {}, t("blank", { n: n + 1 })), h("span", {}, truthOf(blank))),
      blank.candidates.map(one => row(one)), truth && !listed && row(truth, " far"));
  }

  function truthOf({ truth, start, end }) {
    if (!truth) return t([...state.text].slice(start, end).join("") === drawn.mask ? "as.written" : "was.unknown");
    if (truth.rank === 1) return t("was.first", { word: truth.text });
    return t("was", { word: truth.text, chance: percent(truth.probability), rank: number(truth.rank) });
  }

  async function filled(subject) {
    const fields = { text: state.text, k: own().k, hide: spelled(spans()) || null, model: subject.index };
    const { head, arrays } = await app.ask("fill", fields);
    return { blanks: head.blanks, mask: head.mask, probabilities: arrays.probabilities };
  }

  async function followed(subject) {
    return (await app.ask("next_sentence", { text: state.text, pair: state.pair, model: subject.index })).head;
  }

  function judged(subject, one, several) {
    const part = share => h("i", { style: { flexGrow: share } });
    return h("div", { class: "next" },
      h("h3", {}, several ? `${t("next.title")} · ${subject.title}` : t("next.title")),
      h("div", { class: "two" }, part(one.is_next), part(one.not_next)),
      h("div", { class: "both" },
        h("span", {}, `${t("next.yes")}  ${percent(one.is_next)}`),
        h("span", { class: "soft" }, `${t("next.no")}  ${percent(one.not_next)}`)));
  }

  // One answer in its place, or why there is none; an abort ends the show.
  async function placed(promise, made) {
    try {
      return made(await promise);
    } catch (error) {
      if (aborted(error) || !(error instanceof Refusal)) throw error;
      return app.refusal(error);
    }
  }

  let turn = 0; // an older answer that comes late is not drawn
  async function show(changed) {
    if (changed && [...changed].every(name => name === "word" || name === "token")) return linked();
    const mine = (turn += 1);
    const hide = settled(changed);
    if (hide !== own().hide) state.fill = { ...state.fill, hide };
    const long = state.text.length > MOST_DRAWN;
    controlsDrawn();
    sentence.hidden = paired.hidden = long && textRead !== state.text;
    if (!sentence.hidden) sentenceDrawn();
    linked();
    clear(paired, state.pair.trim() && t("pair"));
    if (!state.text.trim()) {
      clear(answers, app.refusal(new Refusal("empty")));
      clear(next);
      return;
    }
    const other = app.compare(), subjects = [app.subject(), ...(other && app.has("fill", other) ? [other] : [])];
    const open = spans().length > 0 || state.text.includes("[MASK]");
    // where nothing is hidden, whether a long text can be read is asked all the same: it has no more tokens than characters
    const short = subject => [...state.text].length + 2 <= (subject.facts?.positions ?? 0);
    const asked = subjects.filter(subject => open || !short(subject)).map(subject => placed(filled(subject), reply => ({ reply, subject })));
    const pairs = (state.pair.trim() ? subjects : []).map(subject => placed(followed(subject), one => ({ one, subject })));
    const groups = await Promise.all(asked);
    if (mine !== turn) return;
    const refused = (one, codes) => codes.includes(one.dataset?.refusal), read = !groups.length || !groups.every(one => refused(one, TOO_MUCH));
    if (read && sentence.hidden) {
      sentenceDrawn();
      linked();
    }
    sentence.hidden = paired.hidden = !read;
    textRead = read ? state.text : null;
    drawn = groups.find(one => one.reply)?.reply ?? { blanks: [] };
    previewed(drawn.blanks);
    const several = subjects.length > 1;
    const group = ({ reply: { blanks }, subject }) => h("div", { class: "group" }, several && h("h3", {}, subject.title),
      h("div", { class: "cards" }, blanks.map((blank, n) => card(blank, n, blanks))));
    const shown = groups.filter(one => open || !refused(one, NOT_HIDDEN));
    clear(answers, !open && read && h("p", { class: "note" }, t("none")), shown.map(one => (one instanceof Node ? one : group(one))));
    const verdicts = await Promise.all(pairs);
    if (mine !== turn) return;
    drawn.next = verdicts.find(one => one.one)?.one;
    clear(next, read && verdicts.map(one => (one instanceof Node ? one : judged(one.subject, one.one, several))));
  }

  return {
    root, show, hide() {},
    svg: () => (drawn.blanks.length || drawn.next ? pictureOf(root, { without: heading }) : null),
    numbers: () => ({ blanks: drawn.blanks, probabilities: drawn.probabilities ?? null, next: drawn.next ?? null }),
  };
}
