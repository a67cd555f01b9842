// What the meanings view says, in both languages.

export const words = {
  en: {
    "title": "One word, many meanings", "word": "Word", "sentences": "Sentences, one per line",
    "edit": "Edit the sentences", "add": "Add “{text}”", "add.title": "Add the sentence of the other views, which contains the word", "go": "attention →", "go.title": "Look at this sentence’s attention", "done": "Done",
    "depth": "Layers", "play": "Play", "stop": "Stop", "below": "embeddings", "top": "highest layer",
    "course": "How alike the word is to itself (mean cosine over the sentences)", "layer": "after layer {layer}",
    "no.layers": "one vector per word", "one.layer": "one layer",
    "one.point": "One point: the same vector in all {n} places, whatever stands around it.",
    "pieces": "{word} is cut into {pieces}; drawn is the mean of their vectors.",
    "unknown": "“{word}” (in {where}) has no vector here.", "without": "does not contain “{word}”",
    "held": "The plane holds {share} % of the spread.", "picture": "{word} in {model}",
    "caption": "Each number is a sentence, placed by the two directions in which the word’s vectors differ most in that " +
      "layer (PCA, each layer on a scale of its own). Lines and cosines go to the nearest contexts. Near in " +
      "the highest layer, near in colour. Layers count from 0, as in Attention; below them are the embeddings.",
    "key.layer": "a layer down, up", "key.play": "play through the layers",
    "nobody": "No model of the room gives vectors of words.",
    "refusal.word_not_found": "None of the sentences contains “{word}”.",
    "refusal.empty": "Write a word and a few sentences that contain it.", "near": "Near it in spelling: {near}",
    "refusal.no_vector": "“{word}” has no vector in {model}.",
    "refusal.number": "That is more than is shown: {most} at most.",
  },
  zh: {
    "title": "一词多义", "word": "词", "sentences": "句子，每行一句", "edit": "编辑句子", "add": "加入“{text}”", "add.title": "把其他视图里的这句话加进来（它含有这个词）", "go": "注意力 →",
    "go.title": "看这句话的注意力", "done": "完成", "depth": "层", "play": "播放", "stop": "停止", "below": "嵌入层",
    "top": "最高层", "course": "同一个词在各句之间有多相似（余弦的平均）", "layer": "第 {layer} 层之后",
    "no.layers": "一词一个向量", "one.layer": "只有一层",
    "one.point": "只有一个点：{n} 处用的是同一个向量，与上下文无关。",
    "pieces": "“{word}”被切成 {pieces}，图中取它们向量的平均。", "unknown": "“{word}”（第 {where} 句）在这里没有向量。",
    "without": "不含“{word}”", "held": "这个平面保留了 {share} % 的差异。", "picture": "{model} 中的“{word}”",
    "caption": "每个编号是一个句子，位置由这一层中该词各向量差别最大的两个方向决定（主成分分析，各层单独定标）。连线和余" +
      "弦值指向最相近的语境。在最高层离得近的，颜色也相近。层从 0 数起，与“注意力”一致；最下面是嵌入层。",
    "key.layer": "下一层、上一层", "key.play": "逐层播放", "nobody": "这里没有能给出词向量的模型。",
    "refusal.word_not_found": "没有一个句子含有“{word}”。", "refusal.empty": "写一个词，再写几个含有它的句子。",
    "near": "拼写相近的词：{near}", "refusal.no_vector": "“{word}”在 {model} 中没有向量。",
    "refusal.number": "太多了，最多显示 {most} 处。",
  },
};
