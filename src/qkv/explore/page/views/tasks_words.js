// What the view of tasks says, in both languages, and how it looks.

export const words = {
  en: {
    "lead.classify": "The vector at [CLS] has looked at the whole text. A layer of its own turns it into one score a class.",
    "lead.tag": "Every word gets a tag from its own vector; what belongs together is one entity.",
    "lead.answer": "A reader points at the passage: how likely the answer starts at each word, and how likely it ends there.",
    "lead.choice": "Each choice is read together with the question and the text; its [CLS] gives it one score.",
    "label": "class", "score": "score", "probability": "probability", "softmax": "softmax of score ÷ {temperature}", "sigmoid": "sigmoid of score ÷ {temperature}",
    "threshold": "from here on it is said", "value": "the number the model says", "none.said": "none of the labels", "more": "{n} more",
    "never": "On held-out examples this model was never reliable enough: it would rather not say anything.", "abstained": "Less sure than {from}, which is where this model was found to be reliable: it would rather not say.", "sure": "Below {from} this model would rather not say; that was fitted on held-out examples.",
    "abstained.some": "Dashed: less sure than {from}, where this model would rather not say.",
    "read": "{tokens} tokens were read.", "read.windows": "{tokens} tokens were read in {windows} windows; the scores are their mean.", "windows": "The passage was read in {windows} overlapping windows.",
    "entities.left": "The first {drawn} entities are marked; there are {n} more.", "no.entities": "The model names nothing in this text.", "whole": "All of it together, as it stands: {chance}.",
    "question": "Question", "question.hint": "Ask about the passage", "passage": "Passage", "passage.hint": "The text that is asked about", "choices": "Choices, one a line", "choices.hint": "One choice a line",
    "passage.edit": "Change the passage", "passage.done": "Done with the passage", "passage.keys": "Passage; left and right arrow read out the probabilities of each word",
    "spans": "Best answers", "nothing": "no answer", "part": "Tokens {from} to {to} of {n} are drawn; the others were read too.",
    "start.at": "starts at “{word}”  {chance}", "end.at": "ends at “{word}”  {chance}", "start.best": "likeliest start: “{word}”  {chance}", "end.best": "likeliest end: “{word}”  {chance}",
    "cls": "no answer ([CLS]): {start} / {end}", "strips.note": "Strips: softmax of the start scores and of the end scores over all words, ÷ {temperature}. A span's probability is a softmax over the best spans.",
    "refusal.needs_pair": "{model} was trained with pairs. Add the second text above.", "refusal.no_question": "There is no question yet.", "refusal.no_choices": "Write two choices or more, one a line.",
    "refusal.number": "Write two choices or more, one a line.", "key.read": "from word to word in a passage",
  },
  zh: {
    "lead.classify": "[CLS] 位置的向量看过整段文本，再经过一个线性层，每个类别得到一个分数。",
    "lead.tag": "每个词根据自己的向量得到一个标签，连在一起的就是一个实体。",
    "lead.answer": "阅读理解就是在原文里划出答案：每个词作为答案开头的概率，以及作为答案结尾的概率。",
    "lead.choice": "每个选项都和题目、原文拼在一起读，由 [CLS] 给出一个分数。",
    "label": "类别", "score": "分数", "probability": "概率", "softmax": "softmax（分数 ÷ {temperature}）", "sigmoid": "sigmoid（分数 ÷ {temperature}）",
    "threshold": "达到这里才会给出这个标签", "value": "模型给出的数值", "none.said": "没有任何标签", "more": "还有 {n} 个",
    "never": "在留出的样本上，这个模型始终不够可靠，它宁可什么都不回答。", "abstained": "把握低于 {from}，不到模型可靠的程度，它宁可不回答。", "sure": "把握低于 {from} 时，模型宁可不回答；这个界限是在留出的样本上定的。",
    "abstained.some": "虚线：把握低于 {from}，模型宁可不说。",
    "read": "共读入 {tokens} 个词元。", "read.windows": "共读入 {tokens} 个词元，分成 {windows} 段，分数取各段的平均。", "windows": "原文分成 {windows} 段来读，相邻两段有重叠。",
    "entities.left": "标出了前 {drawn} 个实体，后面还有 {n} 个。", "no.entities": "模型在这段文本里没有找到实体。", "whole": "以上全部都对的概率：{chance}。",
    "question": "问题", "question.hint": "就原文提一个问题", "passage": "原文", "passage.hint": "要提问的文本", "choices": "选项，每行一个", "choices.hint": "每行一个选项",
    "passage.edit": "修改原文", "passage.done": "改好了", "passage.keys": "原文；按左右方向键逐词查看概率",
    "spans": "最可能的答案", "nothing": "没有答案", "part": "图中是第 {from} 到 {to} 个词元，共 {n} 个；其余的也读过。",
    "start.at": "从“{word}”开始  {chance}", "end.at": "到“{word}”结束  {chance}", "start.best": "最可能的开头：“{word}”  {chance}", "end.best": "最可能的结尾：“{word}”  {chance}",
    "cls": "没有答案（[CLS]）：{start} / {end}", "strips.note": "两条色带：开头分数、结尾分数分别除以 {temperature} 之后，在所有词上做 softmax。答案的概率则是在最好的若干片段之间做 softmax。",
    "refusal.needs_pair": "{model} 是用句对训练的，请在上面加第二句。", "refusal.no_question": "还没有问题。", "refusal.no_choices": "请至少写两个选项，每行一个。",
    "refusal.number": "请至少写两个选项，每行一个。", "key.read": "在原文里逐词移动",
  },
};

export const css = `
[data-view=tasks] .tasks-lead { max-width: 88ch; color: var(--soft); margin-bottom: 14px; }
[data-view=tasks] .tasks-asking { display: flex; flex-direction: column; gap: 12px; max-width: 62em; }
[data-view=tasks] .tasks-asking:not(:empty) { margin-bottom: 24px; }
[data-view=tasks] .tasks-field { display: flex; flex-direction: column; gap: 2px; }
[data-view=tasks] .tasks-field .field { font: 400 18px/1.6 var(--serif); }
[data-view=tasks] .tasks-question.field { font-size: 21px; }
[data-view=tasks] .tasks-examples { gap: 8px; } [data-view=tasks] .tasks-examples .chip { white-space: normal; text-align: left; } [data-view=tasks] .tasks-examples > .quiet { margin-left: auto; }
[data-view=tasks] .tasks-one + .tasks-one { margin-top: 40px; }
[data-view=tasks] .tasks-one > h3 { margin-bottom: 12px; }
[data-view=tasks] .tasks-verdict { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 18px; margin: 4px 0 22px; }
[data-view=tasks] .tasks-said { font: 500 clamp(24px, 2.6vw, 34px)/1.25 var(--serif); overflow-wrap: anywhere; }
[data-view=tasks] .tasks-chance { font-size: 18px; color: var(--accent); } [data-view=tasks] .tasks-note { color: var(--soft); }
[data-view=tasks] .unsure .tasks-said, [data-view=tasks] .unsure .tasks-chance { color: var(--faint); }
[data-view=tasks] .tasks-list, [data-view=tasks] .tasks-line.head { max-width: 760px; }
[data-view=tasks] .tasks-line { display: grid; grid-template-columns: minmax(130px, 240px) 64px 1fr 72px; gap: 16px; align-items: center; padding: 5px 0; color: var(--soft); --bar: color-mix(in srgb, var(--accent) 45%, transparent); }
[data-view=tasks] .tasks-line.span { grid-template-columns: minmax(150px, 380px) 1fr 72px; }
[data-view=tasks] .tasks-line.head, [data-view=tasks] .tasks-line.head .score, [data-view=tasks] .tasks-line.head .chance { color: var(--faint); font-size: 12.5px; padding-bottom: 4px; }
[data-view=tasks] .tasks-line .what { font: 400 17px/1.35 var(--serif); overflow-wrap: anywhere; white-space: pre-wrap; } [data-view=tasks] .tasks-line.head .what { font: inherit; }
[data-view=tasks] .tasks-line.said { color: var(--ink); --bar: var(--accent); } [data-view=tasks] .tasks-line.said .what, [data-view=tasks] .tasks-line.said .chance { font-weight: 620; }
[data-view=tasks] .tasks-line.silent .what { font-style: italic; } [data-view=tasks] .tasks-line .score { font-size: 13.5px; } [data-view=tasks] .tasks-line .chance { font-size: 14px; }
[data-view=tasks] .tasks-bar { position: relative; } [data-view=tasks] .tasks-from { position: absolute; top: -5px; bottom: -5px; width: 2px; margin-left: -1px; background: var(--hot); }
[data-view=tasks] .tasks-text { font: 400 clamp(20px, 2vw, 26px)/2.5 var(--serif); white-space: pre-wrap; overflow-wrap: anywhere; max-width: 62em; margin-bottom: 6px; }
[data-view=tasks] .tasks-entity { position: relative; border-radius: 6px 6px 2px 2px; padding: 3px 3px 4px; margin: 0 1px; background: color-mix(in srgb, var(--mine) 13%, transparent); box-shadow: inset 0 -2px 0 var(--mine); }
[data-view=tasks] .tasks-entity.unsure { box-shadow: none; border-bottom: 2px dashed var(--mine); }
[data-view=tasks] .tasks-entity .kind { position: absolute; left: 3px; top: 100%; font: 600 11px/1.5 var(--sans); color: var(--mine); white-space: nowrap; letter-spacing: .03em; }
[data-view=tasks] .tasks-line.entity.unsure { opacity: .6; } [data-view=tasks] .tasks-line.entity .kind { color: var(--mine); font-size: 13px; font-weight: 600; }
[data-view=tasks] .tasks-key { display: inline-flex; align-items: baseline; gap: 7px; } [data-view=tasks] .tasks-key::before { content: ""; flex: none; align-self: center; width: 16px; height: 5px; border-radius: 2px; background: var(--mine); }
[data-view=tasks] .legend { margin: 8px 0 18px; }
[data-view=tasks] .tasks-figure { margin-bottom: 30px; } [data-view=tasks] .tasks-readout { display: flex; flex-wrap: wrap; gap: 2px 24px; min-height: 22px; margin-bottom: 10px; font-size: 13.5px; color: var(--soft); white-space: pre-wrap; }
[data-view=tasks] .tasks-passage { font: 400 19px/2.35 var(--serif); white-space: pre-wrap; overflow-wrap: anywhere; max-width: 58em; outline-offset: 8px; }
[data-view=tasks] .tasks-token { position: relative; border-radius: 3px; } [data-view=tasks] .tasks-token.on { background: color-mix(in srgb, var(--ink) 8%, transparent); }
[data-view=tasks] .tasks-token i { position: absolute; left: 0; right: 0; height: 5px; top: calc(100% + 2px); pointer-events: none; } [data-view=tasks] .tasks-token i.end { top: calc(100% + 8px); }
[data-view=tasks] .inside { background: var(--tint); color: var(--accent); font-weight: 620; border-radius: 0; box-shadow: 0 -2px 0 3px var(--tint), 0 0 0 3px var(--tint); } [data-view=tasks] .tasks-token.inside.on { background: color-mix(in srgb, var(--accent) 22%, var(--tint)); }
[data-view=tasks] .tasks-heading { margin-bottom: 8px; }
@media (max-width: 640px) { [data-view=tasks] .tasks-line, [data-view=tasks] .tasks-line.span { grid-template-columns: minmax(6em, 1fr) 4.6em; } [data-view=tasks] .tasks-line .score { display: none; } [data-view=tasks] .tasks-line .tasks-bar { grid-column: 1 / -1; grid-row: 2; } }
`;
