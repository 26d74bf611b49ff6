"""Numbers, names and verdicts as text: the same text on the terminal, in Markdown and in the report."""

import re
from collections import Counter
from collections.abc import Iterable

from stampede.evaluate.metrics import METRICS, WHOLE_UNITS
from stampede.evaluate.statistics.stopping import has_interval
from stampede.evaluate.verdict.validity import trial_name
from stampede.records.claims import Claim, Quantity
from stampede.records.run import Run
from stampede.records.summary import PublishedRow, Summary, suspect_trials
from stampede.records.words import plural


def trials_phrase(summary: Summary) -> str:
    """Return how many trials are in doubt, e.g. of 9 trials, 2 are suspect and counted all the same."""
    trials = plural(len(summary.trials), "trial")
    found: Counter[str] = Counter(trial.verdict for trial in summary.trials)
    if len(found) == 1:
        [verdict] = found
        return f"{f'all {trials} are' if len(summary.trials) > 1 else 'the only trial is'} {verdict}{_EFFECTS[verdict]}"
    told = [
        f"{found[verdict]} {'is' if found[verdict] == 1 else 'are'} {verdict}{effect}"
        for verdict, effect in _EFFECTS.items()
        if effect and found[verdict]
    ]
    return f"of {trials}, {', '.join(told)}" if told else "no trial was planned"


_EFFECTS = {"invalid": " and left out", "suspect": " and counted all the same", "valid": ""}
"""What the verdict on a trial means for its numbers."""


def doubts_of(run: Run, summary: Summary, most: int | None = None) -> list[str]:
    """Return the reasons to doubt a run, or at most so many; reasons that differ only in their numbers are one."""
    alike: dict[str, list[str]] = {}
    for trial in summary.trials:
        left_out = "" if trial.is_trusted else f"{trial.verdict}: "
        for doubt in trial.doubts:
            told = f"{trial_name(run, trial)}: {left_out}{doubt}"
            alike.setdefault(re.sub(r"[\d.]+", "", left_out + doubt), []).append(told)
    alike |= {doubt: [doubt] for doubt in summary.validity.of_run}
    kinds = sorted(alike.values(), key=len, reverse=True)
    shown = [f"in {len(kind)} trials, such as {kind[0]}" if len(kind) > 1 else kind[0] for kind in kinds[:most]]
    more = sum(map(len, kinds[len(shown) :]))
    return [*shown, *([f"{more} more, which the report lists"] if more else [])]


def verdict_phrase(verdict: str, suspect: bool) -> str:
    """Return a verdict, and after it whether it rests on a suspect trial."""
    return f"{verdict}, suspect" if suspect else verdict


def suspect_of(run: Run, summary: Summary, quantities: Iterable[Quantity | PublishedRow]) -> str:
    """Return how many of the trials that these quantities were measured in are suspect; empty: none is."""
    cells = {(quantity.variant, quantity.load or run.loads[0].name) for quantity in quantities}
    return suspect_trials(trial for trial in summary.trials if (trial.variant, trial.load) in cells)


def unit_suffix(of_unit: str) -> str:
    """Return a unit as it follows a number; empty for shares, ratios and indices."""
    return "" if of_unit in ("share", "ratio", "index") else f" {of_unit}"


def published_quantity(run: Run, row: PublishedRow) -> str:
    """Return in words which figures a published row has."""
    completion_times = ", in order of completion" if row.completion_times else ""
    by = f", published{divisor_suffix(row.divided_by)}" if row.divided_by != 1 else ""
    metric = metric_phrase(row.metric, row.request_class)
    return f"{row.variant}{load_suffix(run, row.load)}: {metric}{completion_times}{by}"


def divisor_suffix(by: float) -> str:
    """Return the divisor that follows the word ``published``, e.g. ÷ 222; empty if figures were not divided."""
    return "" if by == 1 else f" ÷ {by:g}"


def figures_phrase(row: PublishedRow) -> str:
    """Return how many figures of a published row were reproduced, and the other figures by their verdicts.

    They are told as measured / published, with the interval if undecided; a star marks a pooled percentile.
    """
    by_verdict: dict[str, list[str]] = {}
    for figure in row.figures:
        ratio = "" if figure.ratio is None else f" {_ratio_number(figure.ratio)}"
        known = has_interval([figure.measured or 0.0] * figure.trials, figure.low, figure.high)
        if ratio and figure.verdict == "undecided" and known and figure.interval:
            low, high = (_ratio_number(end / figure.published) for end in figure.interval)
            ratio += f" ({low} to {high})"
        by_verdict.setdefault(figure.verdict, []).append(f"{plain_name(figure.stat)}{'*' * figure.pooled}{ratio}")
    near = len(by_verdict.pop("reproduced", []))
    lead = f"{near} of {len(row.figures)} within {100 * row.within:g} %"
    return "; ".join([lead, *(f"{verdict}: {', '.join(figures)}" for verdict, figures in by_verdict.items())])


def _ratio_number(value: float) -> str:
    """Return a ratio with two decimals; from 10 on as ``number`` does, and below 0.1 with two significant digits."""
    return number(value) if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def claim_subject(claim: Claim) -> str:
    """Return in words what a claim measures: The p99 of the overhead of light requests in one."""

    def named(quantity: Quantity) -> str:
        stat = _STATISTICS.get(quantity.stat, plain_name(quantity.stat))
        phrase = metric_phrase(quantity.metric, quantity.request_class)
        thing = phrase if phrase.endswith(f" {stat}") else f"{stat} of the {phrase}"
        return f"the {thing} in {quantity.variant}" + (f" under {quantity.load}" if quantity.load else "")

    divided = f", divided by {named(claim.relative_to)}," if claim.relative_to else ""
    return capitalised(named(claim.value) + divided)


_STATISTICS = {
    "min": "smallest value",
    "avg": "mean",
    "max": "largest value",
    "count": "number",
    "jain_index": "Jain's index",
    "max_over_mean": "largest number, divided by the mean,",
    "of_ideal": "share of the ideal",
    "per_connection": "number for each connection",
    "per_request": "time for each request",
    "per_second": "rate",
}
"""Statistics whose names do not read well in a sentence."""


def capitalised(sentence: str) -> str:
    """Return a sentence with a capital letter at its begin."""
    return sentence[:1].upper() + sentence[1:]


def shortened(text: str, most: int) -> str:
    """Return a text of at most ``most`` characters, which ends with an ellipsis if it was longer."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def number(value: float | None) -> str:
    """Return a value with two decimals below 1, one below 100 and none from 100 on; an integer without decimals."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def percent(share: float | None) -> str:
    """Return a share in percent, with one decimal; a small share is not rounded to zero."""
    if share is None:
        return number(None)
    return f"{share:.1%}" if share == 0 or share >= 0.0005 else "< 0.1%"


def short_figure(of_unit: str, value: float) -> str:
    """Return a value without its unit; a share in percent, without a decimal that is 0."""
    return percent(value).replace(".0%", "%") if of_unit == "share" else number(whole_number(of_unit, value))


def plain_name(name: str) -> str:
    """Return the name of a metric or statistic with spaces."""
    return name.replace("_", " ")


def metric_phrase(metric: str, request_class: str | None) -> str:
    """Return the name of a metric, with the class of request unless the metric is of all requests."""
    declared = METRICS[metric]
    if declared.of_all and "{requests}" in declared.called:
        return plain_name(metric)
    return declared.called.format(metric=plain_name(metric), requests=request_class or "all")


def load_suffix(run: Run, load: str) -> str:
    """Return the end of a title that names the load; empty if the run has only one load."""
    return f", {load}" if len(run.loads) > 1 else ""


def whole_number(of_unit: str, value: float | None) -> float | None:
    """Return a count as an integer; the median of counts, or an average, may have decimals and then stays as it is."""
    return int(value) if of_unit in WHOLE_UNITS and value is not None and value.is_integer() else value
