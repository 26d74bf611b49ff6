"""The verdict on an article in words: the order of its variants, its conclusion, and its figures."""

from collections.abc import Iterator

from stampede.evaluate.statistics.stopping import LEAST
from stampede.records.run import Run
from stampede.records.summary import Article, Floor, Summary
from stampede.records.words import plural
from stampede.report.spread import word_list
from stampede.report.tables import Table
from stampede.report.wording import capitalised, metric_phrase, number, plain_name, shortened

_MOST_NAMED = 3
"""How many pairs in another order a table names."""


def article_sentence(run: Run, summary: Summary) -> str | None:
    """Return the verdict on the article in a sentence; None: no figures were published."""
    if (article := summary.article) is None:
        return None
    name, order, conclusion = _short_name(run), article.order, article.conclusion
    if all(figure.trials < LEAST for row in summary.published for figure in row.figures):
        figures = plural(article.figures.count, "figure")
        return f"{name}: one trial decides nothing about the order of the variants, the conclusion or the {figures}."
    whole = []
    if order.verdict == "same":
        whole.append("same order of variants")
    elif order.verdict != "undecided":
        whole.append(f"same order in {order.agree} of {order.pairs} pairs")
    if conclusion:
        undecided = f", {conclusion.undecided} undecided" if conclusion.undecided else ""
        counted = f" ({conclusion.hold} of {conclusion.claims} claims{undecided})" if undecided else ""
        whole.append({
            "same": f"same conclusion{counted}",
            "undecided": "conclusion undecided",
            "different": "another conclusion",
            "partly the same": f"{conclusion.hold} of {conclusion.claims} claims reproduced{undecided}",
        }[conclusion.verdict])  # fmt: skip
    return f"{name}: {'; '.join(filter(None, (', '.join(whole), figures_counted(summary, article))))}."


def _short_name(run: Run) -> str:
    """Return the publisher and the year of the article."""
    if run.source is None:
        return "The article"
    publisher, year = run.source.publisher, run.source.year
    return capitalised(shortened(publisher, 40)) + (f", {year}" if year else "")


def figures_counted(summary: Summary, article: Article) -> str:
    """Return how many of the published figures have each verdict; the counts add up to all figures."""
    figures, floors_ms = article.figures, [floor.ms for floor in _used_floors(summary, article)] or [0.0]
    floor = " to ".join(dict.fromkeys((number(min(floors_ms)), number(max(floors_ms)))))
    counts = (
        (figures.floor, f"but for the floor of {floor} ms"), (figures.contradicted, "contradicted"),
        (figures.undecided, "undecided"), (figures.short, "not measured"), (figures.invalid, "invalid"),
    )  # fmt: skip
    told = [f"{count} {what}" for count, what in counts if count]
    return ", ".join([f"{figures.within} of {plural(figures.count, 'figure')} within {_tolerance(summary)}", *told])


def _tolerance(summary: Summary) -> str:
    least, most = (found(100 * row.within for row in summary.published) for found in (min, max))
    return f"{most:g} %" if least == most else f"{least:g} to {most:g} %"


def _used_floors(summary: Summary, article: Article) -> list[Floor]:
    used = {
        (row.load, row.request_class, row.metric)
        for row in summary.published
        if any(figure.verdict == "differs by the floor" for figure in row.figures)
    }
    return [floor for floor in article.floors if (floor.load, floor.request_class, floor.metric) in used]


def article_tables(run: Run, summary: Summary) -> Iterator[Table]:
    """Yield the three questions about the article with their answers, if the summary has a verdict on the article."""
    if (article := summary.article) is None:
        return
    order, conclusion = article.order, article.conclusion
    same_order = "undecided: no two variants can be told apart, both in the article and here"
    if order.pairs:
        counted = f"in {order.agree} of {plural(order.pairs, 'pair')} of figures that can be told apart"
        told = [
            f"{plain_name(found.stat)} of the {metric_phrase(found.metric, found.request_class)}: {found.larger} is "
            f"above {found.smaller} only in the article"
            for found in order.reversals[:_MOST_NAMED]
        ]
        more = len(order.reversals) - _MOST_NAMED
        same_order = "\n".join([counted, *told, *([f"{more} more"] if more > 0 else [])]) if told else f"yes, {counted}"
    same_conclusion = "no claim compares the published variants alone"
    if conclusion:
        counts = ((conclusion.hold, "reproduced"), (conclusion.fail, "not reproduced"),
                  (conclusion.undecided, "undecided"))  # fmt: skip
        claims = ", ".join(f"{count} {what}" for count, what in counts if count)
        lead = {"same": "yes: ", "different": "no: "}.get(conclusion.verdict, "")
        same_conclusion = f"{lead}{claims}, of {plural(conclusion.claims, 'claim')} about these variants"
    rows = [
        ("Is the order of the variants the same?", same_order),
        ("Is the conclusion the same?", same_conclusion),
        (f"Are the figures within {_tolerance(summary)}?", figures_counted(summary, article)),
    ]
    floors = [
        f"floor: in the article, the p50 {plain_name(floor.metric)} under {floor.load} is {number(abs(floor.ms))} ms "
        f"{'higher' if floor.ms > 0 else 'lower'} even where nobody waits ({word_list(floor.variants)})"
        for floor in _used_floors(summary, article)
    ]
    title = f"{_short_name(run)}, compared with this run"
    yield Table(title, ("question", "answer"), rows, words=2, note="; ".join(dict.fromkeys(floors)))
