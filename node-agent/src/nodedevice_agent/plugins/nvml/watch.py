"""Keeps the GPUs' state right: starts the reader again and again, takes in what it tells, and publishes what follows.

Runs in the agent's event loop and never calls the driver. A reader that ends or hangs is started anew; only when none has
answered for a few seconds do the GPUs count as not healthy, and a mark that says why a GPU has to be reset outlives all of that.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path

from nodedevice_common.backoff import Backoff

from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.nvml.fleet import Change, Fleet
from nodedevice_agent.plugins.nvml.health.boot_memory import Clears, Memory, clear_dir
from nodedevice_agent.plugins.nvml.health.health import Trouble
from nodedevice_agent.plugins.nvml.health.xids import XidStorms, meaning
from nodedevice_agent.plugins.nvml.reader.messages import (
    Alive,
    Changed,
    EccError,
    Found,
    Lacking,
    Message,
    Problem,
    ReaderOptions,
    Readings,
    Xid,
)
from nodedevice_agent.plugins.nvml.reader.process import ReaderFailed
from nodedevice_agent.plugins.nvml.reader.succession import Succession
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.nvml.source import NvmlSource

log = logging.getLogger(__name__)

# A reader that crashed is back within a second; GPUs need not go and come for that.
_GRACE_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 0.2
_WELL_AFTER_SECONDS = 60.0
_LEAST_PAUSE_SECONDS = 1.0
# A node without GPUs is left in peace; a driver that is installed shows in /dev at once.
_IDLE_SECONDS = 300.0
# A call that hung while GPUs were looked for may hang again, and its GPU is not given out meanwhile: seldom.
_PARTIAL_SECONDS = 600.0


class GpuWatch:
    """sources: one for each resource name."""

    def __init__(self, settings: NvmlSettings, host_root: str, state_dir: Path, watcher: FileWatcher) -> None:
        self._settings = settings
        self._host_root = host_root
        self._memory = Memory(state_dir)
        self._fleet = Fleet(settings.health_rules(), self._memory.read())
        self._clears = Clears(clear_dir(state_dir))
        self._dev = Path(host_root) / "dev"
        self._watcher = watcher
        self._storms = XidStorms()
        self._said = ""
        self._grace: asyncio.TimerHandle | None = None
        # something happened in /dev that may mean other GPUs
        self._news = asyncio.Event()
        self.sources = tuple(NvmlSource(name, settings, host_root, self._fleet) for name in settings.resource_names())
        # when a reader last began, in event loop seconds
        self._looked_at = 0.0

    async def run(self) -> None:
        """Until cancelled. Raises OSError when no reader can be started at all."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_files())
                group.create_task(self._keep_reading())
        finally:
            self._end_grace()

    # -- the reader --------------------------------------------------------------------------------------------------

    async def _keep_reading(self) -> None:
        pauses = Backoff(_FIRST_PAUSE_SECONDS, self._settings.rescan_seconds)
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            problem = await self._read()
            if loop.time() - began > _WELL_AFTER_SECONDS:
                pauses.reset()
            if problem is None:
                self._miss()
                await self._pause(pauses.next())
            elif problem.is_absent and not self._is_expected():
                await self._pause(_IDLE_SECONDS)
            else:
                await self._pause(self._settings.rescan_seconds)

    async def _read(self) -> Problem | None:
        """From a reader's start until there is none. Returns what the driver's trouble was, if that was the cause.

        Raises OSError.
        """
        settings = self._settings
        options = ReaderOptions(settings.poll_seconds, settings.call_seconds, self._host_root)
        readers = Succession(options, settings.library_dir)
        self._begin_look()
        problem = None
        try:
            await readers.start()
            async with aclosing(readers.messages()) as messages:
                async for message in messages:
                    self._take(message)
                    problem = (
                        message if isinstance(message, Problem) else None if isinstance(message, Found) else problem
                    )
                    if isinstance(message, Readings) and readers.may_look_anew and self._is_new_look_due():
                        self._begin_look()
                        readers.look_anew()
        except ReaderFailed as error:
            log.error("GPU reader failed; a new one is started", extra={"error": str(error)})
        finally:
            has_ended = await readers.end()
        if not has_ended:
            self._is_unread(Trouble("DriverHangs", "the NVIDIA driver does not let go of its reader: reboot the node"))
            await readers.ended()
        return problem

    def _begin_look(self) -> None:
        self._news.clear()
        self._looked_at = asyncio.get_running_loop().time()

    def _is_new_look_due(self) -> bool:
        """GPUs may have come back, or changed."""
        since = asyncio.get_running_loop().time() - self._looked_at
        is_wanted = self._news.is_set() and since >= _LEAST_PAUSE_SECONDS
        patience = _PARTIAL_SECONDS if self._fleet.is_whole else self._settings.rescan_seconds
        return is_wanted or ((self._fleet.is_partial or not self._fleet.is_whole) and since >= patience)

    def _take(self, message: Message) -> None:
        match message:
            case Found():
                self._found(message)
            case Problem():
                self._end_grace()
                self._is_unread(Trouble(message.reason, message.message))
            case Readings():
                self._tell(self._fleet.read(message.readings))
            case Xid():
                self._tell_xid(message)
                self._tell(self._fleet.xid(message.uuid, message.xid))
            case EccError():
                self._tell(self._fleet.ecc(message.uuid))
            case Changed():
                self._news.set()
            case Lacking():
                if self._fleet.lacking(message.not_supported):
                    self._tell_lacking(message)
            case Alive():
                return
        self._publish()

    def _found(self, message: Found) -> None:
        self._end_grace()
        self._fleet.unread(None)
        self._tell(self._fleet.found(message.inventory()))
        # the same GPUs, found again and again while one is awaited, are no news
        extra = {
            "gpus": len(message.gpus),
            "driver": message.driver_version,
            "unnamed": message.unnamed,
        }
        said = str(sorted(gpu.gpu.uuid for gpu in message.gpus)) + str(extra)
        log.log(logging.DEBUG if said == self._said else logging.INFO, "GPUs found", extra=extra)
        self._said = said

    # -- what follows ------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        for source in self.sources:
            source.publish()
            if source.devices.latest or (source is self.sources[0] and self._is_expected()):
                source.is_wanted.set()
        self._memory.write(self._fleet.remembered())

    def _is_expected(self) -> bool:
        """There are GPUs here, or were: that none can be used is then worth saying in the API."""
        return bool(self._fleet.gpus) or has_gpu(self._host_root)

    def _is_unread(self, trouble: Trouble) -> None:
        if self._fleet.unread(trouble):
            extra = {"reason": trouble.reason, "error": trouble.message}
            if self._is_expected():
                log.error("GPUs cannot be read", extra=extra)
            else:
                log.info("no GPU here; the nvml plugin is idle", extra=extra)
        self._said = ""
        self._publish()

    def _miss(self) -> None:
        """The reader is away; for a moment that harms nobody."""
        if self._grace is None:
            self._grace = asyncio.get_running_loop().call_later(_GRACE_SECONDS, self._missed)

    def _missed(self) -> None:
        self._grace = None
        words = "the process that reads the NVIDIA driver keeps failing; the agent's log says why"
        self._is_unread(Trouble("ReaderFailed", words))

    def _end_grace(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def _tell(self, changes: Iterable[Change]) -> None:
        for change in changes:
            extra = {"uuid": change.uuid, "how": change.how}
            if change.trouble is None:
                log.info("GPU is well again, or forgotten", extra=extra)
            else:
                extra |= {"reason": change.trouble.reason, "error": change.trouble.message}
                log.error("GPU is not healthy", extra=extra)

    def _tell_lacking(self, message: Lacking) -> None:
        lacking = {uuid: features for uuid, features in message.not_supported.items() if features}
        log.info("GPUs do not support everything", extra={"not_supported": lacking})
        deaf = sorted(uuid for uuid, features in lacking.items() if "events" in features)
        if deaf:
            extra = {"uuids": deaf, "poll_seconds": self._settings.poll_seconds}
            log.warning("GPUs tell no events; only what shows when they are looked at is seen", extra=extra)

    def _tell_xid(self, message: Xid) -> None:
        now = asyncio.get_running_loop().time()
        count = self._storms.seen(message.uuid, message.xid, message.count, now)
        if count:
            extra = {"uuid": message.uuid, "xid": message.xid, "meaning": meaning(message.xid), "count": count}
            log.warning("Xid", extra=extra)

    # -- files ---------------------------------------------------------------------------------------------------------

    async def _follow_files(self) -> None:
        """An administrator's word, and device files that come and go."""
        subscription = self._watcher.subscribe()
        try:
            while True:
                subscription.follow([self._dev, self._clears.folder], contents=True)
                self._take_clears()
                happened = await subscription.wait(_IDLE_SECONDS)
                if any(path.parent == self._dev and path.name.startswith("nvidia") for path in happened):
                    self._news.set()
        finally:
            subscription.close()

    def _take_clears(self) -> None:
        uuids = self._clears.take()
        for uuid in uuids:
            self._tell(self._fleet.cleared(uuid))
        if uuids:
            self._publish()

    async def _pause(self, seconds: float) -> None:
        """Until then, or until something happens in /dev."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return


_VENDOR = "0x10de"
# display controllers: VGA and 3D
_CLASS = "0x03"


def has_gpu(host_root: str) -> bool:
    """From sysfs; False where that cannot be read."""
    devices = Path(host_root) / "sys/bus/pci/devices"
    try:
        return any(_is_gpu(device) for device in devices.iterdir())
    except OSError:
        return False


def _is_gpu(device: Path) -> bool:
    try:
        vendor = (device / "vendor").read_text(encoding="ascii").strip()
        return vendor == _VENDOR and (device / "class").read_text(encoding="ascii").startswith(_CLASS)
    except OSError:
        return False
