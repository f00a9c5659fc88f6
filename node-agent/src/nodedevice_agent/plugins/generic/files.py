"""Reads files of the host: which are devices, near which NUMA node, and udev's links to them."""

import os
import stat

from nodedevice_agent.lib.filesystem import (
    ask_or,
    followed,
    is_there,
    link_target,
    names_in,
    note_again,
    note_unanswered,
    unanswered,
)
from nodedevice_agent.lib.patient_reads import ask
from nodedevice_agent.plugins.generic.found import FoundFile
from nodedevice_agent.plugins.generic.stable_names import LINK_DIRECTORIES
from nodedevice_agent.plugins.generic.sysfs import Sysfs
from nodedevice_agent.plugins.patterns import Captures
from nodedevice_agent.plugins.shared_files import MEMORY_FILES


def found_file(root: str, path: str, captures: Captures = ()) -> FoundFile | None:
    """None for a missing file, a socket or a pipe; or `unanswered`. Follows links: udev names devices by them."""
    with unanswered() as errors:
        found = _target(root, path)
    note_again(errors)
    if found is None:
        return None
    target, status = found
    kind = "char" if stat.S_ISCHR(status.st_mode) else "block" if stat.S_ISBLK(status.st_mode) else ""
    if kind:
        number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        numa_nodes = Sysfs(root).numa_nodes_of(kind, number)
        return FoundFile(
            path,
            captures,
            True,
            numa_nodes,
            kernel_path=target,
            number=f"{kind[0]}{number}",
            is_unread=bool(errors),
        )
    is_directory = stat.S_ISDIR(status.st_mode)
    if is_directory or stat.S_ISREG(status.st_mode):
        return FoundFile(path, captures, False, is_directory=is_directory, kernel_path=target)
    return None


def _target(root: str, path: str) -> tuple[str, os.stat_result] | None:
    """The target of a path, after links, and its status."""
    try:
        target = kernel_path(root, path)
        # raises ValueError for a target that is not UTF-8: no container runtime accepts it
        target.encode()
        return target, ask(os.stat, root + target)
    except OSError as error:
        note_unanswered(root + path, error)
    except ValueError:
        pass
    return None


def kernel_path(root: str, path: str) -> str:
    """The target of a path, with each link followed inside the root. Stops at a dangling link, and at one to /dev/null (in tests).

    Raises OSError for a loop of links.
    """

    def ends(target: str, base: str, is_last: bool) -> bool:
        return (is_last and target in MEMORY_FILES) or not is_there(f"{root}{base}/{target}")

    return followed(root, path, ends)


def udev_links(root: str) -> dict[str, str]:
    """The links in directories such as /dev/serial/by-id, and the file that each leads to. root: as above."""
    links: dict[str, str] = {}
    for group in ask_or(_subdirectories, f"{root}/dev", []):
        for kind in LINK_DIRECTORIES:
            directory = f"/dev/{group}/{kind}"
            for name in names_in(root + directory):
                target = link_target(f"{root}{directory}/{name}")
                if target:
                    links[f"{directory}/{name}"] = os.path.normpath(f"{directory}/{target}")
    return links


def _subdirectories(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
