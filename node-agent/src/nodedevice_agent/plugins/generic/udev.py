"""Reads device properties from udevd's database, /run/udev/data. Never writes, and asks no udevd.

root: the host's file tree, without a trailing slash.
One file for each device that udevd has processed: `c81:0` for a character device, `b8:0` for a block device. A property is a line
`E:KEY=VALUE`.
"""

import os

from msgspec import Struct

from nodedevice_agent.lib.filesystem import ask_or, names_in

DATABASE = "/run/udev/data"
LINKS = "/run/udev/links"
_MAX_BYTES = 65536


class Entry(Struct, frozen=True):
    """udevd's entry of one device. written_at: in seconds of the wall clock."""

    properties: dict[str, str]
    written_at: float


def claimants(root: str, link: str) -> list[str]:
    """Numbers of all devices that claim a link; it leads to one of them. link: as returned by shared_links.encoded()."""
    return names_in(f"{root}{LINKS}/{link}")


def entry(root: str, number: str) -> Entry | None:
    """None until udevd has written a readable entry; or `unanswered`. number: such as `c81:0`."""
    return ask_or(_entry, f"{root}{DATABASE}/{number}", None)


def _entry(path: str) -> Entry:
    with open(path, "rb") as file:
        return Entry(properties(file.read(_MAX_BYTES)), os.fstat(file.fileno()).st_mtime)


def properties(content: bytes) -> dict[str, str]:
    """Properties in a file. Skips all other lines."""
    found = {}
    for line in content.decode(errors="replace").split("\n"):
        key, separator, value = line.removeprefix("E:").partition("=")
        if line.startswith("E:") and separator and key:
            found[key] = value
    return found
