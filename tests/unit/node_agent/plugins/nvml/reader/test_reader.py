"""What the reader reports and when: each answer of its driver, calls that hang, events; by a clock of the test's own."""

from collections.abc import Callable
from typing import Any

import pytest
from nodedevice_agent.plugins.nvml.driver_troubles import Reading
from nodedevice_agent.plugins.nvml.gpu import Ancestor, Ports
from nodedevice_agent.plugins.nvml.health import Place
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.reader.__main__ import Reader
from nodedevice_agent.plugins.nvml.reader.driver import MAX_LINKS, SWITCH, GpuLost, GpuUnidentified
from nodedevice_agent.plugins.nvml.reader.events import DOUBLE_BIT_ECC, READ_GPUS, XID, GpuEvent
from nodedevice_agent.plugins.nvml.reader.messages import (
    Alive,
    Changed,
    Described,
    EccError,
    Found,
    Orders,
    Problem,
    Readings,
    Xid,
)
from nodedevice_agent.plugins.nvml.reader.problems import DriverProblem
from nodedevice_agent.plugins.nvml.reasons import GpuReason

from tests.fakes.nvml_machine import POLL, Hangs, Machine, Returned, gpu, only, reader_of, run, times

MIG = (MigInstance("MIG-1", "1g.10gb", 1, 0, 9728),)
Play = Callable[[Machine], Reader]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    return lambda machine: reader_of(machine, monkeypatch)


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
        found = run(play(machine), machine, 0)[0]
        assert found == Found(
            "580.1",
            [handle.gpu for handle in machine.handles],
            {"GPU-b": Ports({"GPU-a": 1}, 1), "GPU-a": Ports({"GPU-b": 2}), "GPU-c": Ports()},
            [("GPU-a", "GPU-b", Ancestor.BOARD), ("GPU-b", "GPU-c", Ancestor.SYSTEM)],
        )
        assert machine.events.is_open
        assert machine.events.registrations == ["GPU-b", "GPU-a", "GPU-c"]
        # so that no Xid is missed of a GPU that is known
        assert machine.events.reported_before == [0, 0, 0]
        assert machine.events.starts > 0
        assert [handle.is_on_switches for handle in machine.handles] == [True, False, False]

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
        alive, found, _, readings = run(play(machine), machine, 0)[:4]
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

    def test_where_the_bus_has_switches_all_gpus_are_on_them(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b"))
        machine.has_switches = True
        run(play(machine), machine, 0)
        assert [handle.is_on_switches for handle in machine.handles] == [True, True]


class TestPolls:
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
        run(play(machine), machine, 9.5, *((when, lambda: machine.events.came(READ_GPUS)) for when in at))
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
        machine.inbox.orders = Orders(orders)
        run(play(machine), machine, 12)
        assert machine.asked == [(at, "GPU-a", is_due, at == 0) for at, is_due in zip((0, 5, 10), energy, strict=True)]

    @pytest.mark.parametrize("how", ["another number", "stale", "hangs"])
    def test_other_gpus_are_reported_alone(self, play: Play, how: str) -> None:
        machine = Machine(gpu("a"))

        def changes() -> None:
            if how == "another number":
                machine.counted = 2
            elif how == "stale":
                machine.handles[0].is_stale = True
            else:
                machine.counted = Hangs(Returned(machine, 2), 1)

        run(play(machine), machine, 9, (3.0, changes))
        ends = 5 + (2 * POLL if how == "hangs" else 0)
        assert times(machine, Changed) == [ends]
        assert times(machine, Problem) == ([5] if how == "hangs" else [])
        assert times(machine, Alive) == ([5 + POLL] if how == "hangs" else [])

    def test_instances_come_before_the_readings_that_know_them(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b", instances=()))

        def divides() -> None:
            machine.handles[0].gpu = gpu("a", instances=MIG)

        reported = run(play(machine), machine, 12, (3.0, divides))
        assert times(machine, Described) == [0, 5]
        _, place = [place for place, message in enumerate(reported) if isinstance(message, Described)]
        assert reported[place] == Described([gpu("a", instances=MIG), gpu("b", instances=())])
        assert isinstance(reported[place + 1], Readings)

    def test_what_is_lacking_is_reported_once(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b"))
        machine.lacks["GPU-a"] = ["minor", "ecc"]
        machine.events.quiet = {"GPU-a"}
        lacking = gpu("a", not_supported=("ecc", "events", "minor"))
        run(play(machine), machine, 17, (7.0, lambda: machine.lacks.update({"GPU-b": ["ecc"]})))
        assert [(at, message) for at, message in machine.reported if isinstance(message, Described)] == [
            (0, Described([lacking, gpu("b")])),
            (10, Described([lacking, gpu("b", not_supported=("ecc",))])),
        ]

    def test_a_registration_that_hung_is_tried_again(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b"))
        hang = Hangs(Returned(machine, None))
        machine.hanging["register", "GPU-a"] = hang

        def returns() -> None:
            hang.call.waits = 0
            machine.hanging.clear()

        run(play(machine), machine, 12, (3.0, returns))
        assert machine.events.registrations == ["GPU-a", "GPU-b", "GPU-a"]
        # a GPU that was never registered lacks nothing yet
        assert only(machine, Described) == [Described([gpu("a"), gpu("b")])]

    def test_the_first_reading_is_the_first_that_came(self, play: Play) -> None:
        machine = Machine(gpu("a"))
        hang = Hangs(Returned(machine, None))
        machine.hanging["read", "GPU-a"] = hang
        machine.handles[0].calling = "nvmlDeviceGetName"

        def returns() -> None:
            hang.call.waits = 0
            machine.hanging.clear()

        run(play(machine), machine, 17, (7.0, returns))
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


class TestEvents:
    PLACE = Place(3, 0)

    def test_a_gpu_with_an_xid_is_read_at_once_and_a_second_later(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b"))
        event = GpuEvent("GPU-a", XID, 31, self.PLACE)
        came = [(2.0, lambda: machine.events.came(event, 3))]
        run(play(machine), machine, 4, *came)
        assert [each for each in machine.reported if each[0] > 0] == [
            (2, Xid("GPU-a", 31, 3, self.PLACE)),
            (2, Readings({"GPU-a": Reading(unsettled=(31,))})),
            (3, Readings({"GPU-a": Reading()})),
        ]
        # what comes together is taken together
        assert machine.slept == [0.1]

    def test_a_storm_is_read_once_a_second(self, play: Play) -> None:
        machine = Machine(gpu("a"))
        event = GpuEvent("GPU-a", XID, 31)
        storm = [(2.0 + n / 5, lambda: machine.events.came(event)) for n in range(4)]
        run(play(machine), machine, 4, *storm)
        assert times(machine, Xid) == [2, 2.2, 2.4, 2.6]
        assert times(machine, Readings) == [0, 2, 3]

    def test_a_double_bit_error_has_all_read(self, play: Play) -> None:
        machine = Machine(gpu("a"), gpu("b"))
        run(play(machine), machine, 4, (2.0, lambda: machine.events.came(GpuEvent("GPU-b", DOUBLE_BIT_ECC, 0))))
        assert [(round(at, 3), type(message)) for at, message in machine.reported if at > 0] == [
            (2, EccError),
            (2.1, Readings),
        ]
        assert machine.reported[-2][1] == EccError("GPU-b")
        assert list(only(machine, Readings)[-1].readings) == ["GPU-a", "GPU-b"]
