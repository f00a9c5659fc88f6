"""Requests about pods that are bound to no node: they are listed, page by page, and patched with nothing.

The API server is asked for these alone, so what runs in the cluster is never listed. A patch that says nothing is an update all the
same, to which admission policies are applied; what they change is all that it changes.
"""

from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import quote

import msgspec
from nodedevice_api import names

from nodedevice_operator.kube.client import MERGE_PATCH, Client
from nodedevice_operator.kube.decode import understood
from nodedevice_operator.objects.meta import ListMetadata, ObjectMetadata, Schema
from nodedevice_operator.objects.pod import PodStatus
from nodedevice_operator.requiredplugins.pending_pods import UnboundPod
from nodedevice_operator.requiredplugins.policy import is_marked

_CORE: Final = "/api/v1"
_PAGE: Final = 250


class UnboundPods:
    """The requests."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def pages(self) -> AsyncIterator[list[UnboundPod]]:
        """All of them, page by page."""
        query: dict[str, str | int] = {"limit": _PAGE, "fieldSelector": "spec.nodeName="}
        while True:
            page = understood(
                "GET", "pods", await self._client.request("GET", "pods", f"{_CORE}/pods", query=query), _List
            )
            yield [_record(pod) for pod in page.items]
            if not page.metadata.continue_:
                return
            query = {**query, "continue": page.metadata.continue_}

    async def admit_again(self, pod: UnboundPod) -> bool:
        """Have that very pod pass admission once more; whether it has the mark then.

        Raises NotFound when it is gone, Conflict when another has its name.
        """
        path = f"{_CORE}/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"
        query = {"fieldManager": names.OPERATOR_FIELD_MANAGER}
        # the uid is no change: it makes sure that it is that pod
        patch = {"metadata": {"uid": pod.uid}}
        data = await self._client.request("PATCH", "pods", path, query=query, body=patch, content_type=MERGE_PATCH)
        return is_marked(understood("PATCH", "pods", data, _Pod).metadata.annotations)


class _Metadata(ObjectMetadata):
    annotations: dict[str, str] = {}


class _Resources(Schema):
    limits: dict[str, Any] = {}


class _Container(Schema):
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Spec(Schema):
    containers: list[_Container] = []
    init_containers: list[_Container] = []


class _Pod(Schema):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class _List(Schema):
    metadata: ListMetadata
    items: list[_Pod] = []


def _record(pod: _Pod) -> UnboundPod:
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    asks_for = (name for each in containers for name, limit in each.resources.limits.items() if str(limit) != "0")
    metadata = pod.metadata
    return UnboundPod(
        metadata.namespace, metadata.name, metadata.uid, pod.status.phase, frozenset(asks_for), metadata.annotations
    )
