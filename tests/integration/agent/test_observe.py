"""What the kubelet's own device manager serves, published by agent and operator: a real API server, and the kubelet's own code."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from nodedevice_api import names
from nodedevice_api.names import Condition, Reason

from tests.cluster.api import Node
from tests.cluster.waiting import wait_until
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.pod_resources import AssignedDevices, PodResources
from tests.integration.agent_process import GPU, AgentNode, condition, holdings
from tests.integration.operator_process import OperatorProcess
from tests.oracle.kubelet import Kubelet
from tests.oracle.steps import Ctr


class ObservedNode:
    """A node whose kubelet serves GPUs, and an agent that serves none."""

    def __init__(self, node: AgentNode, kubelet: Kubelet, resources: PodResources) -> None:
        self.node, self.kubelet, self.resources = node, kubelet, resources
        self.directory = node.folder / "k/device-plugins"
        self._plugins: list[FakePlugin] = []

    async def plugin(self, *healthy: str, unhealthy: tuple[str, ...] = ()) -> FakePlugin:
        """Registers with the kubelet, which lists its devices."""
        devices = {i: FakeDevice() for i in healthy} | {i: FakeDevice(healthy=False) for i in unhealthy}
        plugin = FakePlugin(GPU, devices)
        self._plugins.append(plugin)
        await plugin.join(self.directory)
        await self.kubelet.until_numbers(GPU, len(devices), len(healthy))
        self.resources.allocatable = {GPU: dict.fromkeys(healthy, (0,))}
        return plugin

    async def lose(self, plugin: FakePlugin, device: str) -> None:
        known = (self.resources.allocatable or {})[GPU]
        self.resources.allocatable = {GPU: {i: n for i, n in known.items() if i != device}}
        await plugin.set_health(device, False)

    async def admitted(self, name: str) -> str:
        """A pod that the kubelet admits; the device that it gets there."""
        uid = await self.node.pod(name)
        assert (await self.kubelet.admit(uid, [Ctr(limits={GPU: 1})])).is_admitted
        [(device, _)] = (await self.kubelet.held())[uid, "c0", GPU].items()
        self.resources.assigned.append(AssignedDevices(self.node.namespace, name, "c0", GPU, {device: (0,)}))
        return device

    async def show(self, capacity: int, allocatable: int) -> None:
        """As the kubelet's status writes: its numbers in the Node."""
        status = {"status": {"capacity": {GPU: str(capacity)}, "allocatable": {GPU: str(allocatable)}}}
        await asyncio.to_thread(self.node.client.patch, Node.Status, self.node.name, status, field_manager="kubelet")

    async def close(self) -> None:
        for plugin in self._plugins:
            await plugin.stop()


@pytest.fixture
async def observed(agent_node: AgentNode, kubelet: Kubelet, pod_resources: PodResources) -> AsyncIterator[ObservedNode]:
    found = ObservedNode(agent_node, kubelet, pod_resources)
    yield found
    await found.close()


async def test_devices_and_holders_of_the_kubelet_are_published(observed: ObservedNode) -> None:
    await observed.plugin("a", "b")
    node = observed.node
    node.start_agent()
    seen = await node.until_numbers(total=2, allocated=0, available=2)
    assert (seen["agent"]["servedBy"], seen["agent"]["delivery"]) == (names.SERVED_BY_KUBELET, names.DELIVERY_KUBELET)
    for kind in (Condition.REGISTERED, Condition.INJECTABLE):
        assert (condition(seen, kind)["status"], condition(seen, kind)["reason"]) == ("True", Reason.SERVED_BY_KUBELET)
    device = await observed.admitted("one")
    seen = await node.until_numbers(total=2, allocated=1, available=1)
    assert holdings(seen) == {"one/c0": [device]}
    await node.delete_pod("one")
    await node.until_numbers(total=2, allocated=0, available=2)
    written = node.version()
    await asyncio.sleep(1.0)
    assert node.version() == written, "nothing is written while nothing changes"


async def test_a_device_that_breaks_is_shown_by_name_and_survives_a_restart(observed: ObservedNode) -> None:
    plugin = await observed.plugin("a", "b")
    node = observed.node
    node.start_agent()
    await node.until_numbers(total=2, allocated=0, available=2)
    await observed.lose(plugin, "b")
    for _ in range(2):
        seen = await node.until_numbers(total=2, allocated=0, available=1)
        broken = [(d["id"], d["reason"]) for d in seen["devices"] if d["health"] == "Unhealthy"]
        assert broken == [("b", Reason.NOT_ALLOCATABLE)]
        since = condition(seen, Condition.HEALTHY)["lastTransitionTime"]
        node.agent.kill()
        node.start_agent()
        await node.agent.until_logged("serving device plugins")
    assert condition(node.status(), Condition.HEALTHY)["lastTransitionTime"] == since


async def test_a_name_that_moves_between_the_kubelet_and_an_agent_keeps_its_object(observed: ObservedNode) -> None:
    theirs = await observed.plugin("a", "b")
    node = observed.node
    node.start_agent()
    await observed.node.until(lambda seen: seen["agent"]["servedBy"] == names.SERVED_BY_KUBELET)
    uid = node.object()["metadata"]["uid"]
    ours = await node.plugin(3)
    seen = await observed.node.until(lambda seen: seen["agent"]["servedBy"] == names.SERVED_BY_NODEDEVICE)
    assert seen["total"] == 3
    await ours.stop()
    seen = await observed.node.until(lambda seen: seen["agent"]["servedBy"] == names.SERVED_BY_KUBELET)
    assert (seen["total"], seen["available"]) == (2, 2)
    await theirs.stop()
    assert node.object()["metadata"]["uid"] == uid


async def test_nothing_is_observed_where_that_is_switched_off(observed: ObservedNode) -> None:
    await observed.plugin("a")
    observed.node.start_agent(None, "--no-observe")
    await observed.node.free_plugin(1, "example.com/nic")
    assert not observed.node.object()


async def test_the_operator_leaves_capacity_to_the_kubelet(observed: ObservedNode, operator: OperatorProcess) -> None:
    await observed.plugin("a", "b")
    node = observed.node
    node.start_agent()
    seen = await observed.node.until(
        lambda seen: condition(seen, Condition.ADVERTISED).get("reason") == Reason.SERVED_BY_KUBELET
    )
    assert condition(seen, Condition.ADVERTISED)["status"] == "False"
    await observed.show(2, 2)
    seen = await observed.node.until(lambda seen: condition(seen, Condition.READY)["status"] == "True")
    assert condition(seen, Condition.ADVERTISED)["status"] == "True"
    await observed.show(7, 5)
    await asyncio.sleep(1.0)
    status = (await asyncio.to_thread(node.client.get, Node, node.name)).status
    assert status is not None
    assert ((status.capacity or {})[GPU], (status.allocatable or {})[GPU]) == ("7", "5")
    await observed.admitted("one")

    def is_recorded() -> bool:
        found = node.control_plane.kubectl("get", "poddevices", "-n", node.namespace, "--output=name")
        return "poddevice.nodedevice.io/one" in found

    await asyncio.to_thread(wait_until, is_recorded, "the pod has a PodDevice")
