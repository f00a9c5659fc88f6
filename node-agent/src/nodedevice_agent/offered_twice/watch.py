"""Compares the sources of this node after each change, and sets the condition of devices that are offered twice.

The publisher of a resource reports changes; there is no polling. Many changes at once become one comparison, and a longer pause
follows a slow one. A node with one source needs no reads and no comparison.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from itertools import chain, repeat
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from nodedevice_api.names import Reason

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.records.allocations import Allocation, AllocationKey
from nodedevice_agent.devicemanager.resources.devices import NOTHING
from nodedevice_agent.deviceplugin.codec import with_edits_of
from nodedevice_agent.kube.conditions import ConditionValue
from nodedevice_agent.offered_twice.compare import Findings, Kept, Offer, find
from nodedevice_agent.offered_twice.files import Host, Node
from nodedevice_agent.offered_twice.host import HostReader
from nodedevice_agent.offered_twice.messages import message
from nodedevice_agent.offered_twice.node_sources import NodeSources
from nodedevice_agent.offered_twice.offers import (
    Held,
    are_alike,
    held_of,
    held_of_pool,
    known_of,
    offer_of,
    offer_of_pool,
    paths_of,
    statements_of,
)
from nodedevice_agent.offered_twice.sources import Source

log = logging.getLogger(__name__)

T = TypeVar("T")

# several changes become one comparison; together with the pause after one, less than a second
_TOGETHER_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 0.8
# the pause after a slow comparison, as a multiple of its duration
_REST: Final = 4.0
# devices that are read or compared in one turn of the event loop: less than a millisecond
_A_STEP: Final = 128
# the interval of retries while a disk hangs
_AGAIN_SECONDS: Final = 30.0
# Time after the start: later a silent source no longer preserves the published conditions.
_LONGEST_START_SECONDS: Final = 60.0


class OfferedTwice:
    """run() until cancelled. on_change: called with each resource whose condition changed."""

    def __init__(self, sources: NodeSources, host: HostReader, on_change: Callable[[str], None]) -> None:
        self._sources = sources
        self._host = host
        self._on_change = on_change
        # set by the publisher of a resource
        self.is_changed = asyncio.Event()
        self.conditions: dict[str, ConditionValue] = {}
        # until then the published conditions stay
        self.is_known = False
        self._kept = Kept()
        # by resource, for unchanged lists
        self._lists: dict[tuple[str, Source], _List] = {}
        self._answers: dict[AllocationKey, tuple[Allocation, list[Held]]] = {}

    async def run(self) -> None:
        now = asyncio.get_running_loop().time
        known_at = now() + _LONGEST_START_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._due(now(), known_at)):
                    await self.is_changed.wait()
            await asyncio.sleep(_TOGETHER_SECONDS)
            self.is_changed.clear()
            started, are_known = now(), self._sources.are_known or now() >= known_at
            try:
                findings = await self._compared()
            except Exception:
                # the comparison stays due for the next run
                self.is_changed.set()
                raise
            self._set(findings, are_known=are_known)
            await asyncio.sleep(min(_REST * (now() - started), _LONGEST_PAUSE_SECONDS))

    # -- internals --------------------------------------------------------------------------------------------------------------

    def _due(self, now: float, known_at: float) -> float | None:
        """Compare once."""
        if not self.is_known:
            return known_at
        return now + _AGAIN_SECONDS if self._host.is_reading else None

    async def _compared(self) -> Findings:
        managed, pools = list(self._sources.managed()), list(self._sources.pools())
        offers = [offer_of(resource, is_kubelets=is_kubelets) for _, resource, is_kubelets in managed]
        offers += map(offer_of_pool, pools)
        if len({offer.program for offer in offers}) < 2:
            self._lists, self._answers = {}, {}
            return {}
        by_resource = await in_steps(self._held({id(manager): manager for manager, _, _ in managed}.values()))
        lists = [await self._list(offer) for offer in offers]
        self._lists = {(offer.resource_name, offer.source): each for offer, each in zip(offers, lists, strict=True)}
        held = [by_resource.get((id(manager), resource.name), ()) for manager, resource, _ in managed]
        held += map(held_of_pool, pools)
        of_containers = [*chain.from_iterable(held)]
        paths = {path for each in lists for path in each.paths}.union(*(each.paths for each in of_containers))
        host = await self._host.read(paths, {name for each in of_containers for name in each.cdi})
        for number, (offer, each) in enumerate(zip(offers, lists, strict=True)):
            known = await each.known(offer, host)
            # a built-in plugin provides all identities itself
            own = () if offer.source is Source.BUILT_IN else held[number]
            offers[number] = replace(offer, known=known, held=statements_of(offer, own, host, known))
            # many short lists together form a step
            await asyncio.sleep(0)
        return await in_steps(find(offers, self._kept))

    async def _list(self, offer: Offer) -> "_List":
        before = self._lists.get((offer.resource_name, offer.source))
        if before is not None and are_alike(before.devices, offer):
            before.devices = offer.devices
            return before
        return _List(offer.devices, await in_steps(paths_of(offer)))

    def _held(self, managers: Iterable[DeviceManager]) -> Generator[None, None, dict[tuple[int, str], list[Held]]]:
        """Offers by device manager and resource. Each response is decoded once."""
        found: dict[tuple[int, str], list[Held]] = {}
        answers: dict[AllocationKey, tuple[Allocation, list[Held]]] = {}
        for manager in managers:
            for allocation in list(manager.book):
                before = self._answers.get(allocation.key)
                if before is None or before[0] != allocation:
                    decoded = allocation if allocation.edits is not None else with_edits_of(allocation)
                    before = allocation, held_of([decoded])
                    # a long response takes a turn of the event loop, and so do many devices
                    yield from repeat(None, max(len(allocation.response or b"") // _A_STEP, len(allocation.device_ids)))
                answers[allocation.key] = before
                found.setdefault((id(manager), allocation.resource_name), []).extend(before[1])
                yield
        self._answers = answers
        return found

    def _set(self, findings: Findings, *, are_known: bool) -> None:
        offers = {f.other.resource_name: f.other for each in findings.values() for f in each}
        found: dict[str, ConditionValue] = {
            name: ("True", Reason.OFFERED_TWICE, message(offers[name], each)) for name, each in findings.items()
        }
        before, self.conditions = self.conditions, found
        has_begun, self.is_known = are_known and not self.is_known, self.is_known or are_known
        for name, each in findings.items():
            metrics.OFFERED_TWICE.labels(name).set(len({here for f in each for here, _ in f.devices}))
            if name not in before:
                log.warning("devices are offered twice", extra={"resource_name": name, "error": found[name][2]})
        for name in before.keys() - found.keys():
            metrics.OFFERED_TWICE.remove_by_labels({"resource_name": name})
            log.info("devices are no longer offered twice", extra={"resource_name": name})
        for name in sorted(before.keys() | found.keys()):
            if before.get(name) != found.get(name):
                self._on_change(name)
        if has_begun:
            for _, resource, _ in self._sources.managed():
                self._on_change(resource.name)
            for pool in self._sources.pools():
                self._on_change(pool.resource_name)


class _List(Struct):
    """The identities of a list of devices while it is unchanged. paths: files to read."""

    devices: Mapping[str, object]
    paths: tuple[str, ...]
    nodes: tuple[Node, ...] | None = None
    identities: Mapping[str, tuple[str, ...]] = NOTHING

    async def known(self, offer: Offer, host: Host) -> Mapping[str, tuple[str, ...]]:
        """Identities by device ID."""
        nodes = host.named(self.paths)
        if nodes != self.nodes:
            self.identities, self.nodes = await in_steps(known_of(offer, host)), nodes
        return self.identities


async def in_steps(work: Generator[None, None, T]) -> T:
    """Run the steps to their end, and yield to other tasks in between."""
    while True:
        for _ in range(_A_STEP):
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                await asyncio.sleep(0)
                return result
        await asyncio.sleep(0)
