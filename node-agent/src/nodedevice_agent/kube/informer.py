"""Lists and watches for the agent: one request per watch, with a pause after each useless one. All watches share a budget.

A watch that ended in order continues from the last version; any other end leads to a list, which finds missed changes. So an
agent behind a proxy that blocks watches still sees changes, half a minute late at most.
"""

import asyncio
import logging
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Generic, Protocol, TypeVar

from nodedevice_common.pacing import TokenBucket, jittered
from nodedevice_kube.api_errors import ApiError, Gone, InvalidResponse, Unavailable
from nodedevice_kube.list_watch import CATCH_UP_SECONDS, ListWatch, Policy, Request, number

from nodedevice_agent import metrics
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.initial_lists import LIST, WATCH, Turns
from nodedevice_agent.kube.responses import KNOWN, LATER, KubeMetadata, KubeObject, Reading
from nodedevice_agent.kube.retries import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, log_failure, pause_seconds
from nodedevice_agent.kube.update_pace import take

log = logging.getLogger(__name__)

R = TypeVar("R", bound=KubeObject)
R_contra = TypeVar("R_contra", bound=KubeObject, contravariant=True)

# The API server ends a watch after about this time; spread, as all watches of an agent begin together.
WATCH_SECONDS = 300.0
_SPREAD = 0.2
# Missed changes are found after relist_seconds. Lists are rare: a list costs the API server more than a watch that continues.
POLICY = Policy(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, relist_seconds=900.0)
# The budget of one agent with any number of resources, after the first list and watch of each.
REQUESTS_PER_SECOND = 3.0
# The watch of pods has its own budget and never waits for watches of resources.
URGENT_REQUESTS_PER_SECOND = 1.0
_REQUESTS_AT_ONCE = 2


class EventHandler(Protocol[R_contra]):
    """known_version: the highest resource version in a response to a write; 0 before the first write.

    synced: replace all objects by a complete list; state from versions up to that one is void. updated: an object was added or
    modified. deleted: called with the object's last state.
    """

    @property
    def known_version(self) -> int: ...
    def synced(self, objects: list[Any], version: int) -> None: ...
    def updated(self, found: R_contra) -> None: ...
    def deleted(self, found: R_contra) -> None: ...


class Watches:
    """The watches of one agent: their budget of requests, and which of them are stale."""

    def __init__(self, cluster: KubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        self.cluster = cluster
        self.clock = clock
        self._budget = TokenBucket(REQUESTS_PER_SECOND, _REQUESTS_AT_ONCE, clock())
        self._urgent_budget = TokenBucket(URGENT_REQUESTS_PER_SECOND, _REQUESTS_AT_ONCE, clock())
        self.first = Turns(clock)
        self._loops: dict[str, WatchLoop[Any]] = {}
        # one consistent read serves all watches of a kind; by kind, the version of the last one
        self.catching_up = asyncio.Lock()
        self.read_versions: dict[type[KubeObject], int] = {}

    async def follow(
        self,
        name: str,
        kind: type[R],
        fields: Mapping[str, str],
        handler: EventHandler[Any],
        *,
        is_urgent: bool = False,
        keep: Callable[[R], Any] | None = None,
    ) -> None:
        """List and watch until cancelled. name: for `stale`. fields: the field selector.

        is_urgent: use a separate budget. keep: reduces each object before the handler gets it; the result has metadata. With
        `keep`, an object that changes without end is decoded at a limited pace (update_pace).
        """
        loop = self._loops[name] = WatchLoop(self, kind, fields, handler, is_urgent=is_urgent, keep=keep)
        try:
            await loop.run()
        finally:
            # the same name may be followed again before this has ended
            if self._loops.get(name) is loop:
                del self._loops[name]

    async def list_once(self, kind: type[R], fields: Mapping[str, str]) -> tuple[list[R], str]:
        """The same as the client's, in turn with the first lists and watches. Raises ApiError."""
        with await self.first.take(LIST):
            metrics.WATCH_REQUESTS.labels("list").inc()
            return await self.cluster.list(kind, fields)

    def stale(self) -> frozenset[str]:
        """Names of the watches over which the API server has sent nothing for too long."""
        now = self.clock()
        return frozenset(name for name, loop in self._loops.items() if loop.state.is_stale(now))

    def reserve(self, *, is_urgent: bool) -> float:
        """Take a request from the budget. Returns how many seconds to wait before it is sent."""
        return (self._urgent_budget if is_urgent else self._budget).reserve(self.clock())


class WatchLoop(Reading, Generic[R]):
    def __init__(
        self,
        watches: Watches,
        kind: type[R],
        fields: Mapping[str, str],
        handler: EventHandler[Any],
        *,
        is_urgent: bool = False,
        keep: Callable[[R], Any] | None = None,
    ) -> None:
        self._watches = watches
        self._cluster = watches.cluster
        self._kind = kind
        self._fields = fields
        self._handler = handler
        self._is_urgent = is_urgent
        self._is_first = True
        self._is_logged = False
        self._keep = keep
        # of each object by its UID: the pace of decoding
        self._buckets: dict[str, TokenBucket] = {}
        # metadata of objects that changed and were not decoded, by UID
        self._outdated: dict[str, KubeMetadata] = {}
        self._has_outdated = asyncio.Event()
        # the last handled version of each object
        self._handled: dict[str, int] = {}
        # resource version of each object, by its UID
        self._known: dict[str, str | None] = {}
        self.state = ListWatch(POLICY, watches.clock())

    async def run(self) -> None:
        while True:
            try:
                await self.list_and_watch()
            except ApiError as exc:
                self.state.failed(exc, self._watches.clock())
                self._log(exc)
            await asyncio.sleep(self.state.pause_seconds(random.random()))

    async def list_and_watch(self) -> None:
        """A list, if one is due, and one watch, until the API server ends it. Raises ApiError."""
        state, clock = self.state, self._watches.clock
        if state.next(clock()) is Request.LIST:
            await self._list()
        with await self._turn(WATCH) as turn:
            self._is_first = False
            seconds = round(jittered(WATCH_SECONDS, _SPREAD, random.random()))
            async with self._cluster.watch(self._kind, self._fields, state.version, seconds, self) as events:
                turn.close()
                state.opened(clock())
                await self._follow(events)
        if not state.ended(clock()):
            self._log(Unavailable("watching", self._kind.__name__, "the API server ended the watch at once"))

    async def _follow(self, events: AsyncIterator[tuple[str, Any]]) -> None:
        beside = [asyncio.create_task(self._catch_up()), asyncio.create_task(self._read_outdated())]
        try:
            async for event, found in events:
                for task in beside:
                    if task.done():
                        task.result()
                self.state.heard(found.metadata.resourceVersion or "", self._watches.clock())
                self._is_logged = self._is_logged and self.state.failures > 0
                self._handle(event, found)
                # freed before the wait for the next line
                del found
        finally:
            for task in beside:
                task.cancel()

    async def _list(self) -> None:
        with await self._turn(LIST):
            known_version = self._handler.known_version
            objects, version = await self._cluster.list(self._kind, self._fields, self.keep)
        self._watches.read_versions[self._kind] = number(version)
        is_restored = bool(version) and self.state.listed(version, self._watches.clock(), known_version)
        if is_restored:
            extra = {"kind": self._kind.__name__, "resource_version": version}
            log.warning(
                "list is older than the last one: the API server was restored; replacing all objects", extra=extra
            )
        found = {_uid(one): one.metadata.resourceVersion for one in objects}
        if self.state.is_doubtful and found != self._known:
            self.state.missed()
        self._known = found
        self._outdated.clear()
        self._buckets = {uid: bucket for uid, bucket in self._buckets.items() if uid in found}
        self._handled = {uid: number(version or "") for uid, version in found.items()}
        # responses to writes that were sent meanwhile are newer, unless all versions went back
        self._handler.synced(objects, sys.maxsize if is_restored else number(version))
        if not version:
            problem = "cannot decode the response: the list has no resource version"
            raise InvalidResponse("listing", self._kind.__name__, problem)

    async def _catch_up(self) -> None:
        """Have the API server send a bookmark, unless something came before."""
        await asyncio.sleep(CATCH_UP_SECONDS)
        if self.state.has_brought:
            return
        read_versions = self._watches.read_versions
        with suppress(ApiError):
            async with self._watches.catching_up:
                if read_versions.get(self._kind, 0) <= number(self.state.version):
                    await self._turn(LIST)
                    read_versions[self._kind] = number(await self._cluster.catch_up(self._kind, self._fields))

    async def _turn(self, request: int) -> ExitStack:
        """Wait until that request may be sent. request: LIST or WATCH."""
        turn = ExitStack()
        if not self._is_first:
            await asyncio.sleep(self._watches.reserve(is_urgent=self._is_urgent))
        elif not self._is_urgent:
            turn = await self._watches.first.take(request)
        metrics.WATCH_REQUESTS.labels("list" if request == LIST else "watch").inc()
        return turn

    def _handle(self, event: str, found: Any) -> None:
        uid = _uid(found)
        if event == "BOOKMARK":
            return
        if event == "DELETED":
            for by_uid in (self._known, self._handled, self._outdated, self._buckets):
                by_uid.pop(uid, None)
            self._handler.deleted(found)
            return
        self._known[uid] = found.metadata.resourceVersion
        if event == LATER:
            self._outdated[uid] = found.metadata
            self._has_outdated.set()
        elif event != KNOWN:
            self._outdated.pop(uid, None)
            self._updated(uid, found)

    def is_known(self, metadata: KubeMetadata) -> bool:
        return 0 < number(metadata.resourceVersion or "") <= self._handler.known_version

    def skips(self, metadata: KubeMetadata, octets: int) -> bool:
        # the latest version is read by a request then
        return self._keep is not None and not take(self._buckets, metadata.uid or "", octets, self._watches.clock())

    def keep(self, found: R) -> Any:
        return found if self._keep is None else self._keep(found)

    async def _read_outdated(self) -> None:
        """Read the objects that changed too often, one at a time."""
        while True:
            await self._has_outdated.wait()
            while self._outdated:
                uid, metadata = next(iter(self._outdated.items()))
                try:
                    await self._read_again(uid, metadata)
                except ApiError as exc:
                    # others first
                    if uid in self._outdated:
                        self._outdated[uid] = self._outdated.pop(uid)
                    self._log(exc)
                    await asyncio.sleep(pause_seconds(1))
                else:
                    # unless it changed again meanwhile
                    if self._outdated.get(uid) is metadata:
                        del self._outdated[uid]
            self._has_outdated.clear()

    async def _read_again(self, uid: str, metadata: KubeMetadata) -> None:
        """Read the current version of one object. Raises ApiError."""
        fields = {**self._fields, "metadata.name": metadata.name}
        if metadata.namespace:
            fields["metadata.namespace"] = metadata.namespace
        with await self._turn(LIST):
            objects, _ = await self._cluster.list(self._kind, fields, self.keep)
        for found in objects:
            # the watch may have brought a newer version meanwhile, or a deletion
            version = number(found.metadata.resourceVersion or "")
            if _uid(found) == uid and uid in self._known and version > self._handled.get(uid, 0):
                self._updated(uid, found)

    def _updated(self, uid: str, found: Any) -> None:
        self._handled[uid] = number(found.metadata.resourceVersion or "")
        self._handler.updated(found)

    def _log(self, error: ApiError) -> None:
        """Log once until a watch succeeds, but not silence of a quiet kind, nor the first version that is too old."""
        is_usual = self.state.is_doubtful or (isinstance(error, Gone) and self.state.failures == 1)
        if not is_usual:
            self._is_logged = self._is_logged or log_failure("API request failed; retrying", error)


def _uid(found: Any) -> str:
    return found.metadata.uid or ""
