"""The largest input that each entrance of the agent accepts, given to the code behind it.

Up to the `yield` of a scenario it is prepared; what comes then is measured, `await beat()` between one event and the next.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
from nodedevice_agent.configs.effective import Config, effective
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyPolicy
from nodedevice_agent.devicemanager.effects import CallAllocate, CallPreferred, CallPreStart, Effect, Publish
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.cordons import Cordon
from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices, accept
from nodedevice_agent.devicemanager.resources.list_limit import MAX_DEVICES_OF_DOMAIN
from nodedevice_agent.devicemanager.resources.physical_devices import MOST_KINDS, MOST_LINKED
from nodedevice_agent.devicemanager.snapshot import is_settling, snapshot
from nodedevice_agent.deviceplugin import codec
from nodedevice_agent.deviceplugin.connection import MAX_ALLOCATION_BYTES, PluginConnection
from nodedevice_agent.kube.pods import PodObject, from_api
from nodedevice_agent.kube.status import node_device_status
from nodedevice_agent.kubelet.backend import KubeletBackend, KubeletEndpoint
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.nri import codec as nri_codec
from nodedevice_agent.nri.ttrpc import MAX_MESSAGE_BYTES
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.podresources import server as pod_resources
from nodedevice_agent.runtime.container_events import ContainerEvents
from nodedevice_agent.runtime.injection import Injection
from nodedevice_api.nodedevice import NodeDeviceStatus
from nodedevice_api.parts import PartRules, Placement, part_id
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2 as v1_pb2
from nodedevice_api.upstream.kubelet.podresources.v1alpha1 import api_pb2 as v1alpha1_pb2
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2 as nri_pb2

from tests.e2e.real_node.device_plugins import event_loop
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.virtual_time import later

NAME: Final = "example.com/gpu"
MANY: Final = MAX_DEVICES_OF_DOMAIN
# names of a node; sandboxes of a runtime; and containers of a pod that are planned for
NAMES: Final = 256
SANDBOXES: Final = 500
CONTAINERS: Final = 128
# devices of one container, in the smallest of units: 64 GiB in MiB
UNITS: Final = 65536

Scenario = Callable[[Path], AsyncIterator[None]]


async def beat() -> None:
    """Others have their turn."""
    await asyncio.sleep(0)


class Node:
    """A device manager whose effects are carried out as its host does: calls are answered by the scenario, each in a turn."""

    def __init__(self, topology: Topology | None = None) -> None:
        self.manager = DeviceManager(0.0, topology=topology)
        self.now = 0.0
        self.calls: list[CallAllocate | CallPreferred | CallPreStart] = []
        self.published: dict[str, None] = {}
        self.statuses: dict[str, NodeDeviceStatus] = {}

    def do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Publish():
                    self.published[effect.resource_name] = None
                case CallAllocate() | CallPreferred() | CallPreStart():
                    self.calls.append(effect)
        self.manager.next_deadline()
        self.manager.checkpoint()

    def plugin(self, devices: ListedDevices, name: str = NAME, endpoint: int = 1, **options: object) -> None:
        given = msgspec.convert(options, PluginOptions)
        self.do(self.manager.connected(name, endpoint, given, self.now))
        self.lists(devices, name, endpoint)

    def lists(self, devices: ListedDevices, name: str = NAME, endpoint: int = 1) -> None:
        self.now += 0.1
        self.do(self.manager.listed(name, endpoint, devices, self.now))

    async def settle(self, most: int = 10_000) -> None:
        """Publish what has changed, answer calls, and tick where that is due at once: one thing at a time, so many at the most."""
        for _ in range(most):
            if not (self.calls or self.published or self._is_due()):
                return
            await beat()
            if self._is_due():
                self.do(self.manager.tick(self.now))
                continue
            if self.calls:
                self._answer(self.calls.pop(0))
                continue
            name = next(iter(self.published))
            del self.published[name]
            if not is_settling(self.manager, name):
                seen = snapshot(self.manager, name)
                await beat()
                self.statuses[name] = node_device_status(
                    seen,
                    self.statuses.get(name, NodeDeviceStatus()),
                    wall_time="2026-01-01T00:00:00Z",
                    version="1",
                    runtime="nri",
                )

    def _is_due(self) -> bool:
        deadline = self.manager.next_deadline()
        return deadline is not None and deadline <= self.now

    def _answer(self, call: CallAllocate | CallPreferred | CallPreStart) -> None:
        match call:
            case CallPreferred():
                self.do(self.manager.preferred(call.ticket, call.available[-call.size :], self.now))
            case CallAllocate():
                self.do(self.manager.allocated(call.ticket, ANSWER, self.now))
            case CallPreStart():
                self.do(self.manager.pre_started(call.ticket, self.now))


ANSWER: Final[AllocateResponse] = codec.allocate_response(api_pb2.ContainerAllocateResponse(envs={"A": "1"}))


def many(prefix: str = "d", *, healthy: bool = True, nodes: int = 0, count: int = MANY) -> ListedDevices:
    return accept(Device(f"{prefix}{index:06}", healthy, (index % nodes,) if nodes else ()) for index in range(count))


def parts(parents: int, size: int) -> ListedDevices:
    names = (f"GPU-{index:05}" for index in range(parents))
    listed = (Device(part_id(name, number), parent=name) for name in names for number in range(size))
    return accept(listed, part_rules=PartRules(Placement.SAME_PARENT))


def pod(uid: str, *counts: int, name: str = NAME) -> Pod:
    return Pod(
        uid, "ns", uid, tuple(Container(f"c{index}", limits={name: count}) for index, count in enumerate(counts))
    )


# -- device plugins ------------------------------------------------------------------------------------------------------


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
        node.do(node.manager.tick(node.now + seconds))
        await node.settle()
        if seconds == 60.0:
            node.do(node.manager.disconnected(NAME, 1, node.now + seconds))
            await node.settle()


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
    node.do(node.manager.cordoned("a.example/memory", "uid", {"GPU-00001": Cordon()}, node.now))
    await node.settle()


async def lists_of_built_in_plugins(folder: Path) -> AsyncIterator[None]:
    """Files of the host, each in two resources, and shared ones in thousands."""
    node = Node()
    files = accept(_file(index) for index in range(MOST_KINDS // 2))
    shared = accept(Device(f"s{i}", identity=(f"c1:{i % 8}",), is_shared=True) for i in range(10_000))
    yield
    for endpoint, (name, devices) in enumerate({"x/a": files, "x/b": files, "x/c": shared}.items(), start=1):
        node.plugin(devices, f"{name}.example/r", endpoint, scope="built-in files")
        await node.settle()
    node.do(node.manager.containers_changed("nobody", node.now))
    node.do(node.manager.tick(node.now + 20))
    await node.settle()


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
        node.do(node.manager.disconnected(f"example.com/r{number}", number + 1, node.now))
    node.do(node.manager.tick(node.now + 400))
    await node.settle()


async def devices_of_a_pod(folder: Path) -> AsyncIterator[None]:
    """One container with very many, and as many containers as there may be."""
    node = Node()
    node.plugin(many(), get_preferred_allocation_available=True, pre_start_required=True)
    yield
    for asked in (pod("a", UNITS), pod("b", *[64] * 3)):
        await beat()
        node.do(node.manager.pod_seen(asked, node.now))
        await node.settle()
        assert node.manager.book.of_pod(asked.uid)
    for uid in ("a", "b"):
        await beat()
        node.do(node.manager.pod_gone(uid, node.now))
        await node.settle()


async def parts_of_a_pod(folder: Path) -> AsyncIterator[None]:
    node = Node()
    node.plugin(parts(32, MOST_LINKED // 32))
    yield
    for asked in (pod("a", 200), pod("b", *[1] * CONTAINERS), pod("c", *[1] * 2500)):
        await beat()
        node.do(node.manager.pod_seen(asked, node.now))
        # each container has a plan, for all that come after it
        await node.settle(8)
        node.calls.clear()
        await beat()
        node.do(node.manager.pod_gone(asked.uid, node.now))


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
        node.do(node.manager.pod_seen(asked, node.now))
        await node.settle()


async def calls_of_a_plugin(folder: Path) -> AsyncIterator[None]:
    """Over its socket: what a call to it takes, and its answer."""
    devices, most = many(), "x" * (MAX_ALLOCATION_BYTES - 64)
    with event_loop() as loop:

        def call(coroutine: object) -> None:
            asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)  # type: ignore[arg-type]

        plugin = FakePlugin(NAME, {"d": FakeDevice()}, preferred_available=True, pre_start_required=True)
        plugin.knobs.allocate_answer = lambda ids: api_pb2.ContainerAllocateResponse(envs={"A": most})
        plugin.knobs.preferred_answer = devices.ids[:UNITS]
        call(plugin.start(folder))
        connection = await PluginConnection.open(NAME, plugin.socket_path)
        yield
        await connection.preferred(devices.ids, (), UNITS)
        await connection.allocate(devices.ids[:UNITS])
        await connection.pre_start(devices.ids[:UNITS])
        await connection.aclose()
        call(plugin.stop())


# -- the API server ------------------------------------------------------------------------------------------------------


async def pods_of_a_node(folder: Path) -> AsyncIterator[None]:
    """Several times those of a kubelet, which come at once and go at once; and a few that look at very many devices."""
    node = Node()
    node.plugin(many(count=4096), "example.com/few")
    node.plugin(many(count=MANY - 4096), endpoint=2)
    few, most = _pods("few", 400, 4, "example.com/few"), _pods("most", 16, 1, NAME)
    yield
    for objects in (few, few + most):
        await beat()
        found = [from_api(each) for each in objects]
        await beat()
        node.do(node.manager.pods_synced(found, node.now))
        await node.settle()
    assert len(node.manager.book.by_pod) == len(few + most)
    node.do(node.manager.pods_synced([], node.now))
    await node.settle()


def _pods(name: str, count: int, containers: int, resource_name: str) -> list[PodObject]:
    asking = [{"name": f"c{index}", "resources": {"limits": {resource_name: "1"}}} for index in range(containers)]
    bodies = [
        {"metadata": {"name": name, "namespace": "n", "uid": f"{name}-{n}"}, "spec": {"containers": asking}}
        for n in range(count)
    ]
    return msgspec.json.decode(msgspec.json.encode(bodies), type=list[PodObject])


async def cordons_of_a_resource(folder: Path) -> AsyncIterator[None]:
    """As many as a NodeDevice has, and all devices by one."""
    node = Node()
    node.plugin(many())
    some = {f"d{index:06}": Cordon("why", "who") for index in range(4096)}
    yield
    for cordons in (some, {"*": Cordon()}, {}):
        await beat()
        node.do(node.manager.cordoned(NAME, "uid", cordons, node.now))
        await node.settle()


async def configurations_of_a_node(folder: Path) -> AsyncIterator[None]:
    resources = [
        {"resourceName": f"example.com/r{n}", "groups": [{"paths": [{"path": f"/dev/tty{n}*"}], "count": 1000}]}
        for n in range(NAMES)
    ]
    configs = [Config(f"c{n}", 1, plugins={"generic": resources[n::8]}) for n in range(8)]
    yield
    await beat()
    found = effective(PluginSettings(), configs, {}, ["/dev"])
    assert len(found.plugins.generic) == NAMES


# -- the container runtime -----------------------------------------------------------------------------------------------


async def containers_of_a_runtime(folder: Path) -> AsyncIterator[None]:
    """The state of a node in messages that are as long as they may be; and containers one by one."""
    node = Node()
    node.plugin(many())
    events, injection = ContainerEvents(node.manager), Injection(node.manager, frozenset())
    env = [f"VARIABLE_{index}={'x' * 40}" for index in range(100)]
    sandboxes = [nri_pb2.PodSandbox(id=f"s{n}", uid=f"u{n}", name=f"p{n}", namespace="n") for n in range(SANDBOXES)]
    containers = [
        nri_pb2.Container(id=f"c{n}", pod_sandbox_id=f"s{n % SANDBOXES}", name=f"c{n}", env=env) for n in range(700)
    ]
    message = nri_pb2.SynchronizeRequest(pods=sandboxes, containers=containers).SerializeToString()
    assert MAX_MESSAGE_BYTES * 0.9 < len(message) < MAX_MESSAGE_BYTES, len(message)
    yield
    await beat()
    request = nri_pb2.SynchronizeRequest.FromString(message)
    shown = [nri_codec.sandbox(each) for each in request.pods]
    running = [nri_codec.container(each) for each in request.containers]
    await beat()
    node.do(events.synchronized(shown, running, node.now))
    await node.settle()
    for sandbox, container in zip(shown, running, strict=False):
        await beat()
        injection.decide(sandbox, container.name, container.env)
        node.do(events.ended(sandbox.uid, container.id, node.now))


# -- monitors ------------------------------------------------------------------------------------------------------------


async def pod_resources_of_a_node(folder: Path) -> AsyncIterator[None]:
    node = Node()
    node.plugin(many())
    node.do(node.manager.pod_seen(pod("a", UNITS), node.now))
    await node.settle()
    yield
    guard = pod_resources._CallGuard(lambda: 0.0, lambda: True)
    lister, alpha = pod_resources._Lister(node.manager, guard), pod_resources._AlphaLister(node.manager, guard)
    context: Any = None
    calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: lister.List(v1_pb2.ListPodResourcesRequest(), context),
        lambda: lister.GetAllocatableResources(v1_pb2.AllocatableResourcesRequest(), context),
        lambda: lister.Get(v1_pb2.GetPodResourcesRequest(pod_namespace="ns", pod_name="a"), context),
        lambda: alpha.List(v1alpha1_pb2.ListPodResourcesRequest(), context),
    ]
    for call in calls:
        await beat()
        found = await call()
        await beat()
        found.SerializeToString()


async def lists_for_the_kubelet(folder: Path) -> AsyncIterator[None]:
    """With --runtime kubelet: all devices fail and recover, some are cordoned; each time the kubelet is offered another list."""
    mirror = Mirror(0.0)
    backend = SimpleNamespace(mirror=mirror, on_condition=lambda name: None, grace_seconds=1.0)
    endpoint = KubeletEndpoint(cast(KubeletBackend, backend), NAME)
    mirror.connected(NAME, 1, PluginOptions(), 0.0)
    mirror.cordoned(NAME, "uid", {}, 0.0)
    lists = (many(), many(healthy=False), many())
    yield
    advertising = asyncio.create_task(endpoint.keep_advertised())
    for now, devices in enumerate(lists, start=1):
        await beat()
        mirror.listed(NAME, 1, devices, float(now))
        await _advertised(endpoint)
    mirror.cordoned(NAME, "uid", {f"d{index:06}": Cordon() for index in range(0, 1000, 2)}, 9.0)
    await _advertised(endpoint)
    advertising.cancel()


async def _advertised(endpoint: KubeletEndpoint) -> None:
    """It has another list than before, in a few seconds."""
    before = endpoint.devices.latest
    await beat()
    endpoint.resource_changed()
    while endpoint.devices.latest is before:
        await later(0.01)


SCENARIOS: Final[tuple[Scenario, ...]] = (
    lists_of_devices,
    lists_of_physical_devices,
    lists_of_built_in_plugins,
    names_of_a_node,
    devices_of_a_pod,
    parts_of_a_pod,
    near_devices_of_a_pod,
    calls_of_a_plugin,
    pods_of_a_node,
    cordons_of_a_resource,
    configurations_of_a_node,
    containers_of_a_runtime,
    pod_resources_of_a_node,
    lists_for_the_kubelet,
)
