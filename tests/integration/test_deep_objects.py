"""Objects that are nested thousands of levels deep, as an API server stores them for whoever may create them, end no program.

managedFields of an object are its creator's to write, and the API server keeps them as they come. There is one such object of each
kind that somebody reads here: on the node, on no node, and in every list. Agent, operator and extender start with all of them, and
get the same again over their watches.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_operator.kube.client import OWN

from tests.cluster.api import Node, NodeDeviceConfig
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.processes.loopback import fetch
from tests.cluster.waiting import wait_until
from tests.integration.agent_process import GPU, AgentNode, holdings, until
from tests.integration.configured_node import SIMULATED, ConfiguredNode
from tests.integration.crds.custom_resources import field_entry
from tests.integration.extender.extender_process import ExtenderProcess, GpuNode, make_pod
from tests.integration.operator_process import OperatorProcess

# more than a decoder takes by default, and nearly as many as the API server takes
DEPTHS = (1_100, 9_000)


class DeepObjects:
    """One of each kind, nested that deep; close() removes what no namespace takes with it."""

    def __init__(self, control_plane: ControlPlane, namespace: str, node: str, folder: Path) -> None:
        self._control_plane, self._namespace, self._node, self._folder = control_plane, namespace, node, folder
        self._others: list[tuple[str, str]] = []

    def make(self, name: str, depth: int) -> None:
        node, resource = f"{self._node}-{name}", f"example.com/{name}"
        here, leases = f"namespaces/{self._namespace}", f"namespaces/{names.AGENTS_NAMESPACE}/leases"
        pod = {"nodeName": self._node, "containers": [{"name": "main", "image": "none"}]}
        self._create(f"/api/v1/{here}/pods", "Pod", name, depth, pod)
        self._create("/api/v1/nodes", "Node", node, depth, {})
        for owner in (self._node, node):
            spec = {"nodeName": owner, "resourceName": resource}
            own = names.node_device_name(owner, resource)
            self._create(f"{OWN}/{names.NODE_DEVICES}", names.NODE_DEVICE, own, depth, spec)
        held = {"podUID": "u", "nodeName": node}
        self._create(f"{OWN}/{here}/{names.POD_DEVICES}", names.POD_DEVICE, name, depth, held)
        self._create(f"/apis/coordination.k8s.io/v1/{leases}", "Lease", node, depth, {"leaseDurationSeconds": 40})
        nowhere = {"nodeSelector": {"no": "node"}, "plugins": {}}
        self._create(f"{OWN}/{names.NODE_DEVICE_CONFIGS}", names.NODE_DEVICE_CONFIG, node, depth, nowhere)

    def _create(self, path: str, kind: str, name: str, depth: int, spec: dict[str, Any]) -> None:
        """By the text: no encoder of Python's writes that deep."""
        # what the path has between its root, and the namespace or the plural
        version = re.sub(r"^/apis?/|/(namespaces/[^/]+/)?[^/]+$", "", path)
        fields = '{"f:a":' * depth + "{}" + "}" * depth
        entry = field_entry("m", 0, version) | {"fieldsV1": "@"}
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "managedFields": [entry]}, "spec": spec}
        file = self._folder / "object.json"
        file.write_text(json.dumps(body).replace('"@"', fields))
        self._control_plane.kubectl("create", "--raw", path, "-f", str(file))
        self._others += [] if f"/namespaces/{self._namespace}/" in path else [(path, name)]

    def close(self) -> None:
        for path, name in self._others:
            self._control_plane.kubectl("delete", "--raw", f"{path}/{name}")


@pytest.fixture
def deep(installed: ControlPlane, agent_node: AgentNode, tmp_path: Path) -> Iterator[DeepObjects]:
    made = DeepObjects(installed, agent_node.namespace, agent_node.name, tmp_path)
    for depth in DEPTHS:
        made.make(f"before-{depth}", depth)
    yield made
    made.close()


@pytest.fixture
def operator(installed: ControlPlane, deep: DeepObjects, tmp_path: Path) -> Iterator[OperatorProcess]:
    with OperatorProcess(installed, tmp_path / "operator").running() as running:
        yield running
    running.verify_no_traceback()


@pytest.fixture
def extender(installed: ControlPlane, deep: DeepObjects, tmp_path: Path) -> Iterator[ExtenderProcess]:
    with ExtenderProcess(installed, tmp_path / "extender").active() as running:
        yield running


async def test_agent_and_operator_go_on(
    deep: DeepObjects, operator: OperatorProcess, configured: ConfiguredNode
) -> None:
    node = configured.node
    configured.start_agent()
    await node.free_plugin(2)
    await node.pod("one")
    await node.until(lambda seen: list(holdings(seen)) == ["one/c0"])
    await until(lambda: capacity(node) == {GPU: "2"}, lambda: f"capacity: {capacity(node)}")
    for depth in DEPTHS:
        await asyncio.to_thread(deep.make, f"after-{depth}", depth)
    # what comes after these comes over the same watches
    await node.pod("two")
    await node.until(lambda seen: sorted(holdings(seen)) == ["one/c0", "two/c0"])
    await configured.configure("good", {"simulated": [{"resourceName": SIMULATED, "count": 3}]})
    await until(lambda: capacity(node) == {GPU: "2", SIMULATED: "3"}, lambda: f"capacity: {capacity(node)}")
    await until(lambda: accepted(node, "good") == 1, operator.tail)
    assert node.agent.is_running
    assert operator.is_running
    # another start finds all of them
    assert await node.agent.stop() == 0
    configured.start_agent()
    await node.delete_pod("one")
    await node.until(lambda seen: list(holdings(seen)) == ["two/c0"])


def capacity(node: AgentNode) -> dict[str, str]:
    """Of extended resources, as the operator writes it; without those of the deep NodeDevices, which no agent serves."""
    found: Any = node.client.get(Node, node.name)
    return {k: v for k, v in found.status.capacity.items() if k in (GPU, SIMULATED)}


def accepted(node: AgentNode, name: str) -> int:
    found: Any = node.client.get(NodeDeviceConfig, f"{node.name}-{name}")
    return int(((found.to_dict().get("status") or {}).get("nodes") or {}).get("accepted", 0))


def test_extender_goes_on(
    installed: ControlPlane, deep: DeepObjects, extender: ExtenderProcess, namespace: str
) -> None:
    with GpuNode(installed) as gpus:
        gpus.settle_parts(8)
        pods = [make_pod(installed, namespace, f"pod-{i}", 2) for i in range(2)]
        fits = {"NodeNames": [gpus.name]}
        wait_until(lambda: fits.items() <= extender.filter(pods[0], gpus.name).items(), "the pod fits")
        for depth in DEPTHS:
            deep.make(f"later-{depth}", depth)
        assert extender.bind(pods[0], gpus.name) == (200, {"Error": ""})
        # kube-scheduler sends a pod as it is
        request = json.dumps({"Pod": pods[1].to_dict(), "NodeNames": [gpus.name]})
        entry = '{"manager":"m","fieldsV1":' + '{"f:a":' * 9_000 + "{}" + "}" * 9_000 + "}"
        request = request.replace('"metadata": {', f'"metadata": {{"managedFields":[{entry}],', 1)
        status, answer = fetch(f"http://{extender.verbs}/filter", body=request.encode())
        assert (status, f'"{gpus.name}"' in answer) == (200, True)
        assert extender.bind(pods[1], gpus.name) == (200, {"Error": ""})
