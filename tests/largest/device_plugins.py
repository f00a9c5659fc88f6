"""The largest lists of device plugins, and pods that ask for the most of their devices; see agent.py."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyPolicy
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.resources.physical_devices import MOST_LINKED
from nodedevice_agent.devicemanager.resources.same_devices import MOST_KINDS
from nodedevice_agent.deviceplugin.connection import MAX_ALLOCATION_BYTES, PluginConnection
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.e2e.real_node.device_plugins import call_in, event_loop
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.largest.node import MANY, NAME, NAMES, UNITS, Node, beat, many, parts, pod

# of a pod that are planned for
CONTAINERS: Final = 128


async def lists_of_devices(folder: Path) -> AsyncIterator[None]:
    """All fail, recover, go, and others come; again and again, until they are damped; then the plugin is gone."""
    node, well, sick, others = Node(), many(), many(healthy=False), many("e")
    yield
    node.plugin(well)
    for devices in (sick, well, sick, well, others, accept([]), well):
        await node.settle()
        node.lists(devices)
    await node.settle()
    for seconds in (60.0, 400.0):
        node.manager.tick(node.now + seconds)
        await node.follow()
        if seconds == 60.0:
            node.manager.table.disconnected(NAME, 1, node.now + seconds)
            await node.follow()


async def lists_of_physical_devices(folder: Path) -> AsyncIterator[None]:
    """Parts, and the same devices whole and in instances: who lists them decides, again at each list."""
    node = Node()
    units = parts(MOST_LINKED // 4096, 4096)
    whole = accept(Device(name, parent=name) for name in (f"GPU-{index:05}" for index in range(MOST_LINKED // 4)))
    mixed = accept(Device(f"i-{index}", parent=f"GPU-{index % 4096:05}") for index in range(MOST_LINKED // 2))
    yield
    node.plugin(units, "a.example/memory")
    node.plugin(whole, "b.example/gpu", 2)
    node.plugin(mixed, "b.example/mig", 3)
    for _ in range(3):
        await node.settle()
        node.lists(accept([]), "b.example/gpu", 2)
        await node.settle()
        node.lists(whole, "b.example/gpu", 2)
    node.manager.table.cordoned("a.example/memory", "uid", {"GPU-00001": Cordon()})
    await node.follow()


async def lists_of_built_in_plugins(folder: Path) -> AsyncIterator[None]:
    """Files of the host, each in two resources, and shared ones in thousands."""
    node = Node()
    files = accept(_file(index) for index in range(MOST_KINDS // 2))
    shared = accept(Device(f"s{i}", identity=(f"c1:{i % 8}",), is_shared=True) for i in range(10_000))
    yield
    for endpoint, (name, devices) in enumerate({"x/a": files, "x/b": files, "x/c": shared}.items(), start=1):
        node.plugin(devices, f"{name}.example/r", endpoint, scope="built-in files")
        await node.settle()
    node.manager.containers_changed("other")
    node.carry_out()
    node.manager.tick(node.now + 20)
    await node.follow()


def _file(index: int) -> Device:
    place = f"/devices/pci0000:00/0000:00:14.0/usb1/1-{index // 64}/1-{index // 64}.{index % 64}/ttyUSB{index}"
    return Device(f"d{index:05}", identity=(f"c188:{index}", place), files=((f"/dev/ttyUSB{index}", f"c188:{index}"),))


async def names_of_a_node(folder: Path) -> AsyncIterator[None]:
    """As many as there may be, one of them with all devices that its domain may list."""
    node = Node()
    node.plugin(many(count=MANY - NAMES))
    few = many(count=1)
    yield
    for number in range(1, NAMES):
        await beat()
        node.plugin(few, f"example.com/r{number}", endpoint=number + 1)
    await node.settle()
    for number in range(1, NAMES):
        await beat()
        node.manager.table.disconnected(f"example.com/r{number}", number + 1, node.now)
        node.carry_out()
    node.manager.tick(node.now + 400)
    await node.follow()


async def devices_of_a_pod(folder: Path) -> AsyncIterator[None]:
    """One container with very many, and as many containers as there may be."""
    node = Node()
    node.plugin(many(), get_preferred_allocation_available=True, pre_start_required=True)
    yield
    for asked in (pod("a", UNITS), pod("b", *[64] * 3)):
        await beat()
        await node.seen(asked)
        assert node.manager.book.of_pod(asked.uid)
    for uid in ("a", "b"):
        await beat()
        node.manager.pod_events.gone(uid, node.now)
        await node.follow()


async def parts_of_a_pod(folder: Path) -> AsyncIterator[None]:
    node = Node()
    node.plugin(parts(32, MOST_LINKED // 32))
    yield
    for asked in (pod("a", 200), pod("b", *[1] * CONTAINERS), pod("c", *[1] * 2500)):
        await beat()
        node.manager.pod_events.seen(asked, node.now)
        node.carry_out()
        # each container has a plan, for all that come after it
        await node.settle(8)
        node.calls.clear()
        await beat()
        node.manager.pod_events.gone(asked.uid, node.now)
        node.carry_out()


async def near_devices_of_a_pod(folder: Path) -> AsyncIterator[None]:
    """With the strictest topology policy, on the most NUMA nodes."""
    long, short = (Node(Topology(TopologyPolicy.SINGLE_NUMA_NODE, numa_nodes=tuple(range(8)))) for _ in range(2))
    long.plugin(many(nodes=8), get_preferred_allocation_available=True)
    short.plugin(many(nodes=8, count=256))
    yield
    for node, asked in (
        (long, pod("a", 1)),
        (long, pod("b", 1, 1)),
        (short, pod("c", *[1] * 80)),
        (short, pod("d", *[1] * 200)),
    ):
        await beat()
        await node.seen(asked)


async def calls_of_a_plugin(folder: Path) -> AsyncIterator[None]:
    """Over its socket: what a call to it takes, and its answer."""
    devices, most = many(), "x" * (MAX_ALLOCATION_BYTES - 64)
    with event_loop() as loop:
        plugin = FakePlugin(NAME, {"d": FakeDevice()}, preferred_available=True, pre_start_required=True)
        plugin.knobs.allocate_answer = lambda ids: api_pb2.ContainerAllocateResponse(envs={"A": most})
        plugin.knobs.preferred_answer = devices.ids[:UNITS]
        call_in(loop, plugin.start(folder))
        connection = await PluginConnection.open(NAME, plugin.socket_path)
        yield
        await connection.preferred(devices.ids, (), UNITS)
        await connection.allocate(devices.ids[:UNITS])
        await connection.pre_start(devices.ids[:UNITS])
        await connection.aclose()
        call_in(loop, plugin.stop())
