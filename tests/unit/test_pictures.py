"""README begins with one picture, in light and dark, which `make pictures` takes of a real run."""

import re

from tests.unit.sources import ROOT

FOLDER = ROOT / "docs/pictures"


def test_readme_shows_each_picture_soon() -> None:
    text = (ROOT / "README.md").read_text()
    assert {*re.findall(r"docs/pictures/([a-z-]+\.png)", text)} == {file.name for file in FOLDER.iterdir()}
    assert len(text.partition("docs/pictures/")[0].split()) <= 180


def test_pictures_are_small() -> None:
    assert all(file.stat().st_size <= 150_000 for file in FOLDER.iterdir())
