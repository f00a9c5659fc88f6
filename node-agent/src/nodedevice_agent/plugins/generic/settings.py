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

    # idVendor: four hexadecimal digits in quotes, such as "0403"
    vendor: str = ""
    # idProduct, likewise
    product: str = ""
    # iSerial; `*`, `?` and `[...]` match
    serial: str = ""
    # bus and ports as in /sys/bus/usb/devices, for devices without a serial: 1-2.3, or 1-2.* for all of a hub
    port: str = ""


class SelectSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Devices by their properties: each physical one is a device, with all its device files.

    A camera has all its `/dev/video*`, a dongle its tty and its hidraw. All that is set of usb, udev and subsystems must match.
    """

    # USB identity, as `lsusb -v` shows it; all keys that are set must match
    usb: UsbSettings | None = None
    # udev properties of one of its device files, as udevadm info shows them; `*`, `?` and `[...]` match in values
    udev: Annotated[dict[str, str], Meta(max_length=16)] = field(default_factory=dict)
    # subsystems of its device files, such as tty or video4linux; empty: all except raw USB access. In drm, input, media, sound,
    # tty and video4linux, files without hardware, such as /dev/snd/timer, need `udev` as well
    subsystems: Annotated[list[str], Meta(max_length=16)] = field(default_factory=list)
    # path in the container, as in `paths`
    mount_path: str = ""
    # cgroup permissions, as in `paths`
    permissions: str = "rw"


class PathSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One path of a device, `*`, `?` and `[...]` allowed."""

    # absolute path of a device file; `*`, `?` and `[...]` match within one directory
    path: str
    # path in the container; empty: the host's; with a trailing /: that directory and the file's own name
    mount_path: str = ""
    # cgroup permissions; rw, because few programs create device nodes (m)
    permissions: str = "rw"
    # list the device without this file as well; a container gets the file if it exists, and so may others
    optional: bool = False


class MountSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A path of the host that is mounted into a container together with its device."""

    # absolute path of a directory or file, without wildcards
    host_path: str
    # path in the container; empty: as on the host
    container_path: str = ""
    # mount read-only
    read_only: bool = False


class GroupSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Paths of one device, or of one device per match if there is a wildcard; or `select` instead of them."""

    # files of one device, required without `select`; a wildcard makes one device per match
    paths: Annotated[list[PathSettings], Meta(min_length=1, max_length=64)] = field(default_factory=list)
    # how many containers may hold each device at once
    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    # further host paths for containers with the device
    mounts: Annotated[list[MountSettings], Meta(max_length=64)] = field(default_factory=list)
    # environment variables of containers with the device
    env: dict[str, str] = field(default_factory=dict)
    # regular files count as devices and are mounted; off, so that a stray file in /dev is never listed
    allow_files: bool = False
    # devices by USB identity, udev properties or subsystem, instead of `paths`; all that is set must match. Each physical
    # device is one device with all its device files: a camera with its /dev/video*, a dongle with its tty and hidraw
    select: SelectSettings | None = None
    # other resources may offer the same files, if they are shared there as well; always true with count above 1
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

    # sources of its devices
    groups: Annotated[list[GroupSettings], Meta(min_length=1, max_length=256)]
    # rules for devices with count above 1; unset: each share is an ordinary device
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
