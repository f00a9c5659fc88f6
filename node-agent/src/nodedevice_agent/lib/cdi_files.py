"""The node's CDI specifications: what their files say of each device. Read with bounds, and again only when they change.

Blocks: it is for a thread. Nothing is written. A device that two files of one directory name is none to a container runtime, and a
file of /var/run/cdi goes before one of /etc/cdi.
Source: CDI specification, and tags.cncf.io/container-device-interface pkg/cdi/cache.go @ v1.1.
"""

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct, field
from nodedevice_common.decoding import Undecodable, convert, decode
from nodedevice_common.text import clean
from nodedevice_common.yaml_decoding import decode_yaml

from nodedevice_agent.lib.filesystem import FileIdentity, note_unanswered

DIRECTORIES: Final = ("/etc/cdi", "/var/run/cdi")
_ENDINGS = (".json", ".yaml")
# nvidia-ctk's for sixteen GPUs has 60 KiB
MAX_BYTES: Final = 1024 * 1024
# Of one directory: a DRA driver has a file for each claim. And of all files.
MAX_FILES: Final = 512
MAX_BYTES_OF_ALL: Final = 8 * MAX_BYTES
_MAX_ENTRIES: Final = 16_384
_MAX_DEVICES = 4096

# in C, where the library has that: a tenth of the time
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class CdiNode(Struct, frozen=True, rename="camel"):
    """A device file. host_path: "" where it is the path. type, major, minor: as the specification gives them, or not."""

    path: str = ""
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None


class CdiEdits(Struct, rename="camel"):
    env: list[str] = field(default_factory=list)
    device_nodes: list[CdiNode] = field(default_factory=list)


class CdiDevice(Struct, rename="camel"):
    name: str
    container_edits: CdiEdits = field(default_factory=CdiEdits)


class _Specification(Struct, rename="camel"):
    kind: str
    devices: list[CdiDevice] = field(default_factory=list)
    container_edits: CdiEdits = field(default_factory=CdiEdits)


class CdiFile(Struct, frozen=True):
    """A file as it was read. size: in bytes. edits: those of each of its devices. problem: why it has none; empty where it has."""

    identity: FileIdentity
    size: int = 0
    kind: str = ""
    devices: Sequence[CdiDevice] = ()
    edits: CdiEdits = field(default_factory=CdiEdits)
    problem: str = ""


# by path, in the order of directories
CdiFiles = Mapping[Path, CdiFile]


def directories_at(host_root: str) -> tuple[Path, ...]:
    """host_root: where this process sees the host's file tree."""
    return tuple(Path(host_root.rstrip("/") + directory) for directory in DIRECTORIES)


def read_files(
    directories: Iterable[Path], known: CdiFiles, first: Collection[str] = ()
) -> tuple[CdiFiles, frozenset[str]]:
    """All files, and what is wrong with some. known: as they were read before. first: how names begin that go before others."""
    found: dict[Path, CdiFile] = {}
    problems: set[str] = set()
    left = MAX_BYTES_OF_ALL
    for directory in directories:
        for path in _paths(directory, first):
            try:
                found[path] = file = _read(path, known.get(path), min(left, MAX_BYTES))
            except OSError as error:
                problems.add(f"{path}: {error.strerror}")
                continue
            left -= file.size
            if file.problem:
                problems.add(f"{path}: {file.problem}")
    return found, frozenset(problems)


def devices_of(files: CdiFiles) -> dict[tuple[str, str], tuple[CdiFile, CdiDevice]]:
    """By kind and name; without those that two files of one directory name."""
    found: dict[tuple[str, str], tuple[CdiFile, CdiDevice]] = {}
    for directory in dict.fromkeys(path.parent for path in files):
        here = [
            ((file.kind, device.name), (file, device))
            for path, file in files.items()
            if path.parent == directory
            for device in file.devices
        ]
        count = Counter(key for key, _ in here)
        found = {key: each for key, each in {**found, **dict(here)}.items() if count[key] <= 1}
    return found


def _paths(directory: Path, first: Collection[str]) -> list[Path]:
    names = []
    try:
        with os.scandir(directory) as entries:
            for entry in islice(entries, _MAX_ENTRIES):
                if entry.name.endswith(_ENDINGS) and clean(entry.name) == entry.name:
                    names.append(entry.name)
    except OSError as error:
        note_unanswered(str(directory), error)
    names.sort(key=lambda name: (not name.startswith(tuple(first)), name))
    return [directory / name for name in names[:MAX_FILES]]


def _read(path: Path, known: CdiFile | None, most: int) -> CdiFile:
    """most: bytes. Raises OSError."""
    # opening a FIFO waits for a writer unless it is opened without blocking
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        identity = FileIdentity(status.st_dev, status.st_ino, status.st_mtime_ns)
        if known is not None and known.identity == identity and known.size == status.st_size <= most:
            return known
        if not stat.S_ISREG(status.st_mode):
            return CdiFile(identity, problem="not a regular file")
        if status.st_size > most:
            return CdiFile(identity, problem=_too_big(most))
        with open(descriptor, "rb", closefd=False) as file:
            octets = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(octets) > most:
        # it has grown meanwhile
        return CdiFile(identity, problem=_too_big(most))
    try:
        found = _decoded(octets, is_yaml=path.name.endswith(".yaml"))
    except Undecodable as error:
        return CdiFile(identity, len(octets), problem=str(error))
    return CdiFile(identity, len(octets), found.kind, found.devices[:_MAX_DEVICES], found.container_edits)


def _too_big(most: int) -> str:
    return f"bigger than {most} bytes" if most == MAX_BYTES else f"all files have more than {MAX_BYTES_OF_ALL} bytes"


def _decoded(octets: bytes, *, is_yaml: bool) -> _Specification:
    """Raises Undecodable."""
    return convert(decode_yaml(octets, _LOADER), _Specification) if is_yaml else decode(octets, _Specification)
