"""A resource that is registered while a pod that asks for it is being served with another one."""

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, calls, device_ids, pod


def being_served() -> Scenario:
    scenario = Scenario()
    scenario.plugin(device_ids(2))
    scenario.see(pod("p", gpu=1, nic=1))
    return scenario


def test_the_pod_gets_it_too() -> None:
    scenario = being_served()
    (call,) = calls(scenario.effects)
    assert calls(scenario.plugin(["n0"], NIC, endpoint=2)) == []
    (second,) = calls(scenario.answer(call))
    assert second.resource_name == NIC
    scenario.answer(second)
    assert (scenario.held(), scenario.held(NIC)) == ({"p/main": ("d0",)}, {"p/main": ("n0",)})


def test_the_pod_waits_where_nothing_of_it_is_free() -> None:
    scenario = being_served()
    (call,) = calls(scenario.effects)
    scenario.plugin([], NIC, endpoint=2)
    assert calls(scenario.answer(call)) == []
    assert scenario.held(GPU) == {"p/main": ("d0",)}
    assert scenario.reasons(NIC) == {"p": "NotEnoughDevices"}
    (second,) = calls(scenario.lists(["n0"], NIC, endpoint=2))
    assert second.resource_name == NIC
