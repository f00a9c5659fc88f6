"""Posts Kubernetes Events in the background. A failed Event is dropped and counted, and delays nothing.

Equal transitions of a node's devices within a second become one Event with their number. The same Event some minutes later raises
the count of the first. The last Event about a device shows its last state: a reversal posts the gathering Event first. An ongoing
state is named after its content: the API server keeps it for an hour, and until then rejects a second one of that name.

Floods are posted at a bounded rate. Routine Events, such as that a number changed, gather for longer and have a rate of their own;
beyond it they are counted by resource, and posted once a minute as one Event for all nodes. If too many other Events wait, the
oldest are counted by reason. Nodes take turns, and each has a rate of its own, so one agent never delays another node's Events.

While another operator leads, it posts the same Events. A standby keeps the newest, for the gap without a leader.
"""

import asyncio
import hashlib
import logging
import math
import random
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from nodedevice_api import names
from nodedevice_common.pacing import TokenBucket
from nodedevice_kube.api_errors import (
    ApiError,
    Conflict,
    Forbidden,
    NoAnswer,
    NotFound,
    NotLeading,
    Unavailable,
    Unreachable,
)
from nodedevice_kube.paths import MERGE_PATCH, Resource
from nodedevice_kube.retries import Retries

from nodedevice_operator.kube.client import now_text
from nodedevice_operator.kube.requests import Requests, at
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.observability.aggregates import Aggregate, NumberAggregate
from nodedevice_operator.observability.events import (
    LONGEST_MESSAGE,
    OPPOSITES,
    ROUTINE,
    About,
    Event,
    bounded,
    gathered_as,
    may_reverse,
    merged,
    of_many_nodes,
    of_too_many,
)
from nodedevice_operator.observability.fair_queue import FairQueue
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.observability.transitions import transitions

log = logging.getLogger(__name__)

# In an outage the newest are kept up to this many: they are still true then.
MOST_WAITING: Final = 1000
_ATTEMPTS: Final = 4
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 10.0
# So long an Event waits for more of the same kind about one object: devices that fail together rarely do so in one message.
_GATHER_SECONDS: Final = 1.0
# Numbers follow devices that may come and go several times meanwhile, and need no action.
_GATHER_NUMBERS_SECONDS: Final = 5.0
_ROUTINE_PER_SECOND: Final = 2.0
_ROUTINE_BURST: Final = 50
# Nodes beyond that rate are counted for so long.
_COUNT_SECONDS: Final = 60.0
# The same Event again within this time raises its count, as Kubernetes' own recorders do.
_SERIES_SECONDS: Final = 600.0
_MOST_SERIES: Final = 1000
# An Event costs the API server a write to a store that keeps it for an hour.
_PER_SECOND: Final = 20.0
_BURST: Final = 100
# For one node: its agent's token could cause Events without end. Hundreds of device plugins that end at once are still reported.
_PER_SECOND_OF_NODE: Final = 1.0
_BURST_OF_NODE: Final = 300
# the rate of so many nodes is kept, the last reporting ones
_MOST_NODES: Final = 1000
# A flood drops thousands: they are counted one by one, and logged together.
_DROPPED_LOG_SECONDS: Final = 60.0
_MOST_STANDBY: Final = 1000

T = TypeVar("T")
# the object, the reason, and the resource: a pod may hold devices of several
_Key = tuple[About, str, str]
# an Event that more may be merged into, until its timer fires
_Gathering = tuple[Event, asyncio.TimerHandle]
_SeriesKey = tuple[str, str, str]
_EVENTS: Final = Resource("v1", "events", is_namespaced=True)


class EventsApi(Requests):
    """Writes Events. Those about cluster-scoped objects go into the namespace default."""

    async def post_event(self, event: Event, suffix: str) -> None:
        """Create an Event. suffix: makes its name unique. Raises Conflict when there is one of that name."""
        where = at(_EVENTS, namespace=_namespace(event))
        await self._client.request("POST", *where, body=_encode(event, suffix))

    async def repeat_event(self, event: Event, suffix: str, count: int) -> None:
        """Raises the count of an Event that was posted with that suffix. Raises NotFound."""
        where = at(_EVENTS, _name(event, suffix), _namespace(event))
        body = {"count": count, "lastTimestamp": now_text()}
        await self._client.request("PATCH", *where, body=body, content_type=MERGE_PATCH)


def _namespace(event: Event) -> str:
    return event.about.namespace or "default"


def _name(event: Event, suffix: str) -> str:
    # a name may have 253 characters, and the suffix is what makes it unique
    return f"{event.about.name[:230].rstrip('.-')}.{suffix}"


def _encode(event: Event, suffix: str) -> dict[str, Any]:
    now = now_text()
    about = event.about
    involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
    if about.namespace:
        involved["namespace"] = about.namespace
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": _name(event, suffix), "namespace": _namespace(event)},
        "involvedObject": involved,
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:LONGEST_MESSAGE],
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": names.OPERATOR_FIELD_MANAGER},
        "reportingComponent": names.OPERATOR_FIELD_MANAGER,
        "reportingInstance": names.OPERATOR_FIELD_MANAGER,
    }


class EventRecorder:
    def __init__(
        self, api: EventsApi, metrics: Metrics, fence: WriteFence, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._fence = fence
        self._clock = clock
        self._queue: FairQueue[Event] = FairQueue(MOST_WAITING)
        self._gathering: dict[_Key, _Gathering] = {}
        self._series: OrderedDict[_SeriesKey, tuple[str, int, float]] = OrderedDict()
        self._bucket = TokenBucket(_PER_SECOND, _BURST, clock())
        self._dropped, self._dropped_logged_at = 0, -math.inf
        self._routine = TokenBucket(_ROUTINE_PER_SECOND, _ROUTINE_BURST, clock())
        # by reason and resource: nodes with routine Events that are not posted one by one
        self._counted: dict[tuple[str, str], set[str]] = {}
        # what each node may still post
        self._of_nodes: OrderedDict[str, TokenBucket] = OrderedDict()
        # by type and reason: Events that were too many to be posted one by one
        self._summed: dict[tuple[str, str], int] = {}
        # Events that were not ours to post, each with when it came up, by the clock of the fence
        self._standby: deque[tuple[float, Event]] = deque(maxlen=_MOST_STANDBY)
        # earlier Events that were about to be posted when the fence had closed
        self._too_late: deque[tuple[float, Event]] = deque(maxlen=_MOST_STANDBY)

    def on_update(self, _: str, before: NodeDeviceRecord | None, now: NodeDeviceRecord | None) -> None:
        for event in transitions(before, now) if now is not None else ():
            self.post(event)

    def post(self, event: Event) -> None:
        """Post an Event while this operator leads; only count the oldest waiting one when there are too many."""
        event = bounded(event)
        if not self._fence.is_open:
            self._standby.append((self._fence.clock(), event))
        elif event.aggregate is None:
            self._enqueue(event)
        else:
            self._gather(event, event.aggregate)

    def take_over(self, since: float) -> None:
        """Posts the Events since that moment of the fence's clock, when there was no leader; drops older ones."""
        too_late = [event for moment, event in self._too_late if moment >= since]
        events = [event for moment, event in self._standby if moment >= since]
        self._too_late.clear()
        self._standby.clear()
        for event in too_late:
            self._enqueue(event)
        for event in events:
            self.post(event)

    async def work(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                # 0 unless too many were posted lately
                await asyncio.sleep(self._bucket.reserve(self._clock()))
                if await self._is_real(event):
                    await self._send(event)
            except Conflict:
                # An earlier process posted this ongoing state; or an attempt that seemed to fail had succeeded: names are unique.
                log.debug("Event was posted already", extra={"reason": event.reason})
            except NotLeading:
                self._keep(event)
            except ApiError as error:
                self._lose(event, error.problem)
            except Exception:
                log.exception("Event not posted", extra={"reason": event.reason, "object": event.about.name})
                self._metrics.events_lost.inc()

    def _keep(self, event: Event) -> None:
        """It could not be posted, as this operator did not lead any more: it may lead again before another one does."""
        if self._fence.is_open:
            self._enqueue(event)
        else:
            self._too_late.append((self._fence.clock(), event))

    def _gather(self, event: Event, aggregate: Aggregate) -> None:
        opposite = (event.about, OPPOSITES.get(event.reason, ""), aggregate.resource)
        held, timer = self._gathering.get(opposite, (None, None))
        if held and timer and may_reverse(held, event):
            # posted at once, as this one reverses it: merged into later ones it would come after this one
            timer.cancel()
            self._gathered(opposite)
        key = (event.about, gathered_as(event.reason), aggregate.resource)
        if key in self._gathering:
            gathered, timer = self._gathering[key]
            self._gathering[key] = merged(gathered, event), timer
        else:
            seconds = _GATHER_NUMBERS_SECONDS if isinstance(aggregate, NumberAggregate) else _GATHER_SECONDS
            timer = asyncio.get_running_loop().call_later(seconds, self._gathered, key)
            self._gathering[key] = event, timer

    def _gathered(self, key: _Key) -> None:
        event, _ = self._gathering.pop(key)
        aggregate = event.aggregate
        if aggregate is None or not event.message:
            return  # it came to nothing
        if event.reason not in ROUTINE or self._routine.take(self._clock()):
            self._enqueue(event)
            return
        counted = event.reason, aggregate.resource
        if counted not in self._counted:
            self._counted[counted] = set()
            asyncio.get_running_loop().call_later(_COUNT_SECONDS, self._post_counted, counted)
        self._counted[counted].add(aggregate.node)

    def _post_counted(self, counted: tuple[str, str]) -> None:
        self._enqueue(of_many_nodes(*counted, len(self._counted.pop(counted))))

    def _enqueue(self, event: Event) -> None:
        if event.node and not self._take_of_node(event.node):
            self._sum(event)
            return
        dropped = self._queue.put(event, event.node)
        if dropped is None:
            return
        self._sum(dropped)
        self._dropped += 1
        now = self._clock()
        if now - self._dropped_logged_at >= _DROPPED_LOG_SECONDS:
            log.warning("Event queue is full; dropping the oldest", extra={"events": self._dropped})
            self._dropped, self._dropped_logged_at = 0, now

    def _take_of_node(self, node: str) -> bool:
        now = self._clock()
        if node not in self._of_nodes:
            self._of_nodes[node] = TokenBucket(_PER_SECOND_OF_NODE, _BURST_OF_NODE, now)
            if len(self._of_nodes) > _MOST_NODES:
                self._of_nodes.popitem(last=False)
        self._of_nodes.move_to_end(node)
        return self._of_nodes[node].take(now)

    def _sum(self, event: Event) -> None:
        self._metrics.events_lost.inc()
        key = event.type, event.reason
        if key not in self._summed:
            self._summed[key] = 0
            asyncio.get_running_loop().call_later(_COUNT_SECONDS, self._post_summed, key)
        self._summed[key] += 1

    def _post_summed(self, key: tuple[str, str]) -> None:
        self._enqueue(of_too_many(*key, self._summed.pop(key)))

    async def _send(self, event: Event) -> None:
        """Create it, or raise the count of the same one of a while ago."""
        if event.is_ongoing:
            await self._retrying(lambda: self._api.post_event(event, _named_by(event)))
            return
        key = (event.about.uid, event.reason, event.message)
        suffix, count, at = self._series.pop(key, ("", 0, -math.inf))
        now = self._clock()
        if now - at >= _SERIES_SECONDS or not await self._repeat(event, suffix, count + 1):
            # as Kubernetes' own recorders do: Events about one object within a second are listed in this order
            suffix, count = f"{time.time_ns():016x}", 0
            await self._retrying(lambda: self._api.post_event(event, suffix))
        self._series[key] = (suffix, count + 1, now)
        if len(self._series) > _MOST_SERIES:
            self._series.popitem(last=False)

    async def _repeat(self, event: Event, suffix: str, count: int) -> bool:
        """Whether that could be done: the API server keeps an Event for an hour, and it may be deleted."""
        try:
            await self._retrying(lambda: self._api.repeat_event(event, suffix, count))
        except NotFound:
            return False
        return True

    async def _is_real(self, event: Event) -> bool:
        """Whether the pod of the Event runs on the node whose agent reported it: agents are not trusted blindly."""
        if event.on_node is None:
            return True
        try:
            pod = await self._retrying(lambda: self._api.read_pod(event.about.namespace, event.about.name))
        except NotFound:
            return False
        return pod.uid == event.about.uid and pod.node == event.on_node

    async def _retrying(self, send: Callable[[], Awaitable[T]]) -> T:
        """Waits for an unreachable API server, and retries other transient failures a few times. Raises NotLeading."""
        pauses, attempts = Retries(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS), 0
        while True:
            try:
                return await send()
            # forbidden as well: an API server that has just started has not read the roles yet
            except (Unreachable, Unavailable, Forbidden) as error:
                # others fail in an outage, too; any other failure may be of this request alone
                attempts += not isinstance(error, Unreachable) or isinstance(error, NoAnswer)
                if attempts >= _ATTEMPTS:
                    raise
                await asyncio.sleep(pauses.failed(error, random.random()))
                # reads pass no fence
                self._fence.check(error.verb, error.what)

    def _lose(self, event: Event, error: str) -> None:
        self._metrics.events_lost.inc()
        fields = {"reason": event.reason, "kind": event.about.kind, "object": event.about.name, "error": error}
        log.warning("Event not posted", extra=fields)


def _named_by(event: Event) -> str:
    """A suffix made from the content: the same, whichever process posts it."""
    content = f"{event.about.uid}\n{event.reason}\n{event.message}"
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
