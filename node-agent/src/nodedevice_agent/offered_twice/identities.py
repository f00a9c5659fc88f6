"""What a device is, in words that do not depend on who offers it. Pure.

An identity is a text: its kind, a colon, and a value in one form whichever way it was written. Two devices with one in common are
the same device, unless something else distinguishes them (compare.py).
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct

_DEV: Final = "/dev/"
_HEX: Final = "[0-9a-f]"
# Words before it are the maker's: GPU-, MIG-. After it the numbers of an instance, as old drivers name it (MIG-GPU-…/7/0), or that
# of a share: ::0 of NVIDIA's plugin, -0 of HAMi's, -_-0 of Alibaba's.
_UUID: Final = re.compile(
    rf"((?:[a-z]+-)*)({_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}})(/\d+/\d+)?(?:(?:::|-_-|-)\d+)?",
    re.IGNORECASE,
)
_SHORTEST_UUID: Final = 8
_SHARE: Final = re.compile(r"::\d+$")
_PCI: Final = re.compile(rf"(?:({_HEX}{{4,8}}):)?({_HEX}{{2}}):([01]{_HEX})\.([0-7])", re.IGNORECASE)
_INSTANCE: Final = "mig-"
_NUMBERED: Final = re.compile(r".*\d")
# Files by which every device of a driver is used, and those of the kernel itself.
_CONTROL: Final = frozenset(
    {
        *("kfd", "vfio", "rdma_cm", "gdrdrv", "davinci_manager", "devmm_svm", "hisi_hdc"),
        *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "console", "mem", "kmsg"),
    }
)
_NVIDIA: Final = "nvidia"
# capabilities of MIG instances and of IMEX channels
_CAPABILITIES: Final = re.compile(r"/dev/nvidia-caps[^/]*/.*")
# what makers write where they know none
_NO_SERIAL: Final = frozenset({"", "0", "none", "unknown", "n/a", "na", "null", "default", "0123456789abcdef"})


class Kind(StrEnum):
    UUID = "uuid"
    PCI = "pci"
    FILE = "file"
    SERIAL = "serial"


class Node(Struct, frozen=True):
    """A device file of the host. path: from /dev on. number: such as c195:0, "" where it is not known. target: where a link leads.

    is_own: whether there is a device behind it that is none of the kernel's inventions, such as that of /dev/fuse. is_copy: it has
    the number of one of these, and another name than the kernel's: so only its path says anything. inode: how a reader knows it
    again; None where nothing is known.
    """

    path: str
    number: str = ""
    target: str = ""
    is_own: bool = False
    is_copy: bool = False
    inode: tuple[int, int, int] | None = None


def kind_of(identity: str) -> str:
    return identity.partition(":")[0]


def uuid_of(text: str) -> str | None:
    """Also of a share of it."""
    match = _UUID.fullmatch(text)
    if match is None or not match[2].strip("0-"):
        return None
    return f"{Kind.UUID}:{match[1]}{match[2]}{match[3] or ''}".lower()


def base_id(device_id: str) -> str:
    """Of a share the ID of the device that it is one of; else the same."""
    match = _UUID.fullmatch(device_id)
    return device_id[: match.end(3) if match[3] else match.end(2)] if match else _SHARE.sub("", device_id)


def named_uuid(text: str) -> str | None:
    """Of what its source calls a UUID, in whatever form."""
    text = text.strip()
    is_none = len(text) < _SHORTEST_UUID or not text.strip("0-")
    return uuid_of(text) or (None if is_none else f"{Kind.UUID}:{text.lower()}")


def pci_of(text: str) -> str | None:
    """A PCI address, as in sysfs: the driver's 00000000:1B:00.0 is 0000:1b:00.0."""
    match = _PCI.fullmatch(text) or _PCI.fullmatch(_SHARE.sub("", text))
    if match is None:
        return None
    domain = int(match[1] or "0", 16)
    return f"{Kind.PCI}:{domain:04x}:{match[2]}:{match[3]}.{match[4]}".lower()


def serial_of(vendor: str, serial: str) -> str | None:
    """A serial number means something beside its vendor alone. vendor: a name, or a number, such as 0x1a86."""
    vendor, serial = vendor.strip().lower().removeprefix("0x"), serial.strip().lower()
    if not vendor or serial in _NO_SERIAL or set(serial) == {"0"}:
        return None
    return f"{Kind.SERIAL}:{vendor}:{serial}"


def number_of(number: str) -> str:
    """Of a device number, such as c195:0."""
    return f"{Kind.FILE}:{number}"


def dev_path(path: str) -> str:
    """From /dev on, wherever the host's is seen; "" for a path outside of it."""
    path = posixpath.normpath(path)
    _, dev, name = path.rpartition(_DEV)
    return f"{dev}{name}" if dev else ""


def node_identities(node: Node, *, is_only: bool = False) -> Iterator[str]:
    """None where the file is not the device's own: each device of a driver has it.

    One that the kernel has invented, or of which nothing is known, is one device's where its name has a number (/dev/vfio/12), or
    where its source offers nothing else (is_only).
    """
    path = node.target or node.path
    name = path.rpartition("/")[2]
    is_numbered = _NUMBERED.fullmatch(name) is not None
    if name in _CONTROL or _CAPABILITIES.fullmatch(path) or (name.startswith(_NVIDIA) and not is_numbered):
        return
    if node.is_own or is_only or is_numbered:
        if node.number and not node.is_copy:
            yield number_of(node.number)
        if path:
            yield number_of(path)


def is_instance(identity: str) -> bool:
    """Whether it is of an instance of a GPU, and not of the GPU."""
    return identity.startswith(f"{Kind.UUID}:{_INSTANCE}")


def own(identities: Iterable[str]) -> tuple[str, ...]:
    """Without those that are not the device's own: of an instance of a GPU all but its own UUID are the GPU's."""
    found = tuple(dict.fromkeys(identities))
    return tuple(filter(is_instance, found)) or found


def are_different(one: Collection[str], other: Collection[str]) -> bool:
    """Whether UUIDs of one form, or PCI addresses, say so, whatever else is equal: the ports of an adapter have one serial number,
    partitions of a GPU one PCI address.
    """
    return any(_differ(one, other, kind) for kind in (Kind.UUID, Kind.PCI))


def _differ(one: Collection[str], other: Collection[str], kind: Kind) -> bool:
    mine, others = _by_form(one, kind), _by_form(other, kind)
    return any(mine[form].isdisjoint(others[form]) for form in mine.keys() & others.keys())


def _by_form(identities: Collection[str], kind: Kind) -> dict[str, set[str]]:
    """Of a UUID the maker's words; another maker's say nothing about it."""
    found: dict[str, set[str]] = {}
    for identity in identities:
        if kind_of(identity) == kind:
            form = kind if kind is Kind.PCI else _words(identity)
            found.setdefault(form, set()).add(identity)
    return found


def _words(identity: str) -> str:
    match = _UUID.fullmatch(identity.partition(":")[2])
    return match[1] if match is not None else identity
