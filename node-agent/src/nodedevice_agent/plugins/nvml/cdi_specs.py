"""Which GPUs the node's CDI specifications name, by UUID: what handOver auto rests on.

Little is read, with bounds, and in a thread: the files are on a disk. A device that two files of one directory name is none to
a container runtime, and a file of /var/run/cdi goes before one of /etc/cdi.
Source: CDI specification, and tags.cncf.io/container-device-interface pkg/cdi/cache.go @ v1.1.
"""

import asyncio
import logging
import os
import stat
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct, field
from nodedevice_common.decoding import Undecodable, convert, decode
from nodedevice_common.threads import in_thread
from nodedevice_common.yaml_decoding import decode_yaml

from nodedevice_agent.lib.filesystem import FileIdentity, names_in
from nodedevice_agent.plugins.nvml.environment import VISIBLE_DEVICES, VOID

log = logging.getLogger(__name__)

DIRECTORIES: Final = ("/etc/cdi", "/var/run/cdi")
_ENDINGS = (".json", ".yaml")
# nvidia-ctk's for sixteen GPUs has 60 KiB
MAX_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 64
_MAX_DEVICES = 4096
_VOID = f"{VISIBLE_DEVICES}={VOID}"

# in C, where the library has that: a tenth of the time
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Edits(Struct):
    env: list[str] = field(default_factory=list)


class _Device(Struct, rename="camel"):
    name: str
    container_edits: _Edits = field(default_factory=_Edits)


class _Specification(Struct, rename="camel"):
    kind: str
    devices: list[_Device] = field(default_factory=list)
    container_edits: _Edits = field(default_factory=_Edits)


class _File(Struct, frozen=True):
    """A file as it was read. names: as in CdiSpecs. problem: why it has none; empty where it was read."""

    identity: FileIdentity
    names: Mapping[str, bool] = field(default_factory=dict)
    problem: str = ""


_Files = Mapping[Path, _File]


class CdiSpecs:
    """names: of the devices of one kind, as they were read last, empty before that; and whether a container with it has no GPUs of
    NVIDIA's container runtime besides, as nvidia-ctk writes it: its edits come after those of NRI and replace the pod's variable.
    """

    def __init__(self, host_root: str, kind: str) -> None:
        self.directories = tuple(Path(host_root.rstrip("/") + directory) for directory in DIRECTORIES)
        self.names: Mapping[str, bool] = {}
        self._kind = kind
        self._read: _Files = {}
        self._problems: frozenset[str] = frozenset()
        # one at a time: a disk that hangs costs one thread
        self._reading: asyncio.Task[None] | None = None

    async def refresh(self) -> bool:
        """Read what has changed. Returns whether names are others than before."""
        before = self.names
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._refresh())
        await asyncio.shield(self._reading)
        return self.names != before

    async def _refresh(self) -> None:
        known = self._read
        self.names, self._read, problems = await in_thread(lambda: _all(self.directories, self._kind, known))
        for problem in sorted(problems - self._problems):
            log.warning("CDI specification cannot be read", extra={"error": problem})
        self._problems = problems


def _all(directories: tuple[Path, ...], kind: str, known: _Files) -> tuple[Mapping[str, bool], _Files, frozenset[str]]:
    """The names, what each file has, and what cannot be read."""
    found: dict[str, bool] = {}
    read: dict[Path, _File] = {}
    problems: set[str] = set()
    for directory in directories:
        count: Counter[str] = Counter()
        here: dict[str, bool] = {}
        for name in [name for name in names_in(str(directory)) if name.endswith(_ENDINGS)][:MAX_FILES]:
            path = directory / name
            try:
                read[path] = file = _one(path, kind, known.get(path))
            except OSError as error:
                problems.add(f"{path}: {error.strerror}")
                continue
            count.update(file.names.keys())
            here |= file.names
            if file.problem:
                problems.add(f"{path}: {file.problem}")
        found = {name: is_void for name, is_void in (found | here).items() if count[name] < 2}
    return found, read, frozenset(problems)


def _one(path: Path, kind: str, known: _File | None) -> _File:
    """Raises OSError."""
    # opening a FIFO waits for a writer unless it is opened without blocking
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        identity = FileIdentity(status.st_dev, status.st_ino, status.st_mtime_ns)
        if known is not None and known.identity == identity:
            return known
        if not stat.S_ISREG(status.st_mode):
            return _File(identity, problem="not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            octets = file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(octets) > MAX_BYTES:
        return _File(identity, problem=f"bigger than {MAX_BYTES} bytes")
    try:
        specification = _decoded(octets, is_yaml=path.name.endswith(".yaml"))
    except Undecodable as error:
        return _File(identity, problem=str(error))
    devices = specification.devices[:_MAX_DEVICES] if specification.kind == kind else ()
    everybodys = specification.container_edits.env
    return _File(identity, {each.name: _VOID in (*everybodys, *each.container_edits.env) for each in devices})


def _decoded(octets: bytes, *, is_yaml: bool) -> _Specification:
    """Raises Undecodable."""
    return convert(decode_yaml(octets, _LOADER), _Specification) if is_yaml else decode(octets, _Specification)
