"""Allocations whose Allocate response was lost with the checkpoint: Allocate is called again with the same device IDs.

The devices stay held meanwhile; only the response (what the container needs to use them) is missing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.allocation.allocations import AllocationBook
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.effects import CallAllocate, Effect, Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.resource import Resource

# Pod UID, container, resource name.
_Key = tuple[str, str, str]


class Reallocations:
    """The calls in flight, and the retries of those that failed."""

    def __init__(self, tickets: Iterator[int]) -> None:
        self._tickets = tickets
        self._in_flight: dict[int, _Key] = {}
        self._failed: dict[_Key, PendingAllocation] = {}

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
