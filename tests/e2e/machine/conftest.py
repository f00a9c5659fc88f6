"""One emulated machine for all tests of this folder, with the chart installed; run below `unshare --net`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.machine import network, packages
from hack.machine.node import MachineOptions
from tests.cluster.build import product_images
from tests.e2e.chart.cluster import Json
from tests.e2e.machine.cluster import (
    FUSE,
    HOT_PLUGGED,
    LOOP,
    MachineCluster,
    device,
    files,
    machine_cluster,
    selected_ports,
    serial_ports,
)
from tests.e2e.recording import RanOn

_HERE = Path(__file__).parent
LOGS = Path(__file__).parents[3] / "build" / "e2e" / "machine"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if _HERE in item.path.parents]
    # machines are emulated here, which needs Debian's packages and a network of their own
    reason = packages.why_not_here() or product_images.why_not_here()
    if not network.is_own():
        reason = reason or "machines run in a network namespace of their own: make e2e-machine"
    for item in ours if reason else []:
        item.add_marker(pytest.mark.skip(reason=f"{item.name}: {reason}"))
    # last: it would run on beside those that have machines of their own
    items.sort(key=lambda item: _HERE in item.path.parents and "installed_machine" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="package")
def installed_machine(progress: Callable[[str], None]) -> Iterator[MachineCluster]:
    with machine_cluster(progress, options=MachineOptions(shutdown_seconds=20)) as cluster:
        try:
            cluster.install(*offered(serial_ports()))
            progress("the chart is installed")
            yield cluster
        finally:
            cluster.save_logs(LOGS)


def offered(ports: Json) -> list[Json]:
    """Serial ports in one of the two ways, as each is offered once; and everything else that tests here ask for."""
    chars = [device(f"fuse-{each}", FUSE, each) for each in ("r", "w", "rw", "rm", "m")]
    blocks = [device(f"loop-{each}", LOOP, each) for each in ("r", "rw")]
    return [ports, *chars, *blocks, *(files(kind.resource, kind.pattern) for kind in HOT_PLUGGED)]


@pytest.fixture
def cluster(installed_machine: MachineCluster, ran_on: RanOn) -> MachineCluster:
    """Without what a test before has left. Nobody waits for the end of the last one's pods: the machine ends with them."""
    installed_machine.clear()
    installed_machine.change(*offered(serial_ports()))
    ran_on(installed_machine.described)
    return installed_machine


@pytest.fixture
def selecting_cluster(cluster: MachineCluster) -> MachineCluster:
    """The same, with serial ports that are selected by their vendor."""
    cluster.change(*offered(selected_ports()))
    return cluster
