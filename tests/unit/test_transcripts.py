"""Transcripts for the page: made steady and short; and those on the page type what exists and show what can be printed."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from nodedevice_api.names import Reason
from nodedevice_operator.observability.events import EventReason

from docs.transcripts import BEGIN, END, PageError, Part, Shown, Story, commands, described, page_with, steady

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


def crds() -> list[dict[str, Any]]:
    return [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]


def own_kinds() -> set[str]:
    found = [crd["spec"]["names"] for crd in crds()]
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


def test_ages_times_and_uids_are_steady_and_columns_in_line() -> None:
    output = (
        "LAST SEEN          TYPE      MESSAGE\n"
        "3s (x2 over 118s)  Warning   not for 60 s: 0b9a5b2c-3c2e-4a53-8f9e-0d8e4c1f2a3b\n"
        "4m1s               Normal    at 2031-02-03T04:05:06.789012Z\n"
    )
    assert steady(output) == (
        "LAST SEEN         TYPE      MESSAGE\n"
        "1m (x2 over 1m)   Warning   not for 60 s: 00000000-0000-0000-0000-000000000001\n"
        "1m                Normal    at 2026-01-01T12:00:00Z"
    )


def test_an_empty_cell_stays_one() -> None:
    output = "NAME   READY   REASON   AGE\na      True             5s\n"
    assert steady(output) == "NAME   READY   REASON   AGE\na      True             1m"


def test_of_a_description_remain_conditions_that_need_attention_and_events() -> None:
    good = condition("Registered", "True", "EndpointRunning")
    bad = condition("Healthy", "False", "SomeDevicesUnhealthy")
    events = "Events:\n  Type     Reason  Age  Message\n  ----     ------  ---  -------\n  Warning  Broken  7s   it is broken\n"
    output = f"Name:         nd\nSpec:\n  Node Name:  a\nStatus:\n  Conditions:\n{good}{bad}  Total:  4\n{events}"
    assert described(output) == (
        f"Name:         nd\n...\n  Conditions:\n{bad}...\n"
        "Events:\n  Type      Reason   Age   Message\n  ----      ------   ---   -------\n  Warning   Broken   1m    it is broken"
    )


def test_of_a_description_without_trouble_remains_little() -> None:
    assert described("Name:   nd\nStatus:\n  Total:  4\nEvents:  <none>\n") == "Name:   nd\n...\nEvents:  <none>"


def test_only_what_is_between_the_markers_is_replaced() -> None:
    story = Story("Title", (Part("Words:", (Shown("kubectl get nd -o 'a b'", "NAME\na"),)),))
    once = page_with(f"before\n{BEGIN}\nold\n{END}\nafter\n", [story])
    assert once.startswith(f"before\n{BEGIN}\n")
    assert once.endswith(f"{END}\nafter\n")
    assert "old" not in once
    assert page_with(once, [story]) == once
    assert commands(once) == [["kubectl", "get", "nd", "-o", "a b"]]


@pytest.mark.parametrize("page", ["", BEGIN, f"{END}\n{BEGIN}"])
def test_a_page_without_markers_is_refused(page: str) -> None:
    with pytest.raises(PageError, match="the page needs the lines"):
        page_with(page, [])


def condition(kind: str, status: str, reason: str) -> str:
    fields = {"Last Transition Time": "x", "Message": "m", "Reason": reason, "Status": status, "Type": kind}
    return "".join(f"    {f'{key}:':<22} {value}\n" for key, value in fields.items())
