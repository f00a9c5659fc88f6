"""Whose a resource is that the kubelet shows and that had a plugin here: the kubelet's, or this agent's own by the kubelet."""

from collections.abc import Iterable, Mapping

import pytest
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.snapshot import Snapshot
from nodedevice_agent.kube.served import ServedStatus
from nodedevice_api.nodedevice import DeviceStatus

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, pod

BUILT_IN = PluginOptions(scope="built-in example.com/gpu")
GRACE_SECONDS = 300


class Kubelet:
    """It has healthy devices of one resource."""

    resources: Mapping[str, Resource] = {GPU: Resource(GPU)}

    def has_healthy(self, resource_name: str) -> bool:
        return resource_name == GPU

    def snapshot(self, resource_name: str) -> Snapshot:
        raise AssertionError("only has() is asked")

    def remember_published(self, resource_name: str, devices: Iterable[DeviceStatus], now: float) -> None:
        raise AssertionError("only has() is asked")

    def forget(self, resource_name: str) -> bool:
        return False


@pytest.mark.parametrize(
    ("end", "runtime", "is_kubelets"),
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
def test_whose_it_is(end: str, runtime: str, is_kubelets: bool) -> None:
    scenario = Scenario()
    scenario.plugin(["d0"], options=BUILT_IN)
    if end.endswith("held"):
        scenario.run(pod("p", gpu=1))
    if end.startswith("not configured"):
        scenario.happens("configured", lambda name, scope: False)
    if end != "runs":
        scenario.disconnect()
    if end == "gone":
        scenario.passes(GRACE_SECONDS)
    assert ServedStatus(Kubelet(), scenario.manager, runtime).has(GPU) is is_kubelets
