"""Objects of DRA that tests and benches make, and a driver's slices that they write themselves."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.cluster.api import Client, ResourceSlice

Json = dict[str, Any]
API_VERSION = "resource.k8s.io/v1"
# without it a namespace may have no claim with admin access
ADMIN_LABEL = "resource.kubernetes.io/admin-access"


def device_class(name: str, driver: str, extended_resource: str = "") -> Json:
    """Every device of a driver. extended_resource: the name by which pods may ask for one without a claim of their own."""
    spec: Json = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
    if extended_resource:
        spec["extendedResourceName"] = extended_resource
    return _object("DeviceClass", name, spec)


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


def pod_claims(claims: Mapping[str, str] | None = None, templates: Mapping[str, str] | None = None) -> list[Json]:
    """What stands in a pod's spec of them. claims, templates: names of the objects, by the pod's own name for each."""
    return [
        *({"name": name, "resourceClaimName": found} for name, found in (claims or {}).items()),
        *({"name": name, "resourceClaimTemplateName": found} for name, found in (templates or {}).items()),
    ]


def devices(count: int, prefix: str = "device") -> list[Json]:
    return [{"name": f"{prefix}-{number}"} for number in range(count)]


def resource_slice(
    name: str, driver: str, node: str, devices: Sequence[Json], *, pool: str = "", generation: int = 1, slices: int = 1
) -> Json:
    """node: "" for all of them. pool: named as the node unless it is given. slices: of how many the pool says that it is made."""
    about = {"name": pool or node, "generation": generation, "resourceSliceCount": slices}
    where: Json = {"nodeName": node} if node else {"allNodes": True}
    return _object("ResourceSlice", name, {"driver": driver, **where, "pool": about, "devices": list(devices)})


class Slices:
    """Slices of drivers that do not run: written as a driver would, gone with remove()."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._versions: dict[str, str] = {}

    def publish(self, written: Json) -> None:
        """Make a slice, or put it in the place of the one of that name that was published before."""
        name = written["metadata"]["name"]
        version = self._versions.get(name)
        metadata = {**written["metadata"], "resourceVersion": version}
        whole: Any = ResourceSlice.from_dict({**written, "metadata": metadata})
        found: Any = self._client.replace(whole) if version else self._client.create(whole)
        self._versions[name] = found.metadata.resourceVersion

    def withdraw(self, name: str) -> None:
        self._client.delete(ResourceSlice, name)
        del self._versions[name]

    def remove(self) -> None:
        for name in list(self._versions):
            self.withdraw(name)
