"""`--delivery kubelet` against the kubelet's own device manager: real registration, admission and checkpoint.

The kubelet's code admits pods: it calls our endpoint, which calls the plugin. The agent reads the allocations from the checkpoint
that the kubelet's code has written.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.kubelet.backend import endpoint_name
from nodedevice_api.names import Reason

from tests.fakes.hosted_manager import Mirroring, mirroring, pod
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.pod_resources import AssignedDevices, PodResources
from tests.oracle.kubelet import Kubelet, way_to_mount
from tests.oracle.steps import Ctr, Machine

GPU = "example.com/gpu"
pytestmark = pytest.mark.cluster


class Node:
    """A kubelet, its pod resources, an agent that mirrors it, and a plugin that is registered with the agent."""

    def __init__(self, kubelet: Kubelet, resources: PodResources, agent: Mirroring) -> None:
        self.kubelet, self.resources, self.agent = kubelet, resources, agent

    async def plugin(self, devices: int | dict[str, FakeDevice], **options: Any) -> FakePlugin:
        if isinstance(devices, int):
            devices = {f"d{index}": FakeDevice() for index in range(devices)}
        self.fake = FakePlugin(GPU, devices, **options)
        await self.agent.register(self.fake)
        return self.fake

    async def counted_plugin(self, devices: int, **options: bool) -> FakePlugin:
        """One of healthy devices, which the kubelet counts."""
        found = await self.plugin(devices, **options)
        await self.until_numbers(devices, devices)
        return found

    async def until_numbers(self, capacity: int, allocatable: int) -> None:
        await self.kubelet.until_numbers(GPU, capacity, allocatable)

    async def until_held(self, **expected: tuple[str, ...]) -> None:
        """Until the agent reports these devices for the pods' first containers, and no others."""
        wanted = {f"{uid}/c0": ids for uid, ids in expected.items()}
        await self.agent.until(lambda: self.agent.held(GPU) == wanted)

    async def runs(self, uid: str, device_id: str) -> None:
        """A pod of one device, this one: admitted, known to the API, and reported. No other pod holds any."""
        await self.kubelet.admit(uid, [Ctr(limits={GPU: 1})])
        self.agent.pod_seen(pod(uid, GPU, 1))
        await self.until_held(**{uid: (device_id,)})

    async def restart_kubelet(self) -> None:
        await self.kubelet.stop()
        await self.kubelet.start(Machine())


@pytest.fixture
async def kubelet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Path, Kubelet]]:
    way = way_to_mount()
    if way is None:
        pytest.skip("the kubelet's device manager needs a mount namespace: run as root, or allow user namespaces")
    folder = tmp_path_factory.mktemp("m")
    plugin_dir = folder / "k/device-plugins"
    plugin_dir.mkdir(parents=True)
    async with Kubelet(plugin_dir, way) as kubelet:
        await kubelet.start(Machine())
        yield folder, kubelet


@pytest.fixture
async def node(kubelet: tuple[Path, Kubelet]) -> AsyncIterator[Node]:
    folder, oracle = kubelet
    async with PodResources(folder / "k/pod-resources/kubelet.sock") as resources, mirroring(folder) as agent:
        agent.pods()
        found = Node(oracle, resources, agent)
        yield found
        if hasattr(found, "fake"):
            await found.fake.stop()


async def test_the_kubelet_counts_what_is_registered_here(node: Node) -> None:
    await node.plugin({"d0": FakeDevice(), "d1": FakeDevice(healthy=False), "d2": FakeDevice()})
    await node.until_numbers(3, 2)
    assert await node.agent.until_standing(GPU, Reason.KUBELET_REGISTERED)
    assert (node.kubelet.plugin_dir / endpoint_name(GPU)).is_socket()
    await node.fake.set_health("d2", False)
    await node.until_numbers(3, 1)


async def test_a_pod_gets_the_response_of_the_plugin_for_its_devices(node: Node) -> None:
    plugin = await node.counted_plugin(3)
    assert (await node.kubelet.admit("one", [Ctr(limits={GPU: 2})])).is_admitted
    assert [call.device_ids for call in plugin.calls_of("Allocate")] == [("d0", "d1")]
    # the kubelet is quicker than the API: nobody is named before
    node.agent.pod_seen(pod("one", GPU, 2))
    await node.until_held(one=("d0", "d1"))
    seen = node.agent.snapshot(GPU)
    assert (seen.total, seen.allocated, seen.available) == (3, 2, 1)
    (held,) = seen.held
    assert held.pod is not None
    assert held.pod.name == "one"
    assert b"FAKE_DEVICES" in (held.allocation.response or b"")


async def test_a_pod_that_ended_holds_nothing_although_the_kubelet_keeps_its_entry(node: Node) -> None:
    await node.counted_plugin(1)
    await node.runs("one", "d0")
    node.agent.pod_gone("one")
    await node.until_held()
    assert b'"one"' in node.kubelet.checkpoint.read_bytes()
    # and the next pod, which makes the kubelet forget it, is seen with the same device
    await node.kubelet.end("one")
    await node.runs("two", "d0")


async def test_the_kubelet_restarts(node: Node) -> None:
    await node.counted_plugin(2)
    await node.runs("one", "d0")
    await node.restart_kubelet()
    await node.until_numbers(2, 2)
    await node.until_held(one=("d0",))
    assert await node.agent.until_standing(GPU, Reason.KUBELET_REGISTERED)


async def test_a_pod_that_the_api_does_not_show_is_named_as_the_kubelet_names_it(node: Node) -> None:
    await node.counted_plugin(2)
    node.resources.assigned = [AssignedDevices("kube-system", "static", "c0", GPU, {"d0": (0,)})]
    await node.kubelet.admit("uid", [Ctr(limits={GPU: 1})])
    await node.until_held(uid=("d0",))
    (held,) = node.agent.snapshot(GPU).held
    assert held.pod is not None
    assert (held.pod.namespace, held.pod.name) == ("kube-system", "static")
    # it ends unseen: with the next word about any pods the kubelet is asked again
    node.resources.assigned = []
    node.agent.pods()
    await node.until_held()


async def test_a_checkpoint_that_cannot_be_read_leaves_the_names(node: Node) -> None:
    await node.counted_plugin(2)
    node.agent.pod_seen(pod("one", GPU, 1))
    node.resources.assigned = [AssignedDevices("default", "one", "c0", GPU, {"d1": ()})]
    node.kubelet.checkpoint.write_bytes(b"{broken")
    node.kubelet.checkpoint.rename(node.kubelet.checkpoint.with_name("x")).rename(node.kubelet.checkpoint)
    await node.until_held(one=("d1",))
    assert "cannot be used (not JSON" in node.agent.backend.notes
    # the kubelet writes a good one with the next pod
    assert (await node.kubelet.admit("two", [Ctr(limits={GPU: 1})])).is_admitted
    node.agent.pod_seen(pod("two", GPU, 1))
    await node.until_held(two=("d0",))
    assert node.agent.backend.notes == ""
