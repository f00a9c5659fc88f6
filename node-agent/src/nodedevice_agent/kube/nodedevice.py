"""One NodeDevice object: publishes its resource's status in it, and reads the administrator's cordons from it.

An object is watched by its name (the API server indexes names, not fields), or visited now and then (parked.py). A status that
equals the observed one is not written. Changes within a pause are written together. A failed write is retried with growing
pauses, and immediately once the API server responds again.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins
from nodedevice_api.names import node_device_name
from nodedevice_api.nodedevice import NodeDeviceStatus
from nodedevice_common.threads import in_thread_if
from nodedevice_kube.api_errors import ApiError, Conflict, Invalid, NotFound, TooBig
from nodedevice_kube.list_watch import number

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.kube.contention import Contention
from nodedevice_agent.kube.kept_status import KeptStatus
from nodedevice_agent.kube.objects import NodeDeviceObject
from nodedevice_agent.kube.observed import Json, cordons_of, observed_spec, observed_status
from nodedevice_agent.kube.retries import log_failure, pause_seconds
from nodedevice_agent.kube.served_resources import StatusMaker
from nodedevice_agent.kube.status import is_bulk, is_loss, owned

if TYPE_CHECKING:
    from nodedevice_agent.kube.publisher import Publisher

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.05
# A write costs the API server by the object's size: with more devices listed, changes are batched for longer.
_PAUSE_SECONDS_PER_DEVICE = 0.002
_REFUSED_PAUSE_SECONDS = 60.0
# writes without a response that are remembered: the watch may report them late, and they are our own
_MOST_SENT = 3


class NodeDeviceSync:
    """Keeps the NodeDevice of one resource. run() until stop(); touch() after a possible change."""

    def __init__(self, source: "Publisher", resource_name: str) -> None:
        self._source = source
        self._cluster = source.cluster
        self._node_name = source.node_name
        self._resource_name = resource_name
        self._name = node_device_name(source.node_name, resource_name)
        self._dirty = asyncio.Event()
        self._synced = asyncio.Event()
        # the API server responds again, or the object is gone: ends the pause after a failure
        self._hurry = asyncio.Event()
        self._stopped = asyncio.Event()
        self._observed: KeptStatus | None = None
        self.known_version = 0
        # our own statuses: the last one known to be stored, then the later ones; empty while none is known
        self._ours: tuple[KeptStatus, ...] = ()
        self._is_owned = True
        # an object that is gone, or has lost its owner, may have gone with the Node
        self._was_seen = False
        self._cordons: Mapping[str, Cordon] = {}
        self._contention, self._writes = Contention(self._name), source.writes
        self._share = self._writes.share(self._on_turn)
        # since when a change may be unpublished (monotonic seconds)
        self._touched_at: float | None = None

    def touch(self) -> None:
        if self._touched_at is None:
            self._touched_at = time.monotonic()
        self._dirty.set()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                fields = {"metadata.name": self._name}
                watch = self._source.watches.follow(self._name, NodeDeviceObject, fields, self)
                running = [group.create_task(watch), group.create_task(self._write())]
                await self._stopped.wait()
                for task in running:
                    task.cancel()
        except Exception:
            # for the next run: a change may be unpublished, and the object another one
            self._synced.clear()
            self.touch()
            raise

    async def visit(self) -> None:
        """Instead of run(), once: read the object, and write its status if that differs and may be written now."""
        try:
            objects, version = await self._source.watches.list_once(NodeDeviceObject, {"metadata.name": self._name})
            self.synced(objects, number(version))
            # otherwise it is deleted, or another object watches it
            if self._source.is_parked(self._resource_name):
                await self._publish()
        except ApiError as exc:
            log.debug("parked NodeDevice not visited", extra={"nodedevice": self._name, "error": str(exc)})
        finally:
            self._writes.leave(self._share)

    @property
    def is_settled(self) -> bool:
        """Whether it has been read, and nothing waits to be written."""
        return self._synced.is_set() and self._touched_at is None

    def stop(self) -> None:
        self._writes.leave(self._share)
        self._stopped.set()

    def _on_turn(self) -> None:
        self._dirty.set()
        self._hurry.set()

    # -- the observed object --------------------------------------------------------------------------------------------

    def synced(self, objects: list[NodeDeviceObject], version: int) -> None:
        if self.known_version <= version:
            if any(_version(found) < self.known_version for found in objects):
                # the API server was restored from a backup: our later writes are lost, but no client edited the status
                self._ours = ()
            self.known_version = 0
        self._seen(objects[0] if objects else None)
        self._synced.set()
        self._hurry.set()

    def updated(self, found: NodeDeviceObject) -> None:
        self._seen(found)

    def deleted(self, found: NodeDeviceObject) -> None:
        self._seen(None)

    def _seen(self, found: NodeDeviceObject | None) -> None:
        if found is not None and 0 < _version(found) <= self.known_version:
            # the response to our write has shown this version, or a later one
            return
        if found is None and self._source.forget(self._resource_name):
            return
        if found is None:
            self._ours = ()
            self._hurry.set()
        kept = KeptStatus(found.status) if found is not None else None
        is_ours = found is not None and any(_is_as_written(found.status, ours.read()) for ours in self._ours)
        if self._ours and not is_ours and found is not None and found.status and kept != self._observed:
            self._contention.edited()
            # counted once, until the status is restored
            self._ours = ()
        # edits of other fields need no new status; neither does our own write if its event comes before its response
        if self._observe(found, kept) or not is_ours:
            self.touch()

    def _observe(self, found: NodeDeviceObject | None, kept: KeptStatus | None) -> bool:
        """Store the current object. Returns whether its owner is missing or its cordons changed."""
        self._is_owned = found is None or _has_owner(found, self._node_name)
        self._was_seen = self._was_seen or found is not None
        self._observed = kept
        uid, spec = (found.metadata.uid or "", found.spec) if found is not None else ("", {})
        before, self._cordons = self._cordons, cordons_of(observed_spec(spec).cordoned_devices)
        self._source.cordoned(self._resource_name, uid, self._cordons)
        return not self._is_owned or self._cordons != before

    def _responded(self, written: NodeDeviceObject) -> None:
        """Store the object from the response to a write; its watch event is skipped."""
        self.known_version = _version(written)
        if self._observe(written, KeptStatus(written.status)):
            self.touch()

    # -- the desired object ---------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        await self._synced.wait()
        failures, is_logged = 0, False
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self._hurry.clear()
            pause = 0.0
            # changes from here on are published by the next iteration
            touched_at, self._touched_at = self._touched_at, None
            try:
                if await self._publish():
                    if touched_at is not None:
                        metrics.PUBLISH_SECONDS.observe(time.monotonic() - touched_at)
                    pause = max(self._batch_seconds(), self._contention.pause_seconds())
                elif self._writes.is_waiting(self._share):
                    self._touched_at = touched_at
                    pause = self._batch_seconds()
                failures, is_logged = 0, False
            except ApiError as exc:
                # the change is as old as before
                self._touched_at = touched_at
                self.touch()
                if isinstance(exc, Conflict | Invalid | TooBig):
                    # the same status would most likely be rejected again
                    extra = {"nodedevice": self._name, "error": str(exc)}
                    log.error("API server rejected the status; retrying in a minute", extra=extra)
                    pause = _REFUSED_PAUSE_SECONDS
                else:
                    failures += 1
                    is_logged = is_logged or log_failure("status write failed; retrying", exc, nodedevice=self._name)
                    pause = pause_seconds(failures, exc)
            await self._pause(pause)

    def _batch_seconds(self) -> float:
        listed = self._observed.listed if self._observed is not None else 0
        return PAUSE_SECONDS + _PAUSE_SECONDS_PER_DEVICE * listed

    async def _pause(self, seconds: float) -> None:
        """The shortest pause always passes: a client that deletes the object each time does not get it back faster."""
        await asyncio.sleep(min(seconds, PAUSE_SECONDS))
        if seconds > PAUSE_SECONDS:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds - PAUSE_SECONDS):
                    await self._hurry.wait()

    async def _publish(self) -> bool:
        """Write the status if it differs from the observed one and it is its turn. Returns whether it was written."""
        made = await self._made()
        if made is None or (made.is_stored and self._is_owned):
            self._writes.leave(self._share)
            self._ours = (made.status,) if made is not None else self._ours
            return False
        if not self._writes.may_write(self._share, is_loss=made.is_loss, is_bulk=made.is_bulk):
            return False
        if self._observed is None or not self._is_owned:
            await self._create()
            # a plugin that has just registered has listed its devices meanwhile
            made = await self._made()
            if made is None:
                return True
        # a status is in memory as objects until the response
        async with self._writes.sending if made.status.is_long else nullcontext():
            return await self._send(made.status)

    async def _made(self) -> "_Made | None":
        """Make the status to write, a long one in a thread; None if the published one stays, or after the stop."""
        await self._source.saved()
        if self._stopped.is_set():
            return None
        async with self._writes.making:
            observed = self._observed
            is_long = observed is not None and observed.is_long
            read, before = await in_thread_if(is_long, partial(_read, observed))
            wall_time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            make = self._source.status_maker(self._resource_name, before, wall_time)
            # others run in between
            await asyncio.sleep(0)
            if make is None:
                return None
            made = await in_thread_if(make.is_long or is_long, partial(_compared, make, before, read))
        return None if self._stopped.is_set() else made

    async def _send(self, status: KeptStatus) -> bool:
        if self._ours:
            self._ours = (self._ours[0], *self._ours[1:][-_MOST_SENT:], status)
        try:
            written = await self._apply(status)
        except NotFound:
            # deleted a moment ago; the watch will report it as well
            if self._source.forget(self._resource_name):
                return False
            await self._create()
            written = await self._apply(status)
        self._ours = (status,)
        self._responded(written)
        return True

    async def _create(self) -> None:
        self._writes.spend(self._share)
        uid = await self._source.node_uid(is_new=not self._was_seen)
        created = await self._cluster.create_node_device((self._node_name, uid), self._resource_name)
        event = "NodeDevice created" if self._is_owned else "NodeDevice owner reference restored"
        log.info(event, extra={"nodedevice": self._name})
        self._responded(created)

    async def _apply(self, status: KeptStatus) -> NodeDeviceObject:
        began = time.perf_counter()
        written = await self._cluster.apply_status(self._name, status.read())
        log.debug("status written", extra={"nodedevice": self._name, "seconds": time.perf_counter() - began})
        return written


class _Made(Struct, frozen=True):
    """A status to be written. is_stored: it is already. is_loss, is_bulk: see WriteShare."""

    status: KeptStatus
    is_stored: bool
    is_loss: bool
    is_bulk: bool


def _compared(make: StatusMaker, before: NodeDeviceStatus, observed: Json) -> _Made:
    """May be long, and uses nothing that changes."""
    desired = make.made()
    status: Json = to_builtins(desired)
    is_stored = _is_as_written(observed, status)
    return _Made(KeptStatus(status), is_stored, is_loss(before, desired), is_bulk(before, desired))


def _read(observed: KeptStatus | None) -> tuple[Json, NodeDeviceStatus]:
    """The observed status as it is stored, and without its malformed parts."""
    status = observed.read() if observed is not None else {}
    return status, observed_status(status)


def _is_as_written(observed: Json, ours: Json) -> bool:
    return owned(observed, ours) == ours


def _has_owner(found: NodeDeviceObject, node_name: str) -> bool:
    """Whether a Node of that name owns it. The garbage collector compares the UIDs."""
    owners = found.metadata.ownerReferences or ()
    return any(owner.get("kind") == "Node" and owner.get("name") == node_name for owner in owners)


def _version(found: NodeDeviceObject) -> int:
    return number(found.metadata.resourceVersion or "")
