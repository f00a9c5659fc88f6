"""Reads the current host files of GPUs, below the root at which the agent sees the host.

/dev, /proc and these files of sysfs need no disk, but the driver may hang. So callers read them by `with_deadlines`, not in the
event loop.
"""

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from nodedevice_agent.identity import path_token
from nodedevice_agent.lib import own_command
from nodedevice_agent.lib.last_known import LastKnown
from nodedevice_agent.plugins.nvml.devices import CONTROL_NODES, NEEDED_NODES
from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice
from nodedevice_agent.plugins.nvml.identity import OnHost, device_files, is_numbered
from nodedevice_agent.plugins.nvml.mig import CAPABILITY_MINORS, capability_minors

# a device file that links to /dev/null or the like is not another device
_MEMORY_MAJOR = 1
_CONTROL = NEEDED_NODES[0]
_BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NUMBER = re.compile(r"\d+:\d+")
# Source: NVIDIA's open kernel modules, nv-procfs.c. The UUID has question marks while nothing uses the GPU.
_GPUS = "/proc/driver/nvidia/gpus"
_UUID = re.compile(r"^GPU UUID:\s*(GPU-[^\s?]+)\s*$", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s*(\d{1,9})\s*$", re.MULTILINE)


def on_host(root: str, devices: Collection[GpuDevice], minors: Mapping[str, int], *, hands_over_files: bool) -> OnHost:
    """The device files of these. minors: of capabilities; they count only if containers get device files."""
    known = minors if hands_over_files else {}
    paths = {path for device in devices for path in device_files(device, known)}
    return OnHost(
        numbers={path: number for path in paths if (number := number_of(root, path))},
        capabilities=known,
        graphics=graphics_of(root, (device.gpu for device in devices)),
        hands_over_files=hands_over_files,
        program=own_command.typed(),
    )


def number_of(root: str, path: str) -> str:
    """The number of a device file, such as c195:0; its path if it links to /dev/null; "" for any other file."""
    status = _statuses.of(root + path)
    if status is None or not stat.S_ISCHR(status.st_mode):
        return ""
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    return path_token(path) if major == _MEMORY_MAJOR else f"c{major}:{minor}"


def with_known_numbers(root: str, gpus: Collection[Gpu]) -> dict[str, Gpu]:
    """The GPUs by UUID. A GPU that NVML does not report loses its number if the driver, loaded again, uses it for another one."""
    by_place = {gpu.pci_bus_id: gpu.uuid for gpu in gpus}
    owners: dict[int, str] = {}
    for place in _names.of(f"{root}{_GPUS}"):
        text = _texts.of(f"{root}{_GPUS}/{place}/information")
        uuid, minor = _UUID.search(text), _MINOR.search(text)
        if minor is not None:
            owners[int(minor[1])] = uuid[1] if uuid is not None else by_place.get(place, place)
    return {gpu.uuid: gpu if _may_have_number(gpu, owners) else replace(gpu, minor=None) for gpu in gpus}


def _may_have_number(gpu: Gpu, owners: Mapping[int, str]) -> bool:
    owner = owners.get(gpu.minor) if gpu.minor is not None else None
    return owner in (None, gpu.uuid)


def is_there(root: str, path: str) -> bool:
    return _statuses.of(root + path) is not None


def is_regular(root: str, path: str) -> bool:
    status = _statuses.of(root + path)
    return status is not None and stat.S_ISREG(status.st_mode)


def graphics_of(root: str, gpus: Iterable[Gpu]) -> dict[str, tuple[str, ...]]:
    """Numbers of each GPU's files in /dev/dri, by UUID."""
    return {gpu.uuid: tuple(_graphics(root, gpu.pci_bus_id)) for gpu in gpus}


def _graphics(root: str, bus_id: str) -> Iterator[str]:
    """Numbers of /dev/dri/cardN and renderDN: the same GPU for programs that draw or encode."""
    directory = f"{root}/sys/bus/pci/devices/{bus_id}/drm"
    for name in _names.of(directory) if _BUS_ID.fullmatch(bus_id) else ():
        number = _texts.of(f"{directory}/{name}/dev").strip()
        if _NUMBER.fullmatch(number):
            yield f"c{number}"


def have_files(root: str, devices: Collection[GpuDevice], minors: Mapping[str, int]) -> bool:
    """Whether all of these have device files on the host, by the driver's numbers. minors: of capabilities.

    If the driver's control file exists, files of GPUs exist or are created soon: missing_files() names them.
    """
    if not all(is_numbered(device, minors) for device in devices):
        return False
    paths = (path for device in devices for path in device_files(device, minors))
    return _is_device(root, _CONTROL) or all(_is_device(root, path) for path in paths)


def _is_device(root: str, path: str) -> bool:
    return number_of(root, path).startswith("c")


def missing_files(root: str, devices: Iterable[GpuDevice], minors: Mapping[str, int]) -> list[str]:
    """Device files that a container with these needs and that the host lacks, sorted; as far as the driver numbers them."""
    wanted = {*NEEDED_NODES, *(path for device in devices for path in device_files(device, minors))}
    return sorted(path for path in wanted if not number_of(root, path))


def control_nodes(root: str) -> list[str]:
    return [path for path in CONTROL_NODES if number_of(root, path)]


def capabilities(root: str) -> dict[str, int]:
    """See mig.capability_minors(); empty if the driver has no such file."""
    return capability_minors(_texts.of(root + CAPABILITY_MINORS))


def _status(path: str) -> os.stat_result:
    return os.stat(path)


def _text(path: str) -> str:
    return Path(path).read_text(encoding="ascii")


# A file that cannot be read now is the one that it was: its GPU does not lack it, and has no other identity.
_statuses: LastKnown[os.stat_result | None] = LastKnown(_status, None)
_texts = LastKnown(_text, "")
_names: LastKnown[list[str]] = LastKnown(lambda directory: sorted(os.listdir(directory)), [])
