"""report.html: one page that contains everything it needs, so it opens offline."""

from collections.abc import Sequence
from pathlib import Path

import duckdb
from markupsafe import Markup

from stampede.evaluate.read.rows import opened
from stampede.predict.lanes import load_lanes
from stampede.records.folder import read_run, trial_folder, write_whole
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.answer import first_figure, key_claims
from stampede.report.article import article_sentence, article_tables
from stampede.report.figures import pictures
from stampede.report.figures.drawing import svg
from stampede.report.figures.published import published_chart
from stampede.report.page import render, script_json
from stampede.report.screen.columns import deciding_columns
from stampede.report.section import Section
from stampede.report.tables.quantities import counting_tables, legend, quantity_tables
from stampede.report.tables.verdicts import claims_table, published_table
from stampede.report.timeline.load import LoadTimeline, load_timeline
from stampede.report.wording import capitalised, doubts_of, short_figure, trials_phrase

_SCRIPTS = ("trial.js", "pens.js", "draw.js", "microscope.js", "save.js", "view.js")
_EXPERIMENTS = Path(__file__).parents[2] / "docs" / "experiments"


def write_report(run_folder: Path, summary: Summary, section: Section | None = None) -> None:
    """Write report.html of a run, whole or not at all. ``section`` has its diagnosis."""
    run = read_run(run_folder)
    trusted = [trial_folder(run_folder, *trial.key) for trial in summary.trials if trial.is_trusted]
    with opened(trusted) as database:
        figures = list(pictures(database, run, summary))
        timelines = [
            (load, _data(run, load))
            for lanes in load_lanes(database, run_folder, run, summary)
            for load in [load_timeline(run, lanes)]
        ]
    quantities, chart = list(quantity_tables(run, summary)), published_chart(run, summary)
    verdicts = claims_table(run, summary) if summary.claims else None
    common = {
        key: value
        for key, value in run.variants[0].settings.items()
        if all(repr(variant.settings.get(key)) == repr(value) for variant in run.variants)
    }
    _, lead = deciding_columns(run, summary, section.columns if section else ())
    bars_title, bars = "", list[tuple[str, str, float]]()
    if lead:  # a bar for each variant, of what the answer is about
        rows = {variant.name: lead.group.row(summary, variant.name, lead.stat) for variant in run.variants}
        labels, of = section.labels if section else {}, lead.group
        bars = [
            (labels.get(name, name), short_figure(row.unit, row.measured), row.measured)
            for name, row in rows.items()
            if row and row.measured is not None
        ]
        whose = f"{of.request_class} requests, " if of.request_class else ""
        under = f" ({of.load})" if of.load and len(run.loads) > 1 else ""
        measured = of._replace(load=None, request_class=None, stats=(lead.stat,)).title(run, stat=lead.stat)
        bars_title = capitalised(f"{whose}{measured}{under}")
    page = render(
        "report.html",
        *_SCRIPTS,
        "contents.js",
        run=run,
        summary=summary,
        trials=trials_phrase(summary),
        doubts=doubts_of(run, summary),
        section=section,
        first=first_figure(run, summary),
        answers=list(key_claims(run, summary)),
        bars_title=bars_title,
        bars=bars,
        page=f"../../../docs/experiments/{run.experiment}.md" * (_EXPERIMENTS / f"{run.experiment}.md").exists(),
        timelines=timelines,
        figures=figures,
        cite=_cite(run),
        verdicts=verdicts,
        article=article_sentence(run, summary),
        article_tables=list(article_tables(run, summary)),
        published_picture=Markup(svg(chart)) if chart else None,  # noqa: S704  # we draw it
        published=published_table(run, summary) if summary.published else None,
        quantities=quantities,
        legend=legend(run, quantities),
        further=list(counting_tables(run, summary)),
        common=common,
    )
    write_whole(run_folder / "report.html", page)


def timeline_page(
    database: duckdb.DuckDBPyConnection,
    run_folder: Path,
    run: Run,
    summary: Summary,
    sentences: Sequence[str],
    capacity: tuple[int, int],
    title: str = "",
    began_s: float | None = None,
    first: tuple[str, str] | None = None,
    bars_title: str = "",
    bars: Sequence[tuple[str, str, float]] = (),
) -> str:
    """Return a page that has only the timeline of the requests in a database, below what it opens with.

    It opens with sentences, of which the first is the verdict, perhaps with its number and what it is (``first``), and
    with ``bars``, which have a label, a figure and a value, below their ``bars_title``.

    ``capacity`` workers and threads serve the requests in the lanes that are computed. ``title`` replaces the
    timeline's own. ``began_s``: when the first request was sent (epoch seconds), if the axis shows the time of day.
    """
    loads = [load_timeline(run, lanes) for lanes in load_lanes(database, run_folder, run, summary, capacity)]
    timelines = [(load._replace(title=title or load.title), _data(run, load, began_s)) for load in loads]
    return render("alone.html", *_SCRIPTS, run=run, timelines=timelines, sentences=sentences, first=first,
                  bars_title=bars_title, bars=bars)  # fmt: skip


def _cite(run: Run) -> str:
    return f"Stampede, {run.experiment}, measured {run.began[:10]} on {run.measured_on}."


def _data(run: Run, load: LoadTimeline, began_s: float | None = None) -> Markup:
    return script_json(
        {
            "load": load.load,
            "began_ms": None if began_s is None else 1000 * began_s,
            "trials": [trial.to_json() for trial in load.trials],
            "colours": dict(load.colours),
            "file": f"{run.experiment}-{load.load}",
            "alt": load.alt,
            "caption": f"{run.title}: which worker served each request, and which requests waited for it.",
            "cite": _cite(run),
        }
    )
