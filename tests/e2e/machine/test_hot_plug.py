"""A USB serial port comes and goes: what a pod writes is heard by the very port that the API says it has."""

import time
from collections.abc import Callable

import pytest
from nodedevice_api.names import Condition

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


@pytest.mark.parametrize("kind", HOT_PLUGGED, ids=lambda kind: kind.driver)
def test_other_kinds_come_and_go(cluster: MachineCluster, kind: HotPlugged, progress: Callable[[str], None]) -> None:
    began = time.monotonic()
    command, arguments = kind.backend
    cluster.machine.command(command, **arguments)
    cluster.machine.add(kind.driver, id="plugged", **kind.properties)
    cluster.wait_capacity(kind.resource, 1)
    progress(f"{kind.driver}: in the Node {time.monotonic() - began:.1f} s after it was plugged in")
    cluster.run(user("opens", {kind.resource: 1}, "-open", kind.path))
    assert cluster.report_of("opens")["opened"][kind.path]["read"] == "ok"
    held = cluster.devices_of("opens", kind.resource)
    cluster.machine.remove("plugged")
    cluster.wait(lambda: cluster.unhealthy(kind.resource) == held, "it is shown as missing")
    cluster.machine.add(kind.driver, id="plugged", **kind.properties)
    cluster.wait(lambda: not cluster.unhealthy(kind.resource), "it is healthy again")
    assert cluster.devices_of("opens", kind.resource) == held
    cluster.machine.remove("plugged")


def test_a_free_port_that_is_pulled_out_leaves_the_node(cluster: MachineCluster) -> None:
    cluster.plug("BBB", "1")
    cluster.wait_capacity(SERIAL, 1)
    cluster.unplug("BBB")
    cluster.wait(lambda: not cluster.capacity().get(SERIAL), "the Node shows none")
    conditions = {c["type"]: c["status"] for c in cluster.node_device(SERIAL)["status"]["conditions"]}
    assert conditions[Condition.REGISTERED] == "True"
