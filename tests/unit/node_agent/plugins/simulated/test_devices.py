import pytest
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice, UnknownDevices
from nodedevice_agent.plugins.simulated.devices import SimulatedState, allocate, simulated_devices, simulated_ids


def test_devices_with_health_presence_and_numa_nodes() -> None:
    state = SimulatedState(frozenset({"gpu-1"}), frozenset({"gpu-2"}))
    assert simulated_devices(simulated_ids("gpu", 4), 2, state) == (
        PluginDevice("gpu-0", True, (0,)),
        PluginDevice("gpu-1", False, (1,)),
        PluginDevice("gpu-3", True, (1,)),
    )


def test_a_device_keeps_its_numa_node_when_others_come() -> None:
    few, many = (simulated_devices(simulated_ids("gpu", count), 3, SimulatedState()) for count in (4, 9))
    assert many[:4] == few


def test_no_numa_nodes_unless_asked() -> None:
    assert simulated_devices(["gpu-0"], 0, SimulatedState())[0].numa_nodes == ()


def test_changes_of_a_state() -> None:
    state = SimulatedState().with_health("a", False).with_missing("b", True).with_missing("b", True)
    assert state == SimulatedState(frozenset("a"), frozenset("b"))
    assert state.with_health("a", True).with_missing("b", False) == SimulatedState()
    assert state.unknown(["a"]) == ("b",)


def test_allocation_names_the_devices_sorted() -> None:
    devices = {name: PluginDevice(name) for name in ("gpu-0", "gpu-1")}
    allocation = allocate("example.com/gpu", devices, ["gpu-1", "gpu-0"])
    assert allocation.env == {"EXAMPLE_COM_GPU": "gpu-0,gpu-1"}
    assert allocation.annotations == {"example.com/gpu": "gpu-0,gpu-1"}
    with pytest.raises(UnknownDevices, match="gpu-7"):
        allocate("example.com/gpu", devices, ["gpu-7"])
