// Next words: the text as words, each coloured by how much it surprised a model that had read only what is to its left;
// what the model expected in the chosen place; and beside it what a BERT of the page expects there as a blank, from both
// sides. A click on a guess goes on writing from there. Asks `next_words` and `fill`; computes no chance itself.
//
// state.next = {at: characters before the chosen word, in code points (null: the open place at the end), part (which
//               token of that character), k (guesses), way: "forward" | "backward" (of ELMo), ink: "surprise" | "entropy",
//               from: the text that the writing began with}

import { clear, clip, h, press, redrawn, sliced } from "look/dom.js";
import { hue } from "look/draw.js";
import { pictureOf } from "look/export.js";
import { shownToken } from "look/views/translation_words.js";
import { words } from "look/views/next_words.js";
import { aborted, Refusal } from "look/wire.js";
import { number, percent } from "look/words.js";

export const id = "next";
export const compares = true;
export { css } from "look/views/next_style.js";
export { words };
export const keys = [["← →", "key.move"], ["↓ ↑", "key.down"], ["Enter", "key.go"]];

const COUNTS = [5, 8, 20], DEFAULT_COUNT = 8, MOST_GUESSES = 50;
const MOST_BITS = 14; // of full colour: a word of 1 in 16,384
const AROUND = 90; // characters of a long text that a card shows on either side of the place
const HAN = /\p{Script=Han}/u;
const UNKNOWN = ["[UNK]", "<unk>"];
const MARKS = { "[SEP]": "end", "</s>": "end", "<|endoftext|>": "end", "[CLS]": "begin", "<s>": "begin" }; // and their words
const LIGHT = new Set(["token", "word"]);
const SHADES = [0.1, 0.3, 0.5, 0.75, 1];
const bitsOf = p => (p > 0 ? -Math.log2(p) : Infinity);
const rounded = value => (value < 100 ? number(Math.round(10 * value) / 10, 1) : number(Math.round(value)));
const choices = bits => number(Math.round(2 ** bits));

export function view(app) {
  const { state, t } = app;
  const lead = h("p", { class: "nx-lead" }), controls = h("div", { class: "row" });
  const heading = h("div", { class: "row nx-head" }, lead, controls);
  const sentence = h("div", { class: "nx-sentence", role: "group" }), under = h("div", { class: "nx-under" });
  const readout = h("p", { class: "nx-readout", "aria-live": "off" }), unknown = h("p", { class: "note" });
  const walk = h("div", { class: "row nx-walk" }), cards = h("div", { class: "nx-cards" });
  const body = h("div", { hidden: true }, heading, sentence, under, readout, unknown, walk, cards);
  const root = h("section", {}, body);
  let found = null; // {key, text, model, reply, other: {subject, reply} | null}
  let both = null; // {key, subject, blanks | refusal} of the chosen place
  let textShown = null, wrote = null; // the text of the last show; and the one that a click here made

  // An address may say anything: what is none of its kind is left out.
  function own() {
    const { at, part, k, way, ink, from } = state.next ?? {}, whole = value => Number.isInteger(value) && value >= 0;
    return {
      at: whole(at) ? at : null, part: whole(part) ? part : 0, k: Number.isInteger(k) && k >= 1 && k <= MOST_GUESSES ? k : DEFAULT_COUNT,
      way: way === "backward" && found?.reply.head.words.backward ? way : "forward", ink: ink === "entropy" ? ink : "surprise",
      from: typeof from === "string" && from !== state.text ? from : null,
    };
  }
  const put = patch => app.set({ next: patch });
  const rival = () => { const other = app.compare(); return other && app.has("next", other) ? other : null; };
  const fills = one => one?.heads?.includes("masked");
  const filler = () => [app.compare(), app.subject(), ...app.room.subjects].find(fills) ?? null;
  const keyNow = () => JSON.stringify([state.model, rival()?.index ?? null, state.text, own().k]);

  // The places of a reply: every token, and the open one. `row` is the token after which (backward: before which) it is.
  function placesOf({ head: { tokens } }, way) {
    const back = way === "backward", said = tokens.flatMap((one, at) => (one.special ? [] : [at])), found = [], step = back ? 1 : -1;
    for (const at of said) {
      const before = found.at(-1), same = before && before.start === tokens[at].start && before.end === tokens[at].end;
      found.push({ ...tokens[at], row: tokens[at + step] ? at + step : null, part: same ? before.part + 1 : 0 });
    }
    const last = back ? tokens[said[0]] : tokens[said.at(-1)], edge = back ? last.start : last.end;
    const open = { open: true, token: "", text: "", row: back ? said[0] : said.at(-1), start: edge, end: edge, part: 0 };
    return back ? [open, ...found] : [...found, open];
  }

  function chosenOf(places, { at, part }) {
    const under = at === null ? [] : places.filter(one => !one.open && one.start <= at && at < one.end);
    return under.find(one => one.part === part) ?? under[0] ?? places.find(one => one.open);
  }

  function row({ head, arrays }, way, at) {
    if (at === null) return null;
    const k = arrays[way].shape[1], p = arrays[way].data.subarray(at * k, (at + 1) * k);
    const guesses = head.words[way][at].map((token, n) => ({ token, text: head.texts[way][at][n], probability: p[n] }));
    return { guesses, came: arrays[way + "_came"].data[at], rank: arrays[way + "_rank"].data[at], entropy: arrays[way + "_entropy"].data[at] };
  }

  function labelOf({ token, text }) {
    if (UNKNOWN.includes(token)) return { label: t("unknown.word"), mark: true };
    if (text === null && MARKS[token]) return { label: t(MARKS[token]), mark: true };
    return { label: text === null || token.startsWith("##") ? shownToken(token) : shownToken(text.trim() || text), mark: false };
  }

  // The text up to the place (backward: from it on), with a guess at its end, is the next text.
  function written(place, places, guess) {
    const back = own().way === "backward", beside = places[places.indexOf(place) + (back ? 1 : -1)];
    const rest = !beside ? "" : back ? sliced(state.text, beside.start) : sliced(state.text, 0, beside.end);
    const from = own().from ?? state.text;
    wrote = (back ? guess + rest : rest + guess).trim();
    app.set({ text: wrote, next: { at: null, part: 0, from } });
  }

  function show(changed) {
    if (changed && [...changed].every(name => LIGHT.has(name))) return linked();
    settled(changed);
    if (found?.key !== keyNow()) return asked();
    draw();
    return blanked();
  }

  // A place belongs to a text: another one begins at its end, or where its example says, and was not written here.
  function settled(changed) {
    const another = textShown !== null && textShown !== state.text && state.text !== wrote;
    textShown = state.text;
    if (!another) return;
    const at = app.examples().find(one => one.set.text === state.text)?.set.next?.at ?? null;
    state.next = { ...state.next, from: undefined, ...(changed?.has("next") ? {} : { at, part: 0 }) };
  }

  async function asked() {
    const key = keyNow(), { text } = state, other = rival();
    try {
      if (!text.trim()) throw new Refusal("empty");
      const second = other && app.ask("next_words", { text, k: own().k, model: other.index }).then(reply => ({ subject: other, reply }), error => {
        if (aborted(error) || !(error instanceof Refusal)) throw error;
        return { subject: other, refusal: error };
      });
      second?.catch(() => {}); // said once, by the question below
      const reply = await app.ask("next_words", { text, k: own().k });
      const answered = await second;
      if (key !== keyNow()) return undefined;
      found = { key, text, reply, other: answered };
    } catch (error) {
      if (key === keyNow()) { found = null; body.hidden = true; }
      throw error;
    }
    draw();
    return blanked();
  }

  // What a BERT expects in the chosen place: the same word as a blank, or a blank at the open end.
  function blankOf(place) {
    if (!place.open) return { text: state.text, hide: `${place.start}-${place.end}` };
    const text = state.text.trim(), gap = HAN.test([...text].at(own().way === "backward" ? 0 : -1) ?? "") ? "" : " ";
    return { text: own().way === "backward" ? `[MASK]${gap}${text}` : `${text}${gap}[MASK]`, hide: null };
  }

  async function blanked() {
    const subject = filler();
    if (!subject || !found) return;
    const place = chosenOf(placesOf(found.reply, own().way), own()), asking = { ...blankOf(place), k: own().k, model: subject.index };
    const key = JSON.stringify(asking);
    if (both?.key === key) return;
    try {
      const { head } = await app.ask("fill", asking);
      both = { key, subject, blanks: head.blanks };
    } catch (error) {
      if (aborted(error) || !(error instanceof Refusal)) throw error;
      both = { key, subject, refusal: error };
    }
    if (found) draw();
  }

  function controlsDrawn() {
    const { way, ink, k } = own();
    clear(lead, t(way === "backward" ? "lead.backward" : "lead"));
    const choice = (name, values, chosen, label) => h("div", { class: "row" }, h("span", { class: "label" }, t(name)),
      h("div", { class: "segmented", role: "group", "aria-label": t(name) }, values.map(value => h("button", {
        type: "button", "aria-pressed": String(chosen === value), data: { [name]: value },
        on: { click: () => put({ [name]: value, ...(name === "way" ? { at: null, part: 0 } : {}) }) },
      }, label(value)))));
    redrawn(controls,
      found.reply.head.words.backward && choice("way", ["forward", "backward"], way, value => t("way." + value)),
      choice("ink", ["surprise", "entropy"], ink, value => t("ink." + value)), choice("k", COUNTS, k, String));
  }

  // What a place says of itself: its chance and surprise, or why it has none.
  function toldOf(place, one) {
    const word = place.open ? t(own().way === "backward" ? "open.backward" : "open") : place.text || place.token;
    if (place.open) return word;
    if (!one || one.rank < 0) return t("slot.none", { word });
    return t("slot", { word, chance: percent(one.came), rank: number(one.rank + 1), bits: rounded(bitsOf(one.came)) });
  }

  function sentenceDrawn(places, chosen) {
    const { way, ink } = own(), characters = [...state.text], focus = sentence.contains(document.activeElement), parts = [];
    let end = 0;
    sentence.setAttribute("aria-label", t("sentence"));
    sentence.lang = HAN.test(state.text) ? "zh-CN" : "en";
    for (const place of places) {
      const one = row(found.reply, way, place.row), told = toldOf(place, one);
      const bits = !one ? null : ink === "entropy" ? one.entropy : place.open || one.rank < 0 ? null : bitsOf(one.came);
      if (!place.open && place.start > end) parts.push(characters.slice(end, place.start).join(""));
      end = Math.max(end, place.end);
      const kind = ["nx-word", place.open && "open", place.part && "piece", !one && "blind", place === chosen && "chosen"].filter(Boolean).join(" ");
      parts.push(h("button", {
        type: "button", class: kind, tabindex: place === chosen ? "0" : "-1", title: told, "aria-label": told, "aria-pressed": String(place === chosen),
        data: { start: place.start, end: place.end, place: places.indexOf(place) }, style: bits === null ? null : { "--heat": Math.min(1, bits / MOST_BITS) },
        on: { click: () => put({ at: place.open ? null : place.start, part: place.part }), pointerenter: () => pointed(place, told), pointerleave: () => clear(readout), focus: () => pointed(place, told) },
      }, place.open ? t(way === "backward" ? "open.backward" : "open") : place.part ? "·" : place.text || place.token));
    }
    parts.push(characters.slice(end).join(""));
    clear(sentence, parts);
    linked();
    if (focus) sentence.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
  }

  function pointed(place, told) {
    clear(readout, told);
    if (!place.open) app.set({ word: `${place.start}-${place.end}` });
  }

  // The word that was pointed at last, here or in another view.
  function linked() {
    const [from, to] = (state.word ?? "").split("-").map(Number);
    for (const one of sentence.querySelectorAll(".nx-word:not(.open)")) one.classList.toggle("linked", to > from && from < +one.dataset.end && +one.dataset.start < to);
  }

  // Means over the tokens that have a chance; bits a character, which compare other tokenizers too, where all have one.
  function totalOf(places) {
    const { way } = own(), all = places.map(place => row(found.reply, way, place.row));
    const bits = places.flatMap((place, at) => (place.open || !all[at] || all[at].rank < 0 ? [] : [bitsOf(all[at].came)]));
    const sum = values => values.reduce((total, value) => total + value, 0), entropies = all.filter(Boolean).map(one => one.entropy);
    const whole = bits.length === places.length - 1 ? sum(bits) / [...state.text].length : null;
    return { n: bits.length, bits: bits.length ? sum(bits) / bits.length : null, whole, entropy: sum(entropies) / entropies.length };
  }

  function totalText(places) {
    const { n, bits, whole, entropy } = totalOf(places);
    if (own().ink === "entropy") return t("total.entropy", { choices: choices(entropy) });
    if (bits === null) return "";
    return t("total", { bits: rounded(bits), perplexity: rounded(2 ** bits), n, whole: whole === null ? "" : t("total.whole", { bits: rounded(whole) }) });
  }

  function underDrawn(places) {
    const kind = own().ink === "entropy" ? ".entropy" : "";
    clear(under, h("span", { class: "nx-scale" }, t("low" + kind), h("i", { "aria-hidden": "true" }, SHADES.map(heat => h("b", { style: { "--heat": heat } }))), t("high" + kind)),
      h("span", {}, totalText(places)));
    const lost = places.filter(one => !one.open && UNKNOWN.includes(one.token));
    clear(unknown, lost.length > 0 && t("unknown", { words: [...new Set(lost.map(one => one.text))].join(" · ") }));
  }

  // The text as a card's model sees it: the place as a gap, and faint what it does not see.
  function seenOf(place, { left, right }) {
    const before = [...sliced(state.text, 0, place.start)], near = before.length > AROUND ? ["…", ...before.slice(-AROUND)] : before;
    return h("p", { class: "nx-seen", lang: HAN.test(state.text) ? "zh-CN" : "en" }, h("span", { class: left ? "" : "unseen" }, near.join("")),
      h("i", { class: "gap", role: "img", "aria-label": "___" }, "\u2003"), h("span", { class: right ? "" : "unseen" }, clip(sliced(state.text, place.end), AROUND)));
  }

  function guessRow(one, { true: hit, far, go } = {}) {
    const { label, mark } = one.label ? one : labelOf(one), chance = percent(one.probability);
    const inside = [h("span", { class: "what" + (mark ? " mark" : "") }, label), h("span", { class: "bar-line" }, h("i", { style: { "--part": one.probability } })), h("span", { class: "num" }, chance)];
    const kind = `nx-guess${hit ? " true" : ""}${far ? " far" : ""}`;
    return go ? h("button", { type: "button", class: kind, "aria-label": `${t("go", { word: label })}, ${chance}`, on: { click: go } }, inside) : h("div", { class: kind }, inside);
  }

  function card(n, subject, sees, ...inside) {
    return h("article", { class: "nx-card", style: { "--mine": hue([0, 4, 1][n]) }, data: { card: ["mine", "other", "both"][n] } },
      h("header", {}, h("b", {}, subject.title), h("span", {}, sees)), inside);
  }

  const sightOf = (subject, way) => (way === "backward" ? t("sees.right") : subject.facts?.context ? t("sees.few", { n: subject.facts.context }) : t("sees.left"));

  function expected(n, subject, reply, place, places, note = null) {
    const { way } = own(), one = row(reply, way, place.row), sides = { left: way === "forward", right: way === "backward" };
    if (!one) return card(n, subject, sightOf(subject, way), note, seenOf(place, sides), h("p", { class: "caption" }, t(way === "backward" ? "no.begin.backward" : "no.begin")));
    const listed = !place.open && one.rank >= 0 && one.rank < one.guesses.length;
    const rows = one.guesses.map((guess, at) => guessRow(guess, { true: listed && at === one.rank, go: n === 0 && guess.text !== null ? () => written(place, places, guess.text) : null }));
    if (!place.open && one.rank >= one.guesses.length) rows.push(guessRow({ label: shownToken(place.text || place.token), probability: one.came }, { true: true, far: true }));
    return card(n, subject, sightOf(subject, way), note, seenOf(place, sides), rows,
      h("p", { class: "caption" }, cameOf(place, one), state.lang === "zh" ? "" : " ", t("unsure", { bits: rounded(one.entropy), choices: choices(one.entropy) })));
  }

  function cameOf(place, one) {
    const word = place.text || place.token;
    if (place.open) return t("came.open");
    if (one.rank < 0) return t("came.unknown", { word });
    return one.rank === 0 ? t("came.first", { word }) : t("came", { word, chance: percent(one.came), rank: number(one.rank + 1), bits: rounded(bitsOf(one.came)) });
  }

  // The other model's place is the same in the text; where its tokens have no such boundary, the first one after it.
  function otherCard(place) {
    const { subject, reply, refusal } = found.other, { way } = own();
    if (refusal) return card(1, subject, sightOf(subject, way), app.refusal(refusal));
    if (!reply.head.words[way]) return null; // it reads in one direction alone
    const places = placesOf(reply, way), same = places.filter(one => one.start === place.start);
    const mine = same.find(one => Boolean(one.open) === Boolean(place.open)) ?? same[0] ?? places.find(one => one.start > place.start) ?? places.at(-1);
    return expected(1, subject, reply, mine, places, !same.length && h("p", { class: "note" }, t("no.boundary", { model: subject.title })));
  }

  function bothCard(place) {
    const subject = filler();
    if (!subject) return h("p", { class: "note nx-card" }, t("both.none"));
    const ours = both && both.subject === subject && both.key === JSON.stringify({ ...blankOf(place), k: own().k, model: subject.index }) ? both : null;
    const inside = ours?.refusal ? [app.refusal(ours.refusal)] : (ours?.blanks ?? []).map((blank, n, all) => {
      const listed = blank.truth && blank.candidates.some(one => one.token === blank.truth.token);
      const label = one => ({ ...one, label: one.token });
      return [all.length > 1 && h("h4", {}, t("piece", { n: n + 1 })),
        blank.candidates.map(one => guessRow(label(one), { true: blank.truth?.token === one.token })), blank.truth && !listed && guessRow(label(blank.truth), { true: true, far: true }),
        blank.truth && h("p", { class: "caption" }, t(blank.truth.rank === 1 ? "blank.first" : "blank", { word: blank.truth.text, chance: percent(blank.truth.probability), rank: number(blank.truth.rank) }))];
    });
    const hide = place.open ? null : `${place.start}-${place.end}`;
    return card(2, subject, t("sees.both"), seenOf(place, { left: true, right: true }), inside, place.open && h("p", { class: "caption" }, t("nothing." + own().way)),
      hide && press("quiet", () => app.set({ view: "fill", model: subject.index, fill: { hide } }), t("both.open")));
  }

  function draw() {
    const places = placesOf(found.reply, own().way), chosen = chosenOf(places, own()), { from } = own();
    body.hidden = false;
    controlsDrawn();
    sentenceDrawn(places, chosen);
    underDrawn(places);
    redrawn(walk, from !== null && [press("chip reset", () => { wrote = from; app.set({ text: from, next: { at: null, part: 0, from: undefined } }); }, t("reset")), h("span", { class: "faint" }, clip(from, 60))]);
    redrawn(cards, expected(0, app.subject(), found.reply, chosen, places), found.other && otherCard(chosen), bothCard(chosen));
    Object.assign(root.dataset, { way: own().way, place: places.indexOf(chosen) });
  }

  sentence.addEventListener("keydown", event => {
    const all = [...sentence.querySelectorAll(".nx-word")], at = all.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "ArrowDown") { event.preventDefault(); cards.querySelector("button.nx-guess")?.focus(); }
    if (to === undefined || at < 0) return;
    event.preventDefault();
    all[Math.max(0, Math.min(all.length - 1, to))].click();
    sentence.querySelector("[tabindex='0']")?.focus();
  });
  cards.addEventListener("keydown", event => {
    const all = [...cards.querySelectorAll("button.nx-guess")], at = all.indexOf(document.activeElement), by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by || at < 0) return;
    event.preventDefault();
    if (at + by < 0) sentence.querySelector("[tabindex='0']")?.focus();
    else all[Math.min(all.length - 1, at + by)].focus();
  });

  function numbers() {
    if (!found) return {};
    const { way } = own(), places = placesOf(found.reply, way), chosen = chosenOf(places, own()), one = row(found.reply, way, chosen.row);
    return {
      way, place: places.indexOf(chosen), open: Boolean(chosen.open), words: places.map(place => (place.open ? null : place.text)),
      surprise: places.map(place => { const at = row(found.reply, way, place.row); return !at || place.open || at.rank < 0 ? null : bitsOf(at.came); }),
      guesses: one?.guesses ?? null, entropy: one?.entropy ?? null, came: one?.came ?? null, rank: one?.rank ?? null,
      blanks: both && filler() === both.subject ? both.blanks ?? null : null, from: own().from,
    };
  }

  return { root, show, hide() {}, svg: () => (found && !body.hidden ? pictureOf(root, { without: [heading, walk] }) : null), numbers };
}
