"""Counts a process's use of resources and its writes: CPU and memory from the kernel, requests from the API server's
audit log.
"""

import time
from collections import Counter
from pathlib import Path

import msgspec
import psutil

from tests.cluster.processes.loopback import fetch

_MIB = 2**20
_WRITES = ("create", "update", "patch", "delete")
_OPERATOR = ":nodedevice-operator"
_LEADS = "nodedevice_operator_leader"
_WAITING = "nodedevice_operator_waiting_nodes"
MACHINE = "whole machine"


class _User(msgspec.Struct):
    username: str = ""


class _About(msgspec.Struct):
    resource: str = ""
    subresource: str = ""


class _Request(msgspec.Struct):
    verb: str = ""
    user: _User = msgspec.field(default_factory=_User)
    about: _About = msgspec.field(name="objectRef", default_factory=_About)


class OperatorRequests:
    """The operator's requests to the API server since the last call."""

    def __init__(self, audit_log: Path) -> None:
        self._log = audit_log
        self._read = 0
        self._decoder = msgspec.json.Decoder(_Request)
        self.take_writes()

    def take_writes(self) -> Counter[str]:
        """Writes by kind and verb, its own Lease apart, as "nodes/status patch"."""
        found: Counter[str] = Counter()
        for line in self._lines():
            # most requests come from other clients, and need no decoding
            if _OPERATOR.encode() not in line:
                continue
            request = self._decoder.decode(line)
            if not request.user.username.endswith(_OPERATOR) or request.verb not in _WRITES:
                continue
            if request.about.resource != "leases":
                kind = "/".join(filter(None, (request.about.resource, request.about.subresource)))
                found[f"{kind} {request.verb}"] += 1
        return found

    def _lines(self) -> list[bytes]:
        """Whole lines that were added since the last call."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            added = log.read()
        end = added.rfind(b"\n") + 1
        self._read += end
        return added[:end].splitlines()


class Cost:
    """CPU seconds of some processes, and of the whole machine, from its making on."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._before = self._now()
        self._began = time.monotonic()

    def seconds(self) -> dict[str, float]:
        """CPU seconds so far, by process."""
        now = self._now()
        return {name: now[name] - before for name, before in self._before.items()}

    def cores(self) -> dict[str, float]:
        """Average number of cores that each process kept busy."""
        passed = time.monotonic() - self._began
        return {name: seconds / passed for name, seconds in self.seconds().items()}

    def _now(self) -> dict[str, float]:
        times = {name: process.cpu_times() for name, process in self._processes.items()}
        machine = psutil.cpu_times()
        return {
            MACHINE: sum(machine) - machine.idle - machine.iowait,
            **{name: taken.user + taken.system for name, taken in times.items()},
        }


def rss_mib(pid: int) -> float:
    """Current memory of a process in RAM."""
    return float(psutil.Process(pid).memory_info().rss / _MIB)


def peak_rss_mib(pid: int) -> float:
    """Peak memory of a process in RAM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def is_leader_without_work(address: str) -> bool:
    """Whether the operator at this address is the leader, and no node waits for it."""
    return metric(address, _LEADS) == 1 and metric(address, _WAITING) == 0


def metric(address: str, name: str) -> float:
    """A metric of the operator at this address, by name with labels; 0 if absent."""
    lines = fetch(f"http://{address}/metrics")[1].splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)
