"""The device files and USB devices that a kernel has at one moment, and what a file of /dev is among them. Pure."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodedevice_agent.identity import hub_token, path_token
from nodedevice_agent.plugins.generic.found import FoundFile
from nodedevice_agent.plugins.generic.functions import Node, UsbDevice, usb_path
from nodedevice_agent.plugins.generic.identity import places
from nodedevice_agent.plugins.generic.lasting_places import LastingPlaces
from nodedevice_agent.plugins.shared_files import is_shared_file

# numbers of the kernel's memory devices, such as /dev/null; block devices of this major are RAM disks
_MEMORY = "c1:"
# devices without a bus, such as a disk that is made of other disks
_VIRTUAL = "/devices/virtual/"


class Inventory:
    """usb_devices: by path in sysfs. has_own_serial: whether no other USB device has its vendor, product and serial.

    names_in: the names in a place in sysfs. unread: numbers whose device could not be read.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        usb_devices: Mapping[str, UsbDevice],
        has_own_serial: Callable[[UsbDevice], bool],
        names_in: Callable[[str], Iterable[str]],
        unread: Container[str] = (),
    ) -> None:
        self.nodes = tuple(nodes)
        self.usb_devices = usb_devices
        self._has_own_serial = has_own_serial
        self._lasting = LastingPlaces(names_in)
        self._unread = unread
        self._by_number = {node.number: node for node in self.nodes}
        # made when it is asked for; no cached_property, whose lock a thread would keep that hangs
        self._by_description: Mapping[tuple[str, ...], Sequence[Node]] | None = None
        self._by_path = {node.path: node for node in self.nodes}

    def identified(self, file: FoundFile) -> FoundFile:
        """The file with its effective number and tokens (see identity.py). file: with the number from its own status."""
        if not file.is_device:
            return replace(file, tokens=(path_token(file.kernel_path),))
        if is_shared_file(file.kernel_path):
            return replace(file, is_shared_file=True, tokens=())
        number = file.number
        if is_memory(number):
            # a test's file: it has the number that sysfs has for its path, or its path
            named = self._by_path.get(file.kernel_path)
            number = named.number if named is not None else path_token(file.kernel_path)
        is_unread = file.is_unread or self._is_unread(number)
        return replace(file, number=number, tokens=(number, *self._tokens(number)), is_unread=is_unread)

    def _is_unread(self, number: str) -> bool:
        """Whether it could not be read which device has this number; a part of it may be known."""
        node = self._by_number.get(number)
        if node is None:
            return number in self._unread
        return bool(usb_path(node.sysfs)) and self.usb_of(node) is None

    def usb_of(self, node: Node) -> UsbDevice | None:
        """The USB device that it is a file of."""
        return self.usb_devices.get(usb_path(node.sysfs))

    def twins(self, file: FoundFile, numbers: Iterable[str] = ()) -> Iterator[tuple[Node, UsbDevice | None]]:
        """Device files at the same place in other USB devices with the same properties, and files with these numbers that belong to
        another device. file: identified.
        """
        own = self._by_number.get(file.number)
        if own is None or own.sysfs.startswith(_VIRTUAL):
            # a device of several, such as the paths of a disk, has the links of each
            return
        usb = self.usb_of(own)
        same = self._described(self._description(own)) if usb is not None else ()
        claiming = [self._by_number[number] for number in numbers if number in self._by_number]
        for node in dict.fromkeys([*same, *claiming]):
            others = self.usb_of(node)
            if node.number != own.number and (others is None or others != usb):
                yield node, others

    def _described(self, description: tuple[str, ...]) -> Sequence[Node]:
        if self._by_description is None:
            found: dict[tuple[str, ...], list[Node]] = {}
            for node in self.nodes:
                found.setdefault(self._description(node), []).append(node)
            self._by_description = found
        return self._by_description.get(description, ())

    def _description(self, node: Node) -> tuple[str, ...]:
        """The properties from which udev makes links: equal USB devices have equal ones. Empty outside of USB devices."""
        usb = self.usb_of(node)
        if usb is None:
            return ()
        return node.subsystem, self._lasting.of(node.sysfs, usb, has_own_serial=True)[-1]

    def _tokens(self, number: str) -> tuple[str, ...]:
        """Tokens in addition to the number."""
        node = self._by_number.get(number)
        if node is None:
            return ()
        usb = self.usb_of(node)
        # a device plugged into a hub is another device
        is_hub = usb is not None and usb.is_hub and usb.sysfs == node.sysfs
        own = places(node)
        if self._is_unread(number):
            # by the place of the controller that it is plugged into it would be another device
            return own
        has_own_serial = usb is not None and bool(usb.serial) and self._has_own_serial(usb)
        lasting = [token for place in own for token in self._lasting.of(place, usb, has_own_serial=has_own_serial)]
        return tuple(map(hub_token, lasting)) if is_hub else (*own, *lasting)


def is_memory(number: str) -> bool:
    """Whether a file with this number may be a test's, which is /dev/null under another name."""
    return number.startswith(_MEMORY)
