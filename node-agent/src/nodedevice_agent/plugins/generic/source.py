"""The generic plugin: device files of the host as devices, which come and go with the files.

A device is healthy as long as its files exist. Behaves like the generic device plugins in use, with one difference: paths of one
device are joined by name, not by position (see devices.py).
A thread searches for the files: the kernel may block a reader of sysfs for as long as a device hangs.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import islice, takewhile
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from nodedevice_api.names import Reason

from nodedevice_agent.lib.deviceplugin_server.server import NO_TROUBLE, DeviceList, DeviceSource, Trouble
from nodedevice_agent.lib.deviceplugin_server.values import (
    AllocationRefused,
    ContainerAllocation,
    ContainerIdentity,
    some,
)
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.lib.file_watcher import FileWatcher, Subscription
from nodedevice_agent.lib.filesystem import names_in, unanswered
from nodedevice_agent.plugins.generic import udev
from nodedevice_agent.plugins.generic.absent import (
    incomplete,
    no_match,
    not_readable,
    not_shared,
    same_device,
    wrong_paths,
)
from nodedevice_agent.plugins.generic.devices import GenericDevice, allocate, device_count, generic_devices
from nodedevice_agent.plugins.generic.doubt import confirmed
from nodedevice_agent.plugins.generic.files import found_file, udev_links
from nodedevice_agent.plugins.generic.found import Found, FoundFile, incomplete_devices
from nodedevice_agent.plugins.generic.offers import Choice, choose
from nodedevice_agent.plugins.generic.scan import SelectScan
from nodedevice_agent.plugins.generic.serials import Serials
from nodedevice_agent.plugins.generic.serials_file import SerialsFile
from nodedevice_agent.plugins.generic.settings import GenericSettings, GroupSettings
from nodedevice_agent.plugins.generic.shared_links import advice as same_links
from nodedevice_agent.plugins.generic.shared_links import by_id, shared_links
from nodedevice_agent.plugins.generic.stable_names import advice, stable_names
from nodedevice_agent.plugins.generic.sysfs import Sysfs
from nodedevice_agent.plugins.generic.uevents import Uevents
from nodedevice_agent.plugins.generic.unread import RETRY_SECONDS, Unread
from nodedevice_agent.plugins.patterns import Captures, matched, wildcard_count
from nodedevice_agent.plugins.room import Room

log = logging.getLogger(__name__)

# A much longer list does not fit into a message of the API; a pattern with so many matches is a mistake.
MAX_DEVICES = 10_000
_RESCAN_SECONDS = 30.0
_UDEV_POLL_SECONDS = 0.25
_SETTLE_SECONDS = 0.1
# Directories; what happens in others is seen at the next scan. A pattern with two wildcards may lead to thousands.
_MAX_FOLLOWED = 512
# selections in a message
_MAX_NAMED = 3
_UNREAD = "the kernel's files about it cannot be read"


class _Look(Struct):
    """The result of a search.

    directories: changes in them could change it. unconfirmed: why each of these devices is not allocated now.
    unmatched: groups without a device.
    """

    by_id: Mapping[str, GenericDevice]
    trouble: Trouble
    directories: frozenset[Path]
    unconfirmed: Mapping[str, str] = {}
    unmatched: tuple[int, ...] = ()


class GenericSource(DeviceSource):
    """Device files of one resource."""

    # the distance between device files is unknown
    prefers = False

    def __init__(
        self,
        settings: GenericSettings,
        host_root: str,
        watcher: FileWatcher,
        state_dir: Path | None = None,
        file_reads: FileReads | None = None,
        room: Room | None = None,
        sysfs: Sysfs | None = None,
    ) -> None:
        """state_dir: for state that survives a restart; None for no such state. file_reads, room, sysfs: shared by all sources."""
        self.resource_name = settings.resource_name
        self.devices = DeviceList(settings.part_rules)
        self._groups = settings.groups
        # called with the groups without a device, None while unknown
        self.note_unmatched: Callable[[str, Sequence[int] | None], None] = lambda resource_name, groups: None
        self._root = host_root.rstrip("/")
        self._serials_file = SerialsFile(state_dir, settings.resource_name) if state_dir is not None else None
        self._serials = Serials(self._serials_file.read() if self._serials_file is not None else {})
        self._room = room or Room()
        self._select = SelectScan(settings.resource_name, self._root, self._serials, sysfs)
        self._watcher = watcher
        self._file_reads = file_reads or FileReads()
        self._by_id: Mapping[str, GenericDevice] = {}
        # since when devices are not confirmed, by ID
        self._doubted_since: Mapping[str, float] = {}
        # the groups of the last search
        self._looked_for: Sequence[GroupSettings] = ()
        self._unread = Unread(settings.resource_name)
        # by event: what the last search had to log
        self._logged: dict[str, Set[object]] = {}
        self._warned: set[str] = set()
        self._last_look: _Look | None = None
        self._directories: frozenset[Path] = frozenset()
        self._subscription: Subscription | None = None

    @property
    def _selects(self) -> bool:
        return any(group.select is not None for group in self._groups)

    @property
    def is_in_doubt(self) -> bool:
        """Whether something could not be read lately, so that it is worth another scan soon."""
        return self._unread.is_doubtful or bool(self.devices.unconfirmed)

    def reconfigure(self, settings: GenericSettings) -> None:
        """Use these settings from now on; they have the same resource, and the same rules of parts."""
        if settings.groups != self._groups:
            self.note_unmatched(self.resource_name, None)
        self._groups = settings.groups
        if self._subscription is not None:
            self._subscription.wake()

    def refresh(self) -> None:
        """Find the files and publish their devices. Blocks."""
        self._publish(self._look(self._groups))

    async def read(self) -> None:
        """Refresh in a thread. If no thread can be started, the last result counts for now. Raises OSError before the first one."""
        self._select.asked_at = time.monotonic()
        try:
            look = await self._file_reads.run(partial(self._look, self._groups))
        except OSError as error:
            if self._last_look is None:
                raise
            self._unread.note({self._root or "/": error.strerror or str(error)}, time.monotonic())
            look = replace(self._last_look, trouble=("NotReadable", error.strerror or str(error)))
        else:
            self._last_look = look
        self._publish(look)

    def _publish(self, look: _Look) -> None:
        self._by_id, self._directories = look.by_id, look.directories
        if self._looked_for is self._groups:
            self.note_unmatched(self.resource_name, look.unmatched)
        devices = (device.listed for device in look.by_id.values())
        if self.devices.publish(devices, look.trouble, unconfirmed=look.unconfirmed):
            log.info("devices changed", extra={"resource_name": self.resource_name, "devices": len(look.by_id)})

    def _look(self, groups: Sequence[GroupSettings]) -> _Look:
        """Runs in one thread at a time. Nothing else uses the state that it keeps in this object."""
        with unanswered() as errors:
            look = self._read_files(groups)
        now = time.monotonic()
        self._unread.note(errors, now)
        known = self._by_id if groups is self._looked_for else {}
        is_doubtful = self._unread.is_doubtful
        found = confirmed(known, look.by_id, self._doubted_since, now, is_doubtful=is_doubtful)
        look.by_id = dict(list(found.listed.items())[:MAX_DEVICES])
        why = f"{self._unread.example or _UNREAD}; it is allocated again when it is found"
        look.unconfirmed = {i: f"{i} is not confirmed: {why}" for i in found.ids if i in look.by_id}
        kept = self._select.kept
        event = "cannot read USB device; its last state counts until it is disconnected"
        self._log_new(event, {path: {"path": path, "error": error} for path, error in kept.items()})
        unconfirmed = some([look.unconfirmed[i] for i in sorted(look.unconfirmed)], "; ")
        look.trouble = _joined(
            look.trouble,
            (Reason.DEVICE_UNCONFIRMED, unconfirmed),
            ("NotReadable", not_readable({**kept, **errors})),
        )
        self._doubted_since = found.since
        self._looked_for = groups
        return look

    def _log_new(self, event: str, facts: Mapping[object, Mapping[str, str]], level: int = logging.WARNING) -> None:
        """Log the facts, by any key, that the last search did not have."""
        logged = self._logged.get(event, frozenset())
        for key in facts:
            if key not in logged:
                log.log(level, event, extra={"resource_name": self.resource_name, **facts[key]})
        self._logged[event] = facts.keys()

    def _read_files(self, groups: Sequence[GroupSettings]) -> _Look:
        directories: set[Path] = set()
        # before sysfs is read: the kernel makes a device's file last
        patterns = dict.fromkeys(path.path for group in groups for path in group.paths)
        most = min(MAX_DEVICES, self._room.left(self.resource_name))
        # one more shows that there are too many
        matching = {pattern: [*islice(self._matches(pattern, directories), most + 1)] for pattern in patterns}
        files = [file for each in matching.values() for file in each]
        selected = self._select.scan(groups, time.monotonic(), files)
        if self._serials_file is not None:
            self._serials_file.write(self._serials.known)
        found = {
            pattern: [self._select.inventory.identified(file) for file in files] for pattern, files in matching.items()
        }
        if any(group.select is not None and group.select.udev for group in groups):
            directories.add(Path(self._root + udev.DATABASE))
        choice = choose(groups, found, selected)
        by_id = generic_devices(groups, choice.listed, most, are_parts=self.devices.part_rules is not None)
        self._room.note(self.resource_name, len(by_id))
        problem = self._trouble(device_count(groups, choice.listed), most)
        self._log_new("not all devices can be listed", _by_trouble([problem]), logging.ERROR)
        not_as_meant = self._not_as_meant(groups, found, choice)
        self._log_new("devices are configured that cannot be listed", _by_trouble(not_as_meant))
        # normal on a node without the hardware, otherwise a wrong setting: not logged
        no_matches = [] if by_id else [no_match(groups, found), *self._select.unmatched[:_MAX_NAMED]]
        trouble = _joined(
            problem,
            *not_as_meant,
            ("KernelNames", self._names_of_the_kernel(found)),
            ("NoMatch", "; ".join(filter(None, no_matches))),
        )
        matched = {offer.group for offer in (*choice.listed, *(each.offer for each in choice.not_listed))}
        unmatched = tuple(index for index in range(len(groups)) if index not in matched)
        # unchanged devices stay the same objects
        same = {i: self._by_id[i] for i, device in by_id.items() if self._by_id.get(i) == device}
        return _Look({**by_id, **same}, trouble, frozenset(directories), unmatched=unmatched)

    def _names_of_the_kernel(self, found: Found) -> str:
        """Names that work today, but may lead a new pod to another device after a reboot. Logged once for each pattern."""
        stable = stable_names(found, udev_links(self._root)) if any(found.values()) else {}
        if not stable:
            return ""
        message = advice(stable)
        if not stable.keys() <= self._warned:
            self._warned |= stable.keys()
            extra = {"resource_name": self.resource_name, "path": ", ".join(stable), "error": message}
            log.warning("device files go by the kernel's names, which are not lasting", extra=extra)
        return message

    def _not_as_meant(self, groups: Sequence[GroupSettings], found: Found, choice: Choice) -> list[Trouble]:
        """Configured devices that cannot be listed."""
        lacking = [*incomplete_devices(groups, found), *self._select.incomplete]
        return [
            ("WrongPath", wrong_paths(groups, found)),
            ("IncompleteDevice", incomplete(lacking)),
            ("NotShared", not_shared(choice.not_listed)),
            ("SameDevice", same_device(choice.not_listed)),
            ("SharedLink", self._shared_links(found, choice)),
        ]

    def _shared_links(self, found: Found, choice: Choice) -> str:
        """Names devices without a link of their own, as another one has it; otherwise ""."""
        files = by_id(found)
        offered = {number for offer in choice.listed for number in offer.own_numbers} if files else ()
        shared = shared_links(files, self._select.twins, offered)
        return same_links(shared, udev_links(self._root)) if shared else ""

    def _trouble(self, found: int, most: int) -> Trouble:
        if found <= most:
            return self._select.trouble
        key = "narrow the paths or the selection"
        if most < MAX_DEVICES:
            return "TooManyDevices", self._room.problem(self.resource_name, most, f"{key} in groups")
        return "TooManyDevices", f"more than {most} devices match, and the first {most} are listed: {key}"

    async def run(self) -> None:
        """Scan at once, at each event in the directories of the patterns or of the kernel's devices, and every half minute."""
        subscription = self._subscription = self._watcher.subscribe()
        try:
            with contextlib.ExitStack() as stack:
                events: Uevents | None = None
                while True:
                    if self._selects and events is None:
                        events = stack.enter_context(Uevents(subscription.wake))
                    await self._follow_and_read(subscription)
                    await self._wait(subscription)
        finally:
            self._subscription = None
            subscription.close()

    async def _wait(self, subscription: Subscription) -> None:
        """Until there may be something new."""
        rescan_seconds = RETRY_SECONDS if self.is_in_doubt else _RESCAN_SECONDS
        await subscription.wait(_UDEV_POLL_SECONDS if self._select.is_waiting else rescan_seconds)
        if self._selects:
            # one device is a dozen events: read sysfs once for all of them
            await asyncio.sleep(_SETTLE_SECONDS)
            subscription.drain()

    async def _follow_and_read(self, subscription: Subscription) -> None:
        """Follow before reading, so that a change in between is an event. Reading may find further directories to follow."""
        followed: frozenset[Path] | None = None
        while followed != self._directories:
            followed = self._directories
            subscription.follow(sorted(followed)[:_MAX_FOLLOWED])
            await self.read()

    def allocate(self, device_ids: list[str], container: ContainerIdentity | None) -> ContainerAllocation:
        """Raises AllocationRefused."""
        for why in (self.devices.unconfirmed[i] for i in device_ids if i in self.devices.unconfirmed):
            raise AllocationRefused(self.resource_name, why)
        return allocate(self.resource_name, self._by_id, device_ids)

    def _matches(self, pattern: str, directories: set[Path]) -> Iterator[FoundFile]:
        """Files that match. Notes the directories whose changes could change that."""
        for path, captures in self._walk("", (), pattern.strip("/").split("/"), directories):
            if (file := found_file(self._root, path, captures)) is not None:
                yield file

    def _walk(
        self, base: str, captures: Captures, parts: list[str], directories: set[Path]
    ) -> Iterator[tuple[str, Captures]]:
        literal = list(takewhile(lambda part: not wildcard_count(part), parts))
        path = "/".join([base, *literal])
        if len(literal) == len(parts):
            directories.add(Path(self._root + path).parent)
            yield path, captures
            return
        pattern, *below = parts[len(literal) :]
        directories.add(Path(f"{self._root}{path}/"))
        for name in names_in(f"{self._root}{path}/"):
            captured = matched(pattern, name)
            if captured is not None:
                yield from self._walk(f"{path}/{name}", captures + captured, below, directories)


def _by_trouble(troubles: Iterable[Trouble]) -> dict[object, dict[str, str]]:
    return {(reason, message): {"reason": reason, "error": message} for reason, message in troubles if message}


def _joined(*troubles: Trouble) -> Trouble:
    """The first reason, and all messages."""
    present = [trouble for trouble in troubles if trouble[1]]
    return (present[0][0], "; ".join(message for _, message in present)) if present else NO_TROUBLE
