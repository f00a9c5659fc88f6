"""Every request the operator makes about others' objects, by name. What is not here, it does not do.

Answers come back as core records; failures as the errors of errors.py.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote as quote_but_slashes

import msgspec
from nodedevice_api import names

from nodedevice_operator.conditions.conditions import ConditionValue
from nodedevice_operator.errors import NotFound, NotUnderstood
from nodedevice_operator.events.transitions import Event
from nodedevice_operator.kube import encode as bodies
from nodedevice_operator.kube.client import APPLY, JSON, MERGE_PATCH, Client
from nodedevice_operator.kube.decode import VALUE_ERRORS, Key, key_of, page_of, read, tell_not_understood, understood
from nodedevice_operator.nodelabels.desired import EFFECT, TAINT
from nodedevice_operator.objects import meta as wire_forms
from nodedevice_operator.objects import shared as wire
from nodedevice_operator.objects.nodedevice import LeaseRecord, NodeDeviceRecord, NodeRecord, PodDeviceRecord, PodRecord
from nodedevice_operator.poddevices.plan import Wanted

# A page of Nodes is some 2 MB of JSON; only one is held at a time.
_PAGE: Final = 250

_CORE: Final = "/api/v1"
_OWN: Final = f"/apis/{names.API_VERSION}"
_LEASES: Final = "/apis/coordination.k8s.io/v1"

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_POD_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

# Any list, with the metadata of its objects and nothing else.
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

ListOf = TypeVar(
    "ListOf", wire_forms.NodeList, wire_forms.NodeDeviceList, wire_forms.PodDeviceList, wire_forms.PartialObjectList
)


R = TypeVar("R")

_Lists: TypeAlias = type[wire_forms.NodeList] | type[wire_forms.NodeDeviceList] | type[wire_forms.PodDeviceList]
_FORMS: Final[Mapping[str, tuple[str, _Lists, Callable[[Any], Any]]]] = {
    "nodes": (_CORE, wire_forms.NodeList, wire.node),
    names.NODE_DEVICES: (_OWN, wire_forms.NodeDeviceList, wire.node_device),
    names.POD_DEVICES: (_OWN, wire_forms.PodDeviceList, wire.pod_device),
}


@dataclass(frozen=True, slots=True)
class Listed(Generic[R]):
    """A whole list, as of one version. left_out: objects in it that are not understood, as Store.replace takes them."""

    records: list[R]
    version: int
    left_out: frozenset[Any] = frozenset()


class Cluster:
    """The API server, as far as the operator needs it. Leases are read in one namespace."""

    def __init__(self, client: Client, leases_namespace: str) -> None:
        self._client = client
        self.leases_namespace = leases_namespace

    async def served_kinds(self) -> frozenset[str]:
        """Plurals of our own kinds that the API server serves. Raises NotFound without our CRDs."""
        data = await self._client.request("GET", "apis", _OWN)
        served = understood("GET", "apis", data, wire_forms.ResourceList)
        return frozenset(resource.name for resource in served.resources)

    async def list_nodes(self) -> Listed[NodeRecord]:
        """All Nodes."""
        return await self._list("nodes", f"{_CORE}/nodes", wire_forms.NodeList, wire.node)

    async def list_node_devices(self) -> Listed[NodeDeviceRecord]:
        """All NodeDevices."""
        path = f"{_OWN}/{names.NODE_DEVICES}"
        return await self._list(names.NODE_DEVICES, path, wire_forms.NodeDeviceList, wire.node_device)

    async def list_pod_devices(self) -> Listed[PodDeviceRecord]:
        """All PodDevices of all namespaces."""
        path = f"{_OWN}/{names.POD_DEVICES}"
        return await self._list(names.POD_DEVICES, path, wire_forms.PodDeviceList, wire.pod_device)

    async def list_leases(self) -> dict[str, LeaseRecord]:
        """The agents' Leases by node, from the API server's watch cache: seconds old does no harm, and costs it nothing."""
        found: dict[str, LeaseRecord] = {}
        path = f"{_LEASES}/namespaces/{_segment(self.leases_namespace)}/leases"
        query: dict[str, str | int] = {"limit": _PAGE, "resourceVersion": "0"}
        while True:
            data = await self._client.request("GET", "leases", path, query=query)
            page = understood("GET", "leases", data, wire_forms.LeaseList)
            for item in page.items:
                found[item.metadata.name] = wire.lease(item, names.AGENT_LEASE_SECONDS)
            if not page.metadata.continue_:
                return found
            query = {"limit": _PAGE, "continue": page.metadata.continue_}

    async def list_versions(self, kind: str) -> AsyncIterator[dict[str | tuple[str, str], tuple[str, int]]]:
        """Uid and resource version of every object of that kind (its plural), by its key in the cache, page by page."""
        path = f"{_FORMS[kind][0]}/{kind}"
        async for page, _ in self._pages(kind, path, wire_forms.PartialObjectList, accept=_METADATA_ONLY):
            # a version that is none is that of an object that is left alone
            metadata = [item.metadata for item in page.items or () if item.metadata.resource_version.isdecimal()]
            yield {(m.namespace, m.name) if m.namespace else m.name: (m.uid, int(m.resource_version)) for m in metadata}

    async def find(self, kind: str, namespace: str, name: str) -> frozenset[str]:
        """Uid of that object, if it is there, and can be understood as a watch must understand it; none otherwise."""
        base, form, make = _FORMS[kind]
        path = f"{base}/namespaces/{_segment(namespace)}/{kind}" if namespace else f"{base}/{kind}"
        data = await self._client.request("GET", kind, path, query={"fieldSelector": f"metadata.name={name}"})
        try:
            return frozenset(make(item).uid for item in msgspec.json.decode(data, type=form).items)
        except (msgspec.DecodeError, *VALUE_ERRORS):
            return frozenset()

    async def read_node(self, name: str) -> NodeRecord:
        """The Node as it is now. Raises NotFound."""
        data = await self._client.request("GET", "nodes", f"{_CORE}/nodes/{_segment(name)}")
        return read("GET", "nodes", data, wire_forms.Node, wire.node)

    async def read_pod(self, namespace: str, name: str) -> PodRecord:
        """Which pod has that name now, and where it runs. Raises NotFound, also for what no pod can be called."""
        if not (_LABEL.fullmatch(namespace) and _POD_NAME.fullmatch(name)):
            # not even asked for: to a path a dot or two are more than a name
            raise NotFound("GET", "pods", "no pod can have that name", 404)
        path = f"{_CORE}/namespaces/{_segment(namespace)}/pods/{_segment(name)}"
        data = await self._client.request("GET", "pods", path)
        return read("GET", "pods", data, wire_forms.Pod, wire.pod)

    async def apply_capacity(self, node: NodeRecord, numbers: Mapping[str, int], *, force: bool) -> NodeRecord:
        """Make exactly these our extended resources on that very Node, as it was seen; the Node as it is then.

        Raises Conflict when it has changed since, or others own what must change and force is False; Invalid when the Node has
        another uid.
        """
        body = bodies.capacity(node, numbers)
        data = await self._apply("nodes/status", f"{_CORE}/nodes/{_segment(node.name)}/status", body, force=force)
        return read("PATCH", "nodes", data, wire_forms.Node, wire.node)

    async def apply_conditions(
        self, record: NodeDeviceRecord, conditions: Sequence[ConditionValue]
    ) -> NodeDeviceRecord:
        """Write the operator's conditions of that very NodeDevice; the object as it is then. Nobody else owns these types.

        Raises NotFound when it is gone, also where another has its name by now.
        """
        written = await self._apply_conditions(record.name, conditions)
        if written.uid != record.uid:
            # the API server heeds no uid in the status of a custom resource (1.37): what was decided about the one that is
            # gone is taken off its successor, about which the watch will have us decide
            await self._apply_conditions(record.name, ())
            raise NotFound("PATCH", f"{names.NODE_DEVICES}/status", f"{record.name} is another object by now")
        return written

    async def _apply_conditions(self, name: str, conditions: Sequence[ConditionValue]) -> NodeDeviceRecord:
        path = f"{_OWN}/{names.NODE_DEVICES}/{_segment(name)}/status"
        body = bodies.conditions(name, conditions)
        data = await self._apply(f"{names.NODE_DEVICES}/status", path, body, force=True)
        return read("PATCH", names.NODE_DEVICES, data, wire_forms.NodeDevice, wire.node_device)

    async def apply_pod_device(self, wanted: Wanted, uid: str | None) -> PodDeviceRecord:
        """Make or mend a PodDevice; the object as it is then.

        uid: of the object to mend; None makes one. Raises Conflict when the object of that uid is gone.
        """
        path = _pod_device_path(wanted.namespace, wanted.name)
        data = await self._apply(names.POD_DEVICES, path, bodies.pod_device(wanted, uid), force=True)
        return read("PATCH", names.POD_DEVICES, data, wire_forms.PodDevice, wire.pod_device)

    async def delete_pod_device(self, record: PodDeviceRecord) -> None:
        """Delete that very PodDevice. Raises NotFound when it is gone, Conflict when another has its name."""
        path = _pod_device_path(record.namespace, record.name)
        await self._client.request("DELETE", names.POD_DEVICES, path, body=bodies.deletion(record.uid))

    async def label_node(self, node: NodeRecord, labels: Mapping[str, str | None]) -> NodeRecord:
        """Set these labels of that very Node, as it was seen, and take away those that are None; the Node as it is then.

        Raises Conflict when somebody wrote the Node since, and NotFound.
        """
        metadata = {"uid": node.uid, "resourceVersion": str(node.resource_version), "labels": dict(labels)}
        return await self._merge_node(node.name, {"metadata": metadata})

    async def taint_node(self, name: str, uid: str, *, is_tainted: bool) -> NodeRecord:
        """Put our taint on that very Node, or take it off; the Node as it is then.

        Raises Conflict when somebody wrote the Node in between, and NotFound.
        """
        path = f"{_CORE}/nodes/{_segment(name)}"
        there = understood("GET", "nodes", await self._client.request("GET", "nodes", path), wire_forms.Node)
        # the list is one value to the API: all of it is written, and only onto the version that was read
        taints = [msgspec.to_builtins(taint) for taint in there.spec.taints if taint.key != TAINT]
        taints += [{"key": TAINT, "effect": EFFECT}] if is_tainted else []
        metadata = {"uid": uid, "resourceVersion": there.metadata.resource_version}
        return await self._merge_node(name, {"metadata": metadata, "spec": {"taints": taints}})

    async def _merge_node(self, name: str, patch: Any) -> NodeRecord:
        query = {"fieldManager": names.OPERATOR_FIELD_MANAGER}
        data = await self._client.request(
            "PATCH", "nodes", f"{_CORE}/nodes/{_segment(name)}", query=query, body=patch, content_type=MERGE_PATCH
        )
        return read("PATCH", "nodes", data, wire_forms.Node, wire.node)

    async def evict_pod(self, namespace: str, name: str, uid: str) -> None:
        """Have that very pod deleted, if its PodDisruptionBudgets allow it.

        Raises Unavailable where they do not now, NotFound when it is gone, Conflict when another pod has its name.
        """
        path = f"{_CORE}/namespaces/{_segment(namespace)}/pods/{_segment(name)}/eviction"
        await self._client.request("POST", "pods/eviction", path, body=bodies.eviction(namespace, name, uid))

    async def repeat_event(self, event: Event, suffix: str, count: int) -> None:
        """Say that an Event that was posted before has happened again, and so how often in all. Raises NotFound."""
        namespace = event.about.namespace or "default"
        path = f"{_CORE}/namespaces/{_segment(namespace)}/events/{_segment(bodies.event_name(event, suffix))}"
        await self._client.request("PATCH", "events", path, body=bodies.repetition(count), content_type=MERGE_PATCH)

    async def post_event(self, event: Event, suffix: str) -> None:
        """Post a Kubernetes Event. Those about cluster-scoped objects go into the namespace default."""
        namespace = event.about.namespace or "default"
        path = f"{_CORE}/namespaces/{_segment(namespace)}/events"
        await self._client.request("POST", "events", path, body=bodies.event(event, namespace, suffix))

    async def _apply(self, what: str, path: str, body: Any, *, force: bool) -> bytes:
        query = {"fieldManager": names.OPERATOR_FIELD_MANAGER, "force": "true" if force else "false"}
        return await self._client.request("PATCH", what, path, query=query, body=body, content_type=APPLY)

    async def _list(self, what: str, path: str, form: type[ListOf], make: Callable[[Any], R]) -> Listed[R]:
        """A whole list as records. One of which no record can be made is told, and holds up no other."""
        records: list[R] = []
        left_out: set[Key] = set()
        version = ""
        async for page, not_understood in self._pages(what, path, form):
            version = page.metadata.resource_version
            left_out |= not_understood
            for item in page.items or ():
                try:
                    records.append(make(item))
                except VALUE_ERRORS as exc:
                    tell_not_understood(what, item.metadata.name, exc)
                    left_out.add(key_of(item.metadata.name, getattr(item.metadata, "namespace", "")))
        if not version.isdecimal():
            raise NotUnderstood("GET", what, f"the list has the resource version {version!r}")
        return Listed(records, int(version), frozenset(left_out))

    async def _pages(
        self, what: str, path: str, form: type[ListOf], accept: str = JSON
    ) -> AsyncIterator[tuple[ListOf, frozenset[Key]]]:
        """A list page by page, all as of one moment: that of the first; with the objects of each that are not understood."""
        query: dict[str, str | int] = {"limit": _PAGE}
        while True:
            page = page_of(what, await self._client.request("GET", what, path, query=query, accept=accept), form)
            yield page
            more = page[0].metadata.continue_
            if not more:
                return
            query = {"limit": _PAGE, "continue": more}
            # decoding a page keeps the loop busy for a while; whoever waits goes first
            await asyncio.sleep(0)


def _segment(name: str) -> str:
    """A name as one segment of a path, whatever is in it: an agent's word may be anything."""
    return quote_but_slashes(name, safe="")


def _pod_device_path(namespace: str, name: str) -> str:
    return f"{_OWN}/namespaces/{_segment(namespace)}/{names.POD_DEVICES}/{_segment(name)}"
