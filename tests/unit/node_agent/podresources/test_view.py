"""The PodResources view of pods and devices: the kubelet's entries, one by one."""

import pytest
from nodedevice_agent.devicemanager.pods import ContainerKind
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.podresources import view as pod_resources
from nodedevice_agent.podresources.view import ContainerDevices, DeviceOnNode

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, container, pod

APP = ContainerKind.APP


def view_of(scenario: Scenario, name: str) -> list[ContainerDevices] | None:
    seen = pod_resources.pod(scenario.manager, "default", name)
    return seen.containers() if seen is not None else None


def listed(scenario: Scenario) -> list[tuple[str, list[ContainerDevices]]]:
    return [(seen.pod.name, seen.containers()) for seen in pod_resources.seen(scenario.manager)]


def allocatable(scenario: Scenario) -> list[DeviceOnNode]:
    return pod_resources.allocatable(pod_resources.seen_resources(scenario.manager))


@pytest.mark.kubelet("scenario 71")
def test_pods_without_devices_are_listed_with_their_containers() -> None:
    scenario = Scenario()
    scenario.see(pod("b", container("x"), container("y")), pod("a"))
    assert listed(scenario) == [
        ("a", [ContainerDevices("main", APP)]),
        ("b", [ContainerDevices("x", APP), ContainerDevices("y", APP)]),
    ]


def test_one_entry_per_resource_device_and_numa_node() -> None:
    scenario = Scenario.with_plugin([Device("g0", numa_nodes=(0, 1)), Device("g1", numa_nodes=(1,))])
    scenario.plugin(["n0"], name=NIC, endpoint=2)
    scenario.run(pod("p", gpu=2, nic=1))
    devices = (
        DeviceOnNode(GPU, "g0", 0),
        DeviceOnNode(GPU, "g0", 1),
        DeviceOnNode(GPU, "g1", 1),
        DeviceOnNode(NIC, "n0", None),
    )
    assert view_of(scenario, "p") == [ContainerDevices("main", APP, devices)]


@pytest.mark.kubelet("behaviour 73")
@pytest.mark.parametrize("event", ["over", "gone", "missing from the next list"])
def test_a_pod_that_ended_is_unknown(event: str) -> None:
    scenario = Scenario.with_plugin(["g0"]).run(pod("p", gpu=1))
    if event == "over":
        scenario.see(pod("p", gpu=1, has_ended=True))
    elif event == "gone":
        scenario.gone("p")
    else:
        scenario.happens("pod_events.synced", ())
    assert listed(scenario) == []
    assert view_of(scenario, "p") is None


@pytest.mark.kubelet("behaviour 28", "scenario 15", "scenario 16")
@pytest.mark.parametrize(
    ("listed", "cordoned", "expected"),
    [
        pytest.param([], [], [], id="nothing listed"),
        pytest.param(["g0", "g1"], [], ["g0", "g1"], id="held and free alike"),
        pytest.param(["g0", Device("g1", healthy=False)], [], ["g0"], id="an unhealthy one is not"),
        pytest.param(["g0", "g1"], ["g1"], ["g0"], id="a free one that is cordoned is not"),
        pytest.param(["g0", "g1"], ["*"], ["g0"], id="a held one that is cordoned still is"),
    ],
)
def test_allocatable(listed: list[str | Device], cordoned: list[str], expected: list[str]) -> None:
    scenario = Scenario.with_plugin(listed).run(pod("p", gpu=1))
    scenario.cordon(GPU, cordoned)
    assert allocatable(scenario) == [DeviceOnNode(GPU, device_id) for device_id in expected]
    # what recovers, and is cordoned no more, is allocatable again
    scenario.cordon(GPU, [])
    scenario.lists(["g0", "g1"])
    assert allocatable(scenario) == [DeviceOnNode(GPU, "g0"), DeviceOnNode(GPU, "g1")]


@pytest.mark.kubelet("scenario 74")
def test_allocatable_lists_each_numa_node_of_each_resource() -> None:
    scenario = Scenario()
    scenario.plugin(["n0"], name=NIC, endpoint=2)
    scenario.plugin([Device("g0", numa_nodes=(0, 1))])
    expected = [DeviceOnNode(GPU, "g0", 0), DeviceOnNode(GPU, "g0", 1), DeviceOnNode(NIC, "n0")]
    assert allocatable(scenario) == expected
    scenario.disconnect(NIC, 2)
    assert allocatable(scenario) == expected[:2]
