// The page of the API, drawn from GET /openapi.json: families (tags) of requests with their fields, an example that can be
// changed and sent, the same as curl and Python, and the reply. It knows no route by itself.
//
// Read of the document: tags (name, description, x-name-zh, x-description-zh); paths with summary and x-summary-zh,
// parameters, requestBody (schema with properties, examples).

import { curlOf, json, pythonOf } from "./code.js";
import { codebox } from "./codebox.js";
import { button, clear, h, icon } from "./dom.js";
import { shortened } from "./draw.js";
import { brand, links, tools } from "./shell.js";
import { apply, number, state, subscribe, t, words } from "./state.js";
import { complaint, Failed, needsToken, read, send } from "./wire.js";
import { WORDS } from "./words.js";

const METHODS = ["get", "post"];
const FIELD = /\{(\w+)(?::\w+)?\}/g;

words(WORDS);
words({
  en: {
    "api": "API", "api.lead": "Every request that this server answers. The shapes are those of Hugging Face, OpenAI, text-embeddings-inference, Jina, Cohere and LibreTranslate, so that their clients work unchanged. The description itself:",
    "front": "Try the models", "try": "Send", "parameters": "Fields", "field": "field", "type": "type", "meaning": "meaning", "body": "Body", "body.bad": "This is not JSON: {why}", "required": "required", "default": "default {value}", "stat": "{status}, {ms} ms", "families": "Families",
  },
  zh: {
    "api": "接口", "api.lead": "本服务能回答的全部请求。格式与 Hugging Face、OpenAI、text-embeddings-inference、Jina、Cohere 和 LibreTranslate 相同，它们的客户端不用改就能连上。原始描述见：",
    "front": "试用模型", "try": "发送", "parameters": "字段", "field": "字段", "type": "类型", "meaning": "含义", "body": "请求体", "body.bad": "这不是 JSON：{why}", "required": "必填", "default": "默认 {value}", "stat": "{status}，{ms} 毫秒", "families": "类别",
  },
});

let api = null, models = [], failed = null, token = false;
const opened = new Set(); // of operations, so that a change of language keeps them open
const rail = h("nav", { class: "rail" }), head = h("header", { class: "head" }), apis = h("main", { class: "apis" });

const said = (one, name) => (state.lang === "zh" && one?.[`x-${name}-zh`]) || one?.[name] || "";
const tasksOf = name => models.find(one => one.id === name)?.tasks ?? [];
const resolved = schema => (schema?.$ref ? resolved(schema.$ref.slice(2).split("/").reduce((at, part) => at?.[part], api)) : schema ?? {});

function families() {
  const found = new Map((api.tags ?? []).map(tag => [tag.name, { tag, operations: [] }]));
  for (const [path, item] of Object.entries(api.paths ?? {})) {
    for (const method of METHODS.filter(name => item[name])) {
      const operation = item[method], name = operation.tags?.[0] ?? "";
      if (!found.has(name)) found.set(name, { tag: { name }, operations: [] });
      found.get(name).operations.push({ path, method, operation });
    }
  }
  return [...found.values()].filter(one => one.operations.length);
}

const idOf = tag => "family-" + tag.name.replace(/\W+/g, "-");
const titleOf = tag => said(tag, "name");

function typeOf(given) {
  const schema = resolved(given), kinds = schema.oneOf ?? schema.anyOf;
  if (kinds) return [...new Set(kinds.map(typeOf))].join(" | ");
  if (schema.enum) return schema.enum.map(value => JSON.stringify(value)).join(" | ");
  if (schema.type === "array") return `[${typeOf(schema.items ?? {})}]`;
  return Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type ?? "any";
}

function fieldRow(name, schema, meaning, isRequired = false) {
  return h("tr", {}, h("td", {}, name, isRequired && h("sup", { title: t("required") }, " *")), h("td", { class: "type" }, typeOf(schema)), h("td", {}, meaning));
}

function fieldRows(schema, prefix = "") {
  const whole = resolved(schema), must = new Set(whole.required ?? []);
  return Object.entries(whole.properties ?? {}).flatMap(([name, given]) => {
    const one = resolved(given), more = one.default === undefined ? "" : t("default", { value: JSON.stringify(one.default) });
    const row = fieldRow(prefix + name, given, [said(one, "description"), more].filter(Boolean).join(" · "), must.has(name));
    return one.type === "object" && one.properties ? [row, ...fieldRows(one, `${prefix}${name}.`)] : [row];
  });
}

// The examples of a request; their names say what the model must be able to do and the language: "3-fill-mask-zh".
function examplesOf(operation) {
  const content = operation.requestBody?.content?.["application/json"];
  if (!content) return [];
  const found = Object.entries(content.examples ?? {}).map(([name, { value }]) => {
    const [, task, lang] = /^\d+-(.+)-(zh|en)$/.exec(name) ?? [];
    return { name: task && task !== "any" ? `${task} · ${lang}` : lang ?? name, task: task === "any" ? null : task, lang, value };
  });
  return found.length ? found : [{ name: "", value: content.example ?? {} }];
}

function operationDrawn({ path, method, operation }) {
  const id = `${method} ${path}`, parts = path.split(FIELD); // every second one is the name of a field
  const node = h("details", { class: "operation", open: opened.has(id), data: { operation: id } },
    h("summary", {}, h("span", { class: `method ${method}` }, method.toUpperCase()),
      h("span", { class: "path" }, parts.map((part, at) => (at % 2 ? h("i", {}, `{${part}}`) : part))), h("span", { class: "summary" }, said(operation, "summary"))));
  const fill = () => { if (node.open && !node.querySelector(".inside")) node.append(insideDrawn(path, method, operation)); };
  node.addEventListener("toggle", () => { node.open ? opened.add(id) : opened.delete(id); fill(); });
  fill();
  return node;
}

function insideDrawn(path, method, operation) {
  const examples = examplesOf(operation), content = operation.requestBody?.content?.["application/json"];
  const fields = [...path.matchAll(FIELD)].map(([, name]) => fieldOf(name, operation)), fieldNamed = id => fields.find(one => one.id === id)?.node;
  const area = examples.length > 0 && h("textarea", { class: "code", spellcheck: "false", "aria-label": t("body") });
  const chips = examples.length > 1 && h("div", { class: "examples", role: "group", "aria-label": t("examples") },
    examples.map(one => button("chip", () => use(one), one.name)));
  const plain = resolved(operation.responses?.["200"]?.content?.["application/json"]?.schema).type === "string";
  const box = codebox(), outcome = h("p", { class: "note", role: "status" });
  let reply = null;

  // An example in the field, and a model that can answer it in the path.
  function use(one) {
    area.value = json(one.value);
    area.rows = area.value.split("\n").length + 1;
    const name = fieldNamed("name"), task = fieldNamed("task");
    if (one.task && name && !tasksOf(name.value).includes(one.task)) {
      name.value = models.find(model => model.tasks?.includes(one.task))?.id ?? name.value;
    }
    if (one.task && task) task.value = one.task;
    for (const [at, chip] of chips ? [...chips.children].entries() : []) chip.setAttribute("aria-pressed", String(examples[at] === one));
    reply = null;
    shown();
  }

  // The example in the reader's language of something that the chosen model does, its first task if there is one.
  function first() {
    const able = tasksOf(fieldNamed("name")?.value);
    const place = one => (!one.task || !able.length ? 0 : able.includes(one.task) ? able.indexOf(one.task) : able.length);
    const rank = one => 2 * place(one) + (one.lang !== state.lang);
    return [...examples].sort((a, b) => rank(a) - rank(b))[0];
  }

  function request() {
    const filled = path.replace(FIELD, (_, name) => fieldNamed(name).value).replace(/^\//, "");
    const made = { method: method.toUpperCase(), path: filled };
    if (area) made.body = JSON.parse(area.value);
    return { ...made, plain, streams: made.body?.stream === true };
  }

  function shown() {
    let made;
    try { made = request(); } catch (error) { clear(outcome, t("body.bad", { why: error.message })); return null; }
    clear(outcome);
    const note = token ? t("token.note") : "";
    const tabs = [{ name: "curl", text: curlOf(made, token), note }, { name: "Python", text: pythonOf(made, token), note }];
    if (reply) tabs.push({ name: "reply", label: t("reply"), text: reply.data === null ? reply.text : shortened(reply.data) });
    box.show(tabs);
    return made;
  }

  async function sent() {
    const made = shown();
    if (!made) return;
    try {
      reply = await send(made);
      shown();
      box.choose("reply");
      clear(outcome, t("stat", { status: reply.status, ms: number(Math.round(reply.facts.ms)) }), !reply.ok && `: ${complaint(reply)}`);
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      clear(outcome, error.message || t("fault.gone"));
    }
  }

  for (const node of [area, ...fields.map(one => one.node)]) node && node.addEventListener("input", () => { reply = null; shown(); });
  fieldNamed("name")?.addEventListener("input", () => area && use(first()));
  area ? use(first()) : shown();
  const queried = (operation.parameters ?? []).filter(one => one.in === "query");
  const rows = content ? fieldRows(content.schema) : queried.map(one => fieldRow(one.name, one.schema, said(one, "description")));
  const columns = h("tr", {}, ["field", "type", "meaning"].map(name => h("th", { scope: "col" }, t(name))));
  const table = rows.length > 0 && h("table", { class: "params" }, h("thead", {}, columns), h("tbody", {}, rows));
  return h("div", { class: "inside" },
    h("div", {}, fields.map(one => h("label", { class: "number" }, h("span", { class: "label" }, one.id), one.node)), chips, area,
      h("div", {}, button("primary", sent, icon("try"), t("try"))), outcome),
    h("div", {}, box.root), table && h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": t("parameters") }, table));
}

// A field of the path: the served models are offered where one is meant.
function fieldOf(id, operation) {
  const about = (operation.parameters ?? []).find(one => one.name === id && one.in === "path");
  const choices = resolved(about?.schema).enum ?? (id === "name" ? models.map(one => one.id) : null);
  if (choices?.length) return { id, node: h("select", { class: "field", "aria-label": id }, choices.map(name => h("option", { value: name }, name))) };
  return { id, node: h("input", { class: "field", "aria-label": id, value: about?.example ?? "" }) };
}

function drawn() {
  document.title = `${t("api")} · qkv serve`;
  rail.setAttribute("aria-label", t("families"));
  const all = api ? families() : [];
  clear(rail, brand(),
    h("div", { class: "places" }, all.map(({ tag }) => h("a", { class: "place", href: "#" + idOf(tag) }, h("span", { class: "name" }, titleOf(tag))))),
    links([["./", "try", t("front")], ["look/", "look", t("look")]]));
  clear(head, h("div", { class: "line" }, h("h1", {}, t("api")), tools()),
    h("p", { class: "note" }, t("api.lead"), " ", h("a", { href: "openapi.json" }, "openapi.json")));
  clear(apis, failed && h("div", { class: "refusal", role: "alert" }, h("b", {}, failed.status || ""), h("p", {}, failed.message || t("fault.gone"))),
    all.map(({ tag, operations }) => h("section", { class: "family", id: idOf(tag) },
      h("h2", {}, titleOf(tag)), h("p", {}, said(tag, "description")), operations.map(operationDrawn))));
}

async function start() {
  try {
    [api, models, token] = await Promise.all([read("openapi.json"), read("v1/models").then(list => list.data), needsToken()]);
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
    failed = error;
  }
  drawn();
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  document.documentElement.dataset.started = "1";
}

apply();
document.body.append(rail, h("div", { class: "page" }, head, apis));
subscribe(() => { drawn(); head.querySelector(".tool")?.focus({ preventScroll: true }); });
start();
