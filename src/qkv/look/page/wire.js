// Questions to the server (or to what a saved page recorded) and their answers. Knows the frame of look/wire.py and
// nothing of any view.
//
//   ask(name, fields, {signal}?) → Promise<{head, arrays: {name: {data: TypedArray, shape: [..]}}}>
//       fields: flat; null and undefined are left out; "model" is 0 where it is missing. Answers are kept (the least
//       recently used go first), the same question under way is asked once; a question nobody waits for is aborted.
//       Throws Refusal {code, message, about}; an aborted one throws DOMException "AbortError".
//   room() → Promise<room>            what GET /api/room says, or what was recorded
//   keyOf(name, fields) → string      NAME + " " + canonical JSON, as Python's json.dumps(sort_keys, no spaces)
//   aborted(error) → boolean          whether an error only says that nobody waits any more
//   recorded() → RECORDED | null      what a saved page holds: {room, replies: {key: base64 of a frame}, hash}
//   kept() → {key: base64}            the answers at hand, for saving the page
//   class Refusal

const LIMIT = 96 * 2 ** 20; // bytes of answers that are kept
const MAGIC = 0x716b7631; // "qkv1"
const KINDS = { u1: Uint8Array, f4: Float32Array, i4: Int32Array };

export class Refusal extends Error {
  constructor(code, message = "", about = {}) {
    super(message);
    this.code = code;
    this.about = about;
  }
}

export const aborted = error => error?.name === "AbortError";

export function keyOf(name, fields) {
  const full = { model: 0, ...Object.fromEntries(Object.entries(fields ?? {}).filter(([, value]) => value != null)) };
  return name + " " + JSON.stringify(Object.fromEntries(Object.keys(full).sort().map(key => [key, full[key]])));
}

let record;
export function recorded() {
  if (record === undefined) {
    const held = document.getElementById("recorded")?.textContent.trim();
    record = window.RECORDED ?? (held && held !== "null" ? JSON.parse(held) : null);
  }
  return record;
}

export async function room() {
  if (recorded()) return recorded().room;
  return (await sent("api/room", {})).json();
}

const answers = new Map(); // key → {buffer, reply} or {refusal}, the least recently used first
const underWay = new Map(); // key → {promise, waiting, stop}

export async function ask(name, fields, { signal } = {}) {
  signal?.throwIfAborted();
  const key = keyOf(name, fields);
  const known = answers.get(key);
  if (known) {
    answers.delete(key);
    answers.set(key, known);
    if (known.refusal) throw known.refusal;
    return known.reply;
  }
  if (recorded()) return remembered(key);
  if (!underWay.has(key)) begin(name, key);
  return waited(underWay.get(key), signal);
}

function remembered(key) {
  const text = recorded().replies[key];
  if (text === undefined) throw new Refusal("not_saved", "This was not recorded in the saved page.");
  const raw = Uint8Array.from(atob(text), character => character.charCodeAt(0));
  if (raw[0] === 0x7b) { // "{": a refusal was recorded
    const said = JSON.parse(new TextDecoder().decode(raw));
    throw new Refusal(said.code, said.message, said.about);
  }
  return keep(key, raw.buffer);
}

function begin(name, key) {
  const control = new AbortController();
  const body = key.slice(name.length + 1);
  const one = { waiting: 0, stop: () => control.abort() };
  one.promise = sent("api/" + name, {
    method: "POST", body, headers: { "Content-Type": "application/json" }, signal: control.signal,
  }).then(answer => answer.arrayBuffer()).then(buffer => keep(key, buffer), error => refused(key, error));
  const over = () => { if (underWay.get(key) === one) underWay.delete(key); };
  one.promise.then(over, over);
  underWay.set(key, one);
}

// One asker's wait: it ends with the answer or with the asker's signal; the last one to leave stops the question.
function waited(one, signal) {
  one.waiting += 1;
  if (!signal) return one.promise;
  return new Promise((resolve, reject) => {
    const leave = () => {
      one.waiting -= 1;
      if (!one.waiting) {
        for (const [key, other] of underWay) if (other === one) underWay.delete(key);
        one.stop();
      }
      reject(signal.reason);
    };
    signal.addEventListener("abort", leave, { once: true });
    one.promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", leave));
  });
}

// What was refused for its own sake is refused again without asking; a server that is busy or gone may be back.
function refused(key, error) {
  if (error.lasting) held(key, { refusal: error });
  throw error;
}

async function sent(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (aborted(error)) throw error;
    throw new Refusal("server_gone", "qkv look does not answer any more.");
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  const code = said.code ?? (answer.status === 413 ? "too_big" : "fault");
  const refusal = new Refusal(code, said.message, said.about);
  refusal.lasting = answer.status === 400;
  throw refusal;
}

function keep(key, buffer) {
  return held(key, { buffer, reply: unpacked(buffer) }).reply;
}

function held(key, one) {
  const weight = (name, { buffer }) => 2 * name.length + (buffer?.byteLength ?? 0);
  answers.set(key, one);
  let size = 0;
  for (const [name, other] of answers) size += weight(name, other);
  for (const [name, other] of answers) {
    if (size <= LIMIT || name === key) break;
    answers.delete(name);
    size -= weight(name, other);
  }
  return one;
}

export function unpacked(buffer) {
  const bytes = new DataView(buffer);
  const ours = buffer.byteLength >= 8 && bytes.getUint32(0) === MAGIC;
  if (!ours) throw new Refusal("fault", "This is no reply of qkv look.");
  const length = bytes.getUint32(4, true);
  const { arrays: listed, ...head } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  for (const { name, dtype, shape, at } of listed) {
    const number = shape.reduce((product, side) => product * side, 1);
    arrays[name] = { data: new KINDS[dtype](buffer, 8 + length + at, number), shape };
  }
  return { head, arrays };
}

const spoken = ({ code, about }) => ({ code, message: "", about });

export function kept() {
  const all = { ...recorded()?.replies };
  for (const [key, { buffer, refusal }] of answers) {
    if (buffer) all[key] = base64(new Uint8Array(buffer));
    // by its code, in words of the page's own: a sentence of the server's may name files of this machine
    else if (refusal.code !== "input") all[key] = base64(new TextEncoder().encode(JSON.stringify(spoken(refusal))));
  }
  return all;
}

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text);
}
