"""The page of settings has every key, and its examples are valid."""

import re
from collections.abc import Iterator

import msgspec
import pytest
import yaml
from nodedevice_agent.settings import AgentSettings

from docs.generate_settings import HEAD, PAGE, PROGRAMS, fields, page, place_of, sections, structure_of


def rows_of(heading: str) -> dict[str, str]:
    """Return the keys of the table below a heading, each with its last cell."""
    table = page().partition(f"\n{heading}\n")[2].partition(f"{HEAD}\n|---|---|---|\n")[2].partition("\n\n")[0]
    cells = [re.split(r"(?<!\\) \|", row) for row in table.splitlines() if row.startswith("|")]
    return {key: meaning.strip() for keys, _, meaning, _ in cells for key in re.findall(r"`([^`]+)`", keys)}


def keys_below(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    """Yield the place of each key of a structure, and of its inner structures."""
    for key, found in fields(kind):
        place = prefix + place_of(key, found.type)
        yield place
        if inner := structure_of(found.type):
            yield from keys_below(inner, f"{place}.")


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_key_of_a_program_has_a_row(program: str) -> None:
    keys = {re.sub(r"\[\]$", "", key) for key in rows_of(f"## {program}")}
    assert keys == {key for key, _ in fields(PROGRAMS[program])}


SECTIONS = dict(sections(AgentSettings))


@pytest.mark.parametrize("place", SECTIONS)
def test_every_key_of_a_plugin_has_a_row_once(place: str) -> None:
    """A key without a row is below a key that refers to another place."""
    rows = rows_of(f"### `{place}`")
    elsewhere = tuple(f"{key}." for key, meaning in rows.items() if "; as `" in meaning)
    expected = [place_of(key, found.type) for key, found in fields(SECTIONS[place])]
    if place != "plugins":
        expected = [key for key in keys_below(SECTIONS[place]) if not key.startswith(elsewhere)]
    assert sorted(rows) == sorted(expected)


def test_the_examples_of_selected_devices_are_valid() -> None:
    text = (PAGE.parent / "device-plugins.md").read_text(encoding="utf-8")
    section = text.split("## Devices by USB, udev and subsystem")[1].split("```")[1]
    config = yaml.safe_load(section.removeprefix("yaml"))["agents"]["config"]
    settings = msgspec.convert(config, AgentSettings)
    assert len(settings.plugins.generic) == 3
