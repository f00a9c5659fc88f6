"""`--runtime kubelet`: the kubelet allocates; this shows it each resource, passes its calls on, and learns who holds what.

The device manager is a core.mirror; capacity is the kubelet's own business. A resource that a plugin registered with the kubelet
directly never comes here.
"""

import asyncio
import logging
from collections.abc import Callable

from nodedevice_agent.devicemanager.snapshot import Snapshot, snapshot
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet.advertised import offer
from nodedevice_agent.kubelet.condition import KubeletStanding, Stand, injectable
from nodedevice_agent.kubelet.directory import KubeletDirectory
from nodedevice_agent.kubelet.endpoint import KubeletEndpoint
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.kubelet.state_reader import HoldingsReader
from nodedevice_agent.lib.file_watcher import FileWatcher

log = logging.getLogger(__name__)


class KubeletBackend:
    """start() before plugins are served, resource_changed() for each resource that may have changed.

    news: a condition has changed. grace_seconds: for how long a kubelet that starts anew is not told to be away.
    """

    is_settled = True

    def __init__(
        self,
        mirror: Mirror,
        host: PluginHost,
        directory: KubeletDirectory,
        news: Callable[[str], None],
        grace_seconds: float,
    ) -> None:
        self._mirror = mirror
        self._host = host
        self._directory = directory
        self._news = news
        self._grace_seconds = grace_seconds
        self._watcher = FileWatcher()
        self._reader = HoldingsReader(directory, mirror, host.do, host.now, self._watcher, self._trouble)
        self._endpoints: dict[str, KubeletEndpoint] = {}
        self._tasks: asyncio.TaskGroup

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Ask the kubelet once who holds what; everything that goes on from here on is a task of that group."""
        self._tasks = tasks
        watching = asyncio.Event()
        tasks.create_task(self._watch(watching))
        await watching.wait()
        await self._reader.look()
        tasks.create_task(self._reader.run())
        log.info("the kubelet allocates", extra={"directory": str(self._directory.path)})

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
                self._news,
                self._grace_seconds,
            )
            self._tasks.create_task(endpoint.run())
        endpoint.show(offer(self._mirror.resources[resource_name], self._mirror.book.holders(resource_name)))
        if self._mirror.is_outdated:
            self._reader.poke()

    def snapshot(self, resource_name: str) -> Snapshot:
        return snapshot(self._mirror, resource_name)

    def injectable(self, now: Snapshot) -> tuple[str, str, str]:
        """Status, reason and message of the condition Injectable."""
        endpoint = self._endpoints.get(now.resource_name)
        return injectable(endpoint.standing if endpoint else KubeletStanding(Stand.NOTHING_TO_SHOW))

    @property
    def notes(self) -> str:
        """What an administrator should know of the kubelet's checkpoint; "" when all is well."""
        if not self._reader.trouble:
            return ""
        return (
            f"the kubelet's checkpoint {self._directory.checkpoint} cannot be used ({self._reader.trouble}); "
            "who holds what is taken from its pod resources alone, init containers left out"
        )

    def _trouble(self) -> None:
        for resource_name in self._mirror.resources:
            self._news(resource_name)

    async def _watch(self, watching: asyncio.Event) -> None:
        with self._watcher:
            watching.set()
            await asyncio.Event().wait()
