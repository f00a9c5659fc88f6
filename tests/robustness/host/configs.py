"""Configurations of the generic plugin for the made-up host, and edits of them.

Each is for a few kinds of hardware, so that several resources mean the same devices under other names.
"""

import random
from typing import Any

import msgspec
from nodedevice_agent.plugins.generic.settings import GenericSettings, GroupSettings
from nodedevice_agent.plugins.settings import PluginSettings

from tests.robustness.host.hardware import FUSE

NAMES = tuple(f"host.test/{letter}" for letter in "abcdef")
_CAN_SHARE = "shared" in GroupSettings.__struct_fields__


def _paths(*paths: str) -> dict[str, Any]:
    return {"paths": [{"path": path} for path in paths]}


def _usb(**usb: str) -> dict[str, Any]:
    return {"select": {"usb": usb}}


def _subsystems(*names: str) -> dict[str, Any]:
    return {"select": {"subsystems": list(names)}}


# by kind of hardware: ways to say the same devices
GROUPS: dict[str, tuple[dict[str, Any], ...]] = {
    "serial": (
        _paths("/dev/ttyUSB*"),
        _paths("/dev/ttyUSB0"),
        _paths("/dev/ttyUSB*", FUSE),
        _paths("/dev/serial/by-id/*"),
        _paths("/dev/serial/by-path/*"),
        _usb(vendor="0403"),
        _usb(vendor="0403", serial="A*"),
        _usb(vendor="1a86"),
        _usb(vendor="10c4"),
        _usb(port="1-*"),
        _usb(port="2-1"),
        _subsystems("tty"),
    ),
    "board": (
        _paths("/dev/ttyACM*"),
        _paths("/dev/serial/by-id/*"),
        _usb(vendor="2341"),
        _usb(vendor="2341", product="0043"),
        _subsystems("tty"),
    ),
    "hid": (
        _paths("/dev/hidraw*"),
        _paths("/dev/input/event*"),
        _paths("/dev/hidraw*", "/dev/input/event*"),
        _usb(vendor="1050"),
        _usb(port="1-1.*"),
        _subsystems("hidraw"),
        _subsystems("hidraw", "input"),
    ),
    "camera": (
        _paths("/dev/video*"),
        _paths("/dev/video0", "/dev/video1"),
        _subsystems("video4linux"),
        _usb(vendor="046d"),
    ),
    "disk": (
        _paths("/dev/sd?"),
        _paths("/dev/sd?[0-9]"),
        _paths("/dev/sd?", "/dev/sd?1"),
        _paths("/dev/sg*"),
        _paths("/dev/bsg/*"),
        _usb(vendor="0781"),
        _subsystems("block"),
        _subsystems("scsi_generic"),
    ),
    "raw": (_paths("/dev/bus/usb/*/*"), _usb(vendor="0403"), _usb(vendor="1050"), _paths("/dev/ttyUSB*")),
    "gpu": (
        _paths("/dev/dri/card*"),
        _paths("/dev/dri/renderD*"),
        _paths("/dev/dri/card0", "/dev/dri/renderD128"),
        _subsystems("drm"),
        _paths("/dev/vfio/devices/*"),
    ),
    "vfio": (
        _paths("/dev/vfio/[0-9]*"),
        _paths("/dev/vfio/devices/*"),
        _subsystems("vfio-dev"),
        _subsystems("vfio", "vfio-dev"),
    ),
}


class Resource(msgspec.Struct):
    """count, is_shared: of all its groups."""

    name: str
    groups: list[dict[str, Any]]
    count: int = 1
    is_shared: bool = False

    @property
    def is_for_several(self) -> bool:
        return self.count > 1 or self.is_shared

    @property
    def is_by_port(self) -> bool:
        """Whether devices may be selected by port: whatever is plugged in there is the device."""
        return any("port" in group.get("select", {}).get("usb", {}) for group in self.groups)


class Config:
    """What the node's NodeDeviceConfigs say now, in the order of their priority. kinds: of hardware."""

    def __init__(self, draw: random.Random) -> None:
        self.kinds = draw.sample(sorted(GROUPS), draw.choice([1, 1, 2, 3]))
        self.resources: list[Resource] = []
        for _ in range(draw.choice([1, 2, 3])):
            self._add(draw)

    def __str__(self) -> str:
        return "; ".join(_shown(resource) for resource in self.resources)

    def find(self, name: str) -> Resource | None:
        return next((resource for resource in self.resources if resource.name == name), None)

    def settings(self) -> PluginSettings:
        return PluginSettings(generic=[_settings(resource) for resource in self.resources])

    def edit(self, draw: random.Random) -> str:
        """Change one thing. Returns its name."""
        edits = [self._add, self._drop, self._rename, self._regroup, self._count, self._reorder, self._reorder_groups]
        if _CAN_SHARE:
            edits.append(self._share)
        edit = draw.choice(edits)
        edit(draw)
        return edit.__name__.strip("_")

    # -- edits ------------------------------------------------------------------------------------------------------------

    def _add(self, draw: random.Random) -> None:
        free = [name for name in NAMES if self.find(name) is None]
        if len(self.resources) < len(NAMES) - 2:
            groups = [self._group(draw) for _ in range(draw.choice([1, 1, 2]))]
            self.resources.append(Resource(draw.choice(free), _distinct(groups), draw.choice([1, 1, 1, 2])))

    def _drop(self, draw: random.Random) -> None:
        if len(self.resources) > 1:
            self.resources.remove(draw.choice(self.resources))

    def _rename(self, draw: random.Random) -> None:
        free = [name for name in NAMES if self.find(name) is None]
        draw.choice(self.resources).name = draw.choice(free)

    def _regroup(self, draw: random.Random) -> None:
        resource = draw.choice(self.resources)
        resource.groups[draw.randrange(len(resource.groups))] = self._group(draw)
        resource.groups = _distinct(resource.groups)

    def _count(self, draw: random.Random) -> None:
        resource = draw.choice(self.resources)
        resource.count = draw.choice([count for count in (1, 2, 4) if count != resource.count])

    def _share(self, draw: random.Random) -> None:
        resource = draw.choice(self.resources)
        resource.is_shared = not resource.is_shared

    def _reorder(self, draw: random.Random) -> None:
        draw.shuffle(self.resources)

    def _reorder_groups(self, draw: random.Random) -> None:
        draw.shuffle(draw.choice(self.resources).groups)

    def _group(self, draw: random.Random) -> dict[str, Any]:
        return draw.choice(GROUPS[draw.choice(self.kinds)])


def _settings(resource: Resource) -> GenericSettings:
    more: dict[str, Any] = {"count": resource.count} | ({"shared": True} if resource.is_shared else {})
    groups = [group | more for group in resource.groups]
    return msgspec.convert({"resourceName": resource.name, "groups": groups}, GenericSettings)


def _distinct(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two groups of one resource must not be named after the same path or selection."""
    named: dict[str, dict[str, Any]] = {}
    for group in groups:
        named.setdefault(msgspec.convert(group, GroupSettings).key_pattern(), group)
    return list(named.values())


def _shown(resource: Resource) -> str:
    groups = " | ".join(
        " + ".join(path["path"] for path in group["paths"]) if "paths" in group else f"select {group['select']}"
        for group in resource.groups
    )
    more = f" count {resource.count}" if resource.count > 1 else ""
    return f"{resource.name.rpartition('/')[2]}: {groups}{more}{' shared' if resource.is_shared else ''}"
