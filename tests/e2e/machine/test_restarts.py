"""The machine is reset, rebooted, and loses its power: every pod comes back with its own device."""

import time
from collections.abc import Callable

from tests.e2e.machine.cluster import SERIAL, MachineCluster, talker


def test_a_reset_swaps_nobodys_device(cluster: MachineCluster, progress: Callable[[str], None]) -> None:
    """Not even when the ports change places meanwhile: kernel names do then, IDs do not."""
    ports = {"AAA": "1", "BBB": "2"}
    for serial, port in ports.items():
        cluster.plug(serial, port)
    cluster.wait_capacity(SERIAL, 2)
    for name in ("one", "two"):
        cluster.run(talker(name))
    held = {name: cluster.devices_of(name) for name in ("one", "two")}
    serial_of = {name: next(serial for serial in ports if serial in ids[0]) for name, ids in held.items()}
    for name, serial in serial_of.items():
        cluster.until_heard(serial, name)

    began = time.monotonic()
    cluster.machine.reset()
    cluster.node.wait_ready()
    for name in held:
        cluster.wait(lambda name=name: cluster.is_running_again(name), f"pod {name} runs again")  # type: ignore[misc]
    progress(f"both pods were back {time.monotonic() - began:.0f} s after the reset")
    for name, serial in serial_of.items():
        cluster.until_heard(serial, name)
        assert cluster.devices_of(name) == held[name]
