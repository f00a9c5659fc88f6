"""What the reader reports and when: each response of its driver, calls that hang, events; by a clock of the test's own."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from nodedevice_agent.plugins.nvml.driver_troubles import Fabric, Reading
from nodedevice_agent.plugins.nvml.gpu import Ancestor, Gpu, Ports, scores
from nodedevice_agent.plugins.nvml.health import Place
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.reader.driver import MAX_LINKS
from nodedevice_agent.plugins.nvml.reader.messages import (
    Alive,
    Changed,
    Described,
    EccError,
    Found,
    Message,
    Orders,
    Problem,
    Readings,
    Xid,
)
from nodedevice_agent.plugins.nvml.reader.problems import DriverProblem
from nodedevice_agent.plugins.nvml.reasons import GpuReason

from hack.fake_nvml.machines import MACHINES, described
from tests.fakes import gpu_watch
from tests.fakes.gpu_watch import WELL
from tests.fakes.loaded_nvml import VERSION, LoadedNvml, h100
from tests.fakes.nvml_machine import POLL, Machine
from tests.fakes.sysfs import PCI, FakeSysfs

# an event that means only that the GPUs have to be read
READ = "event 0 0x8000 0"
REGISTER, MINOR, ECC, LINK_STATE = (
    f"nvmlDevice{name}" for name in ("RegisterEvents", "GetMinorNumber", "GetTotalEccErrors", "GetNvLinkState")
)
NO_ID = "GPU 1 cannot be identified: "
UNLISTED = "the driver has the GPU at 0000:ff:00.0 and NVML does not list it: its device file is unknown"
Play = Callable[..., Machine]


@pytest.fixture
def play(nvml: LoadedNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Play:
    """The reader of these GPUs, after these statements."""

    def begin(*names: str, before: tuple[str, ...] = ()) -> Machine:
        nvml.describe(*names)
        nvml.write(*before)
        return Machine(nvml, monkeypatch, str(tmp_path))

    return begin


def found(*gpus: Gpu, unnamed: tuple[str, ...] = (), lost: int = 0) -> Found:
    return Found(VERSION, [*gpus], {gpu.uuid: Ports() for gpu in gpus}, unnamed=[*unnamed], lost=lost)


class TestInventory:
    def test_all_of_it(self, play: Play) -> None:
        links = (
            f"link 0 1 {MAX_LINKS - 1}",
            "switch 00000000:FF:00.0 0",
            *(f"nvlink 0 {link} down" for link in range(1, MAX_LINKS - 1)),
            *(f"nvlink 1 {link} down" for link in range(2, MAX_LINKS - 1)),
        )
        machine = play("b", "a", "c", before=(*links, "set 2 numa=1", "set * fabric-state=1"))
        # no Xid is missed of a GPU that is known
        machine.when_found = machine.comes("xid 2 31")
        inventory, _, readings, *_ = machine.run(0.2)
        assert inventory == Found(
            VERSION,
            [h100("b"), h100("a", 1), replace(h100("c", 2), numa_node=1)],
            {"GPU-b": Ports({"GPU-a": 1}, 1), "GPU-a": Ports({"GPU-b": 2}), "GPU-c": Ports()},
            [("GPU-a", "GPU-b", Ancestor.SWITCH), *((f"GPU-{one}", "GPU-c", Ancestor.SYSTEM) for one in "ab")],
        )
        assert machine.only(Xid) == [Xid("GPU-c", 31, 1)]
        # those with a link to a switch have a fabric
        assert isinstance(readings, Readings)
        fabrics = {"GPU-b": Fabric(1, 0, 1), "GPU-a": None, "GPU-c": None}
        assert {uuid: reading.fabric for uuid, reading in readings.readings.items()} == fabrics

    @pytest.mark.parametrize(
        ("statements", "unnamed", "lost"),
        [
            pytest.param(("lose 0", "lose 2"), "", 2, id="lost"),
            pytest.param(("remove 0", "break 2 nvmlDeviceGetUUID UNKNOWN"), f"{NO_ID}Unknown Error", 0, id="unnamed"),
            pytest.param(("remove 0", "set 2 uuid=GPU-a"), f"{NO_ID}its UUID is another's too, GPU-a", 0, id="twice"),
            # counts only where all that NVML lists could be h100
            pytest.param(("remove 0", "remove 2"), UNLISTED, 0, id="not listed"),
        ],
    )
    def test_what_cannot_be_listed(
        self, play: Play, tmp_path: Path, statements: tuple[str, ...], unnamed: str, lost: int
    ) -> None:
        (tmp_path / "proc/driver/nvidia/gpus/0000:FF:00.0").mkdir(parents=True)
        machine = play("x", "a", "y", before=statements)
        index = 0 if "remove 0" in statements else 1
        names = (unnamed,) if unnamed else ()
        assert machine.run(0)[0] == found(replace(h100("a", 1), index=index), unnamed=names, lost=lost)

    def test_a_gpu_that_hangs_is_unnamed(self, play: Play) -> None:
        machine = play("a", "b")
        machine.hang("nvmlDeviceGetName", 1)
        # it is no link that hung
        unnamed = "GPU 1 does not respond: nvmlDeviceGetName hangs"
        assert machine.run(0)[:2] == [Alive(), found(h100("a"), unnamed=(unnamed,))]

    @pytest.mark.parametrize(
        ("hanging", "reason"),
        [((), GpuReason.DRIVER_FAILED), ((0,), GpuReason.DRIVER_FAILED), ((0, 1), GpuReason.DRIVER_HANGS)],
    )
    def test_without_a_single_gpu_it_is_the_driver(self, play: Play, hanging: tuple[int, ...], reason: str) -> None:
        machine = play("a", "b", before=("break * nvmlDeviceGetUUID UNKNOWN",))
        for slot in hanging:
            machine.hang("nvmlDeviceGetHandleByIndex", slot)
        with pytest.raises(DriverProblem) as problem:
            machine.reader.run()
        assert problem.value.problem.reason == reason
        assert problem.value.problem.message.count("; ") == 1

    @pytest.mark.parametrize("function", ["nvmlInit", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"])
    def test_a_driver_that_hangs_is_waited_for(self, play: Play, function: str) -> None:
        machine = play("a")
        machine.hang(function, waits=3)
        message = f"the NVIDIA driver does not respond ({function} hangs): see the kernel log"
        problem = Problem(GpuReason.DRIVER_HANGS, message)
        assert machine.run(3 * POLL)[:4] == [problem, Alive(), Alive(), found(h100("a"))]
        assert machine.times(Alive) == [POLL, 2 * POLL]

    def test_a_link_that_hangs_makes_it_partial(self, play: Play) -> None:
        machine = play("a", "b", before=("link 0 1",))
        machine.hang(LINK_STATE, 0)
        alive, inventory, _, readings = machine.run(0)[:4]
        assert alive == Alive()
        assert isinstance(inventory, Found)
        assert inventory.is_partial
        assert inventory.ports == {"GPU-a": Ports(), "GPU-b": Ports({"GPU-a": 1})}
        # and nothing else of it is asked
        assert readings == Readings(
            {"GPU-a": Reading(hung_call=LINK_STATE, unsettled=None), "GPU-b": replace(WELL, unsettled=None)}
        )
        assert [uuid for _, uuid, *_ in machine.driver.asked] == ["GPU-b"]

    def test_where_the_bus_has_switches_all_gpus_are_on_them(self, play: Play, tmp_path: Path) -> None:
        FakeSysfs(tmp_path).pci(f"{PCI}/0000:05:00.0", "10de", its_class="068000")
        machine = play("a", "b", before=("set * fabric-state=1",))
        machine.run(0)
        assert [reading.fabric for reading in machine.only(Readings)[0].readings.values()] == [Fabric(1, 0, 1)] * 2


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
        machine = play("a")
        machine.run(9.5, *((when, machine.comes(READ)) for when in at))
        assert machine.times(Readings) == polls

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
        machine = play("a")
        machine.inbox.orders = Orders(orders)
        machine.run(12)
        assert machine.driver.asked == [(at, "GPU-a", due, at == 0) for at, due in zip((0, 5, 10), energy, strict=True)]

    @pytest.mark.parametrize("how", ["another number", "stale", "hangs"])
    def test_other_gpus_are_reported_alone(self, play: Play, how: str) -> None:
        machine = play("a", "b", before=("remove 1",))

        def changes() -> None:
            if how == "another number":
                machine.nvml.write("lists at-once", "add 1")
            elif how == "stale":
                machine.nvml.set(0, uuid="GPU-c")
            else:
                machine.hang("nvmlDeviceGetCount", waits=2)

        machine.run(9, (3.0, changes))
        ends = 5 + (2 * POLL if how == "hangs" else 0)
        assert machine.times(Changed) == [ends]
        assert machine.times(Problem) == ([5] if how == "hangs" else [])
        assert machine.times(Alive) == ([5 + POLL] if how == "hangs" else [])

    def test_instances_come_before_the_readings_that_know_them(self, play: Play) -> None:
        machine = play("a", "b", before=("set 1 mig=enabled",))
        divides = machine.comes("set 0 mig=enabled", "create 0 1g.10gb uuid=MIG-1", count=2)
        reported = machine.run(12, (3.0, divides))
        assert machine.times(Described) == [0, 3.1]
        _, place = [place for place, message in enumerate(reported) if isinstance(message, Described)]
        made = (MigInstance("MIG-1", "1g.10gb", 7, 0, 9984),)
        assert reported[place] == Described([replace(h100("a"), instances=made), replace(h100("b", 1), instances=())])
        assert isinstance(reported[place + 1], Readings)

    def test_what_is_lacking_is_reported_once(self, play: Play) -> None:
        lacks = ("set 0 ecc=unsupported", *(f"break 0 {name} NOT_SUPPORTED" for name in (MINOR, REGISTER)))
        machine = play("a", "b", before=lacks)
        lacking = replace(h100("a"), minor=None, not_supported=("ecc", "events", "minor"))
        machine.run(17, (7.0, lambda: machine.nvml.set(1, ecc="disabled")))
        assert [(at, message) for at, message in machine.reported if isinstance(message, Described)] == [
            (0, Described([lacking, h100("b", 1)])),
            (10, Described([lacking, replace(h100("b", 1), not_supported=("ecc",))])),
        ]

    def test_a_registration_that_hung_is_tried_again(self, play: Play) -> None:
        machine = play("a", "b")
        hang = machine.hang(REGISTER, 0)
        machine.run(12, (3.0, hang.returns), (7.0, machine.comes("xid 0 31")))
        assert machine.only(Xid) == [Xid("GPU-a", 31, 1)]
        assert (machine.nvml.count(REGISTER, 0), machine.nvml.count(REGISTER, 1)) == (1, 1)
        # a GPU that was never registered lacks nothing yet
        assert machine.only(Described) == [Described([h100("a"), h100("b", 1)])]

    def test_the_first_reading_is_the_first_that_came(self, play: Play) -> None:
        machine = play("a")
        hang = machine.hang(ECC, 0)
        machine.run(17, (7.0, hang.returns))
        assert [each.readings["GPU-a"].hung_call for each in machine.only(Readings)] == [ECC, ECC, "", ""]
        # not asked while a call hangs
        assert machine.driver.asked == [
            (at, "GPU-a", False, is_first) for at, is_first in ((0, True), (10, True), (15, False))
        ]
        assert machine.times(Alive) == [0]


class TestEvents:
    def test_a_gpu_with_an_xid_is_read_at_once_and_a_second_later(self, play: Play) -> None:
        machine = play("a", "b")
        machine.run(4, (2.0, machine.comes("xid 0 31 3 3/0", count=3)))
        assert [each for each in machine.reported if each[0] > 0] == [
            (2, Xid("GPU-a", 31, 3, Place(3, 0))),
            (2, Readings({"GPU-a": replace(WELL, unsettled=(31,))})),
            (3, Readings({"GPU-a": WELL})),
        ]
        # what comes together is taken together
        assert machine.slept == [0.1]

    def test_a_storm_is_read_once_a_second(self, play: Play) -> None:
        machine = play("a")
        machine.run(4, *[(2.0 + n / 5, machine.comes("xid 0 31")) for n in range(4)])
        assert machine.times(Xid) == [2, 2.2, 2.4, 2.6]
        assert machine.times(Readings) == [0, 2, 3]

    def test_a_double_bit_error_has_all_read(self, play: Play) -> None:
        machine = play("a", "b")
        machine.run(4, (2.0, machine.comes("event 1 2 0")))
        assert [(round(at, 3), message) for at, message in machine.reported if at > 0] == [
            (2, EccError("GPU-b")),
            (2.1, Readings({"GPU-a": WELL, "GPU-b": WELL})),
        ]


class TestPlayed:
    """What tests, demos and benchmarks have in place of a reader."""

    LOSES = ("break 0 nvmlDeviceGetUUID GPU_IS_LOST",)
    DIVIDES = ("set 0 mig=enabled", "create 0 1g.10gb uuid=MIG-1", "create 0 1g.10gb uuid=MIG-2")

    @pytest.mark.parametrize(
        ("statements", "events", "message"),
        [
            pytest.param((), 0, gpu_watch.BOTH, id="BOTH"),
            pytest.param((), 0, gpu_watch.FINE, id="FINE"),
            pytest.param(LOSES, 0, gpu_watch.LOST, id="LOST"),
            pytest.param(("set * recovery-action=-1",), 0, gpu_watch.OLD, id="OLD"),
            pytest.param(DIVIDES, 3, gpu_watch.DIVIDED, id="DIVIDED"),
        ],
    )
    def test_messages(self, play: Play, statements: tuple[str, ...], events: int, message: Message) -> None:
        machine = play("1", "2")
        assert message in machine.run(9, (3.0, machine.comes(*statements, count=events)))

    @pytest.mark.parametrize(
        ("names", "statements", "problem"),
        [
            pytest.param((), (), gpu_watch.ABSENT, id="ABSENT"),
            pytest.param(("1", "2"), ("init MEMORY",), gpu_watch.BROKEN, id="BROKEN"),
        ],
    )
    def test_problems(self, play: Play, names: tuple[str, ...], statements: tuple[str, ...], problem: Problem) -> None:
        with pytest.raises(DriverProblem) as failed:
            play(*names, before=statements).reader.run()
        assert failed.value.problem == problem

    @pytest.mark.parametrize("name", MACHINES)
    def test_machines(self, play: Play, nvml: LoadedNvml, name: str) -> None:
        machine = play()
        nvml.describe_shipped(name)
        inventory = machine.run(0)[0]
        assert isinstance(inventory, Found)
        ancestors = {(one, other): level for one, other, level in inventory.ancestors}
        assert described(name) == (
            scores(inventory.gpus, inventory.ports, ancestors),
            {gpu.uuid: gpu.numa_nodes() for gpu in inventory.gpus},
        )
