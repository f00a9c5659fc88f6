"""Objects as the API server sends them."""

from typing import Any, TypeVar

import msgspec
from nodedevice_common.decoding import decode

T = TypeVar("T")


def of_json(body: Any, form: type[T]) -> T:
    return decode(msgspec.json.encode(body), form)


def node_device_body(**status: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "uid-1"}
    metadata = {"name": "node-a.example.com.gpu", "uid": "nd-1", "resourceVersion": "7", "generation": 2}
    spec = {"nodeName": "node-a", "resourceName": "example.com/gpu", "cordonedDevices": [{"id": "*"}]}
    return {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": spec, "status": status}


def wrote(manager: str, subresource: str, *owned: str, conditions: tuple[str, ...] = ()) -> dict[str, Any]:
    """An entry of managedFields."""
    fields: dict[str, Any] = {".": {}, **{f"f:{key}": {} for key in owned}}
    if conditions:
        fields["f:conditions"] = {".": {}, **{f'k:{{"type":"{kind}"}}': {"f:status": {}} for kind in conditions}}
    return {"manager": manager, "subresource": subresource, "fieldsV1": {"f:status": fields}}
