"""PCI cards: the nodes of a GPU by their stable names, and others for programs in containers, by VFIO.

A pod has the IOMMU group of one card, and opens no other.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from hack.cluster.processes.processes import removed_at_the_end
from hack.machine.node import MachineOptions
from tests.e2e.chart.cluster import Json
from tests.e2e.chart.workloads import user
from tests.e2e.machine.cluster import MachineCluster, files
from tests.e2e.machine.observed import opened

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


@pytest.fixture(scope="module")
def with_cards(progress: Callable[[str], None]) -> Iterator[MachineCluster]:
    folder = Path(mkdtemp(prefix="nd-"))
    options = MachineOptions(iommu=True)
    with removed_at_the_end(folder), MachineCluster.start(folder, progress, options, number=1) as cluster:
        cluster.install(_groups(), files(RENDER, _RENDER_NODES))
        yield cluster


def test_each_pod_opens_its_own_group(with_cards: MachineCluster) -> None:
    cluster = with_cards
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


def test_a_gpus_render_node_without_its_card(with_cards: MachineCluster) -> None:
    with_cards.wait_capacity(RENDER, 1)
    path = with_cards.machine.run(f"ls {_RENDER_NODES}").strip()
    with_cards.run(user("renders", {RENDER: 1}))
    assert opened(with_cards, "renders", "-open", path, "-number", _CARD) == {path: _BOTH, _CARD: _NONE}


def _groups() -> Json:
    """Each group together with the file that all of them need."""
    return {"resourceName": GROUP, "groups": [{"paths": [{"path": "/dev/vfio/[0-9]*"}, {"path": CONTAINER}]}]}


def _group_in(cluster: MachineCluster, pod: str) -> str:
    """The one that is in the pod's container."""
    nodes: dict[str, str] = cluster.report_of(pod)["nodes"]
    (group,) = {path for path in nodes if path.startswith("/dev/vfio/")} - {CONTAINER}
    return group
