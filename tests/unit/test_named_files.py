"""Files, modules and folders that the pages for contributors name are in the tree."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.unit.sources import ROOT

_PACKAGES: Final = {
    "agent": ROOT / "node-agent/src/nodedevice_agent",
    "operator": ROOT / "operator/src/nodedevice_operator",
    "api": ROOT / "proto/src/nodedevice_api",
    "common": ROOT / "common/src/nodedevice_common",
    "cli": ROOT / "cli/src/kubectl_nodedevice",
}
# with a slash and without what a resource, an image or an address has
_NAMED: Final = re.compile(r"`((?:[\w-]+/)+[\w-]*(?:\.(?:py|toml|yaml|yml|proto|md|json|cfg))?)`")
# made by a command, or a name to fill in
_NOT_HERE: Final = re.compile(r"^(build|dist|tmp|var)/|NAME")


def _places(named: str) -> Iterator[Path]:
    """Where it may be: a page leaves out the folders above a package, and the ending of a module."""
    program, _, rest = named.partition("/")
    for path in (ROOT / named, *(package / named for package in _PACKAGES.values())):
        yield from (path, path.with_name(f"{path.name}.py"))
    if program in _PACKAGES:
        yield _PACKAGES[program] / f"{rest}.py"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "docs/releasing.md"])
def test_each_is_there(page: str) -> None:
    found = _NAMED.findall((ROOT / page).read_text(encoding="utf-8"))
    assert found
    assert [each for each in found if not _NOT_HERE.search(each) and not any(p.exists() for p in _places(each))] == []
