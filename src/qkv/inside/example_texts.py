"""The texts of the one-click examples, worded by us: two sentences about one animal, a passage about rain that answers
three questions, pairs that follow each other and pairs that do not, sentences in which one word means several things.
"""

TIRED = "The animal didn't cross the street because it was too tired."
NARROW = "The animal didn't cross the street because it was too narrow."
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
FRIDGE = ("She opened the fridge to make breakfast.", "There was not a single egg left.")
CALENDAR = "The calendar was printed in Venice three centuries ago."
FRIDGE_ZH = ("他打开冰箱，想做顿早饭。", "里面连一个鸡蛋也没有了。")
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
