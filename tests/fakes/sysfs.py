"""A host's sysfs, /dev and udevd's database as files on disk, laid out as the kernel and udevd do.

    host = FakeSysfs(tmp_path)
    dongle = host.usb("1-2.3", "0403", "6001", serial="A5XK3RJT")
    host.node(f"{dongle}/1-2.3:1.0/ttyUSB0", "tty", "188:0")
    host.unplug("1-2.3")

A device file is a link to /dev/null: a real device, which needs no root.
"""

import os
import shutil
from pathlib import Path

PCI = "/devices/pci0000:00"
CONTROLLER = f"{PCI}/0000:00:14.0"


def usb_place(port: str) -> str:
    """In sysfs, of the device at a port such as 1-2.3, behind the hub 1-2."""
    bus, _, ports = port.partition("-")
    steps = ports.split(".")
    return "/".join([f"{CONTROLLER}/usb{bus}", *(f"{bus}-{'.'.join(steps[: n + 1])}" for n in range(len(steps)))])


class FakeSysfs:
    """The file tree of one host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for directory in (
            "dev",
            "sys/dev/char",
            "sys/dev/block",
            "sys/bus/usb/devices",
            "sys/devices",
            "run/udev/data",
        ):
            (root / directory).mkdir(parents=True, exist_ok=True)

    def usb(self, port: str, vendor: str = "", product: str = "", serial: str | None = None) -> str:
        """Plug a device in. Returns its path in sysfs."""
        sysfs = usb_place(port)
        self.sys(sysfs).mkdir(parents=True, exist_ok=True)
        for name, value in (("idVendor", vendor), ("idProduct", product), ("serial", serial)):
            if value:
                (self.sys(sysfs) / name).write_text(f"{value}\n")
        self.sys_link(f"/bus/usb/devices/{port}", sysfs)
        return sysfs

    def unplug(self, port: str) -> None:
        """With all that is plugged into it, its device files, and what udevd knows of them."""
        link = self.sys(f"/bus/usb/devices/{port}")
        sysfs = os.path.realpath(link)
        for kind, letter in (("char", "c"), ("block", "b")):
            for each in list(self.sys(f"/dev/{kind}").iterdir()):
                if os.path.realpath(each).startswith(f"{sysfs}/") or os.path.realpath(each) == sysfs:
                    name = (each / "uevent").read_text().split("DEVNAME=")[1].strip()
                    (self.root / "dev" / name).unlink()
                    (self.root / f"run/udev/data/{letter}{each.name}").unlink(missing_ok=True)
                    each.unlink()
        link.unlink()
        shutil.rmtree(sysfs)

    def node(
        self, sysfs: str, subsystem: str, number: str, *, name: str = "", parent: str = "", kind: str = "char"
    ) -> str:
        """A device of a class with a device file. parent: where its link `device` leads, if it has one. Returns the file's path."""
        name = name or sysfs.rpartition("/")[2]
        major, minor = number.split(":")
        self.sys(sysfs).mkdir(parents=True, exist_ok=True)
        (self.sys(sysfs) / "uevent").write_text(f"MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\n")
        self.sys(f"/class/{subsystem}").mkdir(parents=True, exist_ok=True)
        self.sys_link(f"{sysfs}/subsystem", f"/class/{subsystem}")
        if parent:
            self.sys(parent).mkdir(parents=True, exist_ok=True)
            self.sys_link(f"{sysfs}/device", parent)
        file = self.root / "dev" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to("/dev/null")
        # the kernel makes this last
        self.sys_link(f"/dev/{kind}/{number}", sysfs)
        return f"/dev/{name}"

    def dongle(self, port: str, number: int, serial: str | None = None) -> str:
        """A serial dongle with a tty and a hidraw, 0403:6001. Returns its path in sysfs."""
        sysfs = self.usb(port, "0403", "6001", serial)
        tty = f"{sysfs}/{port}:1.0/ttyUSB{number}"
        self.node(f"{tty}/tty/ttyUSB{number}", "tty", f"188:{number}", parent=tty)
        hid = f"{sysfs}/{port}:1.1/0003:0403:6001.000{number}"
        self.node(f"{hid}/hidraw/hidraw{number}", "hidraw", f"240:{number}", parent=hid)
        return sysfs

    def link(self, link: str, file: str) -> None:
        """As udevd makes it: /dev/serial/by-id/usb-FTDI_A-if00-port0 to /dev/ttyUSB0."""
        made = self.root / link[1:]
        made.parent.mkdir(parents=True, exist_ok=True)
        made.symlink_to(os.path.relpath(file, os.path.dirname(link)))

    def udev(self, number: str, **properties: str) -> None:
        """What udevd writes of a device, such as c188:0."""
        lines = ["I:1234567", *(f"E:{key}={value}" for key, value in properties.items()), "G:uaccess", "V:1"]
        fresh = self.root / f"run/udev/data/.{number}"
        fresh.write_text("\n".join(lines) + "\n")
        fresh.rename(self.root / f"run/udev/data/{number}")

    def sys(self, path: str) -> Path:
        return self.root / f"sys{path}"

    def sys_link(self, path: str, target: str) -> None:
        relative = os.path.relpath(target, os.path.dirname(path))
        self.sys(path).symlink_to(relative)
