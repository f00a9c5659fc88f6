"""PreStartContainer: a plugin that asks for it is called once for each container and resource before the devices are used.

Called when the pod's allocation is committed, one after another within a pod, in the order in which its containers start. A
call that fails is made again with growing pauses; the devices stay held. The kubelet calls at every start of a container;
without a runtime that tells of starts (--runtime none) there is one call, after allocation. What is still owed stands in the
checkpoint, so a restart of the agent does not call again for what is done: that could reset a device under a running
container. A call that was under way when the agent ended is made again. After the checkpoint was lost nobody knows what was
done, and nothing is called again for the same reason.
Source: kubelet device manager, PreStartContainer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from nodedevice_api.names import Reason

from nodedevice_agent.core.allocations import Allocation, AllocationBook
from nodedevice_agent.core.effects import CallPreStart, Effect, Publish, SaveCheckpoint
from nodedevice_agent.core.resources import Resource
from nodedevice_agent.core.waiting import Waiting, pause_seconds

# Pod UID, container, resource name.
Key = tuple[str, str, str]


class PreStarts:
    """The calls that are owed, under way, or failed and made again later."""

    def __init__(self, tickets: Iterator[int]) -> None:
        self._tickets = tickets
        self._owed: dict[str, list[Key]] = {}
        self._in_flight: dict[int, Key] = {}
        self._failed: dict[Key, Waiting] = {}

    def owe(self, keys: Iterable[Key]) -> None:
        """These have to be called, in this order within a pod."""
        for key in keys:
            self._owed.setdefault(key[0], []).append(key)

    def owed(self) -> tuple[Key, ...]:
        return tuple(key for keys in self._owed.values() for key in keys)

    def due(self, book: AllocationBook, resources: Mapping[str, Resource], now: float) -> list[Effect]:
        """The next call of each pod whose plugin can be asked now."""
        effects: list[Effect] = []
        for pod_uid in list(self._owed):
            while (key := self._next(pod_uid, now)) is not None:
                resource, allocation = resources[key[2]], book.of(*key)
                if allocation is not None and not resource.is_live:
                    # its plugin lists its devices when it is back: that is what to wait for
                    self._stop_clock(key)
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
        retry_at = now + pause_seconds(attempts)
        self._failed[key] = Waiting(*key, Reason.PRE_START_FAILED, message, attempts, retry_at)
        return [Publish(key[2])]

    def forget(self, pod_uid: str) -> list[Effect]:
        """The pod is over: whatever a call still brings is nobody's."""
        if self._owed.pop(pod_uid, None) is None:
            return []
        self._in_flight = {ticket: key for ticket, key in self._in_flight.items() if key[0] != pod_uid}
        gone = [key for key in self._failed if key[0] == pod_uid]
        for key in gone:
            del self._failed[key]
        return [Publish(key[2]) for key in gone]

    def waiting(self) -> Iterable[Waiting]:
        return self._failed.values()

    def next_deadline(self) -> float | None:
        return min((w.retry_at for w in self._failed.values() if w.retry_at is not None), default=None)

    def _next(self, pod_uid: str, now: float) -> Key | None:
        keys = self._owed.get(pod_uid)
        if not keys or keys[0] in self._in_flight.values():
            return None
        waiting = self._failed.get(keys[0])
        is_paused = waiting is not None and waiting.retry_at is not None and waiting.retry_at > now
        return None if is_paused else keys[0]

    def _call(self, resource: Resource, allocation: Allocation, key: Key) -> CallPreStart:
        assert resource.endpoint is not None
        self._stop_clock(key)
        ticket = next(self._tickets)
        self._in_flight[ticket] = key
        return CallPreStart(ticket, resource.name, resource.endpoint, key[1], allocation.device_ids)

    def _stop_clock(self, key: Key) -> None:
        waiting = self._failed.get(key)
        if waiting is not None:
            self._failed[key] = replace(waiting, retry_at=None)

    def _done(self, key: Key) -> list[Effect]:
        keys = self._owed[key[0]]
        keys.remove(key)
        if not keys:
            del self._owed[key[0]]
        saved: list[Effect] = [SaveCheckpoint(durable=False)]
        return saved + ([Publish(key[2])] if self._failed.pop(key, None) is not None else [])
