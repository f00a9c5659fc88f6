"""A node where this device manager allocates one resource and the kubelet another, for the same pods."""

from typing import Any

import pytest
from nodedevice_agent.devicemanager.attribution.attribute import KubeletState, PodResourcesRow
from nodedevice_agent.devicemanager.snapshot import snapshot

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import ENDS, GPU, NIC, Scenario, calls, held_by, pod, published

BOTH: dict[str, Any] = {"is_attributed": {NIC}.__contains__}


def node() -> Scenario:
    """The GPUs are ours; the network cards are the kubelet's."""
    return Scenario.with_plugin(2, nics=["n0", "n1"], **BOTH)


def kubelet(scenario: Scenario, **held: str) -> set[str]:
    """The kubelet has given these cards to these pods. Returns the resources that are published."""
    entries = tuple(held_by(uid, device_id, name=NIC) for uid, device_id in held.items())
    rows = tuple(PodResourcesRow("default", uid, "main", NIC, (device_id,)) for uid, device_id in held.items())
    scenario.manager.attribution.read(KubeletState(entries, rows))
    return published(scenario.manager.settle(scenario.now))


def test_each_gets_its_devices_from_whom_allocates_them() -> None:
    scenario = node()
    (call,) = calls(scenario.see(pod("p", gpu=1, nic=1)))
    assert (call.resource_name, call.device_ids) == (GPU, ("d0",))
    scenario.answer(call)
    assert (scenario.held(), scenario.held(NIC)) == ({"p/main": ("d0",)}, {})
    assert kubelet(scenario, p="n1") == {NIC}
    assert (scenario.held(), scenario.held(NIC)) == ({"p/main": ("d0",)}, {"p/main": ("n1",)})
    assert [scenario.snapshot(name).available for name in (GPU, NIC)] == [1, 1]


def test_a_pod_waits_for_ours_alone() -> None:
    scenario = node().run(pod("p", gpu=2), pod("q", gpu=1, nic=1), pod("r", nic=1))
    assert (scenario.reasons(), scenario.reasons(NIC)) == ({"q": "NotEnoughDevices"}, {})
    kubelet(scenario, q="n0", r="n1")
    scenario.answer_all(scenario.gone("p"))
    assert scenario.held() == {"q/main": ("d0",)}
    assert scenario.held(NIC) == {"q/main": ("n0",), "r/main": ("n1",)}


@pytest.mark.parametrize("how", ENDS)
def test_with_the_end_of_a_pod_both_are_free(how: str) -> None:
    one, other = pod("p", gpu=1, nic=1), pod("q", gpu=1, nic=1)
    scenario = node().run(one, other)
    kubelet(scenario, p="n0", q="n1")
    assert published(scenario.ends(one, how, other)) == {GPU, NIC}
    # the kubelet keeps its entry until the next pod comes
    kubelet(scenario, p="n0", q="n1")
    assert (scenario.held(), scenario.held(NIC)) == ({"q/main": ("d1",)}, {"q/main": ("n1",)})


def test_the_kubelets_word_changes_nothing_of_ours() -> None:
    scenario = node().run(pod("p", gpu=1, nic=1))
    kubelet(scenario, p="n0")
    state = KubeletState((held_by("p", "d1"),), (PodResourcesRow("default", "p", "main", GPU, ("d1",)),))
    scenario.manager.attribution.read(state)
    scenario.manager.settle(scenario.now)
    assert (scenario.held(), scenario.held(NIC)) == ({"p/main": ("d0",)}, {})


def test_devices_of_a_container_that_runs_on_stay_held_and_those_of_the_kubelet_go() -> None:
    """The kubelet itself gives the devices of a finished pod to the next one."""
    scenario = RuntimeScenario.with_plugin(1, nics=["n0"], **BOTH)
    scenario.sync()
    scenario.run(pod("p", gpu=1, nic=1))
    kubelet(scenario, p="n0")
    made = scenario.create("p")
    scenario.start(made, "p")
    scenario.gone("p")
    assert (scenario.held(), scenario.held(NIC)) == ({"p/main": ("d0",)}, {})
    assert snapshot(scenario.manager, GPU).releasing == 1
    scenario.end(made, "p")
    assert scenario.held() == {}
