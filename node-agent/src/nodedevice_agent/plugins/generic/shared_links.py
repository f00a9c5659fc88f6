"""Links of udev that lead to one device although others would have the same link: those cannot be found by it. Pure.

udev makes a link in a directory by-id of what a device says of itself: its maker, its model and its serial. Of two devices that
say the same, such as cameras with one serial or serial adapters without one, the link leads to the one that came last.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from nodedevice_agent.lib.deviceplugin_server.values import some
from nodedevice_agent.plugins.generic.absent import listed
from nodedevice_agent.plugins.generic.found import Found, FoundFile
from nodedevice_agent.plugins.generic.functions import Node, UsbDevice

_BY_ID: Final = "/by-id/"
_BY_PATH: Final = "/by-path/"
_LONGEST: Final = 48


class SharedLink(Struct, frozen=True):
    """link: udev's. file: its target. others: the other device files that claim the link, with their USB devices."""

    link: str
    file: str
    others: tuple[tuple[str, UsbDevice | None], ...]


def by_id(found: Found) -> list[FoundFile]:
    """The device files that are found by such a link, each link once."""
    links = {file.path: file for files in found.values() for file in files if _BY_ID in file.path and file.is_device}
    return [file for file in links.values() if file.path != file.kernel_path]


def shared_links(
    links: Iterable[FoundFile],
    twins: Callable[[FoundFile], Iterable[tuple[Node, UsbDevice | None]]],
    offered: Iterable[str],
) -> list[SharedLink]:
    """twins: the device files that would have the same link. offered: numbers of files that the resource has in another way."""
    known = {*offered}
    shared = [
        SharedLink(
            file.path,
            file.kernel_path,
            tuple((node.path, usb) for node, usb in twins(file) if node.number not in known),
        )
        for file in links
    ]
    return [each for each in shared if each.others]


def encoded(link: str) -> str:
    """The name of udevd's directory for claimants of a link. link: below /dev."""
    return link.removeprefix("/dev").replace("\\", "\\x5c").replace("/", "\\x2f")


def advice(shared: Sequence[SharedLink], links: Mapping[str, str]) -> str:
    """For people; "" without such links. links: all of udev's, and the files they lead to."""
    if not shared:
        return ""
    named = some([_named(each, links) for each in shared], "; ")
    remedy = "name both by their links in by-path, or use select, which distinguishes them by their ports"
    return f"devices that have the same link as another one are not listed: {named}: {remedy}"


def _named(shared: SharedLink, links: Mapping[str, str]) -> str:
    others = listed([_other(path, usb, links) for path, usb in shared.others])
    return f"{shared.link} leads to {shared.file}, and {others} would have the same link"


def _other(path: str, usb: UsbDevice | None, links: Mapping[str, str]) -> str:
    facts = []
    if usb is not None:
        serial = f"serial {usb.serial[:_LONGEST]}" if usb.serial else "no serial"
        facts = [f"{usb.vendor}:{usb.product}", serial, f"port {usb.port}"]
    facts += [link for link, file in sorted(links.items()) if file == path and _BY_PATH in link][:1]
    return f"{path} ({', '.join(facts)})" if facts else path
