// What the recurrence view says, in both languages; and the colours and names of the equation's letters. Words alone.

export const words = {
  en: {
    "title": "What it remembers, word by word", "layer": "layer {layer}", "forward": "reads →", "backward": "← reads",
    "part.language_model": "language model", "part.elmo": "ELMo", "part.encoder": "encoder", "part.reader": "reader", "way": "Layer",
    "sort": "Units", "sort.change": "that change most", "sort.value": "by value now", "sort.number": "by number", "rows": "shown", "all": "all",
    "name.h": "hidden state", "name.c": "cell", "name.m": "unprojected", "name.i": "input gate", "name.f": "forget gate", "name.o": "output gate",
    "name.g": "candidate", "name.r": "reset gate", "name.z": "update gate", "name.n": "candidate", 
    "surprise": "surprise",
    "refusal.too_many_shown": "The text makes {tokens} tokens, and this view shows {most} at most (the model itself may read more). Shorten the text.",
    "play": "Play", "pause": "Pause", "first": "To the beginning", "back": "One word back", "on": "One word on", "at": "word {step} of {steps}",
    "unit": "Unit", "of": "of {n}",
    "equation": "One unit, this step", "begin": "Before the first word everything is 0.", "projected": "h is then a mixture of all {n} numbers m: h′ = P m, {p} of them.",
    "clipped": "Numbers beyond ±{clip} are cut off.", "residual": "What goes on to the next layer is h and what came in.",
    "next.forward": "What it expects next", "next.backward": "What it expects before", "came.forward": "Next came “{word}”: {p}, place {rank}.", "came.backward": "Before it stood “{word}”: {p}, place {rank}.",
    "unknown.came": "“{word}” is not in the vocabulary: it can be read, but not predicted.", "nothing.came": "The text ends here.", "nothing.before": "The text begins here.",
    "cell.rnn": "RNN", "cell.lstm": "LSTM", "cell.peephole": "LSTM with peepholes", "cell.coupled": "LSTM, coupled gates", "cell.gru": "GRU",
    "units": "{n} units. ", "note": "Columns are words, rows are units; those not read yet are faint. Gates go from 0 (shut, clear) to 1 (open, full colour); states are {warm} above zero and {cold} below. Click a cell to see its numbers. Surprise: −log₂ p of the word, in bits. Layers count from 0.",
    "warm": "warm", "cold": "cold", "readout": "{letter}, unit {unit}, at “{word}”: {value}", "key.step": "one word back, on", "key.unit": "another unit", "key.play": "play, pause", "unknown": "Not in the vocabulary, all read as [UNK]: {words}.", "after": "after {word}",
  },
  zh: {
    "title": "逐词读下去，它记住了什么", "layer": "第 {layer} 层", "forward": "从左往右读 →", "backward": "← 从右往左读",
    "part.language_model": "语言模型", "part.elmo": "ELMo", "part.encoder": "编码器", "part.reader": "文本编码器", "way": "层",
    "sort": "单元", "sort.change": "变化最大的", "sort.value": "按当前值", "sort.number": "按编号", "rows": "显示", "all": "全部",
    "name.h": "隐状态", "name.c": "细胞状态", "name.m": "投影之前", "name.i": "输入门", "name.f": "遗忘门", "name.o": "输出门",
    "name.g": "候选值", "name.r": "重置门", "name.z": "更新门", "name.n": "候选值", 
    "surprise": "意外程度",
    "refusal.too_many_shown": "文本切成了 {tokens} 个词元，这个视图最多显示 {most} 个（模型本身或许能读更多）。请缩短文本。",
    "play": "播放", "pause": "暂停", "first": "回到开头", "back": "退一个词", "on": "进一个词", "at": "第 {step} 个词，共 {steps} 个",
    "unit": "单元", "of": "共 {n} 个",
    "equation": "一个单元，这一步", "begin": "读第一个词之前，一切都是 0。", "projected": "h 再由全部 {n} 个 m 混合得到：h′ = P m，共 {p} 个数。",
    "clipped": "超出 ±{clip} 的数会被截断。", "residual": "传给下一层的是 h 加上这一层的输入。",
    "next.forward": "它认为下一个词是", "next.backward": "它认为前一个词是", "came.forward": "实际的下一个是“{word}”：{p}，排第 {rank}。", "came.backward": "实际的前一个是“{word}”：{p}，排第 {rank}。",
    "unknown.came": "“{word}”不在词表里：读得了，但预测不到。", "nothing.came": "文本到这里结束。", "nothing.before": "文本从这里开始。",
    "cell.rnn": "RNN", "cell.lstm": "LSTM", "cell.peephole": "窥视孔 LSTM", "cell.coupled": "耦合门 LSTM", "cell.gru": "GRU",
    "units": "{n} 个单元。", "note": "每列一个词，每行一个单元，还没读到的词颜色很淡。门从 0（关，无色）到 1（开，满色）；状态大于零为{warm}，小于零为{cold}。点一格看具体数字。意外程度：该词的 −log₂ p，单位比特。层从 0 数起。",
    "warm": "暖色", "cold": "冷色", "readout": "{letter}，第 {unit} 号单元，在“{word}”处：{value}", "key.step": "退一个词、进一个词", "key.unit": "换单元", "key.play": "播放、暂停", "unknown": "词表里没有，一律读作 [UNK]：{words}。", "after": "读完 {word}",
  },
};

export const HUES = { f: 0, i: 4, o: 6, g: 3, r: 2, z: 5, n: 3, c: 7, h: 1, m: 1 };
export const near = (value, digits = 2) => value.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");
export const labelOf = token => (token.special ? token.token : token.token.startsWith("##") ? token.token : token.text || token.token);
