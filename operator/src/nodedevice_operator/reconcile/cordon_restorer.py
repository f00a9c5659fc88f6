"""Restores cordons of a recreated NodeDevice: the agent's remembered ones go into spec.cordonedDevices of the new object.

It uses its own field manager, and sets each cordon once in an object: if one is missing later, an administrator removed it while
the agent was away. Cordons of others stay unchanged. The policy nodedevice-operator-cordons allows no more.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Final

import msgspec
from nodedevice_api import names
from nodedevice_common import decoding
from nodedevice_common.decoding import Undecodable
from nodedevice_kube.api_errors import ApiError, NotFound

from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.decode import decode
from nodedevice_operator.kube.requests import NODEDEVICES, Requests, at
from nodedevice_operator.objects.meta import Schema
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, is_real
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceMetadata, StatusWriter
from nodedevice_operator.observability.aggregates import some
from nodedevice_operator.observability.events import NORMAL, Event, EventReason, about_node_device
from nodedevice_operator.observability.recorder import EventRecorder
from nodedevice_operator.reconcile.turn import Turn

# of all cordons of a NodeDevice, as in crds/
MOST_BYTES: Final = 128 * 1024
_LONGER_STORED: Final = re.compile(r"[<>&\x00-\x1f]")
# id; optionally reason, by and at
Cordon = dict[str, str]


class _OwnedSpec(Schema):
    cordons: dict[str, msgspec.Raw] = msgspec.field(name="f:cordonedDevices", default_factory=dict)


class _Owned(Schema):
    spec: _OwnedSpec = msgspec.field(name="f:spec", default_factory=_OwnedSpec)


class _Key(Schema):
    """How managedFields names an entry of the list."""

    id: str


class _Spec(Schema):
    cordoned_devices: list[Cordon] = []


class _Status(Schema):
    remembered_cordons: list[Cordon] = []


class CordonsSchema(Schema):
    metadata: NodeDeviceMetadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass(slots=True)
class CordonsMemory:
    """The state of a node. restored: device IDs whose cordons were restored, by UID of the NodeDevice."""

    restored: dict[str, set[str]] = field(default_factory=dict)


class CordonsApi(Requests):
    async def read_cordons(self, record: NodeDeviceRecord) -> CordonsSchema:
        """Raises NotFound when it is gone, also when another object has its name by now."""
        found = decode(
            "GET", names.NODE_DEVICES, await self._client.request("GET", *at(NODEDEVICES, record.name)), CordonsSchema
        )
        if found.metadata.uid != record.uid:
            raise NotFound("GET", names.NODE_DEVICES, f"{record.name} is another object by now")
        return found

    async def apply_cordons(self, record: NodeDeviceRecord, found: CordonsSchema, cordons: Sequence[Cordon]) -> None:
        """All cordons of our manager. Raises Conflict when another client has written the object since it was read."""
        meta = found.metadata
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.NODE_DEVICE,
            "metadata": {"name": record.name, "uid": meta.uid, "resourceVersion": meta.resource_version},
            "spec": {"cordonedDevices": cordons},
        }
        await self._apply(*at(NODEDEVICES, record.name), body, force=False, manager=names.CORDONS_FIELD_MANAGER)


@dataclass(eq=False)
class CordonReconciler:
    cache: Cache
    api: CordonsApi
    recorder: EventRecorder

    async def reconcile(self, node: str, memory: CordonsMemory, turn: Turn) -> list[ApiError]:
        """Sets missing cordons; returns the failures, one for each NodeDevice."""
        of_node = self.cache.node_devices.of_node(node)
        records = [r for r in of_node if r.has_status and is_real(r) and not r.is_only_shown]
        memory.restored = {r.uid: memory.restored[r.uid] for r in records if r.uid in memory.restored}
        failures: list[ApiError] = []
        for record in records:
            due = record.lost_cordons - memory.restored.get(record.uid, set())
            if not due:
                continue
            if turn.is_over():
                break
            turn.spend()
            try:
                without_room = await self._restore(record, due)
                memory.restored.setdefault(record.uid, set()).update(due - without_room)
            except NotFound:
                continue
            except ApiError as error:
                failures.append(error)
                if error.concerns_all_requests:
                    break
        return failures

    async def _restore(self, record: NodeDeviceRecord, due: frozenset[str]) -> frozenset[str]:
        """Restores cordons; returns the device IDs whose cordons do not fit now. Their agent still honours them."""
        found = await self.api.read_cordons(record)
        own, missing = to_restore(found, due)
        without_room = due.intersection(c["id"] for c in found.status.remembered_cordons if c not in missing)
        without_room -= {cordon["id"] for cordon in found.spec.cordoned_devices}
        if not missing:
            return without_room
        await self.api.apply_cordons(record, found, [*own, *missing])
        ids = some([_named(cordon) for cordon in missing])
        message = f"{record.resource} on {record.node}: cordoned again, as before its object was deleted: {ids}"
        self.recorder.post(Event(about_node_device(record), NORMAL, EventReason.CORDONS_RESTORED, message))
        return without_room


def to_restore(found: CordonsSchema, due: frozenset[str]) -> tuple[list[Cordon], list[Cordon]]:
    """The cordons of the operator's manager in this object, which each apply repeats; and the missing ones, as many as fit."""
    ours = frozenset(i for entry in found.metadata.managed_fields for i in _owned_ids(entry))
    stored = {cordon["id"]: cordon for cordon in found.spec.cordoned_devices}
    own = [cordon for device_id, cordon in stored.items() if device_id in ours]
    missing = [c for c in found.status.remembered_cordons if c["id"] in due and c["id"] not in stored]
    sizes = accumulate(map(_size, missing), initial=sum(map(_size, stored.values())))
    return own, [cordon for cordon, size in zip(missing, islice(sizes, 1, None), strict=True) if size <= MOST_BYTES]


def _size(cordon: Cordon) -> int:
    """The stored size, as the rule of the CRD counts it."""
    texts = [cordon.get(key, "") for key in ("id", "reason", "by")]
    return 64 + sum(len(text.encode(errors="replace")) + 5 * len(_LONGER_STORED.findall(text)) for text in texts)


def _named(cordon: Cordon) -> str:
    return f"{cordon['id']} (by {cordon['by']})" if cordon.get("by") else cordon["id"]


def _owned_ids(entry: StatusWriter) -> list[str]:
    """Device IDs of the cordons that our manager owns, as managedFields names the entries of a list."""
    if (entry.manager, entry.operation) != (names.CORDONS_FIELD_MANAGER, "Apply"):
        return []
    try:
        keys = decoding.decode(entry.fields, _Owned).spec.cordons
        return [decoding.decode(key[2:], _Key).id for key in keys if key.startswith("k:")]
    except Undecodable:
        return []
