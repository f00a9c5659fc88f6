"""Which device files are of one physical device, and whether a selection means it. Pure.

The files of a USB device are those of all its interfaces: a dongle's tty and its hidraw. Those of any other device are the ones
that lead to the same parent in sysfs: the /dev/video* of a camera on a ribbon cable.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from nodedevice_agent.plugins.generic.settings import SelectSettings, UsbSettings
from nodedevice_agent.plugins.patterns import is_match

# Raw access to a USB device is never a part of what its drivers make of it.
RAW_USB = "usb"
# Whoever selects one of these means hardware, and they have other members too: /dev/snd/timer, /dev/tty1, /dev/input/mice, vkms.
# Of others, such as misc or block, what has no hardware may be all that is meant.
OF_HARDWARE = frozenset({"drm", "input", "media", "sound", "tty", "video4linux"})

# a device at a port of a bus, or the bus itself
_USB_DEVICE = re.compile(r".*/usb\d+(?:/\d+-[\d.]+)*")

Properties = Mapping[str, str]


class Node(Struct, frozen=True):
    """A device file that the kernel has. number: as udevd names it, `c81:0`. sysfs, parent: paths as in `/devices/...`.

    is_virtual: no hardware is known behind it; a USB device's may be all the same. also: further tokens of its
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
    """A USB device in sysfs. port: bus and ports, `1-2.3`. serial: empty where it has none. is_hub: others are plugged into it."""

    sysfs: str
    port: str
    vendor: str
    product: str
    serial: str = ""
    is_hub: bool = False

    @property
    def identity(self) -> tuple[str, str, str]:
        """What should be different for any two devices, and is not always."""
        return self.vendor, self.product, self.serial


class Function(Struct, frozen=True):
    """One physical device and its device files, sorted by path. sysfs: where it is."""

    sysfs: str
    usb: UsbDevice | None
    nodes: tuple[Node, ...]


def functions(nodes: Iterable[Node], usb_devices: Mapping[str, UsbDevice]) -> list[Function]:
    """All physical devices that have device files, sorted by place. usb_devices: by their path in sysfs.

    Without those of a USB device that could not be read: of its files it is not known what they are.
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
    """Its device files, if USB and subsystems are as selected; else none. A subsystem alone selects no virtual ones."""
    if not is_usb_match(select, function):
        return ()
    nodes = in_subsystems(select, function)
    return nodes if select.udev or function.usb else tuple(node for node in nodes if not _is_placeholder(node))


def in_subsystems(select: SelectSettings, function: Function) -> tuple[Node, ...]:
    """Its device files of these subsystems, virtual ones too."""
    wanted = select.subsystems
    return tuple(node for node in function.nodes if (node.subsystem in wanted if wanted else node.subsystem != RAW_USB))


def has_properties(udev: Properties, properties: Properties) -> bool:
    """Whether one device file's properties are as selected."""
    return all(key in properties and is_match(pattern, properties[key]) for key, pattern in udev.items())


def attributes(function: Function, nodes: Iterable[Node]) -> tuple[tuple[str, str], ...]:
    """What tells a person which device this is, sorted by name."""
    found = {"files": " ".join(node.path for node in nodes)}
    if function.usb is not None:
        usb = function.usb
        found |= {"usb": f"{usb.vendor}:{usb.product}", "usbPort": usb.port, "usbSerial": usb.serial}
    return tuple(sorted((name, value[:256]) for name, value in found.items() if value))


def is_usb_match(select: SelectSettings, function: Function) -> bool:
    """Also where nothing is selected by USB."""
    if select.usb is None:
        return True
    return function.usb is not None and _is_match(select.usb, function.usb)


def _is_placeholder(node: Node) -> bool:
    return node.is_virtual and node.subsystem in OF_HARDWARE


def _is_match(select: UsbSettings, usb: UsbDevice) -> bool:
    return (
        select.vendor.lower() in ("", usb.vendor)
        and select.product.lower() in ("", usb.product)
        and (not select.serial or (bool(usb.serial) and is_match(select.serial, usb.serial)))
        and (not select.port or is_match(select.port, usb.port))
    )


def usb_path(sysfs: str) -> str:
    """The place of the USB device that a place is in; empty for what is in none. What it is plugged into is another device."""
    return next((path for path in upwards(sysfs) if _USB_DEVICE.fullmatch(path)), "")


def upwards(path: str) -> Iterator[str]:
    """The path itself, then what it is in."""
    while path:
        yield path
        path = path.rpartition("/")[0]
