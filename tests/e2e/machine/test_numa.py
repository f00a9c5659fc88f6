"""A machine with two NUMA nodes: a USB device is of that of its controller."""

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from hack.cluster.processes.processes import removed_at_the_end
from hack.machine.node import MachineOptions
from tests.e2e.machine.cluster import SERIAL, MachineCluster, serial_ports
from tests.e2e.recording import RanOn


def test_usb_devices_have_their_controllers_node(progress: Callable[[str], None], ran_on: RanOn) -> None:
    folder = Path(mkdtemp(prefix="nd-"))
    options = MachineOptions(numa=True)
    with removed_at_the_end(folder), MachineCluster.start(folder, progress, options, number=1) as cluster:
        cluster.install(serial_ports())
        cluster.plug("FAR", "1", "xhci1.0")
        cluster.plug("NEAR", "1")
        cluster.wait_capacity(SERIAL, 2)
        ran_on(cluster.described)
        devices = {each["id"]: each.get("numaNodes", []) for each in cluster.node_device(SERIAL)["status"]["devices"]}
        (far,) = (nodes for name, nodes in devices.items() if "FAR" in name)
        (near,) = (nodes for name, nodes in devices.items() if "NEAR" in name)
        assert far == [1]
        assert near in ([0], [])
        # as the machine's own sysfs has it
        found = cluster.machine.run(
            "cat $(udevadm info -q path -n /dev/serial/by-id/*FAR* | sed 's|^|/sys|; s|/usb.*||')/numa_node"
        )
        assert found.strip() == "1"
