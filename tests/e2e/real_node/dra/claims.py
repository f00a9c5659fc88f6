"""Objects of DRA that tests make: classes, claims, templates, slices; and pods that ask by them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tests.e2e.real_node.pods import container, pod

Json = dict[str, Any]
API_VERSION = "resource.k8s.io/v1"
# without it a namespace may have no claim with admin access
ADMIN_LABEL = "resource.kubernetes.io/admin-access"


class Driver(Protocol):
    name: str
    device_class: str
    extended_resource: str


def device_class(of: Driver) -> Json:
    """Every device of a driver."""
    spec: Json = {"selectors": [{"cel": {"expression": f"device.driver == '{of.name}'"}}]}
    if of.extended_resource:
        spec["extendedResourceName"] = of.extended_resource
    return _object("DeviceClass", of.device_class, spec)


def claim(name: str, namespace: str, device_class: str, count: int = 1, **more: Any) -> Json:
    """more: further fields of the request, such as adminAccess or capacity."""
    return _object("ResourceClaim", name, _devices(device_class, count, more), namespace)


def template(name: str, namespace: str, device_class: str, count: int = 1, **more: Any) -> Json:
    """Of which each pod gets a claim of its own."""
    return _object("ResourceClaimTemplate", name, {"spec": _devices(device_class, count, more)}, namespace)


def _devices(device_class: str, count: int, more: Mapping[str, Any]) -> Json:
    exactly = {"deviceClassName": device_class, "count": count, **more}
    return {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}


def _object(kind: str, name: str, spec: Json, namespace: str = "") -> Json:
    where = {"namespace": namespace} if namespace else {}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, **where}, "spec": spec}


def claiming(name: str, claims: Mapping[str, str] | None = None, templates: Mapping[str, str] | None = None) -> Json:
    """A pod of one container that has each of these claims. claims, templates: name of the object, by the pod's own name for it."""
    used = [*(claims or {}), *(templates or {})]
    resources = {"limits": {}, "claims": [{"name": each} for each in used]}
    return pod(name, [container("main", resources=resources)], resourceClaims=pod_claims(claims, templates))


def pod_claims(claims: Mapping[str, str] | None = None, templates: Mapping[str, str] | None = None) -> list[Json]:
    """What stands in a pod's spec of them."""
    return [
        *({"name": name, "resourceClaimName": found} for name, found in (claims or {}).items()),
        *({"name": name, "resourceClaimTemplateName": found} for name, found in (templates or {}).items()),
    ]


def resource_slice(
    name: str,
    driver: str,
    node: str,
    devices: Sequence[Json],
    *,
    pool: str = "",
    generation: int = 1,
    slices: int = 1,
) -> Json:
    """pool: as the node unless it is given. slices: of how many the pool says that it is made."""
    about = {"name": pool or node, "generation": generation, "resourceSliceCount": slices}
    spec = {"driver": driver, "nodeName": node, "pool": about, "devices": list(devices)}
    return _object("ResourceSlice", name, spec)
