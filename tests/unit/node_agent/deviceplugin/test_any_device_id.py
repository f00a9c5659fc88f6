"""Whatever text a plugin lists as a device ID is a device: the plugin's calls, the checkpoint and monitors have the original, and
the API, logs and messages have a form that the API accepts.
"""

import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec import to_builtins
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_agent.kube.observed import cordons_of
from nodedevice_agent.kube.status import node_device_status
from nodedevice_agent.podresources.server import PodResourcesServer
from nodedevice_api.device_ids import original_id, shown_id
from nodedevice_api.nodedevice import CordonedDevice, NodeDeviceStatus
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2, api_pb2_grpc

from tests.fakes.hosted_manager import HostedManager, hosted, pod
from tests.fakes.plugin import FakeDevice, FakePlugin

NAME = "smarter-devices/video0"
LONG = "y" * 10_240
IDS = (
    *(chr(code) for code in range(32)),
    *("", "\x7f", "\u2028", "a\nb", "*", "all", "ordinary", "escaped:", "escaped:%00"),
    *("x" * 128, "x" * 129, "é\0", LONG, str(shown_id(LONG)), "\0::1", "\0-1"),
)
SHOWN = {shown_id(i): i for i in IDS}


@pytest.fixture
async def plugin() -> AsyncIterator[FakePlugin]:
    devices = dict.fromkeys(IDS, FakeDevice())
    plugin = FakePlugin(NAME, devices, pre_start_required=True, preferred_available=True)
    yield plugin
    await plugin.stop()


def status(manager: HostedManager) -> dict[str, Any]:
    """As it is sent to the API server."""
    now, before = snapshot(manager.manager, NAME), NodeDeviceStatus()
    made = node_device_status(now, before, wall_time="2026-01-01T00:00:00Z", version="1", delivery="none")
    found: dict[str, Any] = json.loads(json.dumps(to_builtins(made)))
    return found


async def hold_all(manager: HostedManager, plugin: FakePlugin) -> None:
    await manager.register(plugin)
    await manager.until(lambda: manager.available(NAME) == len(IDS))
    manager.pod_seen(pod("one", NAME, 3))
    manager.pod_seen(pod("rest", NAME, len(IDS) - 3))
    await manager.until(lambda: len(manager.manager.book.by_pod) == 2)
    await plugin.wait_for_calls("PreStartContainer", 2)


async def monitored(manager: HostedManager, folder: Path) -> tuple[Counter[str], Counter[str]]:
    """The IDs that a monitor gets: those that pods hold, and the allocatable ones."""
    socket = folder / "r" / "kubelet.sock"
    server = PodResourcesServer(socket, manager.manager, are_pods_known=lambda: True, clock=lambda: 0.0)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{socket}", [("grpc.default_authority", "localhost")]) as channel:
            stub: Any = api_pb2_grpc.PodResourcesListerStub(channel)
            listed = await stub.List(api_pb2.ListPodResourcesRequest())
            allocatable = await stub.GetAllocatableResources(api_pb2.AllocatableResourcesRequest())
    finally:
        await server.stop()
    held = (i for p in listed.pod_resources for c in p.containers for d in c.devices for i in d.device_ids)
    return Counter(held), Counter(i for d in allocatable.devices for i in d.device_ids)


async def test_plugin_checkpoint_and_monitors_get_the_originals_and_the_api_ids_that_it_accepts(
    tmp_path: Path, plugin: FakePlugin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "nodedevice_agent")
    async with hosted(tmp_path) as manager:
        await hold_all(manager, plugin)
        for method in ("Allocate", "PreStartContainer"):
            called = [call.device_ids for call in plugin.calls_of(method)]
            assert sorted(map(len, called)) == [3, len(IDS) - 3]
            assert Counter(i for ids in called for i in ids) == Counter(IDS)
        offered = plugin.calls_of("GetPreferredAllocation")[0].request.container_requests[0]
        assert Counter(offered.available_deviceIDs) == Counter(IDS)
        # The fake prefers the highest of its own IDs.
        assert set(plugin.calls_of("Allocate")[0].device_ids) == set(sorted(IDS)[-3:])
        listed, allocatable = await monitored(manager, tmp_path)
        found, before = status(manager), {a.key: a for a in manager.manager.book}
    assert listed == allocatable == Counter(IDS)
    assert found["total"] == found["healthy"] == found["allocated"] == len(IDS)
    assert sorted(device["id"] for device in found["devices"]) == sorted(SHOWN)
    assert sorted(i for held in found["allocations"] for i in held["deviceIDs"]) == sorted(SHOWN)
    texts = [device["id"] for device in found["devices"]] + [c["message"] for c in found["conditions"]]
    texts += [str(value) for record in caplog.records for value in vars(record).values() if record.name[:4] == "node"]
    assert all(text.isprintable() for text in texts)
    assert not any(LONG in text for text in texts)
    written = json.loads((tmp_path / "checkpoint.json").read_text())["Data"]
    in_file = [i for entry in written["PodDeviceEntries"] for ids in entry["DeviceIDs"].values() for i in ids]
    assert Counter(in_file) == Counter(written["RegisteredDevices"][NAME]) == Counter(IDS)
    # a restart keeps them
    await plugin.stop()
    async with hosted(tmp_path, [pod("one", NAME, 3), pod("rest", NAME, len(IDS) - 3)]) as manager:
        assert {a.key: a for a in manager.manager.book} == before
        assert Counter(original_id(i) for a in manager.manager.book for i in a.device_ids) == Counter(IDS)
        await manager.register(plugin)
        assert (manager.available(NAME), snapshot(manager.manager, NAME).healthy) == (0, len(IDS))


@pytest.mark.parametrize("written", [lambda i: str(shown_id(i)), str], ids=["as shown", "as listed"])
async def test_a_cordon_takes_its_device_and_no_other(tmp_path: Path, plugin: FakePlugin, written: Any) -> None:
    async with hosted(tmp_path) as manager:
        await manager.register(plugin)
        await manager.until(lambda: manager.available(NAME) == len(IDS))
        for device_id in IDS:
            text = written(device_id)
            if text in ("", "*", "all") or (text != shown_id(device_id) and text.startswith("escaped:")):
                continue
            cordons = cordons_of([CordonedDevice(id=text, reason="broken")])
            manager.manager.table.cordoned(NAME, "uid", cordons)
            manager.host.settle()
            now = snapshot(manager.manager, NAME)
            assert (now.cordoned, now.available, now.unknown_cordons) == (1, len(IDS) - 1, ())
            assert [view.id for view in now.devices if view.cordoned] == [shown_id(device_id)]
        # a cordon of no device is named without its control characters
        manager.manager.table.cordoned(NAME, "uid", cordons_of([CordonedDevice(id="\x1b[31mred")]))
        manager.host.settle()
        (registered,) = [c for c in status(manager)["conditions"] if c["type"] == "Registered"]
    assert registered["reason"] == "CordonedDeviceUnknown"
    assert "escaped:%1B%5B31mred" in registered["message"]


async def test_what_is_recovered_from_the_api_gets_its_originals_by_the_plugins_list(
    tmp_path: Path, plugin: FakePlugin
) -> None:
    """The checkpoint was lost, and the API has the shown forms alone."""
    async with hosted(tmp_path) as manager:
        await hold_all(manager, plugin)
        plain = list(manager.manager.book)
    for file in tmp_path.glob("checkpoint*"):
        file.unlink()
    await plugin.stop()
    plugin.calls.clear()
    from_api = json.loads(
        json.dumps([{str(n): [str(i) for i in ids] for n, ids in a.ids_by_numa.items()} for a in plain])
    )
    lost = [
        type(a)(a.pod_uid, a.container, NAME, {int(n): tuple(ids) for n, ids in by_node.items()}, None)
        for a, by_node in zip(plain, from_api, strict=True)
    ]
    pods = [pod("one", NAME, 3), pod("rest", NAME, len(IDS) - 3)]
    async with hosted(tmp_path, pods, is_recovering=True) as manager:
        manager.manager.recovered(Checkpoint(tuple(lost), {NAME: ()}), manager.host.now())
        manager.host.settle()
    # Once more before the plugin is there: the shown forms do not count as literal IDs.
    async with hosted(tmp_path, pods) as manager:
        assert Counter(i for a in manager.manager.book for i in a.device_ids) == Counter(SHOWN.keys())
        await manager.register(plugin)
        await manager.until(lambda: not manager.manager.book.unanswered)
        assert manager.available(NAME) == 0
        assert Counter(i for call in plugin.calls_of("Allocate") for i in call.device_ids) == Counter(IDS)
        assert Counter(original_id(i) for a in manager.manager.book for i in a.device_ids) == Counter(IDS)
    written = json.loads((tmp_path / "checkpoint.json").read_text())["Data"]["PodDeviceEntries"]
    assert Counter(i for entry in written for ids in entry["DeviceIDs"].values() for i in ids) == Counter(IDS)
