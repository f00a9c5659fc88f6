"""Reads what a node has: sysfs, /dev, the names that udev keeps, and the PCI bus.

Never writes, asks no API server, and opens no device.
"""

import os
from collections.abc import Iterator

from nodedevice_agent.lib.filesystem import is_directory, unanswered
from nodedevice_agent.lib.patient_reads import ask
from nodedevice_agent.plugins.discovery.candidates import Facts, FileFacts, PciDevice
from nodedevice_agent.plugins.generic.files import udev_links
from nodedevice_agent.plugins.generic.functions import Function, Node, UsbDevice, functions, upwards
from nodedevice_agent.plugins.generic.serials import Serials
from nodedevice_agent.plugins.generic.stable_names import links_by_file
from nodedevice_agent.plugins.generic.sysfs import Sysfs
from nodedevice_agent.plugins.generic.udev import DATABASE

# display controllers, and processing accelerators
_PCI_CLASSES = ("0x03", "0x12")
_MAX_PCI_DEVICES = 4096
# as many as USB has room for in a configuration
_MAX_INTERFACES = 32
_USB_DRIVER = "usb"
# the hub of a controller has no hyphen
_USB_TEXTS = ("manufacturer", "product")


def hardware(root: str) -> Facts:
    """Facts from the kernel. root: the host's file tree, without a trailing slash."""
    with unanswered() as errors:
        sysfs = Sysfs(root)
        nodes, usb_devices = sysfs.nodes(), sysfs.usb_devices()
        serials = Serials()
        serials.note(usb_devices.values())
        links = links_by_file(udev_links(root))
        files = {node.path: facts for node in nodes if (facts := _file_facts(root, sysfs, node, links)) is not None}
        # one that no driver serves has no file but its raw one, or none
        found = functions(nodes, usb_devices)
        bare = [usb for place, usb in usb_devices.items() if place not in {function.sysfs for function in found}]
        every = (*found, *(Function(usb.sysfs, usb, ()) for usb in bare))
        labels = {usb.sysfs: _label(sysfs, usb) for usb in usb_devices.values()}
        usb_drivers = {place: drivers for place in usb_devices if (drivers := _usb_drivers(sysfs, place))}
        pci_devices = tuple(_pci_devices(sysfs))
        consoles = frozenset(sysfs.text("/class/tty/console", "active").split())
    unread = [f"{path} cannot be read: {error}" for path, error in [*errors.items()][:3]]
    return Facts(
        every,
        files,
        labels,
        pci_devices,
        has_own_serial=serials.is_own,
        usb_drivers=usb_drivers,
        consoles=consoles,
        notes=(*_not_visible(root), *unread),
    )


def _not_visible(root: str) -> Iterator[str]:
    if not is_directory(f"{root}/sys/dev/char"):
        yield f"{root}/sys/dev/char is not there, so no device is found: mount the host's /sys, or set hostRoot (--config)"
    if not is_directory(f"{root}{DATABASE}"):
        yield (
            f"{root}{DATABASE} is not there, so udev's properties are not seen (chart: agents.udev mounts it); "
            "the names in /dev that udev made are"
        )


def _file_facts(root: str, sysfs: Sysfs, node: Node, links: dict[str, list[str]]) -> FileFacts | None:
    """None if the file is not in /dev."""
    try:
        status = ask(os.stat, f"{root}{node.path}")
    except (OSError, ValueError):
        return None
    return FileFacts(node, tuple(links.get(node.path, ())), status.st_mode, status.st_gid, _driver(sysfs, node))


def _driver(sysfs: Sysfs, node: Node) -> str:
    """The driver of the nearest device on the way up to the hardware."""
    places = [node.parent, *(place for place in upwards(node.sysfs) if place.startswith(f"{node.parent}/"))]
    found = (sysfs.link(place, "driver").rpartition("/")[2] for place in reversed(places))
    return next((driver for driver in found if driver and driver != _USB_DRIVER), "")


def _usb_drivers(sysfs: Sysfs, place: str) -> tuple[str, ...]:
    """Drivers of a USB device's interfaces."""
    interfaces = [name for name in sysfs.names(place) if ":" in name][:_MAX_INTERFACES]
    found = (sysfs.link(f"{place}/{name}", "driver").rpartition("/")[2] for name in interfaces)
    return tuple(dict.fromkeys(driver for driver in found if driver))


def _label(sysfs: Sysfs, usb: UsbDevice) -> str:
    words = [sysfs.text(usb.sysfs, name) for name in _USB_TEXTS]
    return " ".join(word for word in words if word)


def _pci_devices(sysfs: Sysfs) -> Iterator[PciDevice]:
    for address in sysfs.names("/bus/pci/devices")[:_MAX_PCI_DEVICES]:
        place = sysfs.link("/bus/pci/devices", address)
        if place and sysfs.text(place, "class").startswith(_PCI_CLASSES):
            vendor, device = (sysfs.text(place, name).removeprefix("0x") for name in ("vendor", "device"))
            yield PciDevice(address, place, vendor, device, sysfs.link(place, "driver").rpartition("/")[2])
