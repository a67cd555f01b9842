// Requests to the server that sent this page, and what came back with them: status, headers, time.
//
//   send({method, path, body}, {signal, piece}?) → {status, ok, data, text, facts, retryAfter}
//       data     the JSON of the reply, or null; text: the body as it came
//       facts    {ms, tokens, windows, truncated, tokenise, queue, inference} as far as the reply says so; times in ms
//       piece    heard with every piece of a streamed completion; data is then the whole as if it had not been streamed
//   read(path) → JSON; throws Failed
//   Failed       a reply with an error status, or none: {status, message}; `message` is the server's own sentence
//   complaint(reply) → string         the sentence in an error body, whichever convention it follows
//   needsToken() → Promise<boolean>   whether a program has to send a token: the page itself has its cookie
//   address(path) → string            the full address, for people to copy

export class Failed extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const address = path => new URL(path, document.baseURI).href.split("#")[0];

export async function read(path) {
  const reply = await send({ method: "GET", path });
  if (!reply.ok) throw new Failed(reply.status, complaint(reply));
  return reply.data;
}

export async function send({ method = "POST", path, body }, { signal, piece } = {}) {
  const begin = performance.now();
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  let response;
  try {
    response = await fetch(address(path), { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed(0, "");
  }
  const streamed = response.ok && (response.headers.get("content-type") ?? "").startsWith("text/event-stream");
  const { text, data } = streamed ? await events(response, piece) : whole(await response.text());
  return {
    status: response.status, ok: response.ok && !data?.error, text, data,
    facts: factsOf(response.headers, data, performance.now() - begin, streamed), retryAfter: response.headers.get("retry-after"),
  };
}

export function complaint({ data, text, status }) {
  const found = [data?.error?.message, data?.error, data?.detail, data?.message].find(one => typeof one === "string" && one);
  return found ?? (text ? text.slice(0, 500) : `HTTP ${status}`);
}

let locked; // asked once: without the cookie the list of models is refused where there is a token
export function needsToken() {
  locked ??= fetch(address("v1/models"), { credentials: "omit" }).then(response => response.status === 401, () => false);
  return locked;
}

function whole(text) {
  try { return { text, data: JSON.parse(text) }; } catch { return { text, data: null }; }
}

// Server-sent events of a completion: the pieces one by one, then the whole as one object.
async function events(response, piece) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "", text = "", written = "", last = null, usage, reason = null;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    kept += value;
    text += value;
    const lines = kept.split(/\r?\n/);
    kept = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const { data } = whole(line.slice(5).trim());
      if (!data) continue; // [DONE]
      if (data.error) return { text, data };
      usage = data.usage ?? usage;
      const choice = data.choices?.[0];
      if (!choice) continue;
      last = data;
      reason = choice.finish_reason ?? reason;
      written += choice.text ?? "";
      if (choice.text) piece?.(choice.text);
    }
  }
  const data = last && { ...last, choices: [{ ...last.choices[0], text: written, finish_reason: reason }], ...(usage && { usage }) };
  return { text, data };
}

// The headers of a stream are sent before anything is computed: they have no times.
function factsOf(headers, data, ms, streamed) {
  if (streamed) return { ms, tokens: data?.usage?.total_tokens };
  const number = name => (headers.has(name) ? Number(headers.get(name)) : undefined);
  return {
    ms, tokens: number("x-compute-tokens") ?? data?.usage?.total_tokens, windows: number("x-qkv-windows"),
    truncated: headers.get("x-qkv-truncated") === "true",
    tokenise: number("x-tokenization-time"), queue: number("x-queue-time"), inference: number("x-inference-time"),
  };
}
