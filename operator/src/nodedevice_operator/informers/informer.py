"""Keeps the stores equal to what the API server has: each kind is listed whole in pages, then followed from that list's version.

No object is ever held as JSON: a line of a watch is decoded once, into the few fields that are needed, and becomes a record. A
watch that is cut goes on from the last version; one whose version is too old begins with a new list, which finds what is gone, so
nothing is lost whatever happened in between. Writes nothing.
"""

import asyncio
import gc
import logging
import random
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from nodedevice_common.pacing import Backoff, jittered
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from nodedevice_operator.errors import ApiError, Forbidden, InvalidResponse, NotFound, Unavailable, Unreachable
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.decode import VALUE_ERRORS, decode, decode_object, key_of, log_undecodable
from nodedevice_operator.kube.lists import NODES, Cluster, Kind
from nodedevice_operator.objects.meta import ObjectMetadata, RawWatchEvent, Versioned

log = logging.getLogger(__name__)

_BUSY: Final = 429
# the version is too old, or the kind itself went away, with all objects
_EXPIRED: Final = frozenset({404, 410})
_LONGEST_LIST_DELAY_SECONDS: Final = 15.0
_list_delay: Final = wait_random_exponential(0.2, _LONGEST_LIST_DELAY_SECONDS)
# After an outage nobody knows what changed until a watch is open again, and one attempt a second costs an API server nothing.
_FIRST_WATCH_DELAY_SECONDS: Final = 0.1
LONGEST_WATCH_DELAY_SECONDS: Final = 1.0
_SPREAD: Final = 0.2


class _Expired(Exception):
    """The API server cannot go on from the version that is known."""


@dataclass(slots=True)
class _Position:
    """Up to which version everything is known (None: a list is due), and how long the next delay is."""

    version: int | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_WATCH_DELAY_SECONDS, LONGEST_WATCH_DELAY_SECONDS))

    def delay_seconds(self, at_least_seconds: float = 0.0) -> float:
        """How long to wait before the next attempt; at_least_seconds: as long as the API server asks for."""
        return max(jittered(self.backoff.next(), _SPREAD, random.random()), at_least_seconds)


class Informer:
    """Lists one kind into its store, follows it, and notifies the handlers of the store."""

    def __init__(self, kind: Kind[Any], cache: Cache, cluster: Cluster, client: Client) -> None:
        self._kind = kind
        self._cache = cache
        self._cluster = cluster
        self._client = client
        self._store = cache.stores[kind.name]

    async def work(self) -> None:
        """List and follow, for ever."""
        position = _Position()
        while True:
            if position.version is None:
                position.version = await self.list_all()
            await asyncio.sleep(await self._follow(position))

    async def list_all(self) -> int:
        """Store all objects, and notify of what has changed; the version of the list. Retries until it is done."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(ApiError), wait=_delay_seconds, before_sleep=self._log_failed_list
        ):
            with attempt:
                return await self._list()
        raise AssertionError("a retry without end has ended")

    async def _list(self) -> int:
        was_complete = self._cache.is_complete
        listed = await self._cluster.list_all(self._kind)
        changed = self._store.replace(listed.records, listed.version, listed.undecoded)
        fields = {"kind": self._kind.name, "objects": len(listed.records), "changed_nodes": len(changed)}
        log.info("list is complete", extra=fields)
        if self._cache.is_complete:
            self._cache.synced.set()
            if not was_complete:
                # these records stay: looking through all of them again and again would hold up the loop for a tenth of a second
                gc.collect()
                gc.freeze()
            # until every list was complete no node was reconciled, so all are to be
            self._cache.notify_listed(changed if was_complete else self._cache.names_of_nodes())
        return listed.version

    def _log_failed_list(self, state: RetryCallState) -> None:
        """Once: what is forbidden, and an API server that is unreachable, is logged by kube.health."""
        failure = state.outcome.exception() if state.outcome else None
        if state.attempt_number > 1 or isinstance(failure, Forbidden | Unreachable):
            return
        if isinstance(failure, NotFound):
            log.error(
                "custom resource is not served; waiting until its CRD is installed", extra={"kind": self._kind.name}
            )
        else:
            log.warning("list failed; retrying", extra={"kind": self._kind.name, "error": str(failure)})

    async def _follow(self, position: _Position) -> float:
        """One watch, until it ends; how long to wait before the next, in seconds."""
        assert position.version is not None
        query = {"resourceVersion": str(position.version)}
        has_brought = False
        try:
            async with aclosing(self._client.watch(self._kind.name, self._kind.path, query)) as lines:
                async for line in lines:
                    position.version = self._take(line)
                    if not has_brought:
                        position.backoff.reset()
                        has_brought = True
        except InvalidResponse as error:
            # the same line again would be no better
            position.version = None
            seconds = position.delay_seconds()
            self._log_relist(logging.WARNING, "invalid watch event; relisting", seconds, error=error.problem)
            return seconds
        except (_Expired, ApiError) as error:
            if isinstance(error, _Expired) or error.status in _EXPIRED:
                position.version = None
                seconds = position.delay_seconds()
                self._log_relist(logging.INFO, "watch expired; relisting", seconds)
                return seconds
            log.debug("watch failed; reconnecting", extra={"kind": self._kind.name, "error": error.problem})
            return position.delay_seconds(_asked_seconds(error))
        return 0.0 if has_brought else position.delay_seconds()

    def _log_relist(self, level: int, message: str, seconds: float, **fields: str) -> None:
        log.log(level, message, extra={"kind": self._kind.name, "retry_in_seconds": round(seconds, 3), **fields})

    def _take(self, line: bytes) -> int:
        """Store what a line of the watch says; its version. Raises InvalidResponse or _Expired."""
        try:
            event = self._kind.events.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._take_odd(line)
        version = self._checked_version(event.type, event.object.metadata.resource_version)
        if event.type != "BOOKMARK":
            self._store_object(event.object, is_end=event.type == "DELETED")
        return version

    def _take_odd(self, line: bytes) -> int:
        """The same for a line without an object of the kind: a bookmark, an error, an object with an invalid value."""
        event = decode("watch", self._kind.name, line, RawWatchEvent)
        metadata = decode("watch", self._kind.name, event.object, Versioned).metadata
        version = self._checked_version(event.type, metadata.resource_version)
        if event.type == "BOOKMARK":
            return version
        if event.type == "DELETED":
            self._delete(metadata)
        elif self._kind.needs_status:
            try:
                self._store_object(msgspec.json.decode(event.object, type=self._kind.schema), is_end=False)
            except msgspec.ValidationError as exc:
                self._mark_invalid(metadata, exc)
        else:
            form = decode_object(self._kind.name, event.object, self._kind.schema, needs_status=False)
            if form is not None:
                self._store_object(form, is_end=False)
        return version

    def _checked_version(self, event_type: str, version: str) -> int:
        if event_type == "ERROR":
            # its version is too old, or something that another attempt from there would not change
            raise _Expired
        if not version.isdecimal():
            raise InvalidResponse("watch", self._kind.name, f"an object has the resource version {version!r}")
        return int(version)

    def _store_object(self, form: Any, *, is_end: bool) -> None:
        try:
            record = self._kind.record(form)
        except VALUE_ERRORS as exc:
            # no value of an object that is gone matters but its name
            if is_end:
                self._delete(form.metadata)
            else:
                self._mark_invalid(form.metadata, exc)
            return
        if is_end:
            self._store.delete(record.key, record.uid, record.node)
        else:
            self._store.update(record)

    def _delete(self, metadata: ObjectMetadata) -> None:
        key = key_of(metadata.name, metadata.namespace)
        held = self._store.get(key)
        if self._kind is NODES or held is not None:
            self._store.delete(key, metadata.uid, metadata.name if held is None else held.node)
        else:
            self._store.remove(key, metadata.uid)

    def _mark_invalid(self, metadata: ObjectMetadata, problem: Exception) -> None:
        key = key_of(metadata.name, metadata.namespace)
        if key is None or self._store.mark_invalid(key):
            log_undecodable(self._kind.name, metadata.name, problem)


def _delay_seconds(state: RetryCallState) -> float:
    """Seconds until the next attempt at a list: as long as the API server asks for, where that is longer."""
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.retry_after_seconds if isinstance(failure, Unavailable) else None
    return max(_list_delay(state), asked or 0.0)


def _asked_seconds(error: ApiError) -> float:
    """Seconds that a busy API server asks for. One that starts asks for five with each response, and serves a moment later."""
    if isinstance(error, Unavailable) and error.status == _BUSY:
        return error.retry_after_seconds or 0.0
    return 0.0
