"""Nodes and Leases that nobody should send the operator: it takes nothing off a Node, and is right afterwards."""

import json
import time
from typing import Any

import pytest
from lightkube.resources.core_v1 import Node
from nodedevice_api import names

from tests.fakes.fault_proxy import FaultProxy
from tests.integration.operator_process import LogFromHere, PlayedNode


class TestNodes:
    """Nodes that no API server of today would send."""

    def test_one_that_is_not_understood(
        self, node: PlayedNode, bystander: PlayedNode, proxy: FaultProxy, logged: LogFromHere
    ) -> None:
        """It is left alone, and what names it too, until it is understood again; it is not taken for one that is gone."""
        found: Any = node.client.get(Node, node.name)
        odd = {**found.to_dict(), "status": {"capacity": ["eight"]}}
        for _ in range(2):
            assert proxy.send("nodes", json.dumps({"type": "MODIFIED", "object": odd}).encode() + b"\n") == 1
        assert logged.wait("cannot decode object; skipping it")["object"] == node.name
        before = node.conditions()["Advertised"]
        node.publish(healthy=3, broken=1)
        other = PlayedNode(node.control_plane).settle()
        other.verify_follows()
        other.remove()
        assert node.shown() == ("4", "4")
        assert node.conditions()["Advertised"] == before
        # a heartbeat of its kubelet is enough
        node.kubelet_writes(capacity={"cpu": "9"})
        node.wait_shown(3)
        node.verify_follows()
        assert len(logged.lines("cannot decode object; skipping it")) == 1


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_an_hour_off(node: PlayedNode, bystander: PlayedNode, hours: int) -> None:
    renew_lease(node, hours * 3600)
    node.verify_follows()
    # the next renewal comes from a clock that was put right
    renew_lease(node, 0)
    node.verify_follows()
    assert node.events(names.Reason.LEASE_EXPIRED, about=node.nd_name()) == []
    assert node.conditions()["AgentReady"]["status"] == "True"


def renew_lease(node: PlayedNode, ahead_seconds: int) -> None:
    """Renew the agent's Lease by a clock that is so far ahead."""
    moment = time.time() + ahead_seconds
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    renewed = f"{text}.{time.time_ns() // 1000 % 1000000:06d}Z"
    spec = {"holderIdentity": node.name, "leaseDurationSeconds": names.AGENT_LEASE_SECONDS, "renewTime": renewed}
    metadata = {"name": node.name, "namespace": names.AGENTS_NAMESPACE}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    node.control_plane.apply(json.dumps(lease))
