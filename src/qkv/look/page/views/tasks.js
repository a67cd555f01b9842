// Tasks: what a fine-tuned model says about a text, with everything it weighed. A classifier's and a tagger's text is the
// shell's; a reader's passage and question, and a chooser's choices, are fields of this view (state.tasks). How each
// answer is drawn is tasks_drawn.js; nothing is decided here.

import { clear, debounced, h } from "look/dom.js";
import { pictureOf } from "look/export.js";
import { drawnBy } from "look/views/tasks_drawn.js";
import { aborted, Refusal } from "look/wire.js";

export const id = "tasks";
export const compares = true;
export { css } from "look/views/tasks_style.js";
export { words } from "look/views/tasks_words.js";

// Which of the shell's fields a task reads, and which examples are for it.
const FIELDS = { classify: ["text", "pair"], tag: ["text"], answer: [], choice: [] };
export const inputs = subject => FIELDS[subject?.task] ?? ["text"];
export function offers(example, subject) {
  const own = example.set.tasks;
  const wanted = !own ? ["classify", "tag"] : own.choices ? ["choice"] : ["answer"];
  return (example.task ? [example.task] : wanted).includes(subject?.task);
}

const QUIET = 350; // milliseconds without a key after which a field is taken

export function view(app) {
  const { state, t } = app;
  const lead = h("p", { class: "tasks-lead" });
  const fields = { question: field("input", "question"), passage: field("textarea", "passage"), choices: field("textarea", "choices") };
  const questions = h("div", { class: "row tasks-examples", role: "group" });
  const asking = h("div", { class: "tasks-asking" });
  const head = h("div", { class: "tasks-head" }, lead, asking);
  const answers = h("div", {});
  const root = h("section", {}, head, answers);
  let drawn = [], asked = "", editing = false;

  // What is asked: the state's, or the first example of the reader's language where nobody wrote anything yet.
  function own() {
    const list = app.examples(), first = list.find(one => one.lang === state.lang) ?? list[0];
    const given = state.tasks ?? {};
    return given.passage === undefined ? { ...first?.set.tasks, ...given } : given;
  }

  const listed = value => (Array.isArray(value) ? value.join("\n") : value ?? "");
  const read = (name, text) => (name === "choices" ? text.split("\n").map(line => line.trim()).filter(Boolean) : text);

  function field(tag, name) {
    const shape = tag === "textarea" ? { rows: name === "passage" ? 6 : 4 } : { type: "text" };
    const node = h(tag, { class: `field tasks-${name}`, id: "tasks-" + name, spellcheck: "false", autocomplete: "off", ...shape });
    const take = debounced(() => app.set({ tasks: { ...own(), [name]: read(name, node.value) } }), QUIET);
    node.addEventListener("input", take);
    node.addEventListener("blur", () => take.now());
    node.addEventListener("keydown", event => {
      if (event.key === "Enter" && (tag === "input" || event.ctrlKey || event.metaKey)) { take(); take.now(); }
      if (event.key === "Escape") node.blur();
    });
    return node;
  }

  function fieldsOf(task) {
    if (task !== "answer" && task !== "choice") return [];
    const labelled = name => h("label", { class: "tasks-field" }, h("span", { class: "label" }, t(name)), fields[name]);
    const turned = () => {
      editing = !editing;
      askingDrawn();
      if (editing) fields.passage.focus();
    };
    const toggle = h("button", { type: "button", class: "quiet", "aria-expanded": String(editing), on: { click: turned } },
      t(editing ? "passage.done" : "passage.edit"));
    if (task === "answer") return [labelled("question"), h("div", { class: "row tasks-examples" }, questions, toggle), editing && labelled("passage")];
    return [labelled("passage"), labelled("question"), labelled("choices")];
  }

  function askingDrawn() {
    const { task, kind } = app.subject(), now = own();
    const special = `lead.${task}.${kind}`, said = t(special); // of models that have no [CLS]
    clear(lead, said === special ? t("lead." + (task ?? "classify")) : said);
    for (const [name, node] of Object.entries(fields)) {
      const value = listed(now[name]);
      if (document.activeElement !== node && node.value !== value) node.value = value;
      node.setAttribute("aria-label", t(name));
      node.placeholder = t(name + ".hint");
      node.lang = /\p{Script=Han}/u.test(value) ? "zh-CN" : "en";
    }
    const shape = [task, editing, state.lang].join();
    if (asking.dataset.shape !== shape) { // built anew only then: a field that is moved loses its caret
      asking.dataset.shape = shape;
      clear(asking, fieldsOf(task));
    }
    const near = one => one.set.tasks?.question && (one.lang === state.lang || one.set.tasks.passage === now.passage);
    const asked = ({ question, passage }) => question === now.question && passage === now.passage;
    clear(questions, app.examples().filter(near).map(one => h("button", {
      type: "button", class: "chip", lang: one.lang === "zh" ? "zh-CN" : "en", title: one.title[state.lang] ?? one.title.en,
      "aria-pressed": String(asked(one.set.tasks)), on: { click: () => app.set({ tasks: one.set.tasks }) },
    }, one.set.tasks.question)));
  }

  function questionFor({ task }) {
    const now = own();
    if (task === "answer") return { text: now.passage ?? "", question: now.question ?? "" };
    if (task === "choice") return { text: now.passage || null, question: now.question || null, choices: now.choices?.length ? now.choices : null };
    return { text: state.text, pair: task === "classify" && state.pair.trim() ? state.pair : null };
  }

  async function answered(subject) {
    const question = questionFor(subject);
    try {
      if (subject.task === "choice" && !question.choices) throw new Refusal("no_choices");
      if (!(question.text ?? question.question ?? "").trim()) throw new Refusal("empty");
      if (subject.task === "answer" && !question.question.trim()) throw new Refusal("no_question");
      return { subject, question, reply: await app.ask("task", { ...question, model: subject.index }) };
    } catch (error) {
      if (aborted(error) || !(error instanceof Refusal)) throw error;
      return { subject, refusal: error };
    }
  }

  async function show(changed) {
    if (changed && [...changed].every(name => ["token", "word", "chosen", "layer", "head", "size"].includes(name))) return;
    askingDrawn();
    const other = app.compare(), subject = app.subject();
    const subjects = [subject, ...(other?.task === subject.task ? [other] : [])];
    const key = JSON.stringify([subjects.map(one => one.index), subjects.map(questionFor)]);
    if (key !== asked) drawn = await Promise.all(subjects.map(answered));
    asked = key;
    clear(answers, drawn.map(one => h("div", { class: "tasks-one", data: { task: subject.task } },
      drawn.length > 1 && h("h3", {}, one.subject.title),
      one.refusal ? app.refusal(one.refusal) : drawnBy[one.reply.head.task](one.reply, one.question, t))));
  }

  // The entity under the pointer is the word that the other views begin with.
  answers.addEventListener("pointerover", event => {
    const { start, end } = event.target.closest?.(".tasks-entity")?.dataset ?? {};
    if (end !== undefined) app.set({ word: `${start}-${end}` });
  });

  return {
    root, show, hide() {},
    svg: () => (drawn.some(one => one.reply) ? pictureOf(root, { without: lead }) : null),
    numbers: () => ({ answers: drawn.filter(one => one.reply).map(one => ({ model: one.subject.index, head: one.reply.head, arrays: one.reply.arrays })) }),
  };
}
