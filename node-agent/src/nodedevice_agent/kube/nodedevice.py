"""This node's NodeDevice objects: kept equal to what the device manager knows, and read for the administrator's cordons.

One object a resource, watched by its own name (the API server indexes names, not fields). What stands in the API is compared
before anything is written, so that a restart writes nothing and a hand edit is put right. The first change goes at once;
more that follow within the pause go together. A write that fails is tried again with growing pauses, and at once when the watch
has come back or the object was deleted.
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
from nodedevice_agent.errors import ApiError, ApiNotFound, ApiRefused
from nodedevice_agent.kube.client import Cluster, NodeDeviceObject
from nodedevice_agent.kube.observed_status import cordoned_ids, well_formed
from nodedevice_agent.kube.retry import complain, forever, pause_seconds

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.05
# An object costs the API server by its size: with more devices listed, changes are gathered for longer.
_PAUSE_SECONDS_PER_DEVICE = 0.002
_REFUSED_PAUSE_SECONDS = 60.0
# of writes whose answers did not come: one that is heard of late is still ours
_MOST_SENT = 3

WINDOW_SECONDS = 60.0
# edits within the window that are undone at once: a hand that edits, and edits again
FREE_EDITS = 3
# new allocations wait as long to be published
_LONGEST_CONTENTION_PAUSE_SECONDS = 10.0


class StatusSource(Protocol):
    """What a NodeDevice publishes, and receives the cordons that are read from it."""

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


class NodeDevice:
    """One resource's object. run() until cancelled; touch() when something may have changed."""

    def __init__(self, cluster: Cluster, node_name: str, resource_name: str, source: StatusSource) -> None:
        self.name = node_device_name(node_name, resource_name)
        self._cluster = cluster
        self._node_name = node_name
        self._resource_name = resource_name
        self._source = source
        self._dirty = asyncio.Event()
        self._synced = asyncio.Event()
        # the API server is known to answer again, or the object is gone: no reason to wait out the pause after a failure
        self._hurry = asyncio.Event()
        self._observed: dict[str, Any] | None = None
        self._version = 0
        # our own word: what is known to have stood, then what was sent since and may stand; empty while nothing is known
        self._ours: tuple[dict[str, Any], ...] = ()
        self._is_owned = True
        self._contention = Contention(self.name)
        # since when something may be unpublished (monotonic seconds)
        self._touched_at: float | None = None

    def touch(self) -> None:
        if self._touched_at is None:
            self._touched_at = time.monotonic()
        self._dirty.set()

    def _touch_again(self, touched_at: float | None) -> None:
        """It could not be written, and is as late as it was."""
        self._touched_at = touched_at
        self.touch()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._write())

    async def _watch(self) -> None:
        async def on_list(objects: list[NodeDeviceObject]) -> None:
            self._seen(objects[0] if objects else None)
            self._synced.set()
            self._hurry.set()

        async def on_change(event: str, found: NodeDeviceObject) -> None:
            self._seen(None if event == "DELETED" else found)

        fields = {"metadata.name": self.name}
        await forever(
            f"nodedevice {self.name}", lambda: self._cluster.follow(NodeDeviceObject, fields, on_list, on_change)
        )

    def _seen(self, found: NodeDeviceObject | None) -> None:
        if found is not None and _version(found) < self._version:
            # the echo of an earlier write of ours, overtaken by the answer to a later one
            return
        if found is None:
            self._ours = ()
            self._hurry.set()
        elif self._is_edited(found.status):
            self._contention.edited()
            # counted once, until it is right again
            self._ours = ()
        self._is_owned = found is None or _has_owner(found, self._node_name)
        self._observed = found.status if found is not None else None
        self._source.cordoned(self._resource_name, cordoned_ids(found.spec) if found is not None else frozenset())
        self.touch()

    def _is_edited(self, status: dict[str, Any]) -> bool:
        """Whether it is none of ours. What we write may be heard of before the answer comes; a new object has none."""
        if not self._ours or not status or status == self._observed:
            return False
        found = well_formed(status)
        return all(_owned(found, ours) != ours for ours in self._ours)

    async def _write(self) -> None:
        await self._synced.wait()
        failures, is_said = 0, False
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self._hurry.clear()
            pause = 0.0
            # what is touched from here on is published by the next turn
            touched_at, self._touched_at = self._touched_at, None
            try:
                if await self._publish():
                    if touched_at is not None:
                        metrics.PUBLISH_SECONDS.observe(time.monotonic() - touched_at)
                    listed = len(well_formed(self._observed or {}).get("devices", ()))
                    pause = max(PAUSE_SECONDS + _PAUSE_SECONDS_PER_DEVICE * listed, self._contention.pause_seconds())
                failures, is_said = 0, False
            except ApiRefused as exc:
                # the same object again would be refused again: wait for a change, and look once a minute
                log.error("api server refuses the status", extra={"nodedevice": self.name, "error": str(exc)})
                pause = _REFUSED_PAUSE_SECONDS
                self._touch_again(touched_at)
            except ApiError as exc:
                failures += 1
                is_said = is_said or complain("status cannot be written; trying again", exc, nodedevice=self.name)
                pause = pause_seconds(failures)
                self._touch_again(touched_at)
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        """The shortest one always: whoever deletes the object each time it is made has it back no faster."""
        await asyncio.sleep(min(seconds, PAUSE_SECONDS))
        if seconds > PAUSE_SECONDS:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds - PAUSE_SECONDS):
                    await self._hurry.wait()

    async def _publish(self) -> bool:
        """Write what differs from what stands. Returns whether anything was written."""
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
            # deleted a moment ago; the watch will say so as well
            await self._create()
            written = await self._apply(status)
        self._observed, self._version, self._ours = written.status, _version(written), (status,)
        return True

    async def _create(self) -> None:
        uid = await self._cluster.node_uid(self._node_name)
        await self._cluster.create_node_device((self._node_name, uid), self._resource_name)
        event = "nodedevice created" if self._is_owned else "nodedevice is owned by its node again"
        log.info(event, extra={"nodedevice": self.name})
        self._is_owned = True

    async def _apply(self, status: dict[str, Any]) -> NodeDeviceObject:
        began = time.perf_counter()
        written = await self._cluster.apply_status(self.name, status)
        log.debug("status written", extra={"nodedevice": self.name, "seconds": time.perf_counter() - began})
        return written


def _owned(observed: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    """What stands, less what other writers added, in our order: to be compared with what is wanted."""
    found = {c.get("type"): c for c in observed.get("conditions", ())}
    ours = [_same_keys(found.get(wanted["type"], {}), wanted) for wanted in status["conditions"]]
    return {**_same_keys(observed, status), "conditions": ours}


def _same_keys(observed: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in observed.items() if key in wanted}


def _has_owner(found: NodeDeviceObject, node_name: str) -> bool:
    """Whether it goes with its node. Which Node of that name it is, is the garbage collector's to see to."""
    owners = found.metadata.ownerReferences or ()
    return any(owner.get("kind") == "Node" and owner.get("name") == node_name for owner in owners)


def _version(found: NodeDeviceObject) -> int:
    version = found.metadata.resourceVersion or ""
    return int(version) if version.isdecimal() and len(version) < 20 else 0


def _wall_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
