"""Where objects are on an API server. Pure.

Source: API Concepts, "Resource URIs", of Kubernetes' documentation @ 1.37.
"""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
# metadata alone, of objects and of lists
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Resource(NamedTuple):
    """A kind as the API server serves it. api_version: v1, or group and version, such as coordination.k8s.io/v1."""

    api_version: str
    plural: str
    is_namespaced: bool = False

    @property
    def base(self) -> str:
        return base(self.api_version)

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """Return the path of one object; without a name of all; without a namespace of all namespaces."""
        parts = [self.base]
        if namespace and self.is_namespaced:
            parts += ["namespaces", segment(namespace)]
        parts += [self.plural, *([segment(name)] if name else ()), *([subresource] if subresource else ())]
        return "/".join(parts)


def base(api_version: str) -> str:
    """Return the path of a group and version: /api/v1, /apis/apps/v1."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def segment(name: str) -> str:
    return quote(name, safe="")


def target(path: str, query: Mapping[str, str | int] | None = None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def selector(fields: Mapping[str, str]) -> str:
    """Return a field selector for objects with all these values."""
    return ",".join(f"{key}={value}" for key, value in fields.items())


NODES = Resource("v1", "nodes")
PODS = Resource("v1", "pods", is_namespaced=True)
LEASES = Resource("coordination.k8s.io/v1", "leases", is_namespaced=True)
