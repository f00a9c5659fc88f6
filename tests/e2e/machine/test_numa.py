"""A machine with two NUMA nodes: a USB device is of that of its controller, and pods get devices as the topology policy says.

It has another kernel than the others, whose device filter is asked, too.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import pytest
from nodedevice_api.names import Reason

from hack.cluster.processes.processes import removed_at_the_end
from hack.machine.node import MachineOptions
from tests.e2e.chart.workloads import user
from tests.e2e.machine.cluster import BY_ID, FUSE, SERIAL, MachineCluster, device, serial_ports
from tests.e2e.machine.observed import opened, wait_event
from tests.e2e.recording import RanOn

# of Debian, with Linux 6.12
_KERNEL_SUITE = "trixie"
_READ_ONLY = "example.com/fuse-r"
_SINGLE, _RESTRICTED, _BEST_EFFORT = "single-numa-node", "restricted", "best-effort"


_RESOURCES = (serial_ports(), device("fuse-r", FUSE, "r"))


@pytest.fixture(scope="module")
def two_nodes(progress: Callable[[str], None]) -> Iterator[MachineCluster]:
    """Three ports of node 0, of which a pod holds one, and two of node 1."""
    folder = Path(mkdtemp(prefix="nd-"))
    options = MachineOptions(numa=True)
    with (
        removed_at_the_end(folder),
        MachineCluster.start(folder, progress, options, number=1, kernel_suite=_KERNEL_SUITE) as cluster,
    ):
        cluster.install(*_RESOURCES, topologyPolicy=_SINGLE)
        for at in (1, 2, 3):
            cluster.plug(f"NEAR{at}", str(at), "xhci0.0")
        cluster.wait_capacity(SERIAL, 3)
        cluster.run(user("holder", {SERIAL: 1}))
        for at in (1, 2):
            cluster.plug(f"FAR{at}", str(at), "xhci1.0")
        cluster.wait_capacity(SERIAL, 5)
        yield cluster


def test_usb_devices_have_their_controllers_node(two_nodes: MachineCluster, ran_on: RanOn) -> None:
    """As the machine's own sysfs has it."""
    ran_on(two_nodes.described)
    shown = _nodes_by_id(two_nodes)
    climb = "cat $(udevadm info -q path -n $port | sed 's|^|/sys|; s|/usb.*||')/numa_node"
    found = two_nodes.machine.run(f"for port in {BY_ID}/*; do echo $port $({climb}); done")
    by_path = dict(line.split() for line in found.splitlines())
    assert len(by_path) == 5
    assert {int(node) for node in by_path.values()} == {0, 1}
    for path, node in by_path.items():
        assert int(node) == ("FAR" in path)
        (listed,) = (nodes for device, nodes in shown.items() if path.rpartition("_")[2].split("-")[0] in device)
        assert listed == [int(node)]


@pytest.mark.parametrize(
    ("policy", "count", "nodes"),
    [
        pytest.param(_SINGLE, 2, 1, id="single-numa-node gives two of one node"),
        pytest.param(_SINGLE, 3, 0, id="single-numa-node has no node with three"),
        pytest.param(_RESTRICTED, 3, 0, id="restricted waits for the third of a node"),
        pytest.param(_RESTRICTED, 4, 2, id="restricted gives what no node ever has"),
        pytest.param(_BEST_EFFORT, 3, 2, id="best-effort gives what is free"),
    ],
)
def test_a_policy(two_nodes: MachineCluster, policy: str, count: int, nodes: int, ran_on: RanOn) -> None:
    """nodes: how many the devices are of; 0: the pod waits."""
    ran_on(two_nodes.described)
    two_nodes.change(*_RESOURCES, topologyPolicy=policy)
    two_nodes.apply(user("asks", {SERIAL: count}))
    try:
        if nodes == 0:
            # before the Event: there may be one of another pod of that name
            two_nodes.wait(partial(_waits, two_nodes, "asks"), "the pod waits")
            wait_event(two_nodes, "asks", "topology locality")
            return
        two_nodes.wait_running("asks")
        by_id = _nodes_by_id(two_nodes)
        held = two_nodes.devices_of("asks")
        assert len(held) == count
        assert len({tuple(by_id[device]) for device in held}) == nodes
    finally:
        two_nodes.control_plane.kubectl("delete", "pod", "asks", "--grace-period=1")
        two_nodes.wait(partial(_has_none, two_nodes, "asks"), "its devices are free")


def test_its_kernels_filter_opens_what_is_configured(two_nodes: MachineCluster, ran_on: RanOn) -> None:
    ran_on(two_nodes.described)
    two_nodes.wait_capacity(_READ_ONLY, 4)
    two_nodes.run(user("reads", {_READ_ONLY: 1}))
    two_nodes.run(user("none", {}))
    number = two_nodes.machine.run(f"stat --format=c:%Hr:%Lr {FUSE}").strip()
    # the file, which a pod without the device does not have; and its number, by a file of the pod's own
    assert opened(two_nodes, "reads", "-open", FUSE) == {FUSE: (True, False)}
    assert opened(two_nodes, "none", "-number", number) == {number: (False, False)}


def _nodes_by_id(cluster: MachineCluster) -> dict[str, list[int]]:
    return {each["id"]: each.get("numaNodes", []) for each in cluster.node_device(SERIAL)["status"]["devices"]}


def _has_none(cluster: MachineCluster, pod: str) -> bool:
    return not cluster.devices_of(pod)


def _waits(cluster: MachineCluster, pod: str) -> bool:
    waiting = cluster.node_device(SERIAL)["status"]["waiting"]
    return [(each["name"], each["reason"]) for each in waiting] == [(pod, Reason.TOPOLOGY_AFFINITY)]
