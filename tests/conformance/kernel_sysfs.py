"""Compares the simulated host with a real one: FakeSysfs writes each real device, and its links and texts have to be the kernel's.

Only reads the real host. Device files themselves are not compared: the kernel gives them the names in `uevent`.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.fakes.sysfs import CONTROLLER, FakeSysfs, usb_place

# of a device and of a USB device, read by the agent; the simulated host may lack none that the kernel has
_READ = ("dev", "subsystem", "device", "partition", "iommu_group")
_READ_OF_USB = (*_READ, "idVendor", "idProduct", "bDeviceClass", "serial")
_DATABASE = "/run/udev/data"
_DIRECTORY, _DEVICE_FILE = ["a directory"], ["-> /dev/null"]
# a script that copies what is compared to the directory $1; a file that cannot be copied is a difference
COPY = r"""
cd /
find sys/devices sys/dev sys/bus/usb/devices sys/bus/pci/devices sys/kernel/iommu_groups run/udev/data dev/*/by-* \
  ! -type d \( -type l ! -path 'sys/devices/*' -o -path 'run/*' -o -name subsystem -o -name device -o -name iommu_group \
  -o -name uevent -o -name dev -o -name partition -o -name 'id[VP]*' -o -name bDeviceClass -o -name serial -o -name vendor \
  -o -name class \) -print0 2> /dev/null | xargs -0 cp -d --parents --target-directory="$1" 2> /dev/null
"""


class RealHost:
    """root: of a host's file tree or a copy, without a trailing slash."""

    def __init__(self, root: str) -> None:
        self.root = root

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(f"{self.root}{path}"))
        except FileNotFoundError:
            return []

    def text(self, path: str) -> str:
        try:
            return Path(f"{self.root}{path}").read_text(encoding="utf-8").removesuffix("\n")
        except FileNotFoundError:
            return ""

    def target(self, path: str) -> str:
        """Where a link leads, as a path of the host; "" for anything else."""
        if not os.path.islink(f"{self.root}{path}"):
            return ""
        return os.path.normpath(f"{os.path.dirname(path)}/{os.readlink(f'{self.root}{path}')}")

    def place(self, path: str) -> str:
        return self.target(f"/sys{path}").removeprefix("/sys")

    def field(self, place: str, name: str) -> str:
        return self.text(f"/sys{place}/{name}")


def differences(real: RealHost, fake: FakeSysfs) -> Iterator[str]:
    """Links and texts of the simulated host that are not those of the real one, and those that it lacks."""
    for folder, _, files in os.walk(fake.root):
        directory = folder.removeprefix(str(fake.root))
        names = set(os.listdir(folder))
        if files:
            read = _READ_OF_USB if "idVendor" in files else _READ
            names |= {name for name in read if os.path.lexists(f"{real.root}{directory}/{name}")}
        for name in sorted(names):
            written, kernels = _content(Path(folder, name)), _content(Path(f"{real.root}{directory}/{name}"))
            if name == "uevent":
                # more follows, which the agent does not read
                kernels = kernels[: len(written)]
            if written not in (kernels, _DIRECTORY, _DEVICE_FILE):
                yield f"{directory}/{name}: {written}, and the kernel has {kernels}"


def _content(path: Path) -> list[str]:
    """The target of a link; lines of a file, of udevd's only the properties."""
    if path.is_symlink():
        return [f"-> {path.readlink()}"]
    if not path.is_file():
        return _DIRECTORY if path.is_dir() else ["nothing"]
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("E:")] if _DATABASE in str(path) else lines


def _nodes(real: RealHost, fake: FakeSysfs, kind: str, is_wanted: Callable[[str, str], bool]) -> int:
    """is_wanted: by place and subsystem. Returns how many."""
    count = 0
    for number in real.names(f"/sys/dev/{kind}"):
        place = real.place(f"/dev/{kind}/{number}")
        subsystem = real.place(f"{place}/subsystem").rpartition("/")[2]
        if is_wanted(place, subsystem):
            uevent = dict(line.split("=", 1) for line in real.field(place, "uevent").splitlines())
            parent, partition = real.place(f"{place}/device"), int(real.field(place, "partition") or 0)
            fake.node(place, subsystem, number, name=uevent["DEVNAME"], parent=parent, partition=partition)
            count += 1
    return count


def character_devices(real: RealHost, fake: FakeSysfs) -> int:
    return _nodes(real, fake, "char", lambda place, name: name != "usb" and not _is_of_input_device(real, place, name))


def input_devices(real: RealHost, fake: FakeSysfs) -> int:
    return _nodes(real, fake, "char", lambda place, name: _is_of_input_device(real, place, name))


def _is_of_input_device(real: RealHost, place: str, subsystem: str) -> bool:
    """Not /dev/input/mice, which is of all."""
    return subsystem == "input" and bool(real.place(f"{place}/device"))


def disks(real: RealHost, fake: FakeSysfs) -> int:
    return _nodes(real, fake, "block", lambda place, _: not real.field(place, "partition"))


def partitions(real: RealHost, fake: FakeSysfs) -> int:
    return _nodes(real, fake, "block", lambda place, _: bool(real.field(place, "partition")))


def usb_devices(real: RealHost, fake: FakeSysfs) -> int:
    """With their raw device files."""
    for port in (names := [name for name in real.names("/sys/bus/usb/devices") if ":" not in name]):
        place = real.place(f"/bus/usb/devices/{port}")
        assert "-" not in port or place.endswith(usb_place(port).removeprefix(CONTROLLER)), place
        vendor, product, serial, kind = (
            real.field(place, name) for name in ("idVendor", "idProduct", "serial", "bDeviceClass")
        )
        fake.usb(port, vendor, product, serial, device_class=kind, place=place)
    assert _nodes(real, fake, "char", lambda _, subsystem: subsystem == "usb") == len(names)
    return len(names)


def pci_devices(real: RealHost, fake: FakeSysfs) -> int:
    for address in (addresses := real.names("/sys/bus/pci/devices")):
        place = real.place(f"/bus/pci/devices/{address}")
        numbers = [real.field(place, name).removeprefix("0x") for name in ("vendor", "device", "class")]
        group = real.place(f"{place}/iommu_group").rpartition("/")[2]
        fake.pci(place, *numbers, group=int(group) if group else None)
    return len(addresses)


def iommu_groups(real: RealHost, fake: FakeSysfs) -> int:
    """Of the same PCI devices."""
    return pci_devices(real, fake) and len(real.names("/sys/kernel/iommu_groups"))


def entries_of_udevd(real: RealHost, fake: FakeSysfs) -> int:
    for number in (numbers := [name for name in real.names(_DATABASE) if name[0] in "bc"]):
        lines = [line for line in real.text(f"{_DATABASE}/{number}").split("\n") if line.startswith("E:")]
        fake.udev(number, **dict(line.removeprefix("E:").split("=", 1) for line in lines))
    return len(numbers)


def names_of_udevd(real: RealHost, fake: FakeSysfs) -> int:
    for path in (
        paths := [f"/{each.relative_to(f'{real.root}/')}" for each in Path(f"{real.root}/").glob("dev/*/by-*/*")]
    ):
        fake.link(path, real.target(path))
    return len(paths)


# each writes all devices of one kind that the real host has, and returns how many
KINDS: tuple[Callable[[RealHost, FakeSysfs], int], ...] = (
    character_devices,
    input_devices,
    disks,
    partitions,
    usb_devices,
    pci_devices,
    iommu_groups,
    entries_of_udevd,
    names_of_udevd,
)
