"""The score of two GPUs."""

import pytest
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused
from nodedevice_agent.plugins.nvml.gpu import CONTROL_NODES, Gpu, allocation, sysfs_bus_id
from nodedevice_agent.plugins.nvml.health import XidLogLimiter
from nodedevice_agent.plugins.nvml.links import Ancestor, Ports, nvlinks, pair, score, scores

NEAR, NEAR_TOO, FAR, NOWHERE = Gpu("a", numa_node=0), Gpu("b", numa_node=0), Gpu("c", numa_node=1), Gpu("d")


@pytest.mark.parametrize(
    ("links", "ancestor", "one", "other", "expected"),
    [
        pytest.param(0, None, NOWHERE, NOWHERE, 10, id="nothing known"),
        pytest.param(0, None, NEAR, NEAR_TOO, 20, id="one NUMA node, PCI hidden"),
        pytest.param(0, None, NEAR, FAR, 10, id="two NUMA nodes, PCI hidden"),
        pytest.param(0, Ancestor.SYSTEM, NEAR, NEAR_TOO, 10, id="PCI counts more than NUMA nodes"),
        pytest.param(0, Ancestor.SWITCH, NEAR, NEAR_TOO, 50, id="one switch"),
        pytest.param(1, Ancestor.SYSTEM, NEAR, FAR, 110, id="an NVLink beats any place"),
        pytest.param(2, Ancestor.BOARD, NEAR, NEAR_TOO, 260, id="two beat one"),
    ],
)
def test_score(links: int, ancestor: Ancestor | None, one: Gpu, other: Gpu, expected: int) -> None:
    assert score(links, ancestor, one, other) == expected


def test_links_straight_and_over_switches() -> None:
    ports = {"a": Ports({"b": 2}, 4), "b": Ports({}, 6), "c": Ports()}
    a, b, c = (Gpu(uuid) for uuid in "abc")
    assert [nvlinks(a, b, ports), nvlinks(b, a, ports), nvlinks(a, c, ports)] == [2 + 4, 2 + 4, 0]
    found = scores([c, b, a], ports, {("a", "b"): Ancestor.SWITCH})
    assert found == {("a", "b"): 650, ("a", "c"): 10, ("b", "c"): 10}
    assert pair("b", "a") == pair("a", "b") == ("a", "b")


@pytest.mark.parametrize(
    ("bus_id", "expected"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1B:00.0", "0000:1b:00.0"),
        ("00010000:01:00.0", "00010000:01:00.0"),
        ("", ""),
    ],
)
def test_bus_id_as_in_sysfs(bus_id: str, expected: str) -> None:
    assert sysfs_bus_id(bus_id) == expected


def test_what_a_container_gets_by_each_way() -> None:
    gpus = [Gpu("GPU-b", minor=3), Gpu("GPU-a", minor=1)]
    by_env = allocation("a.b/c", gpus, ["env"], "nvidia.com/gpu", CONTROL_NODES)
    assert by_env.env == {"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
    assert not by_env.device_nodes
    by_nodes = allocation("a.b/c", gpus, ["deviceNodes"], "nvidia.com/gpu", CONTROL_NODES[:1])
    assert [node.host_path for node in by_nodes.device_nodes] == ["/dev/nvidia1", "/dev/nvidia3", "/dev/nvidiactl"]
    assert not by_nodes.env
    by_cdi = allocation("a.b/c", gpus, ["cdi"], "example.com/g", ())
    assert by_cdi.cdi_devices == ("example.com/g=GPU-a", "example.com/g=GPU-b")
    with pytest.raises(AllocationRefused, match="handOver"):
        allocation("a.b/c", [Gpu("GPU-c")], ["deviceNodes"], "nvidia.com/gpu", ())


def test_a_storm_is_logged_at_once_and_then_once_a_minute() -> None:
    storms = XidLogLimiter()
    bus_id = [storms.seen("a", 31, 10, now=second * 0.1) for second in range(1000)]
    assert bus_id[0] == 10
    assert [count for count in bus_id if count] == [10, 10 * 600]
    assert storms.seen("b", 31, 1, now=1.0) == 1
