"""The widgets of the notebook: they choose runs, a load, variants, a class and a time; the answers follow."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as widgets
from IPython.display import HTML, SVG, display
from rich.table import Table

from analysis.metrics import STATISTICS as OF_METRICS
from analysis.metrics import MetricName, Statistic
from analysis.records.folder import BadRun, read_run, read_summary
from analysis.report import figures
from analysis.report.html import lanes_alone
from analysis.report.words import words
from lab.apps.notebook import figures as exploring
from lab.apps.notebook import queries
from lab.apps.notebook.queries import Chosen, Rows

ALL = "all classes"


def _told(metric: MetricName, stat: Statistic) -> str:
    return f"{words(metric)}, {stat}"


STATISTICS = {_told(metric, stat): (metric, stat) for metric, stats in OF_METRICS.items() for stat in stats}
"""Every statistic of every metric, by its name in words."""


class Choice:
    """What is chosen. ``box`` shows the widgets, and ``ask`` an answer that changes with them."""

    def __init__(self, results: Path, experiment: str = "") -> None:
        """Offer the experiments of a folder of results. Raise BadRun if there is no run with a summary."""
        names = queries.experiments(results)
        if not names:
            raise BadRun(f"{results} has no run with a summary; measure one: make experiment NAME=heavy-mix")
        self._results = results
        self._answers: list[Callable[[], None]] = []
        self._offering = False
        wide = widgets.Layout(width="36rem")
        self.experiment = widgets.Dropdown(
            options=names, value=experiment if experiment in names else names[0], description="experiment"
        )
        self.runs = widgets.SelectMultiple(description="runs", rows=4, layout=wide)
        self.load = widgets.Dropdown(description="load")
        self.variants = widgets.SelectMultiple(description="variants", rows=6, layout=wide)
        self.request = widgets.Dropdown(description="class")
        self.time = widgets.FloatRangeSlider(min=0, max=1, description="seconds", layout=wide, continuous_update=False)
        choosers = [self.experiment, self.runs, self.load, self.variants, self.request, self.time]
        self.box = widgets.VBox(choosers)
        for chooser, then in zip(
            choosers, [self._offer_runs, self._offer_loads, self._offer_requests, None, None, None], strict=True
        ):
            chooser.observe(lambda _, then=then: self._changed(then), "value")
        self._changed(self._offer_runs)

    @property
    def chosen(self) -> Chosen:
        """What is chosen now."""
        paths = {path.name: path for path in queries.find_runs(self._results, self.experiment.value)}
        from_s, to_s = self.time.value
        return Chosen(
            runs=[paths[name] for name in self.runs.value],
            load=self.load.value or "",
            variants=list(self.variants.value),
            request=None if self.request.value == ALL else self.request.value,
            from_s=from_s,
            to_s=to_s,
        )

    def ask(self, answer: Callable[..., Any], **further: widgets.Widget) -> widgets.VBox:
        """Return the widgets ``further`` above what ``answer`` returns for what is chosen and for their values.

        A run that cannot be read is named instead of the answer.
        """
        shown = widgets.Output()
        last: list[object] = []

        def again(_: object = None) -> None:
            chosen = self.chosen
            asked = [chosen.runs if answer in _OF_RUNS else chosen, *(widget.value for widget in further.values())]
            if last == asked:
                return
            last[:] = asked
            shown.clear_output(wait=True)
            with shown:
                display(_answered(answer, chosen, {name: widget.value for name, widget in further.items()}))

        self._answers.append(again)
        for widget in further.values():
            widget.observe(again, "value")
        again()
        return widgets.VBox([*further.values(), shown])

    def _changed(self, then: Callable[[], None] | None) -> None:
        """Offer what follows from a choice, and answer again, once."""
        if self._offering:
            return
        with self._offers():
            if then:
                then()
        for again in self._answers:
            again()

    @contextmanager
    def _offers(self) -> Iterator[None]:
        self._offering = True
        try:
            yield
        finally:
            self._offering = False

    def _offer_runs(self) -> None:
        names = [path.name for path in queries.find_runs(self._results, self.experiment.value)]
        self.runs.options = names
        self.runs.value = names
        self._offer_loads()

    def _offer_loads(self) -> None:
        _offer(self.load, queries.what_there_is(self.chosen.runs).loads)
        self._offer_requests()

    def _offer_requests(self) -> None:
        there = queries.what_there_is(self.chosen.runs, self.load.value)
        kept = [name for name in self.variants.value if name in there.variants]
        self.variants.options = there.variants
        self.variants.value = kept or there.variants
        _offer(self.request, [*there.requests, ALL])
        self.time.max = there.lasted_s
        self.time.value = (0, there.lasted_s)


def _offer(menu: widgets.Dropdown, names: list[str]) -> None:
    """Offer names, and keep what is chosen if it is among them."""
    kept = menu.value
    menu.options = names
    menu.value = kept if kept in names else next(iter(names), None)


def _answered(answer: Callable[..., Any], chosen: Chosen, further: dict[str, Any]) -> Any:  # noqa: ANN401
    if not chosen.runs or not chosen.variants:
        return HTML("Choose a run with requests, and a variant, above.")
    try:
        return answer(chosen, **further)
    except BadRun as error:
        again = f"To compute its results again: make report RUN={chosen.runs[-1]}"
        return HTML(escape(f"{error}. {again}"))


def which_runs(chosen: Chosen) -> Table:
    """Answer which runs are chosen, and whether they can be trusted."""
    return _table(queries.describe(chosen.runs))


def verdicts(chosen: Chosen) -> Table | HTML:
    """Answer which claims hold in which run."""
    rows = queries.verdicts(chosen.runs)
    return _table(rows) if rows else HTML("This experiment makes no claims.")


def run_by_run(chosen: Chosen, what: tuple[MetricName, Statistic]) -> SVG | HTML:
    """Answer how much a statistic differs from run to run."""
    rows = queries.measured(chosen, *what)
    if not rows:
        return HTML(f"No run has {_told(*what)} for {escape(chosen.request or ALL)}.")
    return SVG(figures.svg(exploring.across_runs(rows, f"{_told(*what)}, run by run")))


def distribution(chosen: Chosen, percentile: float) -> SVG | HTML:
    """Answer how response times are distributed."""
    rows = queries.quantiles(chosen)
    if not rows:
        return _NOTHING
    return SVG(figures.svg(exploring.distribution(rows, percentile, f"How long {_requests(chosen)} took")))


def waits(chosen: Chosen) -> SVG | HTML:
    """Answer when requests waited."""
    rows, left_out = queries.waits(chosen)
    if not rows:
        return _NOTHING
    return SVG(figures.svg(exploring.waits(rows, left_out, f"When {_requests(chosen)} waited")))


def _requests(chosen: Chosen) -> str:
    """Return what the chosen requests are called, without those that failed."""
    failed, of = queries.failed(chosen)
    named = f"{chosen.request} requests" if chosen.request else "requests"
    return f"{named} ({failed} of {of} failed, and are left out)" if failed else named


def lanes(chosen: Chosen) -> HTML:
    """Answer which worker served which request: the lanes of the latest of the chosen runs."""
    folder = chosen.runs[-1]
    summary = read_summary(folder)
    if all(trial.verdict == "invalid" for trial in summary.trials):
        return HTML(f"{folder.name} has no trial that can be trusted, so there is nothing to show.")
    title = f"{read_run(folder).title}, {folder.name}"
    look = "width: 100%; height: 60rem; border: 0"
    page = lanes_alone(folder, summary)
    frame = f'<iframe title="{escape(title)}" srcdoc="{escape(page)}" style="{look}"></iframe>'
    return HTML(f"<div>{frame}</div>")


_OF_RUNS = (which_runs, verdicts, lanes)
"""The answers that depend on nothing but the runs."""
_NOTHING = HTML("No such request was answered in this time.")


def _table(rows: Rows) -> Table:
    """Return rows as a table; their keys are the names of the columns."""
    table = Table(box=None, pad_edge=False)
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(str(row.get(name, "–")) for name in names))
    return table
