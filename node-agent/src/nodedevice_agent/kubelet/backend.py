"""`--runtime kubelet`: the kubelet allocates; each resource is registered with it, and allocations are read back from it.

The device manager is a Mirror, and the kubelet maintains the Node's capacity. Resources of plugins that register with the
kubelet directly are not handled here.
"""

import asyncio
import logging
from collections.abc import Callable

from nodedevice_agent.devicemanager.snapshot import Snapshot, snapshot
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet.advertised import advertised
from nodedevice_agent.kubelet.condition import KubeletRegistration, KubeletRegistrationState, injectable
from nodedevice_agent.kubelet.directory import KubeletDirectory
from nodedevice_agent.kubelet.endpoint import KubeletEndpoint
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.kubelet.state_reader import KubeletStateReader
from nodedevice_agent.lib.file_watcher import FileWatcher

log = logging.getLogger(__name__)


class KubeletBackend:
    """start() before plugins are served, resource_changed() for each resource that may have changed.

    on_condition: called with each resource of which the condition Injectable may have changed. grace_seconds: for how long
    a kubelet that restarts is not reported as unreachable.
    """

    is_settled = True

    def __init__(
        self,
        mirror: Mirror,
        host: PluginHost,
        directory: KubeletDirectory,
        on_condition: Callable[[str], None],
        grace_seconds: float,
    ) -> None:
        self._mirror = mirror
        self._host = host
        self._directory = directory
        self._on_condition = on_condition
        self._grace_seconds = grace_seconds
        self._watcher = FileWatcher()
        self._reader = KubeletStateReader(directory, mirror, host, self._watcher, self._trouble_changed)
        self._endpoints: dict[str, KubeletEndpoint] = {}
        self._tasks: asyncio.TaskGroup

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Read the kubelet's state once; then go on in tasks of that group."""
        self._tasks = tasks
        watching = asyncio.Event()
        tasks.create_task(self._watch(watching))
        await watching.wait()
        await self._reader.read()
        tasks.create_task(self._reader.run())
        log.info("mirroring the kubelet's allocations", extra={"path": str(self._directory.path)})

    def resource_changed(self, resource_name: str) -> None:
        """This resource's devices or allocations may have changed."""
        endpoint = self._endpoints.get(resource_name)
        if endpoint is None:
            endpoint = self._endpoints[resource_name] = KubeletEndpoint(
                resource_name,
                self._directory,
                self._mirror,
                self._host,
                self._watcher,
                self._on_condition,
                self._grace_seconds,
            )
            self._tasks.create_task(endpoint.run())
        endpoint.advertise(
            advertised(self._mirror.resources[resource_name], self._mirror.resources[resource_name].holders)
        )
        if self._mirror.is_outdated:
            self._reader.poke()

    def snapshot(self, resource_name: str) -> Snapshot:
        return snapshot(self._mirror, resource_name)

    def injectable(self, now: Snapshot) -> tuple[str, str, str]:
        """Status, reason and message of the condition Injectable."""
        endpoint = self._endpoints.get(now.resource_name)
        return injectable(
            endpoint.registration if endpoint else KubeletRegistration(KubeletRegistrationState.NOT_ADVERTISED)
        )

    @property
    def notes(self) -> str:
        """Why the kubelet's checkpoint cannot be used; "" while it can."""
        if not self._reader.trouble:
            return ""
        return (
            f"the kubelet's checkpoint {self._directory.checkpoint} cannot be used ({self._reader.trouble}); "
            "allocations are read from its pod resources alone, without init containers"
        )

    def _trouble_changed(self) -> None:
        for resource_name in self._mirror.resources:
            self._on_condition(resource_name)

    async def _watch(self, watching: asyncio.Event) -> None:
        with self._watcher:
            watching.set()
            await asyncio.Event().wait()
