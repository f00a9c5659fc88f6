"""Agents that fall silent, on a real API server: what is reported, what is withdrawn, and that all comes back with them."""

import contextlib
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from nodedevice_api import names

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator_process import OperatorProcess, PlayedNode, PlayNode, operator_writes

# A Lease that runs out soon.
_SHORT_SECONDS = 2
HELD = {"podUID": "uid-a", "container": "main", "deviceIDs": ["gpu-0"]}


@pytest.fixture
def operator(installed: ControlPlane, tmp_path: Path) -> Iterator[OperatorProcess]:
    options = ("--agent-grace-seconds", "1", "--agent-poll-seconds", "1")
    with OperatorProcess(installed, tmp_path, *options).running() as running:
        yield running


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
