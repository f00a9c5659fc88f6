"""Reads devices of the node's CDI specifications, by UUID of the GPU or instance; handOver auto and cdi need them.

They are read in a thread, within bounds: the files are on a disk. So are the files of the host that a specification names.
"""

import logging
import os
import stat
from collections.abc import Mapping
from functools import partial
from typing import Final

from nodedevice_common.threads import Shared

from nodedevice_agent.lib import cdi_files
from nodedevice_agent.lib.cdi_specification import CdiNode
from nodedevice_agent.lib.filesystem import is_absent
from nodedevice_agent.lib.host_view import seen
from nodedevice_agent.lib.patient_reads import ask, with_deadlines
from nodedevice_agent.plugins.nvml.cdi_choice import Specified, Specs
from nodedevice_agent.plugins.nvml.environment import VISIBLE_DEVICES, VOID
from nodedevice_agent.plugins.nvml.host_files import number_of

log = logging.getLogger(__name__)

_VOID: Final = f"{VISIBLE_DEVICES}={VOID}"
# of one reading; nvidia-ctk's specification for sixteen GPUs names 200
_MOST_PATHS: Final = 4096
_TYPES: Final = {stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFIFO: "p"}


class CdiSpecs:
    """specs: the last read specifications for one kind; empty before the first reading."""

    def __init__(self, host_root: str, kind: str) -> None:
        self.directories = cdi_files.directories_at(host_root)
        self.specs = Specs()
        self._root = host_root.rstrip("/")
        self._kind = kind
        self._read: cdi_files.CdiFiles = {}
        self._problems: frozenset[str] = frozenset()
        # one at a time: a disk that hangs costs one thread
        self._reading = Shared(lambda: with_deadlines(partial(_all, self._root, self._kind, self._read)))

    async def refresh(self) -> bool:
        """Read changed files. Returns whether a container would get different edits than before."""
        before = self.specs
        self.specs, self._read, problems = await self._reading.result()
        for problem in sorted(problems - self._problems):
            log.warning("CDI specification cannot be read", extra={"error": problem})
        self._problems = problems
        return self.specs != before


def _all(root: str, kind: str, known: cdi_files.CdiFiles) -> tuple[Specs, cdi_files.CdiFiles, frozenset[str]]:
    """Returns the specifications of that kind, the content of each file, and the problems."""
    reading = cdi_files.read_files(root, known, [kind])
    return _specs(root, kind, reading), reading.files, reading.problems


def _specs(root: str, kind: str, reading: cdi_files.CdiReading) -> Specs:
    places = {id(file): str(path).removeprefix(root) for path, file in reading.files.items()}
    host = _HostPaths(root)
    names: dict[str, Specified] = {}
    for (of_kind, name), (file, device) in cdi_files.devices_of(reading.files).items():
        if of_kind != kind:
            continue
        edits = (file.edits, device.container_edits)
        nodes = [node for each in edits for node in each.device_nodes]
        paths = dict.fromkeys(path for each in edits for path in (*each.mounts, *each.hooks))
        names[name] = Specified(
            places[id(file)],
            is_void=any(_VOID in each.env for each in edits),
            nodes=tuple((node.on_host, host.number(node)) for node in nodes),
            fault=host.fault(nodes, paths),
            unseen=tuple(path for path in paths if not host.sees(path)),
        )
    refused = {
        name: " and ".join(str(path).removeprefix(root) for path in paths[:2])
        for (of_kind, name), paths in cdi_files.conflicts(reading.files).items()
        if of_kind == kind
    }
    return Specs(names, refused, reading.wanted, reading.unread)


class _HostPaths:
    """Reads the status of host files, each once."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.sees = seen(root)
        self._are_there: dict[str, bool] = {}
        self._files: dict[str, tuple[str, str]] = {}

    def number(self, node: CdiNode) -> str:
        """The number of the device file that a container would get; "" if unknown."""
        return node.number or self._file(node.on_host)[1]

    def fault(self, nodes: list[CdiNode], paths: Mapping[str, None]) -> str:
        """Why a container runtime would refuse a container that gets these; "" if it would not."""
        gone = [path for path in paths if self.sees(path) and not self._is_there(path)]
        if gone:
            more = f" and {len(gone) - 1} more of its files" if len(gone) > 1 else ""
            return f"{gone[0]}{more} {'are' if more else 'is'} not on the node"
        return next(filter(None, map(self._fault_of, nodes)), "")

    def _fault_of(self, node: CdiNode) -> str:
        path = node.on_host
        kind, number = self._file(path)
        if not self.sees(path) or kind == "unknown":
            return ""
        if not node.needs_host_file:
            is_other = node.number and number and number != node.number and not number.startswith("path:")
            return f"it has {path} as {node.number}, and on the node that is {number}" if is_other else ""
        if not kind:
            return f"{path} is not on the node"
        if kind == "link":
            return f"{path} is a link, which no container runtime follows"
        is_other = node.type and node.type != kind
        return f"{path} is not a device file of type {node.type or 'b, c or p'}" if is_other or kind == "other" else ""

    def _is_there(self, path: str) -> bool:
        if path not in self._are_there:
            self._are_there[path] = len(self._are_there) >= _MOST_PATHS or self._exists(path)
        return self._are_there[path]

    def _exists(self, path: str) -> bool:
        try:
            ask(os.stat, cdi_files.below(self._root, path))
        except OSError as error:
            return not is_absent(error)
        except ValueError:
            return False
        return True

    def _file(self, path: str) -> tuple[str, str]:
        """The file's type (c, b, p, link, other, unknown; "" if it is missing) and number, such as c195:0."""
        if path not in self._files:
            self._files[path] = self._looked_up(path) if len(self._files) < _MOST_PATHS else ("unknown", "")
        return self._files[path]

    def _looked_up(self, path: str) -> tuple[str, str]:
        directory, _, name = path.rpartition("/")
        try:
            status = ask(os.lstat, f"{cdi_files.below(self._root, directory or '/')}/{name}")
        except OSError as error:
            return ("" if is_absent(error) else "unknown"), ""
        except ValueError:
            return "", ""
        kind = _TYPES.get(stat.S_IFMT(status.st_mode), "other")
        if kind in ("c", "b"):
            return kind, f"{kind}{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        if stat.S_ISLNK(status.st_mode):
            number = number_of(self._root, path)
            # a device file of a host that tests have made
            return ("c", number) if number.startswith("path:") else ("link", number)
        return kind, ""
