"""Tracks containers that got devices by the delivery `nri`, on a node that has moved to the delivery `kubelet`.

The agent recognizes them by its mark. Their devices stay held until the runtime reports the end of the container, even if the pod
was deleted from the API by force. Until the runtime has listed its containers, all count as running, but not for longer than it
takes to restart: the runtime of a node that has moved may no longer have NRI.
"""

import asyncio
from collections.abc import Iterable, Sequence

from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION

from nodedevice_agent.devicemanager import runtime
from nodedevice_agent.devicemanager.static_pods import StaticPod, is_config_hash
from nodedevice_agent.deviceplugin.host import PluginHost


class InjectedContainers(runtime.RuntimeHandler):
    """Passes the runtime's events to the host's device manager. grace_seconds: how long to wait for an unreachable runtime."""

    def __init__(self, host: PluginHost, grace_seconds: float) -> None:
        self._host = host
        self._grace_seconds = grace_seconds
        self._grace: asyncio.TimerHandle | None = None
        self._containers = host.manager.containers
        host.manager.attribution.awaits_runtime = True

    def runtime_disconnected(self, reason: str) -> None:
        if self._host.manager.attribution.awaits_runtime and self._grace is None:
            self._grace = asyncio.get_running_loop().call_later(self._grace_seconds, self._changed)

    def synchronized(
        self, sandboxes: Sequence[runtime.Sandbox], containers: Sequence[runtime.RunningContainer]
    ) -> None:
        static = [StaticPod(s.uid, s.namespace, s.name) for s in sandboxes if is_config_hash(s.uid)]
        self._host.manager.pod_events.static_pods_listed(static, self._host.now())
        uids = {sandbox.id: sandbox.uid for sandbox in sandboxes}
        marked = (c for c in containers if CONTAINER_DEVICES_ANNOTATION in c.annotations)
        self._containers.synchronized(
            runtime.ContainerInstance(c.id, c.sandbox_id, uids.get(c.sandbox_id) or c.pod_uid, c.name)
            for c in marked
            if c.state is not runtime.ContainerState.STOPPED
        )
        self._changed()

    def container_ended(self, sandbox: runtime.Sandbox, container: runtime.RunningContainer) -> None:
        self._end(found for found in self._containers if found.id == container.id)

    def sandbox_removed(self, sandbox: runtime.Sandbox) -> None:
        self._end(found for found in self._containers if found.sandbox_id == sandbox.id)

    def _end(self, found: Iterable[runtime.ContainerInstance]) -> None:
        ended = [self._containers.ended(instance.pod_uid, instance.id) for instance in tuple(found)]
        if ended:
            self._changed()

    def _changed(self) -> None:
        self._host.manager.attribution.runtime_known()
        self._host.settle()
