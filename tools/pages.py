"""The generated blocks of docs/, and what a run says in that of its experiment's page.

PYTHONPATH=. .venv/bin/python -m tools.pages results/heavy-mix/latest
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from stampede.errors import WrongUse
from stampede.records.folder import write_whole
from stampede.reproduce.reproduction import (
    REFERENCE,
    Reproduction,
    read_reproduced,
    read_reproduction,
    write_reproduction,
)

END = "<!-- end -->"


def with_block(text: str, name: str, lines: Iterable[str]) -> str:
    """Return a document with new lines in its block of this name. Raise ValueError if it has no such block."""
    begin = f"<!-- generated: {name} -->"
    before, found, rest = text.partition(begin)
    _, end, after = rest.partition(f"\n{END}")
    if not found or not end:
        raise ValueError(name)
    return before + "\n".join([begin, *lines]) + "\n" + end + after


def page_block(name: str) -> str:
    """Return the name of the generated block in the page of an experiment."""
    return f"results of {name}"


def keep_for_page(folder: Path, reference: Path = REFERENCE) -> Path:
    """Put what a run says into the reference and into the experiment's page beside it, and return the page.

    Further tables of the page stay. Raise WrongUse if the experiment has no page with a block for results.
    """
    own = read_reproduced(folder)
    kept = {each.experiment: each for each in read_reproduction(reference).experiments}
    assert own.shown
    before = kept[own.experiment].shown if own.experiment in kept else None
    shown = own.shown.model_copy(update={"further": before.further if before else []})
    page = reference.with_name(f"{own.experiment}.md")
    try:
        text = with_block(page.read_text(encoding="utf-8"), page_block(own.experiment), shown.lines())
    except (OSError, ValueError):
        raise WrongUse(
            f"{page} has no block for results.",
            hint=f"Write these lines into the page:\n<!-- generated: {page_block(own.experiment)} -->\n\n{END}",
        ) from None
    kept[own.experiment] = own.model_copy(update={"shown": shown})
    write_reproduction(reference, Reproduction(experiments=list(kept.values())))
    write_whole(page, text)
    return page


if __name__ == "__main__":
    print(keep_for_page(Path(sys.argv[1]).resolve()))
