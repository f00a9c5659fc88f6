"""Reads and applies CustomResourceDefinitions, by the `kubernetes` package's typed client."""

from dataclasses import dataclass
from typing import Any, Final

from kubernetes.client import ApiClient, ApiextensionsV1Api, V1CustomResourceDefinition, V1ObjectMeta
from nodedevice_api import names
from nodedevice_kube.api_errors import NotFound
from nodedevice_kube.paths import APPLY

from nodedevice_operator.kube.typed import call

_FIELD_MANAGER: Final = "helm"
_KIND: Final = "customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class Crd:
    """A CustomResourceDefinition as the API server has it. rejected_names: why its names are not served; "" if they are."""

    name: str
    generation: int
    release: str
    is_established: bool
    rejected_names: str


class CrdApi:
    def __init__(self, client: ApiClient) -> None:
        self._api = ApiextensionsV1Api(client)

    async def read(self, name: str) -> Crd | None:
        """The CRD of that name; None if none exists. Raises ApiError."""
        try:
            return _crd(await call("GET", _KIND, self._api.read_custom_resource_definition, name))
        except NotFound:
            return None

    async def apply(self, body: dict[str, Any]) -> Crd:
        """Create or update it by server-side apply; return it after the write. Raises ApiError."""
        written = await call(
            *("PATCH", _KIND, self._api.patch_custom_resource_definition, body["metadata"]["name"], body),
            field_manager=_FIELD_MANAGER,
            force=True,
            _content_type=APPLY,
        )
        return _crd(written)


def _crd(found: V1CustomResourceDefinition) -> Crd:
    # null until the API server has processed a new one
    conditions = found.status.conditions or [] if found.status else []
    metadata = found.metadata or V1ObjectMeta()
    rejected = (c.message for c in conditions if c.type == "NamesAccepted" and c.status == "False")
    return Crd(
        name=metadata.name or "",
        generation=metadata.generation or 0,
        release=(metadata.annotations or {}).get(names.RELEASE_ANNOTATION, ""),
        is_established=any(each.type == "Established" and each.status == "True" for each in conditions),
        rejected_names=next(rejected, "") or "",
    )
