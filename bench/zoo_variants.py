"""Pairs of sentences that Tatoeba lacks, in English and Chinese: numbers, and English in capitals or without any.

A translator that has seen 149 pairs with the same number on both sides writes 197 for 1987, and reads HOW ARE YOU as
unknown words. Here the numbers of such pairs are drawn anew, sentences about years, prices, times and counts are made
from templates, and some English sides are written in another case. bench/zoo_texts.py translators writes the files; a
pair that a translator holds out for its test has no variant.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from random import Random

NUMBER = re.compile(r"\d+")
TEMPLATES = [
    tuple(part.strip() for part in line.split("|"))
    for line in """
I was born in {year}. | 我出生于{year}年。
He was born in {year}. | 他出生于{year}年。
She died in {year}. | 她死于{year}年。
The war ended in {year}. | 战争在{year}年结束了。
This house was built in {year}. | 这座房子建于{year}年。
We moved here in {year}. | 我们{year}年搬到了这里。
It happened on {month}/{day}/{year}. | 这件事发生在{year}年{month}月{day}日。
My birthday is {month}/{day}. | 我的生日是{month}月{day}日。
I am {age} years old. | 我{age}岁。
Tom is {age} years old. | 汤姆{age}岁。
My grandmother is {age}. | 我奶奶{age}岁了。
It costs {price} dollars. | 这个要{price}美元。
I paid {price} dollars for it. | 我花了{price}美元买它。
This book costs {price} yuan. | 这本书{price}元。
He owes me {price} dollars. | 他欠我{price}美元。
Can you lend me {price} yuan? | 你能借我{price}元吗？
The train leaves at {hour}:{minute}. | 火车{hour}点{minute}分开。
The meeting is at {hour}:{minute}. | 会议在{hour}点{minute}分开始。
It is {hour}:{minute} now. | 现在是{hour}点{minute}分。
Wake me up at {hour}:{minute}. | {hour}点{minute}分叫醒我。
There are {count} people here. | 这里有{count}个人。
There are {count} students in our school. | 我们学校有{count}名学生。
I have read {count} pages. | 我读了{count}页。
She bought {count} apples. | 她买了{count}个苹果。
The box weighs {count} kilograms. | 这个箱子重{count}公斤。
The town is {count} kilometers from here. | 那个镇离这里{count}公里。
He ran {count} meters. | 他跑了{count}米。
My room number is {count}. | 我的房间号是{count}。
Take bus number {count}. | 坐{count}路公共汽车。
My phone number is {phone}. | 我的电话号码是{phone}。
{count} plus {age} is {sum}. | {count}加{age}等于{sum}。
The temperature is {age} degrees. | 气温是{age}度。
Only {age} percent of them agreed. | 他们中只有{age}%的人同意。
See page {count}. | 请看第{count}页。
{year} | {year}
{count} | {count}
""".strip().splitlines()
]


def numbers_made(count: int, draw: Random) -> Iterator[tuple[str, str]]:
    for _ in range(count):
        many = draw.choice((draw.randint(2, 99), draw.randint(100, 999), draw.randint(1_000, 99_999)))
        age = draw.randint(2, 99)
        values = {
            "year": draw.randint(1000, 2035),
            "month": draw.randint(1, 12),
            "day": draw.randint(1, 28),
            "age": age,
            "price": draw.choice((draw.randint(2, 99), draw.randint(100, 999), draw.randrange(1_000, 50_000, 50))),
            "hour": draw.randint(1, 23),
            "minute": f"{draw.randint(1, 59):02d}",
            "count": many,
            "phone": "".join(draw.choice("0123456789") for _ in range(draw.choice((7, 8, 11)))),
            "sum": many + age,
        }
        english, chinese = draw.choice(TEMPLATES)
        yield english.format(**values), chinese.format(**values)


def with_other_numbers(pairs: Iterable[tuple[str, str]], times: int, draw: Random) -> Iterator[tuple[str, str]]:
    """Pairs with the same numbers on both sides, each with numbers of as many digits instead.

    >>> next(with_other_numbers([("I'm 17.", "我17岁。"), ("One.", "1。")], 1, Random(0)))
    ("I'm 76.", '我76岁。')
    """
    for english, chinese in pairs:
        found = NUMBER.findall(english)
        if found and sorted(found) == sorted(NUMBER.findall(chinese)):
            for _ in range(times):
                new = {one: _like(one, draw) for one in dict.fromkeys(found)}
                yield _replaced(english, new), _replaced(chinese, new)


def _replaced(text: str, new: Mapping[str, str]) -> str:
    return NUMBER.sub(lambda match: new[match[0]], text)


def _like(number: str, draw: Random) -> str:
    first = draw.choice("123456789" if number[0] != "0" else "0123456789")
    return first + "".join(draw.choice("0123456789") for _ in number[1:])


def in_another_case(pairs: Iterable[tuple[str, str]], share: float, draw: Random) -> Iterator[tuple[str, str]]:
    """A share of the pairs with English in capitals; another, in small letters, half of these without their full stop.

    >>> sorted(in_another_case([("Hi, Tom.", "嗨，汤姆。")], 1.0, Random(0)))
    [('HI, TOM.', '嗨，汤姆。'), ('hi, tom', '嗨，汤姆。')]
    """
    for english, chinese in pairs:
        if draw.random() < share:
            yield english.upper(), chinese
        if draw.random() < share:
            yield english.lower().rstrip(".") if draw.random() < 0.5 else english.lower(), chinese
