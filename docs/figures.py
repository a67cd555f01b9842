"""Draws the figures of attention.md and bert.md, in both languages: .venv/bin/python docs/figures.py

Every number in them is computed by qkv. The same code gives the same picture, so a figure that changes in a commit is
one whose numbers or layout changed.
"""

from pathlib import Path

import torch
from drawing import Drawing
from torch import Tensor, nn

from qkv.data.batch import Batch
from qkv.nn.attention import KernelPooling, SelfAttention, attention, attention_pooling
from qkv.nn.position import sinusoidal_table


def pooling(zh: bool) -> Drawing:
    """The regression of attention.md: the same fifty points, three widths, and who looks at whom below."""
    generator = torch.Generator().manual_seed(0)
    x = torch.sort(torch.rand(50, generator=generator) * 5).values
    y = 2 * x.sin() + x**0.8 + 0.5 * torch.randn(50, generator=generator)
    learned = KernelPooling(width=1.0)
    optimiser = torch.optim.Adam(learned.parameters(), lr=0.1)
    others = ~torch.eye(50, dtype=torch.bool)
    for _ in range(200):
        loss = (learned(x, x, y, others)[0] - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    best = learned.width.item()
    title, below, *names = (
        (
            "注意力池化：同样的五十个点，三种 w",
            "权重：每行一个查询（x 由上而下），每列一个点",
            "数据",
            "真实曲线",
            "注意力的回答",
        )
        if zh
        else (
            "Attention pooling: the same fifty points, three values of w",
            "Weights: one row a query (x grows downwards), one column a point",
            *("data", "the true curve", "attention's answer"),
        )
    )
    heads = (
        ("w = 0：一律平均", "w = 1：看得太宽", f"学出来的 w = {best:.1f}")
        if zh
        else ("w = 0: the plain mean", "w = 1: looks too far", f"learned: w = {best:.1f}")
    )
    drawing = Drawing(860, 474, title)
    grid = torch.linspace(0, 5, 101)
    curve = 2 * grid.sin() + grid**0.8
    for panel, width in enumerate((0.0, 1.0, best)):
        left, top, w, h = 24 + panel * 278, 82, 256, 170

        def points(a: Tensor, b: Tensor, left: float = left) -> list[tuple[float, float]]:
            return list(zip((left + a / 5 * 256).tolist(), (82 + 170 - (b + 0.3) / 5.3 * 170).tolist(), strict=True))

        drawing.text(left, 70, heads[panel], 14, bold=True)
        drawing.rect(left, top, w, h, "f-box", 6)
        drawing.line(points(grid, curve), "s-soft", 1.5, dash="4 4")
        for place in points(x, y):
            drawing.dot(*place, 2.6, "f-blue")
        drawing.line(points(grid, attention_pooling(grid, x, y, width)[0]), "s-red", 2.6)
        _, weights = attention_pooling(torch.linspace(0, 5, 32), x, y, width)
        drawing.rect(left, 288, w, 132, "f-box")
        drawing.heat(left, 288, w / 50, 132 / 32, weights, 0.16)
    drawing.text(24, 278, below, 12, "f-soft")
    drawing.dot(32, 447, 3.2, "f-blue")
    drawing.line([(110, 447), (140, 447)], "s-soft", 1.5, dash="4 4")
    drawing.line([(266, 447), (296, 447)], "s-red", 2.6)
    for left, name in zip((44, 148, 304), names, strict=True):
        drawing.text(left, 451, name, 12, "f-soft")
    return drawing


def scaling(zh: bool) -> Drawing:
    """One query, twelve keys, head width 64: the weights with three divisors."""
    torch.manual_seed(3)
    query, key = torch.randn(1, 64), torch.randn(12, 64)
    title = (
        "同一个查询，十二个键，头宽 64：除数不同，权重大不相同"
        if zh
        else "One query, twelve keys, head width 64: the weights under three divisors"
    )
    heads = (
        (("不除", "一家独大，梯度消失"), ("除以 √64 = 8", "有轻有重"), ("除以 64", "几乎一样重，等于没有挑选"))
        if zh
        else (
            ("not divided", "one takes nearly all; the gradient vanishes"),
            ("divided by √64 = 8", "some more, some less"),
            ("divided by 64", "all nearly alike: nothing is chosen"),
        )
    )
    drawing = Drawing(860, 262, title)
    for panel, scale in enumerate((1.0, None, 1 / 64)):
        left, base, look = 24 + panel * 278, 222, ("f-red", "f-green", "f-blue")[panel]
        _, weights = attention(query, key, key, scale=scale)
        drawing.text(left, 68, heads[panel][0], 14, bold=True)
        drawing.text(left, 87, heads[panel][1], 12, "f-soft")
        drawing.rect(left, 98, 256, base - 98, "f-box", 6)
        for place, weight in enumerate(weights[0].tolist()):
            height = max(weight * 112, 1.5)
            drawing.rect(left + 10 + place * 20, base - 4 - height, 14, height, look, 2)
        most, place = weights.max().item(), int(weights.argmax())
        drawing.text(left + 17 + place * 20, base - 10 - most * 112, f"{most:.2f}", 11, "f-ink", "middle")
        drawing.text(left + 128, base + 20, "十二个键" if zh else "the twelve keys", 11, "f-soft", "middle")
    return drawing


def order(zh: bool) -> Drawing:
    """The example of attention.md: what one layer makes of two sentences, without and with positions."""
    torch.manual_seed(0)
    sentences = (("他", "欠", "我", "100", "万"), ("我", "欠", "他", "100", "万"))
    words = {word: place for place, word in enumerate(sentences[0])}
    embedding, layer = nn.Embedding(5, 8), SelfAttention(8, 8)
    title, *heads = (
        (
            "同样的字，不同的次序：每个词元的输出向量",
            "没有位置：每个词元读出的向量都不变",
            "加上位置：每个向量都随次序而变",
        )
        if zh
        else (
            "The same words in another order: the vector that comes out for every token",
            *("Without positions: every vector stays the same", "With positions: every vector changes"),
        )
    )
    drawing = Drawing(860, 310, title)
    for panel in (0, 1):
        left = 24 + panel * 420
        drawing.text(left, 74, heads[panel], 14, bold=True)
        rows = []
        for sentence in sentences:
            x = embedding(torch.tensor([words[word] for word in sentence]))
            rows.append(layer(x + panel * sinusoidal_table(5, 8))[0].detach())
        for line, (sentence, values) in enumerate(zip(sentences, rows, strict=True)):
            y = 96 + line * 122
            for place, word in enumerate(sentence):
                x0 = left + place * 79
                drawing.rect(x0, y, 68, 64, "f-box", 6)
                drawing.text(x0 + 34, y + 25, word, 16, "f-ink", "middle")
                drawing.heat(x0 + 6, y + 38, 7, 18, values[place][None], (0.5, 0.9)[panel])
        for place, word in enumerate(sentences[0]):
            there = sentences[1].index(word)
            start, stop = left + place * 79 + 34, left + there * 79 + 34
            look, sign = ("green", "=") if torch.allclose(rows[0][place], rows[1][there], atol=1e-6) else ("red", "≠")
            drawing.line([(start, 164), (stop, 214)], f"s-{look}", 1.6)
            middle = start + (stop - start) * 0.24
            drawing.dot(middle, 176, 9, "f-paper")
            drawing.text(middle, 181, sign, 15, f"f-{look}", "middle", bold=True)
    return drawing


def positions(zh: bool) -> Drawing:
    """The sinusoidal table, sine and cosine interleaved."""
    rows, columns = 64, 32
    title, first, below, down, across = (
        (
            "正弦位置编码：每行一个位置，每列一维（宽度 32）",
            "位置 0 这一行是 0 1 0 1 …：sin 0 = 0，cos 0 = 1",
            "左边转得快，分得清近邻；右边转得慢，上万个位置才转一圈",
            *("位置", "维"),
        )
        if zh
        else (
            "Sinusoidal positions: one row a position, one column a dimension (width 32)",
            "The row of position 0 is 0 1 0 1 …: sin 0 = 0 and cos 0 = 1",
            "Left: fast waves tell neighbours apart. Right: slow ones need tens of thousands of positions for a turn",
            *("position", "dimension"),
        )
    )
    drawing = Drawing(860, 486, title)
    left, top, cell_w, cell_h = 92, 72, 20.5, 5.5
    drawing.heat(left, top, cell_w, cell_h, sinusoidal_table(rows, columns), 1.0)
    right, bottom = left + columns * cell_w, top + rows * cell_h
    drawing.text(left, 62, first, 12, "f-soft")
    for position in range(0, rows, 10):
        drawing.text(left - 8, top + position * cell_h + 7, str(position), 11, "f-soft", "end")
    drawing.text(left - 30, top + 7, down, 11, "f-soft", "end")
    for column in (0, 8, 16, 24):
        drawing.text(left + (column + 0.5) * cell_w, bottom + 16, str(column), 11, "f-soft", "middle")
    drawing.text(right, bottom + 16, across, 11, "f-soft", "end")
    drawing.text(left, bottom + 42, below, 12, "f-soft")
    drawing.heat(right + 28, top + 70, 14, 12, torch.linspace(1, -1, 17)[:, None], 1.0)
    for words, y in (("+1", top + 80), ("0", top + 176), ("−1", top + 272)):
        drawing.text(right + 48, y, words, 11, "f-soft")
    return drawing


def bert_input(zh: bool) -> Drawing:
    """Three embeddings a token, added; the tokens are those that bert.md prints."""
    tokens = (
        ["[CLS]", "他", "欠", "我", "100", "万", "[SEP]", "明", "天", "还", "[SEP]"]
        if zh
        else ["[CLS]", "he", "owes", "me", "money", "[SEP]", "repay", "##ment", "is", "slow", "[SEP]"]
    )
    title, note, *names = (
        (
            "BERT 的输入：[CLS] A [SEP] B [SEP]，三个嵌入相加",
            "相加，再做层归一化，进入第 0 层。句段 0 含 [CLS] 和第一个 [SEP]，句段 1 含最后的 [SEP]。",
            *("词元", "词元嵌入", "句段嵌入", "位置嵌入"),
        )
        if zh
        else (
            "What goes into BERT: [CLS] A [SEP] B [SEP], three embeddings added",
            "Added, normalised, into layer 0. Segment 0 has [CLS] and the first [SEP], segment 1 has the last [SEP].",
            *("", "token", "segment", "position"),
        )
    )
    second = tokens.index("[SEP]") + 1
    drawing = Drawing(860, 312, title)
    for line, name in enumerate(names):
        drawing.text(24, (84, 144, 196, 248)[line], name, 13, "f-soft")
    for place, token in enumerate(tokens):
        x, w = 112 + place * 66, 58
        colour = "blue" if place < second else "red"
        drawing.rect(x, 64, w, 32, f"t-{colour}", 6)
        drawing.text(x + w / 2, 85, token, 13 if len(token) > 3 else 15, "f-ink", "middle", bold=token[0] == "[")
        for line, entry in enumerate((f"E({token})", "E(0)" if place < second else "E(1)", f"E({place})")):
            y = 124 + line * 52
            drawing.rect(x, y, w, 30, "f-box" if line != 1 else f"t-{colour}", 6)
            drawing.text(x + w / 2, y + 20, entry, 11.5 if len(entry) < 8 else 10, "f-ink code", "middle")
            drawing.text(x + w / 2, y - 7, "+" if line else "", 14, "f-soft", "middle")
    drawing.text(24, 290, note, 12, "f-soft")
    return drawing


def bert_shapes(zh: bool) -> Drawing:
    """The network from ids to heads, a shape on every arrow."""
    title, embeddings, layers, tokenwise, rowwise, pooler, *parts = (
        (
            "BERT 的形状：B 行，T 个词元，D 宽度，V 词表，C 个标签",
            *("三个嵌入相加", "× L 层", "逐词元的任务头", "整行的任务头", "池化器"),
            *("多头自注意力", "相加，层归一化", "前馈网络 D → 4D → D", "相加，层归一化"),
        )
        if zh
        else (
            "The shapes of BERT: B rows, T tokens, D width, V vocabulary, C labels",
            *("embeddings", "× L layers", "heads on every token", "heads on the row", "pooler"),
            *("multi-head self-attention", "add, layer norm", "feed-forward D → 4D → D", "add, layer norm"),
        )
    )
    drawing = Drawing(860, 336, title)

    def box(x: float, y: float, w: float, h: float, name: str, under: str) -> None:
        drawing.rect(x, y, w, h, "t-blue", 8)
        drawing.text(x + w / 2, y + h / 2 - 2, name, 13, "f-ink", "middle", bold=True)
        drawing.text(x + w / 2, y + h / 2 + 16, under, 11, "f-soft code", "middle")

    for line, name in enumerate(("ids", "segments", "positions")):
        drawing.text(32, 92 + line * 18, name, 12, "f-ink code")
        drawing.text(148, 92 + line * 18, "(B,T)", 12, "f-blue code", "end")
    drawing.arrow([(90, 138), (90, 156)])
    box(24, 158, 132, 72, embeddings, "InputEmbedding")
    drawing.rect(214, 66, 262, 250, "f-box", 10)
    drawing.text(349, 90, layers, 13, "f-ink", "middle", bold=True)
    drawing.text(349, 306, "PostNormBlock", 11, "f-soft code", "middle")
    for line, name in enumerate(parts):
        y = 104 + line * 46
        drawing.rect(246, y, 206, 34, "t-green" if line % 2 == 0 else "f-paper", 7)
        drawing.text(349, y + 22, name, 13, "f-ink", "middle")
        if line:
            drawing.arrow([(349, y - 12), (349, y - 1)])
    for y in (104, 196):  # the residual paths
        drawing.arrow([(246, y + 6), (229, y + 6), (229, y + 63), (244, y + 63)], "s-red", "f-red")
    drawing.arrow([(156, 194), (212, 194)])
    drawing.arrow([(476, 122), (594, 122)])
    drawing.arrow([(476, 256), (518, 256)])
    drawing.arrow([(620, 256), (662, 256)])
    for x, y, words in ((184, 184, "(B,T,D)"), (536, 112, "(B,T,D)"), (497, 246, "[CLS]"), (641, 246, "(B,D)")):
        drawing.text(x, y, words, 11.5, "f-blue code", "middle")
    drawing.text(536, 140, "hidden", 11, "f-soft code", "middle")
    box(520, 226, 100, 60, pooler, "tanh(Wx+b)")
    for x, y, name, heads in (
        (596, 66, tokenwise, ("masked (B,T,V)", "token (B,T,C)", "span (B,T,2)")),
        (664, 202, rowwise, ("next_sentence (B,2)", "sequence (B,C)", "choice (B,1)")),
    ):
        drawing.rect(x, y, 836 - x, 112, "t-red", 8)
        drawing.text(x + 12, y + 25, name, 13, "f-ink", bold=True)
        for line, entry in enumerate(heads):
            head, shape = entry.split()
            drawing.text(x + 12, y + 50 + line * 22, head, 12, "f-ink code")
            drawing.text(826, y + 50 + line * 22, shape, 12, "f-blue code", "end")
    return drawing


def packed(zh: bool) -> Drawing:
    """The same four rows in both layouts."""
    batch = Batch.of([[1] * n for n in (4, 9, 3, 6)])
    mask = batch.padded().mask
    title, real, *grey = (
        ("同样的四行：填充成矩形，或首尾相接", "真词元", "灰色是填充：", "照样计算，再用掩码遮住")
        if zh
        else (
            "The same four rows: padded to a rectangle, or packed end to end",
            *("real tokens", "Grey is padding:", "computed all the same, then masked"),
        )
    )
    drawing = Drawing(680, 276, title)
    looks, cell = ("f-blue", "f-red", "f-green", "f-soft"), 28
    drawing.text(24, 72, "batch.padded()", 12.5, "f-ink code", bold=True)
    drawing.text(150, 72, f"(B,T) = (4,9)   {real}: {batch.n_tokens} / {mask.numel()}", 12.5, "f-soft")
    for row, line in enumerate(mask.tolist()):
        for place, is_real in enumerate(line):
            look = looks[row] if is_real else "f-rule"
            drawing.rect(24 + place * cell, 84 + row * cell, cell - 4, cell - 4, look, 4)
    for line, words in enumerate(grey):
        drawing.text(300, 134 + line * 19, words, 12.5, "f-soft")
    drawing.text(24, 226, "batch", 12.5, "f-ink code", bold=True)
    offsets = ", ".join(map(str, batch.offsets.tolist()))
    drawing.text(150, 226, f"(N,) = ({batch.n_tokens},)   offsets: {offsets}", 12.5, "f-soft")
    for token, row in enumerate(batch.row_of_token.tolist()):
        drawing.rect(24 + token * cell, 238, cell - 4, cell - 4, looks[row], 4)
    return drawing


def batching(zh: bool) -> Drawing:
    """Rows of four requests, taken from the front of the queue while they fit into the budget."""
    budget, requests = 32, {"A": (9, 5, 7), "B": (8,), "C": (14, 14), "D": (40,)}
    rows = [(client, n) for client, lengths in requests.items() for n in lengths]
    batches: list[list[tuple[str, int]]] = []
    for row in rows:
        if not batches or sum(n for _, n in batches[-1]) + row[1] > budget:
            batches.append([])
        batches[-1].append(row)
    title, queue, most, *notes = (
        (
            "按词元数组批：几个请求的文本一起计算一次",
            "队列，先到先算。A 一次发来三条文本，C 是一篇长文，切成两个窗口；每块的宽度是词元数",
            f"上限 {budget} 个词元",
            *("A 的三条和 B 的一条：下一条放不下了", "C 的两个窗口；都算完才回复 C", "D 比上限还长：单独成批，不截断"),
        )
        if zh
        else (
            "Batching by tokens: texts of several requests run together",
            "The queue, first in, first out. A sent three texts; C a long one, read in two windows. Width: tokens",
            f"budget: {budget} tokens",
            *(
                "A's three and B's one: the next does not fit",
                "C's windows; C is answered when both are done",
                "D is larger than the budget: alone, never cut",
            ),
        )
    )
    drawing = Drawing(860, 292, title)
    looks, cell, left = {"A": "blue", "B": "red", "C": "green", "D": "soft"}, 8, 96

    def blocks(x: float, y: float, entries: list[tuple[str, int]]) -> None:
        for client, n in entries:
            drawing.rect(x, y, n * cell - 3, 30, f"f-{looks[client]}", 5)
            drawing.text(x + n * cell / 2 - 1.5, y + 20, f"{client} {n}", 12, "f-paper", "middle", bold=True)
            x += n * cell

    drawing.text(24, 66, queue, 12.5, "f-soft")
    blocks(24, 78, rows)
    drawing.line([(left + budget * cell, 134), (left + budget * cell, 268)], "s-red", 1.5, "4 4")
    drawing.text(left + budget * cell + 8, 142, most, 12, "f-red")
    for line, (entries, note) in enumerate(zip(batches, notes, strict=True)):
        y = 154 + line * 42
        drawing.text(24, y + 20, f"{'批次' if zh else 'batch'} {line + 1}", 12.5, "f-ink", bold=True)
        blocks(left, y, entries)
        drawing.text(left + 42 * cell + 12, y + 20, note, 12.5, "f-soft")
    return drawing


FIGURES = {
    "pooling": pooling,
    "scaling": scaling,
    "order": order,
    "positions": positions,
    "bert-input": bert_input,
    "bert-shapes": bert_shapes,
    "packed": packed,
    "batching": batching,
}


def main() -> None:
    torch.set_num_threads(1)
    images = Path(__file__).resolve().parent / "images"
    images.mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        for ending, zh in (("", False), (".zh", True)):
            (images / f"{name}{ending}.svg").write_text(draw(zh).svg(), encoding="utf-8")
    print(f"{2 * len(FIGURES)} figures in docs/images/")


if __name__ == "__main__":
    main()
