"""Finds pending pods without a connected plugin whose resources the kubelet has already allocated."""

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint

log = logging.getLogger(__name__)

# reasons of pods that wait for a plugin without a connection to the agent
_NOT_SERVED = (Reason.ENDPOINT_STOPPED, Reason.NOT_CONFIGURED)


class KubeletPods:
    """on_change: called when the kubelet's allocations to waiting pods are known again."""

    def __init__(self, host: PluginHost, checkpoint: KubeletCheckpoint, on_change: Callable[[], None]) -> None:
        self._host = host
        self._manager = host.manager
        self._checkpoint = checkpoint
        self._on_change = on_change
        self.are_due = asyncio.Event()
        # whether the kubelet's allocations to waiting pods must still be read
        self.is_asking = False

    def resource_changed(self, resource_name: str) -> None:
        """Check the pods that wait for this resource: the kubelet may have served them."""
        if any(pending.reason in _NOT_SERVED for pending in self._manager.pending(resource_name)):
            self.are_due.set()
            self.is_asking = True

    def waits(self, pod_uid: str) -> bool:
        """Whether the pod waits for a plugin without a connection to the agent."""
        pending = self._manager.allocator.pending.get(pod_uid)
        return pending is not None and pending.reason in _NOT_SERVED

    def has_made(self, allocation: Allocation) -> bool:
        """Whether the kubelet still has this allocation of its own, and so injects the response itself."""
        return (allocation.container, allocation.resource_name) in self._met(allocation.pod_uid)

    def leave(self, pod_uid: str) -> None:
        """Leave a waiting pod's resources to the kubelet if it has allocated them."""
        pending = self._manager.allocator.pending.get(pod_uid)
        if pending is None or pending.reason not in _NOT_SERVED:
            return
        self._manager.pod_events.kubelet_allocated(pod_uid, self._met(pod_uid), self._host.now())
        self._host.settle()
        if self._manager.allocator.pending.get(pod_uid) is not pending:
            extra = {"pod_uid": pod_uid, "resource_name": pending.resource_name}
            log.info("the kubelet has allocated what a pod waits for; leaving it to the kubelet", extra=extra)

    async def leave_all(self) -> NoReturn:
        """Leave waiting pods to the kubelet whenever it may have served one."""
        while True:
            await self.are_due.wait()
            self.are_due.clear()
            try:
                await self._checkpoint.refresh()
                for pod_uid in list(self._manager.allocator.pending):
                    self.leave(pod_uid)
                if not self.are_due.is_set():
                    self.is_asking = False
                    self._on_change()
            except Exception:
                # the next run checks again
                self.are_due.set()
                raise

    def _met(self, pod_uid: str) -> frozenset[tuple[str, str]]:
        pod = self._manager.pod(pod_uid)
        return self._checkpoint.requests_met(pod_uid, None if pod is None else (pod.namespace, pod.name))
