"""Builds an agent's objects in the API: its Lease, its NodeDevices and their status. Sends nothing."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace
from nodedevice_api import names
from nodedevice_api.nodedevice import (
    AgentStatus,
    AllocationStatus,
    ConditionStatus,
    DeviceStatus,
    EndpointStatus,
    NodeDeviceSpec,
    NodeDeviceStatus,
)

Body = dict[str, Any]
SINCE = "2026-01-02T03:04:05Z"


def now_text(ahead_seconds: float = 0.0) -> str:
    """The current time, or that of a clock this far ahead, as the API writes it in Leases and in its audit log."""
    return datetime.fromtimestamp(datetime.now(UTC).timestamp() + ahead_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def lease(
    name: str,
    renewed: str,
    seconds: int = names.AGENT_LEASE_SECONDS,
    *,
    namespace: str = names.AGENTS_NAMESPACE,
    holder: str | None = None,
    resource_version: str | None = None,
) -> Body:
    """A Lease, held by the node of the same name unless `holder` names another."""
    metadata = {"name": name, "namespace": namespace}
    if resource_version is not None:
        metadata["resourceVersion"] = resource_version
    spec = {"holderIdentity": holder or name, "leaseDurationSeconds": seconds, "renewTime": renewed}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def node_device(node: str, resource: str, node_uid: str | None, name: str | None = None) -> Body:
    """A NodeDevice without status. node_uid: of the Node that owns it; None: it has no owner."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODE_DEVICE,
        "metadata": {
            "name": name or names.node_device_name(node, resource),
            "ownerReferences": [] if node_uid is None else [owner],
        },
        "spec": to_builtins(NodeDeviceSpec(node_name=node, resource_name=resource)),
    }


def status(
    devices: Iterable[DeviceStatus],
    allocations: Iterable[AllocationStatus] = (),
    *,
    state: str = "Running",
    since: str = "",
    delivery: str = "none",
    **more: Any,
) -> Body:
    """The whole status, as each apply of an agent carries it; its numbers follow from the devices and allocations.

    devices: sorted. state: of the endpoint, since then. delivery: how devices reach containers. more: fields as in
    the API.
    """
    devices, allocations = list(devices), sorted(allocations, key=lambda a: (a.pod_uid, a.container))
    held = {i for a in allocations if not a.releasing for i in a.device_ids}
    releasing = {i for a in allocations if a.releasing for i in a.device_ids}
    healthy = [device.id for device in devices if device.health == "Healthy"]
    some = "AllHealthy" if len(healthy) == len(devices) else "SomeDevicesUnhealthy"
    health = some if healthy else "NoHealthyDevices"
    injectable = ("Unknown", "RuntimeNone") if delivery == "none" else ("True", "Injected")
    # an older commit in a comparison may lack the field `delivery`
    agent = AgentStatus(version="0.1.0", runtime=delivery, served_by=names.SERVED_BY_NODEDEVICE)
    made = NodeDeviceStatus(
        total=len(devices),
        healthy=len(healthy),
        allocated=len(held),
        releasing=len(releasing),
        available=0 if state == "Gone" else len([i for i in healthy if i not in held | releasing]),
        endpoint=EndpointStatus(state=state, since=since or (SINCE if state == "Running" else now_text())),
        agent=convert({**to_builtins(agent), "delivery": delivery}, AgentStatus),
        devices=[device if device.since else replace(device, since=SINCE) for device in devices],
        allocations=allocations,
        conditions=[
            _condition("Registered", str(state == "Running"), f"Endpoint{state}"),
            _condition("Healthy", str(health == "AllHealthy"), health),
            _condition("Injectable", *injectable),
            _condition("WatchesCurrent", "True", "WatchesCurrent"),
        ],
    )
    return {**to_builtins(made), **to_builtins(more)}


def _condition(kind: str, status: str, reason: str) -> ConditionStatus:
    return ConditionStatus(type=kind, status=status, reason=reason, last_transition_time=SINCE)
