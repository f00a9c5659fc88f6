"""Who offers what on a node: each name by whom it is published, and when all of it is known."""

from types import SimpleNamespace
from typing import Any

import pytest
from nodedevice_agent.devicemanager.attribution.attribute import KubeletState
from nodedevice_agent.kube.served_resources import ServedStatus
from nodedevice_agent.kubelet.served import KubeletDevices
from nodedevice_agent.offered_twice.node_sources import NodeSources
from nodedevice_api.names import DELIVERY_KUBELET

from tests.fakes.settled import observing
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario


class Kubelet:
    """An observer, as far as it is asked here."""

    def __init__(self) -> None:
        self.is_known = True
        self.served = observing()

    def has(self, *names: str) -> None:
        self.served.read(KubeletDevices({name: {"a": ()} for name in names}), KubeletState((), ()), 0.0)


def sources(scenario: Scenario, kubelet: Kubelet | None = None, drivers: Any = None) -> NodeSources:
    shown = ServedStatus(kubelet.served, scenario.manager, DELIVERY_KUBELET) if kubelet is not None else None
    observer: Any = kubelet
    return NodeSources(scenario.manager, observer, shown, drivers, lambda: 0.0)


def offered(found: NodeSources) -> set[tuple[str, bool]]:
    return {(resource.name, is_kubelets) for _, resource, is_kubelets in found.managed()}


def test_what_the_kubelet_has_of_ours_is_ours() -> None:
    """A kubelet whose plugin the agent is lists all that the agent advertises there."""
    scenario, kubelet = Scenario.with_plugin(["a"]), Kubelet()
    kubelet.has(GPU, NIC)
    assert offered(sources(scenario, kubelet)) == {(GPU, False), (NIC, True)}
    assert offered(sources(scenario)) == {(GPU, False)}
    scenario.disconnect(GPU)
    scenario.passes(3600)
    assert offered(sources(scenario, kubelet)) == {(GPU, True), (NIC, True)}


@pytest.mark.parametrize("late", ["none", "ours", "kubelet", "slices", "holders"])
def test_all_is_known_once_each_source_has_said_what_it_has(late: str) -> None:
    scenario = Scenario.with_plugin(["a"])
    if late == "ours":
        scenario = scenario.restarted()
    kubelet = Kubelet()
    kubelet.is_known = late != "kubelet"
    served, holders = SimpleNamespace(is_synced=late != "slices"), SimpleNamespace(is_known=late != "holders")
    drivers = SimpleNamespace(served=served, holders=holders)
    assert sources(scenario, kubelet, drivers).are_known is (late == "none")
    assert sources(Scenario()).are_known
