"""Nodes without a kubelet: made here, played by node_player.

A Node is made as a kubelet makes it, with labels and under the field manager `kubelet`: a bare one has no managed fields, and what
the kubelet owns would later be shown as `before-first-apply`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from tests.cluster.api import ApiError, Client, Node, Object
from tests.cluster.waiting import wait_until

# not in nodedevice.io/ itself: the operator removes labels of that group that it did not set
PLAYED_LABEL = "test.nodedevice.io/played-by"
PLAYED_BY_US = "nodedevice"
# of Nodes in a cluster with other users: their pods would be bound there, and shown as running although nothing runs
LENT_TAINT: Final = Object(key="test.nodedevice.io/demo", effect="NoSchedule")

_FIELD_MANAGER = "kubelet"
_CAPACITY = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "500Gi", "pods": "250"}


def toleration() -> dict[str, Any]:
    """The toleration that a pod needs to be bound to a Node with LENT_TAINT."""
    return {"key": LENT_TAINT.key, "operator": "Exists", "effect": LENT_TAINT.effect}


def create_node(
    client: Client,
    name: str,
    kubelet_version: str,
    played_by: str = PLAYED_BY_US,
    more_labels: Mapping[str, str] = MappingProxyType({}),
    taints: Sequence[Object] = (),
) -> None:
    """Create the Node; the program that plays it finds it by its label and reports it Ready. It has cpu, memory and
    pods, and no devices.

    In two writes, like a kubelet: only a write of the status makes its manager the owner of capacity.
    """
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        PLAYED_LABEL: played_by,
        **more_labels,
    }
    status = Object(
        capacity=dict(_CAPACITY),
        allocatable=dict(_CAPACITY),
        addresses=[Object(type="Hostname", address=name)],
        nodeInfo=_node_info(kubelet_version),
    )
    spec = Object(taints=list(taints) or None)
    client.create(Node(metadata=Object(name=name, labels=labels), spec=spec), field_manager=_FIELD_MANAGER)
    client.patch(Node.Status, name, Node.Status(status=status), field_manager=_FIELD_MANAGER)


def wait_schedulable(client: Client, names: Sequence[str], timeout_seconds: float = 60.0) -> None:
    """Wait until the scheduler would use each Node: Ready, and without the taints of its first seconds.

    Raises TimeoutError with the first Node that is not ready after timeout_seconds.
    """
    for name in names:
        wait_until(partial(is_schedulable, client, name), f"Node {name} is Ready and free of taints", timeout_seconds)


def is_schedulable(client: Client, name: str) -> bool:
    """Would the scheduler use it now, for pods that tolerate LENT_TAINT? False if the Node does not exist yet."""
    try:
        node = client.get(Node, name)
    except ApiError as exc:
        if exc.status.code == HTTPStatus.NOT_FOUND:
            return False
        raise
    conditions = (node.status.conditions or []) if node.status else []
    is_ready = any(condition.type == "Ready" and condition.status == "True" for condition in conditions)
    taints = (node.spec.taints or []) if node.spec else []
    return is_ready and all(taint.key == LENT_TAINT.key for taint in taints)


def _node_info(kubelet_version: str) -> Object:
    """A Node's nodeInfo; the API requires every field, and most are empty for a played Node."""
    return Object(
        architecture="amd64",
        operatingSystem="linux",
        kubeletVersion=kubelet_version,
        containerRuntimeVersion="played://",
        bootID="",
        kernelVersion="",
        kubeProxyVersion="",
        machineID="",
        osImage="",
        systemUUID="",
    )
