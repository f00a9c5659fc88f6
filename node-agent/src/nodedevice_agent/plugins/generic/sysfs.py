"""Reads device files, their places, and the USB devices from the host's sysfs. Never writes.

Layout: /sys/dev/{char,block}/MAJOR:MINOR are links to the devices, /sys/bus/usb/devices/* to USB devices and, with a colon in the
name, their interfaces.
"""

import math
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodedevice_agent.identity import iommu_token
from nodedevice_agent.lib.filesystem import is_there, link_target, names_in, note_again, note_unanswered, unanswered
from nodedevice_agent.lib.patient_reads import ask
from nodedevice_agent.plugins.generic.functions import Node, UsbDevice, upwards
from nodedevice_agent.plugins.generic.settings import USB_ID

_MAX_BYTES = 4096
# device files; a node has some hundred
_MAX_KNOWN = 4096
# a device of a class has a parent of a class a few times; more is a loop
_MAX_PARENTS = 16
_KINDS = {"c": "char", "b": "block"}
# buses of devices that a driver may have made up; firmware knows which are real
_BUSES_OF_ANYTHING = frozenset({"platform", "faux"})
_FIRMWARE_NODES = ("of_node", "firmware_node")
# the kernel's serial ports without a chip behind them, ttyS1 to ttyS31
_NO_UART = "0"
_HUB = "09"
# files that lead to the same device as others in another branch of sysfs
_VFIO_DEVICES = "vfio-dev"
_NVME = "nvme"
_NVME_SUBSYSTEMS = "/class/nvme-subsystem"
_DRM = "drm"
_NVIDIA_MAJOR = "c195"
_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)
_DEVNAME = re.compile(r"^DEVNAME=(.+)$", re.MULTILINE)


class _Enumeration(Struct, frozen=True):
    """Distinguishes one plug of a USB device from the next one at the same place.

    inode, made_ns: of its link. number: the kernel's, which is new for each plug; "" if unknown.
    """

    inode: int = 0
    made_ns: int = 0
    number: str = ""

    def is_same(self, now: "_Enumeration") -> bool:
        """The kernel may forget when a link was made, but for that of a device with a number."""
        is_number = bool(self.number) and self.number == now.number
        return bool(self.inode) and self.inode == now.inode and (is_number or self.made_ns == now.made_ns)


class _Reading(Struct, frozen=True):
    """began_at: monotonic seconds. errors: as `unanswered` has them."""

    began_at: float = -math.inf
    nodes: Sequence[Node] = ()
    usb_devices: Mapping[str, UsbDevice] = {}
    errors: Mapping[str, str] = {}


class Sysfs:
    """The host's /sys. root: the host's file tree, without a trailing slash. Use in one thread at a time."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._sys = f"{root}/sys"
        self._reading = _Reading()
        self._known: dict[tuple[str, str], Node | None] = {}
        self._usb_devices: dict[str, tuple[_Enumeration, UsbDevice]] = {}
        # errors of the last read by path, for USB devices that are known to be unchanged
        self.kept: dict[str, str] = {}
        # the kernel's numbers whose device the last read could not determine
        self.unread: frozenset[str] = frozenset()

    def read(self, asked_at: float, numbers: Collection[str] = ()) -> tuple[Sequence[Node], Mapping[str, UsbDevice]]:
        """Device files and USB devices, read at that time or later: all resources ask at once when a device comes.

        numbers: of device files that were found since. What changes after the reading is an event, after which resources ask again.
        """
        is_new = self._reading.began_at >= asked_at
        if not is_new or not {node.number for node in self._reading.nodes}.issuperset(numbers):
            began_at = time.monotonic()
            with unanswered() as errors:
                usb_devices, nodes = self.usb_devices(), self.nodes()
            self._reading = _Reading(began_at, nodes, usb_devices, errors)
        note_again(self._reading.errors)
        return self._reading.nodes, self._reading.usb_devices

    def nodes(self) -> list[Node]:
        """All device files. Reads only new ones: a Node never changes."""
        numbers = [f"{letter}{name}" for letter, kind in _KINDS.items() for name in names_in(f"{self._sys}/dev/{kind}")]
        self._known = self._read(numbers)
        return [node for node in self._known.values() if node is not None]

    def nodes_of(self, numbers: Iterable[str]) -> list[Node]:
        """The device files with these numbers, such as c188:0, if sysfs has them. Reads only new ones."""
        found = self._read(numbers)
        self._known = {**self._known, **found} if len(self._known) < _MAX_KNOWN else found
        return [node for node in found.values() if node is not None]

    def _read(self, numbers: Iterable[str]) -> dict[tuple[str, str], Node | None]:
        """Device files by number and place."""
        found: dict[tuple[str, str], Node | None] = {}
        unread = set()
        for number in numbers:
            with unanswered() as errors:
                sysfs = self.link(f"/dev/{_KINDS[number[0]]}", number[1:])
            note_again(errors)
            if errors:
                unread.add(number)
            if sysfs:
                known = self._known.get((number, sysfs))
                is_done = known is not None and _is_done(known)
                found[number, sysfs] = known if is_done else self._read_node(number, sysfs, known)
        self.unread = frozenset(unread.union(number for (number, _), node in found.items() if node is None))
        return found

    def _read_node(self, number: str, sysfs: str, known: Node | None) -> Node | None:
        """Returns the known state if it cannot be read."""
        with unanswered() as errors:
            node = self._node(number, sysfs)
        if errors and known is not None:
            return known
        note_again(errors)
        return node

    def names(self, place: str) -> list[str]:
        return names_in(f"{self._sys}{place}")

    def text(self, place: str, name: str) -> str:
        """A field of a device, for people; "" if it is missing or unreadable."""
        try:
            return _read(f"{self._sys}{place}/{name}")
        except OSError:
            return ""

    def usb_devices(self) -> dict[str, UsbDevice]:
        """By path in sysfs. One without vendor and product, as while it goes away, is left out. One that cannot be read stays as it
        was, unless another one may have taken its place; then it is left out.
        """
        read: dict[str, tuple[_Enumeration, UsbDevice]] = {}
        kept: dict[str, str] = {}
        for name in names_in(f"{self._sys}/bus/usb/devices"):
            sysfs = self.link("/bus/usb/devices", name) if ":" not in name else ""
            usb = self._read_usb_device(name, sysfs, kept) if sysfs else None
            if usb is not None:
                read[sysfs] = usb
        # both at the end: if a call hangs, this method runs again from the start
        self._usb_devices, self.kept = read, kept
        found = {sysfs: usb for sysfs, (_, usb) in read.items()}
        hubs = {above for sysfs in found for above in upwards(sysfs.rpartition("/")[0]) if above in found}
        return {sysfs: replace(usb, is_hub=True) if sysfs in hubs else usb for sysfs, usb in found.items()}

    def numa_nodes_of(self, kind: str, number: str) -> tuple[int, ...]:
        """NUMA nodes of a device file. kind: char or block. number: as 188:0. A USB device is some steps below its controller."""
        return self.numa_nodes(self.link(f"/dev/{kind}", number))

    def numa_nodes(self, sysfs: str) -> tuple[int, ...]:
        """NUMA nodes of the nearest device on the way up that has one; empty on a machine with one node (-1)."""
        while sysfs:
            try:
                node = int(_read(f"{self._sys}{sysfs}/numa_node"))
            except (OSError, ValueError):
                sysfs = sysfs.rpartition("/")[0]
            else:
                return (node,) if node >= 0 else ()
        return ()

    def _node(self, number: str, sysfs: str) -> Node | None:
        try:
            name = _DEVNAME.search(_read(f"{self._sys}{sysfs}/uevent"))
        except OSError:
            return None
        # a device without a file, or a name that leads out of /dev
        if name is None or ".." in name[1].split("/"):
            return None
        subsystem = self.link(sysfs, "subsystem").rpartition("/")[2]
        parent = self._parent(sysfs)
        # the chip of a serial port; "" for any other device file
        uart = self.text(sysfs, "type") if subsystem == "tty" else ""
        is_virtual = uart == _NO_UART if uart else not any(self._is_hardware(path) for path in upwards(parent))
        also = self._also(subsystem, sysfs, parent)
        return Node(number, f"/dev/{name[1].lstrip('/')}", sysfs, subsystem, parent, is_virtual, also)

    def _also(self, subsystem: str, sysfs: str, parent: str) -> tuple[str, ...]:
        """See Node.also: the IOMMU group of a VFIO device, the subsystem of an NVMe controller, which has the namespaces, and the
        number of NVIDIA's own file of a GPU.
        """
        if subsystem == _VFIO_DEVICES:
            group = self.link(parent, "iommu_group").rpartition("/")[2]
            return (iommu_token(group),) if group else ()
        if subsystem == _DRM:
            minor = self._nvidia_minor(parent.rpartition("/")[2])
            return (f"{_NVIDIA_MAJOR}:{minor}",) if minor else ()
        if subsystem != _NVME:
            return ()
        name = sysfs.rpartition("/")[2]
        subsystems = [
            each for each in names_in(f"{self._sys}{_NVME_SUBSYSTEMS}") if self.link(f"{_NVME_SUBSYSTEMS}/{each}", name)
        ]
        return tuple(sorted(self.link(_NVME_SUBSYSTEMS, each) for each in subsystems))

    def _nvidia_minor(self, address: str) -> str:
        """The minor number of /dev/nvidiaN, which sysfs does not show. address: on the PCI bus. "" without NVIDIA's driver."""
        try:
            found = _MINOR.search(_read(f"{self._root}/proc/driver/nvidia/gpus/{address}/information"))
        except OSError:
            return ""
        return found[1] if found else ""

    def _is_hardware(self, sysfs: str) -> bool:
        """Whether it is on a bus, or known to the firmware; /devices/virtual/… is not, nor is /devices/platform/snd_dummy.0."""
        parts = self.link(sysfs, "subsystem").split("/")
        is_on_bus = "bus" in parts[:-1] and parts[-1] not in _BUSES_OF_ANYTHING
        return is_on_bus or any(is_there(f"{self._sys}{sysfs}/{name}") for name in _FIRMWARE_NODES)

    def _parent(self, sysfs: str) -> str:
        for _ in range(_MAX_PARENTS):
            target = self.link(sysfs, "device")
            if not target and is_there(f"{self._sys}{sysfs}/partition"):
                target = sysfs.rpartition("/")[0]
            if not target:
                break
            sysfs = target
        return sysfs

    def link(self, place: str, name: str) -> str:
        """The place that a link leads to; "" for any other file."""
        target = link_target(f"{self._sys}{place}/{name}")
        return os.path.normpath(f"{place}/{target}") if target else ""

    def _read_usb_device(self, port: str, sysfs: str, kept: dict[str, str]) -> "tuple[_Enumeration, UsbDevice] | None":
        """kept: receives the paths of an unchanged device that cannot be read."""
        known = self._usb_devices.get(sysfs)
        with unanswered() as errors:
            now = self._enumeration(port, sysfs)
            usb = self._usb_device(port, sysfs)
        if known is None or not known[0].is_same(now):
            note_again(errors)
            return (now, usb) if usb is not None and not errors else None
        # of one plug of a device they do not change
        if not errors and (usb is None or (known[1].serial and not usb.serial)):
            errors[f"{self._sys}{sysfs}"] = "its vendor, product or serial is missing"
        kept |= errors
        return known if errors or usb is None else (now, usb)

    def _enumeration(self, port: str, sysfs: str) -> "_Enumeration":
        try:
            link = ask(os.lstat, f"{self._sys}/bus/usb/devices/{port}")
            number = self._field(sysfs, "devnum")
        except OSError:
            return _Enumeration()
        return _Enumeration(link.st_ino, link.st_ctime_ns, number)

    def _usb_device(self, port: str, sysfs: str) -> UsbDevice | None:
        try:
            vendor, product, serial = (self._field(sysfs, name) for name in ("idVendor", "idProduct", "serial"))
            is_hub = "-" not in port or self._field(sysfs, "bDeviceClass") == _HUB
        except OSError:
            return None
        if not USB_ID.fullmatch(vendor) or not USB_ID.fullmatch(product):
            return None
        return UsbDevice(sysfs, port, vendor.lower(), product.lower(), serial, is_hub)

    def _field(self, sysfs: str, name: str) -> str:
        """Returns "" for a field that the device does not have. Raises OSError, as a missing value would change the device's ID."""
        try:
            return _read(f"{self._sys}{sysfs}/{name}")
        except FileNotFoundError:
            return ""


def _read(path: str) -> str:
    """Raises OSError; or `unanswered`."""
    try:
        return ask(_octets, path).decode(errors="replace").strip("\0 \n\t")
    except OSError as error:
        note_unanswered(path, error)
        raise


def _octets(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_MAX_BYTES)


def _is_done(node: Node) -> bool:
    """An NVMe controller gets its subsystem after its first response, and NVIDIA's driver numbers GPUs when it is loaded."""
    return node.subsystem not in (_NVME, _DRM) or (node.subsystem == _NVME and bool(node.also))
