// One-click examples of every task, in Chinese and English, written for this project. What an example fills in are the
// fields of its task (tasks.js); the reader's language comes first.
//
//   examplesOf(task, info, lang) → [{lang, title, values}]

const RAIN = "Rain, snow and hail are kinds of precipitation: water that has condensed in the air and falls to the ground. Inside a cloud the droplets are far too light to fall, and currents of rising air hold them up. Once a drop has become about a million times as heavy as it was, no current can carry it any longer. A short and violent fall is called a shower.";
const RAIN_ZH = "雨、雪和冰雹都是降水：空气里的水汽凝结以后落到地面。云里的小水滴太轻，上升的气流就能托住，所以落不下来。等到一滴水变成原来的大约一百万倍重，气流再也托不住它了。时间短、来势猛的降水叫阵雨。";

const TABLE = {
  "text-classification": {
    zh: [
      { text: "主队在最后一分钟攻入一球，以二比一获胜。" },
      { text: "央行宣布下调利率，股市应声上涨。" },
      { text: "屏幕很清晰，可是电池撑不到半天，客服也一直不回复。" },
    ],
    en: [
      { text: "The home team scored in the last minute and won by two to one." },
      { text: "The central bank cut its rates, and shares rose at once." },
      { text: "The screen is lovely, but the battery is flat by noon and nobody answers my mails." },
    ],
  },
  "text-classification pair": {
    zh: [{ text: "怎么修改登录密码？", pair: "密码忘了，在哪里可以重新设置？" }, { text: "这列火车几点到北京？", pair: "北京今天下雨吗？" }],
    en: [{ text: "How do I change my password?", pair: "Where can I set a new password?" }, { text: "When does the train arrive?", pair: "Is it raining in London?" }],
  },
  "token-classification": {
    zh: [
      { text: "张伟去年从上海交通大学毕业，现在在深圳的华为公司工作。" },
      { text: "10月3日，李娜在巴黎与法国文化部的代表见面。" },
    ],
    en: [
      { text: "Marie Curie was born in Warsaw and worked at the University of Paris." },
      { text: "Angela Merkel met the board of Siemens in Munich on Monday." },
    ],
  },
  "question-answering": {
    zh: [{ question: "小水滴为什么落不下来？", context: RAIN_ZH }, { question: "什么叫阵雨？", context: RAIN_ZH }, { question: "谁发明了望远镜？", context: RAIN_ZH }],
    en: [{ question: "What holds the droplets up?", context: RAIN }, { question: "What is a shower?", context: RAIN }, { question: "Who invented the telescope?", context: RAIN }],
  },
  "multiple-choice": {
    zh: [{ context: "小明早上出门时天很阴，他把伞忘在了家里。傍晚回到家，他的衣服全湿了。", question: "小明的衣服为什么湿了？", choices: ["他淋了雨", "他去游泳了", "他洗了衣服"] }],
    en: [{ context: "The sky was grey when Tom left, and he forgot his umbrella. In the evening he came home soaked.", question: "Why was Tom soaked?", choices: ["He walked through the rain", "He went swimming", "He washed his clothes"] }],
  },
  "fill-mask": {
    zh: [{ text: "巴黎是[MASK]国的首都。" }, { text: "这种鱼生活在深[MASK]里，靠吃小虾长大。" }, { text: "她出[MASK]于上海，在北京读大学。" }],
    en: [{ text: "The museum [MASK] in 1900." }, { text: "She was born in [MASK] and studied at the University of Oxford." }, { text: "Paris is the capital of [MASK]." }],
  },
  similarity: {
    zh: [
      { sentences: ["一只猫在沙发上睡觉。", "小猫躺在椅子上打盹。", "A cat sleeps on the sofa.", "央行宣布加息。", "利率上调了。", "The bank raised its rates."] },
      { sentences: ["怎么退货？", "不想要了，可以退钱吗？", "快递什么时候到？", "我的包裹走到哪里了？", "怎么开发票？"] },
    ],
    en: [
      { sentences: ["A cat sleeps on the sofa.", "A kitten is dozing on a chair.", "一只猫在沙发上睡觉。", "The central bank raised its rates.", "Interest rates went up.", "央行宣布加息。"] },
      { sentences: ["How do I return this?", "Can I get my money back?", "When will it arrive?", "Where is my parcel?", "May I have an invoice?"] },
    ],
  },
  rerank: {
    zh: [{ query: "买错了想退掉", documents: ["七天之内可以无理由退货，运费由买家承担。", "我们的客服每天早上九点上班。", "包裹一般在三天以内送到。", "You can send anything back within a week.", "发票会随货物一起寄出。"] }],
    en: [{ query: "I bought the wrong size and want to give it back", documents: ["Anything can be returned within seven days; you pay the postage.", "Our office opens at nine every morning.", "Parcels usually arrive within three days.", "七天之内可以无理由退货。", "The invoice is sent together with the goods."] }],
  },
  "translation zh": {
    zh: [{ text: "他昨天给我打了电话。" }, { text: "你会说英语吗？" }, { text: "最近的车站在哪里？" }],
  },
  translation: {
    en: [{ text: "Where is the nearest station?" }, { text: "I want to drink a cup of coffee." }, { text: "Can you speak Chinese?" }],
  },
  "text-generation": {
    zh: [{ prompt: "杭州是一座" }, { prompt: "人工智能是" }, { prompt: "The capital of France" }],
    en: [{ prompt: "The capital of France" }, { prompt: "In the nineteenth century, the railway" }, { prompt: "杭州是一座" }],
  },
};

export function examplesOf(task, info, lang) {
  const key = task === "text-classification" && info.reads_pairs ? `${task} pair`
    : task === "translation" && (info.languages?.[0] ?? "").startsWith("zh") ? "translation zh" : task;
  const mask = info.mask_token ?? "[MASK]", seen = new Set(), found = [];
  for (const one of [lang, lang === "zh" ? "en" : "zh"]) {
    for (const given of TABLE[key]?.[one] ?? []) {
      const values = given.text ? { ...given, text: given.text.replaceAll("[MASK]", mask) } : given;
      const title = values.question ?? values.query ?? values.prompt ?? values.text ?? values.sentences.slice(0, 2).join(" / ");
      if (seen.has(title)) continue;
      seen.add(title);
      found.push({ lang: one, title, values });
    }
  }
  return found;
}
