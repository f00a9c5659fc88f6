"""Compares the sources of this node after each change, and sets the condition of devices that are offered twice.

Many changes at once become one comparison, and a longer pause follows a slow one. A node with one source needs neither.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from itertools import chain, repeat
from typing import Final, TypeVar

from msgspec.structs import replace
from nodedevice_api.names import Reason

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.deviceplugin.codec import with_edits_of
from nodedevice_agent.kube.conditions import ConditionValue
from nodedevice_agent.offered_twice.compare import Findings, find
from nodedevice_agent.offered_twice.host import HostReader
from nodedevice_agent.offered_twice.messages import message
from nodedevice_agent.offered_twice.node_sources import NodeSources
from nodedevice_agent.offered_twice.offers import (
    Held,
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

# several changes become one comparison
_TOGETHER_SECONDS: Final = 0.2
# The pause after a comparison, as a multiple of its duration: with thousands of devices that change all the time, comparisons
# take a fifth of the event loop.
_REST: Final = 4.0
_LONGEST_PAUSE_SECONDS: Final = 10.0
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
        # by scope, files that two devices had at the same time
        self._shared: dict[str, set[str]] = {}

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

    def _due(self, now: float, known_at: float) -> float | None:
        if not self.is_known:
            return known_at
        return now + _AGAIN_SECONDS if self._host.is_reading else None

    async def _compared(self) -> Findings:
        managed, pools = list(self._sources.managed()), list(self._sources.pools())
        offers = [offer_of(resource, is_kubelets=is_kubelets) for _, resource, is_kubelets in managed]
        offers += map(offer_of_pool, pools)
        if len({offer.program for offer in offers}) < 2:
            return {}
        held = [await in_steps(_held(manager.book.of_resource(resource.name))) for manager, resource, _ in managed]
        held += map(held_of_pool, pools)
        of_containers = [*chain.from_iterable(held)]
        paths = {path for holding in of_containers for path in holding.paths}
        for offer in offers:
            paths |= await in_steps(paths_of(offer))
        host = await self._host.read(paths, {name for holding in of_containers for name in holding.cdi})
        for number, offer in enumerate(offers):
            known = await in_steps(known_of(offer, host))
            # a built-in plugin provides all identities itself
            own = () if offer.source is Source.BUILT_IN else held[number]
            offers[number] = replace(offer, known=known, held=statements_of(offer, own, host, known))
        return await in_steps(find(offers, self._shared))

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


def _held(allocations: Iterable[Allocation]) -> Generator[None, None, list[Held]]:
    """Devices in containers. Yields more often after a long response, and after many devices."""
    held: list[Held] = []
    for allocation in allocations:
        holding = held_of(allocation if allocation.edits is not None else with_edits_of(allocation))
        held += [holding] if holding is not None else []
        yield from repeat(None, 1 + max(len(allocation.response or b"") // _A_STEP, len(allocation.device_ids)))
    return held


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
