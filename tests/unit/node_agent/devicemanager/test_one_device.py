"""One device, one pod: what built-in plugins say their devices are counts, under any ID of any resource."""

import pytest
from nodedevice_agent.devicemanager.pods import Container
from nodedevice_agent.devicemanager.resources.preference import LONGEST_SECONDS
from nodedevice_api.names import Reason

from tests.unit.node_agent.devicemanager.identity_scenario import device, free, offering, offers, own
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, calls, pod, published

Tokens = tuple[str, ...]
TTY = "/devices/pci0/usb1/1-1/1-1:1.0/ttyUSB0/tty/ttyUSB0"
USB = "/devices/pci0/usb1/1-1"
DISK, PARTITION = "/devices/pci0/block/sda", "/devices/pci0/block/sda/sda1"


SAME = [
    pytest.param(("c188:0",), ("c188:0",), id="one number"),
    pytest.param(("GPU-1", "c195:0"), ("c195:0",), id="a GPU and its file"),
    pytest.param(("GPU-1",), ("GPU-1",), id="one UUID"),
    pytest.param(("c188:0", TTY), ("c189:5", USB), id="a tty and its USB device"),
    pytest.param(("b8:0", DISK), ("b8:1", PARTITION), id="a disk and its partition"),
    pytest.param(("b8:0", "pair:/devices/x:scsi"), ("c21:0", "pair:/devices/x:scsi"), id="a pair"),
    pytest.param(("c1:7", "/usb/1:2:S/1.0/tty"), ("c1:8", "/usb/1:2:S/1.0/tty"), id="one file of one USB device"),
    pytest.param(("c1:7", "/usb/1:2:S/1.0"), ("c1:8", "/usb/1:2:S/1.0/tty"), id="a file within it"),
    pytest.param(("c1:7", "/usb/1:2:S@1-1/x"), ("c1:7", "/usb/1:2:S/x"), id="a serial that is repeated by now"),
    pytest.param(("c1:7", "/port/1-1"), ("c1:8", "/port/1-1/1.0", "/usb/1:2:S/1.0"), id="whatever is in a port"),
]
DIFFERENT = [
    pytest.param(("c188:0",), ("c188:1",), id="two numbers"),
    pytest.param(("c188:0", TTY), ("c188:1", TTY.replace("USB0", "USB1")), id="siblings"),
    pytest.param(("b8:1", PARTITION), ("b8:2", PARTITION + "0"), id="names that begin alike"),
    pytest.param(("/port/1-1/x", "/usb/1:2:@1-1/x"), ("/port/1-2/x", "/usb/1:2:@1-2/x"), id="two without serials"),
    pytest.param((), (), id="shared files alone"),
    pytest.param(("c188:0",), (), id="one of which nothing is said, as of a foreign plugin's"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_one_device_is_offered_once_and_held_once(one: Tokens, other: Tokens, order: tuple[int, int]) -> None:
    scenario = Scenario()
    listed = [(GPU, device("a", *one)), (NIC, device("b", *other))]
    for index in order:
        offers(scenario, *listed[index])
    assert free(scenario) == ["a"]
    (view,) = scenario.snapshot(NIC).devices
    assert (view.healthy, view.reason) == (False, Reason.IN_OTHER_USE)
    assert "a of example.com/gpu, and is offered there" in view.message
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    # both show who has it
    assert published(scenario.answer(call)) == {GPU, NIC}
    scenario.plugin(1, "example.com/else", 3)
    (call,) = calls(scenario.see(pod("else", Container("main", limits={"example.com/else": 1}))))
    assert published(scenario.answer(call)) == {"example.com/else"}
    scenario.run(pod("q", nic=1))
    assert (scenario.held(), scenario.held(NIC)) == ({"p/main": ("a",)}, {})
    assert "pod default/p has it now" in scenario.snapshot(NIC).devices[0].message
    scenario.gone("p")
    scenario.answer_all(scenario.lists([]))
    assert scenario.held(NIC) == {"q/main": ("b",)}


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_two_devices_are_two(one: Tokens, other: Tokens) -> None:
    scenario = offering(device("a", *one))
    offers(scenario, NIC, device("b", *other))
    assert free(scenario) == ["a", "b"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(("c188:0", "/usb/1:2:A/1.0/x"), ("c188:0", "/usb/1:2:B/1.0/x"), id="a number that passed on"),
        pytest.param(("c188:0", "/usb/1:2:A/x"), ("c188:0", "/usb/1:2:@1-1/x"), id="to a stick without a serial"),
    ],
)
def test_what_has_passed_on_is_free(one: Tokens, other: Tokens) -> None:
    """A number that a held device had, as the serial of the other one shows; while both are listed, one list is old."""
    scenario = offering(device("a", *one)).run(pod("p", gpu=1))
    offers(scenario, NIC, device("b", *other))
    assert free(scenario) == []
    scenario.lists([])
    assert free(scenario) == ["b"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(("c188:0", "/usb/1:2:A/1.0/x"), ("c188:0",), id="only the held one has a serial"),
        pytest.param(("c188:0",), ("c188:0", "/usb/1:2:A/1.0/x"), id="only the other one has"),
        pytest.param(("/port/1-1/x", "/usb/1:2:A/x"), ("by port 1-1", "/port/1-1/x", "/usb/1:2:B/x"), id="by its port"),
    ],
)
def test_what_may_be_the_same_device_is_not_free(one: Tokens, other: Tokens) -> None:
    scenario = offering(device("a", *one)).run(pod("p", gpu=1))
    offers(scenario, NIC, device("b", *other))
    scenario.lists([])
    assert free(scenario) == []


@pytest.mark.parametrize(("one", "other"), SAME)
def test_whoever_holds_it_keeps_it(one: Tokens, other: Tokens) -> None:
    """Under the name that would not be preferred, also when its plugin lists it no more, and after a restart."""
    scenario = offering(device("b", *other), name=NIC).run(pod("q", nic=1))
    offers(scenario, GPU, device("a", *one))
    scenario.run(pod("p", gpu=1))
    assert scenario.held() == {}
    scenario.lists([], NIC, 2)
    assert free(scenario) == []
    scenario.disconnect(NIC, 2)
    scenario.passes(3600)
    assert free(scenario) == []
    after = scenario.restarted()
    after.see(pod("q", nic=1), pod("p", gpu=1))
    offers(after, GPU, device("a", *one))
    assert free(after) == []
    assert after.held(NIC) == {"q/main": ("b",)}
    after.answer_all(after.gone("q"))
    assert after.held() == {"p/main": ("a",)}


def test_a_held_port_that_is_empty_is_a_port_and_no_number() -> None:
    """Also after a restart: the stick that was in there may be elsewhere."""
    port = ("c188:0", "/port/1-1", "/port/1-1/x", "/usb/1:2:S/x", "by port 1-1")
    moved = ("c188:0", "/port/1-2/x", "/usb/1:2:S/x")
    scenario = offering(device("port", *port)).run(pod("p", gpu=1))
    scenario.lists([])
    offers(scenario, NIC, device("stick", *moved))
    assert free(scenario) == ["stick"]
    after = scenario.restarted()
    offers(after, NIC, device("stick", *moved))
    assert free(after) == ["stick"]
    after.lists([device("other", "c188:1", "/port/1-1/y", "/usb/1:2:T/y")], NIC, 2)
    assert free(after) == []


def awaiting(*names: str) -> Scenario:
    """At a start: these plugins are configured, of equal priority."""
    scenario = Scenario()
    scenario.happens("table.ranked", dict.fromkeys(names or (GPU, NIC), 0), [*(names or (GPU, NIC))])
    return scenario


class TestPreference:
    def test_the_priority_of_configurations_comes_before_names(self) -> None:
        scenario = offering(device("a", "c1:1"))
        offers(scenario, NIC, device("b", "c1:1"))
        scenario.happens("table.ranked", {GPU: 0, NIC: -10}, [])
        assert free(scenario) == ["b"]
        scenario.happens("table.ranked", {GPU: -20, NIC: -10}, [])
        assert free(scenario) == ["a"]
        # none comes before 1
        scenario.happens("table.ranked", {GPU: 1}, [])
        assert free(scenario) == ["b"]

    def test_a_preferred_plugin_is_awaited_at_a_start(self) -> None:
        """Else the pod would have the device as b here, and as a where the plugins list in the other order."""
        scenario = awaiting()
        offers(scenario, NIC, device("b", "c1:1"), device("c", "c1:2"))
        scenario.run(pod("q", nic=1))
        assert scenario.held(NIC) == {}
        assert scenario.reasons(NIC) == {"q": Reason.DEVICE_LIST_PENDING}
        scenario.connect(GPU, 1, own(GPU))
        scenario.answer_all(scenario.lists([device("a", "c1:1")]))
        assert scenario.held(NIC) == {"q/main": ("c",)}

    def test_one_that_has_failed_is_awaited_for_a_moment(self) -> None:
        scenario = awaiting()
        offers(scenario, NIC, device("b", "c1:1"))
        scenario.see(pod("q", nic=1))
        scenario.passes(LONGEST_SECONDS - 1)
        # the same configuration is no reason to begin again
        scenario.happens("table.ranked", dict.fromkeys((GPU, NIC), 0), [GPU, NIC])
        scenario.answer_all(scenario.passes(1))
        assert scenario.held(NIC) == {"q/main": ("b",)}

    def test_a_holders_plugin_is_awaited_as_well(self) -> None:
        """A name of the kernel's that a pod holds may be another device by then, which this one would give out."""
        scenario = awaiting()
        offers(scenario, GPU, device("a", "c1:1"))
        scenario.run(pod("p", gpu=1))
        assert scenario.held() == {}
        scenario.connect(NIC, 2, own(NIC))
        assert scenario.held() == {}
        scenario.answer_all(scenario.lists([], NIC, 2))
        assert scenario.held() == {"p/main": ("a",)}

    def test_also_by_one_that_is_not_awaited_itself(self) -> None:
        """Such as a simulated resource, which registers when it can."""
        scenario = awaiting(GPU)
        scenario.plugin(["x"], NIC, 2, own(NIC))
        assert not scenario.manager.resources[NIC].is_ready
        scenario.connect(GPU, 1, own(GPU))
        scenario.lists([])
        assert scenario.manager.resources[NIC].is_ready

    def test_other_peoples_plugins_await_nobody(self) -> None:
        scenario = awaiting()
        scenario.plugin(["x"], "org.test/x", 7)
        assert scenario.manager.resources["org.test/x"].is_ready


def test_of_several_cordoned_ones_the_first_in_its_list_is_named() -> None:
    """The same after every restart: a message that names another one would be written once more."""
    names = [f"g{number}" for number in range(40)]
    scenario = offering(*(device(name, "c1:0", f"c9:{name[1:]}") for name in names))
    scenario.cordon(GPU, names)
    offers(scenario, NIC, device("n", "c1:0"))
    assert scenario.snapshot(NIC).devices[0].message.startswith(f"it is the same device as g0 of {GPU}")


def test_a_plugin_of_somebody_else_that_takes_the_name_of_a_held_device() -> None:
    """Its list says nothing of what the device is, and the pod's is still that device."""
    scenario = offering(device("a", "c1:1")).run(pod("p", gpu=1))
    scenario.plugin(["a"], GPU, 7)
    offers(scenario, NIC, device("b", "c1:1"))
    assert "b" not in free(scenario)
    assert scenario.restarted().manager.resources[GPU].identities.of("a") is not None
