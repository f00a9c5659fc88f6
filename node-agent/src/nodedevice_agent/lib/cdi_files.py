"""Reads the node's CDI specifications as a container runtime does, within bounds, and again only when they change.

Blocking: call it by `with_deadlines`, in a thread. Never writes. Every reader of specifications in this program uses it.

A runtime drops a file with any mistake, and a name that two files of one directory define. The same name in another directory is
dropped as well. Each dropped file is a problem with its reason. CdiFile.is_unread and Unread list what only this reader did not
read (too big, too many, a disk that hangs): a runtime may read it, and then find such a conflict.

Source: tags.cncf.io/container-device-interface pkg/cdi/cache.go and spec-dirs.go @ v1.1.1.
"""

import errno
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct, field, structs
from nodedevice_common.decoding import TooMuch, Undecodable
from nodedevice_common.text import clean

from nodedevice_agent.lib.cdi_specification import CdiDevice, CdiEdits, specification
from nodedevice_agent.lib.filesystem import FileIdentity, followed, is_absent
from nodedevice_agent.lib.host_view import sees_all
from nodedevice_agent.lib.patient_reads import ask
from nodedevice_agent.lib.yaml_as_go import Decoder

# in a runtime's order: a later one goes before an earlier one
DIRECTORIES: Final = ("/etc/cdi", "/var/run/cdi")
_ENDINGS: Final = (".json", ".yaml")
# nvidia-ctk's for sixteen GPUs has 60 KiB
MAX_BYTES: Final = 1024 * 1024
# Files per directory: a DRA driver has one for each claim. Then bytes of all files.
MAX_FILES: Final = 512
MAX_BYTES_OF_ALL: Final = 8 * MAX_BYTES
# Values of all files, aliases expanded: a kilobyte of aliases may be 60,000 device files.
MAX_VALUES_OF_ALL: Final = 200_000
# Per reading, including files that turn out to have too many values: two seconds of a thread.
_MOST_DECODED: Final = 5 * MAX_VALUES_OF_ALL
_MAX_ENTRIES: Final = 16_384
_MAX_DEVICES = 4096

_TOO_MANY: Final = f"all files have more than {MAX_VALUES_OF_ALL} values"
_NO_FILE: Final = FileIdentity(0, 0, 0)


class CdiFile(Struct, frozen=True):
    """A specification file at its last reading.

    size: in bytes. edits: by device. problem: why the file has no edits; "" if it has some.
    is_unread: the problem is this reader's, not the file's. is_wanted: despite its problem, it may be of a requested kind.
    values: the number of its values, or of values left for it if all files have too many.
    """

    identity: FileIdentity
    size: int = 0
    kind: str = ""
    devices: Sequence[CdiDevice] = ()
    edits: CdiEdits = field(default_factory=CdiEdits)
    problem: str = ""
    is_unread: bool = False
    is_wanted: bool = False
    values: int = 0


# by path, in the order of directories
CdiFiles = Mapping[Path, CdiFile]


class CdiReading(Struct, frozen=True):
    """The content of the directories.

    problems: sentences, each with the path as this process sees it.
    wanted, unread: problems with the host's path: of wanted files, and of a file that a runtime may have read.
    """

    files: CdiFiles = field(default_factory=dict)
    problems: frozenset[str] = frozenset()
    wanted: tuple[str, ...] = ()
    unread: str = ""


def directories_at(host_root: str) -> tuple[Path, ...]:
    """host_root: where this process sees the host's file tree."""
    return tuple(Path(host_root.rstrip("/") + directory) for directory in DIRECTORIES)


def read_files(host_root: str, known: CdiFiles, kinds: Collection[str] = ()) -> CdiReading:
    """Read all files. Returns their content and problems.

    known: the previous reading. kinds: vendor/class; files whose name begins with such a vendor are read first.
    """
    root = host_root.rstrip("/")
    first = tuple(sorted({kind.partition("/")[0] for kind in kinds}))
    found: dict[Path, CdiFile] = {}
    problems: set[str] = set()
    wanted: list[str] = []
    unread: list[str] = []

    def note(problem: str, *, is_wanted: bool = False, is_unread: bool = True) -> None:
        problems.add(problem)
        if is_wanted:
            wanted.append(problem.removeprefix(root))
        if is_unread:
            unread.append(problem.removeprefix(root))

    left, left_values, left_to_decode = MAX_BYTES_OF_ALL, MAX_VALUES_OF_ALL, _MOST_DECODED
    for directory in DIRECTORIES:
        try:
            paths, is_whole = _paths(root, directory, first)
        except OSError as error:
            if error.errno == errno.ENOENT:
                continue
            # a runtime does not go on to the next directory either
            note(f"{root}{directory}: {error.strerror}")
            break
        if not is_whole:
            note(f"{root}{directory}: it has more than {MAX_FILES} files")
        for path in paths:
            before = _usable(known.get(path), left_values)
            most = min(left, MAX_BYTES), min(left_values, left_to_decode)
            found[path] = file = _read(root, path, before, most, kinds)
            left -= file.size
            left_values -= 0 if file.problem else file.values
            left_to_decode -= 0 if before is not None and file.identity == before.identity else file.values
            if file.problem:
                note(f"{clean(str(path))}: {file.problem}", is_wanted=file.is_wanted, is_unread=file.is_unread)
    return CdiReading(found, frozenset(problems), tuple(wanted), unread[0] if unread else "")


def devices_of(files: CdiFiles) -> dict[tuple[str, str], tuple[CdiFile, CdiDevice]]:
    """The devices by kind and name, as a runtime resolves them; without the names in `conflicts`."""
    dropped = conflicts(files)
    return {
        (file.kind, device.name): (file, device)
        for file in files.values()
        for device in file.devices
        if (file.kind, device.name) not in dropped
    }


def conflicts(files: CdiFiles) -> dict[tuple[str, str], tuple[Path, ...]]:
    """The kinds and names that two files of one directory have, with these files: in no directory they are a device."""
    having: dict[tuple[Path, str, str], list[Path]] = {}
    for path, file in files.items():
        for device in file.devices:
            having.setdefault((path.parent, file.kind, device.name), []).append(path)
    return {(kind, name): tuple(paths) for (_, kind, name), paths in having.items() if len(paths) > 1}


def _paths(root: str, directory: str, first: tuple[str, ...]) -> tuple[list[Path], bool]:
    """Paths of the files to read, and whether the list is complete. Raises OSError."""
    entries = ask(_entries, below(root, directory))
    names = [name for name in entries if os.path.splitext(f"x{name}")[1] in _ENDINGS]
    names.sort(key=lambda name: (not name.startswith(first), name))
    is_whole = len(entries) <= _MAX_ENTRIES and len(names) <= MAX_FILES
    return [Path(f"{root}{directory}/{name}") for name in names[:MAX_FILES]], is_whole


def _entries(directory: str) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, _MAX_ENTRIES + 1)]


def below(root: str, path: str) -> str:
    """The target of a path of the host, after links. Raises OSError for a loop of links."""
    return f"{root}{followed(root, path)}" if root else path


def _usable(known: CdiFile | None, left_values: int) -> CdiFile | None:
    """Returns the known file, or None if a different number of its values may be kept now."""
    if known is None:
        return None
    has_more_room = known.problem == _TOO_MANY and known.values < left_values
    has_too_little = not known.problem and known.values > left_values
    return None if has_more_room or has_too_little else known


def _read(root: str, path: Path, known: CdiFile | None, most: tuple[int, int], kinds: Collection[str]) -> CdiFile:
    """most: bytes, and values."""
    try:
        found, octets = ask(_octets, below(root, str(path).removeprefix(root)), known, most[0])
    except OSError as error:
        # a runtime ignores a dangling link as well, unless it sees more of the host than this process
        is_unread = not (is_absent(error) and sees_all(root))
        found, octets = CdiFile(_NO_FILE, problem=str(error.strerror), is_unread=is_unread), None
    if octets is None:
        is_wanted = found.is_wanted or _is_named_for(path.name, kinds)
        return structs.replace(found, is_wanted=is_wanted) if found.problem else found
    decoder = Decoder(most[1])
    try:
        if not most[1]:
            raise TooMuch(ValueError(_TOO_MANY))
        # Most nodes have no such file. The import takes 10 ms and 2 MiB.
        from nodedevice_common.yaml_decoding import first_document

        kind, devices, edits = specification(first_document(octets), decoder)
        if len(devices) > _MAX_DEVICES:
            raise TooMuch(ValueError(f"it has more than {_MAX_DEVICES} devices"))
    except Undecodable as error:
        is_unread, is_wanted = isinstance(error, TooMuch), _has_kind(octets, kinds)
        problem, values = _TOO_MANY if decoder.left < 0 else str(error), most[1] - max(decoder.left, 0)
        return CdiFile(
            found.identity, len(octets), problem=problem, is_unread=is_unread, is_wanted=is_wanted, values=values
        )
    return CdiFile(found.identity, len(octets), kind, devices, edits, values=most[1] - decoder.left)


def _is_named_for(name: str, kinds: Collection[str]) -> bool:
    """Whether the name begins like the kind: nvidia.yaml for nvidia.com/gpu."""
    return any(name.startswith(re.split("[./]", kind)[0]) for kind in kinds)


def _has_kind(octets: bytes, kinds: Collection[str]) -> bool:
    text = octets.replace(rb"\/", b"/")
    return any(re.search(rb"(?<![\w.-])" + re.escape(os.fsencode(kind)) + rb"(?![\w.-])", text) for kind in kinds)


def _octets(path: str, known: CdiFile | None, most: int) -> tuple[CdiFile, bytes | None]:
    """Returns the file and its content; the content is None if the file is unchanged or has a problem. Raises OSError."""
    # opening a FIFO waits for a writer unless it is opened without blocking
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        identity = FileIdentity(status.st_dev, status.st_ino, status.st_mtime_ns)
        if known is not None and known.identity == identity and known.size == status.st_size <= most:
            return known, None
        if not stat.S_ISREG(status.st_mode):
            # a runtime fails to read a directory; a pipe or the like would make it wait
            is_unread = not stat.S_ISDIR(status.st_mode)
            return CdiFile(identity, problem="not a regular file", is_unread=is_unread), None
        if status.st_size > most:
            return CdiFile(identity, problem=_too_big(most), is_unread=True), None
        with open(descriptor, "rb", closefd=False) as file:
            octets = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(octets) > most:
        # it has grown meanwhile
        return CdiFile(identity, problem=_too_big(most), is_unread=True), None
    return CdiFile(identity), octets


def _too_big(most: int) -> str:
    return f"bigger than {most} bytes" if most == MAX_BYTES else f"all files have more than {MAX_BYTES_OF_ALL} bytes"
