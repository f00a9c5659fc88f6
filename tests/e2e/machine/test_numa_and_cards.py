"""A machine with two NUMA nodes, an IOMMU, PCI cards, and another kernel than the others, whose device filter is asked, too.

A USB device is of the node of its controller, and pods get devices as the topology policy says. A GPU's nodes are devices by their
stable names, and other cards are for programs in containers, by VFIO: a pod has the IOMMU group of one card, and opens no other.
Its sysfs has devices of nearly each kind, with which the simulated host of other tests is compared.
"""

import io
import tarfile
from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from nodedevice_api.names import Reason

from hack.machine.node import MachineOptions
from tests.conformance.kernel_sysfs import COPY, KINDS, RealHost, differences
from tests.e2e.chart.cluster import Json
from tests.e2e.chart.workloads import user
from tests.e2e.machine.cluster import BY_ID, FUSE, SERIAL, MachineCluster, device, files, machine_cluster, serial_ports
from tests.e2e.machine.observed import opened, wait_event
from tests.e2e.recording import RanOn
from tests.fakes.sysfs import FakeSysfs

# of Debian, with Linux 6.12
_KERNEL_SUITE = "trixie"
_READ_ONLY = "example.com/fuse-r"
_SINGLE, _RESTRICTED, _BEST_EFFORT = "single-numa-node", "restricted", "best-effort"
GROUP, RENDER = "example.com/vfio-group", "example.com/render-node"
CONTAINER = "/dev/vfio/vfio"
_RENDER_NODES = "/dev/dri/by-path/*-render"
# of the same GPU
_CARD = "c:226:0"
_BOTH, _NONE = (True, True), (False, False)
# vendor and device of the spare cards; prints the group of each
_BIND = """
modprobe vfio-pci
for card in /sys/bus/pci/devices/*; do
  test "$(cat $card/vendor $card/device | tr '\\n' ' ')" = "0x8086 0x10d3 " || continue
  echo vfio-pci > $card/driver_override
  test ! -e $card/driver || echo ${card##*/} > $card/driver/unbind
  echo ${card##*/} > /sys/bus/pci/drivers_probe
  basename $(readlink $card/iommu_group)
done
udevadm settle
"""
# prints an archive of what is compared, with a partition
_PACK = f"""
truncate --size=8M /tmp/disk
addpart $(losetup --find --show --partscan /tmp/disk) 1 8 800
udevadm settle
set -- $(mktemp --directory)
{COPY}
tar --create --gzip --directory=$1 . | base64
"""
# each group together with the file that all of them need
_GROUPS: Json = {"resourceName": GROUP, "groups": [{"paths": [{"path": "/dev/vfio/[0-9]*"}, {"path": CONTAINER}]}]}
_RESOURCES = (serial_ports(), device("fuse-r", FUSE, "r"), _GROUPS, files(RENDER, _RENDER_NODES))


@pytest.fixture(scope="module")
def cluster(progress: Callable[[str], None]) -> Iterator[MachineCluster]:
    """Three ports of node 0, of which a pod holds one, and two of node 1."""
    options = MachineOptions(numa=True, iommu=True)
    with machine_cluster(progress, options=options, number=1, kernel_suite=_KERNEL_SUITE) as cluster:
        cluster.install(*_RESOURCES, topologyPolicy=_SINGLE)
        for at in (1, 2, 3):
            cluster.plug(f"NEAR{at}", str(at), "xhci0.0")
        cluster.wait_capacity(SERIAL, 3)
        cluster.run(user("holder", {SERIAL: 1}))
        for at in (1, 2):
            cluster.plug(f"FAR{at}", str(at), "xhci1.0")
        cluster.wait_capacity(SERIAL, 5)
        yield cluster


def test_usb_devices_have_their_controllers_node(cluster: MachineCluster, ran_on: RanOn) -> None:
    """As the machine's own sysfs has it."""
    ran_on(cluster.described)
    shown = _nodes_by_id(cluster)
    climb = "cat $(udevadm info -q path -n $port | sed 's|^|/sys|; s|/usb.*||')/numa_node"
    found = cluster.machine.run(f"for port in {BY_ID}/*; do echo $port $({climb}); done")
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
def test_a_policy(cluster: MachineCluster, policy: str, count: int, nodes: int, ran_on: RanOn) -> None:
    """nodes: how many the devices are of; 0: the pod waits."""
    ran_on(cluster.described)
    cluster.change(*_RESOURCES, topologyPolicy=policy)
    cluster.apply(user("asks", {SERIAL: count}))
    try:
        if nodes == 0:
            # before the Event: there may be one of another pod of that name
            cluster.wait(partial(_waits, cluster, "asks"), "the pod waits")
            wait_event(cluster, "asks", "topology locality")
            return
        cluster.wait_running("asks")
        by_id = _nodes_by_id(cluster)
        held = cluster.devices_of("asks")
        assert len(held) == count
        assert len({tuple(by_id[device]) for device in held}) == nodes
    finally:
        cluster.control_plane.kubectl("delete", "pod", "asks", "--grace-period=1")
        cluster.wait(partial(_has_none, cluster, "asks"), "its devices are free")


def test_its_kernels_filter_opens_what_is_configured(cluster: MachineCluster, ran_on: RanOn) -> None:
    ran_on(cluster.described)
    cluster.wait_capacity(_READ_ONLY, 4)
    cluster.run(user("reads", {_READ_ONLY: 1}))
    cluster.run(user("none", {}))
    number = cluster.machine.run(f"stat --format=c:%Hr:%Lr {FUSE}").strip()
    # the file, which a pod without the device does not have; and its number, by a file of the pod's own
    assert opened(cluster, "reads", "-open", FUSE) == {FUSE: (True, False)}
    assert opened(cluster, "none", "-number", number) == {number: (False, False)}


def test_each_pod_opens_its_own_group(cluster: MachineCluster, ran_on: RanOn) -> None:
    ran_on(cluster.described)
    groups = {f"/dev/vfio/{number}" for number in cluster.machine.run(_BIND).split()}
    assert len(groups) == 2
    cluster.wait_capacity(GROUP, 2)
    for name in ("one", "two"):
        cluster.run(user(name, {GROUP: 1}))
    own = {name: _group_in(cluster, name) for name in ("one", "two")}
    assert {*own.values()} == groups
    for name, group in own.items():
        (other,) = groups - {group}
        number = cluster.machine.run(f"stat --format='c:%Hr:%Lr' {other}").strip()
        found = opened(cluster, name, "-open", group, "-open", CONTAINER, "-number", number)
        assert found == {group: _BOTH, CONTAINER: _BOTH, number: _NONE}


def test_a_gpus_render_node_without_its_card(cluster: MachineCluster, ran_on: RanOn) -> None:
    ran_on(cluster.described)
    cluster.wait_capacity(RENDER, 1)
    path = cluster.machine.run(f"ls {_RENDER_NODES}").strip()
    cluster.run(user("renders", {RENDER: 1}))
    assert opened(cluster, "renders", "-open", path, "-number", _CARD) == {path: _BOTH, _CARD: _NONE}


def test_devices_are_shown_as_simulated_hosts_show_them(cluster: MachineCluster, tmp_path: Path, ran_on: RanOn) -> None:
    ran_on(cluster.described)
    with tarfile.open(fileobj=io.BytesIO(b64decode(cluster.machine.run(_PACK)))) as packed:
        packed.extractall(tmp_path / "real", filter="data")
    real, counts, found = RealHost(f"{tmp_path}/real"), dict[str, int](), list[str]()
    for kind in KINDS:
        fake = FakeSysfs(tmp_path / kind.__name__)
        counts[kind.__name__] = kind(real, fake)
        found += differences(real, fake)
    assert found == []
    # whose modules a machine's kernel lacks
    assert [name for name, count in counts.items() if not count] == ["input_devices"]


def _nodes_by_id(cluster: MachineCluster) -> dict[str, list[int]]:
    return {each["id"]: each.get("numaNodes", []) for each in cluster.node_device(SERIAL)["status"]["devices"]}


def _has_none(cluster: MachineCluster, pod: str) -> bool:
    return not cluster.devices_of(pod)


def _waits(cluster: MachineCluster, pod: str) -> bool:
    waiting = cluster.node_device(SERIAL)["status"]["waiting"]
    return [(each["name"], each["reason"]) for each in waiting] == [(pod, Reason.TOPOLOGY_AFFINITY)]


def _group_in(cluster: MachineCluster, pod: str) -> str:
    """The one that is in the pod's container."""
    nodes: dict[str, str] = cluster.report_of(pod)["nodes"]
    (group,) = {path for path in nodes if path.startswith("/dev/vfio/")} - {CONTAINER}
    return group
