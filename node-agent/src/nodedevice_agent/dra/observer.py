"""Watches the ResourceSlices of this node, and publishes each changed pool. It never writes slices.

A driver may publish very fast. Only the latest version of a slice is decoded: a few times at once, then once a second, in a turn
of its own. If the API server lacks the kind, the agent rarely retries.
"""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from nodedevice_api import extended_resources
from nodedevice_common.decoding import Undecodable, decode
from nodedevice_common.log_once import LogOnce
from nodedevice_common.pacing import TokenBucket, jittered
from nodedevice_common.threads import in_thread
from nodedevice_kube.api_errors import Forbidden

from nodedevice_agent.dra import slices
from nodedevice_agent.dra.devices import PoolKey
from nodedevice_agent.dra.elsewhere import Elsewhere
from nodedevice_agent.dra.names import domain, is_observed
from nodedevice_agent.dra.served import WATCH, ServedByDrivers
from nodedevice_agent.dra.slices import ResourceSliceObject, slice_of
from nodedevice_agent.kube.informer import Watches
from nodedevice_agent.kube.responses import MOST_LISTED
from nodedevice_agent.kube.retries import until_done
from nodedevice_agent.lib.filesystem import remove, replace_durably

log = logging.getLogger(__name__)

TAINT_RULES: Final = "devicetaintrules"
# the interval of checks whether the API server serves slices and taint rules: it may be upgraded
ASK_SECONDS: Final = 3600.0
# ... while it sends nothing: it may have been started without the kind
ASK_STALE_SECONDS: Final = 60.0
_SPREAD: Final = 0.2
# the pace of one slice
DECODED_PER_SECOND: Final = 1.0
DECODED_AT_ONCE: Final = 5
_MOST_KNOWN: Final = 256
# between two writes of the file
STORE_SECONDS: Final = 5.0


class _StoredPool(msgspec.Struct, rename="camel"):
    driver: str
    pool: str
    resource_name: str


class DriverObserver:
    """run() until cancelled. publish: called with each resource that may have changed."""

    known_version = 0

    def __init__(
        self, watches: Watches, node_name: str, served: ServedByDrivers, publish: Callable[[str], None], file: Path
    ) -> None:
        """file: keeps the names of pools, so that one that ends while no agent runs is not forgotten."""
        self.served = served
        self._watches = watches
        self._node_name = node_name
        self._fields = {"spec.nodeName": node_name}
        self._publish = publish
        self._file = file
        self._now = asyncio.get_running_loop().time
        # by name, the latest version that is not decoded yet; None: deleted
        self._waiting: dict[str, ResourceSliceObject | None] = {}
        # by known slice: the pace of decoding
        self._pace: dict[str, TokenBucket] = {}
        # the names in a list that is not decoded completely, and the remaining ones: later changes of the others need no wait
        self._listed: frozenset[str] | None = None
        self._awaited = set[str]()
        self._following: asyncio.Task[None] | None = None
        self._is_changed = asyncio.Event()
        self._stored: Mapping[PoolKey, str] = dict(served.names)
        self._may_store = asyncio.Event()
        self._problems = LogOnce(log)
        self._elsewhere = Elsewhere(watches.cluster)
        self._elsewhere.on_known = self.held_changed
        served.is_beyond = self._elsewhere.is_beyond
        served.on_forgotten = self._is_changed.set

    async def run(self) -> None:
        """Watch the slices while the API server serves them; set none if the observation of drivers is off."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._work())
            tasks.create_task(self._keep_names())
            tasks.create_task(self._elsewhere.run())
            self._following = None
            if self.served.is_off:
                self.synced([])
                return
            while True:
                await self._ask(tasks)

    async def _ask(self, tasks: asyncio.TaskGroup) -> None:
        """Check whether the API server serves slices, start or stop the watch, and wait until the next check."""
        kinds = await until_done(partial(self._watches.cluster.served, slices.RESOURCE.api_version))
        self.served.has_rules = TAINT_RULES in kinds
        is_served = slices.RESOURCE.plural in kinds
        may_follow = is_served and await until_done(self._may_follow)
        if may_follow and self._following is None:
            watch = self._watches.follow(WATCH, ResourceSliceObject, self._fields, self)
            self._following = tasks.create_task(watch)
        elif not may_follow and self._following is not None:
            self._following.cancel()
            self._following = None
        if self.served.is_blind is not (is_served and not may_follow):
            self.served.is_blind = not self.served.is_blind
            self._published(self.served.resources)
        if not is_served:
            self.synced([])
        await self._until_asked_again(ASK_STALE_SECONDS if is_served and not may_follow else ASK_SECONDS)

    async def _may_follow(self) -> bool:
        """Whether the agent has the right to: a watch without it would count as stale. Raises ApiError."""
        problem = ""
        try:
            await self._watches.cluster.catch_up(ResourceSliceObject, self._fields)
        except Forbidden as exc:
            problem = str(exc)
        message = "what DRA drivers offer is not shown: the agent may not list ResourceSlices"
        self._problems.report(message, problem, remedy="update the agent's ClusterRole, or set observeDra to false")
        return not problem

    async def _until_asked_again(self, seconds: float) -> None:
        due = self._now() + jittered(seconds, _SPREAD, random.random())
        while self._now() < due:
            await asyncio.sleep(jittered(ASK_STALE_SECONDS, _SPREAD, random.random()))
            if WATCH in self._watches.stale():
                return

    # -- the watch ------------------------------------------------------------------------------------------------------------

    def synced(self, objects: list[ResourceSliceObject], version: int = 0) -> None:
        self._waiting = {one.metadata.name: one for one in objects}
        self._listed, self._awaited = frozenset(self._waiting), {*self._waiting}
        self._is_changed.set()

    def updated(self, found: ResourceSliceObject) -> None:
        self._waits(found.metadata.name, found)
        if self._listed is not None:
            self._listed |= {found.metadata.name}

    def deleted(self, found: ResourceSliceObject) -> None:
        self._waits(found.metadata.name, None)

    def _waits(self, name: str, found: ResourceSliceObject | None) -> None:
        self._waiting.pop(name, None)
        if found is not None:
            octets = found.octets + sum(each.octets for each in self._waiting.values() if each is not None)
            if octets > MOST_LISTED:
                # the next list has it again
                found.lighten()
        self._waiting[name] = found
        self._is_changed.set()

    async def _work(self) -> None:
        while True:
            wait_until = await self._decode()
            self._published(self.served.tick(self._now()))
            wait_until = min(wait_until, self.served.next_deadline(self._now()))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(wait_until):
                    await self._is_changed.wait()
            self._is_changed.clear()

    async def _decode(self) -> float:
        """Decode the slices that may be decoded now, and yield to other tasks after each. Returns the time of the next."""
        next_due = math.inf
        for name in [*self._waiting]:
            now = self._now()
            pace = self._pace.setdefault(name, TokenBucket(DECODED_PER_SECOND, DECODED_AT_ONCE, now))
            found = self._waiting.get(name)
            if found is not None and not pace.take(now):
                next_due = min(next_due, now + pace.wait_seconds(now))
                continue
            if name in self._waiting:
                del self._waiting[name]
                self._awaited.discard(name)
                self._take(name, found, now)
                await asyncio.sleep(0)
        if self._listed is not None and not self._awaited:
            listed, self._listed = self._listed, None
            self._pace = {name: pace for name, pace in self._pace.items() if name in listed}
            self._published(self.served.synced(listed, self._now()))
        return next_due

    def _take(self, name: str, found: ResourceSliceObject | None, now: float) -> None:
        if found is None:
            del self._pace[name]
        if found is None or not self._is_ours(name, found):
            self._published(self.served.removed(name, now))
            return
        pools = self.served.pools
        made = slice_of(found, with_attributes=pools.has_room_for_attributes(name))
        if not pools.has_room_for_counters(made):
            # without some counters the numbers of the pool would be wrong
            found.lighten()
            made = slice_of(found)
        self._published(self.served.put(made, now))
        self._problems.report(
            "attributes of devices are not shown: the ResourceSlices of this node have too many",
            f"{len(pools.bare)} slices are shown without any" if pools.bare else "",
        )

    def _is_ours(self, name: str, found: ResourceSliceObject) -> bool:
        """Whether it is shown."""
        spec = found.spec
        # one that cannot be decoded was logged when it came
        if spec is None:
            return False
        if spec.nodeName != self._node_name:
            error = f"the slice {name} is of the node {str(spec.nodeName)[:253]!r}"
            self._problems.report(
                "ResourceSlices of other nodes ignored: the API server does not apply the field selector", error
            )
            return False
        if not is_observed((spec.driver, spec.pool.name)):
            return False
        has_room = self.served.pools.has_room(name, spec.driver)
        if not has_room:
            error = f"the slice {name} of the driver {spec.driver}"
            self._problems.report("ResourceSlices ignored: this node or one of its drivers has too many", error)
        return has_room

    def _published(self, resource_names: Collection[str]) -> None:
        self._elsewhere.ask(self.served.only_held)
        for name in sorted(resource_names):
            self._publish(name)
        self._may_store.set()
        count = len(self.served.without_place)
        self._problems.report(
            "pools of DRA drivers are not shown: this node has too many names", f"{count}" if count else ""
        )

    def held_known(self) -> None:
        self._changed_by_others(self.served.held_known(self._now()))

    def held_changed(self, key: PoolKey) -> None:
        self._changed_by_others(self.served.held_changed(key, self._now()))

    def displace(self, resource_names: Collection[str], by: str) -> None:
        """The places of drivers' resources in `resource_names` go to the resource `by`."""
        self._published(self.served.displaced(resource_names, by))

    def _changed_by_others(self, resource_names: Collection[str]) -> None:
        self._published(resource_names)
        # there may be a new deadline: a pool lost its place because its name is taken now
        self._is_changed.set()

    # -- the file ---------------------------------------------------------------------------------------------------------------

    async def _keep_names(self) -> None:
        """Store the names in a thread, because a disk may be slow, and with pauses: a driver may invent pools."""
        while True:
            while self.served.names != self._stored:
                await self._store(dict(self.served.names))
                await asyncio.sleep(STORE_SECONDS)
            await self._may_store.wait()
            self._may_store.clear()

    async def _store(self, names: Mapping[PoolKey, str]) -> None:
        """Store the names; after a failure they stay to be stored."""
        pools = [_StoredPool(*key, name) for key, name in sorted(names.items())]
        text, error = msgspec.json.encode(pools).decode(), ""
        try:
            if pools:
                await in_thread(partial(replace_durably, self._file, text))
            else:
                await in_thread(partial(remove, self._file))
            self._stored = names
        except OSError as exc:
            error = exc.strerror or str(exc)
        self._problems.report("cannot keep the names of pools", error, logging.ERROR, path=str(self._file))


def known_names(file: Path) -> dict[PoolKey, str]:
    """The names of pools before the start; empty if the file is damaged."""
    try:
        stored = decode(file.read_bytes(), list[_StoredPool])
    except FileNotFoundError:
        return {}
    except (OSError, Undecodable) as exc:
        extra = {"path": str(file), "error": str(exc)[:400]}
        log.error("cannot read the names of pools; names of deleted pools are lost", extra=extra)
        return {}
    found: dict[PoolKey, str] = {}
    for each in stored[:_MOST_KNOWN]:
        key, prefix = (each.driver, each.pool), f"{domain(each.driver)}/"
        name = each.resource_name.removeprefix(prefix)
        if is_observed(key) and extended_resources.NAME.fullmatch(name) and prefix + name not in found.values():
            found[key] = prefix + name
    return found
