"""stampede.report.html: the page shows what it is given and runs nothing of it."""

import re
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pydantic import ValidationError

from stampede.pipeline import derive
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.run import ClientRecord, LoadRecord, RelativeRate, SourceRecord, VariantRecord
from tests.synthetic import Request, make_run, visit

HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(1)>'"--></style></svg>&{{ 7 * 7 }}"""


class Tags(HTMLParser):
    """The tags of a page, its attributes and its texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.add(tag)
        self.counts[tag] += 1
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.texts.append(data)


def test_no_text_of_a_run_becomes_markup(tmp_path: Path) -> None:
    """Titles, claims and settings come from a file, classes, errors and workers from what servers answered."""
    requests = [Request(request_class=HOSTILE, worker=f"{HOSTILE}:{n % 2}", overhead_ms=n) for n in range(120)]
    failed = [Request(request_class=HOSTILE, error=HOSTILE)]
    claims = [Claim(says=HOSTILE, value=Quantity(variant="one", metric="overhead", stat="p50"), at_most=1)]
    published = [Published(variant="one", request_class=HOSTILE, metric="overhead", stats={"p50": 1}, within=0.1)]
    run = make_run(
        tmp_path, {"one": requests + failed, "two": requests}, claims=claims, published=published,
        title=HOSTILE, question=HOSTILE,
        source=SourceRecord(title=HOSTILE, publisher=HOSTILE, unknown=[HOSTILE],
                      address="https://example.org/?<script>alert(1)</script>"), command=HOSTILE,
        loads=[LoadRecord(name="mix", script=HOSTILE, duration="60s", settings={HOSTILE: HOSTILE})],
    )  # fmt: skip

    derive(run)

    page = Tags((run / "report.html").read_text(encoding="utf-8"))
    assert page.tags & {"img", "iframe", "object", "embed", "link", "base", "foreignobject"} == set()
    assert page.counts["script"] == 2, "the data of the lanes, and the script"
    assert [name for name, _ in page.attributes if name.startswith("on")] == []
    links = [value for name, value in page.attributes if name in ("src", "href", "xlink:href", "action")]
    assert links == ["#doubts", "https://example.org/?<script>alert(1)</script>"]
    assert page.texts.count(HOSTILE) >= 2
    assert "{{ 7 * 7 }}" in "".join(page.texts)


def test_the_page_judges_published_figures_under_verdicts(tmp_path: Path) -> None:
    """Of 1, 2, … 10 ms the average is 5.5, and p99 needs a hundred."""
    published = [
        Published(variant="one", request_class="light", metric="overhead", stats={"avg": 5, "max": 1}, within=0.15),
        Published(variant="one", request_class="light", metric="overhead", stats={"avg": 5, "p99": 10}, within=0.15),
    ]
    requests = [Request(overhead_ms=n) for n in range(1, 11)]
    derive(make_run(tmp_path, {"one": requests}, published=published, times=5))

    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    verdicts = page[page.index('<h2 id="verdicts">') : page.index('<h2 id="figures">')]
    assert '<h3 id="article">The article, compared with this run</h3>' in verdicts
    folded = verdicts[verdicts.index("<details>") : verdicts.index("</details>")]
    assert verdicts.index("<svg") < verdicts.index(folded), "the picture comes before the table, which is folded"
    assert "<caption>Published figures</caption>" in folded
    texts = [text.strip() for text in Tags(folded).texts if text.strip()]
    assert texts[texts.index("Published figures") + 1 :] == [
        "verdict", "what", "figures",
        "contradicted", "one: overhead of light requests", "1 of 2 within 15 %; contradicted: max 10.0",
        "reproduced", "one: overhead of light requests — p99 needs 100 requests a trial; there were 10 at most",
        "1 of 2 within 15 %; not measured in a short run: p99",
        "Reproduced: every measured figure, with its interval, is within the stated percentage of the published "
        "figure; the other figures are listed as measured / published; floor: what a request costs while nobody "
        "waits.",
    ]  # fmt: skip
    assert '<td class="verdict contradicted">contradicted</td>' in folded
    opening = page[: page.index("More:") if "More:" in page else page.index("The measurement is")]
    assert "The article: " in opening


@pytest.mark.parametrize(
    ("size", "drawn"),
    [
        (None, ["How long light requests waited"]),
        (4, ["4 requests at once"]),
        (20, ["20 requests at once", "How long light requests waited"]),
        (60, ["How long light requests waited"]),
    ],
)
def test_pictures_that_say_nothing_of_a_burst_are_left_out(tmp_path: Path, size: int | None, drawn: list[str]) -> None:
    requests = [Request(service_time_ms=1000, worker=f"box:{7 + n % 2}") for n in range(size or 20)]
    published = [Published(variant="one", request_class="light", metric="overhead", stats={"p50": 222}, divided_by=222)]
    settings = {"BURST": str(size)} if size else {}
    loads = [LoadRecord(name="mix", script="burst.js", kind="burst", duration="60s", settings=settings)]
    derive(make_run(tmp_path, {"one": requests}, loads=loads, published=published))

    page = (tmp_path / "report.html").read_text(encoding="utf-8")

    titles = ("4 requests at once", "20 requests at once", "How long light requests waited")
    assert [title for title in titles if f">{title}" in page] == [title for title in titles if title in drawn]
    subtitle = "each dot is one request; published ÷ 222"
    assert (subtitle in page) == ("How long light requests waited" in drawn)


@pytest.mark.usefixtures("undrawn")
def test_the_page_says_how_the_load_was_made_and_what_it_repeats(tmp_path: Path) -> None:
    """A title in Japanese can be recognised by its address where no font has its characters.

    Whether a called service has one device is yes or no, also when the record was read back.
    """
    address = "https://example.org/gunicorn-load-balancing"
    loads = [
        LoadRecord(name="mix", script="visits.js", kind="visits", duration="60s", settings={}, generators=3,
                   api={"one_device": True, "takes_s": 2}, database={"max_connections": 50, "pool": 4},
                   relative=RelativeRate(times=1.5, of="one", under="climb"),
                   client=ClientRecord(script="silent.py", settings={"CONNECTIONS": "2", "SILENT_S": "15"}))
    ]  # fmt: skip
    source = SourceRecord(title="gunicornの負荷分散", publisher="A blog", address=address)
    derive(make_run(tmp_path, {"one": visit("1")}, loads=loads, source=source))

    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for told in (
        f'<a href="{address}"><cite>gunicornの負荷分散</cite> ({address})</a>.',
        "; the service that the servers call: one_device=True, takes_s=2.0;",
        "; 3 load generators shared it; at 1.5 times the capacity that one showed under climb;",
        "; the servers' database: max_connections=50, pool=4;",
        "; beside k6, the client silent.py, CONNECTIONS=2, SILENT_S=15<",
    ):
        assert told in page


@pytest.mark.usefixtures("undrawn")
def test_the_page_forbids_itself_everything_but_its_own_script_style_and_pictures(tmp_path: Path) -> None:
    """If a text became markup all the same, the browser would still run and fetch nothing."""
    derive(make_run(tmp_path, {"one": [Request()]}))

    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    before, policy = page.split('<meta http-equiv="Content-Security-Policy" content="')
    assert "<title>" not in before
    script = page[page.rindex("<script>") + len("<script>") : page.rindex("</script>")]
    hashed = b64encode(sha256(script.encode()).digest()).decode()
    assert unescape(policy).startswith(
        f"default-src 'none'; script-src 'sha256-{hashed}'; style-src 'unsafe-inline'; img-src data:\">"
    )


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,hello", "/etc/passwd"])
def test_the_address_of_an_article_is_one_of_the_web(address: str) -> None:
    with pytest.raises(ValidationError):
        SourceRecord(title="", publisher="", address=address)


def opening_of(page: str) -> str:
    """Return the text with which a page opens."""
    opening = page[page.index('<section class="answer">') : page.index('<nav class="contents"')]
    return " ".join("".join(Tags(opening).texts).split())


@pytest.mark.usefixtures("undrawn")
def test_a_cure_also_says_what_becomes_of_the_answers_number(tmp_path: Path) -> None:
    beside = Quantity(variant="two", request_class="light", metric="avoidable_wait", stat="share")
    tail = Quantity(variant="one", request_class="light", metric="overhead", stat="p90")
    claims = [
        Claim(says="Requests wait", value=tail, at_least=5, role="answer"),
        Claim(says="Two helps", value=beside, at_most=0, role="cure"),
    ]
    ones = {name: [Request(overhead_ms=ms) for _ in range(20)] for name, ms in (("one", 8), ("two", 2))}
    variants = [VariantRecord(name=name, workers=2, settings={"threads": 1}) for name in ones]
    derive(make_run(tmp_path, ones, claims=claims, times=5, variants=variants))

    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    opening = opening_of(page)
    assert opening.startswith("8.0 ms The p90 of the overhead of light requests in one")
    assert "Answer: Requests wait: p90 8.0 ms" in opening
    assert "Helps: Two helps: 0%." in opening
    assert opening.endswith("Light requests, overhead p90, ms one8.0 two2.0")
    assert [float(width) for width in re.findall(r'<span style="width: ([\d.]+)%', page)] == [100, 25]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("p50", "said"),
    [
        (1, "Answer: Nothing waits: p50 1.0 ms. Why: It is a test."),
        (9, "Not so: Nothing waits: p50 9.0 ms."),
    ],
)
def test_the_page_opens_with_the_answer_and_the_cure(tmp_path: Path, p50: float, said: str) -> None:
    """Claims without a role follow in the table only."""
    of_one = Quantity(variant="one", request_class="light", metric="overhead", stat="p50")
    claims = [
        Claim(says="It adds up", value=of_one, at_most=100),
        Claim(says="A cure is known", value=of_one, at_most=100, role="cure"),
        Claim(says="Nothing waits", value=of_one, at_most=2, role="answer"),
    ]
    requests = [Request(overhead_ms=p50) for _ in range(20)]
    derive(make_run(tmp_path, {"one": requests}, claims=claims, times=5, because="It is a test."))

    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    opening = opening_of(page)
    assert said in opening
    assert opening.index("Nothing waits") < opening.index("Helps: A cure is known: ")
    assert "It adds up" not in opening
