"""What the reader reports and when: each answer of its driver, calls that hang, events; by a clock of the test's own."""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from nodedevice_agent.plugins.nvml.gpu import Ancestor, Gpu, Ports
from nodedevice_agent.plugins.nvml.health import Place, Reading
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.reader import __main__ as program
from nodedevice_agent.plugins.nvml.reader.__main__ import CallHangs, Inbox, Job, Reader
from nodedevice_agent.plugins.nvml.reader.driver import MAX_LINKS, SWITCH, GpuLost, GpuUnidentified, Handle
from nodedevice_agent.plugins.nvml.reader.events import DOUBLE_BIT_ECC, READ_GPUS, XID, EventWatch, GpuEvent
from nodedevice_agent.plugins.nvml.reader.messages import (
    Alive,
    Changed,
    Divided,
    EccError,
    Found,
    Lacking,
    Message,
    Orders,
    Problem,
    ReaderOptions,
    Readings,
    Xid,
)
from nodedevice_agent.plugins.nvml.reader.problems import DriverProblem
from nodedevice_agent.plugins.nvml.reasons import GpuReason

BEGIN = 100.0
POLL = 5.0
MIG = (MigInstance("MIG-1", "1g.10gb", 1, 0, 9728),)


class Ended(Exception):
    """The test has seen enough."""


class Returned:
    """The end of a job that hangs: after so many waits, or never."""

    def __init__(self, machine: "Machine", waits: int | None) -> None:
        self._machine = machine
        self.waits = waits

    def is_set(self) -> bool:
        return self.waits == 0

    def wait(self, seconds: float) -> bool:
        self._machine.now += seconds
        assert self.waits
        self.waits -= 1
        return self.waits == 0


class Hangs(Exception):
    """Raised by a driver's function: what it would return comes when the job has returned."""

    def __init__(self, returned: Returned, answer: Any = None) -> None:
        super().__init__()
        self.answer = answer
        job: Any = Job(lambda: answer)
        job.run()
        job.done = returned
        self.job = job


class Calls:
    def do(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Hangs as hang:
            raise CallHangs(hang.job) from hang


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


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Machine], Reader]:
    def reader_of(machine: Machine) -> Reader:
        monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=machine.monotonic, sleep=machine.sleep))
        monkeypatch.setattr(program, "report", lambda message: machine.reported.append((machine.now - BEGIN, message)))
        reader: Any = Reader(ReaderOptions(poll_seconds=POLL, call_seconds=1, host_root="/host"))
        reader._calls, reader._driver, reader._events = Calls(), machine, Events(machine)
        return reader  # type: ignore[no-any-return]

    return reader_of


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


Play = Callable[[Machine], Reader]


class TestInventory:
    def test_all_of_it(self, play: Play) -> None:
        machine = Machine(gpu("b", "0000:2b:00.0"), gpu("a", "0000:1b:00.0"), gpu("c"))
        machine.ends = {
            ("GPU-a", 0): "0000:2b:00.0",
            ("GPU-a", MAX_LINKS - 1): "0000:2b:00.0",
            ("GPU-b", 2): "0000:1b:00.0",
            ("GPU-b", 3): SWITCH,
        }
        machine.ancestors = {("GPU-a", "GPU-b"): Ancestor.BOARD, ("GPU-b", "GPU-c"): Ancestor.SYSTEM}
        reader: Any = play(machine)
        found = run(reader, machine, 0)[0]
        assert found == Found(
            "580.1",
            [handle.gpu for handle in machine.handles],
            {"GPU-b": Ports({"GPU-a": 1}, 1), "GPU-a": Ports({"GPU-b": 2}), "GPU-c": Ports()},
            [("GPU-a", "GPU-b", Ancestor.BOARD), ("GPU-b", "GPU-c", Ancestor.SYSTEM)],
        )
        assert reader._events.is_open
        assert reader._events.registrations == ["GPU-b", "GPU-a", "GPU-c"]
        # so that no Xid is missed of a GPU that is known
        assert reader._events.reported_before == [0, 0, 0]
        assert reader._events.starts > 0
        assert [handle.is_on_switches for handle in machine.handles] == [True, False, False]

    def test_where_the_bus_has_switches_all_gpus_are_on_them(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b"))
        machine.has_switches = True
        run(play(machine), machine, 0)
        assert [handle.is_on_switches for handle in machine.handles] == [True, True]

    @pytest.mark.parametrize(
        ("gpus", "unnamed", "lost"),
        [
            pytest.param([GpuLost(), gpu("a"), GpuLost()], [], 2, id="lost"),
            pytest.param(
                [GpuUnidentified("for a reason"), gpu("a")],
                ["GPU 0 cannot be identified: for a reason"],
                0,
                id="unidentified",
            ),
            pytest.param(
                [gpu("a"), gpu("a")],
                ["GPU 1 cannot be identified: its UUID is another's too, GPU-a"],
                0,
                id="one UUID twice",
            ),
        ],
    )
    def test_what_cannot_be_listed(self, play: Play, gpus: list[Any], unnamed: list[str], lost: int) -> None:
        machine = Machine(*gpus)
        # counts only where all that NVML lists could be described
        machine.not_listed = {(): ["not listed"]}
        found = run(play(machine), machine, 0)[0]
        assert found == Found("580.1", [gpu("a")], {"GPU-a": Ports()}, [], unnamed, lost)

    def test_a_gpu_that_hangs_is_unnamed(self, play: Play) -> None:
        machine = Machine(gpu("a"), None)
        machine.handles[1] = Hangs(Returned(machine, None))
        first, found = run(play(machine), machine, 0)[:2]
        assert first == Alive()
        # it is no link that hung
        assert found == Found(
            "580.1", [gpu("a")], {"GPU-a": Ports()}, unnamed=["GPU 1 does not respond: describe hangs"]
        )

    def test_what_nvml_leaves_out_is_named(self, play: Play) -> None:
        machine = Machine(gpu("a", "0000:1b:00.0"), gpu("b"))
        machine.not_listed = {("0000:1b:00.0",): ["the driver has another"]}
        found: Any = run(play(machine), machine, 0)[0]
        assert found.unnamed == ["the driver has another"]

    @pytest.mark.parametrize(
        ("gpus", "reason"),
        [
            ([GpuUnidentified("x"), GpuUnidentified("y")], GpuReason.DRIVER_FAILED),
            ([None, GpuUnidentified("y")], GpuReason.DRIVER_FAILED),
            ([None, None], GpuReason.DRIVER_HANGS),
        ],
    )
    def test_without_a_single_gpu_it_is_the_driver(self, play: Play, gpus: list[Any], reason: str) -> None:
        machine = Machine(*gpus)
        machine.handles = [Hangs(Returned(machine, None)) if each is None else each for each in gpus]
        with pytest.raises(DriverProblem) as problem:
            play(machine).run()
        assert problem.value.problem.reason == reason
        assert problem.value.problem.message.count("; ") == 1

    def test_lost_gpus_alone_are_no_problem_of_the_driver(self, play: Play) -> None:
        machine = Machine(GpuLost())
        assert run(play(machine), machine, 0)[0] == Found("580.1", [], lost=1)

    def test_no_gpu_at_all(self, play: Play) -> None:
        machine = Machine()
        with pytest.raises(DriverProblem, match="lists no GPU"):
            play(machine).run()

    @pytest.mark.parametrize("function", ["version", "counted"])
    def test_a_driver_that_hangs_is_waited_for(self, play: Play, function: str) -> None:
        machine = Machine(gpu("a"))
        answer = getattr(machine, function)
        setattr(machine, function, Hangs(Returned(machine, 3), answer))
        machine.calling = "count"
        found = run(play(machine), machine, 3 * POLL)[:4]
        assert found[:3] == [
            Problem(GpuReason.DRIVER_HANGS, "the NVIDIA driver does not respond (count hangs): see the kernel log"),
            Alive(),
            Alive(),
        ]
        if function == "version":
            assert found[3] == Found("580.1", [gpu("a")], {"GPU-a": Ports()})
        assert times(machine, Alive) == [POLL, 2 * POLL]

    def test_a_link_that_hangs_makes_it_partial(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b"))
        machine.ends = {("GPU-a", 0): "GPU-b", ("GPU-b", 0): "GPU-a"}
        machine.hanging["link", "GPU-a"] = Hangs(Returned(machine, None))
        alive, found, readings = run(play(machine), machine, 0)[:3]
        assert alive == Alive()
        assert isinstance(found, Found)
        assert found.is_partial
        assert found.ports == {"GPU-a": Ports(), "GPU-b": Ports({"GPU-a": 1})}
        # and nothing else of it is asked
        assert isinstance(readings, Readings)
        assert readings.readings == {
            "GPU-a": Reading(hung_call="link", unsettled=None),
            "GPU-b": Reading(unsettled=None),
        }
        assert [uuid for _, uuid, *_ in machine.asked] == ["GPU-b"]


class TestPolls:
    def test_each_few_seconds(self, play: Play) -> None:
        machine = Machine(gpu("a"))
        machine.readings["GPU-a"] = Reading(ecc_uncorrected=3)
        assert run(play(machine), machine, 12) == [
            Found("580.1", [gpu("a")], {"GPU-a": Ports()}),
            # nothing is known of Xids from before
            Readings({"GPU-a": Reading(ecc_uncorrected=3, unsettled=None)}),
            Lacking({"GPU-a": ()}),
            Readings({"GPU-a": Reading(ecc_uncorrected=3)}),
            Readings({"GPU-a": Reading(ecc_uncorrected=3)}),
        ]
        assert times(machine, Readings) == [0, 5, 10]
        assert machine.slept == []

    @pytest.mark.parametrize(
        ("at", "polls"),
        [
            pytest.param([3.0], [0, 3.1, 8.1], id="at once"),
            pytest.param([0.2], [0, 1, 6], id="at most each second"),
            pytest.param([3.0, 3.2], [0, 3.1, 4.1, 9.1], id="again at most a second later"),
            pytest.param([4.95], [0, 5.05], id="as the next one is due"),
        ],
    )
    def test_sooner_where_an_event_means_so(self, play: Play, at: list[float], polls: list[float]) -> None:
        machine = Machine(gpu("a"))
        reader: Any = play(machine)
        run(reader, machine, 9.5, *((when, lambda: reader._events._count(READ_GPUS)) for when in at))
        assert times(machine, Readings) == polls

    @pytest.mark.parametrize(
        ("orders", "energy"),
        [
            pytest.param({}, [False, False, False], id="never"),
            pytest.param({"GPU-a": 0.0}, [True, True, True], id="always"),
            pytest.param({"GPU-a": 10.0}, [True, False, True], id="seldom"),
            pytest.param({"GPU-a": 500.0}, [True, False, False], id="more seldom than the machine is up"),
            pytest.param({"GPU-b": 0.0}, [False, False, False], id="another's"),
        ],
    )
    def test_energy_as_ordered(self, play: Play, orders: dict[str, float], energy: list[bool]) -> None:
        machine = Machine(gpu("a"))
        reader: Any = play(machine)
        reader._inbox.orders = Orders(orders)
        run(reader, machine, 12)
        assert machine.asked == [(at, "GPU-a", is_due, at == 0) for at, is_due in zip((0, 5, 10), energy, strict=True)]

    def test_the_first_reading_is_the_first_that_came(self, play: Play) -> None:
        machine = Machine(gpu("a"))
        hang = Hangs(Returned(machine, None))
        machine.hanging["read", "GPU-a"] = hang
        reader: Any = play(machine)
        machine.handles[0].calling = "nvmlDeviceGetName"

        def returns() -> None:
            hang.job.done.waits = 0
            machine.hanging.clear()

        run(reader, machine, 17, (7.0, returns))
        assert [each.readings["GPU-a"].hung_call for each in only(machine, Readings)] == [
            *("nvmlDeviceGetName", "nvmlDeviceGetName"),
            *("", ""),
        ]
        # not asked while a call hangs
        assert machine.asked == [
            (0, "GPU-a", False, True),
            (10, "GPU-a", False, True),
            (15, "GPU-a", False, False),
        ]
        assert times(machine, Alive) == [0]

    @pytest.mark.parametrize("how", ["another number", "stale", "hangs"])
    def test_other_gpus_are_reported_alone(self, play: Play, how: str) -> None:
        machine = Machine(gpu("a"))
        reader: Any = play(machine)

        def changes() -> None:
            if how == "another number":
                machine.counted = 2
            elif how == "stale":
                machine.handles[0].is_stale = True
            else:
                machine.counted = Hangs(Returned(machine, 2), 1)

        run(reader, machine, 9, (3.0, changes))
        ends = 5 + (2 * POLL if how == "hangs" else 0)
        assert times(machine, Changed) == [ends]
        assert times(machine, Problem) == ([5] if how == "hangs" else [])
        assert times(machine, Alive) == ([5 + POLL] if how == "hangs" else [])

    def test_instances_come_before_the_readings_that_know_them(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b", instances=()))
        reader: Any = play(machine)

        def divides() -> None:
            machine.handles[0].gpu = gpu("a", instances=MIG)

        reported = run(reader, machine, 12, (3.0, divides))
        assert times(machine, Divided) == [5]
        (place,) = [place for place, message in enumerate(reported) if isinstance(message, Divided)]
        assert reported[place] == Divided({"GPU-a": MIG, "GPU-b": ()})
        assert isinstance(reported[place + 1], Readings)

    def test_what_is_lacking_is_reported_once(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b"))
        machine.lacks["GPU-a"] = ["minor", "ecc"]
        reader: Any = play(machine)
        reader._events.quiet = {"GPU-a"}
        run(reader, machine, 17, (7.0, lambda: machine.lacks.update({"GPU-b": ["ecc"]})))
        assert [(at, message) for at, message in machine.reported if isinstance(message, Lacking)] == [
            (0, Lacking({"GPU-a": ("ecc", "events", "minor"), "GPU-b": ()})),
            (10, Lacking({"GPU-a": ("ecc", "events", "minor"), "GPU-b": ("ecc",)})),
        ]

    def test_a_registration_that_hung_is_tried_again(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b"))
        hang = Hangs(Returned(machine, None))
        machine.hanging["register", "GPU-a"] = hang
        reader: Any = play(machine)

        def returns() -> None:
            hang.job.done.waits = 0
            machine.hanging.clear()

        run(reader, machine, 12, (3.0, returns))
        assert reader._events.registrations == ["GPU-a", "GPU-b", "GPU-a"]
        # a GPU that was never registered lacks nothing yet
        assert only(machine, Lacking) == [Lacking({"GPU-a": (), "GPU-b": ()})]


class TestEvents:
    PLACE = Place(3, 0)

    def test_a_gpu_with_an_xid_is_read_at_once_and_a_second_later(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b"))
        reader: Any = play(machine)
        event = GpuEvent("GPU-a", XID, 31, self.PLACE)
        came = [(2.0, lambda: [reader._events._count(event) for _ in range(3)])]
        run(reader, machine, 4, *came)
        assert [each for each in machine.reported if each[0] > 0] == [
            (2, Xid("GPU-a", 31, 3, self.PLACE)),
            (2, Readings({"GPU-a": Reading(unsettled=(31,))})),
            (3, Readings({"GPU-a": Reading()})),
        ]
        # what comes together is taken together
        assert machine.slept == [0.1]

    def test_a_storm_is_read_once_a_second(self, play: Play) -> None:
        machine = Machine(gpu("a"))
        reader: Any = play(machine)
        event = GpuEvent("GPU-a", XID, 31)
        storm = [(2.0 + n / 5, lambda: reader._events._count(event)) for n in range(4)]
        run(reader, machine, 4, *storm)
        assert times(machine, Xid) == [2, 2.2, 2.4, 2.6]
        assert times(machine, Readings) == [0, 2, 3]

    def test_a_double_bit_error_has_all_read(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b"))
        reader: Any = play(machine)
        run(reader, machine, 4, (2.0, lambda: reader._events._count(GpuEvent("GPU-b", DOUBLE_BIT_ECC, 0))))
        assert [(round(at, 3), type(message)) for at, message in machine.reported if at > 0] == [
            (2, EccError),
            (2.1, Readings),
        ]
        assert machine.reported[-2][1] == EccError("GPU-b")
        assert list(only(machine, Readings)[-1].readings) == ["GPU-a", "GPU-b"]

    def test_an_xid_of_no_gpu_is_reported(self, play: Play) -> None:
        machine = Machine(gpu("a"))
        reader: Any = play(machine)
        run(reader, machine, 4, (2.0, lambda: reader._events._count(GpuEvent("", XID, 79))))
        assert [each for each in machine.reported if each[0] > 0] == [(2, Xid("", 79, 1))]

    def test_an_event_of_no_kind_is_nothing(self, play: Play) -> None:
        machine = Machine(gpu("a"))
        reader: Any = play(machine)
        run(reader, machine, 4, (2.0, lambda: reader._events._count(GpuEvent("GPU-a", 1, 79))))
        assert [each for each in machine.reported if each[0] > 0] == []


class TestProgram:
    class Exited(BaseException):
        """os._exit of the test."""

    @pytest.fixture
    def status(self, monkeypatch: pytest.MonkeyPatch, followed: "SimpleQueue[tuple[Inbox, bool]]") -> list[int]:
        seen: list[int] = []

        def leave(status: int) -> None:
            seen.append(status)
            raise self.Exited

        def follow(inbox: Inbox) -> None:
            followed.put((inbox, threading.current_thread().daemon))

        monkeypatch.setattr(os, "_exit", leave)
        monkeypatch.setattr(Inbox, "follow", follow)
        return seen

    OPTIONS = ReaderOptions(5, 1, "/host", "/lib")

    @pytest.fixture
    def followed(self) -> "SimpleQueue[tuple[Inbox, bool]]":
        """Whose orders are taken, and whether the thread that does so ends with the process."""
        return SimpleQueue()

    @pytest.mark.parametrize(
        ("error", "status_expected", "output", "errors"),
        [
            pytest.param(
                DriverProblem(Problem("Reason", "words")), 0, b'"message":"words"', b"", id="the driver does not work"
            ),
            pytest.param(BrokenPipeError(), 0, b"", b"", id="the agent is gone"),
            pytest.param(ValueError("a bug"), 1, b"", b"ValueError: a bug", id="a bug"),
            pytest.param(None, 0, b"", b"", id="no more"),
        ],
    )
    def test_how_it_ends(
        self,
        monkeypatch: pytest.MonkeyPatch,
        status: list[int],
        followed: "SimpleQueue[tuple[Inbox, bool]]",
        capfdbinary: pytest.CaptureFixture[bytes],
        error: Exception | None,
        status_expected: int,
        output: bytes,
        errors: bytes,
    ) -> None:
        began: list[Any] = []

        def run_it(reader: Any) -> None:
            began.append((reader._options, reader._driver._library_dir, reader._inbox))
            if error is not None:
                raise error

        monkeypatch.setattr(Reader, "run", run_it)
        monkeypatch.setattr(sys, "argv", ["reader", msgspec.json.encode(self.OPTIONS).decode()])
        with pytest.raises(self.Exited):
            program.main()
        written = capfdbinary.readouterr()
        assert status[0] == status_expected
        assert output in written.out
        assert (output != b"") is written.out.endswith(b"\n")
        assert errors in written.err
        inbox, is_daemon = followed.get(timeout=60)
        assert began == [(self.OPTIONS, "/lib", inbox)]
        assert is_daemon

    def test_options_that_are_none_are_an_error(
        self, monkeypatch: pytest.MonkeyPatch, status: list[int], capfdbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        monkeypatch.setattr(sys, "argv", ["reader", "{}"])
        with pytest.raises(self.Exited):
            program.main()
        assert status == [1]
        assert b"poll_seconds" in capfdbinary.readouterr().err

    def test_orders_come_line_by_line_until_the_agent_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        inbox = Inbox()
        seen: list[Any] = []
        chunks = [b'{"energy": {"GPU-a": 1', b'.5}}\n{"energy"', b':{"GPU-a":2.0}}\nnonsense\n{}\n{"en', b""]
        ended: list[int] = []

        def read(descriptor: int, size: int) -> bytes:
            assert descriptor == 0
            assert 0 < size <= 65536
            seen.append(inbox.orders.energy)
            return chunks.pop(0)

        monkeypatch.setattr(os, "read", read)
        monkeypatch.setattr(os, "_exit", ended.append)
        inbox.follow()
        assert seen == [{}, {}, {"GPU-a": 1.5}, {}]
        assert ended == [0]

    def test_what_is_no_order_changes_nothing(self) -> None:
        inbox = Inbox()
        inbox.take(b'{"energy":{"GPU-a":2.0}}')
        for line in (b"", b"nonsense", b"[]", b'{"energy":7}'):
            inbox.take(line)
        assert inbox.orders == Orders({"GPU-a": 2.0})
