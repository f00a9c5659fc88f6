"""Observes and publishes the resources that the kubelet's own device manager serves. Changes nothing there.

NUMA nodes and pod names come from its pod resources; without these, nothing is published.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from nodedevice_common.log_once import LogOnce
from nodedevice_common.pacing import jittered
from nodedevice_common.threads import in_thread
from nodedevice_kube.api_errors import ApiError

from nodedevice_agent.devicemanager.attribution.attribute import KubeletState
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.kubelet.readings import AttributionSubscriber, CheckpointReading, DevicesByID, Pace, PodReading
from nodedevice_agent.kubelet.served import KubeletResources, devices_of

log = logging.getLogger(__name__)

LIST_SECONDS: Final = 30.0
# The kubelet writes the Node's status every ten seconds: after that its capacity includes the devices seen before.
_CAPACITY_SECONDS: Final = 12.0
# only the capacity shows that a free, unhealthy device appears or disappears
_CAPACITY_AGAIN_SECONDS: Final = 600.0
_CAPACITY_RETRY_SECONDS: Final = 30.0
_SPREAD: Final = 0.5


class Observer(AttributionSubscriber):
    """run() until cancelled. Pass the node's pods to pods_synced(), pod_seen() and pod_gone().

    publish: called with each resource that may have changed. capacity: reads the Node's capacity by resource; raises ApiError.
    """

    pace = Pace(is_following=True, list_seconds=LIST_SECONDS, lists_devices=True)

    def __init__(
        self,
        reader: KubeletReader,
        served: KubeletResources,
        publish: Callable[[str], None],
        capacity: Callable[[], Awaitable[Mapping[str, int]]],
    ) -> None:
        self.served = served
        self._attribution = served.manager.attribution
        self._reader = reader
        self._publish = publish
        self._capacity = capacity
        self._now = asyncio.get_running_loop().time
        self._problems = LogOnce(log)
        # whether the kubelet has responded since the start
        self.is_known = False
        self._healthy: Mapping[str, DevicesByID] = {}
        self._capacity_due = 0.0
        self._devices_changed = asyncio.Event()
        self._is_list_due = asyncio.Event()

    async def run(self) -> None:
        """Read the Node's capacity periodically, and make long lists of devices."""
        # a run after a failure: both may be due
        self._capacity_due = 0.0
        self._is_list_due.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read_capacities())
            tasks.create_task(self._make_lists())

    async def _read_capacities(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._capacity_due if self._healthy else None):
                    await self._devices_changed.wait()
            self._devices_changed.clear()
            await self._read_capacity()

    async def _make_lists(self) -> None:
        """Make long lists one by one in a thread. Pauses as long as each took, so that the event loop has half of the time."""
        while True:
            await self._is_list_due.wait()
            self._is_list_due.clear()
            while (listing := self.served.next_listing()) is not None:
                began = self._now()
                listed = await in_thread(listing.made)
                took = self._now() - began
                self.served.listing_made(listing, listed, self._now())
                self._settle()
                del listing, listed
                await asyncio.sleep(took)

    def displace(self, resource_names: Iterable[str], by: str) -> None:
        self.served.displaced(resource_names, by)
        self._settle()

    def pods_synced(self, pods: Iterable[Pod]) -> None:
        self.served.pods_synced(pods, self._now())
        self._settle()

    def pod_seen(self, pod: Pod) -> None:
        self.served.pod_seen(pod, self._now())
        self._settle()

    def pod_gone(self, pod_uid: str) -> None:
        self.served.pod_gone(pod_uid, self._now())
        self._settle()

    def checkpoint_read(self, found: CheckpointReading) -> None:
        message = "the kubelet's checkpoint cannot be used; init containers that hold its devices are not shown"
        self._report("checkpoint", message, found.problem)
        # a list of devices may have changed as well
        self._attribution.is_outdated = True

    def pods_read(self, found: PodReading) -> None:
        message = "the kubelet's pod resources cannot be read; its devices are not shown, or not updated"
        self._report("pod resources", message, found.problem)
        if found.rows is None:
            return
        self.is_known = True
        message = "the kubelet does not list allocatable devices; NUMA nodes of its devices are not shown"
        self._report("allocatable", message, found.devices_problem)
        entries = found.checkpoint.allocations if found.checkpoint is not None else None
        devices, before = devices_of(found, self._healthy), self.served.without_place
        self.served.read(devices, KubeletState(entries, found.rows), self._now())
        self._settle()
        if (count := self.served.without_place) not in (0, before):
            log.warning("resources of the kubelet are not shown: this node has too many names", extra={"count": count})
        self.served.tick(self._now())
        self._settle()
        if devices.healthy != self._healthy:
            self._healthy = devices.healthy
            self._capacity_due = min(self._capacity_due, self._now() + _CAPACITY_SECONDS)
            self._devices_changed.set()

    def _settle(self) -> None:
        for name in self.served.settle(self._now()):
            self._publish(name)
        if self._attribution.is_outdated:
            self._reader.wake()
        self._is_list_due.set()

    async def _read_capacity(self) -> None:
        if self._now() < self._capacity_due or not self._healthy:
            return
        self._capacity_due = self._now() + jittered(_CAPACITY_AGAIN_SECONDS, _SPREAD, random.random())
        try:
            found = await self._capacity()
        except ApiError as exc:
            log.debug("cannot read the Node's capacity", extra={"error": str(exc)})
            self._capacity_due = self._now() + _CAPACITY_RETRY_SECONDS
            return
        self.served.capacity_is(found)
        self._settle()

    def _report(self, what: str, message: str, problem: str) -> None:
        """Log the start and the end of a problem once each."""
        # before the first response this is normal: the kubelet may lack the service
        level = logging.WARNING if self.is_known else logging.INFO
        if self._problems.report(message, problem, level, path=str(self._reader.directory.path)) and not problem:
            log.info("the kubelet responds again", extra={"what": what})
