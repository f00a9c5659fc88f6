"""A plugin of somebody else gives out the file of a built-in plugin's device: it counts against that device, and nothing else."""

from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits, DeviceFile
from nodedevice_agent.devicemanager.effects import Effect
from nodedevice_agent.devicemanager.other_holders import Holder
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.runtime import ContainerState, RuntimeDevice

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container, sandbox
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, calls, pod

OWN = PluginOptions(scope=f"{BUILT_IN}test")
LINE = RuntimeDevice("/dev/ttyUSB0", "c", 188, 0)


def line(**more: Any) -> Device:
    return Device("line", identity=("c188:0",), files=(("/dev/ttyUSB0", "c188:0"),), **more)


def with_nics(*devices: Device, options: PluginOptions = OWN) -> RuntimeScenario:
    scenario = RuntimeScenario.synced()
    scenario.plugin(devices, NIC, 2, options)
    return scenario


def gives(scenario: RuntimeScenario, effects: list[Effect], path: str = LINE.path) -> list[Effect]:
    """A plugin answers its call with that file. Returns what follows."""
    (call,) = calls(effects)
    edits = ContainerEdits(devices=(DeviceFile(path, path, "rw"),))
    return scenario.happens("allocated", call.ticket, AllocateResponse(b"files", edits))


def starts_with(scenario: RuntimeScenario, *files: RuntimeDevice) -> None:
    """A container of pod p starts, and the runtime shows these in it."""
    scenario.start(container("p", annotations=scenario.create("p").annotations, devices=files), "p")


def running_with_the_file(device: RuntimeDevice = LINE, *listed_before: Device) -> RuntimeScenario:
    """Pod p runs with a file that a foreign plugin of GPUs gave it."""
    scenario = RuntimeScenario.synced()
    if listed_before:
        scenario.plugin(listed_before, NIC, 2, OWN)
        assert availability.free(scenario.manager.resources[NIC]) == ("line",)
    scenario.plugin(["d0"])
    gives(scenario, scenario.see(pod("p", gpu=1)))
    starts_with(scenario, device)
    return scenario


def test_a_device_whose_file_it_has_given_is_held_back() -> None:
    scenario = running_with_the_file()
    scenario.plugin([line()], NIC, 2, OWN)
    assert availability.free(scenario.manager.resources[NIC]) == ()
    assert "pod default/p has it now" in scenario.snapshot(NIC).devices[0].message
    scenario.end(container("p"), "p")
    scenario.gone("p")
    assert availability.free(scenario.manager.resources[NIC]) == ("line",)


def test_after_a_power_cut_another_device_with_its_number_is_free_once_the_kubelet_starts_anew() -> None:
    """The runtime still lists the container as Created: the cut came before its start was on disk. It never starts."""
    before = running_with_the_file()
    made = container("p", annotations=before.create("p").annotations, devices=(LINE,))
    scenario = before.rebooted()
    scenario.sync(("p", replace(made, state=ContainerState.CREATED)))
    scenario.plugin([line()], NIC, 2, OWN)
    assert availability.free(scenario.manager.resources[NIC]) == ()
    scenario.runtime.creating("p", "main")
    scenario.settled()
    assert availability.free(scenario.manager.resources[NIC]) == ("line",)


def test_also_where_the_device_was_listed_before() -> None:
    assert availability.free(running_with_the_file(LINE, line()).manager.resources[NIC]) == ()


@pytest.mark.parametrize(
    ("number", "is_shared"),
    [pytest.param(7, False, id="of another number"), pytest.param(0, True, id="that may be shared")],
)
def test_it_counts_against_no_device(number: int, is_shared: bool) -> None:
    scenario = running_with_the_file(RuntimeDevice("/dev/ttyUSB0", "c", 188, number))
    scenario.plugin([line(is_shared=is_shared)], NIC, 2, OWN)
    assert availability.free(scenario.manager.resources[NIC]) == ("line",)


def test_a_device_whose_number_has_passed_to_the_next_one_is_not_that_one() -> None:
    first, second = (Device(name, identity=("c188:0", f"/usb/1:2:{name}/1.0/x")) for name in "ab")
    scenario = with_nics(first).run(pod("p", nic=1))
    scenario.start(scenario.create("p"), "p")
    scenario.lists([second], NIC, 2)
    scenario.run(pod("q", nic=1))
    assert scenario.held(NIC) == {"p/main": ("a",), "q/main": ("b",)}
    assert scenario.manager.other_holders.of("q", ()) is None
    # listed with one number at one time they are one
    scenario.lists([first, second], NIC, 2)
    assert scenario.manager.other_holders.of("q", ()) == Holder(NIC, "a", "p")


class TestOtherHolder:
    """Before a container is made with a device file, whoever's plugin named it."""

    def held(self, *devices: Device, options: PluginOptions = OWN) -> RuntimeScenario:
        return with_nics(*devices, options=options).run(pod("q", nic=1))

    def test_a_number_that_another_pod_holds(self) -> None:
        scenario = self.held(line())
        assert scenario.manager.other_holders.of("p", {"c188:0", "c1:3"}) == Holder(NIC, "line", "q")
        assert scenario.manager.other_holders.of("p", {"c188:1"}) is None
        assert scenario.manager.other_holders.of("p", set()) is None
        assert scenario.manager.other_holders.of("q", {"c188:0"}) is None

    @pytest.mark.parametrize(("is_shared", "uid"), [(False, "p"), (True, "r")])
    def test_also_behind_what_does_not_count(self, is_shared: bool, uid: str) -> None:
        """A device of the pod itself, or one that is shared."""
        scenario = with_nics(Device("a", identity=("c188:1",), is_shared=is_shared), line())
        scenario.run(pod(uid, nic=1), pod("q", nic=1))
        assert scenario.held(NIC) == {f"{uid}/main": ("a",), "q/main": ("line",)}
        assert scenario.manager.other_holders.of("p", {"c188:0"}) == Holder(NIC, "line", "q")

    def test_also_after_its_plugin_has_gone(self) -> None:
        scenario = self.held(line())
        scenario.disconnect(NIC, 2)
        scenario.passes(3600)
        assert scenario.manager.other_holders.of("p", {"c188:0"}) == Holder(NIC, "line", "q")

    def test_the_number_of_a_device_that_is_gone_may_be_anothers(self) -> None:
        """Of a stick with another serial, that is: nothing of the first one's pod runs."""
        scenario = self.held(line())
        scenario.lists([Device("other", identity=("c188:0", "/usb/1:2:OTHER/x"))], NIC, 2)
        assert scenario.manager.other_holders.of("p", {"c188:0"}) is None

    def test_two_plugins_of_others_are_their_own_business(self) -> None:
        assert self.held(Device("line"), options=PluginOptions()).manager.other_holders.of("p", {"c188:0"}) is None


class TestNumbersThatPassOn:
    """A container has its device's number as it was. Unplugged and plugged in, the device gets another one, and this passes on."""

    def running(self, *more: Device, is_shared: bool = False) -> RuntimeScenario:
        scenario = with_nics(line(is_shared=is_shared), *more)
        gives(scenario, scenario.see(pod("p", nic=1)))
        starts_with(scenario, LINE, RuntimeDevice("/dev/nvidiactl", "c", 195, 255))
        back = Device("line", identity=("c188:3",), files=(("/dev/ttyUSB3", "c188:3"),), is_shared=is_shared)
        scenario.lists([back, Device("other", identity=("c188:0", "/usb/1:2:OTHER/1.0/tty"))], NIC, 2)
        return scenario

    @pytest.mark.parametrize("how", ["it ends", "its sandbox is removed", "it ended while the runtime was away"])
    def test_nobody_gets_it_while_the_container_can_open_it(self, how: str) -> None:
        scenario = self.running()
        assert availability.free(scenario.manager.resources[NIC]) == ()
        assert scenario.manager.other_holders.of("q", {"c188:0"}) == Holder(NIC, "line", "p")
        assert scenario.manager.other_holders.of("p", {"c188:0"}) is None
        if how == "it ends":
            scenario.end(container("p"), "p")
        elif how == "its sandbox is removed":
            scenario.runtime.sandbox_removed(sandbox("p"))
            scenario.settled()
        else:
            scenario.manager.containers.lost()
            scenario.sync(("p", container("p", state=ContainerState.STOPPED)))
        assert availability.free(scenario.manager.resources[NIC]) == ("other",)
        assert scenario.manager.other_holders.of("q", {"c188:0"}) is None

    @pytest.mark.parametrize("is_shared", [True, False])
    def test_one_that_was_shared_is_not_given_to_one_alone(self, is_shared: bool) -> None:
        """A stick that another pod holds already gets the number, which is in a container that shared its device."""
        stick = Device("stick", identity=("c188:5", "/usb/1:2:S/x"), is_shared=is_shared)
        scenario = self.running(stick, is_shared=True)
        scenario.lists([stick], NIC, 2)
        scenario.run(pod("q", nic=1))
        assert scenario.held(NIC)["q/main"] == ("stick",)
        scenario.lists([replace(stick, identity=("c188:0", "/usb/1:2:S/x"))], NIC, 2)
        assert scenario.manager.other_holders.of("q", {"c188:0"}) == (None if is_shared else Holder(NIC, "line", "p"))

    def test_of_each_file_whether_it_is_shared(self) -> None:
        """A container with a stick of its own and one that it shares: the number of the first one passes on to a shared offer."""
        scenario = with_nics(line())
        shared = Device("shared", identity=("c188:1",), is_shared=True)
        scenario.plugin([shared], GPU, 1, OWN)
        other = RuntimeDevice("/dev/ttyUSB1", "c", 188, 1)
        gives(scenario, gives(scenario, scenario.see(pod("p", gpu=1, nic=1)), other.path))
        starts_with(scenario, LINE, other)
        scenario.lists([], NIC, 2)
        more = Device("more", identity=("c188:1",), is_shared=True)
        scenario.lists([shared, more, Device("passed", identity=("c188:0", "/usb/1:2:OTHER/x"), is_shared=True)])
        assert availability.free(scenario.manager.resources[GPU]) == ("more",)


def test_a_name_of_the_kernels_that_has_passed_to_anothers_device() -> None:
    """While its plugin was away: two pods hold one stick, and the one that runs with it has it."""
    scenario = with_nics(Device("raw", identity=("/devices/usb1/1-1", "c189:9")))
    scenario.plugin([Device("ttyUSB0", identity=("/devices/usb1/1-2/tty", "c188:0"))], GPU, 1, OWN)
    scenario.run(pod("q", nic=1), pod("p", gpu=1))
    scenario.lists([Device("ttyUSB0", identity=("/devices/usb1/1-1/tty", "c188:0"))])
    assert scenario.manager.other_holders.of("p", {"c188:0"}) is None
    scenario.start(scenario.create("q"), "q")
    assert scenario.manager.other_holders.of("p", {"c188:0"}) == Holder(NIC, "raw", "q")
    assert scenario.manager.other_holders.of("q", {"c189:9"}) is None


def test_a_number_in_a_container_counts_for_every_name_of_the_device_that_has_it() -> None:
    """Raw access to a USB device has another number than its tty, which a container opens."""
    scenario = running_with_the_file()
    tty = Device("tty", identity=("/port/2-1/1.0/x", "/usb/1:2:S/1.0/x", "c188:0"), is_shared=True)
    raw = Device("raw", identity=("/port/2-1", "/usb/1:2:S", "c189:9"))
    scenario.plugin([tty, raw, Device("else", identity=("/port/2-2", "c189:8"))], NIC, 2, OWN)
    assert "raw" not in availability.free(scenario.manager.resources[NIC])
    assert "else" in availability.free(scenario.manager.resources[NIC])


def test_a_number_in_a_container_does_not_count_for_another_file_of_the_same_device() -> None:
    """A stick with two serial lines, both in one device of one resource, and each a device of another."""
    scenario = running_with_the_file()
    lines = [f"/port/2-1/1.{n}/x" for n in range(2)]
    one, two = (Device(f"line-{n}", identity=(place, f"c188:{n}")) for n, place in enumerate(lines))
    scenario.plugin([Device("stick", identity=(*lines, "c188:0", "c188:1")), one, two], NIC, 2, OWN)
    assert availability.free(scenario.manager.resources[NIC]) == ("line-1",)
