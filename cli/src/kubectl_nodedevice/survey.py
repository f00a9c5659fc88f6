"""Gathers the overview: rows of all objects, and the whole objects that need attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from nodedevice_kube.api_errors import Forbidden

from kubectl_nodedevice import release_namespaces
from kubectl_nodedevice.api import CONFIGS, NODE_DEVICES, Rows, if_readable
from kubectl_nodedevice.attention import (
    Need,
    asked_for,
    of_configs,
    of_devices,
    of_operator,
    of_pending,
    of_summaries,
    of_waiting,
    ordered,
)
from kubectl_nodedevice.cluster import BY_DRA, BY_KUBELET, BY_NODEDEVICE, NodeDevice, Pod, PodDevice
from kubectl_nodedevice.reading import OPERATOR_LEASE, Reader
from kubectl_nodedevice.summaries import Summary, summaries_of

# objects that are read whole; the others are shown by their rows
MOST_READ = 60
_SERVERS = {BY_NODEDEVICE: "nodedevice", BY_KUBELET: "kubelet", BY_DRA: "DRA"}


@dataclass
class ResourceLine:
    """One line of the overview: a resource, or a DRA driver. waiting: None if unknown."""

    resource: str
    served_by: str
    nodes: set[str] = field(default_factory=set)
    devices: int = 0
    free: int = 0
    held: int = 0
    broken: int = 0
    cordoned: int = 0
    waiting: int | None = None

    @property
    def server(self) -> str:
        return _SERVERS.get(self.served_by, self.served_by or "none yet")

    def add(self, row: Summary) -> None:
        self.nodes.add(row.node)
        self.devices += row.total
        self.free += row.available
        self.held += row.allocated
        self.broken += row.total - row.healthy
        self.cordoned += row.cordoned
        self.wait(row.waiting)

    def wait(self, pods: int | None) -> None:
        if pods is not None:
            self.waiting = (self.waiting or 0) + pods


@dataclass
class Survey:
    """own: PodDevices of the person's namespace, if the person may not see the cluster's NodeDevices."""

    lines: list[ResourceLine]
    needs: list[Need]
    own: list[PodDevice] | None = None


def survey(reader: Reader, namespace: str) -> Survey:
    """namespace: of a person who may not see the whole cluster. Raises ApiError."""
    try:
        rows = [*summaries_of(reader.rows(NODE_DEVICES))]
    except Forbidden as exc:
        reader.note(NODE_DEVICES, exc)
        return _of_namespace(reader, namespace)
    whole = _read_whole(reader, rows)
    pending = _pending(reader, namespace)
    others, now = of_others(reader), reader.now
    needs = [
        *others,
        *of_summaries(rows, whole, now),
        *(need for each in whole.values() for need in (*of_devices(each, now), *of_waiting(each, now))),
        *of_pending(pending, now),
    ]
    return Survey(_lines(rows, pending), ordered(needs))


def of_others(reader: Reader) -> list[Need]:
    """Read the operator's Lease and the NodeDeviceConfigs, and return their needs. Raises ApiError."""
    lease = reader.optional(
        "the operator's Lease", lambda: reader.lease(release_namespaces.find(reader.api).namespace, OPERATOR_LEASE)
    )
    configs = reader.optional(CONFIGS, lambda: reader.rows(CONFIGS)) or []
    return [*of_operator(lease, reader.now), *(need for each in configs for need in _of_config(each))]


def _of_namespace(reader: Reader, namespace: str) -> Survey:
    own = reader.optional("poddevices", lambda: reader.pod_devices(namespace))
    pending = reader.optional("pods", lambda: reader.pending_pods(namespace)) or []
    return Survey([], ordered(of_pending(pending, reader.now)), own or [])


def _read_whole(reader: Reader, rows: Sequence[Summary]) -> Mapping[str, NodeDevice]:
    """Read a limited number of objects for each reason, so that one cause on every node does not hide the others."""
    # rows that are not Ready on purpose come last, as most of them have nothing more to say
    asked = sorted((row for row in rows if row.needs_reading), key=lambda row: row.is_intended)
    by_reason: dict[tuple[str, str, bool], list[Summary]] = {}
    for row in asked:
        by_reason.setdefault((row.resource, row.reason, bool(row.waiting)), []).append(row)
    share = max(3, MOST_READ // max(1, len(by_reason)))
    chosen = [row for group in by_reason.values() for row in group[:share]][:MOST_READ]
    found: dict[str, NodeDevice] = {}
    for number, row in enumerate(chosen):
        reader.screen.progress(f"reading nodedevices that need attention: {number} of {len(chosen)}")
        # if the object was deleted, or only lists are allowed, its row has to suffice
        if whole := if_readable(partial(reader.node_device, row.name)):
            found[row.name] = whole
    reader.screen.end_progress()
    return found


def _pending(reader: Reader, namespace: str) -> list[Pod]:
    """Read pods of all namespaces; if that is forbidden, of the person's own namespace."""
    try:
        return reader.pending_pods()
    except Forbidden as exc:
        reader.note("pods of other namespaces", exc)
    if not namespace:
        return []
    return reader.optional(f"pods of {namespace}", lambda: reader.pending_pods(namespace)) or []


def _of_config(row: Rows) -> list[Need]:
    return list(
        of_configs(
            row.text("name"), row.number("refused"), row.text("conflict"), row.text("result"), row.text("missing")
        )
    )


def _lines(rows: Sequence[Summary], pending: Sequence[Pod]) -> list[ResourceLine]:
    found: dict[tuple[str, str], ResourceLine] = {}
    for row in rows:
        name = row.resource.partition("/")[0] if row.served_by == BY_DRA else row.resource
        found.setdefault((name, row.served_by), ResourceLine(name, row.served_by)).add(row)
    for pod in pending:
        if not pod.node:
            for resource in asked_for(pod):
                for (name, _), line in found.items():
                    if name == resource:
                        line.wait(1)
    return sorted(found.values(), key=lambda line: (line.resource, line.served_by))
