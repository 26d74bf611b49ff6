"""What the lab advises somebody about an own service: the best way that was tried, and the configuration to paste."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from stampede.advise.options import ServingOption
from stampede.diagnosis.improvement import find_improvement
from stampede.diagnosis.model import Diagnosis
from stampede.records.summary import Summary


def print_best_way(
    console: Console, summary: Summary, diagnosis: Diagnosis | None, tried: Sequence[ServingOption]
) -> None:
    """Print why the best way is better than today's, and its configuration; nothing if no way is better."""
    if len(tried) == 1:
        return
    found = find_improvement(summary, diagnosis, [way.name for way in tried])
    if found.best is None:
        return
    way = next(option for option in tried if option.name == found.best.name)
    console.print()
    console.print(Text(way.kind.reason))
    if found.as_good:
        says = [option.kind.label for option in tried if option.name in found.as_good]
        console.print(Text(f"As good: {', '.join(says)}."))
    console.print()
    console.print(Text(way.variant.deployment()), soft_wrap=True)
