"""Requests that write and delete PodDevices, and how one is encoded."""

from typing import Any

from nodedevice_api import names

from nodedevice_operator.kube.client import OWN, Requests, path_segment
from nodedevice_operator.kube.decode import decode_record
from nodedevice_operator.objects.poddevice import (
    Content,
    HeldDevice,
    PodDeviceRecord,
    PodDeviceSchema,
    pod_device_record,
)
from nodedevice_operator.poddevices.plan import DesiredPodDevice


class PodDevicesApi(Requests):
    """Writes PodDevices."""

    async def apply_pod_device(self, wanted: DesiredPodDevice, uid: str | None) -> PodDeviceRecord:
        """Create or update a PodDevice; return the object after the write.

        uid: of the object to update; None creates one. Raises Conflict when the object of that uid is gone.
        """
        path = _path(wanted.namespace, wanted.name)
        data = await self._apply(names.POD_DEVICES, path, encode(wanted, uid), force=True)
        return decode_record("PATCH", names.POD_DEVICES, data, PodDeviceSchema, pod_device_record)

    async def delete_pod_device(self, record: PodDeviceRecord) -> None:
        """Delete this PodDevice. Raises NotFound when it is gone, Conflict when another object has its name."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": record.uid}}
        path = _path(record.namespace, record.name)
        await self._client.request("DELETE", names.POD_DEVICES, path, body=body)


def encode(wanted: DesiredPodDevice, uid: str | None) -> dict[str, Any]:
    """The body of an apply. uid: the object must have it; None where there must be no object yet."""
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
        "status": _status(wanted.content),
    }


def _status(content: Content) -> dict[str, Any]:
    return {
        "resources": content.resources,
        "devices": content.devices,
        "health": content.health,
        "containers": [
            {
                "name": container.name,
                "resources": [
                    {"resourceName": resource.name, "devices": [_device(device) for device in resource.devices]}
                    for resource in container.resources
                ],
            }
            for container in content.containers
        ],
    }


def _device(device: HeldDevice) -> dict[str, Any]:
    # without NUMA nodes the field is left out, not an empty list
    numa_nodes = {"numaNodes": list(device.numa_nodes)} if device.numa_nodes else {}
    return {"id": device.id, "health": device.health, **numa_nodes}


def _path(namespace: str, name: str) -> str:
    return f"{OWN}/namespaces/{path_segment(namespace)}/{names.POD_DEVICES}/{path_segment(name)}"
