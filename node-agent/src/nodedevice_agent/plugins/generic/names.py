"""The ID of a device that is selected, the same after a replug and after a restart of agent and node, and its other IDs. Pure."""

import re
from collections.abc import Iterator

from nodedevice_agent.lib.deviceplugin_server.values import device_id, hashed_id
from nodedevice_agent.plugins.generic.functions import Function, UsbDevice
from nodedevice_agent.plugins.generic.serials import Serials
from nodedevice_agent.plugins.generic.settings import SelectSettings

# An ID with such a serial is never mistaken for a share of another device, or for a port.
_PLAIN_SERIAL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._]{0,47}[A-Za-z0-9])?")
_PLAIN_PORT = re.compile(r"\d{1,3}-\d{1,3}(\.\d{1,3}){0,6}")


def names(select: SelectSettings, function: Function, serials: Serials) -> tuple[str, ...]:
    """The ID first, then aliases.

    A USB device selected by its port is named after the port, also when devices are swapped. Any other USB device is named by
    vendor, product and serial; without a unique serial, by its port. Other devices are named by their place.
    """
    usb = function.usb
    if usb is None:
        return (_place(function),)
    by_maker, by_port = maker_port_name(usb), _by_port("usb-port", usb)
    if is_by_port(select):
        return by_port, by_maker, *_by_serial(usb, serials)
    if serials.is_own(usb):
        return *_by_serial(usb, serials), by_maker, by_port
    # the one that had its serial alone may still be called by it
    return by_maker, *_by_serial(usb, serials), by_port


def is_by_port(select: SelectSettings) -> bool:
    """Whether it selects a port, for any device in it."""
    return select.usb is not None and bool(select.usb.port) and not select.usb.serial


def maker_port_name(usb: UsbDevice) -> str:
    """The name of a device without a serial of its own."""
    return _by_port(f"{usb.vendor}-{usb.product}-port", usb)


def _by_serial(usb: UsbDevice, serials: Serials) -> Iterator[str]:
    if serials.is_own(usb) or serials.is_first(usb):
        name = f"{usb.vendor}-{usb.product}-{usb.serial}"
        yield name if _PLAIN_SERIAL.fullmatch(usb.serial) else hashed_id(name, f"usb serial {name}")


def _by_port(prefix: str, usb: UsbDevice) -> str:
    name = f"{prefix}-{usb.port}"
    return name if _PLAIN_PORT.fullmatch(usb.port) else hashed_id(name, f"usb port {name}")


def _place(function: Function) -> str:
    [first, *_] = function.nodes
    # one without a physical device, such as /dev/fuse
    if function.sysfs == first.sysfs:
        return device_id(first.path)
    return hashed_id(function.sysfs.rpartition("/")[2], function.sysfs)
