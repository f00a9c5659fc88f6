"""Keeps one NodeDevice object equal to the device manager's state, and reads the administrator's cordons from it.

The object is watched by its name (the API server indexes names, not fields). Its observed status is compared with the desired
one before a write, so that a restart writes nothing and an edit by another client is undone. The first change is written
immediately; more changes within the pause are written together. A failed write is retried with growing pauses, and
immediately once the watch is connected again or the object was deleted.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol

from nodedevice_api.names import node_device_name

from nodedevice_agent import metrics
from nodedevice_agent.errors import ApiNotFound, ApiRefused, ApiRequestError
from nodedevice_agent.kube.client import KubeClient, NodeDeviceObject, log_failure, pause_seconds
from nodedevice_agent.kube.informer import ObjectInformer
from nodedevice_agent.kube.status import cordoned_ids, well_formed

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.05
# A write costs the API server by the object's size: with more devices listed, changes are batched for longer.
_PAUSE_SECONDS_PER_DEVICE = 0.002
_REFUSED_PAUSE_SECONDS = 60.0
# writes without a response that are remembered: the watch may report them late, and they are our own
_MOST_SENT = 3

WINDOW_SECONDS = 60.0
# edits within the window that are undone immediately: somebody may edit twice by hand
FREE_EDITS = 3
# new allocations wait as long to be published
_LONGEST_CONTENTION_PAUSE_SECONDS = 10.0


class StatusSource(Protocol):
    """Supplies the status of NodeDevices, and receives their cordons."""

    async def saved(self) -> None:
        """Wait until every allocation so far is on disk: before that none may be published."""

    def desired_status(self, resource_name: str, observed: dict[str, Any], wall_time: str) -> dict[str, Any] | None:
        """The status to be written over the observed one; None while the last published one stays."""

    def cordoned(self, resource_name: str, device_ids: frozenset[str]) -> None:
        """The administrator's cordons, all of them."""


class Contention:
    """Another client that keeps changing the status of one NodeDevice.

    Its first few edits are undone at once, the next with growing pauses: two agents with one node name would otherwise write
    as fast as the API server answers, without end. Keeps count; writes nothing.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        # within the window
        self._edited_at: list[float] = []
        self._logged_at = -WINDOW_SECONDS

    def edited(self) -> None:
        """One more edit: each of the first few is logged, then one line a minute."""
        now = self._clock()
        self._edited_at = [*self._recent(), now]
        if len(self._edited_at) <= FREE_EDITS:
            log.warning(
                "NodeDevice status was modified by another client; restoring it", extra={"nodedevice": self._name}
            )
        elif now - self._logged_at >= WINDOW_SECONDS:
            self._logged_at = now
            log.error(
                "conflict: another client keeps modifying the NodeDevice status; stop any other agent that has this --node-name",
                extra={"nodedevice": self._name, "edits_in_the_last_minute": len(self._edited_at)},
            )

    def pause_seconds(self) -> float:
        """Before the next write."""
        excess = len(self._recent()) - FREE_EDITS
        return min(pause_seconds(excess), _LONGEST_CONTENTION_PAUSE_SECONDS) if excess > 0 else 0.0

    def _recent(self) -> list[float]:
        earliest = self._clock() - WINDOW_SECONDS
        return [at for at in self._edited_at if at > earliest]


class NodeDeviceSync:
    """One resource's object. run() until cancelled; touch() when something may have changed."""

    def __init__(self, cluster: KubeClient, node_name: str, resource_name: str, source: StatusSource) -> None:
        self.name = node_device_name(node_name, resource_name)
        self._cluster = cluster
        self._node_name = node_name
        self._resource_name = resource_name
        self._source = source
        self._dirty = asyncio.Event()
        self._synced = asyncio.Event()
        # the API server responds again, or the object is gone: ends the pause after a failure
        self._hurry = asyncio.Event()
        self._observed: dict[str, Any] | None = None
        self._version = 0
        # our own statuses: the last one known to be stored, then those sent since; empty while none is known
        self._ours: tuple[dict[str, Any], ...] = ()
        self._is_owned = True
        self._contention = Contention(self.name)
        # since when a change may be unpublished (monotonic seconds)
        self._touched_at: float | None = None

    def touch(self) -> None:
        if self._touched_at is None:
            self._touched_at = time.monotonic()
        self._dirty.set()

    def _touch_again(self, touched_at: float | None) -> None:
        """The write failed: the change is as old as before."""
        self._touched_at = touched_at
        self.touch()

    async def run(self) -> None:
        informer = ObjectInformer(self._cluster, NodeDeviceObject, {"metadata.name": self.name}, self)
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            group.create_task(self._write())

    def synced(self, objects: list[NodeDeviceObject]) -> None:
        self._seen(objects[0] if objects else None)
        self._synced.set()
        self._hurry.set()

    def updated(self, found: NodeDeviceObject) -> None:
        self._seen(found)

    def deleted(self, found: NodeDeviceObject) -> None:
        self._seen(None)

    def _seen(self, found: NodeDeviceObject | None) -> None:
        if found is not None and _version(found) < self._version:
            # the event of an earlier write of ours, after the response to a later one
            return
        if found is None:
            self._ours = ()
            self._hurry.set()
        elif self._is_edited(found.status):
            self._contention.edited()
            # counted once, until the status is restored
            self._ours = ()
        self._is_owned = found is None or _has_owner(found, self._node_name)
        self._observed = found.status if found is not None else None
        self._source.cordoned(self._resource_name, cordoned_ids(found.spec) if found is not None else frozenset())
        self.touch()

    def _is_edited(self, status: dict[str, Any]) -> bool:
        """Whether another client wrote it. Our own write may be observed before its response; a new object has no status."""
        if not self._ours or not status or status == self._observed:
            return False
        found = well_formed(status)
        return all(_owned(found, ours) != ours for ours in self._ours)

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
                    listed = len(well_formed(self._observed or {}).get("devices", ()))
                    pause = max(PAUSE_SECONDS + _PAUSE_SECONDS_PER_DEVICE * listed, self._contention.pause_seconds())
                failures, is_logged = 0, False
            except ApiRefused as exc:
                # the same status would be rejected again: wait for a change, and retry once a minute
                log.error(
                    "API server rejected the status; retrying in a minute",
                    extra={"nodedevice": self.name, "error": str(exc)},
                )
                pause = _REFUSED_PAUSE_SECONDS
                self._touch_again(touched_at)
            except ApiRequestError as exc:
                failures += 1
                is_logged = is_logged or log_failure("status write failed; retrying", exc, nodedevice=self.name)
                pause = pause_seconds(failures)
                self._touch_again(touched_at)
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        """The shortest pause always passes: a client that deletes the object each time does not get it back faster."""
        await asyncio.sleep(min(seconds, PAUSE_SECONDS))
        if seconds > PAUSE_SECONDS:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds - PAUSE_SECONDS):
                    await self._hurry.wait()

    async def _publish(self) -> bool:
        """Write the status if it differs from the observed one. Returns whether it was written."""
        await self._source.saved()
        observed = self._observed
        before = well_formed(observed or {})
        status = self._source.desired_status(self._resource_name, before, _wall_time())
        if status is None:
            return False
        if observed is None or not self._is_owned:
            await self._create()
        if observed is not None and before == observed and _owned(observed, status) == status:
            self._ours = (status,)
            return False
        if self._ours:
            self._ours = (self._ours[0], *self._ours[1:][-_MOST_SENT:], status)
        try:
            written = await self._apply(status)
        except ApiNotFound:
            # deleted a moment ago; the watch will report it as well
            await self._create()
            written = await self._apply(status)
        self._observed, self._version, self._ours = written.status, _version(written), (status,)
        return True

    async def _create(self) -> None:
        uid = await self._cluster.node_uid(self._node_name)
        await self._cluster.create_node_device((self._node_name, uid), self._resource_name)
        event = "NodeDevice created" if self._is_owned else "NodeDevice owner reference restored"
        log.info(event, extra={"nodedevice": self.name})
        self._is_owned = True

    async def _apply(self, status: dict[str, Any]) -> NodeDeviceObject:
        began = time.perf_counter()
        written = await self._cluster.apply_status(self.name, status)
        log.debug("status written", extra={"nodedevice": self.name, "seconds": time.perf_counter() - began})
        return written


def _owned(observed: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    """The observed status without fields of other writers, in our order: comparable with the desired one."""
    found = {c.get("type"): c for c in observed.get("conditions", ())}
    ours = [_same_keys(found.get(desired["type"], {}), desired) for desired in status["conditions"]]
    return {**_same_keys(observed, status), "conditions": ours}


def _same_keys(observed: dict[str, Any], desired: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in observed.items() if key in desired}


def _has_owner(found: NodeDeviceObject, node_name: str) -> bool:
    """Whether a Node of that name owns it. The garbage collector compares the UIDs."""
    owners = found.metadata.ownerReferences or ()
    return any(owner.get("kind") == "Node" and owner.get("name") == node_name for owner in owners)


def _version(found: NodeDeviceObject) -> int:
    version = found.metadata.resourceVersion or ""
    return int(version) if version.isdecimal() and len(version) < 20 else 0


def _wall_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
