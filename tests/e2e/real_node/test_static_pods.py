"""Static pods: files of the kubelet, which no admission policy marks. The runtime knows them by another UID than the API does."""

from nodedevice_api.names import REQUIRED_PLUGINS_ANNOTATION, Condition, Reason

from tests.cluster.waiting import wait_until
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod
from tests.e2e.real_node.pods_on_node import PATIENCE_SECONDS


def test_one_that_its_author_has_marked_waits_for_its_device(nri_node: NodeUnderTest) -> None:
    rw = nri_node.kinds["rw"]
    body = pod("marked", [container("main", {rw.resource: 1})])
    body["metadata"]["annotations"] = {REQUIRED_PLUGINS_ANNOTATION: "[ nodedevice ]"}
    with nri_node.static(body) as name:
        nri_node.wait_running_nudged(name)
        assert all(start.env[rw.env] in rw.files for start in (nri_node.seen(name), *nri_node.starts(name)))
        (allocation,) = nri_node.node_device(rw.resource)["allocations"]
        assert (allocation["name"], allocation["podUID"]) == (name, nri_node.pod(name)["metadata"]["uid"])
    nri_node.wait_numbers(rw.resource, allocated=0, releasing=0, available=3)


def test_one_without_its_device_is_reported(nri_node: NodeUnderTest) -> None:
    """It is held back by nobody: it may be what the agent itself waits for."""
    rw = nri_node.kinds["rw"]
    nri_node.agent.kill()
    with nri_node.static(pod("plain", [container("main", {rw.resource: 1})])) as name:
        nri_node.wait_running(name)
        assert rw.env not in nri_node.seen(name).env
        nri_node.start_agent()
        wait_until(
            lambda: _injectable(nri_node, rw.resource) == Reason.DEVICES_NOT_INJECTED,
            f"{rw.resource} is said to be missing from a container",
            PATIENCE_SECONDS,
        )
        wait_until(
            lambda: any(event.startswith(Reason.DEVICES_NOT_INJECTED) for event in nri_node.events(name)),
            f"an Event reports {name}",
            PATIENCE_SECONDS,
        )
    wait_until(
        lambda: _injectable(nri_node, rw.resource) != Reason.DEVICES_NOT_INJECTED, "all is well", PATIENCE_SECONDS
    )


def test_one_that_the_kubelet_serves_is_reported_by_its_name_in_the_api(kubelet_node: NodeUnderTest) -> None:
    rw = kubelet_node.kinds["rw"]
    with kubelet_node.static(pod("served", [container("main", {rw.resource: 1})])) as name:
        kubelet_node.wait_running(name)
        kubelet_node.wait_numbers(rw.resource, allocated=1, available=2)
        (allocation,) = kubelet_node.node_device(rw.resource)["allocations"]
        assert (allocation["name"], allocation["podUID"]) == (name, kubelet_node.pod(name)["metadata"]["uid"])
        assert allocation["deviceIDs"] == [kubelet_node.seen(name).env[rw.env]]
    kubelet_node.wait_numbers(rw.resource, allocated=0, releasing=0, available=3)


def _injectable(of: NodeUnderTest, resource: str) -> str:
    conditions = of.node_device(resource).get("conditions", [])
    return next((found["reason"] for found in conditions if found["type"] == Condition.INJECTABLE), "")
