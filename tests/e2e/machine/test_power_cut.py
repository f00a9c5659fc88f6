"""The power goes at every flush of a run: what the agent's files say then, and what becomes of pods when the machine is back."""

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_api.names import API_VERSION, NODE_DEVICE_CONFIG

from hack.machine.node import MachineOptions
from hack.machine.packages import run
from hack.machine.write_log import flushes, replay
from tests.e2e.chart.cluster import NODE
from tests.e2e.chart.workloads import user
from tests.e2e.machine.cluster import MachineCluster, machine_cluster
from tests.e2e.recording import RanOn

GPU = "example.com/gpu"
PODS = 4
POINTS = int(os.environ.get("POWER_CUTS", "40"))
BOOTED = 3
_STATE = "/var/lib/nodedevice"
CONFIG = {
    "apiVersion": API_VERSION,
    "kind": NODE_DEVICE_CONFIG,
    "metadata": {"name": "gpus"},
    "spec": {
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "plugins": {"simulated": [{"resourceName": GPU, "count": PODS}]},
    },
}

Held = dict[str, tuple[str, ...]]


@pytest.fixture
def cluster(progress: Callable[[str], None]) -> Iterator[MachineCluster]:
    with machine_cluster(progress, options=MachineOptions(write_log=True), number=2) as cluster:
        yield cluster


def test_at_any_flush(cluster: MachineCluster, tmp_path: Path, progress: Callable[[str], None], ran_on: RanOn) -> None:
    machine = cluster.machine
    assert machine.writes is not None
    cluster.install()
    cluster.apply(CONFIG)
    cluster.wait_capacity(GPU, PODS)
    ran_on(cluster.described)
    begin = flushes(machine.writes)
    names = [f"pod-{number}" for number in range(PODS)]
    cluster.apply(*(user(name, {GPU: 1}) for name in names))
    for name in names:
        cluster.wait(partial(cluster.is_running_since, name, datetime.min.replace(tzinfo=UTC)), f"{name} runs")
    uids = {cluster.pod(name)["metadata"]["uid"]: name for name in names}
    machine.kill()

    writes, end = tmp_path / "writes.log", flushes(machine.writes)
    shutil.copy2(machine.writes, writes)
    points = sorted({begin + (end - begin) * number // POINTS for number in range(1, POINTS + 1)})
    progress(f"{end - begin} flushes while {PODS} pods started; the power goes at {len(points)} of them")
    disk = tmp_path / "disk.img"
    machine.raw_disk(disk)
    books: dict[int, Held] = {}
    to_boot = points[:: max(1, len(points) // BOOTED)][-BOOTED:]
    for before, point in zip([0, *points], points, strict=False):
        replay(writes, disk, before, point)
        books[point] = held_on(disk, tmp_path / "cut.img", tmp_path / f"state-{point}")
        devices = [device for held in books[point].values() for device in held]
        assert len(devices) == len(set(devices)), f"flush {point}: a device twice: {books[point]}"
        for earlier in books.values():
            assert earlier.items() <= books[point].items(), f"flush {point}: an allocation was lost, or another one"
        if point in to_boot:
            _copy_sparse(disk, tmp_path / f"boot-{point}.img")
    assert {uids[uid] for uid in books[points[-1]]} == set(names)

    for point in to_boot:
        machine.use_disk(tmp_path / f"boot-{point}.img")
        # the API says in whole seconds when a container began
        on = datetime.now(UTC).replace(microsecond=0)
        machine.start()
        cluster.node.wait_ready()
        for name in names:
            cluster.wait(partial(cluster.is_running_since, name, on), f"{name} is back")
        shown = {name: tuple(cluster.devices_of(name, GPU)) for name in names}
        assert len(set(shown.values())) == PODS, f"flush {point}: a device twice: {shown}"
        for uid, held in books[point].items():
            assert shown[uids[uid]] == held, f"flush {point}: another device than before the cut"
        progress(f"flush {point}: {len(books[point])} allocations were in the book, and all {PODS} pods are back")
        machine.kill()


def held_on(disk: Path, copy: Path, state: Path) -> Held:
    """What the agent's files on a disk say, after the file system's own repair: IDs by the pod's UID."""
    _copy_sparse(disk, copy)
    repaired(copy)
    state.mkdir()
    run(["debugfs", "-R", f"rdump {_STATE} {state}", str(copy)])
    copy.unlink()
    found = checkpoint_file.read(state / Path(_STATE).name)
    return {} if found is None else {each.pod_uid: tuple(each.device_ids) for each in found.allocations}


def repaired(disk: Path) -> None:
    """As a boot does it. e2fsck ends with 1 where it repaired something."""
    run(["sh", "-c", f"e2fsck -fy '{disk}' >/dev/null 2>&1; test $? -le 1"])


def _copy_sparse(disk: Path, target: Path) -> None:
    """Three quarters of a disk were never written."""
    run(["cp", "--sparse=always", str(disk), str(target)])
