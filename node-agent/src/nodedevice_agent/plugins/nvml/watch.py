"""Keeps the state of the GPUs: runs the reader, handles its messages, and publishes the devices.

Runs in the agent's event loop and never calls the driver. A reader that exits or hangs is restarted; GPUs become unhealthy only
when no reader has reported for a few seconds, and a mark (why a GPU needs a reset) survives all of that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from nodedevice_api.names import Reason
from nodedevice_common.paced_log import PacedLog
from nodedevice_common.pacing import Backoff
from nodedevice_common.threads import in_thread

from nodedevice_agent.lib.deviceplugin_server.values import Injector, NodeLabels
from nodedevice_agent.lib.file_watcher import FileWatcher, Subscription
from nodedevice_agent.lib.patient_reads import with_deadlines
from nodedevice_agent.plugins.nvml.boot_memory import Memory
from nodedevice_agent.plugins.nvml.driver_release import DriverRelease
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.limited_source import source_of
from nodedevice_agent.plugins.nvml.node_gpus import Change, Fleet
from nodedevice_agent.plugins.nvml.parts import Use, uses_of
from nodedevice_agent.plugins.nvml.pci_bus import has_nvidia_device
from nodedevice_agent.plugins.nvml.reader import messages
from nodedevice_agent.plugins.nvml.reader.process import ReaderFailed, Succession
from nodedevice_agent.plugins.nvml.reasons import GpuReason
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.nvml.source import HostOfGpus, NvmlSource
from nodedevice_agent.plugins.nvml.xids import meaning

log = logging.getLogger(__name__)

# A reader that crashed is back within a second; GPUs stay healthy meanwhile.
_GRACE_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 0.2
_HEALTHY_AFTER_SECONDS = 60.0
_MIN_RESCAN_SECONDS = 1.0
# A node without GPUs is rarely rescanned; a driver that is installed appears in /dev at once.
_IDLE_SECONDS = 300.0
# While NVML is closed, how often the host's files about GPUs are read.
_CLOSED_SECONDS = 5.0
# Rescan rarely after a hanging call: it may hang again, and its GPU is unhealthy meanwhile.
_PARTIAL_SECONDS = 600.0

# display controllers: VGA and 3D
_DISPLAY_CLASS = "0x03"

T = TypeVar("T")


class GpuWatch:
    """wanted: each resource that has something to serve, once; a node without GPUs serves none."""

    def __init__(
        self,
        settings: NvmlSettings,
        host_root: str,
        state_dir: Path,
        watcher: FileWatcher,
        injector: Injector | None = None,
        labels: NodeLabels | None = None,
        make_readers: Callable[[messages.ReaderOptions], Succession] = Succession,
    ) -> None:
        """labels: the node's. make_readers: starts the processes that read the driver."""
        self._settings = settings
        self._host_root = host_root
        self._host = HostOfGpus.seen_at(host_root, settings, injector)
        self._state_dir = state_dir
        self._memory = Memory(state_dir)
        # the remembered state of the GPUs may have changed
        self._remembered_due = asyncio.Event()
        self._release = DriverRelease(state_dir, labels)
        # the readers; one of them may hang in the kernel, with NVML open
        self._hanging: Succession | None = None
        self._fleet = Fleet(settings.health_rules(), self._memory.read())
        self._make_readers = make_readers
        self._dev = Path(host_root) / "dev"
        self._watcher = watcher
        self._xid_log = PacedLog(log)
        self._logged = ""
        self._grace: asyncio.TimerHandle | None = None
        # an event in /dev that may mean other GPUs
        self._dev_changed = asyncio.Event()
        self.wanted: asyncio.Queue[NvmlSource] = asyncio.Queue()
        self._sources: dict[str, NvmlSource] = {}
        # of the directories with specifications
        self._specs_changed: Subscription | None = None
        # start of the last inventory, in event loop seconds; set by _note_scan()
        self._scanned_at: float

    async def run(self) -> None:
        """Run until cancelled. Raises OSError when no reader can be started."""
        uses_cdi = self._settings.uses_cdi
        if uses_cdi:
            await self._host.specs.refresh()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_files())
                if uses_cdi:
                    group.create_task(self._watch_specs())
                group.create_task(self._keep_reading())
                group.create_task(self._release.follow())
                group.create_task(self._keep_remembered())
        except Exception:
            # no reader runs until the next run, which may fail as well
            self._begin_grace()
            raise
        except asyncio.CancelledError:
            self.end_grace()
            raise
        finally:
            self._xid_log.flush()
            # changes of the last moment
            self._memory.write(self._fleet.remembered())

    async def _keep_remembered(self) -> None:
        """Off the event loop: the disk may hang without delaying anything else."""
        while True:
            await self._remembered_due.wait()
            self._remembered_due.clear()
            await in_thread(partial(self._memory.write, self._fleet.remembered()))

    # -- the reader --------------------------------------------------------------------------------------------------

    async def _keep_reading(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, self._settings.rescan_seconds)
        loop = asyncio.get_running_loop()
        # an earlier run may have left it
        await self._wait_for_hanging()
        while True:
            await self._stay_closed()
            began = loop.time()
            self._release.opening()
            problem = await self._unless_released(self._read())
            await self._wait_for_hanging()
            if self._release.message:
                continue
            if loop.time() - began > _HEALTHY_AFTER_SECONDS:
                backoff.reset()
            pause = self._settings.rescan_seconds
            if problem is None:
                self._begin_grace()
                pause = backoff.next()
            elif problem.is_absent and not self._is_expected():
                pause = _IDLE_SECONDS
            await self._unless_released(_happens(self._dev_changed.wait(), pause))

    async def _stay_closed(self) -> None:
        """Return when NVML may be open."""
        while self._release.message:
            self.end_grace()
            self._driver_failed(Trouble(Reason.DRIVER_RELEASED, f"NVML is closed: {self._release.message}"))
            self._release.closed()
            while not await _happens(self._release.changed(), _CLOSED_SECONDS):
                # the driver may be loaded again meanwhile, with other numbers of device files
                self._publish()

    async def _unless_released(self, doing: Coroutine[Any, Any, T]) -> T | None:
        """The result; None when the driver is to be released first, and then it has been cancelled."""
        work, released = asyncio.ensure_future(doing), asyncio.ensure_future(self._release.requested())
        try:
            await asyncio.wait({work, released}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            for task in (work, released):
                task.cancel()
            await asyncio.gather(work, released, return_exceptions=True)

    async def _wait_for_hanging(self) -> None:
        """For a reader that cannot be killed, if there is one."""
        if self._hanging is not None:
            self.end_grace()
            message = "the NVIDIA driver blocks its reader for good: reboot the node"
            self._driver_failed(Trouble(GpuReason.DRIVER_HANGS, message))
            await self._hanging.ended()
            self._hanging = None

    async def _read(self) -> messages.Problem | None:
        """Run readers until the last one exits. Returns the driver's problem, if that was the reason. Raises OSError."""
        settings = self._settings
        options = messages.ReaderOptions(
            settings.poll_seconds, settings.call_seconds, self._host_root, settings.library_dir
        )
        readers = self._make_readers(options)
        self._note_scan()
        problem = None
        try:
            async with aclosing(readers.messages()) as received:
                async for message in received:
                    self._take(message)
                    if isinstance(message, messages.Problem | messages.Found):
                        problem = message if isinstance(message, messages.Problem) else None
                    readers.order(messages.Orders(self._fleet.energy_seconds()))
                    if isinstance(message, messages.Readings) and readers.may_rescan and self._is_rescan_due():
                        self._note_scan()
                        readers.rescan()
        except ReaderFailed as error:
            log.error("GPU reader failed; restarting it", extra={"error": str(error)})
        finally:
            if not await readers.end():
                self._hanging = readers
        return problem

    def _note_scan(self) -> None:
        self._dev_changed.clear()
        self._scanned_at = asyncio.get_running_loop().time()

    def _is_rescan_due(self) -> bool:
        """Whether GPUs may have come back or changed."""
        since = asyncio.get_running_loop().time() - self._scanned_at
        is_wanted = self._dev_changed.is_set() and since >= _MIN_RESCAN_SECONDS
        patience = _PARTIAL_SECONDS if self._fleet.is_whole else self._settings.rescan_seconds
        return is_wanted or ((self._fleet.is_partial or not self._fleet.is_whole) and since >= patience)

    def _take(self, message: messages.Message) -> None:
        match message:
            case messages.Found():
                self._found(message)
            case messages.Problem():
                self.end_grace()
                self._driver_failed(Trouble(message.reason, message.message))
            case messages.Readings():
                self._log_changes(self._fleet.read(message.readings))
            case messages.Xid():
                self._log_xid(message)
                self._log_changes(self._fleet.xid(message.uuid, message.xid, message.place))
            case messages.EccError():
                self._log_changes(self._fleet.ecc(message.uuid))
            case messages.Changed():
                self._dev_changed.set()
            case messages.Described():
                self._log_described(self._fleet.described(message.gpus))
            case messages.Alive():
                return
        self._publish()

    def _found(self, message: messages.Found) -> None:
        self.end_grace()
        self._fleet.unread(None)
        self._log_changes(self._fleet.found(message))
        # repeated rescans for a missing GPU that find the same GPUs are logged at debug level
        extra = {"gpus": len(message.gpus), "driver": message.driver_version, "unnamed": message.unnamed}
        found = str(sorted(gpu.uuid for gpu in message.gpus)) + str(extra)
        log.log(logging.DEBUG if found == self._logged else logging.INFO, "GPUs found", extra=extra)
        self._logged = found
        if self._specs_changed is not None:
            # the driver may have another version now: specifications may name files that are gone
            self._specs_changed.wake()

    # -- consequences ----------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        uses: dict[str, list[tuple[Gpu, Use]]] = {name: [] for name in self._sources}
        if self._is_expected():
            uses.setdefault(self._settings.resource_names()[0], [])
        for _, gpu in sorted(self._fleet.gpus.items()):
            for use in uses_of(gpu, self._settings):
                uses.setdefault(use.resource_name, []).append((gpu, use))
        for name, of_this in uses.items():
            self._source(name).publish(of_this)
        self._remembered_due.set()

    def _source(self, resource_name: str) -> NvmlSource:
        if resource_name not in self._sources:
            source = source_of(resource_name, self._settings, self._host, self._fleet, self._state_dir)
            self._sources[resource_name] = source
            self.wanted.put_nowait(source)
        return self._sources[resource_name]

    def _is_expected(self) -> bool:
        """Whether the node has or had GPUs: only then the API reports that none can be used."""
        return bool(self._fleet.gpus) or has_gpu(self._host_root)

    def _driver_failed(self, trouble: Trouble) -> None:
        if self._fleet.unread(trouble):
            extra = {"reason": trouble.reason, "error": trouble.message}
            if trouble.reason == Reason.DRIVER_RELEASED:
                log.info("NVML is closed on request; GPUs are not read", extra=extra)
            elif self._is_expected():
                log.error("GPUs cannot be read", extra=extra)
            else:
                log.info("no GPU found; the nvml plugin is idle", extra=extra)
        self._logged = ""
        self._publish()

    def _begin_grace(self) -> None:
        """No reader runs; GPUs become unhealthy only after a grace period."""
        if self._grace is None:
            self._grace = asyncio.get_running_loop().call_later(_GRACE_SECONDS, self._grace_over)

    def _grace_over(self) -> None:
        self._grace = None
        message = "the process that reads the NVIDIA driver keeps failing; see the agent's log"
        self._driver_failed(Trouble(GpuReason.READER_FAILED, message))

    def end_grace(self) -> None:
        """A reader reports, or none is expected any more."""
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def _log_changes(self, changes: Iterable[Change]) -> None:
        for change in changes:
            extra = {"uuid": change.uuid, "how": change.how}
            if change.trouble is None:
                log.info("GPU is healthy again or was removed", extra=extra)
            else:
                extra |= {"reason": change.trouble.reason, "error": change.trouble.message}
                log.error("GPU is unhealthy", extra=extra)

    def _log_described(self, changed: Sequence[tuple[Gpu, Gpu]]) -> None:
        for before, gpu in changed:
            if gpu.instances != before.instances:
                self._log_instances(gpu)
        if all(gpu.not_supported == before.not_supported for before, gpu in changed):
            return
        lacking = {gpu.uuid: gpu.not_supported for gpu in self._fleet.gpus.values() if gpu.not_supported}
        log.info("GPUs lack some features", extra={"not_supported": lacking})
        without_events = sorted(uuid for uuid, features in lacking.items() if "events" in features)
        if without_events:
            extra = {"uuids": without_events, "poll_seconds": self._settings.poll_seconds}
            log.warning("GPUs report no events; relying on polling", extra=extra)

    def _log_instances(self, gpu: Gpu) -> None:
        if gpu.instances is None:
            log.info("GPU is not in MIG mode any more", extra={"uuid": gpu.uuid})
        else:
            profiles = [instance.profile for instance in gpu.instances]
            log.info("GPU in MIG mode", extra={"uuid": gpu.uuid, "profiles": profiles, "mig": self._settings.mig})

    def _log_xid(self, message: messages.Xid) -> None:
        fields = {"uuid": message.uuid, "xid": message.xid, "meaning": meaning(message.xid), "count": message.count}
        if message.place is not None:
            fields["gpu_instance"] = message.place.gpu_instance
        self._xid_log.log(logging.WARNING, "GPU reported Xid", f"{message.uuid} {message.xid}", **fields)

    # -- files ---------------------------------------------------------------------------------------------------------

    async def _watch_files(self) -> None:
        """Follow clear requests, and names of device files: each program that ends closes these, which it had open for writing."""
        with closing(self._watcher.subscribe()) as subscription:
            while True:
                subscription.follow([self._dev, self._memory.clear_dir])
                self._take_clears()
                events = await subscription.wait(_IDLE_SECONDS)
                if any(path.parent == self._dev and path.name.startswith("nvidia") for path in events):
                    self._dev_changed.set()

    async def _watch_specs(self) -> None:
        """Publish the way in which containers would get their GPUs; Allocate reads the specifications itself."""
        with closing(self._watcher.subscribe()) as subscription:
            self._specs_changed = subscription
            while True:
                subscription.follow(self._host.specs.directories, contents=True)
                if await self._host.specs.refresh():
                    self._publish()
                await subscription.wait(_IDLE_SECONDS)

    def _take_clears(self) -> None:
        uuids = self._memory.take_clears()
        for uuid in uuids:
            self._log_changes(self._fleet.cleared(uuid))
        if uuids:
            self._publish()


async def _happens(event: Awaitable[object], seconds: float) -> bool:
    """Wait for an event. Returns whether it came in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event
            return True
    return False


def has_gpu(host_root: str) -> bool:
    """Whether the PCI bus has an NVIDIA GPU, with or without a driver. False when sysfs cannot be read."""
    return with_deadlines(lambda: has_nvidia_device(Path(host_root, "sys/bus/pci/devices"), _DISPLAY_CLASS))
