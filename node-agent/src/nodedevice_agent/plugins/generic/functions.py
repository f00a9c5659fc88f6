"""Groups device files by physical device, and matches devices with a selection. Pure.

A USB device has the files of all its interfaces: a dongle's tty and its hidraw. Any other device has the files with
the same parent in sysfs: the /dev/video* of a camera on a ribbon cable.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from nodedevice_agent.plugins.generic.settings import SelectSettings
from nodedevice_agent.plugins.patterns import is_match

# Raw access to a USB device is never a part of what its drivers make of it.
RAW_USB = "usb"
# Selecting one of these means hardware, but they also have virtual members: /dev/snd/timer, /dev/tty1, /dev/input/mice, vkms.
# In other subsystems, such as misc or block, a virtual device may be the one that is meant.
OF_HARDWARE = frozenset({"drm", "input", "media", "sound", "tty", "video4linux"})

# a device at a port of a bus, or the bus itself
_USB_DEVICE = re.compile(r".*/usb\d+(?:/\d+-[\d.]+)*")

Properties = Mapping[str, str]


class Node(Struct, frozen=True):
    """A device file that the kernel has. number: as udevd names it, `c81:0`. sysfs, parent: paths as in `/devices/...`.

    is_virtual: it has no known hardware; this may also be true of a USB device's file. also: further tokens of its
    identity, from links in sysfs.
    """

    number: str
    path: str
    sysfs: str
    subsystem: str
    parent: str
    is_virtual: bool = False
    also: tuple[str, ...] = ()


class UsbDevice(Struct, frozen=True):
    """A USB device in sysfs. port: bus and ports, `1-2.3`. serial: "" if it has none. is_hub: other devices are plugged into it."""

    sysfs: str
    port: str
    vendor: str
    product: str
    serial: str = ""
    is_hub: bool = False

    @property
    def identity(self) -> tuple[str, str, str]:
        """Identifiers that should be unique for each device, but sometimes are not."""
        return self.vendor, self.product, self.serial


class Function(Struct, frozen=True):
    """One physical device and its device files, sorted by path. sysfs: its place."""

    sysfs: str
    usb: UsbDevice | None
    nodes: tuple[Node, ...]


def functions(nodes: Iterable[Node], usb_devices: Mapping[str, UsbDevice]) -> list[Function]:
    """All physical devices that have device files, sorted by place. usb_devices: by their path in sysfs.

    Skips files of a USB device that could not be read, as their device is unknown.
    """
    found: dict[str, tuple[UsbDevice | None, list[Node]]] = {}
    for node in nodes:
        path = usb_path(node.sysfs)
        usb = usb_devices.get(path)
        if path and usb is None:
            continue
        found.setdefault(usb.sysfs if usb else node.parent, (usb, []))[1].append(node)
    return [
        Function(sysfs, usb, tuple(sorted(members, key=lambda node: node.path)))
        for sysfs, (usb, members) in sorted(found.items())
    ]


def candidates(select: SelectSettings, function: Function) -> tuple[Node, ...]:
    """Its device files, if USB and subsystems match; otherwise none. A subsystem alone selects no virtual devices."""
    if not is_usb_match(select, function):
        return ()
    nodes = in_subsystems(select, function)
    if select.udev or function.usb:
        return nodes
    return tuple(node for node in nodes if not node.is_virtual or node.subsystem not in OF_HARDWARE)


def in_subsystems(select: SelectSettings, function: Function) -> tuple[Node, ...]:
    """Its device files of these subsystems, including virtual ones."""
    wanted = select.subsystems
    return tuple(node for node in function.nodes if (node.subsystem in wanted if wanted else node.subsystem != RAW_USB))


def has_properties(udev: Properties, properties: Properties) -> bool:
    """Whether one device file's properties are as selected."""
    return all(key in properties and is_match(pattern, properties[key]) for key, pattern in udev.items())


def attributes(function: Function, nodes: Iterable[Node]) -> tuple[tuple[str, str], ...]:
    """Properties that identify the device for a person, sorted by name."""
    found = {"files": " ".join(node.path for node in nodes)}
    if function.usb is not None:
        usb = function.usb
        found |= {"usb": f"{usb.vendor}:{usb.product}", "usbPort": usb.port, "usbSerial": usb.serial}
    return tuple(sorted((name, value[:256]) for name, value in found.items() if value))


def is_usb_match(select: SelectSettings, function: Function) -> bool:
    """Also true if the selection has no USB settings."""
    wanted, usb = select.usb, function.usb
    if wanted is None or usb is None:
        return wanted is None
    return (
        wanted.vendor.lower() in ("", usb.vendor)
        and wanted.product.lower() in ("", usb.product)
        and (not wanted.serial or (bool(usb.serial) and is_match(wanted.serial, usb.serial)))
        and (not wanted.port or is_match(wanted.port, usb.port))
    )


def usb_path(sysfs: str) -> str:
    """The place of the USB device that contains this place; "" outside of USB devices. A hub does not contain its devices."""
    return next((path for path in upwards(sysfs) if _USB_DEVICE.fullmatch(path)), "")


def upwards(path: str) -> Iterator[str]:
    """The path itself, then each of its parents."""
    while path:
        yield path
        path = path.rpartition("/")[0]
