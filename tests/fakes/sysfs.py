"""A host's sysfs, /dev and udevd's database as files on disk, laid out as the kernel and udevd do.

    host = FakeSysfs(tmp_path)
    dongle = host.usb("1-2.3", "0403", "6001", serial="A5XK3RJT")
    host.node(f"{dongle}/1-2.3:1.0/ttyUSB0", "tty", "188:0")
    host.unplug("1-2.3")

A device file is a link to /dev/null: a real device, which needs no root. A place is a path below /sys.
The host changes also while reads of files fail: only calls that make, move and unlink files are used here.
tests/conformance/test_sysfs.py compares what is written here with the kernel's own sysfs.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

PCI = "/devices/pci0000:00"
CONTROLLER = f"{PCI}/0000:00:14.0"
HUB = "09"
_DIRECTORIES = ("dev", "sys/dev/char", "sys/dev/block", "sys/bus/usb/devices", "sys/devices", "run/udev/data")
_REMOVED = "removed"


def usb_place(port: str) -> str:
    """In sysfs, of the device at a port such as 1-2.3, behind the hub 1-2."""
    bus, _, ports = port.partition("-")
    steps = ports.split(".")
    return "/".join([f"{CONTROLLER}/usb{bus}", *(f"{bus}-{'.'.join(steps[: n + 1])}" for n in range(len(steps)))])


class FakeSysfs:
    """The file tree of one host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._removals = 0
        # by place: files elsewhere that go with the device
        self._elsewhere: dict[str, list[str]] = {}
        for directory in (*_DIRECTORIES, _REMOVED):
            _make_directory(f"{root}/{directory}")

    def usb(
        self,
        port: str,
        vendor: str = "",
        product: str = "",
        serial: str | None = None,
        *,
        device_class: str = "00",
        place: str = "",
    ) -> str:
        """Plug a device in. place: behind another controller. Returns its place."""
        place = place or usb_place(port)
        fields = {"idVendor": vendor, "idProduct": product, "serial": serial, "bDeviceClass": device_class}
        self._write_fields(place, fields)
        self.sys_link(f"{place}/subsystem", "/bus/usb")
        self._show(f"/bus/usb/devices/{port}", place)
        return place

    def unplug(self, port: str) -> None:
        """With all that is plugged into it."""
        self.remove(usb_place(port))

    def pci(
        self, place: str, vendor: str = "", device: str = "", its_class: str = "", *, group: int | None = None
    ) -> None:
        """A card. vendor, device: four digits. group: of the IOMMU."""
        numbers = {"vendor": vendor, "device": device, "class": its_class}
        self._write_fields(place, {name: f"0x{number}" for name, number in numbers.items() if number})
        self.sys_link(f"{place}/subsystem", "/bus/pci")
        address = place.rpartition("/")[2]
        self._show(f"/bus/pci/devices/{address}", place)
        if group is not None:
            self.sys_link(f"{place}/iommu_group", f"/kernel/iommu_groups/{group}")
            self._show(f"/kernel/iommu_groups/{group}/devices/{address}", place)

    def node(
        self, place: str, subsystem: str, number: str, *, name: str = "", parent: str = "", partition: int = 0
    ) -> str:
        """A device with a device file. Returns the file's path.

        parent: where its link `device` leads, if it has one. partition: its number on its disk; 0 for any other device.
        """
        name = name or place.rpartition("/")[2]
        major, minor = number.split(":")
        kind = "block" if subsystem == "block" else "char"
        self._write_fields(place, {"uevent": f"MAJOR={major}\nMINOR={minor}\nDEVNAME={name}", "dev": number})
        if subsystem != "usb":
            # a USB device has the link of its bus
            self.sys_link(f"{place}/subsystem", f"/class/{subsystem}")
        if partition:
            self._write_fields(place, {"partition": str(partition)})
        if parent:
            _make_directory(f"{self.root}/sys{parent}")
            self.sys_link(f"{place}/device", parent)
            if subsystem == "input" and not parent.startswith("/devices/virtual/"):
                # an input device has no file of its own, and several files
                with suppress(FileExistsError):
                    self.sys_link(f"{parent}/device", parent.rpartition("/")[0].removesuffix("/input"))
        file = f"{self.root}/dev/{name}"
        _link(file, "/dev/null")
        self._elsewhere.setdefault(place, []).extend((file, f"{self.root}/run/udev/data/{kind[0]}{number}"))
        # the kernel makes this last
        self._show(f"/dev/{kind}/{number}", place)
        return f"/dev/{name}"

    def remove(self, place: str) -> None:
        """A device and all below it, with their device files, their links, and what udevd knows of them."""
        for each in [each for each in self._elsewhere if f"{each}/".startswith(f"{place}/")]:
            for path in self._elsewhere.pop(each):
                with suppress(FileNotFoundError):
                    os.unlink(path)
        self._removals += 1
        os.rename(f"{self.root}/sys{place}", f"{self.root}/{_REMOVED}/{self._removals}")

    def dongle(self, port: str, number: int, serial: str | None = None) -> str:
        """A serial dongle with a tty and a hidraw, 0403:6001. Returns its place."""
        place = self.usb(port, "0403", "6001", serial)
        tty = f"{place}/{port}:1.0/ttyUSB{number}"
        self.node(f"{tty}/tty/ttyUSB{number}", "tty", f"188:{number}", parent=tty)
        hid = f"{place}/{port}:1.1/0003:0403:6001.000{number}"
        self.node(f"{hid}/hidraw/hidraw{number}", "hidraw", f"240:{number}", parent=hid)
        return place

    def link(self, link: str, file: str) -> None:
        """udevd leads a name, /dev/serial/by-id/usb-FTDI_A-if00-port0, to /dev/ttyUSB0; with no file it removes the name."""
        with suppress(FileNotFoundError):
            os.unlink(f"{self.root}{link}")
        if file:
            _link(f"{self.root}{link}", _relative(link, file))

    def udev(self, number: str, **properties: str) -> None:
        """What udevd writes of a device, such as c188:0."""
        lines = ["I:1234567", *(f"E:{key}={value}" for key, value in properties.items()), "G:uaccess", "V:1"]
        fresh = f"{self.root}/run/udev/data/.{number}"
        _write(fresh, "\n".join(lines))
        # udevd takes longer than a tick of the kernel, by which a new file's time may be behind the clock
        os.utime(fresh, ns=(now := time.time_ns(), now))
        os.rename(fresh, f"{self.root}/run/udev/data/{number}")

    def sys(self, place: str) -> Path:
        return self.root / f"sys{place}"

    def sys_link(self, path: str, target: str) -> None:
        _link(f"{self.root}/sys{path}", _relative(path, target))

    def _show(self, path: str, place: str) -> None:
        """A link to a device, which goes with it."""
        self.sys_link(path, place)
        self._elsewhere.setdefault(place, []).append(f"{self.root}/sys{path}")

    def _write_fields(self, place: str, fields: dict[str, str | None]) -> None:
        """Those that have a value."""
        _make_directory(f"{self.root}/sys{place}")
        for name, value in fields.items():
            if value:
                _write(f"{self.root}/sys{place}/{name}", value)


def _relative(link: str, target: str) -> str:
    """From the nearest directory above both, as the kernel writes it: never `..` alone."""
    base, steps = link.rpartition("/")[0], 0
    while base and not target.startswith(f"{base}/"):
        base, steps = base.rpartition("/")[0], steps + 1
    return "../" * steps + target[len(base) + 1 :]


def _link(path: str, target: str) -> None:
    try:
        os.symlink(target, path)
    except FileNotFoundError:
        _make_directory(path.rpartition("/")[0])
        os.symlink(target, path)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def _make_directory(path: str) -> None:
    try:
        os.mkdir(path)
    except FileExistsError:
        return
    except FileNotFoundError:
        _make_directory(path.rpartition("/")[0])
        os.mkdir(path)
