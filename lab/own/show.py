"""What the lab says about somebody's own service: the diagnosis, what was tried, and the configuration to paste."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from analysis.result import Summary
from analysis.show.grids import TextGrid
from analysis.show.terminal import text_table
from analysis.show.words import number, percent
from lab.advice.ways import Way
from lab.own.diagnosis import TODAY, Diagnosis, Figures, as_good


def print_diagnosis(console: Console, diagnosis: Diagnosis, summary: Summary, tried: Sequence[Way], best: str) -> None:
    """Print the diagnosis, what requests lose with each way, and what to do."""
    console.print()
    console.print(Text("Diagnosis, as the service is served today", style="bold"))
    console.print()
    for sentence in diagnosis.sentences:
        console.print(Text(f"- {sentence}"))
    if len(tried) > 1:
        console.print()
        console.print(text_table(_grid(summary, tried)))
    console.print()
    if len(tried) == 1:
        return
    if best == TODAY:
        console.print(Text("Nothing that was tried is better than today's way to serve.", style="bold"))
        return
    way = next(one for one in tried if one.name == best)
    console.print(Text(f"Better than today's, and the best that was tried: {way.kind.says}.", style="bold"))
    console.print(Text(way.kind.why))
    if others := as_good(summary, [one.name for one in tried], best):
        says = [one.kind.says for one in tried if one.name in others]
        console.print(Text(f"As good: {', '.join(says)}."))
    console.print()
    console.print(Text(way.configuration()))


def _grid(summary: Summary, tried: Sequence[Way]) -> TextGrid:
    figures = Figures(summary)
    names = [way.name for way in tried]
    statistics = {one: stat for one in figures.classes(TODAY) if (stat := figures.statistic(one, names))}
    lines = []
    for way in tried:
        found = [figures.lost(way.name, request, stat) for request, stat in statistics.items()]
        beside = figures.value(way.name, None, "beside_free_thread", "share")
        lines.append((
            way.kind.says,
            f"{way.workers} x {way.threads}",
            *(f"{number(one.ms)} ({number(one.low)} to {number(one.high)})" if one else "–" for one in found),
            "–" if beside is None else percent(beside),
            number(figures.value(way.name, None, "memory", "total")),
        ))  # fmt: skip
    head = ("way", "w x t", *(f"{request} {stat}" for request, stat in statistics.items()), "beside", "MiB")
    return TextGrid("Tried: ms that requests lose outside the application", head, lines, words=1)
