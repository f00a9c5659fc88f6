"""Other drivers and runtimes than the usual ones, on a machine each."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from hack.machine.node import MachineOptions
from tests.e2e.chart.workloads import user
from tests.e2e.machine.cluster import FUSE, SERIAL, MachineCluster, device, machine_cluster, serial_ports, talker
from tests.e2e.recording import RanOn

_OK = "ok"
RESOURCE = "example.com/fuse-r"


@dataclass(frozen=True)
class Variant:
    name: str
    options: MachineOptions
    delivery: str


VARIANTS = (
    Variant("nri, cgroupfs, without the validator", MachineOptions(systemd_cgroups=False, validator=False), "nri"),
    Variant("kubelet, systemd", MachineOptions(nri=False), "kubelet"),
)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_devices_reach_their_containers_and_no_other(
    variant: Variant, progress: Callable[[str], None], ran_on: RanOn
) -> None:
    with machine_cluster(progress, options=variant.options, number=1) as cluster:
        cluster.install(serial_ports(), device("fuse-r", FUSE, "r"), delivery=variant.delivery)
        cluster.plug("AAA", "1")
        cluster.wait_capacity(SERIAL, 1)
        cluster.wait_capacity(RESOURCE, 4)
        ran_on(cluster.described)
        cluster.run(talker("talks"))
        cluster.until_heard("AAA", "talks")
        cluster.run(user("reads", {RESOURCE: 1}, "-open", FUSE))
        opened = cluster.report_of("reads")["opened"][FUSE]
        assert (opened["read"], opened["write"] == _OK) == (_OK, False)
        cluster.run(user("none", {}, "-number", "c:10:229"))
        (refused,) = cluster.report_of("none")["opened"].values()
        assert refused["read"] != _OK
        began = time.monotonic()
        cluster.plug("BBB", "2")
        cluster.wait_capacity(SERIAL, 2)
        # with `kubelet`, what the kubelet's own device manager makes of it
        progress(
            f"{variant.name}: a second port was in the Node {time.monotonic() - began:.1f} s after it was plugged in"
        )
        held = cluster.devices_of("talks")
        # the API says in whole seconds when it last heard of the kubelet
        restarted = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
        cluster.machine.run("sleep 1; systemctl daemon-reload; systemctl restart containerd kubelet")
        cluster.wait(partial(_is_offered_since, cluster, restarted), "the kubelet offers the ports again")
        cluster.until_heard("AAA", "talks")
        assert cluster.devices_of("talks") == held
        cluster.machine.run("kill -9 $(pgrep -f 'do for port in')")
        cluster.wait(partial(cluster.is_running_again, "talks"), "its container runs again")
        cluster.until_heard("AAA", "talks")
        assert cluster.devices_of("talks") == held


def _is_offered_since(cluster: MachineCluster, moment: datetime) -> bool:
    """Whether the kubelet has reported since then, and both ports can be had: before that it refuses pods that start again."""
    status = cluster.node_object()["status"]
    (ready,) = (each for each in status["conditions"] if each["type"] == "Ready")
    is_reported = ready["status"] == "True" and datetime.fromisoformat(ready["lastHeartbeatTime"]) >= moment
    return is_reported and status["allocatable"].get(SERIAL) == "2"
