"""Finds device files that settings name by the kernel although udev has a lasting name, and suggests that name. Pure.

The kernel numbers devices in the order of their discovery: after a reboot `/dev/ttyUSB0` may be another one. Only a pod that
holds the device ID keeps its device. This concerns files that one of udev's links leads to, but not files without a link, such as
/dev/fuse.
"""

import posixpath
from collections.abc import Iterable, Mapping, Sequence

from nodedevice_agent.lib.deviceplugin_server.values import some
from nodedevice_agent.plugins.generic.absent import listed
from nodedevice_agent.plugins.generic.found import FoundFile
from nodedevice_agent.plugins.patterns import wildcard_count

# where udev makes these links, such as /dev/serial/by-id; by-id first: it stays with the device, by-path with the port
LINK_DIRECTORIES = ("by-id", "by-path")


def stable_names(found: Mapping[str, Iterable[FoundFile]], links: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """By pattern that finds devices by the kernel's names: what to write instead.

    found: by pattern. links: udev's links, and the files they lead to.
    """
    by_file = links_by_file(links)
    stable = {
        pattern: [by_file[file.path][0] for file in files if file.is_device and file.path in by_file]
        for pattern, files in found.items()
    }
    return {pattern: _instead(pattern, names, links) for pattern, names in stable.items() if names}


def advice(stable: Mapping[str, Sequence[str]]) -> str:
    """For people. stable: as above; not empty."""
    shown = some([f"{pattern} ({listed(names)})" for pattern, names in stable.items()])
    return (
        "a reboot may give the kernel's names to other devices, and a new pod another device: in paths, replace "
        f"{shown} by the names in parentheses, or use select"
    )


def links_by_file(links: Mapping[str, str]) -> dict[str, list[str]]:
    """udev's links by the file that they lead to, the most lasting first. links: their files."""
    by_file: dict[str, list[str]] = {}
    for link in sorted(links, key=lambda link: (LINK_DIRECTORIES.index(link.split("/")[-2]), link)):
        by_file.setdefault(links[link], []).append(link)
    return by_file


def _instead(pattern: str, names: Sequence[str], links: Mapping[str, str]) -> tuple[str, ...]:
    """One pattern if it matches these devices only; otherwise each name."""
    if len(names) == 1 or not wildcard_count(pattern):
        return tuple(names)
    prefix = posixpath.commonprefix(names)
    directory, _, begin = prefix.rpartition("/")
    is_within = all(name.rpartition("/")[0] == directory for name in names)
    files = {links[name] for name in names}
    matched = {file for link, file in links.items() if link.startswith(prefix)}
    # names of files may have characters that are wildcards in a pattern
    if begin and is_within and matched == files and not wildcard_count(prefix):
        return (f"{prefix}*",)
    return tuple(names)
