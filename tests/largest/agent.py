"""The largest input that each entrance of the agent accepts, given to the code behind it.

Up to the `yield` of a scenario it is prepared; what comes then is measured, `await beat()` between one event and the next.
What comes from device plugins is in device_plugins.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
from nodedevice_agent.configs.effective import Config, effective
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.kube.pod_objects import PodObject, from_api
from nodedevice_agent.kubelet.backend import KubeletBackend, KubeletEndpoint
from nodedevice_agent.nri.host_devices import HostDeviceStat
from nodedevice_agent.nri.session import Session, SessionEnded
from nodedevice_agent.nri.synchronization import Synchronization
from nodedevice_agent.nri.ttrpc import MAX_MESSAGE_BYTES
from nodedevice_agent.plugins.nvml.environment import is_read
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.podresources import server as pod_resources
from nodedevice_agent.runtime.container_events import ContainerEvents
from nodedevice_agent.runtime.creation_hooks import CreationHooks
from nodedevice_agent.runtime.injection import Injection
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2 as v1_pb2
from nodedevice_api.upstream.kubelet.podresources.v1alpha1 import api_pb2 as v1alpha1_pb2
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2 as nri_pb2

from tests.fakes.nri_runtime import FakeRuntime, LargeContainers
from tests.fakes.runtime_handler import Recorder
from tests.fakes.settled import attributing
from tests.fakes.virtual_time import later
from tests.largest.device_plugins import (
    calls_of_a_plugin,
    devices_of_a_pod,
    lists_of_built_in_plugins,
    lists_of_devices,
    lists_of_physical_devices,
    names_of_a_node,
    near_devices_of_a_pod,
    parts_of_a_pod,
)
from tests.largest.drivers import slices_of_drivers
from tests.largest.kubelet import devices_given_out_by_the_kubelet, devices_of_claims
from tests.largest.node import MANY, NAME, NAMES, UNITS, Node, Scenario, beat, many, pod
from tests.largest.offered_twice import devices_that_are_offered_twice

# of a runtime
SANDBOXES: Final = 500


# -- the API server ----------------------------------------------------------------------------------------------------


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
        node.manager.pod_events.synced(found, node.now)
        await node.follow()
    assert len(node.manager.book.by_pod) == len(few + most)
    node.manager.pod_events.synced([], node.now)
    await node.follow()


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
        node.manager.table.cordoned(NAME, "uid", cordons)
        await node.follow()


async def configurations_of_a_node(folder: Path) -> AsyncIterator[None]:
    resources = [
        {"resourceName": f"example.com/r{n}", "groups": [{"paths": [{"path": f"/dev/tty{n}*"}], "count": 1000}]}
        for n in range(NAMES)
    ]
    configs = [
        Config(f"c{n}", 1, plugins=msgspec.Raw(msgspec.json.encode({"generic": resources[n::8]}))) for n in range(8)
    ]
    yield
    await beat()
    found = effective(PluginSettings(), configs, {}, ["/dev"])
    assert len(found.plugins.generic) == NAMES


# -- the container runtime ---------------------------------------------------------------------------------------------


async def containers_of_a_runtime(folder: Path) -> AsyncIterator[None]:
    """The state of a node in messages that are as long as they may be; and containers one by one."""
    node = Node()
    node.plugin(many())
    events, injection = ContainerEvents(node.manager), Injection(node.manager, CreationHooks(node.manager))
    env = [f"VARIABLE_{index}={'x' * 40}" for index in range(100)]
    sandboxes = [nri_pb2.PodSandbox(id=f"s{n}", uid=f"u{n}", name=f"p{n}", namespace="n") for n in range(SANDBOXES)]
    containers = [
        nri_pb2.Container(id=f"c{n}", pod_sandbox_id=f"s{n % SANDBOXES}", name=f"c{n}", env=env) for n in range(700)
    ]
    message = nri_pb2.SynchronizeRequest(pods=sandboxes, containers=containers).SerializeToString()
    assert MAX_MESSAGE_BYTES * 0.9 < len(message) < MAX_MESSAGE_BYTES, len(message)
    yield
    await beat()
    found = Synchronization()
    await found.add(message)
    shown, running = found.sandboxes, found.containers
    await beat()
    events.synchronized(shown, running, node.now)
    await node.follow()
    for sandbox, container in zip(shown, running, strict=False):
        await beat()
        injection.decide(sandbox, container.name, container.env)
        events.ended(sandbox.uid, container.id)
        node.carry_out()


async def environments_of_a_runtime(folder: Path) -> AsyncIterator[None]:
    """In the runtime's list, and of containers that are created and started, of variables that matter; over a real socket."""
    handler, runtime = Recorder(), FakeRuntime(folder / "nri.sock")
    handler.reads_variable = is_read  # type: ignore[method-assign]
    runtime.containers = cast(list[nri_pb2.Container], LargeContainers(8, 1_250_000, 8))
    runtime.per_message = 2
    pod = nri_pb2.PodSandbox(id="s", uid="u", name="p", namespace="n")
    env = [f"CUDA_MPS_{number:X}=" for number in range(230_000)]
    made = nri_pb2.CreateContainerRequest(pod=pod, container=nri_pb2.Container(id="c", env=env)).SerializeToString()
    assert MAX_MESSAGE_BYTES * 0.9 < len(made) < MAX_MESSAGE_BYTES, len(made)
    async with runtime:
        yield
        session = asyncio.create_task(Session(handler, "10", HostDeviceStat()).run(runtime.socket))
        plugin = await runtime.plugin()
        for method in ("CreateContainer", "ValidateContainerAdjustment", "PostStartContainer", "StopContainer"):
            await beat()
            await plugin.call(method, made)
        await plugin.close()
        await asyncio.wait([session])
        assert isinstance(session.exception(), SessionEnded)


# -- monitors ----------------------------------------------------------------------------------------------------------


async def pod_resources_of_a_node(folder: Path) -> AsyncIterator[None]:
    node = Node()
    node.plugin(many())
    await node.seen(pod("a", UNITS))
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
    """With --delivery kubelet: all devices fail and recover, some are cordoned; each time the kubelet is offered another list."""
    mirror = attributing(0.0)
    backend = SimpleNamespace(manager=mirror, on_condition=lambda name: None, grace_seconds=1.0)
    endpoint = KubeletEndpoint(cast(KubeletBackend, backend), NAME)
    mirror.connected(NAME, 1, PluginOptions(), 0.0)
    mirror.table.cordoned(NAME, "uid", {})
    lists = (many(), many(healthy=False), many())
    yield
    advertising = asyncio.create_task(endpoint.keep_advertised())
    for now, devices in enumerate(lists, start=1):
        await beat()
        mirror.listed(NAME, 1, devices, float(now))
        await _advertised(endpoint)
    mirror.table.cordoned(NAME, "uid", {f"d{index:06}": Cordon() for index in range(0, 1000, 2)}, 9.0)
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
    environments_of_a_runtime,
    pod_resources_of_a_node,
    lists_for_the_kubelet,
    slices_of_drivers,
    devices_given_out_by_the_kubelet,
    devices_of_claims,
    devices_that_are_offered_twice,
)
