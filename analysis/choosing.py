"""The widgets of the notebook: they choose runs, variants, a class of request and a time; the answers follow."""

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as widgets
from IPython.display import HTML, SVG, display
from rich.table import Table

from analysis import collection
from analysis.collection import Chosen, Rows
from analysis.folder import BadRun, read_run
from analysis.metrics import STATISTICS as OF_METRICS
from analysis.metrics import MetricName, Statistic
from analysis.reproduction import read_summary
from analysis.show import figures
from analysis.show.report import lanes_alone
from analysis.show.words import words

ALL = "all classes"


def _told(metric: MetricName, stat: Statistic) -> str:
    return f"{words(metric)}, {stat}"


STATISTICS = {_told(metric, stat): (metric, stat) for metric, stats in OF_METRICS.items() for stat in stats}
"""Every statistic of every metric, by its name in words."""


class Choice:
    """What is chosen. ``box`` shows the widgets, and ``ask`` an answer that changes with them."""

    def __init__(self, results: Path, experiment: str = "") -> None:
        """Offer the experiments of a folder of results. Raise BadRun if there is no run with a summary."""
        names = collection.experiments(results)
        if not names:
            raise BadRun(f"{results} has no run with a summary; measure one: make experiment NAME=heavy-mix")
        self._results = results
        wide = widgets.Layout(width="36rem")
        self.experiment = widgets.Dropdown(
            options=names, value=experiment if experiment in names else names[0], description="experiment"
        )
        self.runs = widgets.SelectMultiple(description="runs", rows=4, layout=wide)
        self.variants = widgets.SelectMultiple(description="variants", rows=6, layout=wide)
        self.request = widgets.Dropdown(description="class")
        self.time = widgets.FloatRangeSlider(min=0, max=1, description="seconds", layout=wide)
        self.box = widgets.VBox([self.experiment, self.runs, self.variants, self.request, self.time])
        self.experiment.observe(self._offer_runs, "value")
        self.runs.observe(self._offer_requests, "value")
        self._offer_runs()

    @property
    def chosen(self) -> Chosen:
        """What is chosen now."""
        paths = {path.name: path for path in collection.find_runs(self._results, self.experiment.value)}
        from_s, to_s = self.time.value
        return Chosen(
            runs=[paths[name] for name in self.runs.value],
            variants=list(self.variants.value),
            request=None if self.request.value == ALL else self.request.value,
            from_s=from_s,
            to_s=to_s,
        )

    def ask(self, answer: Callable[..., Any], **further: widgets.Widget) -> widgets.VBox:
        """Return the widgets ``further`` above what ``answer`` returns for what is chosen and for their values."""
        shown = widgets.Output()

        def again(_: object = None) -> None:
            shown.clear_output(wait=True)
            with shown:
                chosen = self.chosen
                if not chosen.runs or not chosen.variants:
                    display(HTML("Choose a run and a variant above."))
                else:
                    display(answer(chosen, **{name: widget.value for name, widget in further.items()}))

        for widget in (self.runs, self.variants, self.request, self.time, *further.values()):
            widget.observe(again, "value")
        again()
        return widgets.VBox([*further.values(), shown])

    def _offer_runs(self, _: object = None) -> None:
        names = [path.name for path in collection.find_runs(self._results, self.experiment.value)]
        self.runs.options = names
        self.runs.value = names

    def _offer_requests(self, _: object = None) -> None:
        runs = self.chosen.runs if self.runs.value else []
        variants, requests, lasted_s = collection.what_there_is(runs)
        self.variants.options = variants
        self.variants.value = variants
        self.request.options = [*requests, ALL]
        self.time.max = lasted_s
        self.time.value = (0, lasted_s)


def which_runs(chosen: Chosen) -> Table:
    """Answer which runs are chosen, and whether they can be trusted."""
    return _table(collection.describe(chosen.runs))


def verdicts(chosen: Chosen) -> Table | HTML:
    """Answer which claims hold in which run."""
    rows = collection.verdicts(chosen.runs)
    return _table(rows) if rows else HTML("This experiment makes no claims.")


def run_by_run(chosen: Chosen, what: tuple[MetricName, Statistic]) -> SVG | HTML:
    """Answer how much a statistic differs from run to run."""
    rows = [row for row in collection.measured(chosen.runs, *what, chosen.request) if row["variant"] in chosen.variants]
    if not rows:
        return HTML(f"No run has {_told(*what)} for {escape(chosen.request or ALL)}.")
    return SVG(figures.svg(figures.across_runs(rows, f"{_told(*what)}, run by run")))


def distribution(chosen: Chosen, percentile: float) -> SVG | HTML:
    """Answer how response times are distributed."""
    rows = collection.quantiles(chosen)
    if not rows:
        return _NOTHING
    title = f"How long {chosen.request or 'all'} requests took"
    return SVG(figures.svg(figures.distribution(rows, percentile, title)))


def waits(chosen: Chosen) -> SVG | HTML:
    """Answer when requests waited."""
    rows, left_out = collection.waits(chosen)
    if not rows:
        return _NOTHING
    return SVG(figures.svg(figures.waits(rows, left_out, f"When {chosen.request or 'all'} requests waited")))


def lanes(chosen: Chosen) -> HTML:
    """Answer which worker served which request: the lanes of the latest of the chosen runs."""
    folder = chosen.runs[-1]
    page = lanes_alone(folder, read_summary(folder))
    title = f"{read_run(folder).title}, {folder.name}"
    look = "width: 100%; height: 60rem; border: 0"
    frame = f'<iframe title="{escape(title)}" srcdoc="{escape(page)}" style="{look}"></iframe>'
    return HTML(f"<div>{frame}</div>")


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
