"""report.html: one page that contains everything it needs, so it opens offline."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import altair as alt
import duckdb
from markupsafe import Markup

from analysis.metrics import METRICS
from analysis.read.rows import COLUMNS
from analysis.records.folder import read_run, trial_folder, write_whole
from analysis.records.run import Run
from analysis.records.summary import Summary
from analysis.report import figures, lanes
from analysis.report.answer import answers
from analysis.report.figures.marks import tables
from analysis.report.page import as_json, render
from analysis.report.section import Section
from analysis.report.spread import INTERVAL
from analysis.report.tables import Table
from analysis.report.tables.quantities import clocks_table, differences_table, quantity_tables, stairs_tables
from analysis.report.tables.verdicts import claims_table, published_table
from analysis.report.tables.visits import errors_tables, visits_tables

_SCRIPTS = ("trial.js", "pens.js", "draw.js", "microscope.js", "save.js", "view.js")
_DOCS = Path(__file__).parents[2] / "docs"


class Picture(NamedTuple):
    """A picture as SVG, and as tables. ``telling``: it shows a metric that a claim asks for."""

    svg: Markup
    tables: list[Table]
    telling: bool


def write_report(run_folder: Path, summary: Summary, sections: Sequence[Section] = ()) -> None:
    """Write report.html of a run, whole or not at all. ``sections`` are what an app adds."""
    run = read_run(run_folder)
    with _rows(run_folder, summary) as database:
        pictures = sorted(_pictures(database, run, summary), key=lambda picture: not picture.telling)
        shown = list(_lanes(database, run_folder, run, summary))
    page = render(
        "report.html",
        *_SCRIPTS,
        run=run,
        summary=summary,
        sections=sections,
        answers=list(answers(run, summary)),
        page=f"../../../docs/{run.experiment}.md" if (_DOCS / f"{run.experiment}.md").exists() else None,
        lanes=shown,
        figures=pictures,
        cite=_cite(run),
        verdicts=_verdicts(run, summary),
        published=published_table(run, summary) if summary.published else None,
        clocks=clocks_table(run, summary),
        quantities=list(quantity_tables(run, summary)),
        interval=INTERVAL,
        further=[*visits_tables(run, summary), *errors_tables(run, summary), *stairs_tables(run, summary)],
        made_visits=any(visits_tables(run, summary)),
        common={key: value for key, value in run.variants[0].settings.items() if _is_common(run, key)},
    )
    write_whole(run_folder / "report.html", page)


def _verdicts(run: Run, summary: Summary) -> Table | None:
    if summary.differences:
        return differences_table(run, summary)
    return claims_table(run, summary, explained=True) if summary.claims else None


def lanes_alone(run_folder: Path, summary: Summary) -> str:
    """Return a page that has only the lanes of a run."""
    run = read_run(run_folder)
    with _rows(run_folder, summary) as database:
        return lanes_of(database, run_folder, run, summary)


def lanes_of(
    database: duckdb.DuckDBPyConnection,
    run_folder: Path,
    run: Run,
    summary: Summary,
    heading: str = "",
    of: tuple[int, int] | None = None,
) -> str:
    """Return a page that has only the lanes of the requests in a database, perhaps below a heading.

    ``of``: how many workers and threads serve the requests in the lanes that are computed; None: as many as measured.
    """
    shown = list(_lanes(database, run_folder, run, summary, of))
    return render("alone.html", *_SCRIPTS, run=run, lanes=shown, heading=heading)


def _is_common(run: Run, setting: str) -> bool:
    return len({repr(variant.settings.get(setting)) for variant in run.variants}) == 1


@contextmanager
def _rows(run_folder: Path, summary: Summary) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the requests of the trials that can be trusted as ``requests``."""
    trusted = [one for one in summary.trials if one.verdict != "invalid"]
    parquet = [str(trial_folder(run_folder, one.variant, one.load, one.trial) / "requests.parquet") for one in trusted]
    with duckdb.connect() as database:
        if parquet:
            database.read_parquet(parquet).create_view("requests")
        else:
            database.execute(f"CREATE TABLE requests ({COLUMNS})")
        yield database


def _lanes(
    database: duckdb.DuckDBPyConnection,
    run_folder: Path,
    run: Run,
    summary: Summary,
    of: tuple[int, int] | None = None,
) -> Iterator[tuple[lanes.Shown, Markup]]:
    """Yield the lanes of each load with their data for the script."""
    for shown in lanes.of_run(database, run_folder, run, summary, of):
        yield shown, _data(run, shown)


def _cite(run: Run) -> str:
    return f"Stampede, {run.experiment}, measured {run.began[:10]} on {run.measured_on}."


def _data(run: Run, shown: lanes.Shown) -> Markup:
    """Return the lanes of one load as JSON, for the script."""
    return as_json(
        {
            "load": shown.load,
            "trials": shown.trials,
            "colours": dict(shown.colours),
            "file": f"{run.experiment}-{shown.load}",
            "alt": shown.alt,
            "caption": f"{run.title}: which worker served each request, and which requests waited for it.",
            "cite": _cite(run),
        }
    )


def _pictures(database: duckdb.DuckDBPyConnection, run: Run, summary: Summary) -> Iterator[Picture]:
    """Yield the pictures of a run, without the pictures for which the run has no data."""
    asked = {(quantity.metric, quantity.load) for claim in run.claims for quantity in claim.quantities}

    def drawn(figure: alt.TopLevelMixin, metrics: set[str], load: str | None) -> Picture:
        telling = not asked or any(metric in metrics and (not load or of in (None, load)) for metric, of in asked)
        return Picture(Markup(figures.svg(figure)), tables(figure), telling)  # noqa: S704  # we draw these pictures

    if across := figures.across_loads(run, summary):
        yield drawn(across, {"throughput", "response_time"}, None)
    for load in run.loads:
        for figure, metrics in _of_load(database, run, summary, load.name):
            if figure:
                yield drawn(figure, metrics, load.name)


def _of_load(
    database: duckdb.DuckDBPyConnection, run: Run, summary: Summary, load: str
) -> Iterator[tuple[alt.TopLevelMixin | None, set[str]]]:
    """Yield the pictures of one load, and the metrics that each picture shows."""
    classes = figures.classes(database, load)
    of = run.load(load)
    times = {"overhead", "response_time"}
    yield figures.staircase(database, run, summary, load), {*times, "burst", "failures"}
    yield figures.waves(run, summary, load), {*times, "burst"}
    yield figures.failing_visits(run, summary, load), {"visits_failed", "capacity"}
    yield figures.visit_times(database, run, summary, load), {"visit"}
    yield figures.curve(run, summary, load), set(METRICS)
    yield figures.races(run, summary, load), {"accept_attempts", "accept_failures"}
    if not of.has_tabled_bursts:
        for request_class in classes:
            yield figures.overhead(database, run, summary, load, request_class), times
    if not of.burst:
        for request_class in classes[:1]:
            yield figures.share_and_tail(run, summary, load, request_class), {"requests_by_worker"}
    if run.has_several_workers(load):
        yield figures.workers(run, summary, load), {"requests_by_worker", "burst"}
    if not of.burst:
        yield figures.by_age(run, summary, load), {"requests_by_worker"}
    yield figures.connections(database, run, load), {"connections_by_worker", "requests_by_connection"}
