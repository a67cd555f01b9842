"""The report of a GPT's training: that of a language model (report/language_model.py), what a character costs, and what
the model wrote as training went on."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from qkv.report.bilingual import Phrase, Words, safe, spans
from qkv.report.language_model import EVALUATION, LanguageModelFacts, language_model_page
from qkv.report.page import Figure, RunPage
from qkv.report.run_log import RunLog, choose_evaluations, read_run
from qkv.search.options import SAMPLING_DEFAULTS


@dataclass(frozen=True)
class Writing:
    """What was written after one prompt, at one time."""

    when: Words
    text: str


@dataclass(frozen=True)
class Writings:
    """One prompt a row, and what followed it as time went on."""

    title: Words
    by_prompt: tuple[tuple[str, tuple[Writing, ...]], ...]
    note: Words = ""
    narrow: ClassVar[bool] = False
    style: ClassVar[str] = (
        ".written{display:grid;grid-template-columns:repeat(auto-fit,minmax(220px,1fr));gap:16px;margin:8px 0 24px}"
        ".written h4{margin:0 0 4px}.written p{margin:0;white-space:pre-wrap;overflow-wrap:anywhere}"
        ".written .prompt{opacity:.55}"
    )

    def html(self) -> str:
        note = f'<p class="note">{spans(self.note)}</p>' if self.note else ""
        return "".join(self._row(prompt, writings) for prompt, writings in self.by_prompt) + note

    @staticmethod
    def _row(prompt: str, writings: tuple[Writing, ...]) -> str:
        columns = "".join(
            f'<div><h4>{spans(one.when)}</h4><p><span class="prompt">{safe(prompt)}</span>{safe(one.text)}</p></div>'
            for one in writings
        )
        return f'<div class="written">{columns}</div>'


def gpt_page(run: Path, facts: LanguageModelFacts) -> RunPage:
    page, log = language_model_page(run, facts), read_run(run)
    sections = page.sections
    if texts := writings(log):
        note = Phrase(
            "Grey: the prompt, from held-out text; the first text is begun from nothing. Drawn at temperature "
            f"{SAMPLING_DEFAULTS['temperature']} among the {SAMPLING_DEFAULTS['top_k']} likeliest tokens.",
            "灰色为提示，取自留出文本；第一段不给提示，从零写起。按温度 "
            f"{SAMPLING_DEFAULTS['temperature']} 在最可能的 {SAMPLING_DEFAULTS['top_k']} 个词元中抽取。",
        )
        sections = (Writings(Phrase("What it writes", "模型写出的文字"), texts, note), *sections)
    return replace(page, figures=(*page.figures, *_figures(log)), sections=sections)


def _figures(log: RunLog) -> Iterator[Figure]:
    found = log.evaluated("bits_per_character")
    if found and math.isfinite(found[-1][1]):
        yield Figure(
            Phrase("Bits per character", "每字符比特数"),
            f"{found[-1][1]:.3f}",
            Phrase(
                f"{EVALUATION.en}; comparable among tokenizers, lower is better",
                f"{EVALUATION.zh}；不同分词方式之间可比，越低越好",
            ),
        )


def writings(log: RunLog) -> tuple[tuple[str, tuple[Writing, ...]], ...]:
    """Every prompt of the last evaluation, with what was written then and at a few moments before."""
    with_samples = [(step, texts) for step, found in log.evaluations if (texts := _by_prompt(found.get("samples")))]
    if not with_samples:
        return ()
    shown = [with_samples[place] for place in choose_evaluations(len(with_samples))]
    return tuple(
        (
            prompt,
            tuple(
                Writing(Phrase(f"step {step:,}", f"第 {step:,} 步"), texts[prompt])
                for step, texts in shown
                if prompt in texts
            ),
        )
        for prompt in with_samples[-1][1]
    )


def _by_prompt(samples: object) -> dict[str, str]:
    known = [one for one in samples if isinstance(one, dict)] if isinstance(samples, list) else []
    return {str(one["prompt"]): str(one["text"]) for one in known if {"prompt", "text"} <= set(one)}
