"""The answer to an experiment on one screen: at most 24 lines of 80 columns.

What was asked, what came out with its number, what helps, how sure it is, the few columns that decide, how many claims
hold, how the article's figures compare, and what to type next. Everything else is in ``stampede report --tables``.
"""

from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.answer import answers, cures
from stampede.report.article import article_sentence
from stampede.report.screen import words
from stampede.report.screen.table import screen_table
from stampede.report.section import Section

WIDTH, LINES = 80, 24
FEWEST_TABLE_LINES = 10
"""A paragraph that may give way does so only if the table would have fewer lines."""
_STYLES = {
    "Answer": "green", "Helps": "green", "Not so": "yellow", "Does not": "yellow", "Not sure": "yellow",
    "May help": "yellow", "Suspect": "yellow", "Invalid": "magenta", "Not measured": "magenta", "Valid": "green",
}  # fmt: skip
"""How the first words of a paragraph are printed."""


class _Part(NamedTuple):
    """A paragraph, how many lines it takes at most, and how early it gives way if the screen is full (0: never).

    ``whole``: it is one line, however long, which somebody may paste.
    """

    text: str
    most: int = 2
    gives_way: int = 0
    style: str = ""
    whole: bool = False


def print_screen(
    console: Console, run: Run, summary: Summary, report: str, tables: str, section: Section | None = None
) -> None:
    """Print the answer of a run.

    ``report`` is the path of its report, ``tables`` the command that prints its tables, ``section`` its diagnosis.
    """
    for line in screen_lines(run, summary, report, tables, section):
        console.print(line, soft_wrap=True)


def screen_lines(run: Run, summary: Summary, report: str, tables: str, section: Section | None = None) -> list[Text]:
    """Return the lines of the screen: at most ``LINES``, each at most ``WIDTH`` wide, but for paths and commands."""
    asked, helping = answers(run, summary), cures(run, summary)
    above = [_Part(f"{run.experiment}: {run.question}", most=3, style="bold")]
    below = []
    if section:
        above += [_Part(f"- {told}", most=LINES, gives_way=place) for place, told in enumerate(section.answers)]
        above.append(_Part(words.sureness(run, summary, LINES * WIDTH), most=LINES))
        below = [_Part(remark, most=LINES, gives_way=3 * place, style="" if place else "bold")
                 for place, remark in enumerate(section.remarks)]  # fmt: skip
    else:
        above += [_Part(words.claim_sentence(run, summary, pair), most=3, gives_way=6 * place)
                  for place, pair in enumerate(asked)]  # fmt: skip
        above += map(_Part, words.cure_sentences(run, summary))
        if run.claims and not helping:
            above.append(_Part("Helps: this experiment names no cure.", most=1, gives_way=9))
        above.append(_Part(words.sureness(run, summary, WIDTH), most=1))
    claims = words.claim_sentences(run, summary, [*asked, *helping], WIDTH)
    below += [_Part(sentence, most=1, gives_way=max(place - 1, 0)) for place, sentence in enumerate(claims)]
    if run.trials > 1 and (judged := article_sentence(run, summary)):
        below.append(_Part(judged, most=3))
    below += [_Part(line, whole=True) for line in words.next_lines(run, summary, report, tables, WIDTH)]
    table = screen_table(run, summary, WIDTH, LINES, section)
    while (room := LINES - 1 - sum(len(_lines(part)) for part in (*above, *below))) < min(
        len(table), FEWEST_TABLE_LINES
    ):
        weakest = max([*above, *below], key=lambda part: part.gives_way)
        if not weakest.gives_way:
            break
        (above if weakest in above else below).remove(weakest)
    table = screen_table(run, summary, WIDTH, room, section)
    return [
        *(line for part in above for line in _lines(part)), Text(""), *table,
        *(line for part in below for line in _lines(part)),
    ]  # fmt: skip


def _lines(part: _Part) -> list[Text]:
    """Return the lines of a paragraph; the last line ends with an ellipsis if the paragraph is longer."""
    indent = "  " if part.text.startswith("- ") else ""
    text = Text(part.text.removeprefix("- "), style=part.style)
    lead = part.text.partition(":")[0]
    for words_, style in _STYLES.items():
        if lead.startswith(words_):
            text.stylize(f"bold {style}", 0, len(lead) + 1)
    lines = [text] if part.whole else [*text.wrap(Console(width=WIDTH), WIDTH - len(indent))]
    for line in lines:
        line.rstrip()
    kept = lines[: part.most]
    if len(kept) < len(lines):
        kept[-1].truncate(WIDTH - 2 - len(indent))
        kept[-1].rstrip()
        kept[-1].append(" …")
    return [Text.assemble("- " if indent and not place else indent, line) for place, line in enumerate(kept)]
