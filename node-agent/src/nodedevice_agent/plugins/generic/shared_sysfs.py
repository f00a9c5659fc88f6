"""One reading of sysfs for all resources of a node that ask at the same time, as all of them do when a device comes."""

import math
import time
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from nodedevice_agent.lib.filesystem import note_again, unanswered
from nodedevice_agent.plugins.generic.functions import Node, UsbDevice
from nodedevice_agent.plugins.generic.sysfs import Sysfs


class _Reading(Struct, frozen=True):
    """began_at: monotonic seconds. errors: as `unanswered` has them."""

    began_at: float = -math.inf
    nodes: Sequence[Node] = ()
    usb_devices: Mapping[str, UsbDevice] = {}
    errors: Mapping[str, str] = {}


class SharedSysfs:
    """root: the host's file tree, without a trailing slash. Use in one thread at a time."""

    def __init__(self, root: str) -> None:
        self.sysfs = Sysfs(root)
        self._reading = _Reading()

    def read(self, asked_at: float, numbers: Collection[str] = ()) -> tuple[Sequence[Node], Mapping[str, UsbDevice]]:
        """Device files and USB devices, read at that time or later. numbers: of device files that were found since.

        What changes after the reading is an event, after which its resources ask again.
        """
        is_new = self._reading.began_at >= asked_at
        if not is_new or not {node.number for node in self._reading.nodes}.issuperset(numbers):
            self._reading = self._read()
        note_again(self._reading.errors)
        return self._reading.nodes, self._reading.usb_devices

    def _read(self) -> _Reading:
        began_at = time.monotonic()
        with unanswered() as errors:
            usb_devices = self.sysfs.usb_devices()
            nodes = self.sysfs.nodes()
        return _Reading(began_at, nodes, usb_devices, errors)
