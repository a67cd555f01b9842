"""The examples of every view, in Chinese and English, written for this project.

Hidden words are those that qkv-mini finds first, and the first examples of attention those whose pronoun it sees
through; tests hold both. What the models of the package show of every example: bench/look_examples.py --shown.

An example has a title in both languages, the language of its text, and the page state that it sets: the texts shared by
all views (`text`, `pair`), and the settings of single views under their names. The page lists the reader's language
first, and shows examples with a `task` only for models with that task.
"""

from typing import Any

TIRED = "The animal didn't cross the street because it was too tired."
_NARROW = "The animal didn't cross the street because it was too narrow."
RAIN = (
    "Rain, snow and hail are kinds of precipitation: water that has condensed in the air and falls to the ground. "
    "It is gravity that pulls it down. Inside a cloud the droplets are far too light to fall, and currents of rising "
    "air hold them up. They grow as they bump into each other and join, or as vapour freezes onto crystals of ice. "
    "Once a drop has become about a million times as heavy as it was, no current can carry it any longer. Snow that "
    "melts on its way and freezes again close to the ground arrives as sleet. A short and violent fall is called a "
    "shower."
)
RAIN_ZH = (
    "雨、雪和冰雹都是降水：空气里的水汽凝结以后落到地面。把它们拉下来的是重力。云里的小水滴太轻，上升的气流就能托住，所以落"
    "不下来。它们互相碰撞、合并，或者水汽在冰晶上冻结，水滴才越长越大。等到一滴水变成原来的大约一百万倍重，气流再也托不住它了"
    "。雪在半路上融化，快到地面时又冻住，落下来的就是冰粒。时间短、来势猛的降水叫阵雨。"
)
LONDON = "She was born in London and studied at the University of Oxford."
FRIDGE = ("She opened the fridge to make breakfast.", "There was not a single egg left.")
FISH = "These fish live in the deep sea and eat small shrimps."
MUSEUM = ("The museum opened in 1900.", "It was closed during the war.")
POET_ZH = ("杜甫是唐代诗人。", "他的诗流传至今。")
DEEP_SEA = "这种鱼生活在深海里，靠吃小虾长大。"

PYTHON = [
    "A python bit him in the forest.",
    "A python is a large snake that swallows its prey.",
    "The python was found near the river, where it ate a small animal.",
    "The zoo has a python and two other snakes.",
    "Python is the programming language I like best.",
    "She wrote the software in Python and Java.",
    "The library is written in Python and runs on Linux.",
    "Python code is easy to read for a new user.",
]
BANK = [
    "The town lies on the left bank of the river.",
    "They built a house on the bank of the stream.",
    "The army crossed to the east bank of the Danube.",
    "Fish gathered near the muddy bank of the lake.",
    "The bank lent the company ten million dollars.",
    "She opened an account at the bank.",
    "The central bank raised interest rates.",
    "He worked for an investment bank in London.",
]
APPLE = [
    "She ate a red apple and a pear.",
    "The apple tree bears fruit in autumn.",
    "He made a pie with apple and sugar.",
    "Apple released a new computer in 1998.",
    "Shares of Apple rose after the new phone was announced.",
    "The software runs on Apple and Microsoft systems.",
]
APPLE_ZH = [
    "她每天早上吃一个苹果和一根香蕉。",
    "山坡上的苹果树结满了果实。",
    "这种苹果又甜又脆，适合做果汁。",
    "农民把苹果和梨运到市场上卖。",
    "苹果公司发布了新款手机。",
    "苹果的股价今天上涨了。",
    "这个软件可以在苹果电脑上运行。",
    "苹果和微软是竞争对手。",
]
FOOL_ZH = [
    "你当我是傻子吗？这点把戏谁看不出来。",
    "只有傻子才会相信他的谎话。",
    "别把老百姓当傻子。",
    "他骂对方是傻子，两人打了起来。",
    "你这个傻子，下雨也不知道带伞，快进来吧。",
    "小傻子，妈妈怎么会不爱你呢。",
    "她笑着说：傻子，我一直在等你。",
    "村里的傻子每天坐在桥头。",
]
WHAT_ZH = [
    "老铁，干哈呢？晚上出来喝酒。",
    "你在屋里干哈呢？快来吃饭。",
    "妈，你干哈呢？我想你了。",
    "你干哈呢！把我的碗都打碎了。",
    "干哈呢你！谁让你动我的东西？",
    "你们干哈呢！这里不许停车。",
]
MEANING_ZH = [
    "这个词的意思是什么？",
    "他不明白这句话的意思。",
    "这个字在古代有另外的意思。",
    "这部电影很有意思。",
    "和孩子们一起玩真有意思。",
    "一点小意思，请您收下。",
    "不好意思，我来晚了。",
    "真不好意思，给您添麻烦了。",
]


PageExample = dict[str, Any]

EXAMPLES: dict[str, list[PageExample]] = {
    "attention": [
        {
            "title": {"en": "children … they", "zh": "children … they"},
            "lang": "en",
            "set": {"text": "The children went home because they were hungry."},
        },
        {
            "title": {"en": "river … it", "zh": "river … it"},
            "lang": "en",
            "set": {"text": "The river is long, and it flows into the sea."},
        },
        {"title": {"en": "it … too tired", "zh": "it … too tired（指动物）"}, "lang": "en", "set": {"text": TIRED}},
        {"title": {"en": "it … too narrow", "zh": "it … too narrow（指街道）"}, "lang": "en", "set": {"text": _NARROW}},
        {
            "title": {"en": "Python, a language and a snake", "zh": "Python：语言与蟒蛇"},
            "lang": "en",
            "set": {"text": "Python is my favourite language.", "pair": "He was bitten by a python."},
        },
        {
            "title": {"en": "Two sentences: the fridge", "zh": "两个句子：冰箱（英文）"},
            "lang": "en",
            "set": {"text": FRIDGE[0], "pair": FRIDGE[1]},
        },
        {
            "title": {"en": "Tom chases Jerry", "zh": "Tom chases Jerry"},
            "lang": "en",
            "set": {"text": "Tom chases Jerry"},
        },
        {
            "title": {"en": "Thinking Machines", "zh": "Thinking Machines"},
            "lang": "en",
            "set": {"text": "Thinking Machines"},
        },
        {
            "title": {"en": "公司 … 它 (the company, it)", "zh": "公司……它"},
            "lang": "zh",
            "set": {"text": "这家公司很大，它有三千名员工。"},
        },
        {
            "title": {"en": "李白 … 他 (Li Bai, he)", "zh": "李白……他"},
            "lang": "zh",
            "set": {"text": "李白是诗人，他写了许多诗。"},
        },
        {
            "title": {"en": "苹果, a fruit and a company", "zh": "苹果：水果与公司"},
            "lang": "zh",
            "set": {"text": "我每天吃一个苹果。", "pair": "苹果发布了一款新手机。"},
        },
        {
            "title": {"en": "傻子, in anger and with love", "zh": "傻子：生气与开心"},
            "lang": "zh",
            "set": {"text": "你这个傻子，给我滚出去！", "pair": "小傻子，我怎么会不喜欢你呢。"},
        },
        {
            "title": {"en": "… 我请客 (what counts in a sentence)", "zh": "……我请客"},
            "lang": "zh",
            "set": {"text": "下班后去吃碗面吧，今天我请客。"},
        },
        {
            "title": {"en": "他欠我100万 (who owes whom)", "zh": "他欠我100万"},
            "lang": "zh",
            "set": {"text": "他欠我100万"},
        },
    ],
    "fill": [
        {
            "title": {"en": "She was … in London and studied …", "zh": "She was … in London and studied …"},
            "lang": "en",
            "set": {
                "text": LONDON,
                "fill": {"hide": "8-12 42-52"},
            },
        },
        {
            "title": {"en": "Berlin is the capital of …", "zh": "Berlin is the capital of …"},
            "lang": "en",
            "set": {"text": "Berlin is the capital of Germany.", "fill": {"hide": "25-32"}},
        },
        {
            "title": {"en": "… the … of the United States", "zh": "… the … of the United States"},
            "lang": "en",
            "set": {"text": "He is the president of the United States.", "fill": {"hide": "10-19"}},
        },
        {
            "title": {"en": "The Second World War … in 1945.", "zh": "The Second World War … in 1945."},
            "lang": "en",
            "set": {"text": "The Second World War ended in 1945.", "fill": {"hide": "21-26"}},
        },
        {
            "title": {
                "en": "my dog is hairy (the sentence of the BERT paper)",
                "zh": "my dog is hairy（BERT 论文里的句子）",
            },
            "lang": "en",
            "set": {"text": "my dog is [MASK]."},
        },
        {
            "title": {"en": "The next sentence: yes", "zh": "下一句：是（英文）"},
            "lang": "en",
            "set": {"text": MUSEUM[0], "pair": MUSEUM[1], "fill": {"hide": "11-17"}},
        },
        {
            "title": {"en": "The next sentence: no", "zh": "下一句：不是（英文）"},
            "lang": "en",
            "set": {"text": MUSEUM[0], "pair": FISH, "fill": {"hide": "11-17"}},
        },
        {
            "title": {"en": "巴黎是□国的首都 (the capital of …)", "zh": "巴黎是□国的首都"},
            "lang": "zh",
            "set": {"text": "巴黎是法国的首都。", "fill": {"hide": "3-4"}},
        },
        {
            "title": {"en": "东京是□本的首都 (the capital of …)", "zh": "东京是□本的首都"},
            "lang": "zh",
            "set": {"text": "东京是日本的首都。", "fill": {"hide": "3-4"}},
        },
        {
            "title": {"en": "地球绕着太□转 (the earth turns around …)", "zh": "地球绕着太□转"},
            "lang": "zh",
            "set": {"text": "地球绕着太阳转。", "fill": {"hide": "5-6"}},
        },
        {
            "title": {"en": "李白是唐代著名的□人 (a poet of the Tang)", "zh": "李白是唐代著名的□人"},
            "lang": "zh",
            "set": {"text": "李白是唐代著名的诗人。", "fill": {"hide": "8-9"}},
        },
        {
            "title": {"en": "下一句: yes (Chinese)", "zh": "下一句：是"},
            "lang": "zh",
            "set": {"text": POET_ZH[0], "pair": POET_ZH[1], "fill": {"hide": "5-6"}},
        },
        {
            "title": {"en": "下一句: no (Chinese)", "zh": "下一句：不是"},
            "lang": "zh",
            "set": {"text": POET_ZH[0], "pair": DEEP_SEA, "fill": {"hide": "5-6"}},
        },
    ],
    "next": [
        {
            "title": {"en": "born in …: one side, two sides", "zh": "born in ……：看一边与看两边"},
            "lang": "en",
            "set": {"text": LONDON, "next": {"at": LONDON.index("London")}},
        },
        {
            "title": {"en": "She drank a cup of …", "zh": "She drank a cup of ……"},
            "lang": "en",
            "set": {"text": "She drank a cup of"},
        },
        {
            "title": {"en": "my dog is hairy", "zh": "my dog is hairy"},
            "lang": "en",
            "set": {"text": "my dog is hairy", "next": {"at": 10}},
        },
        {"title": {"en": "because it was too …", "zh": "because it was too ……"}, "lang": "en", "set": {"text": TIRED}},
        {
            "title": {"en": "北京是中国的首 … (the capital of China)", "zh": "北京是中国的首……"},
            "lang": "zh",
            "set": {"text": "北京是中国的首都。", "next": {"at": 7}},
        },
        {
            "title": {"en": "床前明月 … (a poem of the Tang)", "zh": "床前明月……"},
            "lang": "zh",
            "set": {"text": "床前明月光，疑是地上"},
        },
        {
            "title": {"en": "我请 … (I treat: who pays)", "zh": "我请……"},
            "lang": "zh",
            "set": {"text": "我请客", "next": {"at": 2}},
        },
        {
            "title": {"en": "干哈呢 (what are you up to, north-eastern)", "zh": "干哈呢（东北话）"},
            "lang": "zh",
            "set": {"text": "你干哈呢", "next": {"at": 2}},
        },
    ],
    "meanings": [
        {
            "title": {"en": "Python, snake or language", "zh": "Python：蟒蛇还是编程语言"},
            "lang": "en",
            "set": {"meanings": {"word": "Python", "sentences": PYTHON}},
        },
        {
            "title": {"en": "bank: of a river, or for money", "zh": "bank：河岸还是银行"},
            "lang": "en",
            "set": {"meanings": {"word": "bank", "sentences": BANK}},
        },
        {
            "title": {"en": "apple and Apple", "zh": "apple 与 Apple"},
            "lang": "en",
            "set": {"meanings": {"word": "apple", "sentences": APPLE}},
        },
        {
            "title": {"en": "苹果: the fruit and the company", "zh": "苹果：水果还是公司"},
            "lang": "zh",
            "set": {"meanings": {"word": "苹果", "sentences": APPLE_ZH}},
        },
        {
            "title": {"en": "傻子: said with anger, with love", "zh": "傻子：骂人还是亲昵"},
            "lang": "zh",
            "set": {"meanings": {"word": "傻子", "sentences": FOOL_ZH}},
        },
        {
            "title": {"en": "意思: meaning, or a small gift", "zh": "意思：含义、心意、有趣"},
            "lang": "zh",
            "set": {"meanings": {"word": "意思", "sentences": MEANING_ZH}},
        },
        {
            "title": {"en": "干哈呢: to a friend, in anger", "zh": "干哈呢：打招呼与发火"},
            "lang": "zh",
            "set": {"meanings": {"word": "干哈呢", "sentences": WHAT_ZH}},
        },
    ],
    "positions": [
        {
            "title": {"en": "dog bites man / man bites dog", "zh": "狗咬人 / 人咬狗（英文）"},
            "lang": "en",
            "set": {"positions": {"text": "the dog bites the man", "other": "the man bites the dog"}},
        },
        {
            "title": {"en": "Only she said so / She only said so", "zh": "only 换个位置"},
            "lang": "en",
            "set": {
                "positions": {"text": "only she said that she loved him", "other": "she said that she loved only him"}
            },
        },
        {
            "title": {"en": "他欠我100万 / 我欠他100万: who owes whom", "zh": "他欠我100万 / 我欠他100万"},
            "lang": "zh",
            "set": {"positions": {"text": "他欠我100万", "other": "我欠他100万"}},
        },
        {
            "title": {"en": "我请你 / 你请我: who pays", "zh": "我请你 / 你请我：谁请客"},
            "lang": "zh",
            "set": {"positions": {"text": "我请你吃饭", "other": "你请我吃饭"}},
        },
        {
            "title": {"en": "不怕辣 / 怕不辣 / 辣不怕", "zh": "不怕辣 / 怕不辣"},
            "lang": "zh",
            "set": {"positions": {"text": "四川人不怕辣", "other": "四川人怕不辣"}},
        },
    ],
    "translation": [
        {
            "title": {"en": "Tom chases Jerry", "zh": "Tom chases Jerry"},
            "lang": "en",
            "set": {"text": "Tom chases Jerry"},
        },
        {"title": {"en": "Hello World", "zh": "Hello World"}, "lang": "en", "set": {"text": "Hello World"}},
        {
            "title": {
                "en": "I have never seen such a beautiful garden.",
                "zh": "I have never seen such a beautiful garden.",
            },
            "lang": "en",
            "set": {"text": "I have never seen such a beautiful garden."},
        },
        {"title": {"en": "… too tired", "zh": "… too tired"}, "lang": "en", "set": {"text": TIRED}},
        {
            "title": {
                "en": "Ein Mann fährt mit dem Fahrrad … (German)",
                "zh": "Ein Mann fährt mit dem Fahrrad …（德文）",
            },
            "lang": "de",
            "set": {"text": "Ein Mann fährt mit dem Fahrrad durch die Stadt."},
        },
        {
            "title": {"en": "我从来没见过这么美的花园。 (Chinese)", "zh": "我从来没见过这么美的花园。"},
            "lang": "zh",
            "set": {"text": "我从来没见过这么美的花园。"},
        },
        {
            "title": {"en": "今天我请客。 (Chinese)", "zh": "今天我请客。"},
            "lang": "zh",
            "set": {"text": "今天我请客。"},
        },
    ],
    "vectors": [
        {
            "title": {"en": "he is to she as king is to …", "zh": "he 之于 she，正如 king 之于……"},
            "lang": "en",
            "set": {"vectors": {"word": "king", "a": "he", "b": "she", "c": "king"}},
        },
        {
            "title": {"en": "king − man + woman", "zh": "king − man + woman"},
            "lang": "en",
            "set": {"vectors": {"word": "queen", "a": "man", "b": "king", "c": "woman"}},
        },
        {
            "title": {"en": "Paris is to France as … to Germany", "zh": "巴黎之于法国，……之于德国（英文词）"},
            "lang": "en",
            "set": {"vectors": {"word": "Paris", "a": "France", "b": "Paris", "c": "Germany"}},
        },
        {
            "title": {"en": "brother, sister, father, …", "zh": "brother, sister, father, …"},
            "lang": "en",
            "set": {"vectors": {"word": "father", "a": "brother", "b": "sister", "c": "father"}},
        },
        {
            "title": {"en": "big, bigger, small, …", "zh": "big, bigger, small, …"},
            "lang": "en",
            "set": {"vectors": {"word": "small", "a": "big", "b": "bigger", "c": "small"}},
        },
        {
            "title": {"en": "Python: between Monty and Perl", "zh": "Python：在 Monty 与 Perl 之间"},
            "lang": "en",
            "set": {"vectors": {"word": "Python", "a": "France", "b": "French", "c": "Germany"}},
        },
        {
            "title": {"en": "父 : 母 = 兄 : ?", "zh": "父 : 母 = 兄 : ?"},
            "lang": "zh",
            "set": {"vectors": {"word": "猫", "a": "父", "b": "母", "c": "兄"}},
        },
        {
            "title": {"en": "北京 − 中国 + 法国 (Beijing − China + France)", "zh": "北京 − 中国 + 法国"},
            "lang": "zh",
            "set": {"vectors": {"word": "巴黎", "a": "中国", "b": "北京", "c": "法国"}},
        },
    ],
    "tasks": [
        {
            "title": {"en": "Rain: what makes it fall?", "zh": "降水：为什么会落下来？（英文）"},
            "lang": "en",
            "set": {"tasks": {"passage": RAIN, "question": "What pulls precipitation down?"}},
        },
        {
            "title": {"en": "Rain: snow that freezes again?", "zh": "降水：又冻住的雪叫什么？（英文）"},
            "lang": "en",
            "set": {"tasks": {"passage": RAIN, "question": "What is snow called that melts and freezes again?"}},
        },
        {
            "title": {"en": "Rain: where do droplets meet?", "zh": "降水：水滴在哪里碰撞？（英文）"},
            "lang": "en",
            "set": {"tasks": {"passage": RAIN, "question": "Where do droplets bump into each other?"}},
        },
        {
            "title": {"en": "降水: what makes it fall? (Chinese)", "zh": "降水：是什么让它落下来？"},
            "lang": "zh",
            "set": {"tasks": {"passage": RAIN_ZH, "question": "是什么把雨和雪拉到地面上的？"}},
        },
        {
            "title": {"en": "降水: snow that freezes again? (Chinese)", "zh": "降水：融化又冻住的雪叫什么？"},
            "lang": "zh",
            "set": {"tasks": {"passage": RAIN_ZH, "question": "雪融化以后又冻住，落下来的是什么？"}},
        },
        {
            "title": {"en": "降水: where do droplets meet? (Chinese)", "zh": "降水：小水滴在哪里碰撞？"},
            "lang": "zh",
            "set": {"tasks": {"passage": RAIN_ZH, "question": "小水滴在哪里碰撞、合并？"}},
        },
        {
            "title": {"en": "Rain: three ways out", "zh": "降水：三选一（英文）"},
            "lang": "en",
            "set": {
                "tasks": {
                    "passage": RAIN,
                    "question": "Why does a drop fall in the end?",
                    "choices": [
                        "It is too heavy for the rising air.",
                        "The cloud has melted.",
                        "The wind has stopped.",
                    ],
                }
            },
        },
        {
            "title": {"en": "降水: three ways out (Chinese)", "zh": "降水：三选一"},
            "lang": "zh",
            "set": {
                "tasks": {
                    "passage": RAIN_ZH,
                    "question": "小水滴为什么一开始落不下来？",
                    "choices": ["太轻，气流托得住", "云里没有重力", "已经冻成了冰"],
                }
            },
        },
        {
            "task": "classify",
            "title": {"en": "A headline: which desk?", "zh": "一则标题归哪个版？（英文）"},
            "lang": "en",
            "set": {"text": "Shares tumble after the airline cuts its forecast"},
        },
        {
            "task": "classify",
            "title": {"en": "A headline: which desk? (Chinese)", "zh": "一则标题归哪个版？"},
            "lang": "zh",
            "set": {"text": "补时绝杀，主队时隔八年再进决赛"},
        },
        {
            "task": "classify",
            "title": {"en": "A customer writes", "zh": "顾客来信（英文）"},
            "lang": "en",
            "set": {"text": "The parcel came two weeks late. Do I get the delivery fee back?"},
        },
        {
            "task": "tag",
            "title": {"en": "People and places", "zh": "人名和地名（英文）"},
            "lang": "en",
            "set": {"text": "In May Clara Weber left Vienna for Shanghai, where she works for the Red Cross."},
        },
        {
            "task": "classify",
            "title": {"en": "A customer writes (Chinese)", "zh": "顾客来信"},
            "lang": "zh",
            "set": {"text": "年后才能送到的话就别寄了，把钱退给我吧。"},
        },
        {
            "task": "tag",
            "title": {"en": "People and places (Chinese)", "zh": "人名和地名"},
            "lang": "zh",
            "set": {"text": "林晓燕五月从成都搬到上海，在复旦大学教物理。"},
        },
    ],
    "recurrence": [
        {"title": {"en": "… too tired", "zh": "… too tired"}, "lang": "en", "set": {"text": TIRED}},
        {"title": {"en": "Hello World", "zh": "Hello World"}, "lang": "en", "set": {"text": "Hello World"}},
        {
            "title": {"en": "Python是一种编程语言。", "zh": "Python是一种编程语言。"},
            "lang": "zh",
            "set": {"text": "Python是一种编程语言。"},
        },
        {
            "title": {"en": "他欠我100万 (who owes whom)", "zh": "他欠我100万"},
            "lang": "zh",
            "set": {"text": "他欠我100万"},
        },
    ],
}
"""By view, in display order."""
