"""Reads kinds of the cluster as records. What a person may not see is noted, and the rest is read all the same."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from nodedevice_kube.api_errors import ApiError, Forbidden, NotFound
from nodedevice_kube.paths import LEASES, PODS, selector

from kubectl_nodedevice.api import CONFIGS, GROUP, NODE_DEVICES, POD_DEVICES, Api, Rows, path_of
from kubectl_nodedevice.cluster import Lease, NodeDevice, Pod, PodDevice
from kubectl_nodedevice.output import Screen
from kubectl_nodedevice.records import record_of

T = TypeVar("T")
# where the chart puts the operator, and the agents' Leases
SYSTEM_NAMESPACE = "nodedevice-system"
OPERATOR_LEASE = "nodedevice-operator"
AGENTS_NAMESPACE = "nodedevice-agents"


@dataclass(frozen=True, slots=True)
class Unseen:
    """what: as people name it. why: a sentence, with the remedy. code: for programs."""

    what: str
    why: str
    code: str


@dataclass
class Reader:
    """Reads by one connection, and shows progress. unseen: what could not be read."""

    api: Api
    screen: Screen
    unseen: list[Unseen] = field(default_factory=list)

    @property
    def now(self) -> datetime:
        """The API server's clock, which set the times, after its first response; before it, the local clock."""
        return self.api.server_time or datetime.now(UTC)

    def optional(self, what: str, read: Callable[[], T]) -> T | None:
        """What `read` gives; None, and noted, where the person may not see it, or the cluster has no such kind."""
        try:
            return read()
        except (Forbidden, NotFound) as exc:
            self.note(what, exc)
            return None

    def note(self, what: str, why: ApiError) -> None:
        """That it could not be read."""
        remedy = f"; {why.remedy}" if why.remedy else ""
        self.unseen.append(Unseen(what, f"{why.problem}{remedy}", type(why).__name__))

    def rows(self, kind: str) -> list[Rows]:
        """All objects of a kind of ours as the server prints them. Raises ApiError."""
        return list(self._counted(kind, self.api.rows(kind, path_of(GROUP, kind))))

    def node_devices(self, node: str = "", resource: str = "") -> list[NodeDevice]:
        """NodeDevices of that node and resource, by node and resource. Raises ApiError."""
        return sorted(self.each_node_device(node, resource), key=lambda each: (each.node, each.resource))

    def each_node_device(self, node: str = "", resource: str = "") -> Iterator[NodeDevice]:
        """The same one by one, by name: all of a large cluster need a hundred MiB. Raises ApiError."""
        selected = {"spec.nodeName": node, "spec.resourceName": resource}
        for each in self._selected(NodeDevice, NODE_DEVICES, path_of(GROUP, NODE_DEVICES), selected):
            if node in ("", each.node) and resource in ("", each.resource):
                yield each

    def node_device(self, name: str) -> NodeDevice:
        """Raises ApiError."""
        return record_of(NodeDevice, self.api.get(f"{NODE_DEVICES} {name}", path_of(GROUP, NODE_DEVICES, name)))

    def pod_devices(self, namespace: str, node: str = "") -> list[PodDevice]:
        """The PodDevices of a namespace; "" for all. Raises ApiError."""
        path = path_of(GROUP, POD_DEVICES, namespace=namespace)
        found = self._selected(PodDevice, POD_DEVICES, path, {"spec.nodeName": node})
        return sorted(found, key=lambda each: (each.meta.namespace, each.meta.name))

    def pending_pods(self, namespace: str = "") -> list[Pod]:
        """Pods that have not started. Raises ApiError."""
        return list(self._selected(Pod, "pods", PODS.path(namespace=namespace), {"status.phase": "Pending"}))

    def configs(self) -> list[Rows]:
        """Raises ApiError."""
        return self.rows(CONFIGS)

    def lease(self, namespace: str, name: str) -> Lease | None:
        """None if that name does not exist. Raises ApiError."""
        try:
            return record_of(Lease, self.api.get(f"leases {namespace}/{name}", LEASES.path(name, namespace)))
        except NotFound:
            return None

    def _selected(self, form: type[T], kind: str, path: str, fields: Mapping[str, str]) -> Iterator[T]:
        wanted = selector({name: value for name, value in fields.items() if value})
        query = {"fieldSelector": wanted} if wanted else {}
        return self._counted(kind, self.api.objects(kind, path, query, partial(record_of, form)))

    def _counted(self, kind: str, found: Iterator[T]) -> Iterator[T]:
        try:
            for number, each in enumerate(found):
                if number % 100 == 0:
                    self.screen.progress(f"reading {kind}: {number:,}")
                yield each
        finally:
            self.screen.end_progress()
