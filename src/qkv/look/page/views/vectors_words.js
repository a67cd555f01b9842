// What the vectors view says, in both languages.

export const words = {
  en: {
    "title": "Word vectors", "word": "Word", "neighbours": "Nearest words", "cosine": "cosine", "analogy": "Analogy",
    "is.to": "is to", "as": "as", "is.to.what": "is to …", "map": "A map of words", "all": "All", "chinese": "汉字",
    "letters": "a – z", "script": "Which words", "map.label": "A map of {n} words", "closer": "Closer",
    "farther": "Farther", "whole": "The whole map",
    "map.note": "The first {n} words of the table of {of}, and those asked for, by the two directions in which their " +
      "vectors differ most. These hold {share} % of the spread: far apart is different, close need not be " +
      "alike. Point at a word to see which of these are really near.",
    "rank": "number {rank} of {words} in the table, {width} dimensions", "target": "{b} − {a} + {c}",
    "answers.note": "Answers, by their cosine to {b} − {a} + {c}", "plane.note": "Drawn on the plane through the three words; the answer lies {above} above it.",
    "near": "Near it in spelling:", "key.next": "in the map: next word, word before", "key.choose": "in the map: choose it",
    "key.zoom": "in the map: closer, farther", "key.whole": "the whole map",
    "key.pan": "in the map: move", "refusal.word_not_found": "“{word}” is not among the {words} words of {model}.",
    "refusal.empty": "Write a word.", "refusal.no_vectors": "{model} has no vector for this.",
  },
  zh: {
    "title": "词向量", "word": "词", "neighbours": "最相近的词", "cosine": "余弦", "analogy": "类比", "is.to": "之于",
    "as": "，正如", "is.to.what": "之于……", "map": "词的地图", "all": "全部", "chinese": "汉字", "letters": "字母",
    "script": "显示哪些词", "map.label": "{n} 个词的地图", "closer": "放大", "farther": "缩小", "whole": "看全图",
    "map.note": "词表（共 {of} 个词）最前面的 {n} 个词和查询的词，按向量差别最大的两个方向排开。这两个方向只占全部差异的 " +
      "{share} %：离得远的确实不同，离得近的未必相似。把指针移到词上，看图中哪些词真正与它相近。",
    "rank": "词表中第 {rank} 个，共 {words} 个词，{width} 维", "target": "{b} − {a} + {c}",
    "answers.note": "答案：与 {b} − {a} + {c} 的余弦", "plane.note": "画在三个词所在的平面上；答案在平面之外 {above}。", "near": "拼写相近的词：",
    "key.next": "在地图上：下一个词、上一个词", "key.choose": "在地图上：选中这个词",
    "key.zoom": "在地图上：放大、缩小", "key.whole": "看全图", "key.pan": "在地图上：移动",
    "refusal.word_not_found": "{model} 的 {words} 个词里没有“{word}”。", "refusal.empty": "写一个词。",
    "refusal.no_vectors": "{model} 里没有这个词的向量。",
  },
};
