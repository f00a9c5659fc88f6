"""Nodes of 8 GPUs with 80 units and 20 bound pods each that hold parts, as the API has them; no agents run."""

import asyncio
import uuid
from typing import Any, Final

import msgspec
from nodedevice_api import names
from nodedevice_operator.objects.meta import PartialObject

from hack.bench.operator.api import Api
from hack.scheduling.node_model import CONTAINER, GPUS, RESOURCE, UNITS, BoundPod, NodeModel
from tests.cluster import agent_objects

NAMESPACE: Final = "default"
PODS: Final = 20
# nine nodes of ten have no GPU with room for BIG; one of ten has a free one
SMALL: Final = 40
BIG: Final = 60
_ROOMY: Final = 10
_UNITS: Final = 26
_PODS_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_NODES_PATH: Final = "/api/v1/nodes"
_DEVICES_PATH: Final = f"/apis/{names.API_VERSION}/{names.NODE_DEVICES}"
_MANAGER: Final = "bench"
_PREFERRED: Final = {"matchExpressions": [{"key": "example.com/pool", "operator": "Exists"}]}
_PREFERENCE: Final = {
    "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": _PREFERRED}]}
}


def node_names(count: int) -> list[str]:
    return [f"node-{number:05d}" for number in range(count)]


def has_room(number: int) -> bool:
    """Whether BIG fits on the node of that number."""
    return number % _ROOMY == 0


def pod(name: str, units: int, *, node: str = "", scheduler: str = "none", is_soft: bool = False) -> dict[str, Any]:
    """The body of a pod that needs so many units. node: that it is bound to. is_soft: it prefers some nodes."""
    container = {"name": CONTAINER, "image": "none", "resources": {"limits": {RESOURCE: str(units)}}}
    spec: dict[str, Any] = {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 0}
    if is_soft:
        spec["affinity"] = _PREFERENCE
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec | ({"nodeName": node} if node else {}),
    }


async def create_pod(api: Api, body: dict[str, Any]) -> str:
    """Create a pod. Returns its uid."""
    made = await api.post(_PODS_PATH, body, _MANAGER)
    return msgspec.json.decode(made, type=PartialObject).metadata.uid


async def make(api: Api, count: int, pods: int = PODS) -> None:
    """Create NodeDevices and pods of `count` nodes. Creates no Nodes: the extender does not read them.

    pods: of each node, in the API; agents report all pods of their node.
    """
    await asyncio.gather(*(_make_node(api, number, name, pods) for number, name in enumerate(node_names(count))))


async def make_nodes(api: Api, count: int) -> None:
    """Create Nodes with free GPUs, and their NodeDevices. Requires stopped controllers: no kubelet reports."""
    await asyncio.gather(*(_make_whole_node(api, name) for name in node_names(count)))


async def publish(api: Api, model: NodeModel) -> None:
    """Publish the status that the agent of that node reports."""
    body = model.status()
    await api.apply(f"{_DEVICES_PATH}/{body['metadata']['name']}/status", body, names.AGENT_FIELD_MANAGER)


async def _make_whole_node(api: Api, name: str) -> None:
    numbers = {"cpu": "32", "memory": "256Gi", "pods": "250", RESOURCE: str(GPUS * UNITS)}
    labels = {"kubernetes.io/hostname": name}
    await api.post(
        _NODES_PATH, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}, _MANAGER
    )
    await api.merge(f"{_NODES_PATH}/{name}/status", {"status": {"capacity": numbers, "allocatable": numbers}}, _MANAGER)
    # admission adds the taint of a Node that is not ready yet
    await api.merge(f"{_NODES_PATH}/{name}", {"spec": {"taints": None}}, _MANAGER)
    await api.post(_DEVICES_PATH, agent_objects.node_device(name, RESOURCE, None), names.AGENT_FIELD_MANAGER)
    await publish(api, NodeModel(name))


async def _make_node(api: Api, number: int, node: str, pods: int) -> None:
    model = NodeModel(node)
    sizes = [_UNITS] * PODS
    if not has_room(number):
        sizes[0] = UNITS
    for place, units in enumerate(sizes):
        name = f"{node}-{place}"
        uid = await create_pod(api, pod(name, units, node=node)) if place < pods else str(uuid.uuid4())
        model.bound(BoundPod(NAMESPACE, name, uid, units, None))
    await api.post(_DEVICES_PATH, agent_objects.node_device(node, RESOURCE, None), names.AGENT_FIELD_MANAGER)
    await publish(api, model)
