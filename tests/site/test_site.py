"""`make docs` as a reader opens it: from a folder, with its pictures, its links and its search."""

import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
_MOST_PAGES = 26


class _Page(HTMLParser):
    """ids: anchors of the page. links: what it links to, shows and loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids, self.links = set[str](), set[str]()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("id", "name"):
                self.ids.add(value)
            elif value and name in ("href", "src", "srcset"):
                self.links.add(value)


@pytest.fixture(scope="module")
def site() -> Path:
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build/site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    return {file: _Page(file) for file in site.rglob("*.html")}


def test_each_link_and_picture_leads_to_a_file(site: Path, pages: dict[Path, _Page]) -> None:
    assert list(_broken(pages, site)) == []


def _broken(pages: dict[Path, _Page], site: Path) -> Iterator[str]:
    for file, page in pages.items():
        # its links begin at the root of a server
        if file.name == "404.html":
            continue
        for link in page.links:
            address = urlsplit(link)
            if address.scheme:
                continue
            target = (file.parent / unquote(address.path)).resolve() if address.path else file
            if not target.is_file():
                yield f"{file.relative_to(site)}: {link}"
            elif address.fragment and target in pages and unquote(address.fragment) not in pages[target].ids:
                yield f"{file.relative_to(site)}: {link} (anchor)"


def test_the_front_page_has_its_picture(site: Path, pages: dict[Path, _Page]) -> None:
    shown = {link for link in pages[site / "index.html"].links if link.startswith("pictures/")}
    assert shown == {"pictures/page-dark.png", "pictures/page-light.png"}


def test_it_has_pages_only(site: Path, pages: dict[Path, _Page]) -> None:
    names = [path.name for path in site.rglob("*")]
    assert [name for name in names if name == "__pycache__" or name.endswith((".py", ".pyc"))] == []
    assert len([file for file in pages if file.parent == site and file.name != "404.html"]) < _MOST_PAGES


def test_a_browser_searches_it_in_a_folder(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed in .venv")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Debian's chromium is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        fetched: list[str] = []
        page.on("request", lambda request: fetched.append(request.url))
        page.goto((site / "index.html").as_uri())
        assert page.evaluate("[...document.images].map(each => each.complete && each.naturalWidth > 0)") == [True]
        page.locator("input.md-search__input").fill("cordon")
        page.locator("a.md-search-result__link").first.wait_for()
        assert page.locator("a.md-search-result__link").count() > 3
        browser.close()
    assert [url for url in fetched if not url.startswith(("file:", "data:", "about:"))] == []
