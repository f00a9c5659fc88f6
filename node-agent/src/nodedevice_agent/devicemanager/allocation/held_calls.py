"""Calls to plugins about devices that pods hold already: PreStartContainer, and Allocate where its response was lost.

A plugin that requires PreStartContainer is called once for each container and resource before the devices are used. The calls are
made when the pod's allocation is committed, one at a time within a pod, in the order in which its containers
start. A failed call is retried with exponential backoff; the devices stay held. The kubelet calls at every start of a
container; here the call is made ahead of it, so that no start waits for a plugin: after allocation, and again when the runtime
reports that a container has ended (without a runtime, --runtime none, there is only the first call).
Pending calls are in the checkpoint, so a restart of the agent does not repeat a completed call, which could reset a device
under a running container. A call in flight when the agent ended is made again. After the checkpoint was lost it is unknown
which calls were completed; for the same reason none is repeated until the runtime reports which containers do not run.
Source: kubelet device manager, PreStartContainer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.allocation.allocations import Allocation, AllocationBook
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.effects import CallAllocate, CallPreStart, Effect, Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.resource import Resource

# Pod UID, container, resource name.
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class PendingPreStart:
    """Why a container must not start yet. failure: the last call's error; is_in_flight: a call is in flight."""

    resource_name: str
    failure: str = ""
    is_in_flight: bool = False


class PreStartCalls:
    """The calls that are pending, in flight, or failed and to be retried."""

    def __init__(self, tickets: Iterator[int]) -> None:
        self._tickets = tickets
        # by pod UID, in order; includes calls in flight and failed ones
        self._pending: dict[str, list[Key]] = {}
        # pending if the plugin requires the call, which is known once it is connected
        self._undecided: dict[Key, None] = {}
        self._in_flight: dict[int, Key] = {}
        # in flight for pods that have ended: ticket to pod UID
        self._orphaned: dict[int, str] = {}
        self._failed: dict[Key, PendingAllocation] = {}

    def require(self, keys: Iterable[Key]) -> None:
        """Calls for these are required, in this order within a pod."""
        for key in keys:
            self._pending.setdefault(key[0], []).append(key)

    def require_if_supported(self, keys: Iterable[Key]) -> None:
        """Calls for these are required if their plugin says so, which is unknown while it is not connected."""
        self._undecided.update(dict.fromkeys(key for key in keys if key not in self._pending.get(key[0], ())))

    def cancel(self, key: Key) -> list[Effect]:
        """The devices are in use: they must not be touched."""
        self._undecided.pop(key, None)
        self._in_flight = {ticket: called for ticket, called in self._in_flight.items() if called != key}
        return self._done(key) if key in self._pending.get(key[0], ()) else []

    def pending_call(self, key: Key, resource: Resource) -> PendingPreStart | None:
        """None where no call is pending. A plugin that has not listed its devices since a restart may require one."""
        if key in self._pending.get(key[0], ()):
            failed = self._failed.get(key)
            return PendingPreStart(key[2], failed.message if failed else "", self.is_in_flight(key))
        if key in self._undecided and resource.settle_until is not None:
            return PendingPreStart(key[2])
        return None

    def is_in_flight(self, key: Key) -> bool:
        """Whether the call is in flight."""
        return key in self._in_flight.values()

    def pending(self) -> tuple[Key, ...]:
        return tuple(key for keys in self._pending.values() for key in keys)

    def due(self, book: AllocationBook, resources: Mapping[str, Resource], now: float) -> list[Effect]:
        """The next call of each pod whose plugin can be called now."""
        effects = self._decide(resources)
        for pod_uid in list(self._pending):
            while (key := self._next(pod_uid, now)) is not None:
                resource, allocation = resources[key[2]], book.of(*key)
                if allocation is not None and not resource.is_live:
                    # the plugin's next device list triggers the call, no timer
                    self._stop_retry_timer(key)
                    break
                if allocation is not None and resource.options.pre_start_required:
                    effects.append(self._call(resource, allocation, key))
                    break
                # released meanwhile, or the plugin was replaced by one that does not require the call
                effects += self._done(key)
        return effects

    def started(self, ticket: int) -> list[Effect]:
        """The call succeeded; the pod's next one is due, if any."""
        key = self._in_flight.pop(ticket, None)
        return self._done(key) if key is not None else []

    def failed(self, ticket: int, message: str, now: float) -> list[Effect]:
        key = self._in_flight.pop(ticket, None)
        if key is None:
            return []
        failed = PendingAllocation(*key, Reason.PRE_START_FAILED, message)
        self._failed[key] = failed.retried_after(self._failed.get(key), now)
        return [Publish(key[2])]

    def forget(self, pod_uid: str) -> list[Effect]:
        """The pod has ended: results of its calls no longer matter."""
        self._undecided = {key: None for key in self._undecided if key[0] != pod_uid}
        if self._pending.pop(pod_uid, None) is None:
            return []
        self._orphaned |= {ticket: pod_uid for ticket, key in self._in_flight.items() if key[0] == pod_uid}
        self._in_flight = {ticket: key for ticket, key in self._in_flight.items() if key[0] != pod_uid}
        gone = [key for key in self._failed if key[0] == pod_uid]
        for key in gone:
            del self._failed[key]
        return [Publish(key[2]) for key in gone]

    def has_orphaned_call(self, pod_uid: str) -> bool:
        """Whether a plugin may still be working on devices of this ended pod."""
        return pod_uid in self._orphaned.values()

    def orphan_ended(self, ticket: int) -> str | None:
        """A call has returned. Returns the UID of its pod if that has ended."""
        return self._orphaned.pop(ticket, None)

    def failed_calls(self) -> Iterable[PendingAllocation]:
        return self._failed.values()

    def next_deadline(self) -> float | None:
        return min((w.retry_at for w in self._failed.values() if w.retry_at is not None), default=None)

    def _decide(self, resources: Mapping[str, Resource]) -> list[Effect]:
        """Move undecided calls to the pending ones, or drop them, where the plugin is connected."""
        effects: list[Effect] = []
        for key in [key for key in self._undecided if resources[key[2]].is_live]:
            del self._undecided[key]
            if resources[key[2]].options.pre_start_required:
                self.require([key])
                effects.append(SaveCheckpoint(durable=False))
        return effects

    def _next(self, pod_uid: str, now: float) -> Key | None:
        keys = self._pending.get(pod_uid)
        if not keys or keys[0] in self._in_flight.values():
            return None
        failed = self._failed.get(keys[0])
        return keys[0] if failed is None or failed.is_due(now) else None

    def _call(self, resource: Resource, allocation: Allocation, key: Key) -> CallPreStart:
        assert resource.endpoint is not None
        self._stop_retry_timer(key)
        ticket = next(self._tickets)
        self._in_flight[ticket] = key
        return CallPreStart(ticket, resource.name, resource.endpoint, key[1], allocation.device_ids)

    def _stop_retry_timer(self, key: Key) -> None:
        failed = self._failed.get(key)
        if failed is not None:
            self._failed[key] = replace(failed, retry_at=None)

    def _done(self, key: Key) -> list[Effect]:
        keys = self._pending[key[0]]
        keys.remove(key)
        if not keys:
            del self._pending[key[0]]
        effects: list[Effect] = [SaveCheckpoint(durable=False)]
        return effects + ([Publish(key[2])] if self._failed.pop(key, None) is not None else [])


class Reallocations:
    """Allocate is called again with the same device IDs where its response was lost with the checkpoint.

    The devices stay held meanwhile; only the response (what the container needs to use them) is missing.
    """

    def __init__(self, tickets: Iterator[int]) -> None:
        self._tickets = tickets
        self._in_flight: dict[int, Key] = {}
        self._failed: dict[Key, PendingAllocation] = {}

    def is_in_flight(self, ticket: int) -> bool:
        return ticket in self._in_flight

    def due(self, book: AllocationBook, resources: Mapping[str, Resource], now: float) -> list[Effect]:
        """A call for every allocation without a response whose plugin lists its devices again."""
        effects: list[Effect] = []
        for allocation in list(book):
            if allocation.response is not None:
                continue
            key = (allocation.pod_uid, allocation.container, allocation.resource_name)
            resource = resources[allocation.resource_name]
            failed = self._failed.get(key)
            if key in self._in_flight.values() or (failed is not None and not failed.is_due(now)):
                continue
            if failed is not None:
                # Stop the timer even if no plugin can be called now: its next device list triggers the call.
                self._failed[key] = replace(failed, retry_at=None)
            if resource.endpoint is None or not all(i in resource.devices for i in allocation.device_ids):
                continue
            ticket = next(self._tickets)
            self._in_flight[ticket] = key
            effects.append(CallAllocate(ticket, resource.name, resource.endpoint, allocation.device_ids))
        return effects

    def allocated(self, ticket: int, response: AllocateResponse, book: AllocationBook) -> list[Effect]:
        key = self._in_flight.pop(ticket)
        self._failed.pop(key, None)
        allocation = book.of(*key)
        if allocation is None:
            return []
        book.add(replace(allocation, response=response.octets, edits=response.edits))
        # The response also shows whether a running container has its devices.
        return [SaveCheckpoint(durable=True), Publish(allocation.resource_name)]

    def allocate_failed(self, ticket: int, message: str, now: float) -> None:
        key = self._in_flight.pop(ticket)
        failed = PendingAllocation(*key, Reason.ALLOCATE_FAILED, message)
        self._failed[key] = failed.retried_after(self._failed.get(key), now)

    def next_deadline(self) -> float | None:
        return min((f.retry_at for f in self._failed.values() if f.retry_at is not None), default=None)

    def forget(self, pod_uid: str) -> None:
        """The pod's devices are free: its responses are no longer needed."""
        for key in [key for key in self._failed if key[0] == pod_uid]:
            del self._failed[key]
        for ticket in [ticket for ticket, key in self._in_flight.items() if key[0] == pod_uid]:
            del self._in_flight[ticket]
