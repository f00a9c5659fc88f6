"""The navigation of the site has each page once. `tests/site` builds the site."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_MOST_PAGES = 25


def _pages(nav: Any) -> Iterator[str]:
    """nav: a page's path, a section by its title, or a list of either."""
    match nav:
        case str():
            yield nav
        case dict():
            yield from (page for below in nav.values() for page in _pages(below))
        case list():
            yield from (page for below in nav for page in _pages(below))


def test_each_page_is_in_the_navigation_once() -> None:
    # MkDocs' own tags, such as that of a function, are of no interest here
    site = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    listed = list(_pages(site["nav"]))
    assert sorted(set(listed)) == sorted(listed)
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} <= set(listed)
    assert len([page for page in listed if not page.startswith("decisions/")]) <= _MOST_PAGES
