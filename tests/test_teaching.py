"""The pictures of the lesson are those that the lab draws, and are fit for a slide."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from analysis.show.teaching import HEIGHT, PICTURES, WIDTH, drawn, main
from lab.paths import ROOT

DOCS = ROOT / "docs"
TEACHING = (DOCS / "teaching.md").read_text(encoding="utf-8")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_in_the_documents_is_the_picture_that_the_lab_draws(name: str) -> None:
    assert (DOCS / f"teaching-{name}.svg").read_text(encoding="utf-8") == drawn(name)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_shown_where_teaching_is_explained_with_its_description(name: str) -> None:
    *_, described = PICTURES[name]

    assert f"![{described}](teaching-{name}.svg)" in TEACHING


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_keeps_its_text_as_text_and_needs_nothing_from_elsewhere(name: str) -> None:
    """It can be read from the last row: no text is smaller than 18 of 640 units, and none begins outside."""
    picture = ElementTree.fromstring(drawn(name))
    texts = list(picture.iter(f"{SVG}text"))

    assert len(texts) > 5
    assert all(int(one.attrib["font-size"]) >= 18 for one in texts)
    assert all(0 <= float(one.attrib["x"]) <= WIDTH and 0 <= float(one.attrib["y"]) <= HEIGHT for one in texts[1:])
    assert "href" not in drawn(name)
    assert "url(" not in drawn(name).replace("url(#to)", "")


def test_all_pictures_are_written_at_once(tmp_path: Path) -> None:
    main(tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {f"teaching-{name}.svg" for name in PICTURES}
