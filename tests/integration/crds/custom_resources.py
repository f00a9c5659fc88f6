"""NodeDevices, PodDevices and NodeDeviceConfigs as tests write them: bodies, and how the API server takes them.

Bodies are as small as the API lets them be, so that a row of a table shows only what it is about.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
from nodedevice_api import names

from tests.cluster.api import ApiError, Client, NodeDevice, NodeDeviceConfig, PodDevice

Body = dict[str, Any]
NOW = "2026-01-02T03:04:05Z"


def node_device(name: str = "node-a.example.com.gpu", **spec: Any) -> Any:
    """A NodeDevice without status; `spec` changes what its spec would be."""
    spec = {"nodeName": "node-a", "resourceName": "example.com/gpu", **spec}
    return NodeDevice.from_dict({"metadata": {"name": name}, "spec": spec})


def pod_device(namespace: str, name: str = "pod-a", status: Body | None = None, **spec: Any) -> Any:
    """A PodDevice; `spec` changes what its spec would be."""
    spec = {"nodeName": "node-a", "podUID": "uid-a", **spec}
    body: Body = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    return PodDevice.from_dict(body if status is None else {**body, "status": status})


def node_device_config(name: str, plugins: Body, **spec: Any) -> Any:
    """A NodeDeviceConfig of these plugins."""
    return NodeDeviceConfig.from_dict({"metadata": {"name": name}, "spec": {"plugins": plugins, **spec}})


def field_entry(manager: str, levels: int = 300, version: str = names.API_VERSION, **more: Any) -> Body:
    """One entry of managedFields; levels: as deep its fields are nested, usually deeper than those of any kind."""
    fields: Body = {}
    for _ in range(levels):
        fields = {"f:a": fields}
    kind = {"operation": "Update", "apiVersion": version, "time": NOW, "fieldsType": "FieldsV1"}
    return {**kind, "manager": manager, "fieldsV1": {"f:spec": fields}, **more}


def device(device_id: str, health: str = "Healthy", **more: Any) -> Body:
    """One entry of status.devices."""
    return {"id": device_id, "health": health, **more}


def free(*device_ids: str) -> Body:
    """A status in which these devices are healthy and held by nobody."""
    count = len(device_ids)
    devices = [device(device_id) for device_id in device_ids]
    return {"total": count, "healthy": count, "available": count, "devices": devices}


def allocation(pod_uid: str, container: str, *device_ids: str, **more: Any) -> Body:
    """One entry of status.allocations."""
    return {"podUID": pod_uid, "container": container, "deviceIDs": list(device_ids), **more}


def condition(kind: str, status: str = "True", **more: Any) -> Body:
    """One entry of status.conditions."""
    return {"type": kind, "status": status, "reason": "Test", "lastTransitionTime": NOW, **more}


def apply_status(
    client: Client, name: str, status: Body, manager: str = names.AGENT_FIELD_MANAGER, dry_run: bool = False
) -> Any:
    """Server-side apply of a NodeDevice's status, as the agent does it. Returns the object as the server has it then."""
    body = NodeDevice.Status.from_dict({"metadata": {"name": name}, "status": status})
    return client.apply(body, field_manager=manager, force=True, dry_run=dry_run)


def denied(call: Callable[[], Any], policy: str) -> str:
    """What that policy of admission says; fails when the request passes, or anything else refuses it."""
    with pytest.raises(ApiError) as refused:
        call()
    status = refused.value.status
    assert status.code == 403, status
    assert f"ValidatingAdmissionPolicy '{policy}'" in str(status.message), status
    return str(status.message)


def is_refused(call: Callable[[], Any], words: str = "") -> bool:
    """Whether a request is refused with these words: the API server takes a moment to notice a new policy or role."""
    try:
        call()
    except ApiError as refused:
        return words in str(refused.status.message)
    return False


def refusal(write: Callable[[], Any]) -> str:
    """What the API server says when it refuses `write` as invalid (422); fails when it takes it.

    As 1.37 says it: older releases name the type of the value, too.
    """
    with pytest.raises(ApiError) as refused:
        write()
    assert refused.value.status.code == 422, refused.value.status
    return re.sub(r'(Invalid value: )"(?:array|object)": ', r"\1", str(refused.value.status.message))
