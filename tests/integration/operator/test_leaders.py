"""Two operators on a real API server: one writes, the other is warm; and who follows whom, however the first one ends.

How long that takes is measured by `make bench-operator`.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_api.names import ConfigCondition, ConfigReason

from tests.cluster.agent_objects import now_text
from tests.cluster.api import Lease
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator.test_configs import Fleet
from tests.integration.operator_process import OperatorProcess, PlayedNode, audited

_CREDENTIAL = "authentication.kubernetes.io/credential-id"
_STOPS = 3


Pair = tuple[OperatorProcess, OperatorProcess]


@pytest.fixture
def pair(installed: ControlPlane, tmp_path: Path) -> Iterator[Pair]:
    """Two operators, the first of which leads; both have seen everything."""
    first, second = (OperatorProcess(installed, tmp_path / name) for name in ("first", "second"))
    try:
        first.start()
        wait_until(lambda: first.leads, "the first leads")
        second.start()
        yield first, second
    finally:
        second.close()
        first.close()


@pytest.fixture
def node(installed: ControlPlane) -> Iterator[PlayedNode]:
    with PlayedNode(installed) as made:
        made.make()
        made.renew_lease()
        yield made


def lease(control_plane: ControlPlane) -> Any:
    """The Lease of the operator that leads."""
    found = control_plane.client.get(Lease, names.OPERATOR_LEASE, namespace=SYSTEM_NAMESPACE)
    return found.spec


def writes_of(control_plane: ControlPlane, operator: OperatorProcess, since: str = "") -> list[dict[str, Any]]:
    """Write requests with that process's token, its own Lease included, that came in after a moment in the API's own form."""
    return [
        event
        for event in audited(control_plane, operator.credential)
        if operator.credential in event["user"].get("extra", {}).get(_CREDENTIAL, [])
        and event["verb"] in {"create", "update", "patch", "delete"}
        and event["requestReceivedTimestamp"] > since
    ]


def test_one_writes_and_the_other_is_ready(installed: ControlPlane, pair: Pair, node: PlayedNode) -> None:
    first, second = pair
    fleet = Fleet(installed)
    with contextlib.closing(fleet):
        fleet.configure("a")
        fleet.report("n1", a={"generation": 1})
        # a status of the controller, and an Event that a handler of kopf posts
        fleet.until("a", ConfigCondition.ACCEPTED, "True", ConfigReason.TAKEN)
        wait_until(lambda: fleet.events("a") == [ConfigReason.TAKEN], "there is one Event")
    for healthy in (4, 3, 2):
        node.advertise(healthy)
    node.wait_condition("Ready", "True")
    assert (first.leads, second.leads) == (True, False)
    assert second.get("/readyz")[0] == 200
    assert [line["event"] for line in second.lines() if "stand" in line["event"]] == ["standing by"]
    assert writes_of(installed, first)
    assert writes_of(installed, second) == []


def test_after_a_crash_the_other_goes_on(pair: Pair, node: PlayedNode) -> None:
    first, second = pair
    node.settle()
    first.signal(signal.SIGKILL)
    node.advertise(3, broken=1)
    wait_until(lambda: second.leads, "the second leads")
    # what it writes it had in its caches: it listed nothing again
    listed = [line["kind"] for line in second.lines() if line["event"] == "list is complete"]
    assert sorted(listed) == ["leases", "nodedevices", "nodes", "poddevices"]
    node.wait_condition("Ready", "True", names.Reason.SOME_UNHEALTHY)


def test_after_a_clean_end_the_other_goes_on_at_once(installed: ControlPlane, pair: Pair, node: PlayedNode) -> None:
    first, second = pair
    node.settle()
    before = lease(installed).holderIdentity
    first.signal(signal.SIGTERM)
    node.advertise(2, broken=2)
    # the first may have written that while the signal was on its way
    wait_until(lambda: second.leads, "the second leads")
    assert lease(installed).holderIdentity not in {before, None}
    assert first.wait_ended() == 0
    assert first.logged("error", "warning") == []


def stood_by(operator: OperatorProcess) -> int:
    """How often it has given up the lead, or begun without it."""
    return sum(line["event"] == "standing by" for line in operator.lines())


@contextlib.contextmanager
def storm(nodes: list[PlayedNode]) -> Iterator[None]:
    """Every node's numbers change all the time."""
    is_over = threading.Event()

    def change() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            nodes[number % len(nodes)].publish(healthy=1 + number % 7)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def stop_past_its_deadline(installed: ControlPlane, leader: OperatorProcess, other: OperatorProcess) -> str:
    """Amid its writes, until the other leads; when it went on, as the audit log writes it."""
    written = len(writes_of(installed, leader))
    wait_until(lambda: len(writes_of(installed, leader)) > written + 20, "it is amid writes")
    leader.signal(signal.SIGSTOP)
    wait_until(lambda: other.leads, "the other leads")
    awake, before = now_text(), stood_by(leader)
    leader.signal(signal.SIGCONT)
    wait_until(lambda: stood_by(leader) > before, "it knows that it leads no more")
    return awake


def test_one_that_was_stopped_past_its_deadline_writes_nothing_more(installed: ControlPlane, pair: Pair) -> None:
    leader, other = pair
    with contextlib.ExitStack() as made:
        nodes = [made.enter_context(PlayedNode(installed)) for _ in range(4)]
        for node in nodes:
            node.make()
            node.renew_lease()
            node.advertise(1)
        for _ in range(_STOPS):
            with storm(nodes):
                awake = stop_past_its_deadline(installed, leader, other)
            late = writes_of(installed, leader, awake)
            # what came in, and when
            assert [(e["verb"], e["requestURI"], e["requestReceivedTimestamp"], awake) for e in late] == []
            assert not leader.leads
            leader, other = other, leader
        for node in nodes:
            node.advertise(6)
