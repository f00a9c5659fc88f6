"""Posts Kubernetes Events, behind everything else: an Event that cannot be posted is lost, counted, and holds up nothing.

What many devices of a node go through within a second is one Event with their number; the same Event again, some minutes
later, is the first one with a higher count. A flood goes out at a bounded rate, and what it tells waits meanwhile. What is told
last of a device is what became of it last: news that take back what is still being gathered send that out first.

What goes on may have been told by a process before this one. Such an Event is named after what it says: the API server keeps it
for an hour, and until then takes no second one of that name.
"""

import asyncio
import hashlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from nodedevice_common.token_bucket import TokenBucket
from tenacity import AsyncRetrying, RetryError, retry_if_exception_type, stop_after_attempt, wait_exponential

from nodedevice_operator.errors import ApiError, Conflict, Forbidden, NotFound, NotLeading, Unavailable, Unreachable
from nodedevice_operator.events.aggregate import Tally
from nodedevice_operator.events.api import EventsApi
from nodedevice_operator.events.transitions import OPPOSITES, About, Event, merged
from nodedevice_operator.metrics.metrics import Metrics

log = logging.getLogger(__name__)

# In an outage the newest are kept up to this many: what they tell of is still true then.
_MOST_WAITING: Final = 1000
_ATTEMPTS: Final = 4
# So long news of the same kind about one object are waited for: what breaks together rarely does so in one message.
_GATHER_SECONDS: Final = 1.0
# The same Event again within this time is counted on, as Kubernetes' own recorders do.
_SERIES_SECONDS: Final = 600.0
_MOST_SERIES: Final = 1000
# An Event costs the API server a write to a store that keeps it for an hour.
_PER_SECOND: Final = 20.0
_BURST: Final = 100
# A flood gives up thousands: they are counted one by one, and told of together.
_GIVEN_UP_TOLD_SECONDS: Final = 60.0

# what it is on, its reason, and the resource: a pod may hold devices of several
_Key = tuple[About, str, str]
_SeriesKey = tuple[str, str, str]


@dataclass(slots=True)
class _Gathering:
    """One Event that more may be merged into, until its time is over."""

    event: Event
    timer: asyncio.TimerHandle


class Recorder:
    """A queue of Events and the task that posts them."""

    def __init__(self, api: EventsApi, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._metrics = metrics
        self._clock = clock
        self._queue: asyncio.Queue[Event] = asyncio.Queue(_MOST_WAITING)
        self._gathering: dict[_Key, _Gathering] = {}
        self._series: OrderedDict[_SeriesKey, tuple[str, int, float]] = OrderedDict()
        self._bucket = TokenBucket(_PER_SECOND, _BURST, clock())
        self._given_up, self._given_up_told_at = 0, -math.inf

    def post(self, event: Event) -> None:
        """Hand over an Event; the oldest waiting one is given up when there are too many."""
        if event.tally is None:
            self._enqueue(event)
            return
        self._settle_opposite(event, event.tally)
        key = (event.about, event.reason, event.tally.resource)
        before = self._gathering.get(key)
        if before is None:
            timer = asyncio.get_running_loop().call_later(_GATHER_SECONDS, self._gathered, key)
            self._gathering[key] = _Gathering(event, timer)
        else:
            before.event = merged(before.event, event)

    async def work(self) -> None:
        """Post one Event after the other, for ever."""
        while True:
            event = await self._queue.get()
            try:
                await self._pace()
                if await self._is_real(event):
                    await self._send(event)
            except Conflict:
                # by a process before us, where it is standing; else an attempt that seemed lost had arrived: its name is its own
                log.debug("Event was posted already", extra={"reason": event.reason})
            except NotLeading:
                log.debug("Event left to whoever leads now", extra={"reason": event.reason})
            except RetryError as error:
                self._lose(event, str(error.last_attempt.exception()))
            except ApiError as error:
                self._lose(event, error.problem)
            except Exception:
                log.exception("Event not posted", extra={"reason": event.reason, "object": event.about.name})
                self._metrics.events_lost.inc()

    def _settle_opposite(self, event: Event, tally: Tally) -> None:
        """Send out at once what this one takes back: merged into later news it would outlast this one."""
        key = (event.about, OPPOSITES.get(event.reason, ""), tally.resource)
        held = self._gathering.get(key)
        if held is not None and held.event.tally is not None and held.event.tally.may_share(tally):
            held.timer.cancel()
            self._gathered(key)

    def _gathered(self, key: _Key) -> None:
        self._enqueue(self._gathering.pop(key).event)

    def _enqueue(self, event: Event) -> None:
        if self._queue.full():
            self._queue.get_nowait()
            self._give_up()
        self._queue.put_nowait(event)

    def _give_up(self) -> None:
        self._metrics.events_lost.inc()
        self._given_up += 1
        now = self._clock()
        if now - self._given_up_told_at >= _GIVEN_UP_TOLD_SECONDS:
            log.warning("oldest Events given up, as too many wait", extra={"events": self._given_up})
            self._given_up, self._given_up_told_at = 0, now

    async def _pace(self) -> None:
        """Wait while too many went out lately."""
        delay = self._bucket.reserve(self._clock())
        if delay:
            await asyncio.sleep(delay)

    async def _send(self, event: Event) -> None:
        """Post it, or count on from the same one of a while ago."""
        if event.is_standing:
            await _patiently(lambda: self._api.post_event(event, _named_by(event)))
            return
        key = (event.about.uid, event.reason, event.message)
        suffix, count, at = self._series.pop(key, ("", 0, 0.0))
        now = self._clock()
        if count and now - at < _SERIES_SECONDS:
            try:
                await _patiently(lambda: self._api.repeat_event(event, suffix, count + 1))
            except NotFound:
                count = 0  # it was kept for an hour, or somebody deleted it
            else:
                self._remember(key, suffix, count + 1, now)
                return
        # as Kubernetes' own recorders do: what is told of one object within a second is listed in this order
        fresh = f"{time.time_ns():016x}"
        await _patiently(lambda: self._api.post_event(event, fresh))
        self._remember(key, fresh, 1, now)

    def _remember(self, key: _SeriesKey, suffix: str, count: int, now: float) -> None:
        self._series[key] = (suffix, count, now)
        if len(self._series) > _MOST_SERIES:
            self._series.popitem(last=False)

    async def _is_real(self, event: Event) -> bool:
        """Whether the pod that the Event is on runs where the Event comes from: an agent is not believed blindly."""
        if event.on_node is None:
            return True
        try:
            pod = await self._api.read_pod(event.about.namespace, event.about.name)
        except NotFound:
            return False
        return pod.uid == event.about.uid and pod.node == event.on_node

    def _lose(self, event: Event, problem: str) -> None:
        self._metrics.events_lost.inc()
        log.warning(
            "Event not posted",
            extra={"reason": event.reason, "kind": event.about.kind, "object": event.about.name, "problem": problem},
        )


def _named_by(event: Event) -> str:
    """What names it after what it says: the same, whoever posts it."""
    said = f"{event.about.uid}\n{event.reason}\n{event.message}"
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


async def _patiently(send: Callable[[], Awaitable[None]]) -> None:
    """Send it, again where the API server is away or asks to come back."""
    # forbidden as well: an API server that has just begun has not read the roles yet
    passing = retry_if_exception_type((Unreachable, Unavailable, Forbidden))
    wait = wait_exponential(multiplier=0.5, max=10)
    async for attempt in AsyncRetrying(retry=passing, wait=wait, stop=stop_after_attempt(_ATTEMPTS)):
        with attempt:
            await send()
