"""The status of a NodeDeviceConfig, from what agents report of it."""

import json
from typing import Any

import pytest
from nodedevice_api.names import ConfigCondition, ConfigReason
from nodedevice_operator.configs.status import (
    STATES,
    ConfigStatus,
    config_status,
    read_reports,
    results,
    state_of,
    to_json,
)

ACCEPTED, CONFLICT = ConfigCondition.ACCEPTED, ConfigCondition.CONFLICT
GPU, NIC = "example.com/gpu", "example.com/nic"
TAKEN = {"generation": 2}
LOST: dict[str, Any] = {"n1": {"a": {**TAKEN, "lost": {GPU: "b"}}, "b": TAKEN}}


def status(name: str = "a", /, **by_node: Any) -> ConfigStatus:
    return config_status(name, 2, {node: read_reports(json.dumps(report)) for node, report in by_node.items()})


def refusing(sentence: str, generation: int = 2) -> dict[str, Any]:
    return {"a": {"generation": generation, "refusal": sentence}}


@pytest.mark.parametrize(
    ("by_node", "state"),
    [
        ({"n1": {"a": TAKEN}}, "accepted"),
        ({"n1": {"a": TAKEN}, "n2": refusing("no")}, "refused"),
        ({"n1": {"a": {"generation": 1}}}, "pending"),
        ({"n1": {"b": TAKEN}}, "unused"),
        (LOST, "conflict"),
        ({"n1": {"a": TAKEN, "b": {**TAKEN, "lost": {GPU: "a"}}}}, "accepted"),
        ({**LOST, "n2": refusing("no")}, "refused"),
    ],
)
def test_its_state_is_one_word(by_node: dict[str, Any], state: str) -> None:
    stored = to_json(status(**by_node), {}, "now")
    assert state_of(2, stored) == state
    # of another generation nothing is known yet
    assert state_of(3, stored) == "pending"
    assert state in STATES


@pytest.mark.parametrize(
    "stored", [{}, {"observedGeneration": 2, "conditions": 3}, {"observedGeneration": 2, "conditions": [4, {}]}]
)
def test_what_others_have_written_into_it_is_pending(stored: dict[str, Any]) -> None:
    assert state_of(2, stored) == "pending"


@pytest.mark.parametrize("text", ["", "[]", '{"a": {"generation": "2"}}', "[" * 100_000])
def test_what_is_no_report_says_nothing(text: str) -> None:
    assert read_reports(text) == {}


@pytest.mark.parametrize(
    ("by_node", "counts", "condition"),
    [
        ({}, (0, 0, 0), ("Unknown", ConfigReason.NO_NODES)),
        ({"n1": {"b": TAKEN}}, (0, 0, 0), ("Unknown", ConfigReason.NO_NODES)),
        ({"n1": {"a": TAKEN}}, (1, 1, 0), ("True", ConfigReason.TAKEN)),
        ({"n1": {"a": TAKEN}, "n2": {"a": {"generation": 1}}}, (2, 1, 0), ("Unknown", ConfigReason.PENDING)),
        # of an object of that name that is gone, or that this process does not know yet
        ({"n1": {"a": {"generation": 3}}}, (1, 0, 0), ("Unknown", ConfigReason.PENDING)),
        # what was refused of another generation is none of this one's
        ({"n1": refusing("no", 1)}, (1, 0, 0), ("Unknown", ConfigReason.PENDING)),
        ({"n1": refusing("no"), "n2": {"a": {"generation": 1}}}, (2, 0, 1), ("False", ConfigReason.REFUSED)),
    ],
    ids=["no agent", "of another one", "taken", "one is behind", "ahead", "refused before", "refused and behind"],
)
def test_nodes_are_counted_by_the_present_generation(
    by_node: dict[str, Any], counts: tuple[int, int, int], condition: tuple[str, str]
) -> None:
    found = status(**by_node)
    assert (found.selected, found.accepted, found.refused) == counts
    assert found.conditions[ACCEPTED][:2] == condition


def test_refusals_are_sorted_by_how_many_say_so_each_with_its_first_node() -> None:
    found = status(n3=refusing("rare"), n2=refusing("often"), n1=refusing("often"), n4=refusing("also rare"))
    assert found.refusals == (("often", 2, "n1"), ("also rare", 1, "n4"), ("rare", 1, "n3"))
    assert found.conditions[ACCEPTED][2] == "n1, n2 and 2 more: often"


def test_refusals_are_bounded_in_number_and_length() -> None:
    found = status(**{f"n{i:02}": refusing(f"{i:02}" + "x" * 9000) for i in range(20)})
    assert (found.refused, len(found.refusals)) == (20, 8)
    assert {len(sentence) for sentence, _, _ in found.refusals} == {512}
    assert len(json.dumps(to_json(found, {}, "now"))) < 16_000


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = to_json(status(n1=refusing("no")), {}, "first")
    assert (first["observedGeneration"], first["nodes"]) == (2, {"selected": 1, "accepted": 0, "refused": 1})
    assert first["refusals"] == [{"message": "no", "nodes": 1, "example": "n1"}]
    other_words = to_json(status(n1=refusing("no, never")), first, "second")
    assert {each["lastTransitionTime"] for each in other_words["conditions"]} == {"first"}
    taken = to_json(status(n1={"a": TAKEN}), other_words, "third")
    times = {each["type"]: each["lastTransitionTime"] for each in taken["conditions"]}
    assert times == {ACCEPTED: "third", CONFLICT: "first", ConfigCondition.DEVICES_FOUND: "third"}


def test_what_has_not_changed_is_equal_to_what_is_stored() -> None:
    found = status(n1=refusing("no"), n2={"a": TAKEN})
    stored = json.loads(json.dumps(to_json(found, {}, "first")))
    assert to_json(found, stored, "second") == stored


@pytest.mark.parametrize("conditions", [None, [None], [{"type": ACCEPTED}]])
def test_a_status_that_others_wrote_is_replaced(conditions: Any) -> None:
    stored = to_json(status(n1={"a": TAKEN}), {"conditions": conditions}, "now")
    assert {each["lastTransitionTime"] for each in stored["conditions"]} == {"now"}


def test_resources_that_the_agents_file_has_are_named() -> None:
    _, _, message = status(n1={"a": {**TAKEN, "replaces": [GPU]}}, n2={"a": TAKEN}).conditions[ACCEPTED]
    assert message == f"taken by 2 nodes; takes the place of agents.config.plugins for {GPU}"


HERE, THERE = "spec.plugins.generic[0].groups[0] (/dev/a)", "spec.plugins.generic[0].groups[1] (/dev/b)"


def without(*places: str) -> dict[str, Any]:
    return {"a": {**TAKEN, "unmatched": [*places]}}


@pytest.mark.parametrize(
    ("by_node", "state", "words"),
    [
        ({}, "Unknown", "no agent has taken it"),
        ({"n1": without(HERE), "n2": without(HERE, THERE)}, "False", f"no node has a device of {HERE}: connect"),
        ({"n1": without(HERE), "n2": without(THERE)}, "True", "each group"),
        ({"n1": without(HERE), "n2": refusing("no")}, "False", f"no node has a device of {HERE}"),
        ({"n1": without(HERE), "n2": {"a": {**TAKEN, "unmatched": None}}}, "Unknown", "not all agents have scanned"),
        ({"n1": without(HERE), "n2": {"a": {"generation": 1}}}, "Unknown", "not all agents have scanned"),
        ({"n1": refusing("no")}, "Unknown", "no agent has taken it"),
        ({"n1": without(*(f"{number:0300}" for number in range(9)))}, "False", " and 6 more: connect"),
    ],
)
def test_a_group_without_a_device_on_any_node_is_a_condition(by_node: dict[str, Any], state: str, words: str) -> None:
    found, _, message = status(**by_node).conditions[ConfigCondition.DEVICES_FOUND]
    assert found == state
    assert words in message
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {"n1": {"a": {"generation": 1}}}, []),
        ({}, {"n1": {"a": TAKEN}}, [("Normal", ConfigReason.TAKEN)]),
        ({"n1": {"a": TAKEN}}, {"n1": {"a": TAKEN}, "n2": {"a": TAKEN}}, []),
        ({"n1": {"a": TAKEN}}, {"n1": refusing("no")}, [("Warning", ConfigReason.REFUSED)]),
        ({"n1": {"a": TAKEN}}, LOST, [("Warning", ConfigReason.RESOURCE_TAKEN)]),
        (LOST, {"n1": {"a": TAKEN}}, [("Normal", ConfigReason.NO_OTHER)]),
        ({"n1": {"a": TAKEN}}, {"n1": {"a": {**TAKEN, "unmatched": ["/dev/x"]}}}, [("Warning", ConfigReason.NO_MATCH)]),
    ],
)
def test_a_result_is_an_event_when_its_reason_changes(
    before: dict[str, Any], now: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    stored = to_json(status(**before), {}, "then")["conditions"] if before else ()
    conditions = to_json(status(**now), {}, "now")["conditions"]
    found = [*results(stored, conditions)]
    assert [(event_type, reason) for event_type, reason, _ in found] == expected
    messages = {each["reason"]: each["message"] for each in conditions}
    assert all(message == messages[reason] for _, reason, message in found)


def conflict(name: str, /, **by_node: Any) -> tuple[str, str, str]:
    return status(name, **by_node).conditions[ConfigCondition.CONFLICT]


def losing(winner: str, *resources: str) -> dict[str, Any]:
    return {**TAKEN, "lost": dict.fromkeys(resources, winner)}


def test_no_conflict_without_another_configuration() -> None:
    by_node = {"n1": {"a": TAKEN, "b": losing("a", GPU), "c": TAKEN}}
    assert conflict("c", **by_node)[:2] == conflict("c")[:2] == ("False", ConfigReason.NO_OTHER)


def test_both_in_a_conflict_name_the_number_of_nodes() -> None:
    nodes = {f"n{i}": {"a": TAKEN, "b": losing("a", GPU)} for i in range(3)}
    status_, reason, message = conflict("b", **nodes)
    assert (status_, reason) == ("True", ConfigReason.RESOURCE_TAKEN)
    assert message.startswith(f"a has {GPU} on 3 nodes: ")
    status_, reason, message = conflict("a", **nodes)
    assert (status_, reason) == ("True", ConfigReason.RESOURCE_WON)
    assert message.startswith(f"b names {GPU} on 3 nodes, ")
    # what was lost comes before what was won
    nodes = {"n1": {"a": losing("b", GPU), "b": losing("a", NIC)}}
    assert conflict("a", **nodes)[1] == conflict("b", **nodes)[1] == ConfigReason.RESOURCE_TAKEN


def test_a_conflict_names_the_most_frequent_three() -> None:
    nodes = {f"n{i}": {"a": losing("b", *(f"example.com/r{j}" for j in range(i, 6)))} for i in range(6)}
    message = conflict("a", **nodes)[2]
    assert [f"example.com/r{i}" in message for i in range(6)] == [False, False, False, True, True, True]
    assert message.index("r5 on 6 nodes") < message.index("r4 on 5 nodes") < message.index("r3 on 4 nodes")
