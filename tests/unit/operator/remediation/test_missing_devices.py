"""Evictions of pods whose device is missing: statuses of the agent's device manager, judged by the operator's policy."""

from msgspec import convert
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, node_device_record
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema
from nodedevice_operator.remediation.eviction_policy import PendingEvictions, candidates

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, pod, status

DELAY_SECONDS = 30.0


def record_of(scenario: Scenario) -> NodeDeviceRecord:
    """Return what the operator reads of the status that the agent would publish now."""
    metadata = {"name": "node-a.example.com.gpu", "uid": "u", "generation": 1, "resourceVersion": "1"}
    spec = {"nodeName": "node-a", "resourceName": GPU}
    published = status(scenario, {}, "2026-01-05T00:00:00Z")
    return node_device_record(convert({"metadata": metadata, "spec": spec, "status": published}, NodeDeviceSchema))


def evicted_within(scenario: Scenario, seconds: int) -> dict[str, str]:
    """Check once a second for that long; return the evicted pods by UID, each with the cause."""
    pending = PendingEvictions(DELAY_SECONDS, per_minute=60, now=scenario.now)
    evicted: dict[str, str] = {}
    for _ in range(seconds):
        found = candidates([record_of(scenario)], {GPU: "evict"})
        pending.update(found, scenario.now)
        for uid in pending.due(scenario.now):
            pending.tried(uid, scenario.now, is_rejected=False)
            evicted[uid] = found[uid].why
        scenario.passes(1)
    return evicted


def holding(*devices: str) -> Scenario:
    return Scenario.with_plugin(devices).run(pod("p", gpu=1))


def test_the_pod_of_an_unplugged_device_is_evicted() -> None:
    scenario = holding("stick-a", "stick-b")
    scenario.lists(["stick-b"])
    assert evicted_within(scenario, 60) == {"p": f"stick-a of {GPU} no longer listed by the device plugin"}


def test_an_empty_first_list_for_five_minutes_evicts_no_pod() -> None:
    scenario = holding("gpu-0")
    scenario.disconnect()
    scenario.plugin([], endpoint=2)
    assert evicted_within(scenario, 300) == {}
    scenario.lists(["gpu-0"], endpoint=2)
    assert evicted_within(scenario, 60) == {}


def test_a_plugin_that_listed_other_devices_first_has_lost_the_one_it_lacks() -> None:
    scenario = holding("gpu-0", "gpu-1")
    scenario.disconnect()
    scenario.plugin([], endpoint=2)
    scenario.lists(["gpu-1"], endpoint=2)
    assert list(evicted_within(scenario, 60)) == ["p"]


def test_an_empty_first_list_after_a_restart_of_the_agent_evicts_no_pod() -> None:
    again = holding("gpu-0").restarted()
    again.see(pod("p", gpu=1))
    again.plugin([])
    assert evicted_within(again, 300) == {}
