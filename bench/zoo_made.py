"""Sentences in English and Chinese that a grammar makes: scenes, headlines, and what people ask of a service.

Written for qkv, because free texts of these kinds in both languages are few. Each part is "English | 中文"; choices are
drawn, so that many sentences differ in one word only, and a teacher tells how much that word matters. No sentence is
taken from a set that models are measured by. bench/zoo_texts.py writes the pairs.
"""

from collections.abc import Iterator
from random import Random


def parts(text: str) -> list[tuple[str, str]]:
    """Lines "English | 中文"."""
    rows = (line.split("|") for line in text.strip().splitlines())
    return [(english.strip(), chinese.strip()) for english, chinese in rows]


# Scenes

ONE = parts(
    """man | 个男人
woman | 个女人
boy | 个男孩
girl | 个女孩
young man | 个年轻男子
young woman | 个年轻女子
old man | 位老人
old woman | 位老太太
little boy | 个小男孩
little girl | 个小女孩
child | 个孩子
baby | 个婴儿
person | 个人
student | 名学生
teacher | 位老师
doctor | 位医生
nurse | 名护士
policeman | 名警察
soldier | 名士兵
worker | 名工人
farmer | 个农民
cook | 位厨师
singer | 位歌手
musician | 位音乐家
dancer | 位舞者
athlete | 名运动员
tourist | 名游客
waiter | 名服务员
driver | 位司机
lady | 位女士
guy | 个小伙子
teenager | 个少年"""
)
SEVERAL = parts(
    """Two men | 两个男人
Two women | 两个女人
Two boys | 两个男孩
Two girls | 两个女孩
Two children | 两个孩子
Three people | 三个人
Three men | 三个男人
Some people | 一些人
Many people | 许多人
A group of people | 一群人
A group of children | 一群孩子
A crowd | 一大群人
Several students | 几名学生
The children | 孩子们
A couple | 一对情侣
A family | 一家人
Men | 男人们
Kids | 小孩子们
Four friends | 四个朋友
Soldiers | 士兵们"""
)
LOOKS = parts(
    """in a red shirt | 穿红衬衫的
in a white dress | 穿白裙子的
in a black coat | 穿黑大衣的
in a blue jacket | 穿蓝夹克的
in a yellow raincoat | 穿黄雨衣的
in uniform | 穿制服的
in a suit | 穿西装的
in jeans | 穿牛仔裤的
wearing a hat | 戴帽子的
wearing glasses | 戴眼镜的
wearing sunglasses | 戴墨镜的
wearing a helmet | 戴头盔的
with long hair | 留长发的
with a beard | 留胡子的
with a backpack | 背着背包的
without a shirt | 没穿上衣的"""
)
DOES = parts(
    """playing the guitar | 弹吉他
playing the piano | 弹钢琴
playing the violin | 拉小提琴
playing the flute | 吹笛子
playing the drums | 打鼓
playing football | 踢足球
playing basketball | 打篮球
playing tennis | 打网球
playing baseball | 打棒球
playing volleyball | 打排球
playing golf | 打高尔夫球
playing chess | 下棋
playing cards | 打牌
playing a video game | 玩电子游戏
playing with a ball | 玩球
playing with a dog | 和狗玩
playing with toys | 玩玩具
singing | 唱歌
singing a song | 唱一首歌
dancing | 跳舞
running | 跑步
walking | 走路
jumping | 跳跃
swimming | 游泳
diving | 跳水
climbing a rock | 攀岩
climbing a tree | 爬树
riding a bicycle | 骑自行车
riding a horse | 骑马
riding a motorcycle | 骑摩托车
riding a skateboard | 玩滑板
riding a bus | 坐公共汽车
driving a car | 开车
driving a truck | 开卡车
skiing | 滑雪
skating | 滑冰
surfing | 冲浪
fishing | 钓鱼
hiking | 徒步
rowing a boat | 划船
flying a kite | 放风筝
flying a plane | 开飞机
cooking | 做饭
cooking rice | 煮米饭
frying an egg | 煎鸡蛋
boiling water | 烧水
cutting an onion | 切洋葱
cutting a tomato | 切西红柿
slicing potatoes | 切土豆片
slicing bread | 切面包
peeling an apple | 削苹果
chopping vegetables | 切菜
mixing flour | 和面
washing dishes | 洗碗
washing a car | 洗车
washing clothes | 洗衣服
eating | 吃东西
eating a banana | 吃香蕉
eating an apple | 吃苹果
eating noodles | 吃面条
eating ice cream | 吃冰淇淋
drinking water | 喝水
drinking coffee | 喝咖啡
drinking beer | 喝啤酒
pouring tea | 倒茶
reading a book | 看书
reading a newspaper | 看报纸
reading a letter | 读信
writing a letter | 写信
drawing a picture | 画画
painting a wall | 刷墙
taking a photo | 拍照
watching television | 看电视
watching a film | 看电影
talking on the phone | 打电话
talking to a friend | 和朋友说话
talking | 说话
laughing | 大笑
smiling | 微笑
crying | 哭
sleeping | 睡觉
sitting | 坐着
standing | 站着
lying down | 躺着
waiting | 等待
shopping | 购物
buying fruit | 买水果
selling flowers | 卖花
paying at the counter | 在柜台付钱
carrying a bag | 提着包
carrying a child | 抱着孩子
carrying a ladder | 扛着梯子
pushing a cart | 推着车
pulling a rope | 拉绳子
throwing a ball | 扔球
throwing a stone | 扔石头
catching a ball | 接球
kicking a ball | 踢球
hitting a ball with a bat | 用球棒击球
lifting weights | 举重
doing exercises | 做运动
doing homework | 做作业
doing a handstand | 倒立
feeding a cat | 喂猫
feeding the birds | 喂鸟
brushing her teeth | 刷牙
combing hair | 梳头
putting on makeup | 化妆
cleaning the window | 擦窗户
sweeping the floor | 扫地
cutting the grass | 割草
planting a tree | 种树
watering the flowers | 浇花
repairing a bicycle | 修自行车
repairing a roof | 修屋顶
building a house | 盖房子
digging a hole | 挖洞
opening a box | 打开盒子
opening a door | 开门
closing a window | 关窗
folding paper | 折纸
sewing a shirt | 缝衬衫
typing on a keyboard | 敲键盘
using a computer | 用电脑
using a knife | 用刀
shooting a gun | 开枪
shooting an arrow | 射箭
holding a flag | 举着旗子
holding an umbrella | 打着伞
holding a microphone | 拿着麦克风
blowing out candles | 吹蜡烛
giving a speech | 演讲
working | 工作
marching | 游行
protesting | 抗议
fighting | 打架
hugging | 拥抱
kissing | 接吻
looking at the sky | 望着天空
looking at a map | 看地图
looking out of the window | 望着窗外
crossing the street | 过马路
getting into a car | 上车
getting off a train | 下火车"""
)
PLACES = parts(
    """in a park | 在公园里
in the street | 在街上
in a kitchen | 在厨房里
on the beach | 在海滩上
in the water | 在水里
in a river | 在河里
in the mountains | 在山里
in the snow | 在雪地里
in the rain | 在雨中
in a field | 在田野里
on the grass | 在草地上
in the garden | 在花园里
in a restaurant | 在餐馆里
in a shop | 在商店里
at the market | 在市场上
at a bus stop | 在公交车站
at the railway station | 在火车站
at the airport | 在机场
in an office | 在办公室里
in a classroom | 在教室里
in the library | 在图书馆里
in a hospital | 在医院里
on a stage | 在舞台上
on the roof | 在屋顶上
on a bench | 在长椅上
on the sofa | 在沙发上
in bed | 在床上
at a table | 在桌子旁
in front of a house | 在房子前面
in front of a building | 在大楼前
under a tree | 在树下
near a lake | 在湖边
by the sea | 在海边
on a bridge | 在桥上
in a stadium | 在体育场里
at home | 在家里
at night | 在夜里
in the forest | 在森林里
in a swimming pool | 在游泳池里
on a boat | 在船上
on the floor | 在地板上
next to a car | 在汽车旁边"""
)
ANIMALS = parts(
    """A dog | 一只狗
A small dog | 一只小狗
A brown dog | 一只棕色的狗
A black dog | 一只黑狗
A white dog | 一只白狗
A black and white dog | 一只黑白相间的狗
Two dogs | 两只狗
Three dogs | 三只狗
A puppy | 一只幼犬
A cat | 一只猫
A white cat | 一只白猫
A kitten | 一只小猫
Two kittens | 两只小猫
A horse | 一匹马
Two horses | 两匹马
A cow | 一头牛
A sheep | 一只羊
A goat | 一只山羊
A monkey | 一只猴子
A panda | 一只熊猫
A bear | 一头熊
A tiger | 一只老虎
A lion | 一头狮子
An elephant | 一头大象
A bird | 一只鸟
A parrot | 一只鹦鹉
A duck | 一只鸭子
A rabbit | 一只兔子
A squirrel | 一只松鼠
A fish | 一条鱼
A hamster | 一只仓鼠
A deer | 一头鹿
A turtle | 一只乌龟"""
)
BEASTS_DO = parts(
    """running | 奔跑
running through the grass | 在草地上奔跑
running along the beach | 沿着海滩奔跑
jumping | 跳跃
jumping over a fence | 跳过栅栏
jumping into the water | 跳进水里
swimming | 游泳
sleeping | 睡觉
sleeping on a bed | 在床上睡觉
lying on the ground | 躺在地上
lying on a sofa | 躺在沙发上
sitting on a chair | 坐在椅子上
sitting in the window | 坐在窗边
standing in a field | 站在田野里
standing on a rock | 站在岩石上
eating | 吃东西
eating grass | 吃草
eating bread | 吃面包
eating from a bowl | 从碗里吃东西
drinking water | 喝水
drinking milk | 喝牛奶
playing with a ball | 玩球
playing in the snow | 在雪里玩耍
playing with another animal | 和另一只动物玩耍
chasing a ball | 追球
chasing a cat | 追一只猫
catching a stick | 接棍子
carrying a stick | 叼着棍子
looking at the camera | 看着镜头
looking in a mirror | 照镜子
looking out of the window | 望着窗外
climbing a tree | 爬树
walking in the snow | 在雪中行走
walking on the road | 走在路上
pulling a cart | 拉车
hiding under a table | 藏在桌子下面
shaking off water | 甩掉身上的水
barking at a stranger | 对着陌生人叫
playing the piano | 弹钢琴
riding a bicycle | 骑自行车
crossing a river | 过河"""
)
THINGS = parts(
    """A red car | 一辆红色的汽车
A white car | 一辆白色的汽车
A blue bus | 一辆蓝色的公共汽车
A double-decker bus | 一辆双层公共汽车
An old bicycle | 一辆旧自行车
A bicycle | 一辆自行车
A motorcycle | 一辆摩托车
A train | 一列火车
A long train | 一列长长的火车
A plane | 一架飞机
A passenger plane | 一架客机
A small boat | 一条小船
A ship | 一艘船
A wooden table | 一张木桌
A white bed | 一张白色的床
An empty chair | 一把空椅子
A brown sofa | 一张棕色的沙发
A lamp | 一盏灯
A laptop | 一台笔记本电脑
A plate of food | 一盘食物
A cup of coffee | 一杯咖啡
A bowl of fruit | 一碗水果
A cake | 一个蛋糕
A vase of flowers | 一瓶花
A pile of books | 一堆书
A church | 一座教堂
A tall building | 一座高楼
A wooden house | 一栋木屋
A statue | 一座雕像
A bridge | 一座桥"""
)
THERE = parts(
    """is parked in front of a building | 停在大楼前
is parked by the road | 停在路边
is on the street | 在街上
is near a wall | 在墙边
stands in a living room | 放在客厅里
stands in the corner of the room | 在房间的角落里
is on a table | 在桌子上
is next to a window | 在窗户旁边
is under a tree | 在树下
is in the water | 在水里
is by the sea | 在海边
is on the grass | 在草地上
is on the tracks | 在轨道上
is on the runway | 在跑道上
is in the sky | 在天上
is covered with snow | 被雪覆盖着
is in front of a mountain | 在山前
leaves the station | 离开车站
goes down the road | 沿着路行驶
is on fire | 着火了"""
)


def scene(draw: Random) -> tuple[str, str]:
    kind = draw.random()
    if kind < 0.2:
        who, zh_who = draw.choice(ANIMALS)
        does, zh_does = draw.choice(BEASTS_DO)
        verb = "are" if who.split()[0] in ("Two", "Three") else "is"
        return f"{who} {verb} {does}.", f"{zh_who}{'' if zh_does[0] == '在' else '正在'}{zh_does}。"
    if kind < 0.28:
        what, zh_what = draw.choice(THINGS)
        where, zh_where = draw.choice(THERE)
        return f"{what} {where}.", f"{zh_what}{zh_where}。"
    if kind < 0.6:
        noun, zh_noun = draw.choice(ONE)
        look, zh_look = draw.choice(LOOKS) if draw.random() < 0.35 else ("", "")
        article = draw.choice(("a", "the")) if draw.random() < 0.4 else "a"
        article = "an" if article == "a" and noun[0] in "aeio" else article
        who = f"{article.capitalize()} {noun} {look}".strip()
        zh_who = ("那" if article == "the" else "一") + zh_noun[0] + zh_look + zh_noun[1:]
        verb = "is"
    else:
        who, zh_who = draw.choice(SEVERAL)
        verb = "is" if who.split()[0] == "A" and who != "A couple" else "are"
    does, zh_does = draw.choice(DOES)
    where, zh_where = draw.choice(PLACES) if draw.random() < 0.55 and zh_does[0] != "在" else ("", "")
    zh_now = zh_where or ("" if zh_does[0] == "在" else draw.choice(("正在", "在")))
    if draw.random() < 0.06:
        return f"{who} {verb} not {does} {where}".rstrip() + ".", f"{zh_who}没有{zh_where or '在'}{zh_does}。"
    if draw.random() < 0.08 and verb == "is":
        before = who[0].lower() + who[1:]
        return f"There is {before} {does} {where}".rstrip() + ".", f"有{zh_who}{zh_now}{zh_does}。"
    return f"{who} {verb} {does} {where}".rstrip() + ".", f"{zh_who}{zh_now}{zh_does}。"


# Headlines

LANDS = parts(
    """China | 中国
Japan | 日本
Russia | 俄罗斯
India | 印度
Pakistan | 巴基斯坦
Afghanistan | 阿富汗
Iraq | 伊拉克
Iran | 伊朗
Syria | 叙利亚
Israel | 以色列
Egypt | 埃及
Turkey | 土耳其
Ukraine | 乌克兰
France | 法国
Germany | 德国
Britain | 英国
Italy | 意大利
Spain | 西班牙
Greece | 希腊
the US | 美国
Canada | 加拿大
Mexico | 墨西哥
Brazil | 巴西
Argentina | 阿根廷
South Africa | 南非
Nigeria | 尼日利亚
Kenya | 肯尼亚
Libya | 利比亚
Australia | 澳大利亚
Indonesia | 印度尼西亚
Thailand | 泰国
Vietnam | 越南
the Philippines | 菲律宾
South Korea | 韩国
North Korea | 朝鲜
Bangladesh | 孟加拉国
Yemen | 也门
Lebanon | 黎巴嫩
Sudan | 苏丹
Cuba | 古巴"""
)
HARM = parts(
    """bomb attack | 炸弹袭击
car bombing | 汽车炸弹袭击
bus crash | 公交车事故
train crash | 火车相撞事故
plane crash | 飞机失事
helicopter crash | 直升机坠毁
earthquake | 地震
flood | 洪水
fire | 火灾
factory fire | 工厂火灾
landslide | 山体滑坡
storm | 风暴
explosion | 爆炸
mine explosion | 矿井爆炸
shooting | 枪击案
clashes | 冲突
air strike | 空袭
heat wave | 热浪
ferry accident | 渡轮事故
stampede | 踩踏事件"""
)
LEADERS = parts(
    """president | 总统
prime minister | 总理
foreign minister | 外交部长
army chief | 陆军司令
parliament | 议会
government | 政府
opposition | 反对党
police | 警方
court | 法院
central bank | 央行
king | 国王
minister | 部长"""
)
SAYS = parts(
    """resigns | 辞职
calls for talks | 呼吁谈判
calls for elections | 呼吁举行选举
rejects the plan | 否决该计划
approves new law | 通过新法
promises reform | 承诺改革
warns of war | 警告战争危险
denies the reports | 否认有关报道
wins the vote | 赢得投票
loses the election | 输掉选举
meets protesters | 会见抗议者
dies at 85 | 去世，享年85岁
is in hospital | 住院
orders an investigation | 下令调查
raises interest rates | 提高利率
cuts interest rates | 降低利率
cuts spending | 削减开支
signs trade deal | 签署贸易协议
condemns the attack | 谴责袭击
accepts peace plan | 接受和平方案"""
)
MARKETS = parts(
    """Stocks | 股市
Oil prices | 油价
Gold prices | 金价
The dollar | 美元
The euro | 欧元
House prices | 房价
Exports | 出口
Profits | 利润
Car sales | 汽车销量
The company's shares | 该公司股价
Unemployment | 失业率
Inflation | 通货膨胀率"""
)
MOVES = parts(
    """rose sharply | 大幅上涨
rose slightly | 略有上升
fell sharply | 大幅下跌
fell slightly | 小幅下降
rose 3 percent | 上升3%
fell 5 percent | 下降5%
were little changed | 变化不大
hit a record high | 创历史新高
fell to a five-year low | 跌至五年来最低
recovered | 回升"""
)
WHEN = parts(
    """on Monday | 周一
on Friday | 周五
on Tuesday | 周二
this week | 本周
last month | 上个月
in the first quarter | 第一季度
this year | 今年
on Wednesday | 周三"""
)


def headline(draw: Random) -> tuple[str, str]:
    land, zh_land = draw.choice(LANDS)
    other, zh_other = draw.choice(LANDS)
    short, other = land.removeprefix("the "), other.removeprefix("the ")
    kind = draw.random()
    if kind < 0.35:
        harm, zh_harm = draw.choice(HARM)
        number = draw.choice((2, 3, 5, 7, 10, 12, 16, 20, 25, 30, 40, 60, 100))
        dead, zh_dead = draw.choice((("killed", "死亡"), ("dead", "丧生"), ("injured", "受伤"), ("missing", "失踪")))
        return draw.choice(
            (
                (f"At least {number} {dead} in {short} {harm}", f"{zh_land}{zh_harm}，至少{number}人{zh_dead}"),
                (f"{short} {harm}: {number} {dead}", f"{zh_land}{zh_harm}：{number}人{zh_dead}"),
                (f"{number} people {dead} after {harm} in {land}", f"{zh_land}发生{zh_harm}，{number}人{zh_dead}"),
            )
        )
    if kind < 0.65:
        leader, zh_leader = draw.choice(LEADERS)
        says, zh_says = draw.choice(SAYS)
        return f"{short[0].upper()}{short[1:]} {leader} {says}", f"{zh_land}{zh_leader}{zh_says}"
    if kind < 0.8:
        what, zh_what = draw.choice(MARKETS)
        moves, zh_moves = draw.choice(MOVES)
        when, zh_when = draw.choice(WHEN)
        return f"{what} {moves} {when}.", f"{zh_when}{zh_what}{zh_moves}。"
    return draw.choice(
        (
            (f"{short} and {other} sign trade agreement", f"{zh_land}和{zh_other}签署贸易协定"),
            (f"{short} and {other} hold talks", f"{zh_land}与{zh_other}举行会谈"),
            (f"{short} president visits {other}", f"{zh_land}总统访问{zh_other}"),
            (f"{short} accuses {other} of spying", f"{zh_land}指责{zh_other}从事间谍活动"),
            (f"{short} beats {other} in World Cup match", f"世界杯比赛中{zh_land}击败{zh_other}"),
            (f"{short} sends troops to {other}", f"{zh_land}向{zh_other}派兵"),
            (f"{short} sends aid to {other}", f"{zh_land}向{zh_other}提供援助"),
            (f"Thousands protest in {short}", f"{zh_land}数千人抗议"),
            (f"{short} tests new missile", f"{zh_land}试射新型导弹"),
            (f"{short} closes embassy in {other}", f"{zh_land}关闭驻{zh_other}大使馆"),
        )
    )


# What people ask of a service: a shop, a bank, a hotel, a railway, a doctor, a telephone company, a library

WARES = parts(
    """a pair of shoes | 一双鞋
a coat | 一件外套
a phone | 一部手机
a laptop | 一台笔记本电脑
a kettle | 一个水壶
a washing machine | 一台洗衣机
a bookshelf | 一个书架
a mattress | 一张床垫
a bag | 一个包
headphones | 耳机
a toy | 一个玩具
two books | 两本书
a camera | 一台相机
a bicycle | 一辆自行车
some tea | 一些茶叶
a lamp | 一盏台灯
a watch | 一块手表
a dress | 一条裙子"""
)
GOODS = parts(
    """the shoes | 鞋
the coat | 外套
the phone | 手机
the laptop | 笔记本电脑
the kettle | 水壶
the washing machine | 洗衣机
the bookshelf | 书架
the bag | 包
the headphones | 耳机
the toy | 玩具
the books | 书
the camera | 相机
the parcel | 包裹
my order | 订单
the package | 快递
the lamp | 台灯
the watch | 手表
the dress | 裙子"""
)
REASONS = parts(
    """it is too small | 太小了
it is too big | 太大了
the colour is wrong | 颜色不对
it is broken | 坏了
it does not work | 不能用
it arrived damaged | 收到时就破损了
I changed my mind | 我改变主意了
I found it cheaper elsewhere | 我在别处找到更便宜的
I ordered it by mistake | 我下错单了
I already have one | 我已经有一个了
it came too late | 到得太晚了
a part is missing | 少了一个零件
my wife does not like it | 我妻子不喜欢
it looks different from the picture | 和图片不一样
it makes a strange noise | 有奇怪的声音
the battery does not last | 电池不耐用"""
)
TIMES = parts(
    """today | 今天
yesterday | 昨天
tomorrow | 明天
three days ago | 三天前
last week | 上周
this morning | 今天早上
tonight | 今晚
next Monday | 下周一
on Friday | 周五
two weeks ago | 两周前
at the weekend | 周末
an hour ago | 一小时前"""
)
ASKS = parts(
    """where is my parcel | 我的包裹到哪里了
when will it arrive | 什么时候能到
can you send it to another address | 能寄到另一个地址吗
we have moved, please use the new address | 我们搬家了，请用新地址
please send it to my office instead | 请改寄到我的办公室
how do I return it | 怎么退货
I would like to send it back | 我想退货
I want to exchange it for a larger size | 我想换大一码的
has my money been returned yet | 我的钱退回来了吗
when do I get my money back | 什么时候退款给我
the refund has not reached my bank account | 退款还没到我的银行账户
please cancel it | 请取消
please do not send it, I no longer need it | 请不要发货，我不需要了
I need an invoice for my company | 我需要给公司开发票
could you put the tax number on the receipt | 收据上能写税号吗
the payment failed | 付款失败了
my card was charged twice | 我的卡被扣了两次钱
can I pay in instalments | 可以分期付款吗
the discount code does not work | 优惠码不能用
I cannot log in | 我登录不了
I forgot my password | 我忘记密码了
the code for signing in never comes | 一直收不到登录验证码
my account is locked | 我的账号被锁了
how do I change my phone number | 怎么换绑手机号
is it waterproof | 防水吗
what size should I take | 我该选什么尺码
how long is the warranty | 保修多久
which colours are there | 有哪些颜色
is it in stock | 有现货吗
does it come with a charger | 带充电器吗
the person on the phone was rude | 接电话的人态度很差
nobody answers my messages | 没有人回我的消息
I have waited for an hour and nobody helped me | 我等了一个小时也没人帮我
I am very unhappy with your service | 我对你们的服务很不满意
thank you, that was quick | 谢谢，很快
everything is fine now | 现在都好了
I want to speak to a person | 我要找人工
please call me back | 请给我回电话
the courier left it with a neighbour | 快递员放在邻居家了
the courier never rang the bell | 快递员根本没按门铃
it says delivered but I have nothing | 显示已签收，可我没收到
I would like to book a room for two nights | 我想订两晚的房间
is breakfast included | 含早餐吗
can we check out late | 可以晚点退房吗
the air conditioning in my room does not work | 我房间的空调坏了
the room is too noisy | 房间太吵
I would like a table for four | 我想订一张四人桌
could we see the menu | 能看一下菜单吗
this soup is cold | 这汤是凉的
I am allergic to nuts | 我对坚果过敏
the bill, please | 请结账
a single ticket to Shanghai, please | 请给我一张去上海的单程票
when does the next train leave | 下一班火车什么时候开
is the flight delayed | 航班晚点了吗
my luggage is lost | 我的行李丢了
which platform does it leave from | 从哪个站台出发
can I change my seat | 可以换座位吗
how do I get to the airport | 去机场怎么走
how much is a taxi to the centre | 打车去市中心多少钱
I would like to open a bank account | 我想开一个银行账户
I lost my bank card | 我的银行卡丢了
how high are the fees | 手续费是多少
I want to transfer money abroad | 我想往国外汇款
what is the exchange rate | 汇率是多少
I have a headache | 我头疼
I have had a fever since last night | 我从昨晚开始发烧
I need an appointment with a doctor | 我想预约医生
how often should I take this medicine | 这个药多久吃一次
my tooth hurts | 我牙疼
the internet is very slow | 网速很慢
I want a cheaper plan | 我想换便宜一点的套餐
my phone has no signal | 我的手机没有信号
how much data do I have left | 我还剩多少流量
I would like to borrow this book | 我想借这本书
can I keep the book longer | 这本书可以续借吗
how do I install the program | 这个程序怎么安装
the printer does not print | 打印机打不出来
how do I turn off notifications | 怎么关闭通知
please turn on the light | 请开灯
please set an alarm for seven | 请定七点的闹钟
remind me to call my mother | 提醒我给妈妈打电话
play some music | 放点音乐
what is the weather like | 天气怎么样
what time is it | 现在几点
tell me a joke | 讲个笑话
turn the volume down | 把声音调小
translate this sentence | 翻译这句话
where is the nearest pharmacy | 最近的药店在哪里
I would like to complain | 我要投诉
who can help me | 谁能帮我
do you open on Sundays | 周日营业吗
what does it cost | 多少钱
that is too expensive | 太贵了
can you make it cheaper | 能便宜点吗
is there a discount for students | 学生有优惠吗
I would like to end my membership | 我想取消会员
how do I delete my account | 怎么注销账号"""
)
BEFORE = parts(
    """Hello, | 你好，
Hi, | 您好，
Excuse me, | 请问，
Good morning, | 早上好，
Sorry, | 不好意思，
Please help: | 请帮帮忙：
One question: | 问一下：
Listen, | 听我说，"""
)
STORIES = parts(
    """I ordered {a} {t} | 我{t}订了{a}
I bought {a} {t} | 我{t}买了{a}
I paid for {a} {t} | 我{t}付了{a}的钱
{g} arrived {t} | {g}{t}到了
I sent {g} back {t} | 我{t}把{g}寄回去了
I have been waiting for {g} since {t} | 我从{t}起就在等{g}
{g} has not arrived | {g}还没到
{g} was delivered to the wrong house | {g}送错了人家
I wanted {a} as a present | 我想要{a}当礼物
I wrote to you {t} | 我{t}给你们写过信
I gave {g} to my brother | 我把{g}给了我弟弟
I opened {g} {t} | 我{t}打开了{g}
I was not at home {t} | {t}我不在家
I am travelling {t} | {t}我在外地"""
)


def asked(draw: Random) -> tuple[str, str]:
    """One to three of: a greeting, what happened, why, what is wanted."""
    (ask, zh_ask), (why, zh_why) = draw.choice(ASKS), draw.choice(REASONS)
    said: list[tuple[str, str]] = []
    if draw.random() < 0.6:
        story, zh_story = draw.choice(STORIES)
        slots = {"a": draw.choice(WARES), "g": draw.choice(GOODS), "t": draw.choice(TIMES)}
        story = story.format(**{name: one[0] for name, one in slots.items()})
        zh_story = zh_story.format(**{name: one[1] for name, one in slots.items()})
        if draw.random() < 0.4:
            story, zh_story = f"{story}, but {why}", f"{zh_story}，但是{zh_why}"
        said.append((story, zh_story))
    if not said or draw.random() < 0.75:
        said.append((ask, zh_ask))
    if draw.random() < 0.25 and draw.random() < 0.5 and len(said) > 1:
        said.reverse()
    english, chinese = zip(*said, strict=True)
    text = " ".join(finished(one) for one in english)
    zh_text = "".join(finished_zh(one) for one in chinese)
    if draw.random() < 0.2:
        greeting, zh_greeting = draw.choice(BEFORE)
        text = f"{greeting} {text if text.startswith('I ') else text[0].lower() + text[1:]}"
        zh_text = zh_greeting + zh_text
    return text, zh_text


QUESTIONS = "where when can how has could is what which does who do".split()


def finished(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'?' if text.split()[0] in QUESTIONS else '.'}"


def finished_zh(text: str) -> str:
    return text + (
        "？"
        if text[-1] in "吗呢" or any(one in text for one in ("哪", "怎么", "多少", "几点", "什么", "多久", "谁能"))
        else "。"
    )


def made_pairs(number: int, draw: Random) -> Iterator[tuple[str, str]]:
    """Different pairs: half of them scenes, a sixth headlines, a third requests."""
    seen: set[str] = set()
    while len(seen) < number:
        kind = draw.random()
        pair = scene(draw) if kind < 0.5 else headline(draw) if kind < 0.67 else asked(draw)
        if pair[0] not in seen:
            seen.add(pair[0])
            yield pair
