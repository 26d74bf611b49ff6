"""From what was measured in a run's trials to its summary: estimates, then verdicts."""

from typing import Any

from stampede.evaluate.metrics.asked import claims_of
from stampede.evaluate.statistics.estimates import Measured, estimate_all, too_few
from stampede.evaluate.verdict.article import circumstances, judge_article
from stampede.evaluate.verdict.claims import claim_row, published_rows
from stampede.evaluate.verdict.validity import judge_run
from stampede.records.predicted import NOTHING, PredictedRun
from stampede.records.run import Run
from stampede.records.summary import Summary


def conclude(run: Run, measured: Measured, predictions: PredictedRun = NOTHING, **counted: Any) -> Summary:  # noqa: ANN401
    """Return the summary of a run; ``counted`` are its rows that are counts, and not estimates."""
    results = estimate_all(run, measured, predictions)
    apart, claims = circumstances(results.rows), [claim_row(claim, results) for claim in claims_of(run)]
    published = list(published_rows(results, apart))
    return Summary(
        experiment=run.experiment,
        round_s=measured.round_s,
        validity=judge_run(run, measured.trials, [*measured.doubts, *too_few(results)]),
        trials=[*measured.trials],
        rows=results.rows,
        completion_times=[*results.staircases],
        claims=claims,
        published=published,
        article=judge_article(run, claims, published, apart.floors),
        not_predicted=predictions.not_predicted,
        **counted,
    )
