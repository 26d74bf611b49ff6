"""What the lab advises somebody about an own service: the best way that was tried, and the configuration to paste."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from analysis.diagnosis import as_good
from analysis.record import TODAY
from analysis.result import Summary
from lab.advice.ways import Way


def print_advice(console: Console, summary: Summary, tried: Sequence[Way], best: str) -> None:
    """Print which way is the best, if any is better than today's, and what to do."""
    if len(tried) == 1:
        return
    console.print()
    if best == TODAY:
        console.print(Text("Nothing that was tried is better than today's way to serve.", style="bold"))
        if summary.diagnosis and any("event loops" in one for one in summary.diagnosis.sentences):
            console.print(Text("What holds up the event loops is in the application, so no way to serve it helps."))
        return
    way = next(one for one in tried if one.name == best)
    console.print(Text(f"Better than today's, and the best that was tried: {way.kind.says}.", style="bold"))
    console.print(Text(way.kind.why))
    if others := as_good(summary, [one.name for one in tried], best):
        says = [one.kind.says for one in tried if one.name in others]
        console.print(Text(f"As good: {', '.join(says)}."))
    console.print()
    console.print(Text(way.configuration()))
