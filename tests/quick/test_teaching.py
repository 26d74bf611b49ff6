"""The pictures of the lesson are fit for a slide."""

import re
from xml.etree import ElementTree

import pytest

from stampede.paths import ROOT

DOCS = ROOT / "docs" / "learn"
TEACHING = (DOCS / "teaching.md").read_text(encoding="utf-8")
SHOWN = dict(re.findall(r"!\[([^\]]+)\]\((teaching-[a-z-]+\.svg)\)", TEACHING))
SVG = "{http://www.w3.org/2000/svg}"
WIDTH, HEIGHT = 1280, 640


def test_every_picture_is_shown_where_teaching_is_explained_with_a_description_of_its_own() -> None:
    assert {path.name for path in DOCS.glob("teaching-*.svg")} == set(SHOWN.values())
    assert len(SHOWN) == len(set(SHOWN.values()))


@pytest.mark.parametrize("name", SHOWN.values())
def test_a_picture_keeps_its_text_as_text_and_needs_nothing_from_elsewhere(name: str) -> None:
    """A picture can be read from the last row: no text is smaller than 18 of 640 units, and none begins outside."""
    picture = (DOCS / name).read_text(encoding="utf-8")
    texts = list(ElementTree.fromstring(picture).iter(f"{SVG}text"))

    assert len(texts) > 5
    assert all(int(text.attrib["font-size"]) >= 18 for text in texts)
    assert all(0 <= float(text.attrib["x"]) <= WIDTH and 0 <= float(text.attrib["y"]) <= HEIGHT for text in texts[1:])
    assert "href" not in picture
    assert "url(" not in picture.replace("url(#to)", "")
