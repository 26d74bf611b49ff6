"""The tables that say where theory is right."""

from collections.abc import Sequence

from analysis.predict.validation import Compared
from analysis.report.tables import Table
from analysis.report.wording import number


def validation_tables(compared: Sequence[Compared]) -> list[Table]:
    """Return how many figures are inside their intervals, by policy and by experiment, and each figure that is not."""
    grids = [_counts(compared, "policy", [one.policy for one in compared])]
    grids.append(_counts(compared, "experiment", [one.experiment for one in compared]))
    statistics = [f"{one.row.metric} {one.row.stat}" for one in compared]
    grids.append(_counts(compared, "statistic", statistics))
    outside = [one for one in compared if not one.is_inside]
    lines: list[tuple[str, ...]] = [
        (
            one.experiment,
            " ".join(filter(None, (one.row.variant, one.row.load, one.row.request_class))),
            f"{one.row.metric} {one.row.stat}",
            number(one.row.measured),
            number(one.row.predicted),
            f"{number(one.row.predicted_low)} to {number(one.row.predicted_high)}",
        )
        for one in outside
    ]
    if lines:
        head = ("experiment", "variant, load, class", "statistic", "measured", "predicted", "interval")
        grids.append(Table("Figures outside", head, lines, words=3))
    return grids


def _counts(compared: Sequence[Compared], of: str, names: Sequence[str]) -> Table:
    """Return a table of how many figures of each name are inside, and of all together."""
    lines = [_line(name, [one for one, its in zip(compared, names, strict=True) if its == name])
             for name in sorted(set(names))]  # fmt: skip
    if of == "experiment":
        lines.append(_line("all", compared))
    return Table(f"Figures inside the predicted interval, by {of}", (of, "figures", "inside", "share"), lines)


def _line(name: str, compared: Sequence[Compared]) -> tuple[str, ...]:
    inside = sum(one.is_inside for one in compared)
    return name, str(len(compared)), str(inside), f"{inside / len(compared):.0%}"
