"""Static pods: files of the kubelet, which no admission policy marks. The runtime knows them by another UID than the API does."""

from nodedevice_api.names import Condition, Reason

from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, marked, pod


def test_one_that_its_author_has_marked_waits_for_its_device(nri_node: NodeUnderTest) -> None:
    rw = nri_node.kinds["rw"]
    with nri_node.static(marked(pod("marked", [container("main", {rw.resource: 1})]))) as name:
        nri_node.wait_running_nudged(name)
        assert all(start.env[rw.env] in rw.files for start in (nri_node.seen(name), *nri_node.starts(name)))
        (allocation,) = nri_node.node_device(rw.resource)["allocations"]
        assert (allocation["name"], allocation["podUID"]) == (name, nri_node.pod(name)["metadata"]["uid"])
    nri_node.wait_free(rw)


def test_one_without_its_device_is_reported(nri_node: NodeUnderTest) -> None:
    """It is held back by nobody: it may be what the agent itself waits for."""
    rw = nri_node.kinds["rw"]
    nri_node.agent.kill()
    with nri_node.static(pod("plain", [container("main", {rw.resource: 1})])) as name:
        nri_node.wait_running(name)
        assert rw.env not in nri_node.seen(name).env
        nri_node.start_agent()
        nri_node.until(lambda: _is_missing(nri_node, rw.resource), f"{rw.resource} is missing from a container")
        nri_node.wait_event(name, f"{Reason.DEVICES_NOT_INJECTED}: ")
    nri_node.until(lambda: not _is_missing(nri_node, rw.resource), "all is well")


def test_one_that_the_kubelet_serves_is_reported_by_its_name_in_the_api(kubelet_node: NodeUnderTest) -> None:
    rw = kubelet_node.kinds["rw"]
    with kubelet_node.static(pod("served", [container("main", {rw.resource: 1})])) as name:
        kubelet_node.wait_running(name)
        kubelet_node.wait_numbers(rw.resource, allocated=1, available=2)
        (allocation,) = kubelet_node.node_device(rw.resource)["allocations"]
        assert (allocation["name"], allocation["podUID"]) == (name, kubelet_node.pod(name)["metadata"]["uid"])
        assert allocation["deviceIDs"] == [kubelet_node.seen(name).env[rw.env]]
    kubelet_node.wait_free(rw)


def _is_missing(of: NodeUnderTest, resource: str) -> bool:
    return of.condition(resource, Condition.INJECTABLE).get("reason") == Reason.DEVICES_NOT_INJECTED
