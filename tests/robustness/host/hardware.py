"""The hardware of a made-up host: USB sticks, their interfaces, PCI cards, and the device files that the kernel makes of them.

A stick is one thing however it is named, numbered and plugged in; what is the same hardware is known here by construction, see
Node.unit, and by nothing that the product computes.
Source of places, names and numbers: Linux, Documentation/admin-guide/devices.txt, and sysfs of machines with such devices.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.fakes.sysfs import PCI, usb_place

FUSE = "/dev/fuse"


@dataclass(frozen=True)
class Class:
    """Device files of one kind: letter and major number, first minor number, the distance of two, and the name."""

    letter: str
    major: int
    name: str
    first: int = 0
    step: int = 1


TTY_USB = Class("c", 188, "ttyUSB")
TTY_ACM = Class("c", 166, "ttyACM")
HIDRAW = Class("c", 240, "hidraw")
EVENT = Class("c", 13, "input/event", first=64)
VIDEO = Class("c", 81, "video")
DISK = Class("b", 8, "sd", step=16)
GENERIC = Class("c", 21, "sg")
BSG = Class("c", 250, "bsg/")
CARD = Class("c", 226, "dri/card")
RENDER = Class("c", 226, "dri/renderD", first=128)
VFIO = Class("c", 243, "vfio/devices/vfio")
CLASSES = (TTY_USB, TTY_ACM, HIDRAW, EVENT, VIDEO, DISK, GENERIC, BSG, CARD, RENDER, VFIO)
VFIO_GROUP_MAJOR, RAW_MAJOR = 244, 189


@dataclass(frozen=True)
class Mode:
    """What a stick is with one firmware. functions: of its interfaces, in order. has_serial: whether it shows its serial."""

    vendor: str
    product: str
    functions: tuple[str, ...]
    has_serial: bool = True


@dataclass(eq=False)
class Stick:
    """A thing with a USB plug. serial: empty where it has none. partitions: of a disk. port: where it is; empty: in a box."""

    name: str
    modes: tuple[Mode, ...]
    serial: str = ""
    partitions: int = 0
    # paths of files of it that cannot be read
    broken: set[str] = field(default_factory=set)
    port: str = ""
    mode_index: int = 0
    nodes: list["Node"] = field(default_factory=list)

    @property
    def mode(self) -> Mode:
        return self.modes[self.mode_index]

    @property
    def identity(self) -> tuple[str, str, str]:
        """As it shows itself; the last empty without a serial."""
        return self.mode.vendor, self.mode.product, self.serial if self.mode.has_serial else ""


@dataclass(eq=False)
class Card:
    """A PCI device, which has the kernel's driver or is made over to virtual machines. group: of the IOMMU."""

    name: str
    slot: str
    group: int
    is_vfio: bool = False
    nodes: list["Node"] = field(default_factory=list)


@dataclass(frozen=True)
class Node:
    """A device file. number: `c188:0`. sysfs: its place. links: of sysfs, beside it. names: udev's other names.

    unit: what it is in hardware, from the whole to the part. Two files lead to the same hardware if one unit begins with the other.
    """

    number: str
    path: str
    sysfs: str
    subsystem: str
    unit: tuple[str, ...]
    device: str = ""
    is_partition: bool = False
    names: tuple[str, ...] = ()
    stick: Stick | None = field(default=None, compare=False, repr=False)


class Numbers:
    """Gives each new device file the lowest number that is free, as most of the kernel's drivers do."""

    def __init__(self) -> None:
        self._taken: dict[Class, set[int]] = {each: set() for each in CLASSES}
        self._by_path: dict[str, tuple[Class, int]] = {}
        self.inputs = self.hosts = self.hids = 0

    def take(self, kind: Class) -> tuple[int, str, str]:
        """The index, the device number and the file."""
        taken = self._taken[kind]
        index = next(i for i in range(len(taken) + 1) if i not in taken)
        taken.add(index)
        name = f"{kind.name}{chr(ord('a') + index)}" if kind is DISK else f"{kind.name}{index}"
        if kind is RENDER:
            name = f"{kind.name}{kind.first + index}"
        self._by_path[f"/dev/{name}"] = kind, index
        return index, f"{kind.letter}{kind.major}:{kind.first + index * kind.step}", f"/dev/{name}"

    def free(self, path: str) -> None:
        kind, index = self._by_path.pop(path, (None, 0))
        if kind is not None:
            self._taken[kind].discard(index)


def raw_node(port: str, unit: tuple[str, ...], devnum: int, stick: Stick | None = None) -> Node:
    """Raw access to a USB device, or to a hub."""
    bus = int(port.partition("-")[0])
    number = f"c{RAW_MAJOR}:{(bus - 1) * 128 + devnum - 1}"
    return Node(number, f"/dev/bus/usb/{bus:03}/{devnum:03}", usb_place(port), "usb", unit, stick=stick)


def stick_nodes(stick: Stick, numbers: Numbers, devnum: int) -> Iterator[Node]:
    """All device files of a stick where it is plugged in."""
    place = usb_place(stick.port)
    yield raw_node(stick.port, (stick.name,), devnum, stick)
    for number, function in enumerate(stick.mode.functions):
        interface = f"{place}/{stick.port}:1.{number}"
        yield from _FUNCTIONS[function](stick, interface, number, numbers)


def card_nodes(card: Card, numbers: Numbers) -> Iterator[Node]:
    """Those of virtual machines are one per IOMMU group, as only one process can have a group."""
    place = f"{PCI}/{card.slot}"
    if card.is_vfio:
        _, number, path = numbers.take(VFIO)
        sysfs = f"{place}/vfio-dev/{path.rpartition('/')[2]}"
        yield Node(number, path, sysfs, "vfio-dev", (f"iommu {card.group}",), place)
        return
    for kind in (CARD, RENDER):
        _, number, path = numbers.take(kind)
        yield Node(number, path, f"{place}/drm/{path.rpartition('/')[2]}", "drm", (card.name,), place)


def group_node(group: int) -> Node:
    """Of all cards of an IOMMU group, once one of them is made over to virtual machines."""
    number = f"c{VFIO_GROUP_MAJOR}:{group}"
    return Node(number, f"/dev/vfio/{group}", f"/devices/virtual/vfio/{group}", "vfio", (f"iommu {group}",))


def _tty(stick: Stick, interface: str, number: int, numbers: Numbers) -> Iterator[Node]:
    _, device, path = numbers.take(TTY_USB)
    name = path.rpartition("/")[2]
    parent = f"{interface}/{name}"
    yield Node(
        device,
        path,
        f"{parent}/tty/{name}",
        "tty",
        (stick.name, f"if{number}"),
        parent,
        names=_serial_names(stick, number),
        stick=stick,
    )


def _acm(stick: Stick, interface: str, number: int, numbers: Numbers) -> Iterator[Node]:
    _, device, path = numbers.take(TTY_ACM)
    sysfs = f"{interface}/tty/{path.rpartition('/')[2]}"
    names = _serial_names(stick, number)
    yield Node(device, path, sysfs, "tty", (stick.name, f"if{number}"), interface, names=names, stick=stick)


def _hid(stick: Stick, interface: str, number: int, numbers: Numbers) -> Iterator[Node]:
    numbers.hids += 1
    numbers.inputs += 1
    vendor, product, _ = stick.identity
    parent = f"{interface}/0003:{vendor.upper()}:{product.upper()}.{numbers.hids:04X}"
    unit = stick.name, f"if{number}"
    _, device, path = numbers.take(HIDRAW)
    yield Node(device, path, f"{parent}/hidraw/{path.rpartition('/')[2]}", "hidraw", unit, parent, stick=stick)
    _, device, path = numbers.take(EVENT)
    input_device = f"{parent}/input/input{numbers.inputs}"
    yield Node(device, path, f"{input_device}/{path.rpartition('/')[2]}", "input", unit, input_device, stick=stick)


def _video(stick: Stick, interface: str, number: int, numbers: Numbers) -> Iterator[Node]:
    for stream in ("picture", "metadata"):
        _, device, path = numbers.take(VIDEO)
        sysfs = f"{interface}/video4linux/{path.rpartition('/')[2]}"
        yield Node(device, path, sysfs, "video4linux", (stick.name, f"if{number}", stream), interface, stick=stick)


def _disk(stick: Stick, interface: str, number: int, numbers: Numbers) -> Iterator[Node]:
    host = numbers.hosts
    numbers.hosts += 1
    scsi = f"{interface}/host{host}/target{host}:0:0/{host}:0:0:0"
    unit = stick.name, f"if{number}"
    _, device, path = numbers.take(DISK)
    block = f"{scsi}/block/{path.rpartition('/')[2]}"
    yield Node(device, path, block, "block", unit, scsi, stick=stick)
    minor = int(device.partition(":")[2])
    for part in range(1, stick.partitions + 1):
        name = f"{path}{part}"
        yield Node(
            f"b{DISK.major}:{minor + part}",
            name,
            f"{block}/{name.rpartition('/')[2]}",
            "block",
            (*unit, f"part{part}"),
            is_partition=True,
            stick=stick,
        )
    _, device, path = numbers.take(GENERIC)
    yield Node(device, path, f"{scsi}/scsi_generic/{path.rpartition('/')[2]}", "scsi_generic", unit, scsi, stick=stick)
    _, device, path = numbers.take(BSG)
    yield Node(device, path, f"{scsi}/bsg/{host}:0:0:0", "bsg", unit, scsi, stick=stick)


_FUNCTIONS = {"tty": _tty, "acm": _acm, "hid": _hid, "video": _video, "disk": _disk}


def _serial_names(stick: Stick, interface: int) -> tuple[str, ...]:
    """udev's names of a serial port: by what it shows of itself, and by port, in the old form and the new one."""
    vendor, product, serial = stick.identity
    bus, _, port = stick.port.partition("-")
    maker = f"{vendor}_{product}" + (f"_{serial}" if serial else "")
    by_path = "/dev/serial/by-path/pci-0000:00:14.0-usb"
    return (
        f"/dev/serial/by-id/usb-{maker}-if0{interface}-port0",
        f"{by_path}-{bus}:{port}:1.{interface}-port0",
        f"{by_path}v2-{bus}:{port}:1.{interface}-port0",
    )


def is_same(one: Node, other: Node) -> bool:
    """Whether they lead to the same hardware."""
    shorter = min(len(one.unit), len(other.unit))
    return one.unit[:shorter] == other.unit[:shorter]
