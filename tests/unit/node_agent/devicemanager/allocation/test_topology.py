"""Which NUMA nodes could serve one resource. Rows follow the kubelet's own table of hints."""

import pytest
from nodedevice_agent.devicemanager.allocation.topology import Hint, hints
from nodedevice_agent.devicemanager.devices import Device

TWO = (0, 1)
ONLY_0, ONLY_1, BOTH = 0b01, 0b10, 0b11


def on(*nodes: int | None, healthy: bool = True) -> dict[str, Device]:
    """Devices d0, d1, ... on these nodes; None has no node."""
    return {f"d{i}": Device(f"d{i}", healthy, () if node is None else (node,)) for i, node in enumerate(nodes)}


def preferred(*masks: int) -> set[Hint]:
    return {Hint(mask, True) for mask in masks}


def possible(*masks: int) -> set[Hint]:
    return {Hint(mask, False) for mask in masks}


@pytest.mark.kubelet("scenario 54")
@pytest.mark.parametrize(
    ("devices", "count", "taken", "expected"),
    [
        pytest.param(on(None, None), 1, (), None, id="no device has a node: no preference"),
        pytest.param(on(None, 1), 1, (), preferred(ONLY_1), id="only one device has a node"),
        pytest.param(on(0, 1), 1, (), preferred(ONLY_0, ONLY_1) | possible(BOTH), id="one device on each node"),
        pytest.param(on(0, 1), 2, (), preferred(BOTH), id="two of one on each node"),
        pytest.param(on(0, 1, 0, 1), 2, (), preferred(ONLY_0, ONLY_1) | possible(BOTH), id="two of two on each node"),
        pytest.param(on(0, 0, 1, 1), 2, ("d0", "d2"), possible(BOTH), id="fits one node, but only across both now"),
        pytest.param(on(0, 1), 3, (), set(), id="more than there are"),
        pytest.param(on(0, 1), 2, ("d0",), set(), id="more than are free"),
        pytest.param(on(0, 1, 1), 2, (), preferred(ONLY_1) | possible(BOTH), id="fits one node alone"),
        pytest.param(on(0, None, None), 2, (), set(), id="devices without a node count for no node"),
    ],
)
def test_hints(devices: dict[str, Device], count: int, taken: tuple[str, ...], expected: set[Hint] | None) -> None:
    found = hints(devices, count, devices.keys() - set(taken), (), TWO)
    assert (found if found is None else set(found)) == expected


def test_hints_are_sorted_by_size_without_duplicates() -> None:
    found = hints(on(0, 1), 1, ("d0", "d1"), (), TWO)
    assert found is not None
    assert [hint.mask for hint in found] == [ONLY_0, ONLY_1, BOTH]


def test_an_unhealthy_device_still_counts_for_the_preferred_size() -> None:
    devices = {**on(0, 1), "d2": Device("d2", healthy=False, numa_nodes=(0,))}
    assert set(hints(devices, 2, ("d0", "d1"), (), TWO) or ()) == possible(BOTH)


class TestReusable:
    """Devices of the pod's init containers: each of them must be near."""

    def test_counts_like_a_free_device(self) -> None:
        assert set(hints(on(0, 0, 1), 2, ("d1", "d2"), ("d0",), TWO) or ()) == preferred(ONLY_0) | possible(BOTH)

    def test_rules_out_nodes_that_leave_one_out(self) -> None:
        assert set(hints(on(0, 1, 1), 1, ("d1", "d2"), ("d0",), TWO) or ()) == preferred(ONLY_0) | possible(BOTH)

    def test_without_a_node_rules_nothing_out_and_counts_nothing(self) -> None:
        devices = on(None, 0, 1)
        assert set(hints(devices, 1, ("d1", "d2"), ("d0",), TWO) or ()) == preferred(ONLY_0, ONLY_1) | possible(BOTH)
        assert set(hints(devices, 2, ("d1",), ("d0",), TWO) or ()) == set()

    def test_alone_is_enough(self) -> None:
        assert set(hints(on(0), 1, (), ("d0",), (0, 1, 2, 3)) or ()) == preferred(ONLY_0)


class TestWhichNodes:
    @pytest.mark.kubelet("scenario 59")
    def test_only_those_that_have_devices(self) -> None:
        assert set(hints(on(3, 5), 1, ("d0", "d1"), (), (0, 3, 5, 7)) or ()) == (
            preferred(1 << 3, 1 << 5) | possible(1 << 3 | 1 << 5)
        )

    @pytest.mark.kubelet("scenario 60", "weak spot 21")
    def test_cost_depends_only_on_nodes_with_devices(self) -> None:
        # iterating over every set of 36 nodes would never end
        assert len(hints(on(0, 1), 1, ("d0", "d1"), (), range(36)) or ()) == 3

    def test_a_node_that_the_machine_does_not_have_is_ignored(self) -> None:
        assert set(hints(on(0, 99), 1, ("d0", "d1"), (), TWO) or ()) == preferred(ONLY_0)

    def test_devices_only_on_such_nodes_fit_no_node(self) -> None:
        assert hints(on(2**31 - 1), 1, ("d0",), (), TWO) == ()

    def test_a_device_of_two_nodes_counts_for_both(self) -> None:
        devices = {"d0": Device("d0", numa_nodes=(0, 1)), "d1": Device("d1", numa_nodes=(1,))}
        assert set(hints(devices, 1, devices.keys(), (), TWO) or ()) == preferred(ONLY_0, ONLY_1) | possible(BOTH)
        assert set(hints(devices, 2, devices.keys(), (), TWO) or ()) == preferred(ONLY_1) | possible(BOTH)


def test_a_thousand_devices_on_eight_nodes() -> None:
    devices = {f"d{i}": Device(f"d{i}", numa_nodes=(i % 8,)) for i in range(1000)}
    found = hints(devices, 250, devices.keys(), (), range(8))
    assert found is not None
    # 125 devices a node: any two nodes do
    assert sum(hint.is_preferred for hint in found) == 28
    assert len(found) == 2**8 - 1 - 8
