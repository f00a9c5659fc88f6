"""Allocations as Prometheus metrics: the current ones alone."""

from nodedevice_agent.metrics import MOST_CONTAINERS, AllocationCollector

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, container, device_ids, pod


def told(collector: AllocationCollector) -> dict[tuple[str, ...], float]:
    (family,) = collector.collect()
    return {
        (s.labels["namespace"], s.labels["pod"], s.labels["container"], s.labels["resource_name"]): s.value
        for s in family.samples
    }


def test_by_pod_and_container_and_resource() -> None:
    scenario, collector = Scenario(), AllocationCollector()
    scenario.plugin(device_ids(4))
    scenario.plugin(device_ids(2), NIC, 2)
    scenario.run(pod("a", container("one", gpu=2, nic=1), container("two", gpu=1)), pod("b", nic=1))
    for name in (GPU, NIC):
        collector.update(scenario.snapshot(name))
    assert told(collector) == {
        ("default", "a", "one", GPU): 2,
        ("default", "a", "two", GPU): 1,
        ("default", "a", "one", NIC): 1,
        ("default", "b", "main", NIC): 1,
    }


def test_allocations_of_a_deleted_pod_are_removed() -> None:
    scenario, collector = Scenario(), AllocationCollector()
    scenario.plugin(device_ids(2))
    scenario.run(pod("a", gpu=1), pod("b", gpu=1))
    collector.update(scenario.snapshot())
    scenario.gone("a")
    collector.update(scenario.snapshot())
    assert told(collector) == {("default", "b", "main", GPU): 1}


def test_an_update_replaces_one_resource_and_keeps_the_others() -> None:
    scenario, collector = Scenario(), AllocationCollector()
    scenario.plugin(device_ids(1))
    scenario.plugin(device_ids(1), NIC, 2)
    scenario.run(pod("a", gpu=1, nic=1))
    collector.update(scenario.snapshot(GPU))
    collector.update(scenario.snapshot(NIC))
    collector.update(scenario.snapshot(GPU))
    assert len(told(collector)) == 2


def test_as_many_containers_as_were_promised() -> None:
    scenario, collector = Scenario(), AllocationCollector()
    count = MOST_CONTAINERS + 5
    scenario.plugin(device_ids(count))
    scenario.run(*(pod(f"p{number:04}", gpu=1) for number in range(count)))
    collector.update(scenario.snapshot())
    assert len(told(collector)) == MOST_CONTAINERS


def test_nothing_yet() -> None:
    assert told(AllocationCollector()) == {}
