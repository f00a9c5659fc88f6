"""A reboot, acted out: every process of the node gone at once, its disk kept, another boot id."""

from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod


def test_pods_come_back_with_devices(nri_node: NodeUnderTest) -> None:
    rw = nri_node.kinds["rw"]
    for name in ("one", "two"):
        nri_node.run(pod(name, [container("main", {rw.resource: 1})]))
    boot_id = nri_node.node.machine.boot_id
    nri_node.reboot()
    assert nri_node.node.machine.boot_id != boot_id
    for name in ("one", "two"):
        nri_node.wait_starts(name, 2)
        assert not nri_node.seen(name).shared
    one, two = (nri_node.seen(name).env[rw.env] for name in ("one", "two"))
    assert one != two
    nri_node.delete("one", "two")
    nri_node.run(pod("last", [container("main", {rw.resource: 3})]))
    nri_node.delete("last")


def test_plugins_that_are_late(nri_node: NodeUnderTest) -> None:
    """The agent is up long before its plugin: no container starts in between."""
    rw = nri_node.kinds["rw"]
    nri_node.run(pod("early", [container("main", {rw.resource: 1})]))
    with nri_node.rebooted_without_plugins():
        nri_node.run(pod("plain", [container("main")]))
        assert len(nri_node.starts("early")) == 1
    nri_node.wait_starts("early", 2)
    assert nri_node.seen("early").env[rw.env] in rw.files
    nri_node.delete("early", "plain")
