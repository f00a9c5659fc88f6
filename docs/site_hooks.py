"""What MkDocs calls while it builds the site: pages from outside of docs/ join it, and links between files lead to pages.

In the repository a page links to the file beside it, such as ../charts/nodedevice/README.md. A link to a file that is no page
becomes plain text. A link to a missing file stays as it is, and ends the build; so does a picture that the site does not have.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[1]
_DOCS = "docs/"
# by their paths in the repository
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "charts/nodedevice/README.md": "chart.md",
}
_SOURCE = {uri: path for path, uri in ELSEWHERE.items()}
# a folder has no page: its first one
_FOLDERS = {"docs/decisions": "decisions/0001-one-http-transport.md"}
_LINK = re.compile(r"(?<!!)\[([^\]\[]*(?:\[[^\]]*\][^\]\[]*)?)\]\((?!\w+:|[#/])([^)#\s]+)(#[^)\s]*)?\)")
_PICTURE = re.compile(r"(\bsrc(?:set)?=\"|!\[[^\]]*\]\()(?!\w+:|[#/])([^\")\s]+)")
_CODE = re.compile(r"<pre.*?</pre>|<code.*?</code>", re.DOTALL)
_NOT_A_LIST = re.compile(r"(?:\n *|<p>)(?:- |\d+\. |\||```).*")
_SHOWN = re.compile(r"\bsrc(?:set)?=\"(?!\w+:|[#/])([^\"#]+)")
_FETCHED = re.compile(
    r"<(?:script|img|iframe|link rel=.?(?:stylesheet|preconnect).?)[^>]*(?:src|href)=.?(?:https?:)?//[^>]*>"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, uri in ELSEWHERE.items():
        files.append(File.generated(config, uri, content=(_ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    del config, files
    uri = page.file.src_uri
    folder = posixpath.dirname(_SOURCE.get(uri, _DOCS + uri))

    def path_of(link: str) -> str:
        return posixpath.normpath(posixpath.join(folder, link))

    def linked(found: re.Match[str]) -> str:
        words, link, anchor = found[1], found[2], found[3] or ""
        target = _on_site(path_of(link), uri)
        if not target and (_ROOT / path_of(link)).exists():
            return words
        return f"[{words}]({target or link}{anchor})"

    markdown = _LINK.sub(linked, markdown)
    return _PICTURE.sub(lambda found: found[1] + (_on_site(path_of(found[2]), uri) or found[2]), markdown)


def _on_site(path: str, uri: str) -> str:
    """The link to a file of the repository from a page; "" if the site does not have it."""
    target = ELSEWHERE.get(path) or _FOLDERS.get(path) or (path.removeprefix(_DOCS) if path.startswith(_DOCS) else "")
    return target and posixpath.relpath(target, posixpath.dirname(uri) or ".")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Raises PluginError for a list or a block that only GitHub shows as one, and for a missing picture."""
    del config
    found = _NOT_A_LIST.search(_CODE.sub("", html))
    if found:
        raise PluginError(
            f"{page.file.src_uri}: a blank line before, or four spaces of indentation: {found[0].strip()}"
        )
    folder = posixpath.dirname(page.file.dest_uri)
    pictures = {posixpath.normpath(posixpath.join(folder, each)) for each in _SHOWN.findall(_CODE.sub("", html))}
    missing = sorted(pictures - {each.dest_uri for each in files})
    if missing:
        raise PluginError(f"{page.file.src_uri} shows pictures that the site does not have: {', '.join(missing)}")
    return html


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Raises PluginError for a page that would fetch something of another host."""
    del config
    found = _FETCHED.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri} would fetch something: {found[0]}")
    return output
