"""Device files of the host, and the identities from them. Pure."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from nodedevice_agent.identity import path_token

# the most device files of one container
MOST_NODES: Final = 1024
_DEV: Final = "/dev/"
_NUMBERED: Final = re.compile(r".*\d")
# Files that all devices of a driver share, and files of the kernel itself.
_CONTROL: Final = frozenset(
    {
        *("kfd", "vfio", "rdma_cm", "gdrdrv", "davinci_manager", "devmm_svm", "hisi_hdc"),
        *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "console", "mem", "kmsg"),
    }
)
_NVIDIA: Final = "nvidia"
# capabilities of MIG instances and of IMEX channels
_CAPABILITIES: Final = re.compile(r"/dev/nvidia-caps[^/]*/.*")


class Node(Struct, frozen=True):
    """A device file of the host. path: from /dev on. number: such as c195:0, "" if unknown. target: the target of a link.

    is_own: whether a real device is behind it, in contrast to /dev/fuse. is_copy: it has the number of a real device under
    another name than the kernel's, so only its path identifies it. inode: lets a reader recognise the file; None if unknown.
    """

    path: str
    number: str = ""
    target: str = ""
    is_own: bool = False
    is_copy: bool = False
    inode: tuple[int, int, int] | None = None

    def tokens(self, *, is_only: bool = False) -> Iterator[str]:
        """The identities from the file; empty if all devices of a driver share it.

        A file without a known real device identifies a device if its name has a number (/dev/vfio/12), or if its source offers
        no other file (is_only).
        """
        path = self.target or self.path
        name = path.rpartition("/")[2]
        is_numbered = _NUMBERED.fullmatch(name) is not None
        if name in _CONTROL or _CAPABILITIES.fullmatch(path) or (name.startswith(_NVIDIA) and not is_numbered):
            return
        if self.is_own or is_only or is_numbered:
            if self.number and not self.is_copy:
                yield self.number
            if path:
                yield path_token(path)


class Host(Struct, frozen=True):
    """Device files read from this host. nodes: by path from /dev on. cdi: device files by the name of a CDI device."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    cdi: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)

    def named(self, paths: Iterable[str]) -> tuple[Node, ...]:
        """paths: from /dev on, or empty."""
        return tuple(self.nodes.get(path, Node(path)) for path in dict.fromkeys(paths) if path)

    def of_cdi(self, names: Iterable[str]) -> tuple[Node, ...]:
        found = dict.fromkeys(node for name in names for node in self.cdi.get(name, ()))
        return tuple(self._seen(node) for node in found)[:MOST_NODES]

    def _seen(self, node: Node) -> Node:
        """The node read from the host, with the number from the CDI specification if it has one."""
        seen = self.nodes.get(node.path, node)
        return replace(seen, number=node.number) if node.number else seen


def dev_path(path: str) -> str:
    """The path from /dev on, for any mount point of the host's /dev; "" for a path outside of it."""
    path = posixpath.normpath(path)
    _, dev, name = path.rpartition(_DEV)
    return f"{dev}{name}" if dev else ""
