"""The tables that say where theory is right."""

from collections.abc import Sequence

from stampede.predict.validation import Compared
from stampede.report.tables import Table
from stampede.report.wording import number


def validation_tables(compared: Sequence[Compared]) -> list[Table]:
    """Return how many figures are inside their intervals, by policy and by experiment, and each figure that is not."""
    grids = [_counts(compared, "policy", [figure.policy for figure in compared])]
    grids.append(_counts(compared, "experiment", [figure.experiment for figure in compared]))
    statistics = [f"{figure.row.metric} {figure.row.stat}" for figure in compared]
    grids.append(_counts(compared, "statistic", statistics))
    outside = [figure for figure in compared if not figure.is_inside]
    lines: list[tuple[str, ...]] = [
        (
            figure.experiment,
            " ".join(filter(None, (figure.row.variant, figure.row.load, figure.row.request_class))),
            f"{figure.row.metric} {figure.row.stat}",
            number(figure.row.measured),
            number(figure.row.predicted),
            f"{number(figure.row.predicted_low)} to {number(figure.row.predicted_high)}",
        )
        for figure in outside
    ]
    if lines:
        head = ("experiment", "variant, load, class", "statistic", "measured", "predicted", "interval")
        grids.append(Table("Figures outside", head, lines, words=3))
    return grids


def _counts(compared: Sequence[Compared], of: str, names: Sequence[str]) -> Table:
    """Return a table of how many figures of each name are inside, and of all together."""
    lines = [_line(name, [figure for figure, its in zip(compared, names, strict=True) if its == name])
             for name in sorted(set(names))]  # fmt: skip
    if of == "experiment":
        lines.append(_line("all", compared))
    return Table(f"Figures inside the predicted interval, by {of}", (of, "figures", "inside", "share"), lines)


def _line(name: str, compared: Sequence[Compared]) -> tuple[str, ...]:
    inside = sum(figure.is_inside for figure in compared)
    return name, str(len(compared)), str(inside), f"{inside / len(compared):.0%}"
