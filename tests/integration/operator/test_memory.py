"""What one node's token costs the operator: with the agent's real token, as much as the API server takes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodedevice_api import names

from hack.bench.operator.counts import peak_rss_mib
from tests.cluster import agent_objects
from tests.cluster.accounts import client_of_pod
from tests.cluster.api import Client, NodeDevice
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import allocation, apply_status, condition, device
from tests.integration.operator_process import OperatorProcess, PlayedNode

pytestmark = pytest.mark.cluster

MOST_MIB = 64


def many_short_ids() -> dict[str, Any]:
    """Device IDs of a few bytes: in Python, ten times as many."""
    held = [allocation(f"pod-{i:04}", "main", *(f"{n:02x}" for n in range(100))) for i in range(400)]
    return {"total": 0, "allocations": held}


def many_broken_devices() -> dict[str, Any]:
    """1.2 MB of devices that are not healthy."""
    broken = [device(f"{n:0128}", "Unhealthy", reason="x" * 100, message="m" * 300) for n in range(2000)]
    return {"total": len(broken), "devices": broken}


def many_words(number: int) -> dict[str, Any]:
    """64 KiB of pods that wait."""
    waiting = [
        {"podUID": f"{number}-{n}", "container": "main", "reason": "r" * 128, "message": f"{number} {n}".rjust(1000)}
        for n in range(48)
    ]
    message = f"of {number}".rjust(1000)
    return {
        "total": 0,
        "waiting": waiting,
        "conditions": [condition(kind, message=message) for kind in names.AGENT_CONDITIONS],
    }


@pytest.fixture
def evil(installed: ControlPlane) -> Iterator[tuple[PlayedNode, Client]]:
    """A node, and the token of the agent's pod there."""
    with PlayedNode(installed) as node:
        with client_of_pod(installed, SYSTEM_NAMESPACE, "nodedevice-agent", node.name) as client:
            yield node, client
        installed.kubectl("delete", "nodedevices", "--field-selector", f"spec.nodeName={node.name}", "--wait=false")


@pytest.fixture
def own(installed: ControlPlane, tmp_path: Path) -> Iterator[OperatorProcess]:
    running = OperatorProcess(installed, tmp_path)
    yield running
    running.close()


def test_objects_as_big_as_the_api_server_takes_cost_little(
    own: OperatorProcess, evil: tuple[PlayedNode, Client]
) -> None:
    node, token = evil
    own.start()
    before = own.rss_mib()
    shapes = [many_short_ids, many_broken_devices]
    for number in range(240):
        resource = f"example.com/r{number:04}"
        body = agent_objects.node_device(node.name, resource, node.uid)
        token.apply(NodeDevice.from_dict(body), field_manager=names.AGENT_FIELD_MANAGER, force=True)
        status = shapes[number % 2]() if number < 30 else many_words(number)
        apply_status(token, node.nd_name(resource), status)
    wait_until(lambda: "Ready" in node.conditions("example.com/r0239"), "the last one has its conditions", 120)
    while_running = peak_rss_mib(own.pid) - before
    own.stop()
    own.start()
    at_its_start = peak_rss_mib(own.pid) - before
    assert max(while_running, at_its_start) < MOST_MIB, (before, while_running, at_its_start)
