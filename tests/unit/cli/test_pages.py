"""Each command of `kubectl nodedevice` that a page, or a message of the product, names: it exists, and so do its flags."""

import re
import shlex
from collections.abc import Iterator
from typing import Final

import click
from kubectl_nodedevice.program import root
from kubectl_nodedevice.why.reasons.table import TABLE

from tests.unit.sources import ROOT

_WHERE: Final = ("*.md", "docs/*.md", "charts/nodedevice/*.md", "charts/nodedevice/templates/*")
_FILES: Final = sorted(file for each in _WHERE for file in ROOT.glob(each))
_CALL: Final = re.compile(r"kubectl[ -]nodedevice((?: [^\s`|;#()\\]+| \"[^\"]*\"| '[^']*')*)")


def _named() -> Iterator[tuple[str, list[str]]]:
    for file in _FILES:
        if file.name == "CHANGELOG.md":
            continue
        for line in file.read_text(encoding="utf-8").splitlines():
            for found in _CALL.findall(line):
                try:
                    yield f"{file.name}: {found.strip()}", shlex.split(found)
                except ValueError:
                    # an apostrophe of the sentence
                    continue


def _problem(words: list[str]) -> str:
    command: click.Command = root
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        found = command.get_command(click.Context(command), rest[0])
        if found is None:
            # a sentence goes on, or only flags follow
            break
        command, rest = found, rest[1:]
    flags = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}
    typed = [each for each in rest if re.fullmatch(r"--[a-z-]+|-[a-zA-Z]", each.partition("=")[0])]
    unknown = [each for each in typed if each.partition("=")[0] not in flags]
    return f"{command.name} has no {', '.join(unknown)}" if unknown else ""


def test_pages_name_flags_that_exist() -> None:
    found = [f"{where}: {problem}" for where, words in _named() if (problem := _problem(words))]
    assert not found, "\n".join(found)


def test_the_page_has_each_command() -> None:
    page = (ROOT / "docs/kubectl.md").read_text(encoding="utf-8")
    for name in root.list_commands(click.Context(root)):
        command = root.get_command(click.Context(root), name)
        assert command is not None
        assert command.hidden or re.search(rf"nodedevice {name}\b", page), f"docs/kubectl.md does not name {name}"


def test_the_page_has_each_code_of_a_cause_in_order() -> None:
    page = (ROOT / "docs/kubectl.md").read_text(encoding="utf-8")
    listed = page.partition("- **Codes** ")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", listed) == [row.code for row in TABLE]
