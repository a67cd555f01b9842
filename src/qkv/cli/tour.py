"""The tour of `qkv demo`: what each system of the lineage is known for, in the order of their years.

Every section asks one model of the package, and is left out if this copy comes without it. The examples were chosen by
what the models say about them; what is printed is computed anew. Nothing here needs an optional package: ELMo's line
about a Chinese word is left out where there is no segmenter.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from qkv.cli.look import print_attention, write_attention
from qkv.files import write_text
from qkv.text.messages import LANGUAGES, language, translate, write

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qkv.api.model import Model
    from qkv.models.word2vec.folder import WordVectors
    from qkv.report.attention import AttentionMap

ANALOGIES = {
    "en": (("man", "king", "woman"), ("France", "Paris", "Germany")),
    "zh": (("中国", "北京", "法国"), ("父亲", "母亲", "儿子")),
}
"""a, b, c: b − a + c."""
MEANINGS = {
    "en": (
        "Python",
        (
            "A python bit him in the forest.",
            "The python ate a small animal.",
            "She wrote the software in Python.",
            "The program is written in Python.",
        ),
    ),
    "zh": (
        "苹果",
        (
            "她早上吃了一个苹果。",
            "农民把苹果运到市场上卖。",
            "这个软件可以在苹果电脑上运行。",
            "苹果和微软是竞争对手。",
        ),
    ),
}
"""A word in two sentences of one meaning and two of another."""
TRANSLATED = {
    "en": ("Tom chases Jerry.", "She drinks coffee every morning."),
    "zh": ("汤姆追逐杰瑞。", "她每天早上喝咖啡。"),
}
PROMPTS = {"en": ("The village lies on the river", 1, 40), "zh": ("《春夜》", 1, 80)}
"""The beginning of a text, the seed, and the largest number of tokens."""
BLANKS = {
    "en": (
        "She drank a cup of [MASK].",
        "The river flows into the Atlantic [MASK].",
        "The Second World War [MASK] in 1945.",
    ),
    "zh": ("巴黎是[MASK]国的首都。", "李白是唐代著名的[MASK]人。", "地球绕着太[MASK]转。"),
}
PAIRS = {
    "en": (
        "The old man opened the door and looked out.",
        "There was nobody in the street.",
        "The album came out in 2004.",
    ),
    "zh": ("昨天夜里下了一场大雨。", "今天早上路面还是湿的。", "该银行成立于1865年。"),
}
LOOKS = {
    "en": ("The river is long, and it flows into the sea.", "it", "river"),
    "zh": ("这家公司很大，它有三千名员工。", "它", "公司"),
}
"""A sentence, a pronoun, and the word it refers to."""
SENTENCES = (
    ("You can return shoes that do not fit within thirty days.", "鞋子不合脚，三十天内可以退货。"),
    ("The library is open until nine in the evening.", "图书馆晚上九点关门。"),
    ("Water boils at a lower temperature in the mountains.", "在高山上，水不到一百度就开了。"),
    ("The last train leaves at midnight.", "末班车半夜十二点开。"),
    ("She has played the violin since she was six.", "她从六岁开始学小提琴。"),
    ("Our cat sleeps on the sofa all day.", "我家的猫整天睡在沙发上。"),
    ("The doctor told him to stop smoking.", "医生叫他戒烟。"),
    ("The football match was cancelled because of the rain.", "足球比赛因为下雨取消了。"),
    ("Vegetables are cheaper at the market.", "市场上的蔬菜比较便宜。"),
    ("My computer has been very slow since the update.", "更新以后，我的电脑变得很慢。"),
    ("The museum is free for students.", "学生参观博物馆不要钱。"),
    ("He left his umbrella on the bus.", "他把雨伞忘在公交车上了。"),
)
"""In English, and the same in Chinese."""
QUESTIONS = {"en": "Who plays an instrument?", "zh": "我买的鞋太小了，能退吗？"}
"""Each is searched for among the sentences of the other language."""
_WIDTH = 78


def show_heading(number: int, title: str, system: str) -> None:
    """Print the title of a section, and which system answers."""
    from rich.cells import cell_len

    begins = f"━━ {number}  {title} "
    typer.secho("\n" + begins + "━" * (_WIDTH - cell_len(begins)), bold=True)
    typer.echo(f"{system}\n")


def demo_tour(out: Path, layer: int | None, head: int | None) -> int:
    """Show the sections whose models are in this copy; returns their number."""
    from qkv.api.model import load
    from qkv.models.folders.hub import shipped_models

    model = load()
    drawn = {lang: model.attention(text) for lang, (text, _, _) in LOOKS.items()}
    # report a wrong --layer or --head before any output
    chosen = {
        lang: find_clearest_head(drawn[lang], word, meant, layer, head) for lang, (_, word, meant) in LOOKS.items()
    }
    names = shipped_models()
    write(f"qkv: BERT and what led to it. {len(names)} models answer, offline; the figures are theirs.")
    tour = _Tour(out, names, model, sorted(LANGUAGES, key=lambda lang: lang != language()))
    if tour.vectors is not None:
        tour.show_words(tour.vectors)
    if translators := [name for name in ("qkv-en-zh", "qkv-zh-en") if name in names]:
        tour.show_translations(translators)
    tour.show_meanings()
    if "qkv-gpt" in names:
        tour.show_writing()
    tour.show_blanks()
    tour.show_next_sentences()
    tour.show_attention(drawn, chosen, layer is None or head is None)
    if "qkv-sentences" in names:
        tour.show_search()
    return tour.shown


@dataclass
class _Tour:
    out: Path
    names: list[str]  # models in this copy
    model: "Model"
    languages: list[str]  # that of the reader first
    shown: int = field(default=0, init=False)  # sections so far

    @cached_property
    def vectors(self) -> "WordVectors | None":
        from qkv.api.vector_scores import load_vectors

        return load_vectors("qkv-words") if "qkv-words" in self.names else None

    def begin(self, title: str, system: str) -> None:
        self.shown += 1
        show_heading(self.shown, title, system)

    def show_words(self, vectors: "WordVectors") -> None:
        from qkv.cli.terminal import print_table

        self.begin(
            translate("Words become vectors"),
            translate(f"word2vec, 2013: {len(vectors):,} words, {vectors.width} numbers each (qkv-words)"),
        )
        rows = []
        for lang in self.languages:
            for a, b, c in ANALOGIES[lang]:
                answers = ", ".join(one.word for one in vectors.analogy(a, b, c, k=3))
                rows.append((f"{b} − {a} + {c}", f"≈ {answers}"))
        print_table(["", ""], rows)

    def show_translations(self, translators: Sequence[str]) -> None:
        from qkv.api.translator import load_translator
        from qkv.models.folders.hub import ZOO
        from qkv.report.alignment_picture import draw_alignment
        from qkv.text.segmenter import Segmenter, cut_longest
        from qkv.text.wordpiece import is_punctuation

        self.begin(
            translate("A sentence becomes a sentence of another language"),
            translate(f"the Transformer, 2017, translates and shows where it looked ({', '.join(translators)})"),
        )
        words = None if self.vectors is None else self.vectors.rows
        segmenter = None if words is None else Segmenter("qkv-words", lambda run: cut_longest(run, words))
        picture = None
        for name in sorted(translators, key=lambda name: self.languages.index(ZOO[name].reads[0])):
            texts = TRANSLATED[ZOO[name].reads[0]]
            for found in load_translator(name).translate(texts, alignments=True, segmenter=segmenter):
                typer.echo(f"{found.source}  →  {found.text}")
                links = [
                    f"{found.text[slice(*one.target)]}←{found.source[slice(*one.source)]} {one.weight:.0%}"
                    for one in found.best.alignments
                    if not is_punctuation(found.text[one.target.start])
                ]
                if links:
                    typer.echo(f"  {'  '.join(links)}")
                    picture = picture or found.best.attention
        if "qkv-en-zh-rnn" in self.names:
            before = load_translator("qkv-en-zh-rnn").translate([TRANSLATED["en"][0]])[0].text
            write(f"recurrent networks with attention, 2015 (qkv-en-zh-rnn): {before}")
        if picture is not None:
            file = self.out / "alignment.svg"
            write_text(file, draw_alignment(picture, language()))
            write(f"\n{file}: the alignment as a picture")

    def show_meanings(self) -> None:
        from qkv.api.model import load
        from qkv.cli.terminal import print_table
        from qkv.text.segmenter import is_installed

        vectors = self.vectors
        elmo = load("qkv-elmo") if "qkv-elmo" in self.names else None
        asked = {"word2vec (2013)": vectors, "ELMo (2018)": elmo, "BERT (2018)": self.model}
        systems = [name for name, model in asked.items() if model is not None]
        self.begin(
            translate("One word, several meanings"),
            translate(f"{', '.join(systems)}: cosines of its vectors in sentences 1 to 4"),
        )
        pairs = [(0, 1), (2, 3), (0, 2), (0, 3), (1, 2), (1, 3)]  # of one meaning, then of two
        for number, lang in enumerate(self.languages):
            word, sentences = MEANINGS[lang]
            typer.echo("\n" * (number > 0) + "\n".join(f"{n}  {text}" for n, text in enumerate(sentences, 1)))
            rows = []
            if vectors is not None:
                same = f"{vectors.similarity(word, word):.2f}"
                rows.append((f"word2vec: {word}", *[same] * len(pairs)))
            readers = {"BERT": self.model}
            if elmo is not None and (lang == "en" or elmo.tokenizer.segmenter is None or is_installed("rjieba")):
                readers = {"ELMo": elmo, **readers}
            for name, model in readers.items():
                cosines = compare_word(model, word, sentences)
                rows.append((f"{name}: {word}", *(f"{cosines[pair]:.2f}" for pair in pairs)))
            print_table(["", *(f"{a + 1}–{b + 1}" for a, b in pairs)], rows, right=range(1, len(pairs) + 1))

    def show_writing(self) -> None:
        from qkv.api.generator import Generator
        from qkv.search.options import SAMPLING_DEFAULTS, GenerateConfig

        generator = Generator("qkv-gpt")
        self.begin(
            translate("A text, one word after another"),
            translate("GPT, 2018: what it writes is invented, names and facts too (qkv-gpt)"),
        )
        for number, lang in enumerate(self.languages):
            prompt, seed, longest = PROMPTS[lang]
            config = GenerateConfig(sample=True, max_length=longest, seed=seed, **SAMPLING_DEFAULTS)
            written = generator.generate([prompt], config, fit=True)[0][0]
            text = prompt + (written.text if written.finished else end_at_sentence(written.text))
            typer.echo("\n" * (number > 0) + "\n".join(break_lines(text, lang)))

    def show_blanks(self) -> None:
        from qkv.cli.terminal import print_table

        sizes = self.model.config
        self.begin(
            translate("The word behind [MASK]"),
            translate(f"BERT, 2018: {sizes.layers} layers, {sizes.heads} heads each ({self.model.name})"),
        )
        rows = []
        for text in (text for lang in self.languages for text in BLANKS[lang]):
            best = self.model.fill(text, k=3)[0].candidates
            rows.append((text, ", ".join(f"{one.text} {one.probability:.0%}" for one in best)))
        print_table(["", ""], rows)

    def show_next_sentences(self) -> None:
        from qkv.cli.terminal import bar, print_table

        self.begin(
            translate("Which sentence comes next?"),
            translate(f"BERT, 2018: the other task of its pretraining ({self.model.name})"),
        )
        for number, lang in enumerate(self.languages):
            first, *seconds = PAIRS[lang]
            typer.echo("\n" * (number > 0) + first)
            likely = [self.model.next_sentence(first, second).is_next for second in seconds]
            shown = zip(seconds, likely, strict=True)
            print_table(["", "", ""], [(f"{one:10.1%}", bar(one, 10), second) for second, one in shown])

    def show_attention(
        self, drawn: "dict[str, AttentionMap]", chosen: dict[str, tuple[int, int]], is_measured: bool
    ) -> None:
        self.begin(
            translate("What does a word look at?"),
            translate(f"BERT, 2018: attention, the Transformer's, to both sides ({self.model.name})"),
        )
        for number, lang in enumerate(self.languages):
            text, word, meant = LOOKS[lang]
            typer.echo("\n" * (number > 0) + text)
            if is_measured:
                write(f"the head that sees “{meant}” most:")
            print_attention(drawn[lang], *chosen[lang], word, most=4)
        typer.echo("")
        for lang in self.languages:
            for ending, what in ((".svg", "this head as a picture"), (".html", "every head on one page")):
                file = self.out / f"attention.{lang}{ending}"
                write_attention(drawn[lang], file, *chosen[lang], LOOKS[lang][1], lang)
                typer.echo(f"{file}: {translate(what)}")

    def show_search(self) -> None:
        from qkv.api.model import load
        from qkv.cli.terminal import print_table
        from qkv.look.token_layers import cosine_matrix

        model = load("qkv-sentences")
        self.begin(
            translate("A question finds its answer in another language"),
            translate("BERT, 2018, trained on to compare sentences, as SBERT, 2019 (qkv-sentences)"),
        )
        vectors = {lang: model.embed([pair[place] for pair in SENTENCES]) for place, lang in enumerate(("en", "zh"))}
        for lang in self.languages:
            other = "zh" if lang == "en" else "en"
            typer.echo(QUESTIONS[lang])
            cosines = cosine_matrix(model.embed([QUESTIONS[lang]]).vectors, vectors[other].vectors)[0]
            best = cosines.argsort()[::-1][:2]
            texts = [SENTENCES[place][other == "zh"] for place in best]
            print_table(["", ""], [(f"{cosines[n]:8.2f}", text) for n, text in zip(best, texts, strict=True)])
        across = cosine_matrix(vectors["en"].vectors, vectors["zh"].vectors)
        found = sum(int(row.argmax()) == place for place, row in enumerate(across))
        write(f"\nOf {len(SENTENCES)} English sentences {found} find their own Chinese translation first.")


def compare_word(model: "Model", word: str, sentences: Sequence[str]) -> "NDArray[np.float32]":
    """(n, n) cosines of a word's vectors in n sentences; a word of several subwords has the mean of theirs."""
    import numpy as np

    from qkv.look.meanings import find_spans
    from qkv.look.token_layers import cosine_matrix

    found = []
    for sentence, read in zip(sentences, model.embed_tokens(sentences), strict=True):
        begin, end = find_spans(word, sentence)[0]
        places = [place for place, (start, stop) in enumerate(read.offsets) if start < end and stop > begin]
        found.append(read.vectors[places].mean(0))
    return cosine_matrix(np.stack(found))


def end_at_sentence(text: str) -> str:
    """A text that was stopped, up to its last full stop; one without is marked as unfinished.

    >>> end_at_sentence(" was old. It had"), end_at_sentence(" was old and")
    (' was old.', ' was old and …')
    """
    ends = list(re.finditer(r"[.!?](?=\s|$)|[。！？]", text))
    return text[: ends[-1].end()] if ends else f"{text} …"


def break_lines(text: str, lang: str) -> list[str]:
    """Lines for a terminal: a Chinese text sentence by sentence, as poems are printed.

    >>> break_lines("《春晓》孟浩然：春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。", "zh")
    ['《春晓》孟浩然：', '春眠不觉晓，处处闻啼鸟。', '夜来风雨声，花落知多少。']
    """
    if lang != "zh":
        return textwrap.wrap(text, 74)
    return [line.strip() for line in re.split(r"(?<=[：。！？])|\n", text) if line.strip()]


def find_clearest_head(
    found: "AttentionMap", word: str, meant: str, layer: int | None = None, head: int | None = None
) -> tuple[int, int]:
    """Return the layer and head where `word` attends to `meant` most, relative to the other words; a given layer or
    head is fixed."""
    from qkv.report.attention import choose

    first = found.weights(found.layers[0] if layer is None else layer, found.heads[0] if head is None else head)
    left, right = (list(choose(found, first, one)) for one in (word, meant))
    looks = found.attn[..., right].sum(-1) / 255  # (layers, heads, T)
    beyond = looks[..., left].mean(-1) - looks.mean(-1)
    layers, heads = (found.layers if layer is None else (layer,)), (found.heads if head is None else (head,))
    open_to = [(one, other) for one in layers for other in heads]
    return max(open_to, key=lambda pair: beyond[found.layers.index(pair[0]), found.heads.index(pair[1])])
