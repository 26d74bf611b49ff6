"""How tables, reports and pictures show the spread of a value: intervals from three trials on, else the trials."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inline_snapshot import snapshot

from stampede.evaluate.statistics.estimates import TrialValues
from stampede.evaluate.statistics.intervals import Draw
from stampede.evaluate.statistics.stopping import has_interval
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.markdown import markdown
from tests.in_memory import conclude, page_of, printed, values_of
from tests.synthetic import run_record

P99 = Quantity(variant="one", request_class="light", metric="overhead", stat="p99")


def told(waits_ms: Mapping[str, Sequence[float]], **changed: Any) -> tuple[Run, Summary]:
    """Return a run in whose trials one request in fifty waits, by variant, and its results."""
    run = run_record([*waits_ms], max(map(len, waits_ms.values())), **changed)
    return run, conclude(run, {
        (name, "mix", "light"): [values_of(n, min=1, p50=1, p80=1, p90=1, p99=ms) for n, ms in enumerate(of, start=1)]
        or [TrialValues(1, 0, {("failures", "share"): Draw(1.0)})]
        for name, of in waits_ms.items()
    })  # fmt: skip


def test_a_table_of_80_columns_has_intervals_or_trials_and_equal_numbers_once() -> None:
    """One trial has its value, two have theirs, and three that differ a thousandfold have no interval that tells.

    Published figures stand above. What has no figure has no row and no column; a long name breaks before a number does.
    """
    waits_ms = {"one": [142], "two": [142, 3219], "three": [142, 150, 160], "far": [4, 90, 9000], "nothing": [],
                "a-variant-of-thirty-characters": [11000, 31000, 21000, 91000, 15000]}  # fmt: skip
    stats = dict.fromkeys(("p50", "p75", "p80", "p95", "max"), 20000.0)
    published = [Published(variant="two", request_class="light", metric="overhead", stats=stats)]

    text = printed(*told(waits_ms, published=published))

    table = text[text.index("Overhead of requests") : text.index("measured: the median")]
    assert "\n".join(line.rstrip() for line in table.splitlines()) == snapshot("""\
Overhead of requests, ms
variant                                p50    p75  p90                p99    max
one                       measured     1.0      –  1.0                142      –
two                       published  20000  20000    –                  –  20000
                          measured     1.0      –  1.0       142 and 3219      –
three                     measured     1.0      –  1.0                150      –
                                                               130 to 175
far                       measured     1.0      –  1.0      4.0, 90.0 and      –
                                                                     9000
a-variant-of-thirty-char  measured     1.0      –  1.0              21000      –
acters                                                     11000 to 91000

Overhead of requests, ms
variant                              answered
one                       measured        100
two                       published
                          measured        200
three                     measured        300
far                       measured        300
a-variant-of-thirty-char  measured        500
acters
no value of this quantity: nothing\
""")


def test_two_trials_have_no_interval_and_three_have_one_beside_the_value(tmp_path: Path) -> None:
    """What was computed of two stays in summary.json."""
    claims = [Claim(says="it waits", value=P99, at_least=1)]
    pages = {}
    for waits_ms in ([142, 3219], [142, 150, 160]):
        run, summary = told({"one": waits_ms}, claims=claims)
        page = page_of(tmp_path, run, summary)
        parts = (("verdicts", "figures"), ("figures-in-numbers", "variants"))
        shown = [page[page.index(f'<h2 id="{first}">') : page.index(f'<h2 id="{then}">')] for first, then in parts]
        pages[len(waits_ms)] = [markdown(run, summary), "".join(shown)]

    [row] = [one for one in told({"one": [142, 3219]})[1].rows if (one.metric, one.stat) == ("overhead", "p99")]
    assert (row.high or 0) > 100_000
    for text in pages[2]:
        assert not re.search(r"\d{6}", re.sub(r"20\d{6}T?", "", text))
        assert text.count("142 and 3219") == 2, "the figure and the claim"
    assert "| one | measured | 1.0 | 1.0 | 1.0 | 150 (130 to 175) | 300 |" in pages[3][0]
    assert "<td>150 <small>(130 to 175)</small></td>" in pages[3][1]


def test_an_interval_is_shown_if_it_tells_something() -> None:
    tells = [([1, 2, 3], 0.5, 4), ([0, 0, 0], 0, 0.01)]
    says_nothing = [([1, 2], 0.5, 4), ([1, 2, 3], 0.5, 301), ([1, 2, 3], 0.009, 4), ([1, 2, 3], None, None)]

    assert [has_interval(*each) for each in (*tells, *says_nothing)] == [True] * 2 + [False] * 4
