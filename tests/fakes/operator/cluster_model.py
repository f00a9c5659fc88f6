"""A cluster without an API server: what the operator's edges ask of one, answered from memory, and every write noted."""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nodedevice_kube.api_errors import ApiError, Conflict, FieldConflict, Invalid, NotFound
from nodedevice_operator.capacity.reconciler import CapacityApi
from nodedevice_operator.kube.lists import NODE_DEVICES, NODES, Cluster, Kind, Listed
from nodedevice_operator.leases.agent_monitor import AgentsApi
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition
from nodedevice_operator.objects.poddevice import PodDeviceRecord
from nodedevice_operator.objects.unwatched import LeaseRecord, PodRecord
from nodedevice_operator.observability.events import Event
from nodedevice_operator.observability.recorder import EventsApi
from nodedevice_operator.reconcile.condition_reconciler import ConditionsApi
from nodedevice_operator.reconcile.cordon_restorer import CordonsApi
from nodedevice_operator.reconcile.poddevice_reconciler import PodDevicesApi
from nodedevice_operator.reconcile.poddevices import DesiredPodDevice
from nodedevice_operator.remediation.eviction_controller import EvictionsApi
from nodedevice_operator.remediation.node_taint_and_label_controller import NodeLabelsApi

from tests.fakes.operator.node_status import NodeStatusModel


@dataclass
class ClusterModel(
    AgentsApi, CapacityApi, ConditionsApi, CordonsApi, EventsApi, EvictionsApi, NodeLabelsApi, PodDevicesApi, Cluster
):
    """Objects by name; `writes` in order. `failures` are raised by the next calls of that name, first come first served."""

    node: NodeStatusModel = field(default_factory=NodeStatusModel)
    node_devices: dict[str, NodeDeviceRecord] = field(default_factory=dict)
    pod_devices: dict[tuple[str, str], PodDeviceRecord] = field(default_factory=dict)
    pods: dict[tuple[str, str], PodRecord] = field(default_factory=dict)
    leases: dict[str, LeaseRecord] = field(default_factory=dict)
    # what the next lists from the watch cache show instead
    cached_leases: list[dict[str, LeaseRecord]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    event_names: list[tuple[str, str]] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    failures: dict[str, list[ApiError]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    # called with the name of each call, before it is done
    on_call: Callable[[str], None] = lambda call: None
    version: int = 100
    leases_namespace: str = "agents"
    # the version of a restored API server; 0: none was restored
    restored_to: int = 0

    def _next(self, call: str) -> int:
        self.calls[call] += 1
        self.on_call(call)
        if self.failures.get(call):
            raise self.failures[call].pop(0)
        self.version += 1
        return self.version

    def node_record(self) -> NodeRecord:
        """The Node as the API server would return it now."""
        return replace(self.node.record(), resource_version=self.version)

    async def pages(self, kind: Kind[Any]) -> AsyncIterator[Listed[Any]]:
        version = self._next(f"list {kind.name}")
        records = {NODES: [self.node_record()], NODE_DEVICES: self.node_devices.values()}
        yield Listed(list(records.get(kind, self.pod_devices.values())), version)

    async def store_version(self, kind: Kind[Any]) -> int:
        return self.restored_to or sys.maxsize

    async def list_leases(self, *, is_consistent: bool = False) -> dict[str, LeaseRecord]:
        self._next("list_leases")
        return dict(self.leases if is_consistent or not self.cached_leases else self.cached_leases.pop(0))

    async def read_node(self, name: str) -> NodeRecord:
        self._next("read_node")
        if name != self.node.name:
            raise NotFound("get", "nodes", name, 404)
        return self.node_record()

    async def read_pod(self, namespace: str, name: str) -> PodRecord:
        self._next("read_pod")
        if (namespace, name) not in self.pods:
            raise NotFound("get", "pods", f"{namespace}/{name}", 404)
        return self.pods[namespace, name]

    async def apply_capacity(self, node: NodeRecord, numbers: Mapping[str, int], *, force: bool) -> NodeRecord:
        self._next("apply_capacity")
        if node.uid != self.node.uid:
            raise Invalid("patch", "nodes/status", "metadata.uid: field is immutable", 422)
        if not self.node.apply(numbers, force=force):
            cause = FieldConflict("kubelet", ".status.capacity.example.com/gpu")
            raise Conflict("patch", "nodes/status", "conflict", 409, causes=(cause,))
        self.writes.append(f"{'force' if force else 'apply'} {dict(sorted(numbers.items()))}")
        return self.node_record()

    async def apply_conditions(
        self, record: NodeDeviceRecord, conditions: Mapping[str, StoredCondition]
    ) -> NodeDeviceRecord:
        version = self._next("apply_conditions")
        name = record.name
        if name not in self.node_devices or self.node_devices[name].uid != record.uid:
            raise NotFound("patch", "nodedevices/status", name, 404)
        record = self.node_devices[name]
        written = replace(record, conditions={**record.conditions, **conditions}, resource_version=version)
        self.node_devices[name] = written
        self.writes.append(f"conditions {name}")
        return written

    async def apply_pod_device(self, wanted: DesiredPodDevice, uid: str | None) -> PodDeviceRecord:
        version = self._next("apply_pod_device")
        held = self.pod_devices.get(wanted.key)
        if uid is not None and (held is None or held.uid != uid):
            raise Conflict("patch", "poddevices", "uid mismatch", 409)
        record = PodDeviceRecord(
            wanted.namespace,
            wanted.name,
            held.uid if held else f"uid-of-{wanted.name}-{version}",
            version,
            wanted.content.node,
            wanted.pod_uid,
            wanted.content.fingerprint(),
        )
        self.pod_devices[wanted.key] = record
        self.writes.append(f"poddevice {wanted.name} {wanted.content.devices}")
        return record

    async def delete_pod_device(self, record: PodDeviceRecord) -> None:
        self._next("delete_pod_device")
        held = self.pod_devices.get(record.key)
        if held is None:
            raise NotFound("delete", "poddevices", record.name, 404)
        if held.uid != record.uid:
            raise Conflict("delete", "poddevices", "uid precondition", 409)
        del self.pod_devices[record.key]
        self.writes.append(f"delete {record.name} {record.pod_uid}")

    async def evict_pod(self, namespace: str, name: str, uid: str) -> None:
        self._next("evict_pod")
        self.writes.append(f"evict {namespace}/{name} {uid}")

    async def repeat_event(self, event: Event, suffix: str, count: int) -> None:
        self._next("repeat_event")
        self.writes.append(f"again {event.message} {count}")

    async def post_event(self, event: Event, suffix: str) -> None:
        self._next("post_event")
        name = event.about.name, suffix
        if name in self.event_names:
            raise Conflict("post", "events", "already exists", 409)
        self.event_names.append(name)
        self.events.append(event)
