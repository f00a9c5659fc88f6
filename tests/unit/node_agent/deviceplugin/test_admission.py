"""Plugins that register ever more names or connections: what they get, and that nobody else is refused for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
from nodedevice_agent.devicemanager import registration, resource_name_limit
from nodedevice_agent.devicemanager.registration import MAX_CONNECTIONS_OF_A_NAME
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.errors import PluginFailed
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.background import background
from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.polling import until
from tests.unit.node_agent.deviceplugin.conftest import Start

MANY, FEW = "many.example.com", "few.example.com"


@pytest.fixture
async def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostedManager]:
    """With room for four names."""
    monkeypatch.setattr(resource_name_limit, "MAX_NAMES", 4)
    async with hosted(tmp_path) as manager:
        manager.pods()
        manager.host.bound_names()
        yield manager


@pytest.fixture
async def many(join: Start) -> list[FakePlugin]:
    """They fill it."""
    return [await join(f"{MANY}/r{number}") for number in range(4)]


@pytest.mark.usefixtures("many")
async def test_one_name_more_is_refused_without_being_dialled(manager: HostedManager, start: Start) -> None:
    one_more = await start(f"{MANY}/one-more")
    with pytest.raises(grpc.aio.AioRpcError, match=f"4 of {MANY}") as refused:
        await one_more.register()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    # announced in the registry it is tried again, as anything is that may pass
    with pytest.raises(PluginFailed, match=f"4 of {MANY}"):
        await manager.host.connect(one_more.resource_name, one_more.socket_path)
    assert one_more.calls == []
    assert one_more.resource_name not in manager.manager.resources


async def test_a_domain_with_fewer_names_gets_the_place_of_the_newest(
    manager: HostedManager, many: list[FakePlugin], start: Start, join: Start, caplog: pytest.LogCaptureFixture
) -> None:
    given_up: list[tuple[list[str], str]] = []
    manager.manager.places.displace_others = lambda names, by: given_up.append(([*names], by))
    *others, loser = many
    new = await join(f"{FEW}/new")
    await loser.wait_for_streams(0)
    assert given_up == [([loser.resource_name], new.resource_name)]
    resource = manager.manager.resources[loser.resource_name]
    assert (resource.presence.state, resource.presence.lost_to) == (EndpointState.GONE, new.resource_name)
    assert [plugin.streams for plugin in others] == [1, 1, 1]
    (logged,) = (r for r in caplog.records if r.getMessage().startswith("resource name has lost its place"))
    assert (vars(logged)["resource_name"], vars(logged)["taken_by"]) == (loser.resource_name, new.resource_name)
    with pytest.raises(grpc.aio.AioRpcError, match=f"{FEW}/new has its place"):
        await loser.register()
    # until its NodeDevice is deleted it is known, and no other place is given away
    with pytest.raises(grpc.aio.AioRpcError, match="5 resource names"):
        await (await start(f"{FEW}/another")).register()
    manager.manager.forget(loser.resource_name)
    with pytest.raises(grpc.aio.AioRpcError, match=f"{FEW}/new has its place"):
        await loser.register()


@pytest.mark.usefixtures("many")
async def test_one_that_answers_when_its_place_is_another_ones_is_refused(manager: HostedManager, start: Start) -> None:
    late, new = await start(f"{FEW}/late"), await start("other.example.com/new")
    gate = late.knobs.options_gate = asyncio.Event()
    registering = asyncio.create_task(late.register())
    await late.wait_for_calls("GetDevicePluginOptions")
    await new.register()
    gate.set()
    with pytest.raises(grpc.aio.AioRpcError, match="this node has 5 resource names"):
        await registering
    assert late.resource_name not in manager.manager.resources


async def test_a_plugin_that_hangs_takes_nobodys_place(
    manager: HostedManager, many: list[FakePlugin], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "MAX_OPENING", 2)
    hanging = [await start(f"{FEW}/hangs-{number}") for number in range(3)]
    async with AsyncExitStack() as waiting:
        for plugin in hanging[:2]:
            plugin.knobs.options_gate = asyncio.Event()
            await waiting.enter_async_context(background(plugin.register()))
            await plugin.wait_for_calls("GetDevicePluginOptions")
        with pytest.raises(grpc.aio.AioRpcError, match="stop plugins that hang"):
            await hanging[2].register()
        # names that have their places are not refused for that, and lose nothing
        await many[-1].register()
        assert [plugin.streams for plugin in many[:-1]] == [1, 1, 1]
        assert not any(resource.presence.lost_to for resource in manager.manager.resources.values())


class Mute(FakePlugin):
    """Lists nothing, so its older connections are not replaced by newer ones."""

    async def lists(self) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        await asyncio.Event().wait()
        yield api_pb2.ListAndWatchResponse()


@pytest.mark.parametrize("kind", [FakePlugin, Mute])
async def test_a_name_that_registers_without_end_is_never_refused_and_keeps_few_connections(
    manager: HostedManager, kind: type[FakePlugin]
) -> None:
    plugin = kind(f"{MANY}/r0", {"d0": FakeDevice()})
    await plugin.start(manager.plugin_dir)
    for _ in range(3 * MAX_CONNECTIONS_OF_A_NAME):
        await plugin.register()
    connections = manager.manager.resources[plugin.resource_name].connections
    await until(lambda: 0 < len(connections.sockets()) <= MAX_CONNECTIONS_OF_A_NAME)
    await plugin.stop()


async def test_names_from_before_there_was_a_lower_bound_go(
    manager: HostedManager, many: list[FakePlugin], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource_name_limit, "MAX_NAMES", 2)
    manager.host.bound_names()
    for plugin in many[2:]:
        await plugin.wait_for_streams(0)
    assert [r.presence.lost_to for r in manager.manager.resources.values()] == [None, None, "", ""]
    (logged,) = (r for r in caplog.records if r.getMessage().startswith("this node has too many resource names"))
    assert vars(logged)["count"] == 2
