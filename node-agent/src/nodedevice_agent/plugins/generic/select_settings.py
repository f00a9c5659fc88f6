"""Settings that select devices by what the kernel and udevd say of them, instead of by path."""

import re
from typing import Annotated

from msgspec import Meta, Struct, field, structs

from nodedevice_agent.plugins.checks import check_path, check_permissions
from nodedevice_agent.plugins.patterns import check_wildcards

USB_ID = re.compile(r"[0-9A-Fa-f]{4}")
PROPERTY = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
SUBSYSTEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


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

    def __post_init__(self) -> None:
        if not any(structs.astuple(self)):
            raise ValueError("usb: selects nothing; set vendor, product, serial or port")
        for key, value in (("vendor", self.vendor), ("product", self.product)):
            if value and not USB_ID.fullmatch(value):
                raise ValueError(
                    f'{key}: {value[:80]!r} must be four hexadecimal digits in quotes, such as "0403"; lsusb lists them'
                )
        check_wildcards("serial", self.serial)
        check_wildcards("port", self.port)


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

    def __post_init__(self) -> None:
        if self.usb is None and not self.udev and not self.subsystems:
            raise ValueError("select: selects nothing; set usb, udev or subsystems")
        for key, value in self.udev.items():
            if not PROPERTY.fullmatch(key):
                raise ValueError(
                    f"udev: {key[:80]!r} is not the name of a property; udevadm info lists them, such as ID_SERIAL"
                )
            check_wildcards(f"udev: {key}", value)
        for subsystem in self.subsystems:
            if not SUBSYSTEM.fullmatch(subsystem):
                raise ValueError(
                    f"subsystems: {subsystem[:80]!r} is not the name of a subsystem; /sys/class lists them, such as tty"
                )
        if self.mount_path:
            check_path("mountPath", self.mount_path)
        check_permissions(self.permissions)
