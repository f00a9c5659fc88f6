"""Devices in a bad state: one that answers with I/O errors, and one that is pulled out while its container starts."""

import json

from nodedevice_api.names import node_device_name

from tests.cluster.build.images import TEST_IMAGE
from tests.cluster.errors import CommandError
from tests.e2e.chart.cluster import NODE, Json
from tests.e2e.chart.workloads import user
from tests.e2e.machine.cluster import NVME, SERIAL, MachineCluster, talker
from tests.e2e.machine.observed import NOT_THERE, condition, wait_event

_BAD_SECTOR = 8192
_BAD_DISK = {
    "driver": "blkdebug",
    "image": {"driver": "null-co", "size": 16 * 1024**2, "read-zeroes": True},
    "inject-error": [{"event": "none", "iotype": "read", "errno": 5, "sector": _BAD_SECTOR}],
}


def test_a_device_with_io_errors_is_its_pods_until_it_is_cordoned(cluster: MachineCluster) -> None:
    """Whether a device works only its user knows: the agent opens none, and nothing of it waits for one."""
    cluster.machine.command("blockdev-add", **{"node-name": "bad", **_BAD_DISK})
    cluster.machine.add("nvme", id="bad", drive="bad", serial="FLASH", bus="rp1")
    try:
        cluster.wait_capacity(NVME.resource, 1)
        cluster.run(user("reads", {NVME.resource: 1}))
        (held,) = cluster.devices_of("reads", NVME.resource)
        assert "Input/output error" in _read_all(cluster, "reads")
        assert condition(cluster, "Healthy", NVME.resource) == ("True", "AllHealthy")
        assert cluster.devices_of("reads", NVME.resource) == [held]

        _cordon(cluster, NVME.resource, {"id": held, "reason": "I/O errors"})
        cluster.control_plane.kubectl("delete", "pod", "reads")
        cluster.wait_capacity(NVME.resource, 0)
        cluster.apply(user("next", {NVME.resource: 1}))
        wait_event(cluster, "next", f"Insufficient {NVME.resource}")
    finally:
        _cordon(cluster, NVME.resource)
        cluster.machine.remove("bad")
        cluster.machine.command("blockdev-del", node_name="bad")


def test_a_device_that_is_pulled_out_before_its_container_starts(cluster: MachineCluster) -> None:
    """Allocated with the whole pod, and gone when the second container is created, which waits for it."""
    cluster.plug("AAA", "1")
    cluster.wait_capacity(SERIAL, 1)
    cluster.apply(_after_a_first_container(talker("late")))
    cluster.wait(lambda: "running" in _state_of_first(cluster, "late"), "the first container runs")
    held = cluster.devices_of("late")
    cluster.unplug("AAA")
    cluster.wait(lambda: cluster.unhealthy(SERIAL) == held, "its device is missing")
    cluster.plug("BBB", "2")
    cluster.control_plane.kubectl("exec", "late", "--container=first", "--", "touch", "/tmp/go")
    wait_event(cluster, "late", NOT_THERE)
    assert cluster.devices_of("late") == held
    cluster.plug("AAA", "3")
    cluster.until_heard("AAA", "late")
    assert "late" not in cluster.machine.heard("BBB")


def _read_all(cluster: MachineCluster, pod: str) -> str:
    """What a shell says that reads the whole device."""
    try:
        cluster.control_plane.kubectl("exec", pod, "--", "/bin/sh", "-c", f"cat {NVME.path} > /dev/null")
    except CommandError as error:
        return error.stderr
    return ""


def _cordon(cluster: MachineCluster, resource: str, *devices: Json) -> None:
    patch = json.dumps({"spec": {"cordonedDevices": list(devices)}})
    cluster.control_plane.kubectl(
        "patch", "nodedevice", node_device_name(NODE, resource), "--type=merge", "--patch", patch
    )


def _after_a_first_container(pod: Json) -> Json:
    """The pod with an init container before, which ends on demand."""
    script = "until [ -e /tmp/go ]; do sleep 0.2; done"
    first = {"name": "first", "image": TEST_IMAGE, "command": ["/bin/sh", "-c", script]}
    return {**pod, "spec": {**pod["spec"], "initContainers": [first]}}


def _state_of_first(cluster: MachineCluster, pod: str) -> Json:
    states = cluster.pod(pod)["status"].get("initContainerStatuses", [])
    return dict(states[0]["state"]) if states else {}
