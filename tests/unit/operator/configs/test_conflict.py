"""Two configurations that name one resource on a node: shown on both."""

from typing import Any

from nodedevice_api.names import ConfigCondition, ConfigReason

from tests.unit.operator.configs.test_status import GPU, NIC, TAKEN, status


def conflict(name: str, /, **by_node: Any) -> tuple[str, str, str]:
    return status(name, **by_node).conditions[ConfigCondition.CONFLICT]


def losing(winner: str, *resources: str) -> dict[str, Any]:
    return {**TAKEN, "lost": dict.fromkeys(resources, winner)}


def test_none_without_another_one() -> None:
    by_node = {"n1": {"a": TAKEN, "b": losing("a", GPU), "c": TAKEN}}
    assert conflict("c", **by_node)[:2] == conflict("c")[:2] == ("False", ConfigReason.NO_OTHER)


def test_both_are_told_with_the_number_of_nodes() -> None:
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


def test_the_most_frequent_three_are_named() -> None:
    nodes = {f"n{i}": {"a": losing("b", *(f"example.com/r{j}" for j in range(i, 6)))} for i in range(6)}
    message = conflict("a", **nodes)[2]
    assert [f"example.com/r{i}" in message for i in range(6)] == [False, False, False, True, True, True]
    assert message.index("r5 on 6 nodes") < message.index("r4 on 5 nodes") < message.index("r3 on 4 nodes")
