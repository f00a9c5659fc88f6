"""Pods that wait for a plugin which is not connected here, while the kubelet may have allocated what they wait for."""

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint

log = logging.getLogger(__name__)

# why a pod waits for a plugin that is not connected here
_NOT_SERVED = (Reason.ENDPOINT_STOPPED, Reason.NOT_CONFIGURED)


class KubeletPods:
    """on_change: called when it is known again what the kubelet has allocated to the pods that wait."""

    def __init__(self, host: PluginHost, checkpoint: KubeletCheckpoint, on_change: Callable[[], None]) -> None:
        self._host = host
        self._manager = host.manager
        self._checkpoint = checkpoint
        self._on_change = on_change
        self.are_due = asyncio.Event()
        # whether what the kubelet has allocated to pods that wait is not read yet
        self.is_asking = False

    def resource_changed(self, resource_name: str) -> None:
        """Pods that wait for it may have been served by the kubelet."""
        if any(pending.reason in _NOT_SERVED for pending in self._manager.pending(resource_name)):
            self.are_due.set()
            self.is_asking = True

    def waits(self, pod_uid: str) -> bool:
        """Whether the pod waits for a plugin that is not connected here."""
        pending = self._manager.allocator.pending.get(pod_uid)
        return pending is not None and pending.reason in _NOT_SERVED

    def has_made(self, allocation: Allocation) -> bool:
        """Whether the kubelet still has an allocation of its own: then it passes the response on to the container."""
        return (allocation.container, allocation.resource_name) in self._met(allocation.pod_uid)

    def leave(self, pod_uid: str) -> None:
        """What the kubelet has allocated to a pod that waits, the kubelet injects."""
        pending = self._manager.allocator.pending.get(pod_uid)
        if pending is None or pending.reason not in _NOT_SERVED:
            return
        if self._manager.pod_events.kubelet_allocated(pod_uid, self._met(pod_uid), self._host.now()):
            extra = {"pod_uid": pod_uid, "resource_name": pending.resource_name}
            log.info("the kubelet has allocated what a pod waits for; leaving it to the kubelet", extra=extra)
            self._host.settle()

    async def leave_all(self) -> NoReturn:
        """The same of all pods, whenever one may have been served."""
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
                # it is due as before when this is run again
                self.are_due.set()
                raise

    def _met(self, pod_uid: str) -> frozenset[tuple[str, str]]:
        pod = self._manager.pod(pod_uid)
        return self._checkpoint.requests_met(pod_uid, None if pod is None else (pod.namespace, pod.name))
