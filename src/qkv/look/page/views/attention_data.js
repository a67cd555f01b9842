// Attention as numbers, before anything is drawn: tokens and words, one row, one column, one head's map, which heads
// are worth seeing. Pure functions on arrays; no canvas, no page, no questions.
//
// An "item" is what one row or column of a picture stands for: {label, first, last, special, segment, unknown}, tokens first …
// last (inclusive) of a side. A word of several pieces asks with the mean of its pieces and is looked at by their sum,
// so that a row of words adds up to what a row of tokens does.

export const MEASURES = ["entropy", "distance", "ends", "separators", "itself"]; // those that have a name here
const PRONOUNS = new Set("it its he she they him her them 它 他 她 它们 他们 她们".split(" "));

// What a picture calls a token: its characters; of the bytes of one character all but the first by their own spelling;
// of marks that stand there more than once which one it is.
export function labelAt(tokens, at) {
  const token = tokens[at], before = tokens[at - 1];
  const again = before && token.start === before.start && token.end === before.end && token.segment === before.segment && !before.special;
  if (token.special) return token.token + numbered(tokens, at);
  if (!token.text || again) return seen(token.token);
  return token.token.startsWith("##") ? "##" + seen(token.text) : seen(token.text);
}

function numbered(tokens, at) {
  const alike = tokens.flatMap((other, place) => (other.special && other.token === tokens[at].token ? [place] : []));
  return alike.length > 1 ? String(alike.indexOf(at) + 1).replace(/\d/g, digit => "₀₁₂₃₄₅₆₇₈₉"[digit]) : "";
}

// Spaces around a piece (GPT's) say little; a piece that is nothing else is shown as what it is.
function seen(text) {
  return text.trim().replace(/\s/gu, "␣") || text.replace(/\s/gu, "␣") || "∅";
}

// texts: what start and end count in (code points, as Python counts). unknown: the tokens that the vocabulary lacks.
export function items(tokens, words, texts, { merged = true, special = true, segment = null, unknown = [] } = {}) {
  const lost = new Set(unknown);
  const characters = texts.map(text => [...text]);
  const spans = merged && words ? words : tokens.map((_, at) => [at, at]);
  const made = [];
  for (const [first, last] of spans) {
    const token = tokens[first];
    if ((!special && token.special) || (segment !== null && token.segment !== segment)) continue;
    const own = labelAt(tokens, first), word = characters[token.segment]?.slice(token.start, tokens[last].end).join("") ?? "";
    const label = first === last ? (merged ? own.replace(/^##(?=.)/, "") : own) : seen(word || tokens.slice(first, last + 1).map(piece => piece.token).join(""));
    const mark = lost.size ? tokens.slice(first, last + 1).find((_, place) => lost.has(first + place))?.token ?? "" : "";
    made.push({ label, first, last, special: token.special, segment: token.segment, unknown: mark });
  }
  return made;
}

// What an item is called where it stands in a sentence: an unknown one with what the model reads instead.
export const told = item => (item.unknown ? `${item.label} (${item.unknown})` : item.label);

// Which item a token belongs to, for every token of a side; -1 where it is hidden.
export function places(made, count) {
  const found = new Int32Array(count).fill(-1);
  made.forEach((item, at) => { for (let token = item.first; token <= item.last; token++) found[token] = at; });
  return found;
}

// What one item asks of every item on the right, into `out`; bytes: one head, (left, columns). → the row's sum
export function rowOf(bytes, columns, item, right, out) {
  const share = 1 / (255 * (item.last - item.first + 1));
  let total = 0;
  for (let j = 0; j < right.length; j++) {
    const { first, last } = right[j];
    let sum = 0;
    for (let i = item.first; i <= item.last; i++) {
      const at = i * columns;
      for (let k = first; k <= last; k++) sum += bytes[at + k];
    }
    total += out[j] = sum * share;
  }
  return total;
}

// One head's map over items: (left × right) weights. `whole`: every row is stretched to add up to 1.
export function mapOf(bytes, columns, left, right, whole) {
  const map = new Float32Array(left.length * right.length);
  for (let i = 0; i < left.length; i++) {
    const row = map.subarray(i * right.length, (i + 1) * right.length);
    const total = rowOf(bytes, columns, left[i], right, row);
    if (whole && total > 0) for (let j = 0; j < row.length; j++) row[j] /= total;
  }
  return map;
}

export function bytesFrom(map) {
  const bytes = new Uint8Array(map.length);
  for (let at = 0; at < map.length; at++) bytes[at] = Math.min(255, Math.round(255 * map[at]));
  return bytes;
}

// The strongest cell of every block of a map, so that a lone line stays visible when it is drawn smaller.
export function pooled(bytes, rows, columns, high, wide) {
  const out = new Uint8Array(high * wide);
  for (let i = 0; i < rows; i++) {
    const to = Math.floor(i * high / rows) * wide;
    for (let j = 0; j < columns; j++) {
      const at = to + Math.floor(j * wide / columns), value = bytes[i * columns + j];
      if (value > out[at]) out[at] = value;
    }
  }
  return out;
}

// The tokens a row looks at hardest: numbers of columns, strongest first, none below `least`.
export function strongest(row, most, least = 0.01) {
  const order = [];
  for (let j = 0; j < row.length; j++) if (row[j] >= least) order.push(j);
  return order.sort((a, b) => row[b] - row[a]).slice(0, most);
}

// Cells of a map worth a line when nothing is chosen: at most `most`, the strongest; as flat places.
export function strongCells(map, most, least) {
  const counts = new Uint32Array(256);
  for (let at = 0; at < map.length; at++) counts[Math.min(255, Math.floor(map[at] * 255))]++;
  let limit = 255, total = 0;
  while (limit > least * 255 && total + counts[limit] <= most) total += counts[limit--];
  const found = [];
  for (let at = 0; at < map.length; at++) if (map[at] * 255 >= limit + 1 && map[at] >= least) found.push(at);
  return found;
}

// The token to begin with: a pronoun (what does it stand for?), else the first of the longest words.
export function restingToken(left, words, texts) {
  const said = items(left, words, texts, { special: false });
  const pronoun = said.find(item => PRONOUNS.has(item.label.toLowerCase()));
  return (pronoun ?? said.reduce((best, item) => !best || item.label.length > best.label.length ? item : best, null))?.first ?? 0;
}

// The first token that holds characters of a word ("12-18") of the first text; -1 where there is none.
export function touched(tokens, word) {
  const [start, end] = /^\d+-\d+$/.test(word ?? "") ? word.split("-").map(Number) : [0, 0];
  return end > start ? tokens.findIndex(token => !token.special && !token.segment && token.start < end && token.end > start) : -1;
}

// How hard every head looks from one token at another word (not at itself, its neighbours or [SEP]; near ones count
// less): (layers × heads), from the small maps; exact while they hold every token.
export function focusOf(overview, token) {
  const { data, shape: [layers, heads, high, wide] } = overview.small;
  const { left, right, cross } = overview;
  const row = Math.ceil((token + 1) * high / left.length) - 1; // cell i holds tokens ⌊i·T/S⌋ … ⌊(i+1)·T/S⌋ − 1
  const found = new Float32Array(layers * heads);
  for (let head = 0; head < layers * heads; head++) {
    const start = (head * high + row) * wide;
    let best = 0;
    for (let j = 0; j < wide; j++) {
      const first = Math.floor(j * right.length / wide);
      if (right[first].special || !/[\p{L}\p{N}]/u.test(right[first].text)) continue;
      best = Math.max(best, data[start + j] * (cross ? 1 : Math.min(1, Math.max(0, Math.abs(j - row) - 1) / 3)));
    }
    found[head] = best / 255;
  }
  return found;
}

export function bestHead(focus, heads) {
  let best = 0;
  for (let at = 1; at < focus.length; at++) if (focus[at] > focus[best]) best = at;
  return [Math.floor(best / heads), best % heads];
}

// The row that looks hardest at one word.
export function sharpest(map, left, right) {
  let best = 0, most = -1;
  left.forEach((item, i) => right.forEach((other, j) => {
    const weight = map[i * right.length + j];
    if (!item.special && !other.special && item.first !== other.first && weight > most) { most = weight; best = i; }
  }));
  return best;
}

// The token of another side (or another model) that holds the same characters; -1 where there is none.
export function sameCharacters(token, others) {
  if (!token || token.special) return others.findIndex(other => token && other.special && other.token === token.token);
  let best = -1, most = 0;
  others.forEach((other, at) => {
    const shared = Math.min(token.end, other.end) - Math.max(token.start, other.start);
    if (!other.special && other.segment === token.segment && shared > most) { most = shared; best = at; }
  });
  return best;
}

// One row of a reply that holds the steps (or the input) of every row; keys and values are common to all.
export function rowFrom(reply, row) {
  const arrays = {};
  for (const [name, { data, shape }] of Object.entries(reply.arrays)) {
    const common = shape.length < 2 || name === "k" || name === "v";
    const wide = shape.slice(1).reduce((product, side) => product * side, 1);
    arrays[name] = common ? { data, shape } : { data: data.subarray(row * wide, (row + 1) * wide), shape: shape.slice(1) };
  }
  return { head: { ...reply.head, masked: arrays.masked ? Array.from(arrays.masked.data, Boolean) : reply.head.masked }, arrays };
}

export const percent = weight => weight >= 0.0995 ? Math.round(weight * 100) + "%" : (weight * 100).toFixed(weight < 0.00995 ? 1 : 0) + "%";
export const figure = (value, digits = 3) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(digits);
