"""A USB serial port comes and goes: what a pod writes is heard by the very port that the API says it has."""

import time
from collections.abc import Callable
from functools import partial

from tests.e2e.chart.workloads import user
from tests.e2e.machine.cluster import HOT_PLUGGED, SERIAL, HotPlugged, MachineCluster, talker


def test_a_port_is_plugged_in_held_pulled_out_and_back(
    cluster: MachineCluster, progress: Callable[[str], None]
) -> None:
    began = time.monotonic()
    cluster.plug("AAA", "1")
    cluster.wait_capacity(SERIAL, 1)
    progress(f"a serial port was in the Node {time.monotonic() - began:.1f} s after it was plugged in")
    cluster.run(talker("talks"))
    cluster.until_heard("AAA", "talks")
    held = cluster.devices_of("talks")
    assert len(held) == 1
    assert "AAA" in held[0]

    began = time.monotonic()
    cluster.unplug("AAA")
    cluster.wait(lambda: cluster.unhealthy(SERIAL) == held, "the API says that the pod's device is missing")
    progress(f"the API said so {time.monotonic() - began:.1f} s after it was pulled out")
    assert cluster.devices_of("talks") == held
    # at another port it is the same device
    cluster.plug("AAA", "2")
    cluster.wait(lambda: not cluster.unhealthy(SERIAL), "it is healthy again")
    cluster.until_heard("AAA", "talks")
    assert cluster.devices_of("talks") == held


def test_other_kinds_come_and_go(cluster: MachineCluster, progress: Callable[[str], None]) -> None:
    """A pod for each, side by side."""
    for kind in HOT_PLUGGED:
        began = time.monotonic()
        command, arguments = kind.backend
        cluster.machine.command(command, **arguments)
        cluster.machine.add(kind.driver, id=kind.driver, **kind.properties)
        cluster.wait_capacity(kind.resource, 1)
        progress(f"{kind.driver}: in the Node {time.monotonic() - began:.1f} s after it was plugged in")
    cluster.apply(*(user(kind.driver, {kind.resource: 1}, "-open", kind.path) for kind in HOT_PLUGGED))
    for kind in HOT_PLUGGED:
        assert cluster.report_of(kind.driver)["opened"][kind.path]["read"] == "ok"
        held = cluster.devices_of(kind.driver, kind.resource)
        cluster.machine.remove(kind.driver)
        cluster.wait(partial(_is_unhealthy, cluster, kind, held), f"{held} is shown as missing")
        cluster.machine.add(kind.driver, id=kind.driver, **kind.properties)
        cluster.wait(partial(_is_unhealthy, cluster, kind, []), f"{held} is healthy again")
        assert cluster.devices_of(kind.driver, kind.resource) == held
        cluster.machine.remove(kind.driver)


def _is_unhealthy(cluster: MachineCluster, kind: HotPlugged, devices: list[str]) -> bool:
    """Whether exactly these of its devices are."""
    return cluster.unhealthy(kind.resource) == devices
