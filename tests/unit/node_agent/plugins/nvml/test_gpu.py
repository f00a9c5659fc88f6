"""GPUs, and the score of two of them."""

import pytest
from nodedevice_agent.plugins.nvml.gpu import Ancestor, Gpu, Ports, nvlinks, pair, score, scores, sysfs_bus_id
from nodedevice_agent.plugins.nvml.mig import MigInstance

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
    assert scores([c, b, a], ports, {("a", "b"): Ancestor.SWITCH}) == {("a", "b"): 650, ("a", "c"): 10, ("b", "c"): 10}
    assert pair("b", "a") == pair("a", "b") == ("a", "b")


B1 = "0000:1b:00.0"


@pytest.mark.parametrize(
    ("bus_id", "expected"),
    [("00000000:1B:00.0", B1), ("0000:1B:00.0", B1), ("00010000:01:00.0", "00010000:01:00.0"), ("", "")],
)
def test_bus_id_as_in_sysfs(bus_id: str, expected: str) -> None:
    assert sysfs_bus_id(bus_id) == expected


@pytest.mark.parametrize(
    ("gpu", "is_plausible"),
    [
        (Gpu("GPU-a"), True),
        (Gpu("GPU/a"), False),
        (Gpu("GPU-a", numa_node=-1), False),
        (Gpu("GPU-a", instances=(MigInstance("MIG-a", "1g.10gb", 1, 0, 1),)), True),
        (Gpu("GPU-a", instances=(MigInstance("../MIG", "1g.10gb", 1, 0, 1),)), False),
    ],
)
def test_what_can_be_listed(gpu: Gpu, is_plausible: bool) -> None:
    assert gpu.is_plausible is is_plausible
