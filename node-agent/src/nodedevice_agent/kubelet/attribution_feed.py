"""Passes the kubelet's state to the attribution: the checkpoint at once, then pod resources."""

import logging
from collections.abc import Callable

from nodedevice_common.log_once import LogOnce

from nodedevice_agent.devicemanager.attribution.attribute import Entries, KubeletState, unordered
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet.directory import KubeletDirectory
from nodedevice_agent.kubelet.readings import AttributionSubscriber, CheckpointReading, Pace, PodReading

log = logging.getLogger(__name__)


class AttributionFeed(AttributionSubscriber):
    """trouble: why the checkpoint cannot be used; "" if it can. on_trouble: called when trouble has changed."""

    pace = Pace(is_following=True)

    def __init__(self, directory: KubeletDirectory, host: PluginHost, on_trouble: Callable[[], None]) -> None:
        self.trouble = ""
        self._directory = directory
        self._attribution = host.manager.attribution
        self._host = host
        self._on_trouble = on_trouble
        self._problems = LogOnce(log)
        self._entries: Entries | None = None
        # the attribution's state; None before the first response and after a failed call
        self._given: tuple[Entries | None, KubeletState] | None = None

    def checkpoint_read(self, found: CheckpointReading) -> None:
        message, path = "invalid kubelet checkpoint", str(self._directory.checkpoint)
        self._problems.report(message, found.problem, logging.ERROR, path=path)
        if found.problem != self.trouble:
            self.trouble = found.problem
            self._on_trouble()
        entries = found.checkpoint.allocations if found.checkpoint is not None else None
        before, self._entries = self._entries, unordered(entries)
        if self._entries == before and self._given is not None:
            # the kubelet only wrote a device list
            return
        self._attribution.is_outdated = True
        if self._given is not None and entries is not None:
            # keep the known pod names: a newly allocated device is held
            self._give(KubeletState(entries, self._given[1].rows))

    def pods_read(self, found: PodReading) -> None:
        message, socket = "kubelet pod resources unreachable; retrying", str(self._directory.pod_resources)
        self._problems.report(message, found.problem, socket=socket)
        entries = found.checkpoint.allocations if found.checkpoint is not None else None
        state = KubeletState(entries, found.rows)
        if self._given is None or self._given[0] != self._entries or self._given[1].rows != found.rows:
            self._give(state)
        if found.rows is None:
            self._given = None

    def _give(self, state: KubeletState) -> None:
        known, self._given = self._attribution.conflicts, None
        self._attribution.read(state)
        self._host.settle()
        self._given = self._entries, state
        for conflict in self._attribution.conflicts:
            if conflict not in known:
                extra = {
                    "resource_name": conflict.resource_name,
                    "pod_uid": conflict.pod_uid,
                    "device_ids": list(conflict.device_ids),
                }
                log.error("conflict: the kubelet allocated a device to two pods; omitting this one", extra=extra)
