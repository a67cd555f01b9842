// What a person can try with a model: the fields of each task, and the request that is made of them.
//
//   tasksOf(info) → [task]                     in the order of the server; sentences are compared by their vectors, and a
//                                              model with vectors, or of text pairs, can rank documents
//   fieldsOf(task, info) → [{name, kind}]      kind: "text" (large), "passage", "lines" (one a line), "number"
//   requestOf(task, info, values) → {method, path, body, streams}     throws the key of a text if a field is empty
//
// Everything goes through POST /models/NAME with Hugging Face's shapes, but for what has none: documents (Jina's shape)
// and streams (OpenAI's).

const VECTORS = ["feature-extraction", "sentence-similarity"];
const MOST_LABELS = 12;

export function tasksOf({ tasks = [], is_reranker: scores }) {
  const found = [];
  for (const task of tasks) {
    const shown = VECTORS.includes(task) ? "similarity" : task;
    if (!found.includes(shown) && shown in FIELDS) found.push(shown);
  }
  if (scores || tasks.some(task => VECTORS.includes(task))) found.push("rerank");
  return found;
}

const text = { name: "text", kind: "text" };
const FIELDS = {
  "text-classification": [text],
  "token-classification": [text],
  "question-answering": [{ name: "question", kind: "text" }, { name: "context", kind: "passage" }],
  "multiple-choice": [{ name: "context", kind: "passage", optional: true }, { name: "question", kind: "text" }, { name: "choices", kind: "lines" }],
  "fill-mask": [text],
  similarity: [{ name: "sentences", kind: "lines" }],
  rerank: [{ name: "query", kind: "text" }, { name: "documents", kind: "lines" }],
  translation: [text],
  "text-generation": [
    { name: "prompt", kind: "text" },
    { name: "max_tokens", kind: "number", first: 60, min: 1, max: 1000, step: 1 },
    { name: "temperature", kind: "number", first: 0.8, min: 0, max: 2, step: 0.1 },
  ],
};

export function fieldsOf(task, info) {
  return task === "text-classification" && info.reads_pairs ? [...FIELDS[task], { name: "pair", kind: "text" }] : FIELDS[task] ?? [];
}

export function requestOf(task, info, values) {
  const given = {};
  for (const { name, kind, optional, first } of fieldsOf(task, info)) {
    if (kind === "lines") given[name] = (values[name] ?? []).map(line => line.trim()).filter(Boolean);
    else if (kind === "number") given[name] = Number.isFinite(values[name]) ? values[name] : first;
    else given[name] = values[name] ?? "";
    if (!optional && !given[name]?.length && kind !== "number") throw new Error("empty." + name);
  }
  return MAKERS[task](given, info, `models/${info.name}`);
}

const post = (path, body, more = {}) => ({ method: "POST", path, body, ...more });

const MAKERS = {
  "text-classification": ({ text, pair }, info, path) =>
    post(path, { inputs: pair === undefined ? text : { text, text_pair: pair }, parameters: { top_k: Math.min(MOST_LABELS, info.labels?.length || MOST_LABELS) } }),
  "token-classification": ({ text }, info, path) => post(path, { inputs: text, parameters: { aggregation_strategy: "simple" } }),
  "question-answering": ({ question, context }, info, path) => post(path, { inputs: { question, context } }),
  "multiple-choice": ({ context, question, choices }, info, path) =>
    post(path, { inputs: { ...(context && { text: context }), question, choices } }),
  "fill-mask": ({ text }, info, path) => post(path, { inputs: text, parameters: { top_k: 6 } }),
  similarity: ({ sentences }, info, path) => post(`${path}/pipeline/feature-extraction`, { inputs: sentences, normalize: true }),
  rerank: ({ query, documents }, info) => post("v1/rerank", { model: info.name, query, documents }),
  translation: ({ text }, info, path) => post(path, { inputs: text }),
  "text-generation": ({ prompt, max_tokens: most, temperature }, info) =>
    post("v1/completions", { model: info.name, prompt, max_tokens: most, temperature, stream: true, stream_options: { include_usage: true } }, { streams: true }),
};
