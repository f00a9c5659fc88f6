"""Transcripts on the page type commands that exist, and show reasons that the programs print."""

import re
from pathlib import Path
from typing import Final

import pytest
import yaml
from nodedevice_api.names import Reason
from nodedevice_operator.observability.events import EventReason

from docs.transcripts import BEGIN, END, commands

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "operations.md").read_text()

# What kubectl has, as far as it is used: verbs with their flags, and kinds of Kubernetes itself by any of their names.
VERBS: Final = {
    "get": {"-A", "-n", "-o", "-w", "--field-selector", "--sort-by"},
    "describe": {"-n"},
    "events": {"-n", "--for", "--types"},
    "delete": {"-n", "--now"},
    "patch": {"-p", "--subresource", "--type", "--field-manager"},
}
KINDS: Final = {"node", "nodes", "pod", "pods", "event", "events", "lease", "leases"}


def own_kinds() -> set[str]:
    found = [yaml.safe_load(path.read_text())["spec"]["names"] for path in (ROOT / "crds").glob("*.yaml")]
    return {name for names in found for name in (names["plural"], names["singular"], *names["shortNames"])}


def reasons(*holders: type) -> set[str]:
    return {value for holder in holders for key, value in vars(holder).items() if key.isupper()}


TYPED: Final = commands(PAGE)


def test_each_story_is_on_the_page() -> None:
    verbs = {words[1] for words in TYPED}
    assert {"get", "describe", "events", "patch", "delete"} <= verbs
    event_lines = {"DeviceUnhealthy", "CapacityRepaired", "LeaseExpired", "FreeDevicesWithdrawn", "CapacityConflict"}
    between = PAGE.partition(BEGIN)[2].partition(END)[0]
    assert {reason for reason in event_lines if reason in between} == event_lines


@pytest.mark.parametrize("words", [pytest.param(words, id=" ".join(words[1:4])) for words in TYPED])
def test_what_is_typed_exists(words: list[str]) -> None:
    _, verb, *rest = words
    assert verb in VERBS
    flags = {word.split("=")[0] for word in rest if word.startswith("-")}
    assert flags <= VERBS[verb]
    kind = rest[rest.index("--for") + 1].split("/")[0] if verb == "events" else rest[0]
    assert kind in KINDS | own_kinds()


def test_reasons_that_are_shown_exist() -> None:
    between = PAGE.partition(BEGIN)[2].partition(END)[0]
    of_conditions = set(re.findall(r"^ +Reason: +(\w+)$", between, re.MULTILINE))
    of_events = set(re.findall(r"\b(?:Warning|Normal) +(\w+) ", between))
    assert of_conditions
    assert of_events
    assert of_conditions <= reasons(Reason)
    assert of_events <= reasons(Reason, EventReason)
