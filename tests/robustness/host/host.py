"""A made-up host: what is plugged in where, which tests/fakes/sysfs.py shows as the kernel and udevd do."""

import random
from pathlib import Path

from tests.fakes.sysfs import HUB, PCI, FakeSysfs, usb_place
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
_LAST_ADDRESS = 127
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
        (root / "state").mkdir()
        self._tree = FakeSysfs(root)
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
        self._tree.usb(port, *stick.identity)
        stick.nodes = list(stick_nodes(stick, self._numbers, self._address(port)))
        for node in stick.nodes:
            self._add(node)
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
        self._tree.unplug(stick.port)
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

    def reboot(self, draw: random.Random) -> None:
        """All numbers are given out again, in another order."""
        present = [(stick, stick.port) for stick in self.plugged()]
        for stick, _ in present:
            self.unplug(stick)
        for card in self.cards:
            self._unbind(card)
        for hub in HUBS:
            self._tree.unplug(hub)
        self._tree.remove(_FUSE.sysfs)
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
        self._add(_FUSE)
        for hub in HUBS:
            self._tree.usb(hub, "05e3", "0610", device_class=HUB)
            self._add(raw_node(hub, (f"hub {hub}",), self._address(hub)))
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
        self._tree.pci(f"{PCI}/{card.slot}", group=card.group)
        card.nodes = list(card_nodes(card, self._numbers))
        for node in card.nodes:
            self._add(node)
        self._follow_group(card.group)

    def _unbind(self, card: Card) -> None:
        for node in card.nodes:
            self._remove(node)
        card.nodes = []
        self._tree.remove(f"{PCI}/{card.slot}")
        self._follow_group(card.group)

    def _follow_group(self, group: int) -> None:
        node = group_node(group)
        is_wanted = any(card.is_vfio and card.nodes and card.group == group for card in self.cards)
        if is_wanted and node.path not in self.nodes:
            self._add(node)
        elif not is_wanted and node.path in self.nodes:
            self._remove(node)
            self._tree.remove(node.sysfs)

    def _add(self, node: Node) -> None:
        self.nodes[node.path] = self.by_number[node.number] = node
        self._tree.node(
            node.sysfs,
            node.subsystem,
            node.number[1:],
            name=node.path.removeprefix("/dev/"),
            parent=node.device,
            partition=int(node.is_partition),
        )
        for name in node.names:
            self._names.setdefault(name, []).append(node.path)
            self._tree.link(name, node.path)

    def _remove(self, node: Node) -> None:
        del self.nodes[node.path], self.by_number[node.number]
        self._numbers.free(node.path)
        for name in node.names:
            claims = self._names[name]
            claims.remove(node.path)
            self._tree.link(name, claims[-1] if claims else "")
            if not claims:
                del self._names[name]
