"""The page of settings has every key, explained, and is made from the code as it is."""

from collections.abc import Iterator

import msgspec
import pytest
import yaml
from nodedevice_agent.settings import AgentSettings

from docs.generate_settings import PAGE, PROGRAMS, explanations, page, structures_below


def structures() -> Iterator[type[msgspec.Struct]]:
    for kind in PROGRAMS.values():
        yield from (kind, *structures_below(kind))


def tables(text: str) -> list[list[str]]:
    """The rows of each table, without its heading."""
    parts = text.split("| key | type | default | meaning |\n|---|---|---|---|\n")[1:]
    return [[row for row in part.split("\n\n")[0].splitlines() if row.startswith("|")] for part in parts]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make generate`"


def test_every_key_of_every_structure_is_there_once() -> None:
    found = [[row.split("`")[1] for row in table] for table in tables(page())]
    assert found == [[field.encode_name for field in msgspec.structs.fields(kind)] for kind in structures()]


def test_cells_are_short() -> None:
    assert [cell for table in tables(page()) for row in table for cell in row.split(" | ") if len(cell) > 155] == []


class Half(msgspec.Struct):
    """One of two is explained.

    third: by the docstring,
        for example.
    """

    # by a comment
    first: int
    second: int
    third: int = 0


def test_a_field_that_nobody_explains_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Half\.second needs a comment"):
        explanations(Half)


def test_a_comment_or_the_docstring_explains() -> None:
    class Whole(Half):
        """All."""

        # here
        second: int

    assert explanations(Whole) == {"first": "by a comment", "second": "here", "third": "by the docstring, for example."}


def test_the_examples_of_selected_devices_are_valid() -> None:
    text = (PAGE.parent / "device-plugins.md").read_text(encoding="utf-8")
    section = text.split("## Devices by USB, udev and subsystem")[1].split("```")[1]
    config = yaml.safe_load(section.removeprefix("yaml"))["agents"]["config"]
    settings = msgspec.convert(config, AgentSettings)
    assert len(settings.plugins.generic) == 3
