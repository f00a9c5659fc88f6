"""Settings that select devices by what the kernel and udevd say of them, instead of by path."""

import re
from typing import Annotated

from msgspec import Meta, Struct, field

USB_ID = re.compile(r"[0-9A-Fa-f]{4}")


class UsbSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """USB devices, by what `lsusb -v` shows. All keys that are set must match; at least one has to be."""

    # idVendor, four hexadecimal digits in quotes: "0403"
    vendor: str = ""
    # idProduct, likewise
    product: str = ""
    # iSerial, `*`, `?` and `[...]` allowed
    serial: str = ""
    # bus and ports where it is plugged in, as in /sys/bus/usb/devices: 1-2.3, or 1-2.* for a hub's; for devices without a serial
    port: str = ""


class SelectSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Devices by their properties: each physical one is a device, with all its device files.

    A camera has all its `/dev/video*`, a dongle its tty and its hidraw. All that is set of usb, udev and subsystems must match.
    """

    # by vendor, product, serial or port, from sysfs
    usb: UsbSettings | None = None
    # by udevd's properties of one of its device files, as udevadm info shows them; `*`, `?` and `[...]` allowed in values
    udev: Annotated[dict[str, str], Meta(max_length=16)] = field(default_factory=dict)
    # By subsystem, such as tty or video4linux: only device files of these; empty: all but usb, which is raw access to the device.
    # What has no hardware, such as /dev/snd/timer, needs `udev` too, in drm, input, media, sound, tty and video4linux.
    subsystems: Annotated[list[str], Meta(max_length=16)] = field(default_factory=list)
    # the path in the container: empty, the host's; with a trailing /, that directory and the file's own name
    mount_path: str = ""
    # cgroup permissions; rw, because hardly any program needs to make nodes (m)
    permissions: str = "rw"
