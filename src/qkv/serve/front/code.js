// A request as people would write it: a line for the shell, and Python, once with the standard library and once with the
// client library that speaks the same shape. Whatever is here is the request that was sent, character by character.
//
//   codeOf(request, task, info, token) → [{name, text}]    token: whether programs need one ($QKV_TOKEN stands for it)
//   curlOf(request, token), pythonOf(request, token) → string
//   json(value), literal(value) → string                   as JSON and as Python writes it; a Raw inside stays as it is

import { address } from "./wire.js";

const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;
const WIDE = 76; // characters of a line
const MEDIA = "Content-Type: application/json";

export function codeOf(request, task, info, token) {
  const made = [{ name: "curl", text: curlOf(request, token) }, { name: "Python", text: pythonOf(request, token) }];
  const client = request.method === "POST" && CLIENTS[task]?.(request, info, token);
  if (client) made.push(client);
  return made;
}

export function curlOf({ path, body, streams }, token) {
  const parts = [`curl ${streams ? "-N " : ""}${quoted(address(path))}`];
  if (token) parts.push(`-H "Authorization: Bearer $QKV_TOKEN"`);
  if (body !== undefined) parts.push(`-H ${quoted(MEDIA)}`, `-d ${quoted(json(body))}`);
  return parts.join(" \\\n  ");
}

const PIECES = [
  "for line in urlopen(request):",
  '    if line.startswith(b"data: {"):',
  '        for choice in json.loads(line[6:])["choices"]:',
  '            print(choice["text"], end="", flush=True)',
];

export function pythonOf({ path, body, streams, plain }, token) {
  const headers = [];
  if (body !== undefined) headers.push('"Content-Type": "application/json"');
  if (token) headers.push('"Authorization": f"Bearer {os.environ[\'QKV_TOKEN\']}"');
  const lines = ["import json", ...(token ? ["import os"] : []), "from urllib.request import Request, urlopen", ""];
  if (body !== undefined) lines.push(`body = ${literal(body)}`);
  const given = [JSON.stringify(address(path))];
  if (body !== undefined) given.push("json.dumps(body).encode()");
  if (headers.length) given.push(`headers={${headers.join(", ")}}`);
  lines.push(`request = Request(\n    ${given.join(",\n    ")},\n)`);
  if (streams && path.endsWith("completions")) lines.push(...PIECES);
  else if (streams) lines.push("for line in urlopen(request):", '    print(line.decode(), end="", flush=True)');
  else lines.push(plain ? "print(urlopen(request).read().decode())" : "print(json.load(urlopen(request)))");
  return lines.filter(line => body !== undefined || !plain || line !== "import json").join("\n") + "\n";
}

// A value over as few lines as it needs, as JSON or as Python writes it.
export const json = value => layout(value, "", "  ", JSON.stringify, "");
export const literal = (value, indent = "") => layout(value, indent, "    ", inPython, ",");

export class Raw { // text that stands for a value, as it is
  constructor(text) { this.text = text; }
}

const inPython = value => (value === null ? "None" : value === true ? "True" : value === false ? "False" : JSON.stringify(value));

function layout(value, indent, step, leaf, last) {
  if (value instanceof Raw) return value.text;
  if (value === null || typeof value !== "object") return leaf(value);
  const isList = Array.isArray(value), [open, close] = isList ? "[]" : "{}", deeper = indent + step;
  const inner = one => layout(one, deeper, step, leaf, last);
  const parts = isList ? value.map(inner) : Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${inner(one)}`);
  const short = open + parts.join(", ") + close;
  if (indent.length + short.length <= WIDE && !short.includes("\n")) return short;
  return `${open}\n${parts.map(part => deeper + part).join(",\n")}${last}\n${indent}${close}`;
}

// huggingface_hub and openai, where they have a method for it.

const hub = call => ({ body }, info, token) => {
  const made = call(body);
  const key = token ? ', token=os.environ["QKV_TOKEN"]' : "";
  return made && {
    name: "huggingface_hub",
    text: program(token, "from huggingface_hub import InferenceClient", `client = InferenceClient(${literal(address(`models/${info.name}`))}${key})`, made),
  };
};

const openai = call => ({ body }, info, token) => {
  const key = token ? 'os.environ["QKV_TOKEN"]' : '"none"';
  const made = `client = OpenAI(base_url=${literal(address("v1"))}, api_key=${key})`;
  return { name: "openai", text: program(token, "from openai import OpenAI", made, call(body, info)) };
};

const program = (token, imports, ...lines) => [...(token ? ["import os", ""] : []), imports, "", ...lines, ""].join("\n");

const CLIENTS = {
  "text-classification": hub(({ inputs, parameters }) => { // it has no text pairs
    return typeof inputs === "string" && `print(client.text_classification(${literal(inputs)}, top_k=${parameters.top_k}))`;
  }),
  "token-classification": hub(({ inputs }) => `print(client.token_classification(${literal(inputs)}, aggregation_strategy="simple"))`),
  "question-answering": hub(({ inputs }) => [
    "answer = client.question_answering(", `    question=${literal(inputs.question)},`, `    context=${literal(inputs.context)},`, ")", "print(answer)",
  ].join("\n")),
  "fill-mask": hub(({ inputs, parameters }) => `print(client.fill_mask(${literal(inputs)}, top_k=${parameters.top_k}))`),
  translation: hub(({ inputs }) => `print(client.translation(${literal(inputs)}))`),
  similarity: openai(({ inputs }, info) => [
    `reply = client.embeddings.create(model=${literal(info.name)}, input=${literal(inputs)})`, "print([len(one.embedding) for one in reply.data])",
  ].join("\n")),
  "text-generation": openai(({ prompt, max_tokens: most, temperature }, info) => [
    "pieces = client.completions.create(", `    model=${literal(info.name)},`, `    prompt=${literal(prompt)},`,
    `    max_tokens=${most},`, `    temperature=${temperature},`, "    stream=True,", ")",
    "for piece in pieces:", '    print(piece.choices[0].text if piece.choices else "", end="", flush=True)',
  ].join("\n")),
};
