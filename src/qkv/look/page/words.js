// What the page says, in both languages: the shell's table, and each view's beside it. Chinese is written for Chinese
// readers. No elements, no state but the language.
//
//   add(id, {en: {key: text}, zh: {…}})   a view's words, found as "ID.key"
//   t(key, about?, id?)                   the text in state.lang, {name} filled from about; with an id the view's own word
//                                         is looked for first. Missing: English, then the key itself
//   has(key, id?)                         whether there is such a text
//   refusalText(refusal, id?)             "refusal.CODE" in the reader's language, else the server's own sentence
//   kindName(subject)                     what a subject is, in words: "word vectors", "LSTM classifier"
//   number(value, digits?)                1234 → 1,234; percent(p) → 12.3 %, < 0.1 %, > 99.9 %

import { state } from "look/state.js";

const TABLE = {
  en: {
    "title": "qkv look", "rail": "Views", "skip": "Skip to the picture",
    "view.attention": "Attention", "view.fill": "Fill the blank", "view.next": "Next word", "view.meanings": "Many meanings",
    "view.positions": "Positions", "view.translation": "Translation", "view.vectors": "Word vectors",
    "view.tasks": "Tasks", "view.recurrence": "Recurrence",
    "kind.bert": "BERT", "kind.gpt": "GPT", "kind.transformer": "Transformer for translation", "kind.seq2seq": "recurrent translator",
    "kind.elmo": "ELMo", "kind.rnnlm": "recurrent language model", "kind.nnlm": "n-gram neural language model", "kind.table": "word vectors",
    "kind.reader": "text classifier", "kind.built": "{network} {task}", "network.lookup": "word-average", "network.textcnn": "TextCNN",
    "network.cnn": "CNN", "network.rnn": "RNN", "network.lstm": "LSTM", "network.gru": "GRU", "network.peephole": "peephole LSTM", "network.coupled": "coupled LSTM",
    "task.": "encoder", "task.classify": "classifier", "task.tag": "tagger", "task.answer": "for questions", "task.choice": "for choices",
    "rail.nobody": "No model of this page shows this view.",
    "live.attention": "BERT, GPT and translators attend: qkv look qkv-mini.",
    "live.fill": "A BERT with its masked-word head fills blanks: qkv look qkv-mini.",
    "live.next": "GPT, ELMo and recurrent language models predict the next word. To train one: qkv pretrain gpt --data SHARDS --out RUN, then qkv look RUN.",
    "live.meanings": "Nearly every model gives vectors of words: qkv look qkv-mini.", "live.positions": "Every model shows positions.",
    "live.translation": "To train a translator: qkv train translate --pairs FILE --out RUN, then qkv look RUN.",
    "live.vectors": "Give word vectors: qkv look vectors.txt; or train them: qkv pretrain word2vec --data SHARDS --out RUN, then qkv look RUN.",
    "live.tasks": "qkv look without a model has a classifier of headlines here. Your own: qkv finetune TASK --train FILE --out RUN, then qkv look RUN.",
    "live.recurrence": "ELMo, recurrent language models and recurrent translators recur. To train one: qkv pretrain rnnlm --data SHARDS --out RUN, then qkv look RUN.",
    "live.all": "qkv look without a model opens all that came with qkv.",
    "rail.not_saved": "Nothing of this view was recorded in this saved page.",
    "model": "Model", "compare": "compare with", "compare.none": "—",
    "text": "Text", "text.hint": "Write a sentence", "pair": "Second text", "pair.hint": "A second sentence",
    "pair.add": "Second text", "pair.drop": "Remove the second text",
    "examples": "Examples", "examples.none": "No examples for this view.",
    "language": "中文", "language.label": "切换到中文",
    "theme.system": "Theme: as the system", "theme.light": "Theme: light", "theme.dark": "Theme: dark",
    "share": "Share", "export.svg": "Picture as SVG", "export.png": "Picture as PNG", "copy.link": "Copy a link to this",
    "save.page": "Save as one offline page", "said.link": "The link is copied.", "said.link.part": "The link is copied, without the text: it is too long for a link. Save the page instead.", "said.saved": "Saved: {name}",
    "said.no_picture": "This view has no picture to export yet.", "said.not_copied": "The browser did not let us copy. The address bar has the link.",
    "keys": "Keys", "close": "Close", "missing": "This view is not part of this installation.",
    "busy": "Computing …", "saved.badge": "Saved page", "saved.note": "shows what was recorded when it was saved",
    "use": "Show {model}", "models.able": "show this view", "models.others": "show other views", "can": "{model} can show", "kind": "kind", "menu": "Views",
    "facts.layers": "{layers} layers × {heads} heads", "facts.only": "{layers} layers", "facts.parameters": "{millions} million parameters",
    "key.views": "view 1 – 9", "key.text": "to the text", "key.now": "take the text at once", "key.lang": "中文 / English",
    "key.theme": "light, dark, system", "key.examples": "examples", "key.escape": "leave a field, close",
    "key.help": "these keys",
    "refusal.empty": "There is no text yet. Write something above.",
    "refusal.too_long": "The text has {length} characters; {most} are taken at most.",
    "refusal.too_many_tokens": "The text makes {tokens} tokens, and the model reads {most} at most. Nothing is cut silently: shorten the text.",
    "refusal.too_large": "The picture is too large for a PNG of this browser. Take the SVG.",
    "refusal.too_big": "That is more than the server takes in one question.",
    "refusal.no_attention": "{model} has no attention. It is: {kind}.",
    "refusal.no_mask_head": "{model} cannot fill blanks: it has no masked-word head.",
    "refusal.no_next_sentence": "{model} was not trained to say whether one sentence follows another.",
    "refusal.no_next_words": "{model} does not predict the next word. It is: {kind}.",
    "refusal.no_mask": "No word is hidden yet. Click one.",
    "refusal.no_translation": "{model} does not translate. It is: {kind}.",
    "refusal.no_vectors": "{model} has no vectors of its own for words. It is: {kind}.",
    "refusal.no_recurrence": "{model} is not recurrent. It is: {kind}.",
    "refusal.no_task": "{model} is not fine-tuned for a task.",
    "refusal.no_model": "{model} reads no text in this view.",
    "refusal.no_meanings": "{model} gives no vectors of words in a sentence.",
    "refusal.no_positions": "{model} has no positions of its own.",
    "refusal.no_pair": "{model} reads one text at a time. Remove the second.",
    "refusal.token": "This page was opened without its token. Use the address that qkv look printed.",
    "refusal.unknown_name": "The server does not know this question: it may be of another version than the page.",
    "refusal.half_written": "This folder is no whole model: a run or a copy was cut short.",
    "refusal.not_saved": "This saved page recorded other questions. Run qkv look to ask anything.",
    "refusal.no_canvas": "This browser draws no canvas. The numbers stand in a table instead.",
    "refusal.server_gone": "qkv look does not answer any more. Is it still running in the terminal?",
    "refusal.busy": "The server is busy with other questions. Try again in a moment.",
    "refusal.fault": "Something went wrong inside. The terminal where qkv look runs says what.",
    "try.again": "Try again",
  },
  zh: {
    "title": "qkv look", "rail": "视图", "skip": "跳到图示",
    "view.attention": "注意力", "view.fill": "完形填空", "view.next": "下一个词", "view.meanings": "一词多义", "view.positions": "位置编码",
    "view.translation": "翻译", "view.vectors": "词向量", "view.tasks": "下游任务", "view.recurrence": "循环网络",
    "kind.bert": "BERT", "kind.gpt": "GPT", "kind.transformer": "Transformer 翻译模型", "kind.seq2seq": "循环网络翻译模型",
    "kind.elmo": "ELMo", "kind.rnnlm": "循环网络语言模型", "kind.nnlm": "神经网络 n 元语言模型", "kind.table": "词向量",
    "kind.reader": "文本分类模型", "kind.built": "{network} {task}", "network.lookup": "词向量平均", "network.textcnn": "TextCNN",
    "network.cnn": "CNN", "network.rnn": "RNN", "network.lstm": "LSTM", "network.gru": "GRU", "network.peephole": "窥孔 LSTM", "network.coupled": "耦合门 LSTM",
    "task.": "编码器", "task.classify": "分类器", "task.tag": "序列标注器", "task.answer": "阅读理解模型", "task.choice": "选择题模型",
    "rail.nobody": "这个页面上没有模型能看这个视图。",
    "live.attention": "BERT、GPT 和翻译模型有注意力：qkv look qkv-mini。",
    "live.fill": "带掩码词输出层的 BERT 能填空：qkv look qkv-mini。",
    "live.next": "GPT、ELMo 和循环网络语言模型会预测下一个词。可以自己训练一个：qkv pretrain gpt --data SHARDS --out RUN，然后 qkv look RUN。",
    "live.meanings": "几乎所有模型都能给出词的向量：qkv look qkv-mini。", "live.positions": "所有模型都能看位置编码。",
    "live.translation": "可以自己训练一个翻译模型：qkv train translate --pairs FILE --out RUN，然后 qkv look RUN。",
    "live.vectors": "给出词向量文件：qkv look vectors.txt；或者自己训练：qkv pretrain word2vec --data SHARDS --out RUN，然后 qkv look RUN。",
    "live.tasks": "不指定模型时，qkv look 在这里有一个给新闻标题分版的分类器。也可以用自己的数据：qkv finetune TASK --train FILE --out RUN，然后 qkv look RUN。",
    "live.recurrence": "ELMo、循环网络语言模型和循环网络翻译模型有循环层。可以自己训练一个：qkv pretrain rnnlm --data SHARDS --out RUN，然后 qkv look RUN。",
    "live.all": "不写模型的 qkv look 会打开随 qkv 安装的全部模型。",
    "rail.not_saved": "这个离线网页没有记录这个视图的内容。",
    "model": "模型", "compare": "对比", "compare.none": "—",
    "text": "文本", "text.hint": "写一句话", "pair": "第二句", "pair.hint": "再写一句",
    "pair.add": "加第二句", "pair.drop": "去掉第二句",
    "examples": "例子", "examples.none": "这个视图没有例子。",
    "language": "EN", "language.label": "Switch to English",
    "theme.system": "配色：跟随系统", "theme.light": "配色：浅色", "theme.dark": "配色：深色",
    "share": "分享 / 导出", "export.svg": "导出 SVG 图", "export.png": "导出 PNG 图", "copy.link": "复制链接",
    "save.page": "存成一个离线网页", "said.link": "链接已复制。", "said.link.part": "链接已复制，但文本太长，没有写进链接；请改用“存成一个离线网页”。", "said.saved": "已保存：{name}",
    "said.no_picture": "这个视图暂时没有可导出的图。", "said.not_copied": "浏览器不允许复制，链接就在地址栏里。",
    "keys": "快捷键", "close": "关闭", "missing": "当前安装里没有这个视图。",
    "busy": "计算中……", "saved.badge": "离线网页", "saved.note": "只能查看保存时记录的内容",
    "use": "改看 {model}", "models.able": "能看这个视图", "models.others": "能看别的视图", "can": "{model} 可以看", "kind": "类型", "menu": "视图",
    "facts.layers": "{layers} 层 × {heads} 头", "facts.only": "{layers} 层", "facts.parameters": "{wan} 万参数",
    "key.views": "切换视图 1 – 9", "key.text": "跳到文本框", "key.now": "立即使用当前文本", "key.lang": "中文 / English",
    "key.theme": "浅色、深色、跟随系统", "key.examples": "例子", "key.escape": "离开输入框、关闭",
    "key.help": "显示快捷键",
    "refusal.empty": "还没有文本，请在上面写点什么。",
    "refusal.too_long": "文本有 {length} 个字符，最多 {most} 个。",
    "refusal.too_many_tokens": "文本切成了 {tokens} 个词元，模型最多读 {most} 个。我们不会悄悄截断，请缩短文本。",
    "refusal.too_large": "图太大，浏览器存不成 PNG，请导出 SVG。",
    "refusal.too_big": "一次提问的内容太大，服务器不接收。",
    "refusal.no_attention": "{model} 没有注意力机制（类型：{kind}）。",
    "refusal.no_mask_head": "{model} 不能填空：它没有预测被遮住的词的输出层。",
    "refusal.no_next_sentence": "{model} 没有学过判断两句话是否相连。",
    "refusal.no_next_words": "{model} 不预测下一个词（类型：{kind}）。",
    "refusal.no_mask": "还没有遮住任何词，点一个试试。",
    "refusal.no_translation": "{model} 不会翻译（类型：{kind}）。",
    "refusal.no_vectors": "{model} 里没有每个词固定的词向量（类型：{kind}）。",
    "refusal.no_recurrence": "{model} 不是循环网络（类型：{kind}）。",
    "refusal.no_task": "{model} 还没有微调过任何任务。",
    "refusal.no_model": "{model} 不能在这个视图里读文本。",
    "refusal.no_meanings": "{model} 给不出句子里各个词的向量。",
    "refusal.no_positions": "{model} 没有自己的位置编码。",
    "refusal.no_pair": "{model} 一次只读一段文本，请去掉第二句。",
    "refusal.token": "打开这个页面时没有带令牌，请使用 qkv look 打印出来的地址。",
    "refusal.unknown_name": "服务器不认识这个问题，它和页面的版本可能不同。",
    "refusal.half_written": "这个文件夹不是完整的模型：训练或复制中途断了。",
    "refusal.not_saved": "离线网页里没有记录这个问题。运行 qkv look 就可以随便问。",
    "refusal.no_canvas": "浏览器不支持画布（canvas），下面用表格列出数字。",
    "refusal.server_gone": "qkv look 没有回应，终端里的程序还在运行吗？",
    "refusal.busy": "服务器正忙，请稍后再试。",
    "refusal.fault": "内部出错了，详情见运行 qkv look 的终端。",
    "try.again": "再试一次",
  },
};

export function add(id, words) {
  for (const lang of Object.keys(TABLE)) {
    for (const [key, text] of Object.entries(words?.[lang] ?? {})) TABLE[lang][`${id}.${key}`] = text;
  }
}

export function t(key, about = {}, id = "") {
  const text = found(key, id) ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = about[name];
    return value === undefined ? whole : typeof value === "number" ? number(value) : String(value);
  });
}

export const has = (key, id = "") => found(key, id) !== undefined;

export function refusalText(refusal, id = "") {
  const key = "refusal." + refusal.code;
  const { kind } = refusal.about ?? {}, about = kind ? { ...refusal.about, kind: kindName({ kind }) } : refusal.about;
  const text = has(key, id) ? t(key, about, id) : "";
  return text && !/\{\w+\}/.test(text) ? text : refusal.message || t("refusal.fault");
}

// Of a subject as the room tells of it; of its kind alone where that is all that is known.
export function kindName({ kind, task, facts, heads }) {
  const network = "network." + facts?.reader, plain = has("kind." + kind) ? t("kind." + kind) : kind;
  if (kind === "reader" && has(network)) return t("kind.built", { network: t(network), task: t("task." + (task ?? "")) });
  if (heads && (task || kind === "bert" && !heads.length)) return t("kind.built", { network: plain, task: t("task." + (task ?? "")) });
  const { source_language: from, target_language: to } = facts ?? {};
  return from && to ? `${plain}, ${from} → ${to}` : plain;
}

export function number(value, digits = 0) {
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits || 3 });
}

export function percent(p) {
  if (p > 0 && p < 0.001) return "< 0.1 %";
  if (p < 1 && p > 0.999) return "> 99.9 %";
  return (100 * p).toFixed(1) + " %";
}

function found(key, id) {
  for (const lang of [state.lang, "en"]) {
    const text = (id && TABLE[lang][`${id}.${key}`]) || TABLE[lang][key];
    if (text !== undefined && text !== "") return text;
  }
  return undefined;
}
