"""What MkDocs calls while it builds the site: pages from outside of docs/ join it, and links between files lead to pages.

In the repository a page links to the file beside it, such as ../charts/nodedevice/README.md. A link to what is no page stays
as it is, and is an error of the build then.
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
    "changelog.d/README.md": "changelog-fragments.md",
    "charts/nodedevice/README.md": "chart.md",
    "hack/fake_nvml/src/README.md": "fake-nvml.md",
}
_SOURCE = {uri: path for path, uri in ELSEWHERE.items()}
# a folder has no page: its first one
_FOLDERS = {"docs/decisions": "decisions/0001-one-http-transport.md"}
_LINK = re.compile(r"(?<=\]\()(?!\w+:|[#/])[^)#\s]+")
_CODE = re.compile(r"<pre.*?</pre>|<code.*?</code>", re.DOTALL)
_NOT_A_LIST = re.compile(r"(?:\n *|<p>)(?:- |\d+\. |\||```).*")
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
    return _LINK.sub(
        lambda link: _on_site(posixpath.normpath(posixpath.join(folder, link[0])), uri) or link[0], markdown
    )


def _on_site(path: str, uri: str) -> str:
    """The link to a file of the repository from a page; "" where the site does not have it."""
    target = ELSEWHERE.get(path) or _FOLDERS.get(path) or (path.removeprefix(_DOCS) if path.startswith(_DOCS) else "")
    return target and posixpath.relpath(target, posixpath.dirname(uri) or ".")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Raises PluginError for what GitHub takes for a list or a block and the site does not."""
    del config, files
    found = _NOT_A_LIST.search(_CODE.sub("", html))
    if found:
        raise PluginError(
            f"{page.file.src_uri}: a blank line before, or four spaces of indentation: {found[0].strip()}"
        )
    return html


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Raises PluginError for a page that would fetch something of another host."""
    del config
    found = _FETCHED.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri} would fetch something: {found[0]}")
    return output
