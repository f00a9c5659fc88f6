"""Decides whether a container may get a GPU or an instance by its name in a CDI specification. Pure.

A specification is written once, and becomes outdated. After a boot the driver may number GPUs and instances differently; after an
update of the driver its files have other names. So the names are compared with the current state of NVML and of the host.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from nodedevice_agent.identity import Sameness, compare
from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice
from nodedevice_agent.plugins.nvml.identity import gpu_file
from nodedevice_agent.plugins.nvml.mig import capability_file, capability_nodes

_GPU_FILE: Final = re.compile(r"/dev/nvidia\d+")
# of /dev/nvidiaN; the numbers from 254 on belong to files without a GPU
_GPU_NUMBER: Final = re.compile(r"c195:(?:\d|\d\d|1\d\d|2[0-4]\d|25[0-3])")
_CAPABILITY: Final = re.compile(r"/dev/nvidia-caps/nvidia-cap\d+")
_GRAPHICS: Final = "c226:"
_LIBRARY: Final = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d+(?:\.\d+)+)")
# capabilities that belong to no instance
_OF_NODE: Final = ("config", "monitor")


class Specified(Struct, frozen=True):
    """A device of a specification. file: the specification's path.

    is_void: whether a container with it gets no further GPUs of NVIDIA's container runtime. nvidia-ctk writes specifications so:
    their edits come after the edits by NRI and replace the pod's variable.
    nodes: device files of the host, with the number in the container, "" if unknown. fault: why a container runtime refuses a
    container with it now, or "". unseen: paths that this process cannot see.
    """

    file: str
    is_void: bool = False
    nodes: tuple[tuple[str, str], ...] = ()
    fault: str = ""
    unseen: tuple[str, ...] = ()


class Specs(Struct, frozen=True):
    """The devices of one kind that a container runtime accepts from the node's specifications.

    refused: names that two files of one directory have, with these files. problems: of files that the runtime drops and that may be
    of this kind. unread: of a file that this process could not read; it may define any name.
    """

    names: Mapping[str, Specified] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    unread: str = ""


class NowOnHost(Struct, frozen=True):
    """owners: UUIDs of a device file, by path and by number. nobodys: capability files of the node. drawing: UUIDs in /dev/dri."""

    owners: Mapping[str, frozenset[str]] = field(default_factory=dict)
    nobodys: frozenset[str] = frozenset()
    drawing: frozenset[str] = frozenset()
    driver_version: str = ""


def now_on_host(
    gpus: Iterable[Gpu],
    capabilities: Mapping[str, int],
    graphics: Mapping[str, Collection[str]],
    driver_version: str = "",
) -> NowOnHost:
    """gpus: all of the node. capabilities: see mig.capability_minors(). graphics: see host_files.graphics_of()."""
    owners: dict[str, frozenset[str]] = {}
    for gpu in gpus:
        instances = gpu.instances or ()
        uuids = frozenset((gpu.uuid, *(each.uuid for each in instances)))
        owners |= dict.fromkeys(graphics.get(gpu.uuid, ()), uuids)
        if gpu.minor is None:
            continue
        owners |= {gpu_file(gpu.minor): uuids, f"c195:{gpu.minor}": uuids}
        for each in instances:
            for path in capability_nodes(capabilities, gpu.minor, each):
                owners[path] = owners.get(path, frozenset()) | {each.uuid}
    nobodys = frozenset(capability_file(capabilities[name]) for name in _OF_NODE if name in capabilities)
    return NowOnHost(owners, nobodys, frozenset(uuid for uuid, own in graphics.items() if own), driver_version)


def fault(device: GpuDevice, specs: Specs, now: NowOnHost) -> str:
    """Why no container may get it by CDI, with the remedy. "" if it may, or without a specification and a fault."""
    uuid = device.uuid
    specified = specs.names.get(uuid)
    if uuid in specs.refused:
        return f"{specs.refused[uuid]} both name it, so a container runtime knows it by neither: remove one of them"
    if specified is None:
        dropped = specs.problems[0] if specs.problems else ""
        return f"a container runtime drops {dropped}. {_remedy(dropped.partition(': ')[0])}" if dropped else ""
    if specs.unread:
        return f"{specs.unread}; it was not read and may name the same device, which is refused then: move it elsewhere"
    found = specified.fault or _other_gpu(device, specified, now) or _other_driver(specified, now)
    return f"{specified.file} is outdated: {found}. {_remedy(specified.file)}" if found else ""


def _remedy(file: str) -> str:
    return f"Run on the node: nvidia-ctk cdi generate --device-name-strategy=uuid --output={file}"


def _other_gpu(device: GpuDevice, specified: Specified, now: NowOnHost) -> str:
    for path, number in specified.nodes:
        owners = _owners(path, number, device.gpu, now)
        if owners is not None and compare({device.uuid}, owners) is not Sameness.SAME:
            return f"by it a container with {device.uuid} gets {path}, which is {_named(owners)} now"
    return ""


def _owners(path: str, number: str, gpu: Gpu, now: NowOnHost) -> Collection[str] | None:
    """The UUIDs behind a device file, empty if unknown; None if the file does not matter."""
    if _GPU_NUMBER.fullmatch(number) or _GPU_FILE.fullmatch(path):
        return now.owners.get(number) or now.owners.get(path, ())
    if _CAPABILITY.fullmatch(path) and (opened := _opened(path, number)) not in now.nobodys:
        return now.owners.get(opened, ())
    if number.startswith(_GRAPHICS):
        # a file without a known GPU proves nothing if this GPU's own files are unknown
        return now.owners.get(number, () if gpu.uuid in now.drawing else None)
    return None


def _opened(path: str, number: str) -> str:
    """The driver's name of a capability file: the minor number counts, although a specification may list it with another path."""
    minor = number.partition(":")[2]
    return capability_file(int(minor)) if number.startswith("c") and minor.isdecimal() else path


def _named(owners: Collection[str]) -> str:
    return f"of {min(owners)}" if owners else "no GPU's that the driver reports"


def _other_driver(specified: Specified, now: NowOnHost) -> str:
    """For files of the driver that this process cannot see: their names include its version."""
    for path in specified.unseen:
        found = _LIBRARY.fullmatch(path.rpartition("/")[2])
        if found and now.driver_version and found[1] != now.driver_version:
            return f"it has {path}, and the driver is {now.driver_version}"
    return ""
