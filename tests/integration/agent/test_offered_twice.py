"""A device that two sources of one node offer: both NodeDevices say so while it lasts. A real agent and a real API server."""

import asyncio
import json

from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_api.names import Condition, Reason, node_device_name
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.cluster.waiting import wait_until
from tests.fakes.dra import Slices, devices, resource_slice
from tests.fakes.plugin import FakeDevice
from tests.fakes.pod_resources import AssignedDevices, ClaimedDevice, PodResources
from tests.fakes.sysfs import FakeSysfs
from tests.integration.agent_process import GPU, AgentNode, condition
from tests.integration.operator_process import OperatorProcess
from tests.integration.product_process import Json
from tests.oracle.kubelet import Kubelet

DRIVER = "gpu.vendor.example"
OF_DRIVER, OURS = f"{DRIVER}/devices", "other.example.com/gpu"
UUID, OTHER = "GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0", "GPU-ffffffff-e770-3ea8-8ac3-8a1d419763e0"


async def publish(slices: Slices, node: str, *uuids: str, generation: int = 1) -> None:
    found = [{"name": f"gpu-{n}", "attributes": {"uuid": {"string": uuid}}} for n, uuid in enumerate(uuids)]
    await asyncio.to_thread(slices.publish, resource_slice(f"{node}-a", DRIVER, node, found, generation=generation))


async def give(
    node: AgentNode, pod_resources: PodResources, pod: str, device: str, *files: str, resource: str = GPU
) -> None:
    """The kubelet has given a device to a pod, with these files."""
    uid = await node.pod(pod, resource=resource)
    specs = [api_pb2.DeviceSpec(host_path=path, container_path=path, permissions="rw") for path in files]
    response = api_pb2.ContainerAllocateResponse(devices=specs).SerializeToString()
    pod_resources.assigned.append(AssignedDevices(node.namespace, pod, "c0", resource, {device: ()}))
    path = node.folder / "k/device-plugins/kubelet_internal_checkpoint"
    path.parent.mkdir(exist_ok=True)
    new = path.with_name("new")
    entries = (Allocation(uid, "c0", resource, {-1: (device,)}, response),)
    names = {name: tuple(ids) for name, ids in (pod_resources.allocatable or {}).items()}
    new.write_text(encode(Checkpoint(entries, names)))
    new.rename(path)


def twice(seen: Json) -> str:
    """The condition's message; empty where it is not there."""
    found = condition(seen, Condition.OFFERED_TWICE)
    assert (found.get("status"), found.get("reason")) in ((None, None), ("True", Reason.OFFERED_TWICE))
    return str(found.get("message", ""))


async def until_twice(node: AgentNode, name: str, *words: str) -> Json:
    return await node.until(lambda seen: all(word in twice(seen) for word in words) and bool(twice(seen)), name)


async def until_once(node: AgentNode, name: str) -> Json:
    return await node.until(lambda seen: not twice(seen), name)


async def test_a_plugin_of_the_kubelet_and_a_driver(
    agent_node: AgentNode, pod_resources: PodResources, slices: Slices
) -> None:
    node = agent_node
    pod_resources.allocatable = {GPU: {f"{UUID}::0": (), f"{UUID}::1": (), OTHER: ()}}
    node.start_agent()
    await node.until_numbers(total=3, allocated=0, available=3)
    await publish(slices, node.name, UUID)
    stop = f"stop the device plugin of {GPU} on this node"
    await until_twice(node, GPU, OF_DRIVER, f"{UUID} (there gpu-0)", "1 device is", "none is in use", stop)
    await until_twice(node, OF_DRIVER, GPU, f"gpu-0 (there {UUID})", "served by the kubelet", stop)
    status, metrics = await node.agent.get("/metrics")
    assert f'nodedevice_agent_offered_twice{{resource_name="{GPU}"}} 1.0' in metrics
    # a pod that has one decides which side goes
    await give(node, pod_resources, "one", f"{UUID}::1")
    await until_twice(node, GPU, "1 in use here and 0 there", f"stop the DRA driver {DRIVER}")
    await publish(slices, node.name, "GPU-00000001-e770-3ea8-8ac3-8a1d419763e0", generation=2)
    for name in (GPU, OF_DRIVER):
        await until_once(node, name)
    status, metrics = await node.agent.get("/metrics")
    assert "nodedevice_agent_offered_twice{" not in metrics
    written = node.version()
    await node.free_plugin(1, "example.com/nic")
    assert (status, node.version()) == (200, written), "nothing is written while nothing changes"


async def test_a_plugin_of_the_kubelet_and_one_here_and_a_restart(
    agent_node: AgentNode, pod_resources: PodResources
) -> None:
    node = agent_node
    pod_resources.allocatable = {GPU: {UUID: ()}}
    node.start_agent()
    await node.until_numbers(total=1, allocated=0, available=1)
    plugin = await node.plugin({UUID.lower(): FakeDevice(), OTHER: FakeDevice()}, OURS)
    before = [condition(await until_twice(node, name), Condition.OFFERED_TWICE) for name in (GPU, OURS)]
    node.agent.kill()
    node.start_agent()
    await node.agent.until_logged("serving device plugins")
    await node.free_plugin(1, "example.com/nic")
    await node.agent.until_logged("devices are offered twice", 2)
    assert [condition(node.status(name), Condition.OFFERED_TWICE) for name in (GPU, OURS)] == before
    await plugin.set_health(UUID.lower(), healthy=False)
    for name in (GPU, OURS):
        await until_once(node, name)


async def test_a_file_that_a_pod_of_the_kubelet_has_and_a_path_here(
    agent_node: AgentNode, pod_resources: PodResources
) -> None:
    """Two names of one device: the plugin of the kubelet says only with a pod what its device is."""
    node, path = agent_node, "/dev/serial/by-id/usb-of-this-test-if00-port0"
    pod_resources.allocatable = {GPU: {"some-name": (), "another": ()}}
    node.start_agent()
    await node.plugin({path: FakeDevice()}, OURS)
    await node.until_numbers(total=2, allocated=0, available=2)
    assert not twice(node.status())
    await give(node, pod_resources, "one", "some-name", "/dev/null", path)
    await until_twice(node, GPU, f"some-name (there {path})", "1 in use here and 0 there", OURS)


async def test_a_dongle_of_ours_and_of_a_driver(
    agent_node: AgentNode, pod_resources: PodResources, slices: Slices
) -> None:
    """Its serial number, of that vendor; and as soon as another one has it, too, it says nothing any more."""
    node, host = agent_node, FakeSysfs(agent_node.folder / "host")
    host.dongle("1-2.3", 0, serial="A5XK3RJT")
    group = {"select": {"usb": {"vendor": "0403"}}, "count": 2}
    config = node.folder / "agent.yaml"
    plugins = {"hostRoot": str(host.root), "generic": [{"resourceName": OURS, "groups": [group]}]}
    config.write_text(json.dumps({"plugins": plugins}))
    node.start_agent({"--config": str(config)})
    tty = {"serial": {"string": "A5XK3RJT"}, "vendorID": {"string": "0x0403"}}
    written = resource_slice(f"{node.name}-a", DRIVER, node.name, [{"name": "tty-0", "attributes": tty}])
    await asyncio.to_thread(slices.publish, written)
    await until_twice(node, OURS, "there tty-0", f"take {OURS} out of this node's configuration")
    await until_twice(node, OF_DRIVER, "tty-0 (there 0403-6001-A5XK3RJT)")
    host.dongle("1-2.4", 1, serial="A5XK3RJT")
    for name in (OURS, OF_DRIVER):
        await until_once(node, name)


async def test_files_of_a_claim_and_a_path_here(
    agent_node: AgentNode, pod_resources: PodResources, slices: Slices
) -> None:
    """What a driver's device is, its CDI specification says once a pod holds it."""
    node, root = agent_node, agent_node.folder / "host"
    spec = {
        "name": "one",
        "containerEdits": {"deviceNodes": [{"path": "/dev/inside", "hostPath": "/dev/card-of-test7"}]},
    }
    cdi = root / "var/run/cdi/vendor.example-claim_one.json"
    cdi.parent.mkdir(parents=True)
    cdi.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": "vendor.example/claim", "devices": [spec]}))
    config = node.folder / "agent.yaml"
    config.write_text(json.dumps({"plugins": {"hostRoot": str(root)}}))
    node.start_agent({"--config": str(config)})
    await asyncio.to_thread(slices.publish, resource_slice(f"{node.name}-a", DRIVER, node.name, devices(2, "gpu")))
    await node.plugin({"/dev/card-of-test7": FakeDevice()}, OURS)
    await node.until_numbers(2, 0, 2, OF_DRIVER)
    assert not twice(node.status(OF_DRIVER))
    held = ClaimedDevice(node.namespace, "one", "c0", "c", DRIVER, node.name, "gpu-1", cdi="vendor.example/claim=one")
    pod_resources.claimed.append(held)
    await node.claiming_pod("one", "c")
    await node.until_numbers(2, 1, 1, OF_DRIVER)
    await until_twice(node, OF_DRIVER, "gpu-1 (there /dev/card-of-test7)", "1 in use here and 0 there")
    await until_twice(node, OURS, "0 in use here and 1 there", f"stop the device plugin of {OURS}")


async def test_what_is_one_device_of_one_vendor_raises_nothing(
    agent_node: AgentNode, pod_resources: PodResources, slices: Slices
) -> None:
    node = agent_node
    pod_resources.allocatable = {GPU: {f"{UUID}::0": (), f"{UUID}::1": ()}, "example.com/gpu.shared": {UUID: ()}}
    node.start_agent()
    await publish(slices, node.name, OTHER, OTHER)
    await node.plugin({OTHER: FakeDevice()}, OURS)
    # the comparison of a later change has been made, too
    await publish(slices, node.name, OTHER, OTHER, "GPU-00000001-e770-3ea8-8ac3-8a1d419763e0", generation=2)
    await node.plugin({"GPU-00000001-e770-3ea8-8ac3-8a1d419763e0": FakeDevice()}, "third.example.com/gpu")
    await until_twice(node, "third.example.com/gpu", OF_DRIVER)
    for name in (GPU, "example.com/gpu.shared", OURS):
        assert not twice(node.status(name))


async def test_the_operator_reports_its_beginning_and_its_end(
    agent_node: AgentNode, pod_resources: PodResources, slices: Slices, operator: OperatorProcess
) -> None:
    node = agent_node
    pod_resources.allocatable = {GPU: {UUID: ()}}
    node.start_agent()
    await node.until_numbers(total=1, allocated=0, available=1)
    await publish(slices, node.name, UUID)
    both = {node_device_name(node.name, name) for name in (GPU, OF_DRIVER)}

    def reported(reason: str, kind: str) -> bool:
        found = json.loads(node.control_plane.kubectl("get", "events", "--all-namespaces", "--output=json"))["items"]
        about = {e["involvedObject"]["name"] for e in found if (e["reason"], e["type"]) == (reason, kind)}
        return both <= about

    await asyncio.to_thread(wait_until, lambda: reported("OfferedTwice", "Warning"), "both have an Event of it")
    await publish(slices, node.name, OTHER, generation=2)
    await asyncio.to_thread(wait_until, lambda: reported("OfferedOnce", "Normal"), "both have an Event of its end")


async def test_what_the_kubelet_has_of_ours_is_not_offered_twice(
    agent_node: AgentNode, pod_resources: PodResources, kubelet: Kubelet, slices: Slices
) -> None:
    """With --delivery kubelet it lists all that the agent advertises there."""
    node = agent_node
    node.start_agent({"--delivery": "kubelet"})
    await node.plugin({UUID: FakeDevice(), OTHER: FakeDevice()}, OURS)
    await kubelet.until_numbers(OURS, 2, 2)
    pod_resources.allocatable = {OURS: {UUID: (), OTHER: ()}}
    await node.until_numbers(total=2, allocated=0, available=2, resource_name=OURS)
    await publish(slices, node.name, OTHER)
    seen = await until_twice(node, OURS, OF_DRIVER, "1 device is")
    assert "served by the kubelet" not in twice(seen)
