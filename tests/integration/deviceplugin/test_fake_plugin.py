"""The fake third-party plugin, as tests of the agent rely on it: in process with its knobs, and as a process to kill."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.device_manager import Manager
from tests.fakes.plugin import Call, FakeDevice, FakePlugin, Knobs, RpcFailure, StreamEnd, default_answer
from tests.fakes.plugin_process import plugin_process

RESOURCE = "example.com/fake"


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Manager]:
    manager = Manager(tmp_path)
    await manager.start()
    yield manager
    await manager.stop()


async def test_registers_again_after_a_wipe_and_leaves_its_socket_when_killed(manager: Manager, tmp_path: Path) -> None:
    async with plugin_process(tmp_path, RESOURCE, 2) as process:
        await manager.until_listed(RESOURCE, ["dev-0", "dev-1"])
        await manager.stop()
        manager.wipe()
        manager.lists.clear()
        await manager.start()
        await manager.until_listed(RESOURCE, ["dev-0", "dev-1"])
        process.send_signal(signal.SIGKILL)
        await process.wait()
        assert (tmp_path / manager.registrations[-1].endpoint).is_socket()


async def test_ends_cleanly_when_asked(manager: Manager, tmp_path: Path) -> None:
    async with plugin_process(tmp_path, RESOURCE, 2) as process:
        await manager.until_listed(RESOURCE, ["dev-0", "dev-1"])
        process.terminate()
        assert await process.wait() == 0
        assert not (tmp_path / manager.registrations[-1].endpoint).exists()


@pytest.fixture
async def plugin(tmp_path: Path) -> AsyncIterator[FakePlugin]:
    plugin = FakePlugin(RESOURCE, {"a": FakeDevice(), "b": FakeDevice(numa_nodes=(1,))}, preferred_available=True)
    await plugin.start(tmp_path)
    yield plugin
    await plugin.stop()


async def test_lists_change_and_streams_end(manager: Manager, plugin: FakePlugin) -> None:
    await plugin.register()
    await manager.until_listed(RESOURCE, ["a", "b"])
    await plugin.set_health("a", healthy=False)
    await manager.until_listed(RESOURCE, {"a": "Unhealthy", "b": "Healthy"})
    await plugin.update({"c": FakeDevice(health="Odd")})
    await manager.until_listed(RESOURCE, {"c": "Odd"})
    await plugin.end_streams()
    assert plugin.streams == 0
    await plugin.register()
    await plugin.wait_for_streams(1)
    assert [call.method for call in plugin.calls].count("ListAndWatch") == 2


@pytest.mark.parametrize("end", ["at_once", "after_first"])
async def test_streams_that_end_by_themselves(manager: Manager, plugin: FakePlugin, end: StreamEnd) -> None:
    plugin.knobs.stream_end = end
    await plugin.register()
    await plugin.wait_for_calls("ListAndWatch")
    await plugin.wait_for_streams(0)
    await manager.until_hung_up()
    assert len(manager.lists.get(RESOURCE, [])) == (1 if end == "after_first" else 0)


async def test_a_plugin_whose_options_fail_cannot_register(manager: Manager, plugin: FakePlugin) -> None:
    plugin.knobs.options_error = RpcFailure(grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(grpc.aio.AioRpcError):
        await plugin.register()
    assert manager.registrations == []


async def test_allocate_succeeds_fails_hangs_and_is_empty(manager: Manager, plugin: FakePlugin) -> None:
    await plugin.register()
    stub = manager.dial(RESOURCE)
    request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=["b", "a"])])
    (answer,) = (await stub.Allocate(request)).container_responses
    assert answer == default_answer(["b", "a"])
    plugin.knobs.allocate_empty = True
    assert (await stub.Allocate(request)).container_responses == []
    plugin.knobs.allocate_error = RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED, "no more")
    with pytest.raises(grpc.aio.AioRpcError, match="no more"):
        await stub.Allocate(request)
    plugin.knobs = Knobs(allocate_gate=asyncio.Event())
    hanging = stub.Allocate(request)
    await plugin.wait_for_calls("Allocate", 4)
    assert not hanging.done()
    assert plugin.knobs.allocate_gate is not None
    plugin.knobs.allocate_gate.set()
    assert len((await hanging).container_responses) == 1
    assert [call.device_ids for call in plugin.calls_of("Allocate")] == [("b", "a")] * 4


async def test_preferred_responses(manager: Manager, plugin: FakePlugin) -> None:
    await plugin.register()
    request = api_pb2.PreferredAllocationRequest()
    request.container_requests.add(available_deviceIDs=["a", "b"], allocation_size=1)
    stub = manager.dial(RESOURCE)
    assert list((await stub.GetPreferredAllocation(request)).container_responses[0].deviceIDs) == ["b"]
    plugin.knobs.preferred_answer = ["never heard of"]
    assert list((await stub.GetPreferredAllocation(request)).container_responses[0].deviceIDs) == ["never heard of"]


async def test_a_killed_plugins_socket_stays(plugin: FakePlugin) -> None:
    await plugin.stop(leave_socket=True)
    assert plugin.socket_path.is_socket()


def test_another_event_loop_may_start_it_again(tmp_path: Path) -> None:
    plugin = FakePlugin(RESOURCE)

    async def live(calls: int) -> None:
        await plugin.start(tmp_path)
        async with asyncio.timeout(60):
            waiting = asyncio.create_task(plugin.wait_for_calls("Allocate", calls))
            await asyncio.sleep(0)  # its turn: now it waits
            await plugin.record(Call("Allocate"))
            await waiting
        await plugin.stop()

    for calls in (1, 2):
        asyncio.run(live(calls))
