"""A made-up host: what is plugged in where, and the file tree that shows it as the kernel and udevd do.

Device files are links to /dev/null, a real device that needs no root; their numbers are in the tree's sysfs.
"""

import os
import random
from contextlib import suppress
from pathlib import Path

from tests.fakes.sysfs import CONTROLLER, PCI, usb_place
from tests.robustness.host.hardware import (
    FUSE,
    Card,
    Mode,
    Node,
    Numbers,
    Stick,
    card_nodes,
    group_node,
    raw_node,
    stick_nodes,
)

HUBS = ("1-1", "1-2")
PORTS = ("1-3", "1-4", "2-1", *(f"{hub}.{port}" for hub in HUBS for port in (1, 2, 3)))
_STATIC = (
    "dev/serial/by-id",
    "dev/serial/by-path",
    "sys/dev/char",
    "sys/dev/block",
    "sys/bus/usb/devices",
    "sys/bus/pci",
    "sys/class",
    "sys/devices/virtual/misc",
    "sys/devices/virtual/vfio",
    "sys/kernel/iommu_groups",
    "run/udev/data",
    "state",
)
_LAST_ADDRESS = 127
# never removed, as they are above what belongs to several
_SHARED = frozenset(f"/sys{path}" for path in (PCI, CONTROLLER, f"{CONTROLLER}/usb1", f"{CONTROLLER}/usb2"))
_FUSE = Node("c10:229", FUSE, "/devices/virtual/misc/fuse", "misc", ("fuse",))


def sticks() -> list[Stick]:
    """Some of each kind: serials of their own, one serial for all, none at all, and what its firmware makes another device."""
    dongle = (Mode("0403", "6001", ("tty",)),)
    cheap = (Mode("1a86", "7523", ("tty",)),)
    board = (Mode("2341", "0043", ("acm",)), Mode("2341", "0036", ("acm",)), Mode("2341", "0036", ("hid",), False))
    return [
        Stick("dongle A", dongle, "A5XK"),
        Stick("dongle B", dongle, "B7QP"),
        Stick("clone 1", dongle, "0001"),
        Stick("clone 2", dongle, "0001"),
        Stick("cheap 1", cheap),
        Stick("cheap 2", cheap),
        Stick("double", (Mode("10c4", "ea70", ("tty", "tty")),), "D9"),
        Stick("token", (Mode("1050", "0407", ("hid", "tty")),), "77"),
        Stick("keys", (Mode("1050", "0402", ("hid",)),)),
        Stick("camera", (Mode("046d", "085e", ("video",)),), "CAM1"),
        Stick("disk 1", (Mode("0781", "5583", ("disk",)),), "4C53", partitions=2),
        Stick("disk 2", (Mode("0781", "5583", ("disk",)),), "4C54", partitions=1),
        Stick("board", board, "5573"),
        Stick("board 2", board, "5574"),
    ]


class Host:
    """plug(), unplug() and so on are what happens to it; `version` counts these. nodes: by the kernel's path, all device files."""

    def __init__(self, root: Path, draw: random.Random, unreadable: set[str]) -> None:
        """unreadable: paths that cannot be read, which are injected."""
        self.root = root
        self._unreadable = unreadable
        for directory in _STATIC:
            (root / directory).mkdir(parents=True, exist_ok=True)
        self._tree = _Tree(str(root))
        self.sticks = sticks()
        self.cards = [
            Card("gpu 1", "0000:00:02.0", 7),
            Card("gpu 2", "0000:00:03.0", 12),
            Card("nic", "0000:00:03.1", 12, True),
        ]
        self.nodes: dict[str, Node] = {}
        self.by_number: dict[str, Node] = {}
        # udev's names: the files that claim each, the last one has it
        self._names: dict[str, list[str]] = {}
        self.version = 0
        self.boots = 0
        # what several USB devices at once have called their own
        self.repeated: set[tuple[str, str, str]] = set()
        self._boot([], draw)

    # -- reads ----------------------------------------------------------------------------------------------------------

    def node(self, path: str) -> Node | None:
        """What a path leads to now."""
        claims = self._names.get(path)
        return self.nodes.get(claims[-1] if claims else path)

    def plugged(self) -> list[Stick]:
        return [stick for stick in self.sticks if stick.port]

    def free_ports(self) -> list[str]:
        taken = {stick.port for stick in self.sticks}
        return [port for port in PORTS if port not in taken]

    # -- events -----------------------------------------------------------------------------------------------------------

    def plug(self, stick: Stick, port: str) -> None:
        stick.port = port
        place = usb_place(port)
        vendor, product, serial = stick.identity
        self._tree.usb(stick.name, port, place, vendor, product, serial)
        stick.nodes = list(stick_nodes(stick, self._numbers, self._address(port)))
        for node in stick.nodes:
            self._add(stick.name, node)
        shown = [other.identity for other in self.plugged() if other.identity[2]]
        self.repeated |= {identity for identity in shown if shown.count(identity) > 1}
        self.version += 1

    def files_of(self, stick: Stick) -> list[str]:
        """What a scan reads of it: its USB device in sysfs, its device files, and udevd's names.

        Without the links by number: a real device file has its number, and these have none but by such a link.
        """
        usb = [f"/sys{usb_place(stick.port)}/{name}" for name in ("serial", "idVendor", "idProduct")]
        files = [path for node in stick.nodes for path in (node.path, *node.names)]
        return [*usb, f"/sys/bus/usb/devices/{stick.port}", *files]

    def break_file(self, stick: Stick, file: str) -> None:
        """A file of it cannot be read, until it is repaired or unplugged."""
        path = f"{self.root}{file}"
        stick.broken.add(path)
        self._unreadable.add(path)
        self.version += 1

    def repair(self, stick: Stick) -> None:
        self._unreadable -= stick.broken
        stick.broken.clear()
        self.version += 1

    def unplug(self, stick: Stick) -> None:
        self.repair(stick)
        for node in stick.nodes:
            self._remove(node)
        self._tree.remove(stick.name)
        stick.port, stick.nodes = "", []
        self.version += 1

    def switch(self, stick: Stick, mode_index: int) -> None:
        """Other firmware: it leaves and comes back in place as another device."""
        port = stick.port
        self.unplug(stick)
        stick.mode_index = mode_index
        self.plug(stick, port)

    def rebind(self, card: Card) -> None:
        """From the kernel's driver to virtual machines, or back."""
        self._unbind(card)
        card.is_vfio = not card.is_vfio
        self._bind(card)
        self.version += 1

    def power_loss(self, hub: str, draw: random.Random) -> list[Stick]:
        """All that is in a hub leaves; returns these in the order in which they come back."""
        lost = [stick for stick in self.plugged() if stick.port.startswith(f"{hub}.")]
        draw.shuffle(lost)
        return lost

    def reboot(self, draw: random.Random) -> None:
        """All numbers are given out again, in another order."""
        present = [(stick, stick.port) for stick in self.plugged()]
        for stick, _ in present:
            self.unplug(stick)
        for card in self.cards:
            self._unbind(card)
        for owner in (*HUBS, "fuse"):
            self._tree.remove(owner)
        for node in list(self.nodes.values()):
            self._remove(node)
        draw.shuffle(present)
        self._boot(present, draw)

    # -- internals --------------------------------------------------------------------------------------------------------

    def _boot(self, present: list[tuple[Stick, str]], draw: random.Random) -> None:
        self.boots += 1
        self.boot_id = f"boot-{self.boots}"
        self._numbers = Numbers()
        self._last_address = {"1": 1, "2": 1}
        self._add("fuse", _FUSE)
        for hub in HUBS:
            self._tree.usb(hub, hub, usb_place(hub), "05e3", "0610", "", is_hub=True)
            self._add(hub, raw_node(hub, (f"hub {hub}",), self._address(hub)))
        for card in draw.sample(self.cards, len(self.cards)):
            self._bind(card)
        for stick, port in present:
            self.plug(stick, port)
        self.version += 1

    def _address(self, port: str) -> int:
        """The next one on the bus that is free: unlike other numbers not the lowest."""
        bus = port[0]
        address = self._last_address[bus]
        while True:
            address = address % _LAST_ADDRESS + 1
            if f"/dev/bus/usb/00{bus}/{address:03}" not in self.nodes:
                self._last_address[bus] = address
                return address

    def _bind(self, card: Card) -> None:
        self._tree.card(card.name, f"{PCI}/{card.slot}", card.group)
        card.nodes = list(card_nodes(card, self._numbers))
        for node in card.nodes:
            self._add(card.name, node)
        self._follow_group(card.group)

    def _unbind(self, card: Card) -> None:
        for node in card.nodes:
            self._remove(node)
        card.nodes = []
        self._tree.remove(card.name)
        self._follow_group(card.group)

    def _follow_group(self, group: int) -> None:
        node, owner = group_node(group), f"group {group}"
        is_wanted = any(card.is_vfio and card.nodes and card.group == group for card in self.cards)
        if is_wanted and node.path not in self.nodes:
            self._add(owner, node)
        elif not is_wanted and node.path in self.nodes:
            self._remove(node)
            self._tree.remove(owner)

    def _add(self, owner: str, node: Node) -> None:
        self.nodes[node.path] = self.by_number[node.number] = node
        self._tree.node(owner, node)
        for name in node.names:
            self._names.setdefault(name, []).append(node.path)
            self._tree.name(name, node.path)

    def _remove(self, node: Node) -> None:
        del self.nodes[node.path], self.by_number[node.number]
        self._numbers.free(node.path)
        for name in node.names:
            claims = self._names[name]
            claims.remove(node.path)
            self._tree.name(name, claims[-1] if claims else "")
            if not claims:
                del self._names[name]


class _Tree:
    """Writes the files. owner: whose they are, so that they can be removed together."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._made: dict[str, list[str]] = {}
        self._directories = {""}

    def usb(
        self, owner: str, port: str, place: str, vendor: str, product: str, serial: str, *, is_hub: bool = False
    ) -> None:
        self._directory(owner, f"/sys{place}")
        self._text(owner, f"/sys{place}/idVendor", vendor)
        self._text(owner, f"/sys{place}/idProduct", product)
        self._text(owner, f"/sys{place}/bDeviceClass", "09" if is_hub else "00")
        if serial:
            self._text(owner, f"/sys{place}/serial", serial)
        self._sys_link(owner, "/bus/usb/devices", port, place)

    def card(self, owner: str, place: str, group: int) -> None:
        self._directory(owner, f"/sys{place}")
        self._sys_link(owner, place, "subsystem", "/bus/pci")
        self._sys_link(owner, place, "iommu_group", f"/kernel/iommu_groups/{group}")
        self._directory("", f"/sys/kernel/iommu_groups/{group}/devices")
        self._sys_link(owner, f"/kernel/iommu_groups/{group}/devices", place.rpartition("/")[2], place)

    def node(self, owner: str, node: Node) -> None:
        kind, number = "char" if node.number[0] == "c" else "block", node.number[1:]
        major, _, minor = number.partition(":")
        name = node.path.removeprefix("/dev/")
        self._directory(owner, f"/sys{node.sysfs}")
        kind_line = "DEVTYPE=partition\n" if node.is_partition else ""
        self._text(owner, f"/sys{node.sysfs}/uevent", f"MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\n{kind_line}")
        bus = "bus" if node.subsystem == "usb" else "class"
        self._sys_link(owner, node.sysfs, "subsystem", f"/{bus}/{node.subsystem}")
        if node.is_partition:
            self._text(owner, f"/sys{node.sysfs}/partition", "1")
        if node.device:
            self._sys_link(owner, node.sysfs, "device", node.device)
            above = node.device.rpartition("/input/")[0]
            if node.subsystem == "input" and f"/sys{node.device}/device" not in self._made[owner]:
                self._sys_link(owner, node.device, "device", above)
        self._directory("", node.path.rpartition("/")[0])
        self._link(owner, node.path, "/dev/null")
        self._sys_link(owner, f"/dev/{kind}", number, node.sysfs)

    def name(self, name: str, path: str) -> None:
        """udev's name leads to this file from now on; to none without one."""
        full = f"{self._root}{name}"
        with suppress(FileNotFoundError):
            os.unlink(full)
        if path:
            os.symlink("../" * (name.count("/") - 2) + path.removeprefix("/dev/"), full)

    def remove(self, owner: str) -> None:
        for path in reversed(self._made.pop(owner, [])):
            if path in self._directories:
                self._directories.discard(path)
                os.rmdir(f"{self._root}{path}")
            else:
                os.unlink(f"{self._root}{path}")

    def _directory(self, owner: str, path: str) -> None:
        if path in self._directories:
            return
        self._directory(owner, path.rpartition("/")[0])
        self._directories.add(path)
        try:
            os.mkdir(f"{self._root}{path}")
        except FileExistsError:
            return
        if path not in _SHARED:
            self._made.setdefault(owner, []).append(path)

    def _text(self, owner: str, path: str, text: str) -> None:
        descriptor = os.open(f"{self._root}{path}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(descriptor, f"{text}\n".encode())
        os.close(descriptor)
        self._made.setdefault(owner, []).append(path)

    def _link(self, owner: str, path: str, target: str) -> None:
        os.symlink(target, f"{self._root}{path}")
        self._made.setdefault(owner, []).append(path)

    def _sys_link(self, owner: str, directory: str, name: str, target: str) -> None:
        self._link(owner, f"/sys{directory}/{name}", "../" * directory.count("/") + target[1:])
