"""What a resource is advertised as to the kubelet: the last state, whatever happens while a long list is made."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.kubelet import backend as module
from nodedevice_agent.kubelet.advertised import Advertised, KubeletRegistration
from nodedevice_agent.kubelet.advertised import KubeletRegistrationState as State
from nodedevice_agent.kubelet.backend import KubeletBackend, KubeletEndpoint
from nodedevice_agent.lib.deviceplugin_server.registered_socket import RegistrationState
from nodedevice_agent.lib.deviceplugin_server.server import list_to_wire
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_common.threads import in_thread_if

from tests.fakes.background import background
from tests.fakes.settled import attributing
from tests.fakes.virtual_time import virtual_time

GPU = "example.com/gpu"


class Node:
    """One resource, and what the kubelet is offered of it."""

    def __init__(self) -> None:
        self.mirror = attributing(0.0)
        self.reported: list[str] = []
        backend = SimpleNamespace(manager=self.mirror, on_condition=self.reported.append, grace_seconds=1.0)
        self.endpoint = KubeletEndpoint(cast(KubeletBackend, backend), GPU)
        self.mirror.connected(GPU, 1, PluginOptions(), 0.0)
        self.mirror.table.cordoned(GPU, "uid", {}, 0.0)
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
        node.lists(module._MOST_IN_LOOP, healthy=False)
        assert node.endpoint.devices.latest == ()
        may_go_on.set()
        assert await node.offered() == (module._MOST_IN_LOOP, False)
    assert counts == [module._MOST_IN_LOOP + 1, module._MOST_IN_LOOP]
    assert lengths == [True, False]


async def test_changes_that_come_at_once_are_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    node, offers, messages = Node(), list[int](), list[int]()

    def counted(resource: Resource, *more: Any) -> tuple[Advertised | None, int] | None:
        offers.append(len(resource.devices))
        return offer(resource, *more)

    def made(devices: Sequence[PluginDevice]) -> api_pb2.ListAndWatchResponse:
        messages.append(len(devices))
        return list_to_wire(devices)

    offer = module._offer
    monkeypatch.setattr(module, "_offer", counted)
    monkeypatch.setattr(module, "list_to_wire", made)
    async with background(node.endpoint.keep_advertised()):
        for count in (1, 2, 3):
            node.lists(count)
        assert await node.offered() == (3, True)
        node.endpoint.resource_changed()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert (offers, messages) == ([3, 3], [3])
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


class TestRegistration:
    """What is shown of it; a kubelet that restarts may be away for a second."""

    @pytest.fixture
    async def node(self) -> AsyncIterator[Node]:
        made = Node()
        async with background(made.endpoint.keep_advertised()):
            yield made

    @pytest.fixture
    async def advertised(self, node: Node) -> Node:
        node.lists(1)
        await node.offered()
        return node

    async def test_before_a_list_nothing_is_advertised(self, node: Node) -> None:
        node.endpoint._reported(RegistrationState.REGISTERED, "")
        assert (node.endpoint.registration, node.reported) == (KubeletRegistration(State.NOT_ADVERTISED), [])
        assert node.endpoint.devices.latest == ()

    @pytest.mark.parametrize(
        ("reported", "shown"),
        [
            (RegistrationState.REGISTERED, State.REGISTERED),
            (RegistrationState.NO_MANAGER, State.UNREACHABLE),
            (RegistrationState.NO_DIRECTORY, State.UNREACHABLE),
            (RegistrationState.REFUSED, State.REFUSED),
            (RegistrationState.TAKEN, State.CANNOT_SERVE),
        ],
    )
    async def test_each_state_is_shown_once_with_its_cause(
        self, advertised: Node, reported: RegistrationState, shown: State
    ) -> None:
        for _ in range(2):
            advertised.endpoint._reported(reported, "why")
        assert (advertised.endpoint.registration, advertised.reported) == (KubeletRegistration(shown, "why"), [GPU])

    @virtual_time
    async def test_a_kubelet_that_is_back_in_time_was_never_away(self, advertised: Node) -> None:
        endpoint = advertised.endpoint
        endpoint._reported(RegistrationState.REGISTERED, "")
        for _ in range(2):
            for problem in ("no socket", "no directory"):
                endpoint._reported(RegistrationState.NO_MANAGER, problem)
            await asyncio.sleep(0.9)
            endpoint._reported(RegistrationState.REGISTERED, "")
            await asyncio.sleep(0.9)
        assert (endpoint.registration, advertised.reported) == (KubeletRegistration(State.REGISTERED), [GPU])

    @virtual_time
    async def test_one_that_stays_away_is_unreachable_a_while_after_the_first_report(self, advertised: Node) -> None:
        endpoint = advertised.endpoint
        endpoint._reported(RegistrationState.REGISTERED, "")
        endpoint._reported(RegistrationState.NO_MANAGER, "first")
        await asyncio.sleep(0.5)
        endpoint._reported(RegistrationState.NO_MANAGER, "second")
        await asyncio.sleep(0.4)
        assert endpoint.registration.state is State.REGISTERED
        await asyncio.sleep(0.2)
        assert endpoint.registration == KubeletRegistration(State.UNREACHABLE, "first")
        # from then on each report is shown
        endpoint._reported(RegistrationState.NO_MANAGER, "third")
        assert endpoint.registration == KubeletRegistration(State.UNREACHABLE, "third")
        assert advertised.reported == [GPU] * 3

    async def test_a_list_that_is_too_big_says_so_whatever_the_kubelet_reports(
        self, advertised: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MAX_LIST_BYTES", 100)
        advertised.lists(50)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        advertised.endpoint._reported(RegistrationState.REGISTERED, "")
        found = KubeletRegistration(State.LIST_TOO_BIG, "50 devices make a list of 790 bytes")
        assert (advertised.endpoint.registration, advertised.reported) == (found, [GPU])

    async def test_what_is_withdrawn_is_not_advertised_and_its_socket_ends(self, advertised: Node) -> None:
        advertised.endpoint._reported(RegistrationState.REGISTERED, "")
        over = asyncio.create_task(advertised.endpoint._until(lambda: not advertised.endpoint._is_advertised))
        advertised.mirror.table.disconnected(GPU, 1, 2.0)
        advertised.mirror.tick(1e6)
        advertised.endpoint.resource_changed()
        await over
        assert advertised.endpoint.registration == KubeletRegistration(State.NOT_ADVERTISED)

    @pytest.mark.parametrize(
        ("options", "is_called"),
        [
            pytest.param(PluginOptions(), False, id="as it wants"),
            pytest.param(PluginOptions(pre_start_required=True), True, id="as it wants to be called"),
            pytest.param(PluginOptions(scope=f"{BUILT_IN}test"), True, id="built-in: its response is checked"),
        ],
    )
    async def test_a_plugins_options_are_those_of_the_registration(
        self, node: Node, options: PluginOptions, is_called: bool
    ) -> None:
        node.mirror.connected(GPU, 2, options, 0.0)
        node.mirror.listed(GPU, 2, accept([Device("a")]), 1.0)
        node.endpoint.resource_changed()
        await node.offered()
        assert node.endpoint._options == api_pb2.DevicePluginOptions(
            pre_start_required=is_called, get_preferred_allocation_available=True
        )
