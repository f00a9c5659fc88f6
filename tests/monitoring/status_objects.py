"""NodeDevices and PodDevices of three nodes on which everything is that the dashboards of kube-state-metrics show.

node-a    train holds two of four GPUs, one is broken, one cordoned, one more is releasing; the plugin of its NICs is gone
          late and two more pods are pending there
node-b    serve holds both GPUs, one of which broke, and a part of a third; its agent is silent, and its Node in conflict
node-c    has no GPUs
"""

from collections.abc import Sequence
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace
from nodedevice_api import names
from nodedevice_api.nodedevice import (
    AllocationStatus,
    CordonedDevice,
    DeviceStatus,
    HeldParts,
    NodeDeviceSpec,
    PartCounts,
    PartRulesStatus,
    Waiting,
)
from nodedevice_api.poddevice import PodDeviceSpec, PodDeviceStatus

from tests.cluster.agent_objects import SINCE, Body, node_device, status

GPU, NIC, MEMORY = "example.com/gpu", "example.com/nic", "example.com/gpu-memory"
LATER: Final = "2026-01-02T04:05:06Z"
_GIB: Final = 2**30
_MODEL: Final = {"model": "Tesla T4", "memoryBytes": str(16 * _GIB), "pciBusID": "0000:3b:00.0"}
_RULES: Final = PartRulesStatus(
    placement="SameParent", choice="BinPack", containers="Any", advertise="Sum", largest_available=48
)
_READY: Final = (names.Condition.READY, "True", names.Reason.READY)


def node_devices() -> list[Body]:
    gpus = [_device("g0"), _device("g1"), _device("g2"), _broken("g3"), _device("g4")]
    ended = replace(_holds("team-a", "done", "u0", "g4"), releasing=True)
    held = [_holds("team-a", "train", "u1", "g0", "g1"), ended]
    late = Waiting(
        namespace="team-b", name="late", pod_uid="u9", container="c0", reason="NotEnoughDevices", since=LATER
    )
    of_gpus = status(gpus, held, cordoned=1, reserved=1, available=0, waiting=[late], waitingPods=3)
    cordoned = [CordonedDevice(id="g2", reason="fan", by="alice", at="2026-01-01T12:00:00Z")]
    of_serve = [_holds("team-b", "serve", "u2", "g0", "g1")]
    # an agent gives no moment for parts
    memory = replace(_holds("team-b", "serve", "u2"), since="", parts=[HeldParts("g2", 16, "0-15")])
    unit = {**_MODEL, "unitBytes": str(_GIB)}
    whole = replace(_device("g2"), presence="", parts=PartCounts(80, 80, 16, 64), attributes=unit)
    counts: Body = {"total": 80, "healthy": 80, "allocated": 16, "available": 64}
    of_memory = status([whole], [memory], delivery="nri", **counts, parts=_RULES)
    expired = (names.Condition.READY, "False", names.Reason.LEASE_EXPIRED)
    is_silent = (names.Condition.AGENT_READY, "False", names.Reason.LEASE_EXPIRED)
    in_conflict = (names.Condition.CONFLICT, "True", names.Reason.FOREIGN_OWNER)
    return [
        _object("node-a", GPU, of_gpus, _READY, cordons=cordoned),
        _object("node-a", NIC, status([], state="Gone"), _not_ready(names.Reason.ENDPOINT_GONE)),
        _object("node-b", GPU, status([_device("g0"), _broken("g1")], of_serve), expired, is_silent, in_conflict),
        _object("node-b", MEMORY, of_memory, expired, is_silent),
        _object("node-c", GPU, status([]), _not_ready(names.Reason.NO_DEVICES)),
        # made a moment ago: it has no status yet
        node_device("node-c", NIC, None),
    ]


def pod_devices() -> list[Body]:
    serve = PodDeviceStatus(f"{GPU}=2,{MEMORY}=16", "g0,g1,g2: 16 of 80", "g1 Unhealthy")
    train = PodDeviceStatus(f"{GPU}=2", "g0,g1", "Healthy")
    return [
        _pod("team-a", "train", "node-a", "u1", SINCE, train),
        _pod("team-b", "serve", "node-b", "u2", LATER, serve),
    ]


def _object(
    node: str, resource: str, seen: Body, *conditions: tuple[str, str, str], cordons: Sequence[CordonedDevice] = ()
) -> Body:
    """conditions: of the operator; those that are not named are as one wants them."""
    made = node_device(node, resource, None)
    wanted = {names.Condition.AGENT_READY: ("True", names.Reason.LEASE_RENEWED)}
    wanted |= {names.Condition.CONFLICT: ("False", names.Reason.NO_CONFLICT)}
    wanted |= {kind: (state, reason) for kind, state, reason in conditions}
    all_of_them = [{"type": kind, "status": s, "reason": r} for kind, (s, r) in wanted.items()]
    return {
        **made,
        "spec": to_builtins(NodeDeviceSpec(node_name=node, resource_name=resource, cordoned_devices=list(cordons))),
        "status": {"reserved": 0, **seen, "conditions": [*seen["conditions"], *all_of_them]},
    }


def _not_ready(reason: str) -> tuple[str, str, str]:
    return names.Condition.READY, "False", reason


def _device(device_id: str) -> DeviceStatus:
    return DeviceStatus(id=device_id, health="Healthy", presence="Present", since=SINCE, attributes=_MODEL)


def _broken(device_id: str) -> DeviceStatus:
    return replace(_device(device_id), health="Unhealthy", reason=names.Reason.REPORTED_UNHEALTHY, since=LATER)


def _holds(namespace: str, pod: str, uid: str, *ids: str) -> AllocationStatus:
    return AllocationStatus(
        namespace=namespace, name=pod, pod_uid=uid, container="c0", device_ids=list(ids), since=SINCE
    )


def _pod(namespace: str, name: str, node: str, uid: str, created: str, seen: PodDeviceStatus) -> Body:
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.POD_DEVICE,
        "metadata": metadata,
        "spec": to_builtins(PodDeviceSpec(node, uid)),
        "status": to_builtins(seen),
    }
