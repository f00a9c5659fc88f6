"""What a resource is advertised as to the kubelet: the last state, whatever happens while a long list is made."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.kubelet import backend as module
from nodedevice_agent.kubelet.advertised import Advertised
from nodedevice_agent.kubelet.backend import KubeletBackend, KubeletEndpoint
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.lib.deviceplugin_server.server import list_to_wire
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice
from nodedevice_common.threads import in_thread_if

from tests.fakes.background import background

GPU = "example.com/gpu"


class Node:
    """One resource, and what the kubelet is offered of it."""

    def __init__(self) -> None:
        self.mirror = Mirror(0.0)
        self.reported: list[str] = []
        backend = SimpleNamespace(mirror=self.mirror, on_condition=self.reported.append, grace_seconds=1.0)
        self.endpoint = KubeletEndpoint(cast(KubeletBackend, backend), GPU)
        self.mirror.connected(GPU, 1, PluginOptions(), 0.0)
        self.mirror.cordoned(GPU, "uid", {}, 0.0)
        self.now = 0.0

    def lists(self, count: int, *, healthy: bool = True) -> None:
        self.now += 1.0
        self.mirror.listed(GPU, 1, accept(Device(f"d{index}", healthy) for index in range(count)), self.now)
        self.endpoint.resource_changed()

    async def offered(self) -> tuple[int, bool]:
        """How many devices, and whether the first is healthy; of another list than before."""
        before = self.endpoint.devices.latest
        async with asyncio.timeout(60):
            while self.endpoint.devices.latest is before:
                await asyncio.sleep(0)
        latest = self.endpoint.devices.latest
        return len(latest), latest[0].is_healthy


async def test_a_change_while_a_long_list_is_made_is_advertised_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    node, is_made, may_go_on = Node(), asyncio.Event(), asyncio.Event()
    lengths: list[bool] = []
    counts: list[int] = []
    publish = node.endpoint.devices.publish

    def published(devices: Sequence[PluginDevice]) -> bool:
        counts.append(len(devices))
        return publish(devices)

    async def held(is_long: bool, run: Callable[[], object]) -> object:
        lengths.append(is_long)
        result = await in_thread_if(is_long, run)
        is_made.set()
        await may_go_on.wait()
        return result

    monkeypatch.setattr(module, "in_thread_if", held)
    monkeypatch.setattr(node.endpoint.devices, "publish", published)
    async with background(node.endpoint.keep_advertised()):
        node.lists(module._MOST_IN_LOOP + 1)
        await is_made.wait()
        node.lists(2, healthy=False)
        assert node.endpoint.devices.latest == ()
        may_go_on.set()
        assert await node.offered() == (2, False)
    assert counts == [module._MOST_IN_LOOP + 1, 2]
    assert lengths == [True, False]


async def test_changes_that_come_at_once_are_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    node, offers = Node(), list[int]()

    def counted(resource: Resource, before: Advertised | None) -> tuple[Advertised | None, int] | None:
        offers.append(len(resource.devices))
        return offer(resource, before)

    offer = module._offer
    monkeypatch.setattr(module, "_offer", counted)
    async with background(node.endpoint.keep_advertised()):
        for count in (1, 2, 3):
            node.lists(count)
        assert await node.offered() == (3, True)
        node.endpoint.resource_changed()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert offers == [3, 3]
    assert node.reported == []


async def test_a_list_that_the_kubelet_does_not_take_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LIST_BYTES", 100)
    node = Node()
    async with background(node.endpoint.keep_advertised()):
        node.lists(2)
        await node.offered()
        assert node.endpoint._is_advertised
        node.lists(50)
        async with asyncio.timeout(60):
            while not node.reported:
                await asyncio.sleep(0)
        assert "50 devices make a list of" in node.endpoint.registration.detail
        assert (len(node.endpoint.devices.latest), node.endpoint._is_advertised) == (2, False)


@pytest.mark.parametrize("less", [0, 1])
async def test_a_list_may_have_as_many_bytes_as_the_kubelet_takes(less: int, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    async with background(node.endpoint.keep_advertised()):
        node.lists(2)
        await node.offered()
        size = list_to_wire(node.endpoint.devices.latest).ByteSize()
        monkeypatch.setattr(module, "MAX_LIST_BYTES", size - less)
        node.lists(1)
        await node.offered()
        node.lists(2)
        async with asyncio.timeout(60):
            while len(node.endpoint.devices.latest) == 1 and not node.reported:
                await asyncio.sleep(0)
        assert len(node.endpoint.devices.latest) == 2 - less
