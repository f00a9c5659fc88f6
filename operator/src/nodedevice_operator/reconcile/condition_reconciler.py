"""Writes the operator's conditions of a node's NodeDevices if the stored ones differ."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from nodedevice_api import names
from nodedevice_api.names import Reason
from nodedevice_api.nodedevice import ConditionStatus
from nodedevice_kube.api_errors import ApiError, NotFound

from nodedevice_operator.capacity.decide import ResourceStatus
from nodedevice_operator.capacity.reconciler import CapacityOutcome
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.client import now_text
from nodedevice_operator.kube.decode import decode_record
from nodedevice_operator.kube.requests import NODEDEVICES, Requests, at
from nodedevice_operator.leases.agent_monitor import AgentMonitor
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition, is_real, node_device_record
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema
from nodedevice_operator.observability.recorder import EventRecorder
from nodedevice_operator.reconcile import conditions
from nodedevice_operator.reconcile.turn import Turn
from nodedevice_operator.requiredplugins.controller import RequiredPluginsController

# A Node and its NodeDevices come by two watches: for this long one may be ahead of the other.
NODE_MISSING_GRACE_SECONDS: Final = 5.0

_NODE_MISSING: Final = ResourceStatus(False, Reason.NODE_MISSING)
_WRONG_NAME: Final = ResourceStatus(False, Reason.WRONG_NAME)


@dataclass(slots=True)
class ConditionsMemory:
    """The state of a node. node_missing_since: when a NodeDevice was first seen without its Node (monotonic seconds)."""

    node_missing_since: float | None = None


class ConditionsApi(Requests):
    async def apply_conditions(
        self, record: NodeDeviceRecord, conditions: Mapping[str, StoredCondition]
    ) -> NodeDeviceRecord:
        """Writes all the operator's conditions; returns the object then. Raises NotFound also if another object has the name."""
        written = await self._apply_by_name(record.name, conditions)
        if written.uid != record.uid:
            # The API server ignores a uid in the status of a custom resource (1.37). Conditions decided for the deleted object
            # are removed from its successor; the watch brings the successor, and it gets conditions of its own.
            await self._apply_by_name(record.name, {})
            raise NotFound("PATCH", f"{names.NODE_DEVICES}/status", f"{record.name} is another object by now")
        return written

    async def _apply_by_name(self, name: str, conditions: Mapping[str, StoredCondition]) -> NodeDeviceRecord:
        encoded = [
            ConditionStatus(
                type=kind,
                status=value.status,
                reason=value.reason,
                message=value.message,
                last_transition_time=value.since,
                observed_generation=value.observed_generation,
            )
            for kind, value in conditions.items()
        ]
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.NODE_DEVICE,
            "metadata": {"name": name},
            "status": {"conditions": encoded},
        }
        data = await self._apply(*at(NODEDEVICES, name, subresource="status"), body, force=True)
        return decode_record("PATCH", names.NODE_DEVICES, data, NodeDeviceSchema, node_device_record)


@dataclass(eq=False)
class ConditionsReconciler:
    cache: Cache
    api: ConditionsApi
    agents: AgentMonitor
    required_plugins: RequiredPluginsController
    recorder: EventRecorder
    clock: Callable[[], float] = time.monotonic

    def node_missing_wait(self, node: str, memory: ConditionsMemory) -> float | None:
        """Remember since when a NodeDevice is without its Node; return in how many seconds to reconcile again, if so."""
        records = filter(is_real, self.cache.node_devices.of_node(node))
        if all(self._has_node(record) for record in records):
            memory.node_missing_since = None
            return None
        if memory.node_missing_since is None:
            memory.node_missing_since = self.clock()
        return None if self._is_grace_over(memory) else NODE_MISSING_GRACE_SECONDS

    async def reconcile(
        self, node: str, memory: ConditionsMemory, capacity: CapacityOutcome, turn: Turn
    ) -> list[ApiError]:
        """Write the conditions that are not stored yet, until it is over; return the failures, one for each NodeDevice."""
        failures: list[ApiError] = []
        for record in self.cache.node_devices.of_node(node):
            if turn.is_over():
                break
            is_due, status = self._due(record, memory, capacity)
            if not is_due:
                continue
            try:
                await self._write(record, status, capacity.rejection, turn)
            except ApiError as error:
                failures.append(error)
                if error.concerns_all_requests:
                    break
        return failures

    def _due(
        self, record: NodeDeviceRecord, memory: ConditionsMemory, capacity: CapacityOutcome
    ) -> tuple[bool, ResourceStatus | None]:
        """Returns (ready, status); a status of None keeps the capacity conditions."""
        if not is_real(record):
            return True, _WRONG_NAME
        if not self._has_node(record):
            return self._is_grace_over(memory), _NODE_MISSING
        can_stay = conditions.can_stay(record)
        if record.resource not in capacity.statuses or not (record.has_status or record.edited_by or can_stay):
            return False, None  # not decided yet; or its agent has just created it, and writes its status next
        status = capacity.statuses[record.resource]
        return status is not None or can_stay, status

    def _has_node(self, record: NodeDeviceRecord) -> bool:
        node = self.cache.nodes.get(record.node)
        return node is not None and node.uid == record.owner_uid

    def _is_grace_over(self, memory: ConditionsMemory) -> bool:
        since = memory.node_missing_since
        return since is not None and self.clock() - since >= NODE_MISSING_GRACE_SECONDS

    async def _write(self, record: NodeDeviceRecord, status: ResourceStatus | None, rejection: str, turn: Turn) -> None:
        desired = conditions.desired(
            record,
            status,
            self.agents.state_for(record),
            lacks_policies=self.required_plugins.lacks_policies,
            rejection=rejection,
        )
        values = conditions.changed(record, desired, now_text())
        if not values:
            return
        turn.spend()
        try:
            written = await self.api.apply_conditions(record, values)
        except NotFound:
            return  # deleted; the watch brings that
        for event in conditions.agent_events(record, desired):
            self.recorder.post(event)
        self._store(written)

    def _store(self, written: NodeDeviceRecord) -> None:
        """Stores the response to a write. It may contain a change by the agent, whose own watch event will then be too old."""
        store = self.cache.node_devices
        before = store.get(written.key)
        if before is None or _without_ours(before) != _without_ours(written):
            store.update(written)
        else:
            store.put(written)


def _without_ours(record: NodeDeviceRecord) -> NodeDeviceRecord:
    theirs = {kind: value for kind, value in record.conditions.items() if kind not in names.OPERATOR_CONDITIONS}
    return replace(record, conditions=theirs)
