"""analysis.report: the page shows what it is given and runs nothing of it."""

from html.parser import HTMLParser
from pathlib import Path

from analysis.derive import derive
from analysis.quantities import Claim, Quantity
from analysis.run_folder import LoadRecord, Source
from tests.synthetic import Request, make_run

HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(1)>'"--></style></svg>&{{ 7 * 7 }}"""


class Tags(HTMLParser):
    """The tags of a page, its attributes and its texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.texts.append(data)


def test_no_text_of_a_run_becomes_markup(tmp_path: Path) -> None:
    """Titles, claims and settings come from a file, classes, errors and workers from what servers answered."""
    requests = [Request(request=HOSTILE, worker=f"{HOSTILE}:{n % 2}", overhead_ms=n) for n in range(120)]
    failed = [Request(request=HOSTILE, error=HOSTILE)]
    claims = [Claim(says=HOSTILE, value=Quantity(variant="one", metric="overhead", stat="p50"), at_most=1)]
    run = make_run(
        tmp_path, {"one": requests + failed, "two": requests}, claims=claims, title=HOSTILE, question=HOSTILE,
        source=Source(title=HOSTILE, publisher=HOSTILE, unknown=[HOSTILE]), command=HOSTILE,
        loads=[LoadRecord(name="mix", script=HOSTILE, duration="60s", settings={HOSTILE: HOSTILE})],
    )  # fmt: skip

    derive(run)

    page = Tags((run / "report.html").read_text(encoding="utf-8"))
    assert page.tags & {"script", "img", "iframe", "object", "embed", "form", "link", "base", "foreignobject"} == set()
    assert [name for name, _ in page.attributes if name.startswith("on")] == []
    assert [value for name, value in page.attributes if name in ("src", "href", "xlink:href", "action")] == []
    assert page.texts.count(HOSTILE) >= 2
    assert "{{ 7 * 7 }}" in "".join(page.texts)


def test_the_page_forbids_itself_everything_but_its_own_style_and_pictures(tmp_path: Path) -> None:
    """Were a text to become markup all the same, the browser would still run and fetch nothing."""
    derive(make_run(tmp_path, {"one": [Request()]}))

    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    before, policy = page.split('<meta http-equiv="Content-Security-Policy" content="')
    assert "<title>" not in before
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:\">")
