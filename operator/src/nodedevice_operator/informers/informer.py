"""Keeps the stores equal to what the API server has: each kind is listed whole in pages, then followed from that list's version.

No object is ever held as JSON: a line of a watch is decoded once, into the few fields that are needed, and becomes a record. A
broken watch continues from the last version; if that is too old, a new list finds the deleted objects, so no change is lost. If the
API server's versions went back, as after a restore from a backup, a list replaces all records. Writes nothing.
"""

import asyncio
import gc
import logging
import random
import time
from functools import partial
from typing import Any, Final

from nodedevice_common import decoding
from nodedevice_common.decoding import Undecodable
from nodedevice_common.threads import in_thread_if
from nodedevice_kube.api_errors import ApiError, Forbidden, Gone, InvalidResponse, NotFound, Unreachable
from nodedevice_kube.list_watch import ListWatch, Policy, Request
from nodedevice_kube.retries import Retries

from nodedevice_operator.informers.store import Stores
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.decode import VALUE_ERRORS, decode, decode_object, key_of, log_undecodable
from nodedevice_operator.kube.lists import NODES, Cluster, Kind
from nodedevice_operator.kube.requests import MOST_IN_LOOP
from nodedevice_operator.kube.retrying import retrying
from nodedevice_operator.objects.meta import ObjectMetadata, RawWatchEvent, Versioned

log = logging.getLogger(__name__)

_OF_OBJECTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_GONE: Final = 410
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_LIST_PAUSE_SECONDS: Final = 15.0
# After an outage what changed is unknown until a watch is open again, and one attempt a second costs an API server nothing.
_LONGEST_WATCH_PAUSE_SECONDS: Final = 1.0
# A list of a whole fleet is long: after a failed watch the version of the store shows whether one is needed.
_POLICY: Final = Policy(
    _FIRST_PAUSE_SECONDS, _LONGEST_LIST_PAUSE_SECONDS, _LONGEST_WATCH_PAUSE_SECONDS, is_listed_after_failures=False
)


class Informer:
    def __init__(self, kind: Kind[Any], cache: Stores, cluster: Cluster, client: Client) -> None:
        self._kind = kind
        self._cache = cache
        self._cluster = cluster
        self._client = client
        self._store = cache.stores[kind.name]
        self._state = ListWatch(_POLICY, time.monotonic())
        # how many restores the last list has taken into account
        self._restores = 0
        self._is_failure_logged = False

    async def work(self) -> None:
        while True:
            pause = await self._step()
            await asyncio.sleep(pause)

    async def refresh(self) -> None:
        """Lists all objects while the watch stays open, so that the store has every write from before the call."""
        restores = self._cache.restores
        await retrying(
            self._list,
            ApiError,
            Retries(_FIRST_PAUSE_SECONDS, _LONGEST_LIST_PAUSE_SECONDS),
            failed=self._log_failed_list,
        )
        if restores != self._cache.restores:
            # the watch would go on from a version that is not reached yet
            self._state.relist(time.monotonic())

    async def _step(self) -> float:
        """Sends the due request and notes its result; returns the seconds to wait before the next."""
        state = self._state
        if self._restores != self._cache.restores:
            # a list of another kind has shown it
            state.relist(time.monotonic())
        request, known = state.next(time.monotonic()), self._cache.newest
        try:
            if request is Request.LIST:
                version = await self._list()
                state.listed(str(version), time.monotonic())
            elif request is Request.CHECK:
                version = await self._cluster.store_version(self._kind)
                state.checked(str(version), time.monotonic(), known)
            else:
                await self._follow()
                state.ended(time.monotonic())
            return state.pause_seconds(random.random())
        except ApiError as error:
            state.failed(error, time.monotonic())
            seconds = state.pause_seconds(random.random())
            if request is Request.LIST:
                self._log_failed_list(error)
            else:
                self._log_failed_watch(error, seconds)
            return seconds

    async def _list(self) -> int:
        was_complete = self._cache.is_complete
        known = self._cache.newest
        # bounded like a store; records that the store has in the same version are not copied
        listed = self._store.empty()
        stored = set[str]()
        undecoded: frozenset[Any] = frozenset()
        version = 0
        async for page in self._cluster.pages(self._kind):
            version, undecoded = page.version, undecoded | page.undecoded
            # should this attempt fail, the next one finds out whether versions went back since
            self._cache.newest = max(self._cache.newest, version)
            for record in page.records:
                held = self._store.same(record)
                if held is not None:
                    stored.add(held.uid)
                elif not self._store.is_complete and self._store.put(record):
                    # safe for the first list: readers wait until it is complete, and a second copy would be most of the memory
                    stored.add(record.uid)
                else:
                    listed.put(record)
        self._cache.listed(version, known)
        if self._restores != self._cache.restores:
            log.warning(
                "API server was restored from a backup; replacing all that was known", extra={"kind": self._kind.name}
            )
            for record in self._store.of_uids(stored):
                listed.put(record)
            self._store.expire()
            self._restores = self._cache.restores
        self._is_failure_logged = False
        changed = self._store.replace(listed.by_key.values(), version, undecoded, stored)
        fields = {"kind": self._kind.name, "objects": len(self._store.by_key)}
        log.info("list is complete", extra=fields)
        if self._cache.is_complete:
            self._cache.synced.set()
            if not was_complete:
                # these records stay: each collection over all of them would block the loop for a tenth of a second
                gc.collect()
                gc.freeze()
            # no node was reconciled before all lists were complete: enqueue all
            for node in changed if was_complete else self._cache.names_of_nodes():
                self._cache.on_list(node)
        return version

    def _log_failed_list(self, failure: ApiError) -> None:
        """Logs a failed list once. kube.health logs forbidden requests and an unreachable API server."""
        if self._is_failure_logged or isinstance(failure, Forbidden | Unreachable):
            return
        self._is_failure_logged = True
        if isinstance(failure, NotFound):
            log.error(
                "custom resource is not served; waiting until its CRD is installed", extra={"kind": self._kind.name}
            )
        else:
            log.warning("list failed; retrying", extra={"kind": self._kind.name, "error": str(failure)})

    def _log_failed_watch(self, error: ApiError, seconds: float) -> None:
        fields = {"kind": self._kind.name, "error": error.problem, "retry_in_seconds": round(seconds, 3)}
        if isinstance(error, InvalidResponse):
            log.warning("invalid watch event; relisting", extra=fields)
        elif isinstance(error, Gone | NotFound):
            log.info("watch expired; relisting", extra=fields)
        else:
            log.debug("watch failed; reconnecting", extra=fields)

    async def _follow(self) -> None:
        """One watch, until it ends. Raises ApiError."""
        state = self._state
        query = {**self._kind.query, "resourceVersion": state.version}
        async with self._client.watch(self._kind.name, self._kind.path, query) as lines:
            state.opened(time.monotonic())
            async for line in lines:
                version = await self._take(line)
                # not kept while the next one is awaited
                del line
                state.heard(str(version), time.monotonic())
                self._cache.newest = max(self._cache.newest, version)

    async def _take(self, line: bytes) -> int:
        """Store what a line of the watch brings; its version. Raises InvalidResponse, or ApiError where a list is due."""
        try:
            event, record = await in_thread_if(len(line) > MOST_IN_LOOP, partial(_read, line, self._kind))
        except Undecodable:
            return self._take_odd(line)
        version = self._checked_version(event.type, event.object.metadata.resource_version)
        if event.type != "BOOKMARK":
            self._store_object(event.object, is_end=event.type == "DELETED", record=record)
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
            return version
        needs_status = self._kind.needs_status
        form = decode_object(self._kind.name, event.object, self._kind.schema, needs_status=needs_status)
        if form is not None:
            self._store_object(form, is_end=False)
        elif needs_status:
            self._store.mark_invalid(key_of(metadata.name, metadata.namespace))
        return version

    def _checked_version(self, event_type: str, version: str) -> int:
        if event_type == "ERROR":
            # its version is too old, or something that another attempt from there would not change
            raise Gone("watch", self._kind.name, "the API server cannot go on from that version", _GONE)
        if not version.isdecimal():
            raise InvalidResponse("watch", self._kind.name, f"an object has the resource version {version!r}")
        return int(version)

    def _store_object(self, form: Any, *, is_end: bool, record: Any = None) -> None:
        """record: the object's record, if it exists already."""
        try:
            record = record or self._kind.record(form)
        except VALUE_ERRORS as exc:
            # no value of an object that is gone matters but its name
            if is_end:
                self._delete(form.metadata)
            else:
                self._mark_invalid(form.metadata, exc)
            return
        if is_end:
            self._store.delete(record.key, record.uid, record.node, record.resource_version)
        else:
            self._store.update(record)

    def _delete(self, metadata: ObjectMetadata) -> None:
        key, version = key_of(metadata.name, metadata.namespace), int(metadata.resource_version)
        held = self._store.get(key)
        if self._kind is NODES or held is not None:
            self._store.delete(key, metadata.uid, metadata.name if held is None else held.node, version)
        else:
            self._store.remove(key, metadata.uid, version)

    def _mark_invalid(self, metadata: ObjectMetadata, problem: Exception) -> None:
        key = key_of(metadata.name, metadata.namespace)
        if key is None or self._store.mark_invalid(key):
            log_undecodable(self._kind.name, key, problem)


def _read(line: bytes, kind: Kind[Any]) -> tuple[Any, Any]:
    """What a line of a watch brings, and the record of its object; None for one with an invalid value. Raises Undecodable."""
    event = decoding.decode(line, kind.event)
    try:
        return event, kind.record(event.object) if event.type in _OF_OBJECTS else None
    except VALUE_ERRORS:
        return event, None
