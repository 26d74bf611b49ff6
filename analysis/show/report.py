"""report.html: one page that contains everything it needs, so it opens offline."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import altair as alt
import duckdb
from jinja2 import Environment, PackageLoader, StrictUndefined, Template, select_autoescape
from markupsafe import Markup

from analysis.folder import read_run, trial_folder, write_whole
from analysis.record import Run
from analysis.result import Summary
from analysis.show import figures
from analysis.show.grids import errors_grids, quantity_grids, stairs_grids, telling_differences, visits_grids
from analysis.show.words import (
    INTERVAL,
    MEANING,
    SMALLEST,
    WITHIN,
    bound_in_words,
    claim_interval,
    claim_value,
    number,
    published_figures,
    published_what,
    seconds,
    verdict_of,
    what,
)


def write_report(run_folder: Path, summary: Summary) -> None:
    """Write report.html of a run, whole or not at all."""
    run = read_run(run_folder)
    page = _template().render(
        run=run,
        summary=summary,
        figures=[Markup(svg) for svg in _figures(run_folder, run, summary)],  # noqa: S704  # we draw these pictures
        grids=list(quantity_grids(run, summary)),
        stairs=list(stairs_grids(run, summary)),
        told=[*visits_grids(run, summary), *errors_grids(run, summary)],
        number=number,
        seconds=seconds,
        claim_value=claim_value,
        claims=[*zip(run.claims, summary.claims, strict=True)],
        bound_in_words=bound_in_words,
        claim_interval=claim_interval,
        interval=INTERVAL[0].upper() + INTERVAL[1:],
        differences=telling_differences(summary),
        smallest=SMALLEST,
        verdict_of=verdict_of,
        what=what,
        published_what=published_what,
        published_figures=published_figures,
        within=WITHIN[0].upper() + WITHIN[1:],
        meaning=MEANING[0].upper() + MEANING[1:],
        common={key: value for key, value in run.variants[0].settings.items() if _is_common(run, key)},
    )
    write_whole(run_folder / "report.html", page)


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("analysis.show"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("report.html")


def _is_common(run: Run, setting: str) -> bool:
    return len({repr(variant.settings.get(setting)) for variant in run.variants}) == 1


def _figures(run_folder: Path, run: Run, summary: Summary) -> Iterator[str]:
    trusted = [one for one in summary.trials if one.verdict != "invalid"]
    files = [str(trial_folder(run_folder, one.variant, one.load, one.trial) / "requests.parquet") for one in trusted]
    if not files:
        return
    with duckdb.connect() as database:
        database.read_parquet(files).create_view("requests")
        if across := figures.across_loads(run, summary):
            yield figures.svg(across)
        for load in run.loads:
            yield from map(figures.svg, _pictures(database, run_folder, run, summary, load.name))


def _pictures(
    database: duckdb.DuckDBPyConnection, run_folder: Path, run: Run, summary: Summary, load: str
) -> Iterator[alt.TopLevelMixin]:
    """Yield the pictures of one load, without the pictures for which the load has no data."""
    classes = figures.classes(database, load)
    of = run.load(load)
    drawn = [
        figures.staircase(database, run, summary, load),
        figures.waves(run, summary, load),
        figures.failing_visits(run, summary, load),
        figures.visit_times(database, run, summary, load),
        figures.curve(run, summary, load),
        figures.races(run, summary, load),
        *(figures.overhead(database, run, summary, load, request) for request in classes if not of.has_few_stairs),
        figures.moments(database, run_folder, run, summary, load) if not of.crashes else None,
        *(figures.share_and_tail(run, summary, load, request) for request in classes[:1] if not of.burst),
        figures.workers(run, summary, load) if run.has_several_workers(load) else None,
        figures.by_age(run, summary, load) if not of.burst else None,
        figures.connections(database, run, load),
    ]
    yield from (figure for figure in drawn if figure)
