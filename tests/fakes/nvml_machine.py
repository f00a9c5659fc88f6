"""The nvml plugin's reader on the fake NVML library, by a clock of the test's own: its calls hang as long as the test states."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from nodedevice_agent.plugins.nvml.driver_troubles import Reading
from nodedevice_agent.plugins.nvml.reader import __main__ as program
from nodedevice_agent.plugins.nvml.reader.__main__ import CallHangs, Inbox, Reader
from nodedevice_agent.plugins.nvml.reader.driver import Driver, Handle
from nodedevice_agent.plugins.nvml.reader.messages import Found, Message, ReaderOptions

from tests.fakes.loaded_nvml import CountedEvents, LoadedNvml

BEGIN = 100.0
POLL = 5.0


class Ended(Exception):
    """The test has seen enough."""


class Hang(Exception):
    """A call that hangs, raised where it begins. It returns after so many waits, or never."""

    def __init__(self, waits: int | None) -> None:
        super().__init__()
        self.waits = waits
        self.call: Any = None

    def returns(self) -> None:
        self.waits = 0

    def done(self) -> bool:
        return self.waits == 0

    def result(self) -> Any:
        return self.call()


class Calls:
    def do(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Hang as hang:
            hang.call = call
            played: Any = hang
            raise CallHangs(played) from hang


class SeenDriver(Driver):
    """asked: each reading, with how it was asked for."""

    def __init__(self, machine: "Machine") -> None:
        super().__init__(machine.host_root, str(machine.nvml.library_dir))
        self._machine = machine
        self.asked: list[tuple[float, str, bool, bool]] = []

    def reading(self, handle: Handle, *, with_energy: bool = False, is_first: bool = False) -> Reading:
        self.asked.append((self._machine.now - BEGIN, handle.gpu.uuid, with_energy, is_first))
        return super().reading(handle, with_energy=with_energy, is_first=is_first)


class Machine:
    """A reader, and the time. plan: what happens, by its second. reported: each message, by its second.

    when_found: happens as the inventory is reported.
    """

    def __init__(self, nvml: LoadedNvml, monkeypatch: pytest.MonkeyPatch, host_root: str) -> None:
        self.nvml, self.host_root = nvml, host_root
        self.now = BEGIN
        self.plan: list[tuple[float, Callable[[], Any]]] = []
        self.slept: list[float] = []
        self.reported: list[tuple[float, Message]] = []
        self.until = BEGIN
        self.inbox = Inbox()
        self.when_found: Callable[[], None] = lambda: None
        monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep))
        monkeypatch.setattr(program, "wait", self._wait_for)
        monkeypatch.setattr(program, "report", self._report)
        self.reader = Reader(ReaderOptions(POLL, 1, host_root), self.inbox)
        self.events = CountedEvents()
        self.driver = SeenDriver(self)
        reader: Any = self.reader
        reader._calls, reader._driver, reader._events = Calls(), self.driver, self.events
        monkeypatch.setattr(self.events.happened, "wait", self._wait)

    def run(self, seconds: float, *plan: tuple[float, Callable[[], Any]]) -> list[Message]:
        """All that it reports within so many seconds."""
        self.until = BEGIN + seconds
        self.plan = [(BEGIN + at, act) for at, act in plan]
        with pytest.raises(Ended):
            self.reader.run()
        return [message for _, message in self.reported]

    def comes(self, *statements: str, count: int = 1) -> Callable[[], None]:
        """For the plan: these statements, and the events that the driver reports of them."""

        def come() -> None:
            self.nvml.write(*statements)
            self.events.await_events(count)

        return come

    def hang(self, function: str, slot: int | None = None, waits: int | None = None) -> Hang:
        """From now on calls of this function hang, of this GPU or of all, until the first one returns."""
        real, hang = getattr(pynvml, function), Hang(waits)

        def called(*arguments: Any) -> Any:
            if not hang.done() and (slot is None or _slot(*arguments) == slot):
                raise hang
            return real(*arguments)

        self.nvml.replace(function, called)
        return hang

    def times(self, kind: type[Message]) -> list[float]:
        return [round(at, 3) for at, message in self.reported if isinstance(message, kind)]

    def only(self, kind: type[Any]) -> list[Any]:
        return [message for _, message in self.reported if isinstance(message, kind)]

    def _report(self, message: Message) -> None:
        self.reported.append((self.now - BEGIN, message))
        if isinstance(message, Found):
            self.when_found()

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def _wait(self, seconds: float) -> bool:
        """Until the next event, or the next thing of the plan, in virtual seconds."""
        assert seconds >= 0
        if self.events.happened.is_set():
            return True
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

    def _wait_for(self, calls: list[Hang], seconds: float) -> SimpleNamespace:
        (hang,) = calls
        self.now += seconds
        assert hang.waits
        hang.waits -= 1
        return SimpleNamespace(done=hang.done())


def _slot(device: Any, *_: Any) -> int:
    return device if isinstance(device, int) else int(pynvml.nvmlDeviceGetIndex(device))
