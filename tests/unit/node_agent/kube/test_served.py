"""Whose a resource is that the kubelet shows and that had a plugin here: the kubelet's, or this agent's own. And what is shown."""

from collections.abc import Iterable

import pytest
from nodedevice_agent import __version__
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.snapshot import Snapshot
from nodedevice_agent.kube.conditions import condition_of
from nodedevice_agent.kube.served_resources import ServedStatus
from nodedevice_api.names import Condition, Reason
from nodedevice_api.nodedevice import AgentStatus, DeviceStatus, NodeDeviceStatus
from prometheus_client import REGISTRY

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, pod
from tests.unit.node_agent.kube.shown_status import TUESDAY

BUILT_IN = PluginOptions(scope="built-in example.com/gpu")
GRACE_SECONDS = 300


class Kubelet:
    """It has healthy devices, as a scenario has them. remembered: the resource, the devices that were published, and when."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.resources = scenario.manager.resources
        self.remembered: list[tuple[str, list[str], float]] = []

    def has_healthy(self, resource_name: str) -> bool:
        return resource_name in self.resources

    def snapshot(self, resource_name: str) -> Snapshot:
        return self.scenario.snapshot(resource_name)

    def remember_published(self, resource_name: str, devices: Iterable[DeviceStatus], now: float) -> None:
        self.remembered.append((resource_name, [device.id for device in devices], now))

    def forget(self, resource_name: str) -> bool:
        return False


@pytest.mark.parametrize(
    ("end", "delivery", "is_kubelets"),
    [
        pytest.param("runs", "kubelet", False, id="its plugin runs here"),
        pytest.param("stopped", "kubelet", False, id="stopped a moment ago: the agent's own devices"),
        pytest.param("stopped", "nri", True, id="no plugin of the kubelet's is the agent"),
        pytest.param("gone", "kubelet", True, id="gone for so long that the kubelet has dropped the agent's own"),
        pytest.param("not configured", "kubelet", False, id="not configured since a moment: the agent's own"),
        pytest.param("not configured", "nri", True, id="not configured, and the kubelet serves it"),
        pytest.param("not configured, held", "nri", False, id="not configured, and pods hold devices"),
    ],
)
def test_whose_it_is(end: str, delivery: str, is_kubelets: bool) -> None:
    scenario = Scenario.with_plugin(1, options=BUILT_IN)
    if end.endswith("held"):
        scenario.run(pod("p", gpu=1))
    if end.startswith("not configured"):
        scenario.happens("table.configured", lambda name, scope: False)
    if end != "runs":
        scenario.disconnect()
    if end == "gone":
        scenario.passes(GRACE_SECONDS)
    assert ServedStatus(Kubelet(Scenario.with_plugin(1)), scenario.manager, delivery).has(GPU) is is_kubelets


def test_what_the_kubelet_serves_is_shown_as_its_own_whatever_the_agents_delivery_is() -> None:
    kubelet = Kubelet(Scenario.with_plugin(3))
    served = ServedStatus(kubelet, Scenario().manager, "nri")
    before = NodeDeviceStatus(devices=[DeviceStatus(id="old")])
    found = served.status_maker(GPU, before, TUESDAY, 5.0, is_watch_stale=False).made()
    assert found.agent == AgentStatus(version=__version__, delivery="kubelet", runtime="kubelet", served_by="kubelet")
    assert (found.total, kubelet.remembered) == (3, [(GPU, ["old"], 5.0)])
    assert served.resources is kubelet.resources
    assert {each.type: (each.status, each.reason) for each in found.conditions} == {
        Condition.REGISTERED: ("True", Reason.SERVED_BY_KUBELET),
        Condition.HEALTHY: ("True", Reason.ALL_HEALTHY),
        Condition.INJECTABLE: ("True", Reason.SERVED_BY_KUBELET),
        Condition.WATCHES_CURRENT: ("True", Reason.WATCHES_CURRENT),
    }
    labels = {"resource_name": GPU, "state": "total"}
    assert REGISTRY.get_sample_value("nodedevice_agent_devices", labels) == 3


def test_a_stale_watch_and_cordons_that_have_no_effect_are_shown() -> None:
    served = ServedStatus(Kubelet(Scenario.with_plugin(1)), Scenario().manager, "nri")

    def reason(kind: str, *, is_stale: bool = False) -> str:
        made = served.status_maker(GPU, NodeDeviceStatus(), TUESDAY, 5.0, is_watch_stale=is_stale).made()
        found = condition_of(made, kind)
        assert found is not None
        return found[1]

    assert reason(Condition.WATCHES_CURRENT, is_stale=True) == Reason.WATCH_STALE
    for cordoned, expected in (({"d0"}, Reason.CORDON_NOT_POSSIBLE), (set[str](), Reason.SERVED_BY_KUBELET)):
        served.cordoned(GPU, cordoned)
        assert reason(Condition.REGISTERED) == expected
