"""A device that two sources of one node offer: both NodeDevices say so while it lasts. A real agent and a real API server."""

import asyncio
import json

from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_api.names import Condition, Reason, node_device_name
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.cluster.waiting import wait_until
from tests.fakes.dra import Slices, resource_slice
from tests.fakes.pod_resources import AssignedDevices, PodResources
from tests.integration.agent_process import GPU, AgentNode, condition
from tests.integration.operator_process import OperatorProcess
from tests.integration.product_process import Json

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
