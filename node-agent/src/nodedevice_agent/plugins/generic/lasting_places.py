"""Computes places in sysfs without the kernel's running numbers: stable after a replug and a boot. Pure.

/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/host7/target7:0:0/7:0:0:0/block/sdc/sdc1
is, from its port, `/port/1-1/1.0/host#0/target:0:0/:0:0:0/block/sd#0/#1`, and from the device itself
`/usb/0781:5583:4C53/1.0/...`. A name with a running number has its position among its siblings instead. As with places of sysfs,
a place below another one is within that device.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from nodedevice_agent.lib.deviceplugin_server.values import natural_key
from nodedevice_agent.plugins.generic.functions import UsbDevice

_INTERFACE = re.compile(r"\d+-[\d.]+:(\d+\.\d+)")
_SCSI_DEVICE = re.compile(r"\d+(:\d+:\d+:\d+)")
_SCSI_TARGET = re.compile(r"target\d+(:\d+:\d+)")
# 0003:1050:0402.0007, and any name that ends in a number; and disks
_COUNTED = (re.compile(r"([0-9A-F]{4}:[0-9A-F]{4}:[0-9A-F]{4})\.[0-9A-F]{4}"), re.compile(r"([A-Za-z][A-Za-z_-]*)\d+"))
_DISK = re.compile(r"(sd|xvd|vd|hd)[a-z]+")
_DEVICES = "/devices/"


class LastingPlaces:
    """Computes lasting places at one moment. names_in: the names in a place in sysfs."""

    def __init__(self, names_in: Callable[[str], Iterable[str]]) -> None:
        self._names_in = names_in
        self._positions: dict[str, Mapping[str, int]] = {}

    def of(self, place: str, usb: UsbDevice | None, *, has_own_serial: bool) -> tuple[str, ...]:
        """Lasting places for a place in sysfs; usb: the USB device that contains it, if any."""
        if not place.startswith(_DEVICES):
            return ()
        if usb is None or not place.startswith(usb.sysfs):
            return ("/lasting" + self._without_numbers("", place),)
        within = self._without_numbers(usb.sysfs, place[len(usb.sysfs) :])
        return f"/port/{usb.port}{within}", f"/usb/{_name(usb, has_own_serial=has_own_serial)}{within}"

    def _without_numbers(self, above: str, below: str) -> str:
        found = ""
        for name in below.split("/")[1:]:
            found += "/" + self._without_number(above, name)
            above += "/" + name
        return found

    def _without_number(self, above: str, name: str) -> str:
        """above: the place that this name is in."""
        if match := _INTERFACE.fullmatch(name):
            return match[1]
        if match := _SCSI_DEVICE.fullmatch(name):
            return match[1]
        if match := _SCSI_TARGET.fullmatch(name):
            return f"target{match[1]}"
        parent = above.rpartition("/")[2]
        if name != parent and name.startswith(parent) and kind_of(parent):
            # a partition of a disk, a namespace of a controller
            return "#" + name[len(parent) :]
        kind = kind_of(name)
        if not kind:
            return name
        if above not in self._positions:
            self._positions[above] = _positions(self._names_in(above))
        return f"{kind}#{self._positions[above].get(name, 0)}"


def kind_of(name: str) -> str:
    """The name before a number, or before the letters of a disk; "" for names that are not counted."""
    for pattern in (*_COUNTED, _DISK):
        if match := pattern.fullmatch(name):
            return match[1]
    return ""


def _positions(names: Iterable[str]) -> Mapping[str, int]:
    """The position of each name among names of its kind."""
    found: dict[str, int] = {}
    counts: dict[str, int] = {}
    # sda to sdz come before sdaa
    for name in sorted(names, key=lambda name: (len(name) if _DISK.fullmatch(name) else 0, natural_key(name))):
        if kind := kind_of(name):
            found[name] = counts.get(kind, 0)
            counts[kind] = found[name] + 1
    return found


def _name(usb: UsbDevice, *, has_own_serial: bool) -> str:
    """Vendor, product and serial; with the port if these are not unique."""
    words = ":".join(map(_escaped, (usb.vendor, usb.product, usb.serial)))
    return words if has_own_serial else f"{words}@{usb.port}"


def _escaped(word: str) -> str:
    """Escapes separators of names and of lines."""
    return "".join(c if c.isalnum() or c in "._-" else f"%{ord(c):02x}" for c in word)
