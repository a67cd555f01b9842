"""Results on a terminal: a line or two a text, entities marked where they stand."""

from typing import Any

from rich.text import Text

from qkv.cli.terminal import bar, console

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
OTHERS = 3  # labels shown beside the first


class Printed:
    """Shows results of one task as they come; every label keeps its colour."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.out = console()
        self.colours: dict[str, str] = {}

    def show(self, example: Any, result: Any) -> None:
        line = getattr(self, f"_{self.task}")(example, result)
        if getattr(result, "abstained", False):
            line.append("  (not sure enough to answer by itself)", style="yellow")
        if result.n_windows > 1:
            line.append(f"   ({result.n_tokens:,} tokens, {result.n_windows} windows)", style="dim")
        self.out.print(line, soft_wrap=True)

    def _classify(self, example: Any, result: Any) -> Text:
        line = Text(example.text if example.pair is None else f"{example.text} ‖ {example.pair}")
        if hasattr(result, "value"):
            return line.append(f"\n    {result.value:.4g}", style="bold")
        if hasattr(result, "labels"):
            said = ", ".join(f"{label} {result.probabilities[label]:.0%}" for label in result.labels)
            return line.append(f"\n    {said or 'none of the labels'}", style="bold")
        line.append(f"\n    {result.label}", style="bold").append(f"  {result.probability:.1%} ")
        line.append_text(bar(result.probability, 12))
        others = list(result.probabilities.items())[1 : 1 + OTHERS]
        line.append("  " + "  ".join(f"{label} {share:.1%}" for label, share in others), style="dim")
        return line

    def _tag(self, example: Any, result: Any) -> Text:
        line = Text(example.text)
        for entity in result.entities:
            line.stylize(f"bold {self._colour(entity.label)}", entity.start, entity.end)
        for entity in result.entities:
            line.append(f"\n    {entity.label:<8} ", style=self._colour(entity.label))
            line.append(f"{entity.text}  [{entity.start}:{entity.end}]  {entity.probability:.1%}")
        if not result.entities:
            line.append("\n    nothing found", style="dim")
        return line

    def _answer(self, example: Any, result: Any) -> Text:
        line = Text(f"{example.question}\n    ")
        if not result.text:
            line.append("the text does not say", style="yellow")
        else:
            line.append(result.text, style="bold").append(f"  [{result.start}:{result.end}]")
        return line.append(f"  {result.probability:.1%}")

    def _choice(self, example: Any, result: Any) -> Text:
        line = Text(example.question)
        for number, (choice, share) in enumerate(zip(example.choices, result.probabilities, strict=True)):
            style = "bold" if number == result.choice else "dim"
            line.append(f"\n    {share:6.1%}  {choice}", style=style)
        return line

    def _colour(self, label: str) -> str:
        return self.colours.setdefault(label, COLOURS[len(self.colours) % len(COLOURS)])
