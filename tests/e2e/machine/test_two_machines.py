"""Two nodes: one is cut off, one is drained. No device is given to two."""

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from nodedevice_api.names import OPERATOR_LEASE, Condition, Reason

from hack.machine import network
from tests.cluster.api import Lease
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.observe import Observer, capacity
from tests.e2e.chart.cluster import NODE, OPERATOR
from tests.e2e.machine.cluster import (
    FUSE,
    SECOND_NODE,
    SERIAL,
    MachineCluster,
    device,
    machine_cluster,
    serial_ports,
    talker,
    talkers,
)
from tests.e2e.machine.conftest import LOGS
from tests.e2e.machine.observed import condition
from tests.e2e.recording import RanOn

BOTH = (NODE, SECOND_NODE)
# nobody holds one
FREE, FREE_COUNT = "example.com/fuse", 4
# as short as a test can wait for; the chart's own is five minutes
GRACE_SECONDS = 20


@pytest.fixture(scope="module")
def two_machines(progress: Callable[[str], None]) -> Iterator[MachineCluster]:
    with machine_cluster(progress, number=1, names=BOTH) as cluster:
        try:
            operator = {"replicas": 2, "config": {"agentGraceSeconds": GRACE_SECONDS}}
            cluster.install(serial_ports(), device("fuse", FUSE, "rw"), operator=operator)
            progress("the chart is installed on two machines")
            yield cluster
        finally:
            cluster.save_logs(LOGS / "two")


@pytest.fixture
def cluster(two_machines: MachineCluster, ran_on: RanOn) -> MachineCluster:
    two_machines.control_plane.kubectl("uncordon", *BOTH)
    two_machines.control_plane.kubectl("delete", "deployments", "--all", "--cascade=foreground")
    two_machines.clear()
    ran_on(two_machines.described)
    return two_machines


def test_a_partition_gives_no_device_to_two(cluster: MachineCluster, progress: Callable[[str], None]) -> None:
    """A pod that was deleted by force while its node was away: nobody has its device before its process is dead."""
    (_, lost), (standby, other) = _leader(cluster), _standby(cluster)
    for serial, node in (("LOST", lost), ("OTHER", other)):
        cluster.plug(serial, "1", node=node)
        cluster.wait_capacity(SERIAL, 1, node)
    cluster.run(talker("old", node=lost))
    held = cluster.devices_of("old", node=lost)
    cluster.until_heard("LOST", "old")

    with Observer.nodes(cluster.control_plane.admin_kubeconfig) as nodes:
        nodes.wait(lambda seen: capacity(seen, lost, SERIAL) == 1, since=0)
        began = time.monotonic()
        network.cut(cluster.nodes[lost].machine.tap)
        try:
            cluster.wait(lambda: _holder(cluster) == standby, "the operator of the other node leads")
            progress(f"the operator's Lease moved {time.monotonic() - began:.1f} s after its node was cut off")
            cluster.wait(lambda: not cluster.is_ready(lost), "the Node is not ready")
            progress(f"Kubernetes called the node NotReady {time.monotonic() - began:.0f} s after that")
            cluster.control_plane.kubectl("delete", "pod", "old", "--force", "--grace-period=0")
            cluster.apply(talker("next", node=lost), talker("either"))
            cluster.until_heard("OTHER", "either")
            assert len(cluster.devices_of("either", node=other)) == 1
            cluster.wait(
                lambda: condition(cluster, Condition.AGENT_READY, node=lost)[0] == "Unknown", "the agent is silent"
            )
            progress(f"AgentReady was Unknown {time.monotonic() - began:.0f} s after that")
            cluster.wait_capacity(FREE, 0, lost)
            progress(f"its free devices were withdrawn {time.monotonic() - began:.0f} s after that")
            said = partial(condition, cluster, Condition.ADVERTISED, FREE, lost)
            cluster.wait(lambda: said()[1] == Reason.FREE_WITHDRAWN, "the NodeDevice says why")
            # what the old process holds stays
            assert {capacity(seen, lost, SERIAL) for seen in nodes.seen()} <= {None, 1}
            assert cluster.devices_of("old", node=lost) == held
            assert "old" in cluster.heard("LOST"), "it should run on"
            assert not cluster.pod("next")["spec"].get("nodeName")
        finally:
            network.restore(cluster.nodes[lost].machine.tap)
        began = time.monotonic()
        heard = _heard_until(cluster, "LOST", "next")
        progress(f"the next pod had the device {time.monotonic() - began:.0f} s after the network was back")
        assert "old" not in heard[heard.index("next") :], "two had it at once"
    assert cluster.devices_of("next", node=lost) == held
    cluster.wait_capacity(FREE, FREE_COUNT, lost)
    cluster.until_heard("OTHER", "either")
    cluster.wait(lambda: condition(cluster, Condition.AGENT_READY, node=lost)[0] == "True", "the agent is back")


def test_a_drain_moves_pods_to_the_other_nodes_devices(
    cluster: MachineCluster, progress: Callable[[str], None]
) -> None:
    for serial, port, node in (
        ("A1", "1", NODE),
        ("A2", "2", NODE),
        *((f"B{n}", f"{n}", SECOND_NODE) for n in (1, 2, 3)),
    ):
        cluster.plug(serial, port, node=node)
    cluster.wait_capacity(SERIAL, 2, NODE)
    cluster.wait_capacity(SERIAL, 3, SECOND_NODE)
    kubectl = cluster.control_plane.kubectl
    kubectl("cordon", SECOND_NODE)
    cluster.apply(talkers("talks", 3))
    cluster.wait(lambda: _held(cluster) == (2, 0), "two pods have the devices of the node that is not cordoned")
    for serial in ("A1", "A2"):
        cluster.until_heard(serial, "talks")
    # a cordon of a Node is about pods to come, and takes no device away
    assert cluster.capacity(SECOND_NODE)[SERIAL] == 3
    kubectl("uncordon", SECOND_NODE)
    cluster.wait(lambda: _held(cluster) == (2, 1), "the third goes to the other node")

    began = time.monotonic()
    kubectl("drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s")
    progress(f"kubectl drain took {time.monotonic() - began:.1f} s")
    cluster.wait(lambda: _held(cluster) == (0, 3), "all three have devices of the other node")
    for serial in ("B1", "B2", "B3"):
        cluster.until_heard(serial, "talks")
    progress(f"all pods spoke to devices of the other node {time.monotonic() - began:.0f} s after the drain began")
    status = cluster.node_device(SERIAL, NODE)["status"]
    assert (status["available"], cluster.capacity(NODE)[SERIAL]) == (2, 2), "its devices are free, and still offered"
    assert not _speaks(cluster, "A1", "A2"), "somebody speaks on"

    kubectl("scale", "deployment", "talks", "--replicas=5")
    cluster.wait(lambda: len(cluster.pods()) == 5, "five pods were made")
    assert _held(cluster) == (0, 3), "a drained node got pods"
    kubectl("uncordon", NODE)
    cluster.wait(lambda: _held(cluster) == (2, 3), "the other two go there")
    for serial in ("A1", "A2"):
        cluster.until_heard(serial, "talks")


def _speaks(cluster: MachineCluster, *serials: str) -> bool:
    """Whether anything is written to one of them now."""
    for serial in serials:
        cluster.heard(serial)
    time.sleep(2)
    return any(cluster.heard(serial) for serial in serials)


def _held(cluster: MachineCluster) -> tuple[int, int]:
    """How many devices are held on each node, every one of them by a pod that runs there. No device is held twice."""
    found = []
    for node in BOTH:
        running = {
            each["metadata"]["name"]
            for each in cluster.pods()
            if each["spec"].get("nodeName") == node and each["status"]["phase"] == "Running"
        }
        held = cluster.node_device(SERIAL, node)["status"].get("allocations", [])
        ids = [device for each in held if each["name"] in running for device in each["deviceIDs"]]
        every = [device for each in held for device in each["deviceIDs"]]
        assert len(every) == len(set(every)), f"a device twice: {held}"
        found.append(len(ids) if len(ids) == len(every) else -1)
    return found[0], found[1]


def _heard_until(cluster: MachineCluster, serial: str, word: str) -> str:
    """All that the port heard from now on until it heard the word some times."""
    heard = ""

    def is_heard() -> bool:
        nonlocal heard
        heard += cluster.heard(serial)
        return heard.count(word) > 3

    cluster.wait(is_heard, f"{word} speaks")
    return heard


def _operators(cluster: MachineCluster) -> dict[str, str]:
    """Their nodes, by pod; those that are ready."""
    found = cluster.pods(SYSTEM_NAMESPACE, {"app.kubernetes.io/component": "operator"})
    ready = {
        each["metadata"]["name"]: each["spec"]["nodeName"]
        for each in found
        if any(c["type"] == "Ready" and c["status"] == "True" for c in each["status"].get("conditions", []))
    }
    assert all(name.startswith(OPERATOR) for name in ready)
    return ready


def _holder(cluster: MachineCluster) -> str:
    """The pod that holds the operator's Lease."""
    spec = cluster.control_plane.client.get(Lease, OPERATOR_LEASE, namespace=SYSTEM_NAMESPACE).spec
    assert spec is not None
    return (spec.holderIdentity or "").partition("_")[0]


def _leader(cluster: MachineCluster) -> tuple[str, str]:
    """The operator's pod that leads, and its node; waits until there is one."""
    cluster.wait(lambda: _holder(cluster) in _operators(cluster), "an operator leads")
    holder = _holder(cluster)
    return holder, _operators(cluster)[holder]


def _standby(cluster: MachineCluster) -> tuple[str, str]:
    """The other one, which is on the other node."""
    cluster.wait(lambda: len(_operators(cluster)) == 2, "two operators are ready")
    leader, leader_node = _leader(cluster)
    (found,) = ((name, node) for name, node in _operators(cluster).items() if name != leader)
    assert found[1] != leader_node, "both operators are on one node"
    return found
