"""Two ways of writing the same thing in one set of texts: full and half width, 简体 and 繁體.

A model sees different characters, and a text written like few others is read worse. Traditional and simplified are told
apart by frequent characters that are written in one of the two alone; words are not looked at, and a text without any
of these characters is neither.
"""

import re
from collections.abc import Mapping

from qkv.wordpiece import CHINESE

_pairs = (
    "这這 个個 们們 来來 时時 说說 国國 会會 对對 过過 学學 发發 还還 进進 种種 问問 间間 见見 长長 现現 开開 关關 "
    "动動 样樣 应應 当當 从從 给給 让讓 头頭 点點 实實 话話 电電 车車 东東 马馬 门門 书書 买買 卖賣 读讀 认認 识識 "
    "请請 谢謝 爱愛 觉覺 听聽 写寫 语語 钱錢 亲親 难難 欢歡 乐樂 师師 体體 务務 业業 产產 价價 质質 员員 场場 条條 "
    "华華 经經 结結 总總 线線 组組 细細 红紅 绝絕 级級 约約 纪紀 机機 权權 计計 记記 议議 论論 设設 调調 证證 评評 "
    "试試 题題 飞飛 饭飯 馆館 环環 战戰 选選 连連 运運 达達 远遠 边邊 适適 热熱 灯燈 尔爾 岁歲 变變 图圖 团團 园園 "
    "圆圓 坏壞 处處 备備 复復 够夠 奖獎 妈媽 孙孫 宝寶 审審 宽寬 导導 层層 币幣 带帶 帮幫 库庫 张張 强強 归歸 态態 "
    "怀懷 怜憐 恶惡 惊驚 户戶 报報 担擔 拥擁 择擇 换換 损損 摄攝 数數 断斷 显顯 杀殺"
)
SIMPLIFIED = "".join(sorted({pair[0] for pair in _pairs.split()}))
TRADITIONAL = "".join(sorted({pair[1] for pair in _pairs.split()}))

_simplified, _traditional = re.compile(f"[{SIMPLIFIED}]"), re.compile(f"[{TRADITIONAL}]")
_full_letters, _half_letters = re.compile("[０-９Ａ-Ｚａ-ｚ]"), re.compile("[0-9A-Za-z]")
_full_marks, _half_marks = re.compile("[，；：？！]"), re.compile(f"(?<=[{CHINESE}])[,;:?!](?=[{CHINESE}\\s]|$)")

FORMS: Mapping[str, tuple[str, str]] = {
    "script": ("simplified characters", "traditional characters"),
    "letters": ("half-width letters or digits", "full-width letters or digits"),
    "marks": ("full-width marks ，；：？！", "half-width marks ,;:?! between 汉字"),
}
"""For each thing, its two ways; `ways` answers by them."""


def ways(text: str) -> list[tuple[str, int, str]]:
    """Which things a text writes, which way (0 or 1 of FORMS), and the first sign of it. One that is written both ways
    counts as the way that is the less usual one, 1; 简 and 繁 as the more frequent.

    >>> ways("这是ＡＢＣ。"), ways("這個問題"), ways("plain")
    ([('script', 0, '这'), ('letters', 1, 'Ａ')], [('script', 1, '這')], [('letters', 0, 'p')])
    """
    found = []
    if text.isascii():
        return [("letters", 0, one[0])] if (one := _half_letters.search(text)) else []
    simplified, traditional = _simplified.findall(text), _traditional.findall(text)
    if len(simplified) != len(traditional):
        way = int(len(traditional) > len(simplified))
        found.append(("script", way, (traditional if way else simplified)[0]))
    for thing, usual, other in (("letters", _half_letters, _full_letters), ("marks", _full_marks, _half_marks)):
        if sign := other.search(text):
            found.append((thing, 1, sign[0]))
        elif sign := usual.search(text):
            found.append((thing, 0, sign[0]))
    return found
