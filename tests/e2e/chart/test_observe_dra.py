"""`helm install` on a node whose devices come three ways: one list of all of them, with holders, and nothing else happens."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from nodedevice_agent.kubelet.directory import POD_RESOURCES
from nodedevice_api import names

from tests.cluster.build.binaries import find
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.e2e.chart.cluster import NODE, ChartCluster
from tests.e2e.chart.foreign_plugins import forget, running
from tests.e2e.chart.workloads import GPU, built_in, user
from tests.e2e.real_node.dra.driver import DraDriver
from tests.e2e.real_node.dra.holdings import Held, by_kubelet, by_node_devices, differences
from tests.fakes.dra import claim, pod_claims, template
from tests.fakes.third_party import sample_plugin

Json = dict[str, Any]
SAMPLE = sample_plugin.RESOURCE
DRIVER, WIDGET = "dra.example.com", "dra.example.com/widget"
_SOCKET = f"/var/lib/kubelet/{POD_RESOURCES}"
# of these there are new ones all the time
_COME_AND_GO = {"events", "events.events.k8s.io"}


class ThreeWays:
    """A cluster without the chart, whose kubelet has a plugin and a DRA driver."""

    def __init__(self, cluster: ChartCluster, driver: DraDriver, plugin: Any) -> None:
        self.cluster, self.driver = cluster, driver
        node = cluster.node
        self._processes = (plugin, driver.process, node.kubelet, node.containerd)

    def processes(self) -> list[int | None]:
        return [process.pid for process in self._processes]

    def start(self) -> None:
        """Pods that have devices of both before the chart is there; two share a claim."""
        cluster = self.cluster
        for pod in (
            user("by-plugin", {SAMPLE: 1}),
            _claiming("by-template", templates={"mine": "one"}),
            _claiming("shares-1", claims={"all": "shared"}),
            _claiming("shares-2", claims={"all": "shared"}),
            user("by-name", {WIDGET: 2}),
        ):
            cluster.run(pod)

    def differences(self, ours: set[Held]) -> list[str]:
        cluster = self.cluster
        return differences(cluster.control_plane, NODE, cluster.node.outside(_SOCKET), ours)

    def until_shown(self, *of_ours: str) -> None:
        """Until all say the same. of_ours: pods that hold one of the agent's own devices each."""

        def is_shown() -> bool:
            ours = {held for held in by_node_devices(self.cluster.control_plane, NODE) if held.source == GPU}
            listed = {found.get("status", {}).get("agent", {}).get("servedBy") for found in self.cluster.node_devices()}
            return (
                listed == {names.SERVED_BY_NODEDEVICE, names.SERVED_BY_KUBELET, names.SERVED_BY_DRA}
                and sorted(held.pod for held in ours) == sorted(of_ours)
                and not self.differences(ours)
            )

        self.cluster.wait(is_shown, "all devices and holders are shown")

    def all_objects(self) -> set[str]:
        """Name of everything in the API but what comes and goes by itself."""
        kubectl = self.cluster.control_plane.kubectl
        listed = kubectl("api-resources", "--verbs=list", "-o", "name").split()
        kinds = [kind for kind in listed if kind not in _COME_AND_GO and not kind.endswith(f".{names.GROUP}")]
        return set(kubectl("get", ",".join(kinds), "-A", "-o", "name", "--ignore-not-found").split())


def _claiming(name: str, claims: dict[str, str] | None = None, templates: dict[str, str] | None = None) -> Json:
    body = user(name, {})
    body["spec"]["resourceClaims"] = pod_claims(claims, templates)
    body["spec"]["containers"][0]["resources"]["claims"] = [
        {"name": each} for each in (*(claims or ()), *(templates or ()))
    ]
    return body


@pytest.fixture
def three_ways(cluster: ChartCluster) -> Iterator[ThreeWays]:
    with ExitStack() as stack:
        plugin = stack.enter_context(running(cluster, find(["sample-device-plugin"])["sample-device-plugin"]))
        driver = stack.enter_context(DraDriver(cluster.control_plane, cluster.node, DRIVER, 8, WIDGET))
        cluster.apply(claim("shared", "default", driver.device_class), template("one", "default", driver.device_class))
        cluster.wait_capacity(SAMPLE, 2)
        yield ThreeWays(cluster, driver, plugin)
        forget(cluster, [SAMPLE])
        cluster.control_plane.kubectl("delete", "resourceclaims,resourceclaimtemplates", "--all", "-n", "default")


def test_devices_of_all_three_are_seen_in_a_minute_and_nothing_is_left(
    three_ways: ThreeWays, progress: Callable[[str], None]
) -> None:
    cluster = three_ways.cluster
    three_ways.start()
    capacity, containers, processes = cluster.capacity(), cluster.containers("default"), three_ways.processes()
    slices = three_ways.driver.slices()
    objects = three_ways.all_objects()

    began = time.monotonic()
    cluster.release.install(cluster.values(**built_in(2)))
    three_ways.until_shown()
    progress(f"\nfrom `helm install` until one list had all devices and holders: {time.monotonic() - began:.1f} s")
    progress(cluster.control_plane.kubectl("get", "nodedevices,poddevices", "-A", "--output", "wide"))
    given = by_kubelet(cluster.node.outside(_SOCKET))
    assert {held.pod for held in given} == {"by-plugin", "by-template", "shares-1", "shares-2", "by-name"}

    # what is only shown has no capacity, and no pod that asks for it is marked
    cluster.wait_capacity(GPU, 2)
    assert cluster.capacity() == {**capacity, GPU: 2}
    cluster.run(user("ours", {GPU: 1}))
    cluster.run(_claiming("later", templates={"mine": "one"}))
    assert not cluster.pod("later")["metadata"].get("annotations")
    three_ways.until_shown("ours")
    assert {name: state for name, state in cluster.containers("default").items() if name in containers} == containers
    assert three_ways.processes() == processes

    kubectl = cluster.control_plane.kubectl
    kubectl("delete", "pod", "ours", "later", "-n", "default", "--grace-period=1")
    # the later pod's own claim goes after it
    cluster.wait(lambda: not cluster.names_of("resourceclaims", "-A") - _claims(objects), "the claim is gone")
    cluster.release.uninstall()
    assert three_ways.all_objects() - objects == _kept()
    assert objects - three_ways.all_objects() == set()
    assert not cluster.names_of("nodedevices")
    assert not cluster.names_of("poddevices", "-A")
    assert cluster.capacity() == capacity
    assert names.GROUP not in str(cluster.get("node", NODE)["metadata"].get("annotations", {}))
    assert cluster.containers("default") == containers
    assert three_ways.processes() == processes
    assert three_ways.driver.slices() == slices
    assert by_kubelet(cluster.node.outside(_SOCKET)) == given


def _claims(objects: set[str]) -> set[str]:
    return {name.partition("/")[2] for name in objects if name.startswith("resourceclaim.")}


def _kept() -> set[str]:
    """The chart keeps its kinds and the namespace that helm made for it."""
    kinds = (names.NODE_DEVICES, names.POD_DEVICES, names.NODE_DEVICE_CONFIGS)
    return {
        *(f"customresourcedefinition.apiextensions.k8s.io/{kind}.{names.GROUP}" for kind in kinds),
        # the API server's own, of these kinds
        f"apiservice.apiregistration.k8s.io/{names.VERSION}.{names.GROUP}",
        f"namespace/{SYSTEM_NAMESPACE}",
    }
