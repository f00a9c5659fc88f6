"""Settings of the generic plugin. Paths are the host's.

What types do not state is in charts/config_rules.py, and checked before settings are made of it.
"""

import re
from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta, Struct, field
from nodedevice_api.parts import PartRules

from nodedevice_agent.plugins.contract import OneResource
from nodedevice_agent.plugins.parts import PartsSettings
from nodedevice_agent.plugins.patterns import wildcard_count

USB_ID = re.compile(r"[0-9A-Fa-f]{4}")
# characters of a pattern in a message
_MAX_PATTERN = 60


class UsbSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """USB devices, by what `lsusb -v` shows. All keys that are set must match; at least one has to be."""

    # idVendor, four hexadecimal digits in quotes: "0403"
    vendor: str = ""
    # idProduct, likewise
    product: str = ""
    # iSerial, `*`, `?` and `[...]` allowed
    serial: str = ""
    # bus and ports that it is plugged into, as in /sys/bus/usb/devices: 1-2.3, or 1-2.* for a hub's; for devices without a serial
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
    # In drm, input, media, sound, tty and video4linux, virtual devices such as /dev/snd/timer also need `udev`.
    subsystems: Annotated[list[str], Meta(max_length=16)] = field(default_factory=list)
    # the path in the container: empty, the host's; with a trailing /, that directory and the file's own name
    mount_path: str = ""
    # cgroup permissions; rw, because hardly any program needs to make nodes (m)
    permissions: str = "rw"


class PathSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One path of a device, `*`, `?` and `[...]` allowed."""

    # Absolute, of device files; wildcards stay within one directory.
    path: str
    # The path in the container: empty, the same path; with a trailing /, that directory and the file's own name.
    mount_path: str = ""
    # cgroup permissions; rw, because hardly any program needs to make nodes (m).
    permissions: str = "rw"
    # Whether the device is also listed without this file; a container gets the file if it exists, and so may others.
    optional: bool = False


class MountSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A path of the host that is mounted into a container together with its device."""

    # absolute, without wildcards; a directory or a file
    host_path: str
    # the path in the container; empty: the same as on the host
    container_path: str = ""
    # whether the container may only read it
    read_only: bool = False


class GroupSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Paths of one device, or of one device per match if there is a wildcard; or `select` instead of them."""

    # The device's files. Needed without `select`.
    paths: Annotated[list[PathSettings], Meta(min_length=1, max_length=64)] = field(default_factory=list)
    # How many containers may hold each device at once; 1, because most devices cannot be shared.
    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    # Further paths that a container gets with the device.
    mounts: Annotated[list[MountSettings], Meta(max_length=64)] = field(default_factory=list)
    # Environment variables of a container with the device.
    env: dict[str, str] = field(default_factory=dict)
    # Regular files count as devices too, and are mounted; off, so that a stray file in /dev is never listed.
    allow_files: bool = False
    # Devices by USB vendor, product and serial, by udev's properties or by subsystem, instead of by `paths`.
    select: SelectSettings | None = None
    # Whether other resources may offer the same files, if they are shared there too; so it is where count is above 1.
    shared: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether a device may be allocated several times: by this group, or by several."""
        return self.shared or self.count > 1

    @property
    def named_after(self) -> PathSettings:
        """The path whose file a device is named after, and which each of its devices therefore has. Not of a selection."""
        return min(self.paths, key=lambda path: (path.optional, not wildcard_count(path.path)))

    def key_pattern(self) -> str:
        """The key of the group's devices: a path, or the selection."""
        if self.select is not None:
            return f"select {msgspec.json.encode(self.select).decode()}"
        return self.named_after.path


class GenericSettings(OneResource, frozen=True):
    """One resource made of device files."""

    finds_files: ClassVar[bool] = True

    # Where its devices come from.
    groups: Annotated[list[GroupSettings], Meta(min_length=1, max_length=256)]
    # Rules for devices that several containers may hold (count above 1). Unset: each share is a device like any other.
    parts: PartsSettings | None = None

    @property
    def part_rules(self) -> PartRules | None:
        """None if no device is shared."""
        is_shared = any(group.count > 1 for group in self.groups)
        return self.parts.rules() if self.parts is not None and is_shared else None

    def unmatched(self, indexes: Sequence[int]) -> list[str]:
        """These groups."""
        groups = [(i, self.groups[i].key_pattern()) for i in indexes if i < len(self.groups)]
        return [f"groups[{i}] ({pattern[:_MAX_PATTERN]})" for i, pattern in groups]
