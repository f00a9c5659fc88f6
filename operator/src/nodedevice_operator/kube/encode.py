"""What the operator writes, as the API's JSON: the way out that wire.py is the way in of. Sends nothing.

Server-side apply takes away what a body of ours leaves out, so each of these is whole: all that we say of that object.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from nodedevice_api import names

from nodedevice_operator.conditions.conditions import ConditionValue
from nodedevice_operator.events.transitions import Event
from nodedevice_operator.objects.nodedevice import NodeRecord
from nodedevice_operator.poddevices.plan import Content, HeldDevice, Wanted


def capacity(node: NodeRecord, numbers: Mapping[str, int]) -> dict[str, Any]:
    """Exactly these extended resources on that very Node, as it was seen."""
    quantities = {resource: str(number) for resource, number in sorted(numbers.items())}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        # the uid makes the API server refuse a Node that was made anew under this name; the version, one that anybody has
        # changed since it was decided about, another operator before all
        "metadata": {"name": node.name, "uid": node.uid, "resourceVersion": str(node.resource_version)},
        "status": {"capacity": quantities, "allocatable": quantities},
    }


def conditions(name: str, values: Sequence[ConditionValue]) -> dict[str, Any]:
    """The operator's conditions of the NodeDevice of that name."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODE_DEVICE,
        "metadata": {"name": name},
        "status": {"conditions": [_condition(value) for value in values]},
    }


def pod_device(wanted: Wanted, uid: str | None) -> dict[str, Any]:
    """A PodDevice. uid: of the object that it must be; None where there is to be none yet."""
    metadata = {
        "name": wanted.name,
        "namespace": wanted.namespace,
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": wanted.name, "uid": wanted.pod_uid}],
    }
    if uid is not None:
        metadata["uid"] = uid
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.POD_DEVICE,
        "metadata": metadata,
        "spec": {"nodeName": wanted.content.node, "podUID": wanted.pod_uid},
        "status": _pod_device_status(wanted.content),
    }


def deletion(uid: str) -> dict[str, Any]:
    """Options that delete the object of that uid and no other."""
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def eviction(namespace: str, name: str, uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }


def repetition(count: int) -> dict[str, Any]:
    """What changes in an Event that has happened again."""
    return {"count": count, "lastTimestamp": now_text()}


def now_text() -> str:
    """The time in the API's own form, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition(value: ConditionValue) -> dict[str, Any]:
    return {
        "type": value.type,
        "status": value.status,
        "reason": value.reason,
        "message": value.message,
        "lastTransitionTime": value.since,
        "observedGeneration": value.observed_generation,
    }


def _pod_device_status(content: Content) -> dict[str, Any]:
    return {
        "resources": content.resources,
        "devices": content.devices,
        "health": content.health,
        "containers": [
            {
                "name": container.name,
                "resources": [
                    {
                        "resourceName": resource.name,
                        "devices": [_shown(device) for device in resource.devices],
                    }
                    for resource in container.resources
                ],
            }
            for container in content.containers
        ],
    }


def event(event: Event, namespace: str, suffix: str) -> dict[str, Any]:
    """A Kubernetes Event in that namespace. suffix: what makes its name one of its own."""
    now = now_text()
    about = event.about
    involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
    if about.namespace:
        involved["namespace"] = about.namespace
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(event, suffix), "namespace": namespace},
        "involvedObject": involved,
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:1024],
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": names.OPERATOR_FIELD_MANAGER},
        "reportingComponent": names.OPERATOR_FIELD_MANAGER,
        "reportingInstance": names.OPERATOR_FIELD_MANAGER,
    }


def event_name(event: Event, suffix: str) -> str:
    """The name of the object that an Event becomes."""
    # a name may have 253 characters, and the suffix is what makes it one of its own
    return f"{event.about.name[:230].rstrip('.-')}.{suffix}"


def _shown(device: HeldDevice) -> dict[str, Any]:
    # a device without NUMA nodes has no empty list to be read past
    near = {"numaNodes": list(device.numa_nodes)} if device.numa_nodes else {}
    return {"id": device.id, "health": device.health, **near}
