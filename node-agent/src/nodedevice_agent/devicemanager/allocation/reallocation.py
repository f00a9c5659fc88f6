"""Allocations whose plugin answer was lost with the checkpoint: Allocate is called again with the same device IDs.

The devices stay held all the while; only the answer (what the container needs to reach them) is missing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nodedevice_agent.devicemanager.allocation.allocations import Allocation, AllocationBook
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.allocation.pod_allocation import retry_seconds
from nodedevice_agent.devicemanager.effects import CallAllocate, Effect, Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.resource import Resource

_Key = tuple[str, str, str]


class Reallocations:
    """Which of them are being asked for, and when the ones that failed are asked again."""

    def __init__(self, tickets: Iterator[int]) -> None:
        self._tickets = tickets
        self._in_flight: dict[int, _Key] = {}
        self._attempts: dict[_Key, int] = {}
        self._retry_at: dict[_Key, float] = {}

    def is_in_flight(self, ticket: int) -> bool:
        return ticket in self._in_flight

    def due(self, book: AllocationBook, resources: Mapping[str, Resource], now: float) -> list[Effect]:
        """Calls for every unanswered allocation whose plugin lists its devices again."""
        effects: list[Effect] = []
        for allocation in list(book):
            if allocation.response is not None:
                continue
            key = _key(allocation)
            resource = resources[allocation.resource_name]
            if key in self._in_flight.values() or self._retry_at.get(key, now) > now:
                continue
            # the pause is over, also where there is nobody to ask: that one lists its devices first
            self._retry_at.pop(key, None)
            if resource.endpoint is None or not all(i in resource.devices for i in allocation.device_ids):
                continue
            ticket = next(self._tickets)
            self._in_flight[ticket] = key
            effects.append(CallAllocate(ticket, resource.name, resource.endpoint, allocation.device_ids))
        return effects

    def answered(self, ticket: int, response: AllocateResponse, book: AllocationBook) -> list[Effect]:
        key = self._in_flight.pop(ticket)
        self._retry_at.pop(key, None)
        allocation = book.of(*key)
        if allocation is None:
            return []
        book.add(replace(allocation, response=response.octets, edits=response.edits))
        # by its answer a container that runs without is told from one that has its devices
        return [SaveCheckpoint(durable=True), Publish(allocation.resource_name)]

    def failed(self, ticket: int, now: float) -> None:
        key = self._in_flight.pop(ticket)
        self._attempts[key] = self._attempts.get(key, 0) + 1
        self._retry_at[key] = now + retry_seconds(self._attempts[key])

    def next_deadline(self) -> float | None:
        return min(self._retry_at.values(), default=None)

    def forget(self, pod_uid: str) -> None:
        """The pod's devices are free: nobody needs its answers."""
        for table in (self._attempts, self._retry_at):
            for key in [key for key in table if key[0] == pod_uid]:
                table.pop(key)
        self._in_flight = {ticket: key for ticket, key in self._in_flight.items() if key[0] != pod_uid}


def _key(allocation: Allocation) -> _Key:
    return allocation.pod_uid, allocation.container, allocation.resource_name
