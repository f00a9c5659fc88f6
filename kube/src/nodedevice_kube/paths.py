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
# metadata alone, in place of objects, of a list, and of a watch's objects
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Resource(NamedTuple):
    """A kind as the API server serves it. api_version: v1, or a group and version, such as coordination.k8s.io/v1."""

    api_version: str
    plural: str
    is_namespaced: bool = False

    @property
    def base(self) -> str:
        return base(self.api_version)

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """The path of one object; of all without a name; of all namespaces without a namespace. Names are quoted."""
        parts = [self.base]
        if namespace and self.is_namespaced:
            parts += ["namespaces", segment(namespace)]
        parts += [self.plural, *([segment(name)] if name else ()), *([subresource] if subresource else ())]
        return "/".join(parts)


def base(api_version: str) -> str:
    """The path of a group and version: /api/v1, /apis/apps/v1."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def segment(name: str) -> str:
    """Any name as one segment of a path."""
    return quote(name, safe="")


def target(path: str, query: Mapping[str, str | int] | None = None) -> str:
    """Path and query as a request has them."""
    return f"{path}?{urlencode(query)}" if query else path


def selector(fields: Mapping[str, str]) -> str:
    """A field selector for objects that have all these values."""
    return ",".join(f"{key}={value}" for key, value in fields.items())


NODES = Resource("v1", "nodes")
PODS = Resource("v1", "pods", is_namespaced=True)
LEASES = Resource("coordination.k8s.io/v1", "leases", is_namespaced=True)
