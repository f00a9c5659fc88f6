import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from nodedevice_agent.devicemanager.holdings import Holding
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.deviceplugin.codec import device_list
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.deviceplugin_server.server import DeviceList, DeviceSource, list_to_wire, service_of, serving
from nodedevice_agent.lib.deviceplugin_server.values import (
    ContainerAllocation,
    ContainerIdentity,
    DeviceNode,
    HeldDevices,
    Mount,
    PluginDevice,
)
from nodedevice_api.device_details_pb2 import ContainerAllocateDetails
from nodedevice_api.parts import PartRules
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.background import background


class Stream:
    """Of ListAndWatch, in place of gRPC's. sent: messages."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[api_pb2.ListAndWatchResponse] = asyncio.Queue()

    async def write(self, message: api_pb2.ListAndWatchResponse) -> None:
        self.sent.put_nowait(message)


ONE, TWO = PluginDevice("a"), PluginDevice("b")


async def test_a_slow_watcher_gets_the_newest_list_only() -> None:
    devices = DeviceList()
    watch: Any = devices.watch()
    async with aclosing(watch):
        await anext(watch)
        devices.publish([ONE])
        devices.publish([ONE, TWO])
        assert await anext(watch) == (ONE, TWO)


async def test_a_change_that_is_undone_is_not_reported() -> None:
    devices = DeviceList()
    watch: Any = devices.watch()
    async with aclosing(watch):
        await anext(watch)
        devices.publish([ONE])
        devices.publish([])
        following = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        devices.publish([TWO])
        assert await following == (TWO,)


class Source(DeviceSource):
    """Of one device; notes what it is called with."""

    resource_name = "example.com/gpu"
    prefers = False

    def __init__(self) -> None:
        self.devices = DeviceList()
        self.devices.publish([ONE])
        self.containers: list[ContainerIdentity | None] = []

    def allocate(self, device_ids: list[str], container: ContainerIdentity | None) -> ContainerAllocation:
        self.containers.append(container)
        return ContainerAllocation(env={"GOT": ",".join(device_ids)})

    def preferred(self, free: set[str], must_include: list[str], size: int) -> tuple[str, ...]:
        return ()


@asynccontextmanager
async def connected(source: Source, folder: Path) -> AsyncIterator[PluginConnection]:
    """A device manager's connection to a server of this source."""
    async with serving(service_of(source), folder / "p.sock"):
        connection = await PluginConnection.open(source.resource_name, folder / "p.sock")
        try:
            yield connection
        finally:
            await connection.aclose()


class KeepingSource(Source):
    def __init__(self) -> None:
        super().__init__()
        self.held: list[HeldDevices] = []
        self.problem = ""

    async def holdings(self, held: Sequence[HeldDevices]) -> None:
        if self.problem:
            raise OSError(self.problem)
        self.held = list(held)


async def test_a_source_learns_whose_container_it_is_unless_a_kubelet_calls(tmp_path: Path) -> None:
    source = Source()
    async with connected(source, tmp_path) as connection:
        assert not connection.options.holdings_required
        details = ContainerAllocateDetails(pod_namespace="ns", pod_name="web", pod_uid="u", container="main")
        details.annotations["nodedevice.io/sm-percent"] = "30"
        await connection.allocate(("a",), details)
        await connection.allocate(("a",))
    assert source.containers == [ContainerIdentity("ns", "web", "u", "main", {"nodedevice.io/sm-percent": "30"}), None]


async def test_what_a_container_needs_is_sent_whole(tmp_path: Path) -> None:
    class Whole(Source):
        def allocate(self, device_ids: list[str], container: ContainerIdentity | None) -> ContainerAllocation:
            return ContainerAllocation(
                device_nodes=(DeviceNode("/dev/a", "/dev/b", "rw"),),
                mounts=(Mount("/opt/a", "/opt/b", True),),
                env={"A": "1"},
                annotations={"b": "2"},
                cdi_devices=("c/d=e",),
            )

    async with connected(Whole(), tmp_path) as connection:
        octets = (await connection.allocate(("a",))).octets
    assert api_pb2.ContainerAllocateResponse.FromString(octets) == api_pb2.ContainerAllocateResponse(
        envs={"A": "1"},
        annotations={"b": "2"},
        mounts=[api_pb2.Mount(host_path="/opt/a", container_path="/opt/b", read_only=True)],
        devices=[api_pb2.DeviceSpec(host_path="/dev/a", container_path="/dev/b", permissions="rw")],
        cdi_devices=[api_pb2.CDIDevice(name="c/d=e")],
    )


class AliasedSource(Source):
    """Of two devices with other IDs; one of these is the other device's own by now."""

    prefers = True

    def __init__(self) -> None:
        super().__init__()
        self.devices.publish([PluginDevice("a", aliases=("old-a", "b")), PluginDevice("b", aliases=("old-b",))])

    def preferred(self, free: set[str], must_include: list[str], size: int) -> tuple[str, ...]:
        return (*must_include, *sorted(free))[:size]


async def test_a_held_device_is_meant_by_any_of_its_ids(tmp_path: Path) -> None:
    source = AliasedSource()
    async with connected(source, tmp_path) as connection:
        for asked, got in ((("old-a",), "a"), (("b",), "b"), (("old-b", "a"), "a,b")):
            assert (await connection.allocate(asked)).edits.envs == {"GOT": got}
        assert await connection.preferred(("old-a", "old-b"), ("old-b",), 2) == ("b", "a")
        with pytest.raises(PluginFailed, match="no such device: 'older'"):
            await connection.allocate(("old-a", "older"))


def test_parts_have_their_parents_beside_them() -> None:
    parent = PluginDevice("gpu", reason="Xid", message="broken", attributes=(("model", "x"),), part_size="1Gi")
    parts = [PluginDevice(f"gpu-{number}", False, parent="gpu") for number in range(2)]
    found = device_list(list_to_wire(parts, "Half", "one is broken", PartRules(), [parent]).SerializeToString())
    assert (found.plugin_message, found.part_rules) == ("one is broken", PartRules())
    assert found.by_parent == {"gpu": ["gpu-0", "gpu-1"]}
    assert found.parents == {
        "gpu": Device("gpu", False, reason="Xid", message="broken", attributes=(("model", "x"),), part_size="1Gi")
    }


def test_equal_devices_are_equal_bytes() -> None:
    """A list of the same bytes is not decoded again."""
    names = [f"name-{number}" for number in range(40)]
    one, other = (
        PluginDevice("a", attributes=tuple((n, "x") for n in order), files=tuple((f"/dev/{n}", "") for n in order))
        for order in (names, names[::-1])
    )
    assert list_to_wire([one]).SerializeToString() == list_to_wire([other]).SerializeToString()


async def test_a_source_that_keeps_something_gets_the_holdings(tmp_path: Path) -> None:
    source = KeepingSource()
    async with connected(source, tmp_path) as connection:
        assert connection.options.holdings_required
        response = (await connection.allocate(("a",))).octets
        await connection.sync_holdings(
            [Holding("u", "main", ("a",), response), Holding("v", "main", (), b""), Holding("w", "main", (), b"\xff")]
        )
        source.problem = "disk full"
        with pytest.raises(PluginFailed, match="disk full"):
            await connection.sync_holdings([])
    nothing = [HeldDevices(uid, "main", ()) for uid in "vw"]
    assert source.held == [HeldDevices("u", "main", ("a",), {"GOT": "a"}), *nothing]


async def test_streams_are_counted() -> None:
    """One that has ended must not hide one that has not."""
    service = service_of(Source())
    counts = []
    async with AsyncExitStack() as streams:
        for _ in range(3):
            stream = Stream()
            await streams.enter_async_context(background(service.ListAndWatch(cast(Any, None), cast(Any, stream))))
            await stream.sent.get()
            streams.callback(lambda: counts.append(service.streams))
        counts.append(service.streams)
    assert [*counts, service.streams] == [3, 3, 2, 1, 0]
