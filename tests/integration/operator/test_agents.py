"""Agents that fall silent, on a real API server: what is reported, what is withdrawn, and that all comes back with them."""

import contextlib
import json
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from nodedevice_api import names

from tests.cluster.agent_objects import now_text
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy, refusal
from tests.integration.operator_process import GPU, OperatorProcess, PlayedNode, PlayNode, operator_writes

# A Lease that runs out soon.
_SHORT_SECONDS = 2
HELD = {"podUID": "uid-a", "container": "main", "deviceIDs": ["gpu-0"]}


@pytest.fixture
def operator(installed: ControlPlane, tmp_path: Path) -> Iterator[OperatorProcess]:
    running = OperatorProcess(installed, tmp_path, "--agent-grace-seconds", "1", "--agent-poll-seconds", "1")
    running.start()
    yield running
    running.close()


@pytest.fixture
def played(installed: ControlPlane, operator: OperatorProcess) -> Iterator[PlayNode]:
    with contextlib.ExitStack() as made:
        yield lambda: made.enter_context(PlayedNode(installed)).settle(allocations=[HELD])


def fall_silent(node: PlayedNode) -> None:
    node.renew_lease(_SHORT_SECONDS)


def fall_silent_together(operator: OperatorProcess, nodes: Sequence[PlayedNode]) -> None:
    """In the same check of the Leases: the operator is paused while they are written, which takes as long as it takes."""
    operator.signal(signal.SIGSTOP)
    for node in nodes:
        fall_silent(node)
    operator.signal(signal.SIGCONT)


def polls(control_plane: ControlPlane) -> int:
    """How often the agents' Leases were listed so far."""
    path = f"/namespaces/{names.AGENTS_NAMESPACE}/leases?"
    return sum(event["verb"] == "list" and path in event["requestURI"] for event in control_plane.audit_events())


def delete_leases(control_plane: ControlPlane, *nodes: PlayedNode) -> None:
    """As somebody does who tidies up; the operator has seen them as they are now."""
    seen = polls(control_plane)
    # one check may have begun before the last renewal
    wait_until(lambda: polls(control_plane) >= seen + 2, "the Leases were checked")
    control_plane.kubectl("delete", "lease", "-n", names.AGENTS_NAMESPACE, *(node.name for node in nodes))


def agents(operator: OperatorProcess, state: str) -> float:
    return operator.metric(f'nodedevice_operator_agents{{state="{state}"}}')


def test_free_devices_go_and_come_with_it(installed: ControlPlane, operator: OperatorProcess, played: PlayNode) -> None:
    node = played()
    fall_silent(node)
    node.wait_condition("AgentReady", "Unknown", names.Reason.LEASE_EXPIRED)
    node.wait_condition("Ready", "False", names.Reason.LEASE_EXPIRED)
    messages = node.wait_events(names.Reason.LEASE_EXPIRED, about=node.nd_name())
    assert "check whether it runs on this node" in messages[0]
    node.wait_shown(1)
    node.wait_condition("Advertised", "True", names.Reason.FREE_WITHDRAWN)
    node.wait_events(names.Reason.FREE_WITHDRAWN, about=node.nd_name())
    assert agents(operator, "withdrawn") == 1

    # a restart of ours is no sign of life of theirs
    written = len(operator_writes(installed, node.name))
    operator.stop()
    operator.start()
    wait_until(lambda: agents(operator, "withdrawn") == 1, "the Leases were checked")
    # a node that is new by then is reconciled after those that were there
    wait_until(lambda: operator.leads, "it leads")
    played()
    assert node.shown() == ("1", "1")
    assert len(operator_writes(installed, node.name)) == written

    node.renew_lease()
    node.wait_shown(4)
    node.wait_condition("Ready", "True")
    assert "offered again" in node.wait_events(names.Reason.LEASE_RENEWED, about=node.nd_name())[0]
    assert len(node.events(names.Reason.LEASE_EXPIRED, about=node.nd_name())) == 1
    assert len(node.events(names.Reason.FREE_WITHDRAWN, about=node.nd_name())) == 1


def test_many_together_are_no_fault_of_theirs(
    installed: ControlPlane, operator: OperatorProcess, played: PlayNode
) -> None:
    nodes = [played() for _ in range(3)]
    fall_silent_together(operator, nodes)
    for node in nodes:
        node.wait_condition("AgentReady", "Unknown", names.Reason.LEASES_EXPIRED_TOGETHER)
    messages = nodes[0].wait_events("ManyAgentLeasesExpired", about=names.AGENTS_NAMESPACE)
    # beside nodes of other tests that the garbage collector has not got to yet
    assert re.match(r"3 of \d+ agents", messages[0])
    seen = polls(installed)
    # as many checks as the grace takes, and more
    wait_until(lambda: polls(installed) >= seen + 4, "the Leases were checked again")
    assert [node.shown() for node in nodes] == [("4", "4")] * 3
    assert nodes[0].events(names.Reason.LEASE_EXPIRED, about=nodes[0].nd_name()) == []
    for node in nodes:
        node.renew_lease()
    for node in nodes:
        node.wait_condition("Ready", "True")
    nodes[0].wait_events("ManyAgentLeasesExpiredEnded", about=names.AGENTS_NAMESPACE)


def test_a_lease_that_is_deleted_is_one_that_is_not_renewed(installed: ControlPlane, played: PlayNode) -> None:
    node = played()
    fall_silent(node)
    delete_leases(installed, node)
    node.wait_condition("AgentReady", "Unknown", names.Reason.LEASE_EXPIRED)
    # it may have run out before it was deleted
    wait_until(
        lambda: "which is gone" in node.wait_condition("Ready", "False", names.Reason.LEASE_EXPIRED)["message"],
        "it is reported that the Lease is gone",
    )
    node.wait_events(names.Reason.LEASE_EXPIRED, about=node.nd_name())
    node.renew_lease()
    node.wait_condition("Ready", "True")
    node.wait_events(names.Reason.LEASE_RENEWED, about=node.nd_name())
    assert node.events(names.Reason.LEASE_MISSING, about=node.nd_name()) == []


def test_that_the_leases_cannot_be_listed_at_first_is_no_word_about_agents(
    installed: ControlPlane, operator: OperatorProcess, played: PlayNode, proxy: FaultProxy
) -> None:
    node, other = played(), played()
    operator.stop()
    lived = {each.name: each.conditions()["AgentReady"] for each in (node, other)}
    path = f"/namespaces/{names.AGENTS_NAMESPACE}/leases"
    refused = proxy.rule("GET", path, 3, 429, refusal(429, "TooManyRequests", "later"), {"Retry-After": "1"})
    operator.reach_by(proxy.url)
    for each in (node, other):
        each.renew_lease()
    since, seen = now_text(), polls(installed)
    operator.start()
    wait_until(lambda: refused.given > 0, "the Leases were asked for")
    # numbers go on meanwhile; also that the other node was checked is known then
    node.advertise(3, broken=1, allocations=[HELD])
    wait_until(lambda: polls(installed) > seen, "the Leases were listed")
    other.advertise(2, broken=2, allocations=[HELD])
    other.wait_condition("Ready", "True", names.Reason.SOME_UNHEALTHY)
    assert {each.name: each.conditions()["AgentReady"] for each in (node, other)} == lived
    for each in (node, other):
        # for the change alone: the Node's numbers, and the reason of Ready
        assert len(operator_writes(installed, each.name, since)) == 2
        assert each.events(names.Reason.LEASE_MISSING, about=each.nd_name()) == []


def test_a_recreated_node_is_a_new_one(installed: ControlPlane, operator: OperatorProcess, played: PlayNode) -> None:
    node = played()
    fall_silent(node)
    node.wait_shown(1)
    old = node.uid
    node.remove(is_lease_kept=True)
    wait_until(lambda: agents(operator, "withdrawn") == 0, "the old one is forgotten")
    # its Lease is still there, run out: whoever deleted the Node did not delete that
    again = PlayedNode(installed, node.name)
    assert again.uid != old
    again.make()
    again.advertise(3)
    again.renew_lease()
    again.wait_condition("Ready", "True")
    assert json.dumps(again.conditions(GPU)).count(names.Reason.FREE_WITHDRAWN) == 0
