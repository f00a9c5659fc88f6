"""Records which serials of USB devices are unique, and where the first device with a repeated serial is. Pure.

Makers give many devices one serial. Once two devices are seen with it, both are named by their ports for good: so the remaining
one is never mistaken for the other. Only the first device, as long as it stays in its port, keeps the serial as a name.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from nodedevice_agent.plugins.generic.functions import UsbDevice

# beyond that, the unplugged devices that were seen longest ago are forgotten
_MAX_KNOWN = 1024

Serial = tuple[str, str, str]


class Known(Struct, frozen=True):
    """The state of a vendor, product and serial. port: of the device that had it alone; "" if unknown."""

    port: str
    is_repeated: bool = False


class Serials:
    """The state of all serials seen so far."""

    def __init__(self, known: Mapping[Serial, Known] | None = None) -> None:
        self.known: dict[Serial, Known] = dict(known or {})

    def note(self, usb_devices: Iterable[UsbDevice]) -> list[Serial]:
        """All USB devices that are there. Returns the serials that are repeated since then, sorted."""
        ports: dict[Serial, list[str]] = {}
        for usb in usb_devices:
            if usb.serial:
                ports.setdefault(usb.identity, []).append(usb.port)
        repeated = []
        for serial, used in ports.items():
            before = self.known.pop(serial, None)
            after = _known(before, used)
            if after.is_repeated and not (before is not None and before.is_repeated):
                repeated.append(serial)
            # at the end: seen last
            self.known[serial] = after
        for serial in [*self.known][: max(0, len(self.known) - _MAX_KNOWN)]:
            del self.known[serial]
        return sorted(repeated)

    def is_own(self, usb: UsbDevice) -> bool:
        """Whether no other device has had its serial at the same time."""
        return bool(usb.serial) and not self._of(usb).is_repeated

    def is_first(self, usb: UsbDevice) -> bool:
        """Whether it is the one that had its serial alone."""
        return bool(usb.serial) and self._of(usb).port == usb.port

    def _of(self, usb: UsbDevice) -> Known:
        return self.known.get(usb.identity, Known(usb.port))


def _known(before: Known | None, ports: list[str]) -> Known:
    if before is not None and before.is_repeated:
        return before
    if len(ports) == 1:
        return Known(ports[0])
    return Known(before.port if before is not None and before.port in ports else "", True)
