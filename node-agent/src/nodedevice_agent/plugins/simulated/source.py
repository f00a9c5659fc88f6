"""The simulated plugin: devices without hardware, for trials, demos and tests.

Their health and presence follow a state file, which people edit and the `simulate` command writes. An invalid edit changes
nothing and is logged once.
"""

import logging
import os
from functools import partial
from pathlib import Path

from nodedevice_common.tasks import apart
from nodedevice_common.threads import in_thread

from nodedevice_agent.lib.deviceplugin_server.server import NO_TROUBLE, DeviceList, DeviceSource
from nodedevice_agent.lib.deviceplugin_server.values import ContainerAllocation, ContainerIdentity, shared_ids
from nodedevice_agent.lib.file_watcher import FileWatcher, Subscription
from nodedevice_agent.plugins.room import Room
from nodedevice_agent.plugins.simulated.control import (
    Listing,
    StateFileError,
    read_state,
    state_path,
    write_listing,
    write_state,
)
from nodedevice_agent.plugins.simulated.devices import (
    MAX_SIMULATED,
    SimulatedState,
    allocate,
    preferred,
    simulated_devices,
    simulated_ids,
)
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings

log = logging.getLogger(__name__)

_RESCAN_SECONDS = 30.0
# after a failed read: no event shows when the next one would succeed
_RETRY_SECONDS = 1.0


class SimulatedSource(DeviceSource):
    """Simulated devices of one resource."""

    def __init__(
        self, settings: SimulatedSettings, state_dir: Path, watcher: FileWatcher, room: Room | None = None
    ) -> None:
        """room: of all built-in plugins."""
        self._room = room or Room()
        self.resource_name = settings.resource_name
        self.devices = DeviceList(settings.part_rules)
        self.prefers = settings.prefers
        self._settings = settings
        self._state_dir = state_dir
        self._path = state_path(state_dir, settings.resource_name)
        self._watcher = watcher
        self._subscription: Subscription | None = None
        self._listed_ids: tuple[str, ...] | None = None
        self._logged = ""
        self._is_unread = False

    def reconfigure(self, settings: SimulatedSettings) -> None:
        """Use these settings from now on; they have the same resource, and the same rules of parts."""
        self._settings = settings
        if self._subscription is not None:
            self._subscription.wake()

    async def read(self) -> None:
        """Create the state file if it is missing, read it, and publish the devices. Raises OSError."""
        await in_thread(self._make)
        await self._read()

    def _make(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.exists(self._path):
            write_state(self._path, self.resource_name, SimulatedState())

    async def run(self) -> None:
        """Read the state file at once, at each change of it or of the settings, and every half minute."""
        folder = self._path.parent
        subscription = self._subscription = self._watcher.subscribe()
        happened: frozenset[Path] = frozenset()
        settings = self._settings
        try:
            while True:
                if not happened or self._path in happened or folder in happened or settings is not self._settings:
                    settings = self._settings
                    # followed before it is read, so that an edit in between is an event
                    subscription.follow([folder], contents=True)
                    await self._read()
                happened = await subscription.wait(_RETRY_SECONDS if self._is_unread else _RESCAN_SECONDS)
        finally:
            self._subscription = None
            subscription.close()

    def allocate(self, device_ids: list[str], container: ContainerIdentity | None) -> ContainerAllocation:
        return allocate(self.resource_name, device_ids)

    def preferred(self, free: set[str], must_include: list[str], size: int) -> tuple[str, ...]:
        return preferred({device.id: device.numa_nodes for device in self.devices.latest}, free, must_include, size)

    async def _read(self) -> None:
        self._is_unread = False
        try:
            # a MiB of YAML takes seconds to decode
            state = await in_thread(partial(read_state, self._path))
        except FileNotFoundError:
            self._log(logging.INFO, "state file was deleted; keeping the last state", "")
            return
        except (StateFileError, OSError) as error:
            self._is_unread = isinstance(error, OSError)
            self._log(logging.ERROR, "state file is invalid or unreadable; keeping the last good state", str(error))
            return
        count = self._settings.count if state.count is None else state.count
        part_count = self._settings.parts_per_device
        # a state file may name more devices than there may be parts
        most = min(MAX_SIMULATED, self._room.left(self.resource_name)) // part_count
        ids = simulated_ids(self._settings.prefix(), min(count, most))
        self._room.note(self.resource_name, len(ids) * part_count)
        known = ids if part_count == 1 else (*ids, *(part for name in ids for part in shared_ids(name, part_count)))
        self._warn_unknown(state.unknown(known), ids)
        if ids != self._listed_ids:
            # for the simulate command alone; the next rescan retries a failed write
            with apart("list of simulated devices", resource_name=self.resource_name):
                write_listing(self._state_dir, Listing(self.resource_name, list(known)))
                self._listed_ids = ids
        # ten thousand take a turn of the loop
        devices = await in_thread(partial(simulated_devices, ids, self._settings.numa_nodes, state, part_count))
        is_cut = min(count, MAX_SIMULATED // part_count) > most
        problem = self._room.problem(self.resource_name, most * part_count, "lower count or partsPerDevice")
        if self.devices.publish(devices, ("TooManyDevices", problem) if is_cut else NO_TROUBLE):
            unhealthy = sum(not device.is_healthy for device in devices)
            log.info(
                "devices changed",
                extra={"resource_name": self.resource_name, "devices": len(devices), "unhealthy": unhealthy},
            )

    def _warn_unknown(self, unknown: tuple[str, ...], ids: tuple[str, ...]) -> None:
        if not unknown:
            self._logged = ""
            return
        known = f"{ids[0]} to {ids[-1]}" if ids else "none"
        problem = f"{self._path}: no such device: {', '.join(unknown[:10])}; there are: {known}"
        self._log(logging.WARNING, "state file names unknown devices; ignoring them", problem)

    def _log(self, level: int, event: str, error: str) -> None:
        """Log each new problem once, not at every rescan."""
        problem = f"{event} {error}"
        if problem != self._logged:
            log.log(level, event, extra={"resource_name": self.resource_name, "path": str(self._path), "error": error})
        self._logged = problem
