"""What the tests of the agents' admission policy write, as agents of two nodes, and how they are refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from nodedevice_api.names import AGENT_FIELD_MANAGER, AGENTS_NAMESPACE, OPERATOR_FIELD_MANAGER, node_device_name

from tests.cluster.api import Client, Lease, Node, NodeDevice, Object, PatchType
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.crds.custom_resources import apply_status, condition, denied, free

A, B = "admission-a", "admission-b"
GPU = "example.com/gpu"
NAME, OTHER = node_device_name(A, GPU), node_device_name(B, GPU)


def owner(cluster: ControlPlane, node: str) -> dict[str, Any]:
    uid = cluster.client.get(Node, node).to_dict()["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}


def body(owners: list[dict[str, Any]], name: str = NAME, node: str = A, resource: str = GPU, **metadata: Any) -> Any:
    """A NodeDevice as an agent makes it."""
    spec = {"nodeName": node, "resourceName": resource}
    return NodeDevice.from_dict({"metadata": {"name": name, "ownerReferences": owners, **metadata}, "spec": spec})


def lease(name: str = A, namespace: str = AGENTS_NAMESPACE, **metadata: Any) -> Object:
    return Lease(metadata=Object(name=name, namespace=namespace, **metadata), spec=Object(holderIdentity=name))


@contextmanager
def publishing(cluster: ControlPlane, agents: dict[str, Client]) -> Iterator[None]:
    """A NodeDevice of each node, made by its agent, with the operator's conditions and a label of somebody's."""
    for node, name in ((A, NAME), (B, OTHER)):
        made = body([owner(cluster, node)], name, node)
        agents[node].apply(made, field_manager=AGENT_FIELD_MANAGER, force=True)
        apply_status(agents[node], name, free("gpu-0"))
        ready = [condition(kind) for kind in ("Advertised", "Ready")]
        apply_status(cluster.client, name, {"conditions": ready}, OPERATOR_FIELD_MANAGER)
        marks = {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "a"}}}
        cluster.client.patch(NodeDevice, name, marks, patch_type=PatchType.MERGE)
    yield
    for name in (NAME, OTHER):
        cluster.client.delete(NodeDevice, name)


refused = partial(denied, policy="nodedevice-agent")
