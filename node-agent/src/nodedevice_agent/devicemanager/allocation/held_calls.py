"""Calls to plugins about held devices: PreStartContainer, and Allocate if its response was lost or outdated.

The kubelet calls PreStartContainer at every start of a container. The agent calls earlier, so that no start waits for a plugin:
after the pod's allocation, and again when the runtime reports the end of a container. Without a runtime (--delivery none) it only
makes the first call. Calls of a pod are made one at a time, in the order in which its containers start. A failed call is retried
with exponential backoff; the devices stay held.

Pending calls are in the checkpoint, so that a restart of the agent does not repeat a completed call. That could reset a device
under a running container. A call in flight when the agent ended is made again. After the checkpoint was lost, the completed calls
are unknown. Then no call is made until the runtime reports the containers that do not run.

Source: kubelet device manager, PreStartContainer.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, structs

from nodedevice_agent.devicemanager.allocation.allocate_once import AllocateOnce
from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.allocation.retries import Retries
from nodedevice_agent.devicemanager.allocation.stored_responses import is_outdated, listed_names, recorded_files
from nodedevice_agent.devicemanager.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.effects import CallAllocate, CallPreStart
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation, AllocationKey
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.resources.use import PODS_NOT_SYNCED


class _RetriedCalls(Struct, eq=False):
    """Calls in flight or waiting for a retry; call_due() makes the due ones."""

    _book: AllocationBook
    _marks: Marks
    _tickets: Iterator[int]
    failures: Retries[AllocationKey]
    in_flight: dict[int, AllocationKey] = {}

    def is_in_flight(self, key: AllocationKey) -> bool:
        return key in self.in_flight.values()

    def failed(self, ticket: int, message: str, now: float) -> None:
        key = self.in_flight.pop(ticket, None)
        if key is not None:
            failure = PendingAllocation(*key, self.failures.kind, message)
            self.failures[key] = failure.retried_after(self.failures.get(key), now)

    def _begin(self, key: AllocationKey) -> int:
        """Returns the ticket of a new call."""
        self._stop_retry_timer(key)
        ticket = next(self._tickets)
        self.in_flight[ticket] = key
        return ticket

    def _is_due(self, key: AllocationKey, now: float) -> bool:
        failure = self.failures.get(key)
        return not self.is_in_flight(key) and (failure is None or failure.is_due(now))

    def _stop_retry_timer(self, key: AllocationKey) -> None:
        """The call is made now, or no plugin can be called now and the next device list triggers it."""
        if key in self.failures:
            self.failures[key] = structs.replace(self.failures[key], retry_at=None)

    def drop(self, pod_uid: str) -> tuple[list[int], list[AllocationKey]]:
        """Results of the pod's calls no longer matter. Returns the tickets in flight, and the failed calls."""
        tickets = [ticket for ticket, key in self.in_flight.items() if key[0] == pod_uid]
        for ticket in tickets:
            del self.in_flight[ticket]
        return tickets, self.failures.remove_where(lambda key: key[0] == pod_uid)

    def rename(self, pod_uid: str, known_as: str) -> None:
        def renamed(key: AllocationKey) -> AllocationKey:
            return (known_as, *key[1:]) if key[0] == pod_uid else key

        self.in_flight = {ticket: renamed(key) for ticket, key in self.in_flight.items()}
        for key in [key for key in self.failures if key[0] == pod_uid]:
            failure = self.failures.remove(key)
            if failure is not None:
                self.failures[renamed(key)] = structs.replace(failure, pod_uid=known_as)

    def forget_resource(self, resource_name: str) -> None:
        self.in_flight = {ticket: key for ticket, key in self.in_flight.items() if key[2] != resource_name}
        self.failures.remove_where(lambda key: key[2] == resource_name)


class Reallocations(_RetriedCalls):
    """Calls Allocate again with the same device IDs after its response was lost or became outdated."""

    # by ticket: the names of the devices' files at the call
    _called_with: dict[int, frozenset[str]] = {}

    def forget_outdated(self, resource: Resource) -> None:
        """Drop responses whose device files differ from the plugin's current list; see stored_responses."""
        for allocation in self._book.of_resource(resource.name):
            if is_outdated(allocation, resource):
                self._book.add(structs.replace(allocation, response=None, edits=None, files=()))

    def call_due(self, now: float, once: AllocateOnce, pods: Mapping[str, Pod]) -> None:
        """Request a call for every allocation without a response whose plugin lists its devices again. pods: by UID."""
        self._called_with = {ticket: names for ticket, names in self._called_with.items() if ticket in self.in_flight}
        for key, allocation in self._book.unanswered.items():
            resource = self._book.resources[allocation.resource_name]
            if resource.is_attributed or not self._is_due(key, now):
                continue
            self._stop_retry_timer(key)
            # a response for parts may depend on the pod
            is_pod_missing = resource.listed.part_rules is not None and key[0] not in pods
            if resource.newest.endpoint is None or is_pod_missing or once.applies_to(resource.name):
                continue
            if _may_be_incomplete(allocation, resource, pods.get(key[0])):
                continue
            if all(i in resource.devices and i not in resource.listed.unconfirmed for i in allocation.device_ids):
                ticket = self._begin(key)
                self._called_with[ticket] = listed_names(resource, allocation.device_ids)
                call = ticket, resource.name, resource.newest.endpoint
                named = resource.plugin_ids(allocation.device_ids)
                self._marks.call(CallAllocate(*call, named, allocation.pod_uid, allocation.container))

    def allocated(self, ticket: int, response: AllocateResponse, uncommitted: Iterable[Allocation], now: float) -> None:
        """Allocate succeeded. uncommitted: allocations of the transactions in progress."""
        key = self.in_flight[ticket]
        allocation = self._book.of(*key)
        if allocation is None:
            del self.in_flight[ticket]
            return
        resource = self._book.resources[key[2]]
        if self._called_with.get(ticket) != listed_names(resource, allocation.device_ids):
            # the response may name files that are other devices' by now
            del self.in_flight[ticket]
            self._marks.are_calls_due = True
            return
        files = recorded_files(resource, allocation.device_ids, response)
        made = structs.replace(allocation, response=response.octets, edits=response.edits, files=files)
        if problem := self._book.no_room(made, uncommitted):
            self.failed(ticket, problem, now)
            return
        del self.in_flight[ticket]
        self.failures.remove(key)
        self._book.add(made)
        # The response also shows whether a running container has its devices.
        self._marks.save_durably(key[0])
        self._marks.publish(allocation.resource_name)


def _may_be_incomplete(allocation: Allocation, resource: Resource, pod: Pod | None) -> bool:
    """Whether the container may hold further devices, which a NodeDevice omitted: it cannot start with the known ones alone."""
    if pod is None:
        return not resource.use.possible_holders.isdisjoint((*PODS_NOT_SYNCED, allocation.pod_uid))
    name = allocation.resource_name
    requests = (r.count for r in pod.device_requests if (r.container, r.resource_name) == (allocation.container, name))
    return any(count > len(allocation.device_ids) for count in requests)


class PendingPreStart(Struct, frozen=True):
    """Why a container must not start yet. failure: the last call's error; is_in_flight: a call is in flight."""

    resource_name: str
    failure: str = ""
    is_in_flight: bool = False


class PreStartCalls(_RetriedCalls):
    """The calls of PreStartContainer that are pending, in flight, or failed and to be retried."""

    # in order; includes calls in flight and failed ones
    required: dict[AllocationKey, None] = {}
    # required if the plugin requires the call, which is known once it is connected
    undecided: dict[AllocationKey, None] = {}
    # in flight for pods that have ended: ticket to pod UID
    _orphaned: dict[int, str] = {}

    def require(self, keys: Iterable[AllocationKey]) -> None:
        """Require calls for these, in this order within a pod."""
        self.required.update(dict.fromkeys(keys))
        self._marks.are_calls_due = True

    def require_if_supported(self, keys: Iterable[AllocationKey]) -> None:
        """Require calls for these if their plugin needs them, which is unknown while it is not connected."""
        found = (key for key in keys if key not in self.required and not self._book.resources[key[2]].is_attributed)
        self.undecided.update(dict.fromkeys(found))
        self._marks.are_calls_due = True

    def failed(self, ticket: int, message: str, now: float) -> None:
        if ticket in self.in_flight:
            self._marks.publish(self.in_flight[ticket][2])
        super().failed(ticket, message, now)

    def rename(self, pod_uid: str, known_as: str) -> None:
        super().rename(pod_uid, known_as)
        for keys in (self.required, self.undecided):
            renamed = {(known_as, *key[1:]) if key[0] == pod_uid else key: None for key in keys}
            keys.clear()
            keys.update(renamed)

    def forget_resource(self, resource_name: str) -> None:
        super().forget_resource(resource_name)
        self.required = {key: None for key in self.required if key[2] != resource_name}
        self.undecided = {key: None for key in self.undecided if key[2] != resource_name}

    def cancel(self, key: AllocationKey) -> None:
        """The devices are in use: they must not be touched."""
        self.undecided.pop(key, None)
        self.in_flight = {ticket: called for ticket, called in self.in_flight.items() if called != key}
        if key in self.required:
            self._done(key)
            self._marks.are_calls_due = True

    def pending_call(self, key: AllocationKey) -> PendingPreStart | None:
        """None without a pending call. A plugin that has not listed devices since a restart may require one."""
        if key in self.required:
            failure = self.failures.get(key)
            return PendingPreStart(key[2], failure.message if failure else "", self.is_in_flight(key))
        if key in self.undecided and self._book.resources[key[2]].presence.settle_until is not None:
            return PendingPreStart(key[2])
        return None

    def call_due(self, now: float) -> None:
        """The next call of each pod whose plugin can be called now."""
        self._decide()
        pods_with_earlier_call: set[str] = set()
        for key in list(self.required):
            resource, allocation = self._book.resources[key[2]], self._book.of(*key)
            if key[0] in pods_with_earlier_call:
                continue
            pods_with_earlier_call.add(key[0])
            if not self._is_due(key, now):
                continue
            if allocation is not None and (not resource.is_live or self._book.lacks_original(allocation)):
                self._stop_retry_timer(key)
            elif allocation is not None and resource.newest.options.pre_start_required:
                self._call(allocation)
            else:
                # released meanwhile, or the plugin was replaced by one that does not require the call
                self._done(key)
                pods_with_earlier_call.remove(key[0])

    def started(self, ticket: int) -> None:
        key = self.in_flight.pop(ticket, None)
        if key is not None:
            self._done(key)
            self._marks.are_calls_due = True

    def forget(self, pod_uid: str) -> None:
        """The pod has ended: results of its calls no longer matter."""
        if not self.undecided and not self.required:
            return
        self.undecided = {key: None for key in self.undecided if key[0] != pod_uid}
        self.required = {key: None for key in self.required if key[0] != pod_uid}
        tickets, failed = self.drop(pod_uid)
        self._orphaned.update(dict.fromkeys(tickets, pod_uid))
        self._marks.publish_all(key[2] for key in failed)

    def has_orphaned_call(self, pod_uid: str) -> bool:
        """Whether a plugin may still be working on devices of this ended pod."""
        return pod_uid in self._orphaned.values()

    def orphan_ended(self, ticket: int) -> str | None:
        """A call has returned. Returns the UID of its pod if that has ended."""
        return self._orphaned.pop(ticket, None)

    def _decide(self) -> None:
        """Move undecided calls to the required ones, or drop them, where the plugin is connected."""
        for key in [key for key in self.undecided if self._book.resources[key[2]].is_live]:
            del self.undecided[key]
            if self._book.resources[key[2]].newest.options.pre_start_required:
                self.required[key] = None
                self._marks.save()

    def _call(self, allocation: Allocation) -> None:
        resource = self._book.resources[allocation.resource_name]
        assert resource.newest.endpoint is not None
        ticket, named = self._begin(allocation.key), resource.plugin_ids(allocation.device_ids)
        self._marks.call(CallPreStart(ticket, resource.name, resource.newest.endpoint, allocation.container, named))

    def _done(self, key: AllocationKey) -> None:
        del self.required[key]
        self._marks.save()
        if self.failures.remove(key) is not None:
            self._marks.publish(key[2])
