// What the translation view says, in both languages. Words alone.

export const words = {
  en: {
    "title": "Where each word comes from", "source": "Source", "target": "Translation", "end": "end of text",
    "note": "A row of the map adds up to 100 %. Lines below {least} are not drawn; the strong ones are the links that qkv reads off the attention.",
    "note.layer": "Attention of the decoder to the source, mean of the heads of one layer.",
    "note.seq2seq": "Attention of the decoder to the encoder’s states.",
    "no_attention.fixed": "This decoder has no attention. Everything it knows of the text is one vector C, which it begins from: a sentence of any length has to fit into {width} numbers.",
    "no_attention.every_step": "This decoder has no attention. It sees one vector C, {width} numbers, the same at every step, whatever word it is about to write.",
    "candidates": "What else the search found", "beams": "Beams", "score": "score", "probability": "probability", "stopped": "stopped: too long",
    "link": "{target} ← {source} {weight}", "unknown": "Not in the vocabulary: {words}. The model cannot read this, so it cannot translate it.",
    "steps": "One token at a time", "play": "Play", "pause": "Pause", "first": "To the beginning", "back": "One step back", "on": "One step on",
    "step": "step {step} of {steps}", "written": "Written so far", "nothing": "nothing yet",
    "next": "What may come next", "token": "token", "logit": "logit z", "exp": "e^((z − z₁)/T)", "exp.one": "e^(z − z₁)", "share": "probability",
    "others": "{n} other tokens", "sum": "Σ of all {n} tokens: {sum}. Each share is its number divided by Σ.",
    "temperature": "Temperature T", "temperature.note": "T = 1 is what the search uses. Lower: the likeliest takes all; higher: all alike.",
    "looks": "Where it looks now", "looks.none": "No attention: C is all it sees.",
    "tree": "Hypotheses still alive", "tree.note": "Every beginning that was kept, step by step: the thicker the line, the likelier its last token. {beams} live at a time; those that end in the air were given up. Click one to see what followed.",
    "tree.note.one": "With one beam the search is greedy: the likeliest token is written, and nothing is ever taken back.",
    "other_path": "You are looking at another beginning than the chosen translation’s.", "follow": "Back to it",
    "repeats": "This model’s own settings forbid or punish repetition: a token at the top of the table may have been passed over for that.", "key.step": "one step back, on", "key.play": "play, pause", "chosen": "written next",
  },
  zh: {
    "title": "每个词从哪里来", "source": "原文", "target": "译文", "end": "原文结束",
    "note": "热图每一行之和为 100%。低于 {least} 的连线不画；粗线是从注意力中读出的对齐。",
    "note.layer": "解码器对原文的注意力，取某一层各个头的平均。",
    "note.seq2seq": "解码器对编码器各个状态的注意力。",
    "no_attention.fixed": "这个解码器没有注意力。它对原文的全部了解只有一个起始向量 C：句子无论多长，都得塞进 {width} 个数里。",
    "no_attention.every_step": "这个解码器没有注意力。每一步看到的都是同一个向量 C（{width} 个数），不管正要写哪个词。",
    "candidates": "搜索还找到了什么", "beams": "束宽", "score": "得分", "probability": "概率", "stopped": "太长，被截停",
    "link": "{target} ← {source} {weight}", "unknown": "词表里没有：{words}。词表外的内容，模型看不到，也就译不出。",
    "steps": "一次写一个词元", "play": "播放", "pause": "暂停", "first": "回到开头", "back": "退一步", "on": "进一步",
    "step": "第 {step} 步，共 {steps} 步", "written": "已经写出", "nothing": "还没有写",
    "next": "下一个可能是什么", "token": "词元", "logit": "logit z", "exp": "e^((z − z₁)/T)", "exp.one": "e^(z − z₁)", "share": "概率",
    "others": "其余 {n} 个词元", "sum": "全部 {n} 个词元之和 Σ = {sum}，各自除以 Σ 就是概率。",
    "temperature": "温度 T", "temperature.note": "搜索用的是 T = 1。温度越低，第一名独占；温度越高，大家越平均。",
    "looks": "此刻的注意力", "looks.none": "没有注意力：它只看得到 C。",
    "tree": "当前保留的候选", "tree.note": "每一步保留下来的开头：线越粗，最后一个词元的概率越高。同时最多保留 {beams} 个，中途断掉的就是被放弃的。点一个，看它后面接什么。",
    "tree.note.one": "束宽为 1 就是贪心搜索：每步写最可能的词元，从不反悔。",
    "other_path": "你正在看的开头不属于选中的译文。", "follow": "回到选中的译文",
    "repeats": "这个模型自带的设置会禁止或惩罚重复，所以表里排在前面的词元有可能因此被跳过。", "key.step": "退一步、进一步", "key.play": "播放、暂停", "chosen": "接下来写它",
  },
};

// The width of a text in a proportional face, near enough to lay out labels without a canvas.
const WIDE = /[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\u{1f000}-\u{3ffff}]/u;
const WIDTHS = [[WIDE, 1], [/[iljtfr.,:;'!|I ]/, 0.31], [/[mwMW@%—…]/, 0.86], [/[A-Z]/, 0.66], [/./su, 0.54]]; // in em
export function widthOf(text, size) {
  let em = 0;
  for (const one of text) em += WIDTHS.find(([kind]) => kind.test(one))[1];
  return em * size;
}

// A token as people read it: sentencepiece's ▁ as a space that can be seen, nothing invisible.
export const shownToken = token => token.replace(/^▁$/, "␣").replace(/^▁/, "").replace(/\s/g, "␣") || "␣";
export const percent = p => (p >= 0.9995 ? "100 %" : p >= 0.1 ? (100 * p).toFixed(1) + " %" : p >= 0.001 ? (100 * p).toFixed(2) + " %"
  : p >= 0.00001 ? (100 * p).toFixed(3) + " %" : p > 0 ? "< 0.001 %" : "0 %");
