"""Reads kinds of the cluster as records. Notes what the person may not see, and reads the rest."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from nodedevice_kube.api_errors import ApiError, Forbidden, NotFound
from nodedevice_kube.fields import list_of, text_of
from nodedevice_kube.paths import LEASES, METADATA_LIST, NODES, PODS, selector, target

from kubectl_nodedevice.api import GROUP, NODE_DEVICES, POD_DEVICES, Api, Rows, path_of
from kubectl_nodedevice.cluster import Lease, NodeDevice, Pod, PodDevice
from kubectl_nodedevice.output import Screen

T = TypeVar("T")
OPERATOR_LEASE = "nodedevice-operator"


@dataclass(frozen=True, slots=True)
class Unseen:
    """what: a name for people. why: a sentence with the remedy. code: for programs."""

    what: str
    why: str
    code: str


@dataclass
class Reader:
    """Reads over one connection, and shows progress. unseen: what could not be read."""

    api: Api
    screen: Screen
    unseen: list[Unseen] = field(default_factory=list)

    @property
    def now(self) -> datetime:
        """The API server's clock, which set the times; the local clock before its first response."""
        return self.api.server_time or datetime.now(UTC)

    def optional(self, what: str, read: Callable[[], T]) -> T | None:
        """Return the result of `read`; None, and note it, if it is forbidden or the cluster has no such kind."""
        try:
            return read()
        except (Forbidden, NotFound) as exc:
            self.note(what, exc)
            return None

    def note(self, what: str, why: ApiError) -> None:
        remedy = f"; {why.remedy}" if why.remedy else ""
        self.unseen.append(Unseen(what, f"{why.problem}{remedy}", type(why).__name__))

    def rows(self, kind: str) -> list[Rows]:
        """Read all objects of a kind of ours as rows. Raises ApiError."""
        return list(self._counted(kind, self.api.rows(kind, path_of(GROUP, kind))))

    def node_devices(self, node: str = "", resource: str = "") -> list[NodeDevice]:
        """Read NodeDevices, sorted by node and resource. Raises ApiError."""
        return sorted(self.each_node_device(node, resource), key=lambda each: (each.node, each.resource))

    def each_node_device(self, node: str = "", resource: str = "") -> Iterator[NodeDevice]:
        """Yield them one by one, by name: all of a large cluster take a hundred MiB. Raises ApiError."""
        selected = {"spec.nodeName": node, "spec.resourceName": resource}
        for each in self._selected(NodeDevice, NODE_DEVICES, path_of(GROUP, NODE_DEVICES), selected):
            if node in ("", each.node) and resource in ("", each.resource):
                yield each

    def node_device(self, name: str) -> NodeDevice:
        """Raises ApiError."""
        return self.api.record(NodeDevice, f"{NODE_DEVICES} {name}", path_of(GROUP, NODE_DEVICES, name))

    def nodes_with(self, selector: str) -> set[str]:
        """Read the names of the nodes with these labels; the API server decodes the selector. Raises ApiError."""
        names = self.api.get("nodes", target(NODES.path(), {"labelSelector": selector}), accept=METADATA_LIST)
        return {text_of(each, "metadata", "name") for each in list_of(names, "items")}

    def pod_devices(self, namespace: str) -> list[PodDevice]:
        """Read the PodDevices of a namespace; "" for all. Raises ApiError."""
        path = path_of(GROUP, POD_DEVICES, namespace=namespace)
        found = self._selected(PodDevice, POD_DEVICES, path, {})
        return sorted(found, key=lambda each: (each.meta.namespace, each.meta.name))

    def pending_pods(self, namespace: str = "") -> list[Pod]:
        return list(self._selected(Pod, "pods", PODS.path(namespace=namespace), {"status.phase": "Pending"}))

    def lease(self, namespace: str, name: str) -> Lease | None:
        """Return None if it does not exist. Raises ApiError."""
        try:
            return self.api.record(Lease, f"leases {namespace}/{name}", LEASES.path(name, namespace))
        except NotFound:
            return None

    def _selected(self, form: type[T], kind: str, path: str, fields: Mapping[str, str]) -> Iterator[T]:
        wanted = selector({name: value for name, value in fields.items() if value})
        query = {"fieldSelector": wanted} if wanted else {}
        return self._counted(kind, self.api.records(form, kind, path, query))

    def _counted(self, kind: str, found: Iterator[T]) -> Iterator[T]:
        try:
            for number, each in enumerate(found):
                if number % 100 == 0:
                    self.screen.progress(f"reading {kind}: {number:,}")
                yield each
        finally:
            self.screen.end_progress()
