"""PreStartContainer: a plugin that asks for it is called once for each container and resource before the devices are used.

Called when the pod's allocation is committed, one after another within a pod, in the order in which its containers start. A
call that fails is made again with growing pauses; the devices stay held. The kubelet calls at every start of a container; here
the call is made ahead of it, so that no start ever waits for a plugin: after allocation, and again when the runtime tells that a
container has ended (without a runtime, --runtime none, there is one call). What is still owed stands in the
checkpoint, so a restart of the agent does not call again for what is done: that could reset a device under a running
container. A call that was under way when the agent ended is made again. After the checkpoint was lost nobody knows what was
done, and nothing is called again for the same reason, until the runtime says what does not run.
Source: kubelet device manager, PreStartContainer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.allocation.allocations import Allocation, AllocationBook
from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation, retry_seconds
from nodedevice_agent.devicemanager.effects import CallPreStart, Effect, Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.resource import Resource

# Pod UID, container, resource name.
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class PendingPreStart:
    """Why a container may not start yet. failure: what the plugin last answered; is_called: its answer is awaited."""

    resource_name: str
    failure: str = ""
    is_called: bool = False


class PreStartCalls:
    """The calls that are owed, under way, or failed and made again later."""

    def __init__(self, tickets: Iterator[int]) -> None:
        self._tickets = tickets
        self._pending: dict[str, list[Key]] = {}
        # owed if the plugin asks for it, which is known once it is connected
        self._undecided: dict[Key, None] = {}
        self._in_flight: dict[int, Key] = {}
        # under way for pods that are over: ticket to pod UID
        self._orphaned: dict[int, str] = {}
        self._failed: dict[Key, PendingAllocation] = {}

    def require(self, keys: Iterable[Key]) -> None:
        """These have to be called, in this order within a pod."""
        for key in keys:
            self._pending.setdefault(key[0], []).append(key)

    def require_if_supported(self, keys: Iterable[Key]) -> None:
        """These have to be called if their plugin asks for it; of one that is away it is not known."""
        self._undecided.update(dict.fromkeys(key for key in keys if key not in self._pending.get(key[0], ())))

    def cancel(self, key: Key) -> list[Effect]:
        """The devices are in use: nothing may be done to them."""
        self._undecided.pop(key, None)
        self._in_flight = {ticket: called for ticket, called in self._in_flight.items() if called != key}
        return self._done(key) if key in self._pending.get(key[0], ()) else []

    def pending_call(self, key: Key, resource: Resource) -> PendingPreStart | None:
        """None where nothing is owed. A plugin that is still awaited after a restart may ask for a call."""
        if key in self._pending.get(key[0], ()):
            failed = self._failed.get(key)
            return PendingPreStart(key[2], failed.message if failed else "", self.is_in_flight(key))
        if key in self._undecided and resource.settle_until is not None:
            return PendingPreStart(key[2])
        return None

    def is_in_flight(self, key: Key) -> bool:
        """Whether the plugin's answer is awaited."""
        return key in self._in_flight.values()

    def pending(self) -> tuple[Key, ...]:
        return tuple(key for keys in self._pending.values() for key in keys)

    def due(self, book: AllocationBook, resources: Mapping[str, Resource], now: float) -> list[Effect]:
        """The next call of each pod whose plugin can be asked now."""
        effects = self._decide(resources)
        for pod_uid in list(self._pending):
            while (key := self._next(pod_uid, now)) is not None:
                resource, allocation = resources[key[2]], book.of(*key)
                if allocation is not None and not resource.is_live:
                    # its plugin lists its devices when it is back: that is what to wait for
                    self._stop_retry_timer(key)
                    break
                if allocation is not None and resource.options.pre_start_required:
                    effects.append(self._call(resource, allocation, key))
                    break
                # freed meanwhile, or its plugin was replaced by one that does not ask for it
                effects += self._done(key)
        return effects

    def started(self, ticket: int) -> list[Effect]:
        """Answered; the next of that pod, if any, is due."""
        key = self._in_flight.pop(ticket, None)
        return self._done(key) if key is not None else []

    def failed(self, ticket: int, message: str, now: float) -> list[Effect]:
        key = self._in_flight.pop(ticket, None)
        if key is None:
            return []
        earlier = self._failed.get(key)
        attempts = (earlier.attempts if earlier else 0) + 1
        retry_at = now + retry_seconds(attempts)
        self._failed[key] = PendingAllocation(*key, Reason.PRE_START_FAILED, message, attempts, retry_at)
        return [Publish(key[2])]

    def forget(self, pod_uid: str) -> list[Effect]:
        """The pod is over: whatever a call still brings is nobody's."""
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
        """Whether a plugin may still be at work on devices of a pod that is over."""
        return pod_uid in self._orphaned.values()

    def orphan_ended(self, ticket: int) -> str | None:
        """A call has come to its end: the UID of its pod, where that is over."""
        return self._orphaned.pop(ticket, None)

    def failed_calls(self) -> Iterable[PendingAllocation]:
        return self._failed.values()

    def next_deadline(self) -> float | None:
        return min((w.retry_at for w in self._failed.values() if w.retry_at is not None), default=None)

    def _decide(self, resources: Mapping[str, Resource]) -> list[Effect]:
        """What was owed perhaps is owed, or not, where the plugin is there to tell."""
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
        waiting = self._failed.get(keys[0])
        is_paused = waiting is not None and waiting.retry_at is not None and waiting.retry_at > now
        return None if is_paused else keys[0]

    def _call(self, resource: Resource, allocation: Allocation, key: Key) -> CallPreStart:
        assert resource.endpoint is not None
        self._stop_retry_timer(key)
        ticket = next(self._tickets)
        self._in_flight[ticket] = key
        return CallPreStart(ticket, resource.name, resource.endpoint, key[1], allocation.device_ids)

    def _stop_retry_timer(self, key: Key) -> None:
        waiting = self._failed.get(key)
        if waiting is not None:
            self._failed[key] = replace(waiting, retry_at=None)

    def _done(self, key: Key) -> list[Effect]:
        keys = self._pending[key[0]]
        keys.remove(key)
        if not keys:
            del self._pending[key[0]]
        saved: list[Effect] = [SaveCheckpoint(durable=False)]
        return saved + ([Publish(key[2])] if self._failed.pop(key, None) is not None else [])
