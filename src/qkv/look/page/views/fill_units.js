// A text as what can be clicked: words, 汉字 (or Chinese words), signs; and the spans that are hidden, as the state spells
// them ("25-30 40-42"). Everything is counted in code points, as Python counts. No elements.
//
//   unitsOf(text, by) → [{start, end, text, kind: "word" | "sign", mask: boolean}]     by: "character" | "word"
//   spanned(spelt, length) → [[start, end], …]     those that lie in the text, in order, without overlap
//   spelled(spans) → string
//   grown(units, spans) → spans                    each as wide as the units it touches
//   moved(spans, before, after) → spans            after an edit: what stands before or behind it is kept

// a blank; a run of 汉字; a word of other letters and digits, with what stands inside it (isn't, 3.5); any other sign
const LETTER = String.raw`(?:(?!\p{Script=Han})[\p{L}\p{M}\p{N}_])`;
// flags, and pictures with what changes them: a variant, a colour of skin, another picture joined on
const EMOJI = String.raw`[\u{1f1e6}-\u{1f1ff}]{2}|\p{Extended_Pictographic}(?:[\ufe0e\ufe0f\u20e3\u{1f3fb}-\u{1f3ff}]|\u200d\p{Extended_Pictographic})*`;
const UNITS = new RegExp(String.raw`\[MASK\]|\p{Script=Han}+|${LETTER}+(?:['’.,-]${LETTER}+)*|${EMOJI}|\S`, "gu");

export function unitsOf(text, by = "character") {
  const found = [];
  let at = 0, last = 0; // in code points, and where that is in the string
  for (const match of text.matchAll(UNITS)) {
    at += count(text.slice(last, match.index));
    last = match.index + match[0].length;
    const mask = match[0] === "[MASK]", han = /^\p{Script=Han}/u.test(match[0]);
    for (const part of han ? hanParts(match[0], by) : [match[0]]) {
      const end = at + count(part);
      found.push({ start: at, end, text: part, mask, kind: mask || /[\p{L}\p{N}]/u.test(part) ? "word" : "sign" });
      at = end;
    }
  }
  return found;
}

export function spanned(spelt, length) {
  const all = [...String(spelt ?? "").matchAll(/(\d+)-(\d+)/g)].map(([, a, b]) => [Number(a), Number(b)]);
  const found = [];
  for (const [a, b] of all.filter(([a, b]) => a < b && b <= length).sort((x, y) => x[0] - y[0])) {
    if (!found.length || a >= found.at(-1)[1]) found.push([a, b]);
  }
  return found;
}

export const spelled = spans => [...spans].sort((x, y) => x[0] - y[0]).map(([a, b]) => `${a}-${b}`).join(" ");

export function grown(units, spans) {
  return spans.map(([a, b]) => {
    const under = units.filter(unit => a < unit.end && unit.start < b);
    return under.length ? [Math.min(a, under[0].start), Math.max(b, under.at(-1).end)] : [a, b];
  });
}

export function moved(spans, before, after) {
  const { head, tail, old, now } = kept(before, after);
  const by = now.length - old.length;
  return spans.flatMap(([a, b]) => (b <= head ? [[a, b]] : a >= old.length - tail ? [[a + by, b + by]] : []));
}

// How much an edit left alone, at the beginning and at the end.
function kept(before, after) {
  const old = [...before], now = [...after];
  const most = Math.min(old.length, now.length);
  let head = 0, tail = 0;
  while (head < most && old[head] === now[head]) head += 1;
  while (tail < most - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail += 1;
  return { head, tail, old, now };
}

const count = text => [...text].length;

function hanParts(run, by) {
  if (by !== "word" || !Intl.Segmenter) return [...run];
  return [...new Intl.Segmenter("zh", { granularity: "word" }).segment(run)].map(one => one.segment);
}
