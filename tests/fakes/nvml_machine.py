"""A driver with its events and its time, as a test plays them for the reader."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from nodedevice_agent.plugins.nvml.driver_troubles import Reading
from nodedevice_agent.plugins.nvml.gpu import Ancestor, Gpu
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.reader import __main__ as program
from nodedevice_agent.plugins.nvml.reader.__main__ import CallHangs, Inbox, Reader
from nodedevice_agent.plugins.nvml.reader.driver import MAX_LINKS, Handle
from nodedevice_agent.plugins.nvml.reader.events import EventWatch, GpuEvent
from nodedevice_agent.plugins.nvml.reader.messages import (
    Message,
    ReaderOptions,
)

BEGIN = 100.0
POLL = 5.0
MIG = (MigInstance("MIG-1", "1g.10gb", 1, 0, 9728),)


class Ended(Exception):
    """The test has seen enough."""


class Returned:
    """A call that hangs: it returns after so many waits, or never."""

    def __init__(self, machine: "Machine", waits: int | None) -> None:
        self._machine = machine
        self.waits = waits
        self.answer: Any = None

    def done(self) -> bool:
        return self.waits == 0

    def result(self) -> Any:
        return self.answer

    def wait(self, seconds: float) -> bool:
        self._machine.now += seconds
        assert self.waits
        self.waits -= 1
        return self.waits == 0


class Hangs(Exception):
    """Raised by a driver's function: what it would return comes when the call has returned."""

    def __init__(self, returned: Returned, answer: Any = None) -> None:
        super().__init__()
        self.answer = returned.answer = answer
        self.call: Any = returned


class Calls:
    def do(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Hangs as hang:
            raise CallHangs(hang.call) from hang


class Machine:
    """A driver, its events and the time. What is an exception in it is raised.

    hanging: by function and UUID. asked: each reading, with how it was asked for. plan: what happens, by its second.
    """

    def __init__(self, *gpus: Any) -> None:
        self.now = BEGIN
        self.handles = [Handle(None, each) if isinstance(each, Gpu) else each for each in gpus]
        self.version: Any = "580.1"
        self.counted: Any = len(gpus)
        self.calling = ""
        self.files = SimpleNamespace(unlisted=self.unlisted)
        self.not_listed: dict[tuple[str, ...], list[str]] = {}
        self.has_switches = False
        self.ends: dict[tuple[str, int], str] = {}
        self.ancestors: dict[tuple[str, str], Ancestor | None] = {}
        self.readings: dict[str, Reading] = {}
        self.lacks: dict[str, list[str]] = {}
        self.hanging: dict[tuple[str, str], Any] = {}
        self.asked: list[tuple[float, str, bool, bool]] = []
        self.plan: list[tuple[float, Callable[[], Any]]] = []
        self.slept: list[float] = []
        self.reported: list[tuple[float, Message]] = []
        self.until = BEGIN
        self.events = Events(self)
        self.inbox = Inbox()

    def may_hang(self, function: str, uuid: str) -> None:
        self.calling = function
        if (function, uuid) in self.hanging:
            raise self.hanging[function, uuid]

    # -- the driver

    def open(self) -> Any:
        return self._once("version")

    def count(self) -> Any:
        self.calling = "count"
        return self._once("counted")

    def _once(self, name: str) -> Any:
        """What hangs does so once."""
        answer = getattr(self, name)
        if isinstance(answer, Hangs):
            setattr(self, name, answer.answer)
        return self._answer(answer)

    def _answer(self, answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    def unlisted(self, bus_ids: Mapping[str, str] | tuple[()]) -> list[str]:
        return list(self.not_listed.get(tuple(sorted(bus_ids)), ()))

    def describe(self, index: int) -> Any:
        self.calling = "describe"
        return self._answer(self.handles[index])

    def sees_switches(self) -> bool:
        return self.has_switches

    def link_end(self, handle: Handle, link: int, uuid_by_bus_id: Mapping[str, str]) -> str:
        self.may_hang("link", handle.gpu.uuid)
        assert link < MAX_LINKS
        end = self.ends.get((handle.gpu.uuid, link), "")
        return uuid_by_bus_id.get(end, end)

    def ancestor(self, one: Handle, other: Handle) -> Ancestor | None:
        return self.ancestors.get((one.gpu.uuid, other.gpu.uuid))

    def reading(self, handle: Handle, *, with_energy: bool, is_first: bool) -> Reading:
        self.asked.append((self.now - BEGIN, handle.gpu.uuid, with_energy, is_first))
        self.may_hang("read", handle.gpu.uuid)
        return self.readings.get(handle.gpu.uuid, Reading())

    def not_supported(self, uuid: str) -> list[str]:
        return self.lacks.get(uuid, [])

    # -- the time

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def wait(self, seconds: float) -> bool:
        """Until the next thing of the plan, in virtual seconds."""
        assert seconds >= 0
        at = self.now + seconds
        if self.plan and self.plan[0][0] <= at:
            when, act = self.plan.pop(0)
            self.now = max(self.now, when)
            act()
            return True
        if at > self.until:
            raise Ended
        self.now = at
        return False


class Events(EventWatch):
    """quiet: UUIDs of GPUs without events."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self.quiet: set[str] = set()
        self.registrations: list[str] = []
        self.reported_before: list[int] = []
        self.starts = 0
        self.is_open = False
        self.happened: Any = SimpleNamespace(wait=machine.wait, set=lambda: None, clear=lambda: None)

    def open(self) -> None:
        self.is_open = True

    def register(self, handle: Handle) -> None:
        uuid = handle.gpu.uuid
        self.registrations.append(uuid)
        self.reported_before.append(len(self._machine.reported))
        self._machine.may_hang("register", uuid)
        self.tried.add(uuid)
        if uuid not in self.quiet:
            self._registered.add(uuid)

    def start(self) -> None:
        self.starts += 1

    def came(self, event: GpuEvent, count: int = 1) -> None:
        """The driver reports it so many times."""
        for _ in range(count):
            self._count(event)


def reader_of(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=machine.monotonic, sleep=machine.sleep))
    monkeypatch.setattr(program, "wait", lambda calls, seconds: SimpleNamespace(done=calls[0].wait(seconds)))
    monkeypatch.setattr(program, "report", lambda message: machine.reported.append((machine.now - BEGIN, message)))
    made = Reader(ReaderOptions(poll_seconds=POLL, call_seconds=1, host_root="/host"), machine.inbox)
    reader: Any = made
    reader._calls, reader._driver, reader._events = Calls(), machine, machine.events
    return made


def gpu(name: str, bus: str = "", **more: Any) -> Gpu:
    return Gpu(f"GPU-{name}", pci_bus_id=bus, **more)


def run(reader: Any, machine: Machine, seconds: float, *plan: tuple[float, Callable[[], Any]]) -> list[Message]:
    """All that it reports within so many seconds."""
    machine.until = BEGIN + seconds
    machine.plan = [(BEGIN + at, act) for at, act in plan]
    with pytest.raises(Ended):
        reader.run()
    return [message for _, message in machine.reported]


def times(machine: Machine, kind: type[Message]) -> list[float]:
    return [round(at, 3) for at, message in machine.reported if isinstance(message, kind)]


def only(machine: Machine, kind: type[Any]) -> list[Any]:
    return [message for _, message in machine.reported if isinstance(message, kind)]
