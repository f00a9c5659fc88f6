"""Finds the physical devices that groups select, in sysfs and udevd's database, and remembers what an ID depends on."""

import logging
import math
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from nodedevice_agent.lib.deviceplugin_server.server import NO_TROUBLE, Trouble
from nodedevice_agent.lib.filesystem import is_directory, note_again, unanswered
from nodedevice_agent.plugins.generic import udev
from nodedevice_agent.plugins.generic.absent import unmatched
from nodedevice_agent.plugins.generic.files import found_file
from nodedevice_agent.plugins.generic.found import FoundFile, FoundFunction, Incomplete
from nodedevice_agent.plugins.generic.functions import (
    Function,
    Node,
    Properties,
    UsbDevice,
    attributes,
    candidates,
    functions,
    has_properties,
)
from nodedevice_agent.plugins.generic.inventory import Inventory, is_memory
from nodedevice_agent.plugins.generic.names import is_by_port, maker_port_name, names
from nodedevice_agent.plugins.generic.serials import Serials
from nodedevice_agent.plugins.generic.settings import GroupSettings, SelectSettings
from nodedevice_agent.plugins.generic.shared_links import encoded
from nodedevice_agent.plugins.generic.sysfs import Sysfs
from nodedevice_agent.plugins.shared_files import is_shared_file

log = logging.getLogger(__name__)

# After that udevd writes no entry any more: it stores none for a device without properties.
_UDEV_SECONDS = 2.0
# modes of one stick, such as its boot loader and its firmware
_MAX_MODES = 8
# below a bus of USB
_USB_PLACE = re.compile(r"/usb\d+/")


class SelectScan:
    """The devices of one resource's groups that select. root: the host's file tree, without a trailing slash.

    inventory: what the kernel had at the last scan. is_waiting: a new device is left out because udevd may still be working on it;
    scan again soon. trouble: why devices are missing. incomplete: selected devices without all their files in /dev. unmatched: what
    is wrong with each selection that matches no device.
    """

    def __init__(
        self, resource_name: str, root: str, serials: Serials | None = None, sysfs: Sysfs | None = None
    ) -> None:
        """sysfs: of all resources; None for one that is read at each scan."""
        self._resource_name = resource_name
        self._root = root
        self._sysfs = sysfs or Sysfs(root)
        # when the scan was asked for, in monotonic seconds; at each scan, sysfs is read at that time or later
        self.asked_at = math.inf
        self._serials = serials or Serials()
        self.inventory = Inventory((), {}, self._serials.is_own, self._sysfs.names)
        # by selected port: maker's IDs of the devices that were in it, the newest last
        self._modes: dict[str, dict[str, None]] = {}
        # by number and place: when a device file was seen first, and the scan before, which did not see it
        self._seen: dict[tuple[str, str], tuple[float, float]] = {}
        self._scanned_at = 0.0
        self._listed: set[str] = set()
        self._has_udev = True
        self.is_waiting = False
        # errors of the last scan by path, for USB devices that are known to be unchanged
        self.kept: Mapping[str, str] = {}
        self.trouble: Trouble = NO_TROUBLE
        self.incomplete: list[Incomplete] = []
        self.unmatched: list[str] = []

    def scan(
        self, groups: Sequence[GroupSettings], now: float, files: Iterable[FoundFile] = ()
    ) -> dict[int, list[FoundFunction]]:
        """Selected devices, by the index of the group. now: monotonic seconds. files: the files of groups with paths."""
        selects = {index: group.select for index, group in enumerate(groups) if group.select is not None}
        self.incomplete, self.unmatched, self.kept = [], [], {}
        if not selects:
            self._listed, self.is_waiting, self.trouble = set(), False, NO_TROUBLE
            self.inventory = self._inventory_of(files)
            return {}
        scanned_at = time.time()
        with unanswered() as errors:
            self.inventory = self._whole_inventory(self._numbers(files))
        note_again(errors)
        nodes, usb_devices = self.inventory.nodes, self.inventory.usb_devices
        # a device that could not be read is not new when it can be read again
        self._seen = (self._seen if errors else {}) | {
            (node.number, node.sysfs): self._seen.get((node.number, node.sysfs), (now, self._scanned_at))
            for node in nodes
        }
        self._scanned_at = scanned_at
        self._note_udev(selects.values())
        everything = functions(nodes, usb_devices)
        self.is_waiting = False
        listed: set[str] = set()
        found = {}
        for index, select in selects.items():
            matching = [(each, chosen) for each in everything if (chosen := self._chosen(select, each, now))]
            found[index] = [made for each, chosen in matching if (made := self._made(select, each, chosen)) is not None]
            listed |= {each.sysfs for each, _ in matching}
            if not matching and not (select.udev and (self.is_waiting or not self._has_udev)):
                self.unmatched.append(unmatched(select, everything, self._properties))
        self._listed = listed
        return found

    def twins(self, file: FoundFile) -> list[tuple[Node, UsbDevice | None]]:
        """Device files that would have the same link, as udevd or the kernel knows. file: identified, and found by a link."""
        return [*self.inventory.twins(file, udev.claimants(self._root, encoded(file.path)))]

    def _inventory_of(self, files: Iterable[FoundFile]) -> Inventory:
        """The inventory for these files; all of it if one is of a USB device, as another device may have the same serial."""
        numbers = self._numbers(files)
        nodes = self._sysfs.nodes_of(numbers) if not any(map(is_memory, numbers)) else []
        if any(map(is_memory, numbers)) or any(_USB_PLACE.search(node.sysfs) for node in nodes):
            return self._whole_inventory([number for number in numbers if not is_memory(number)])
        return Inventory(nodes, {}, self._serials.is_own, self._sysfs.names, self._sysfs.unread)

    @staticmethod
    def _numbers(files: Iterable[FoundFile]) -> set[str]:
        return {file.number for file in files if file.is_device and not is_shared_file(file.kernel_path)}

    def _whole_inventory(self, numbers: Collection[str] = ()) -> Inventory:
        """numbers: of device files that were found."""
        nodes, usb_devices = self._sysfs.read(self.asked_at, numbers)
        self.asked_at = math.inf
        self.kept = self._sysfs.kept
        for vendor, product, serial in self._serials.note(usb_devices.values()):
            log.warning(
                "USB devices with one and the same serial; their IDs have the port instead",
                extra={"resource_name": self._resource_name, "usb": f"{vendor}:{product}", "serial": serial},
            )
        return Inventory(nodes, usb_devices, self._serials.is_own, self._sysfs.names, self._sysfs.unread)

    def _chosen(self, select: SelectSettings, function: Function, now: float) -> tuple[Node, ...]:
        nodes = candidates(select, function)
        if not nodes or not select.udev:
            return nodes
        entries = [self._entry(node, now) for node in nodes]
        # a listed device stays listed while udevd handles one more of its files
        if function.sysfs not in self._listed and self._is_young(nodes, entries, now):
            self.is_waiting = True
            return ()
        return nodes if any(entry and has_properties(select.udev, entry.properties) for entry in entries) else ()

    def _properties(self, node: Node) -> Properties:
        entry = udev.entry(self._root, node.number)
        return entry.properties if entry else {}

    def _entry(self, node: Node, now: float) -> udev.Entry | None:
        entry = udev.entry(self._root, node.number)
        seen_at, absent_at = self._seen[node.number, node.sysfs]
        # the entry of an earlier device with this number, from before this device appeared
        is_old = entry is not None and entry.written_at < absent_at and now - seen_at < _UDEV_SECONDS
        return None if is_old else entry

    def _is_young(self, nodes: Iterable[Node], entries: Iterable[udev.Entry | None], now: float) -> bool:
        return self._has_udev and any(
            entry is None and now - self._seen[node.number, node.sysfs][0] < _UDEV_SECONDS
            for node, entry in zip(nodes, entries, strict=True)
        )

    def _made(self, select: SelectSettings, function: Function, nodes: tuple[Node, ...]) -> FoundFunction | None:
        """None while one of its files is not in /dev."""
        numa_nodes = self._sysfs.numa_nodes(function.sysfs)
        name, *aliases = names(select, function, self._serials)
        found = [found_file(self._root, node.path) for node in nodes]
        files = tuple(
            self.inventory.identified(replace(file, numa_nodes=numa_nodes))
            for file in found
            if file is not None and file.is_device
        )
        if len(files) < len(nodes):
            present = {file.path for file in files}
            self.incomplete.append(Incomplete(name, tuple(node.path for node in nodes if node.path not in present)))
            return None
        usb, port = function.usb, ""
        if usb is not None and is_by_port(select):
            aliases += self._other_modes(usb)
            port = "" if usb.is_hub else usb.sysfs
        return FoundFunction(name, files, attributes(function, nodes), aliases=tuple(aliases), port=port)

    def _other_modes(self, usb: UsbDevice) -> list[str]:
        """Names of a device in this port under earlier vendor and product IDs, the newest first."""
        modes, now = self._modes.setdefault(usb.port, {}), maker_port_name(usb)
        modes.pop(now, None)
        modes[now] = None
        for old in [*modes][:-_MAX_MODES]:
            del modes[old]
        return [*modes][-2::-1]

    def _note_udev(self, selects: Iterable[SelectSettings]) -> None:
        self._has_udev = is_directory(self._root + udev.DATABASE)
        self.trouble = NO_TROUBLE
        if not self._has_udev and any(select.udev for select in selects):
            self.trouble = (
                "NoUdevDatabase",
                f"select.udev finds no device, as {self._root}{udev.DATABASE} is not there: run udevd on the node, and mount "
                "/run/udev into the agent (chart: agents.udev), or select by usb or subsystems",
            )
