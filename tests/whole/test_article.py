"""An article is judged as a whole: the order of its variants, its conclusion, its figures, and the floor."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from stampede.evaluate.metrics import unit
from stampede.evaluate.verdict.article import circumstances, judge_article
from stampede.evaluate.verdict.claims import edges_of
from stampede.pipeline import derive_summary
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.folder import read_run, read_summary
from stampede.records.run import Run, SourceRecord, VariantRecord
from stampede.records.summary import Article, ClaimRow, ClaimVerdict, Estimate, PublishedFigure, PublishedRow, Summary
from stampede.report.article import article_sentence, article_tables
from stampede.report.figures.drawing import svg
from stampede.report.figures.published import published_chart
from tests.synthetic import Request, make_run, run_record
from tests.wrong import listed

Both = tuple[float, float | None]
"""A figure as published and as measured."""


def published_row(variant: str, figures: dict[str, Both], spread: float = 0.01, **changed: Any) -> PublishedRow:
    """Return a published row whose intervals reach ``spread`` of the measured figure to each side."""
    told: dict[str, Any] = {"unit": "ms", "ratio": None, "trials": changed.pop("trials", 5), "verdict": "undecided"}
    found = []
    for stat, (published, measured) in figures.items():
        low, high = (None if measured is None else measured * factor for factor in (1 - spread, 1 + spread))
        found.append(PublishedFigure(stat=stat, published=published, measured=measured, low=low, high=high, **told))
    about: dict[str, Any] = {"load": "mix", "request_class": "light", "metric": "overhead", "within": 0.25}
    return PublishedRow(variant=variant, figures=found, verdict="undecided", reason=None, **(about | changed))


def rows_of(
    variant: str, request_class: str = "light", *, share: float = 0.0, **stats: tuple[float | None, float | None]
) -> list[Estimate]:
    """Return rows of the overhead of a variant, each as published and as measured, and its share of avoidable waits."""
    return [
        row(variant, request_class, "avoidable_wait", "share", None, share),
        *(row(variant, request_class, "overhead", stat, *both) for stat, both in stats.items()),
    ]


def row(
    variant: str, request_class: str, metric: str, stat: str, published: float | None, measured: float | None
) -> Estimate:
    """Return a row that was measured in five trials which are all the same."""
    return Estimate(
        variant=variant, load="mix", request_class=request_class, metric=metric, stat=stat, unit=unit(metric, stat),
        published=published, predicted=None, measured=measured, low=measured, high=measured, n=100, trials=5,
        values={} if measured is None else dict.fromkeys(range(1, 6), measured),
    )  # fmt: skip


def verdict_on(published: Sequence[PublishedRow], claims: Sequence[tuple[Claim, ClaimVerdict]] = ()) -> Article:
    """Return the verdict on an article with these published rows, and claims with these verdicts."""
    run = run_record(["one"], claims=[claim for claim, _ in claims])
    rows = [
        ClaimRow(says="so", stat="p50", verdict=verdict, measured=1, low=1, high=1, bound="", unit="ms", reason=None)
        for _, verdict in claims
    ]
    article = judge_article(run, rows, published, [])
    assert article is not None
    return article


def p50(published: float, measured: float | None) -> dict[str, Both]:
    """Return a median, as published and as measured."""
    return {"p50": (published, measured)}


def test_the_order_is_that_of_the_pairs_that_can_be_told_apart() -> None:
    """Three variants have three pairs for each statistic, however far the figures themselves are off.

    Figures are only compared with the same figures of other variants.
    """

    def two(first: Both, second: Both, **changed: Any) -> list[PublishedRow]:
        return [published_row(name, p50(*both), **changed) for name, both in (("one", first), ("other", second))]

    others: list[dict[str, Any]] = [{"request_class": "heavy"}, {"load": "rush"}, {"metric": "response_time"}]
    orders = {
        "three variants": [
            published_row("slow", {"p50": (300, 30), "p90": (3000, 900)}),
            published_row("middle", {"p50": (30, 3), "p90": (300, 90)}),
            published_row("quick", {"p50": (3, 1), "p90": (30, 9)}),
        ],
        "another order": [
            published_row("slow", {"p50": (300, 10), "p90": (3000, 900)}),
            published_row("quick", {"p50": (3, 20), "p90": (30, 9)}),
        ],
        "a tie in the article": two((100, 10), (124, 50)),
        "a tie here": two((100, 10), (300, 12)),
        "intervals that overlap": two((100, 10), (300, 50), spread=0.8),
        "one trial": two((100, 10), (300, 50), trials=1),
        "not measured": two((100, 10), (300, None)),
        "both zero": two((0, 10), (0, 50)),
        "other figures": [
            published_row("one", p50(100, 10)), *(published_row("other", p50(300, 5), **other) for other in others),
            published_row("other", {"p90": (300, 5)}), published_row("one", p50(100, 10)),
        ],
    }  # fmt: skip

    def told(rows: Sequence[PublishedRow]) -> str:
        order = verdict_on(rows).order
        turned = (f"{each.larger} above {each.smaller}: {each.load}, {each.request_class}, {each.metric} {each.stat}"
                  for each in order.reversals)  # fmt: skip
        return f"{order.verdict}, {order.agree} of {order.pairs}{''.join(f'; published {each}' for each in turned)}"

    assert {name: told(rows) for name, rows in orders.items()} == {
        "three variants": "same, 6 of 6",
        "another order": "partly the same, 1 of 2; published slow above quick: mix, light, overhead p50",
        **dict.fromkeys(list(orders)[2:], "undecided, 0 of 0"),
    }


def claim(variant: str, relative_to: str | None = None) -> Claim:
    """Return a claim about a variant, or about two."""
    quantity = Quantity(variant=variant, request_class="light", metric="overhead", stat="p50")
    other = quantity.model_copy(update={"variant": relative_to}) if relative_to else None
    return Claim(says="so", value=quantity, relative_to=other, at_most=1)


@pytest.mark.parametrize(
    ("verdicts", "verdict", "counts"),
    [
        (["reproduced", "reproduced"], "same", (2, 0, 0)),
        (["reproduced", "undecided"], "same", (1, 0, 1)),
        (["reproduced", "not reproduced"], "partly the same", (1, 1, 0)),
        (["not reproduced", "invalid"], "different", (0, 1, 1)),
        (["undecided", "undecided"], "undecided", (0, 0, 2)),
    ],
)
def test_the_conclusion_is_what_the_claims_about_published_variants_say(
    verdicts: list[ClaimVerdict], verdict: str, counts: tuple[int, int, int]
) -> None:
    """A claim about a variant of our own, or that compares with it, is not the article's conclusion."""
    published = [published_row(name, p50(1, 1)) for name in ("one", "other")]
    ours: list[tuple[Claim, ClaimVerdict]] = [(claim("ours"), "reproduced"), (claim("one", "ours"), "not reproduced")]
    theirs = [*zip([claim("one"), claim("one", "other")], verdicts, strict=True)]

    conclusion = verdict_on(published, [*ours, *theirs]).conclusion

    assert conclusion is not None
    assert (conclusion.verdict, conclusion.claims) == (verdict, 2)
    assert (conclusion.hold, conclusion.fail, conclusion.undecided) == counts
    assert verdict_on(published, ours).conclusion is None


def test_the_floor_is_what_a_request_costs_more_where_nobody_waits() -> None:
    """In two variants nobody waits: the p50 differs by 5 and 7 ms, the p90 by 7 and 9.

    In the others, requests wait here, in the article, or avoidably. Counts and shares have no floor, and
    a class without such a variant has that of the other classes.
    """
    apart = circumstances([
        *rows_of("quick", min=(1, 1), p50=(7, 2), p90=(10, 3)),
        *rows_of("also-quick", min=(1, 1), p50=(9, 2), p90=(12, 3), share=0.01),
        *rows_of("waits-here", min=(1, 1), p50=(30, 2), p90=(33, 600)),
        *rows_of("waits-there", min=(1, 1), p50=(300, 2), p90=(3000, 3)),
        *rows_of("waits-avoidably", min=(1, 1), p50=(40, 2), p90=(43, 3), share=0.05),
        *rows_of("not-published", min=(None, 1), p50=(None, 2), p90=(None, 3)),
        row("quick", "light", "failures", "share", 0.5, 0.1),
        *rows_of("slow", "heavy", min=(5, 1), p50=(900, 20), p90=(2000, 700), share=0.4),
    ])  # fmt: skip

    floor = {"load": "mix", "metric": "overhead", "ms": 6, "p90_ms": 8, "variants": ["quick", "also-quick"]}
    assert [found.model_dump() for found in apart.floors] == [
        floor | {"request_class": "light"}, floor | {"request_class": "heavy"},
    ]  # fmt: skip


@pytest.mark.parametrize("missing", ["avoidable_wait", "overhead min", "overhead p90", "published p90"])
def test_without_knowing_that_nobody_waits_there_is_no_floor(missing: str) -> None:
    rows = rows_of("quick", min=(1, 1), p50=(7, 2), p90=(None if missing == "published p90" else 10, 3))

    left = [each for each in rows if missing not in (each.metric, f"{each.metric} {each.stat}")]

    assert circumstances(left).floors == []


def test_the_floor_moves_every_time_but_not_how_far_times_spread() -> None:
    apart = circumstances(rows_of("quick", min=(1, 1), p50=(7, 2), p90=(10, 3)))

    def floor_ms(stat: str, request_class: str = "light") -> float:
        return apart.floor_ms(
            Quantity(variant="slow", load="mix", request_class=request_class, metric="overhead", stat=stat)
        )

    assert [floor_ms(stat) for stat in ("min", "p50", "p60", "p99", "avg", "max", "stdev")] == [5, 5, 7, 7, 7, 7, 0]
    assert floor_ms("p99", "heavy") == 0


def test_the_tolerance_reaches_further_by_the_floor() -> None:
    """Theirs cost more: our figure may be lower by the floor. Ours cost more: our figure may be higher by it."""
    assert edges_of(100, 0.25) == (80, 125)
    assert edges_of(100, 0.25, 30) == (50, 125)
    assert edges_of(100, 0.25, -30) == (80, 155)


def make_two_variants(folder: Path, **changed: Any) -> Path:
    """Write a run of five trials of two variants, and return its folder.

    In ``quick``, nobody waits, and requests lose 1 to 2 ms; in ``slow``, half of the requests lose 2 ms, and the others
    700 ms.
    """
    quick = [Request(overhead_ms=1 + n / 100, sent_s=n) for n in range(100)]
    slow = [Request(overhead_ms=2 if n % 2 else 700, sent_s=n) for n in range(100)]
    published = [
        Published(variant="quick", request_class="light", metric="overhead",
                  stats={"p50": 7.5, "p90": 8, "p99.9": 9, "stdev": 4}),
        Published(variant="slow", request_class="light", metric="overhead", stats={"min": 5, "p25": 292, "p90": 690}),
    ]  # fmt: skip
    values: dict[str, Any] = {
        "published": published, "times": 5, "source": SourceRecord(title="An article", publisher="A blog", year=2020),
        "variants": [VariantRecord(name=name, workers=1, settings={"workers": 1}) for name in ("quick", "slow")],
    }  # fmt: skip
    return make_run(folder, {"quick": quick, "slow": slow}, **(values | changed))


def two_variants(folder: Path, **changed: Any) -> Summary:
    """Return the summary of such a run, with a claim."""
    claims = [claim("slow", "quick").model_copy(update={"at_most": None, "at_least": 1.2})]
    return derive_summary(make_two_variants(folder, **({"claims": claims} | changed)))


@pytest.fixture(scope="module")
def folder_of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run of two variants."""
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two(folder_of_two: Path) -> tuple[Run, Summary]:
    """The run of two variants and its summary."""
    summary = two_variants(folder_of_two)
    return read_run(folder_of_two), summary


def test_a_floor_is_told_apart_from_a_contradiction_and_from_a_short_run(two: tuple[Run, Summary]) -> None:
    """Their p50 of 7.5 ms is our 1.5 with the floor of 6 ms; their p25 of 292 ms is not our 2."""
    _, summary = two

    verdicts = {(row.variant, each.stat): each.verdict for row in summary.published for each in row.figures}
    assert verdicts == {
        ("quick", "p50"): "differs by the floor", ("quick", "p90"): "differs by the floor",
        ("quick", "p99.9"): "not measured in a short run", ("quick", "stdev"): "contradicted",
        ("slow", "min"): "differs by the floor", ("slow", "p25"): "contradicted", ("slow", "p90"): "reproduced",
    }  # fmt: skip
    assert [row.verdict for row in summary.published] == ["contradicted", "contradicted"]
    assert summary.article is not None
    [floor] = summary.article.floors
    assert floor.ms == pytest.approx(6.005)
    assert floor.variants == ["quick"]
    counts = summary.article.figures
    assert (counts.within, counts.floor, counts.contradicted, counts.short) == (1, 3, 2, 1)
    assert (counts.undecided, counts.invalid, counts.count) == (0, 0, 7)


@pytest.mark.parametrize(
    ("requests", "request_class", "stat"),
    [([Request(error="status 502" if n < 5 else None, sent_s=n) for n in range(100)], "light", "p99"),
     ([Request()] * 10, "heavy", "p50")], ids=["requests failed", "nobody answered"],
)  # fmt: skip
def test_a_percentile_that_is_missing_for_another_reason_is_not_for_want_of_a_longer_run(
    tmp_path: Path, requests: list[Request], request_class: str, stat: str
) -> None:
    published = [Published(variant="one", request_class=request_class, metric="overhead", stats={stat: 5})]

    summary = derive_summary(make_run(tmp_path, {"one": requests}, published=published, times=5))

    assert [each.verdict for row in summary.published for each in row.figures] == ["undecided"]


def test_a_run_without_published_figures_has_no_verdict_on_an_article(tmp_path: Path) -> None:
    summary = two_variants(tmp_path, published=[])

    assert "article" not in json.loads((tmp_path / "summary.json").read_text())
    assert article_sentence(read_run(tmp_path), summary) is None


def test_the_verdict_on_an_article_is_kept_and_fits_two_lines(two: tuple[Run, Summary], folder_of_two: Path) -> None:
    assert read_summary(folder_of_two).article == two[1].article
    assert article_sentence(*two) == snapshot(
        "A blog, 2020: same order of variants, same conclusion; "
        "1 of 7 figures within 25 %, 3 but for the floor of 6.0 ms, 2 contradicted, 1 not measured."
    )


@pytest.mark.parametrize(
    ("floors_ms", "said"), [((-3.0, -3.0), "-3.0 ms"), ((4.0, 6.2), "4.0 to 6.2 ms"), ((1.0, -2.0), "-2.0 to 1.0 ms")]
)
def test_the_floor_is_said(two: tuple[Run, Summary], floors_ms: tuple[float, ...], said: str) -> None:
    run, summary = two
    assert summary.article is not None
    [floor] = summary.article.floors
    article = summary.article.model_copy(update={"floors": [floor.model_copy(update={"ms": ms}) for ms in floors_ms]})

    assert f"the floor of {said}" in (article_sentence(run, summary.model_copy(update={"article": article})) or "")


def test_one_trial_says_nothing_about_an_article(tmp_path: Path) -> None:
    summary = two_variants(tmp_path, times=1)
    run = read_run(tmp_path)

    assert [article_sentence(run, summary), picture(summary, run)["title"]["text"]] == snapshot(
        [
            "A blog, 2020: one trial decides nothing about the order of the variants, the conclusion or the 7 figures.",
            "One trial does not say which of 7 figures agree with the article",
        ]
    )


@pytest.mark.parametrize("publisher", ["A blog", "The engineering blog of a company with a very long name, volume two"])
def test_the_sentence_shortens_the_name_and_never_leaves_out_a_count(two: tuple[Run, Summary], publisher: str) -> None:
    source = SourceRecord(title="An article", publisher=publisher, year=2020)
    run, summary = two[0].model_copy(update={"source": source}), two[1]
    assert summary.article is not None
    article = summary.article.model_copy(update={
        "order": summary.article.order.model_copy(update={"verdict": "partly the same", "agree": 1234, "pairs": 2345}),
        "conclusion": summary.article.conclusion.model_copy(update={"undecided": 123, "claims": 134})
        if summary.article.conclusion else None,
    })  # fmt: skip

    sentence = article_sentence(run, summary.model_copy(update={"article": article}))

    assert sentence is not None
    assert len(sentence.partition(":")[0]) <= 46
    assert sentence.endswith(
        "1 of 7 figures within 25 %, 3 but for the floor of 6.0 ms, 2 contradicted, 1 not measured."
    )


def test_the_three_questions_have_an_answer_each(two: tuple[Run, Summary]) -> None:
    [table] = article_tables(*two)

    assert listed([table.title, *map(": ".join, table.rows), table.note]) == snapshot("""\
A blog, 2020, compared with this run
Is the order of the variants the same?: yes, in 1 of 1 pair of figures that can be told apart
Is the conclusion the same?: yes: 1 reproduced, of 1 claim about these variants
Are the figures within 25 %?: 1 of 7 figures within 25 %, 3 but for the floor of 6.0 ms, 2 contradicted, 1 not
    measured
floor: in the article, the p50 overhead under mix is 6.0 ms higher even where nobody waits (quick)
""")


def picture(summary: Summary, run: Run) -> dict[str, Any]:
    """Return what the picture of the published figures is drawn from."""
    chart = published_chart(run, summary)
    assert chart is not None
    assert svg(chart).startswith("<svg")
    values: dict[str, Any] = chart.to_dict()
    return values


def marks_of(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the marks of a picture that have a shape."""
    [layer] = [layer for layer in whole["layer"] if "shape" in layer["encoding"]]
    data = layer.get("data") or whole["data"]
    marks: list[dict[str, Any]] = data.get("values") or whole["datasets"][data["name"]]
    return marks


def test_the_picture_has_a_row_for_each_variant_and_a_mark_for_each_measured_figure(
    two: tuple[Run, Summary], tmp_path: Path
) -> None:
    """A percentile that was not measured is not drawn; the evenness of counts is drawn beside times."""
    run, summary = two
    counts = Published(variant="slow", request_class="light", metric="requests_by_worker", counts=[2, 1])
    with_counts = two_variants(tmp_path, published=[*run.published, counts])

    marks = marks_of(picture(with_counts, read_run(tmp_path)))

    found = {name: [mark["verdict"] for mark in marks if mark["row"] == name] for name in ("quick", "slow")}
    assert found["quick"] == ["differs by the floor", "differs by the floor", "contradicted"]
    assert found["slow"][:3] == ["differs by the floor", "contradicted", "reproduced"]
    assert len(found["slow"]) > 3
    [p25] = [mark for mark in marks if mark["row"] == "slow" and mark["verdict"] == "contradicted"][:1]
    assert (p25["ratio"], p25["within"]) == pytest.approx((max(2 / 292, 0.01), 0.25))
    title = picture(summary, run)["title"]
    assert title["text"] == (
        "1 of 7 figures within 25 %, 3 but for the floor of 6.0 ms, 2 contradicted, 1 not measured"
    )


def test_a_ratio_beyond_the_axis_is_drawn_at_its_end_and_nothing_where_nothing_was_measured(tmp_path: Path) -> None:
    """No request failed, although half should have; there were far more answers than published."""
    far = [
        Published(variant="slow", request_class="light", metric="failures", stats={"share": 0.5}),
        Published(variant="slow", request_class="light", metric="throughput", stats={"per_second": 0.001}),
    ]
    absent = Published(variant="slow", request_class="light", metric="overhead", stats={"p99.9": 30})
    drawn, nothing = (two_variants(tmp_path / str(len(of)), published=of) for of in (far, [absent]))

    assert [mark["ratio"] for mark in marks_of(picture(drawn, read_run(tmp_path / "2")))] == [0.01, 100]
    assert published_chart(read_run(tmp_path / "1"), nothing) is None
