"""A reboot, acted out: every process of the node gone at once, its disk kept, another boot id.

With NRI every pod comes back and waits for its devices. Where the kubelet allocates, it fails what it looks at before the
resource is registered again; so docs/runtimes.md says.
"""

import pytest
from nodedevice_api.names import REQUIRED_PLUGINS_ANNOTATION

from tests.e2e.real_node.node_under_test import NRI, NodeUnderTest
from tests.e2e.real_node.pods import Json, container, pod


def test_what_comes_back_has_a_device_of_its_own(our_node: NodeUnderTest) -> None:
    rw = our_node.kinds["rw"]
    for name in ("one", "two"):
        our_node.run(pod(name, [container("main", {rw.resource: 1})]))
        our_node.seen(name)
    boot_id = our_node.node.machine.boot_id
    our_node.reboot()
    assert our_node.node.machine.boot_id != boot_id
    back = [name for name in ("one", "two") if _comes_back(our_node, name)]
    assert back == ["one", "two"] or our_node.runtime != NRI
    given = [_given_at_last(our_node, name) for name in back]
    assert len(set(given)) == len(given)
    our_node.delete("one", "two")
    our_node.run(pod("last", [container("main", {rw.resource: 3})]))
    our_node.delete("last")


@pytest.mark.kubelet("scenario 93", "weak spot 4")
def test_plugins_that_are_late(our_node: NodeUnderTest) -> None:
    """The agent is up long before its plugin: no container starts in between."""
    rw = our_node.kinds["rw"]
    our_node.run(pod("early", [container("main", {rw.resource: 1})]))
    our_node.seen("early")
    with our_node.rebooted_without_plugins():
        our_node.run(pod("plain", [container("main")]))
        assert len(our_node.starts("early")) == 1
    assert _comes_back(our_node, "early") == (our_node.runtime == NRI)
    our_node.delete("early", "plain")
    # what failed pods had is everybody's again
    our_node.run(pod("all", [container("main", {rw.resource: 3})]))
    our_node.delete("all")


def test_a_static_pod(our_node: NodeUnderTest) -> None:
    """One that the kubelet has failed has no owner to make another: its file has to go and come again."""
    body = pod("fixed", [container("main", {our_node.kinds["rw"].resource: 1})])
    body["metadata"]["annotations"] = {REQUIRED_PLUGINS_ANNOTATION: "[ nodedevice ]"}
    with our_node.static(body) as name:
        our_node.wait_running(name)
        our_node.seen(name)
        our_node.reboot()
        is_back = _comes_back(our_node, name)
        assert is_back or our_node.runtime != NRI
        assert not is_back or _given_at_last(our_node, name)
    with our_node.static(body) as name:
        our_node.wait_starts(name, 3 if is_back else 2)
        assert _given_at_last(our_node, name)


def _comes_back(of: NodeUnderTest, name: str) -> bool:
    """Wait until the pod has started for the second time, or is failed for want of its devices; whether it has started."""
    of.wait(name, lambda found: len(of.starts(name)) == 2 or _is_failed(found), "is back, or failed")
    return len(of.starts(name)) == 2


def _is_failed(found: Json) -> bool:
    status = found.get("status", {})
    return (status.get("phase"), status.get("reason")) == ("Failed", "UnexpectedAdmissionError")


def _given_at_last(of: NodeUnderTest, name: str) -> str:
    """The device that the only container of a pod has since its last start."""
    rw, seen = of.kinds["rw"], of.seen(name)
    assert seen.env[rw.env] in rw.files
    assert not seen.shared
    return seen.env[rw.env]
