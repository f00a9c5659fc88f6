"""The machine is reset, rebooted, and loses its power: every pod comes back with its own device."""

import time
from collections.abc import Callable
from functools import partial

from tests.e2e.machine.cluster import SERIAL, MachineCluster, talker, two_talkers


def test_a_reset_swaps_nobodys_device(cluster: MachineCluster, progress: Callable[[str], None]) -> None:
    """Not even when the ports change places meanwhile: kernel names do then, IDs do not."""
    ports = {"AAA": "1", "BBB": "2"}
    exchanged = dict(zip(ports, reversed(ports.values()), strict=True))
    serial_of = two_talkers(cluster, ports)
    held = {name: cluster.devices_of(name) for name in serial_of}
    before = cluster.kernel_names()

    began = time.monotonic()
    cluster.machine.reset()
    for serial in ports:
        cluster.unplug(serial)
    for serial, port in exchanged.items():
        cluster.plug(serial, port)
    cluster.node.wait_ready()
    for name in held:
        cluster.wait(partial(cluster.is_running_again, name), f"pod {name} runs again")
    progress(f"all {len(held)} pods were back {time.monotonic() - began:.0f} s after the reset")
    assert cluster.kernel_names() == dict(zip(before, reversed(before.values()), strict=True))
    for name, serial in serial_of.items():
        cluster.until_heard(serial, name)
        assert cluster.devices_of(name) == held[name]


def test_after_a_power_cut_a_pod_waits_for_its_device(cluster: MachineCluster, progress: Callable[[str], None]) -> None:
    """It is not there when the machine starts: no container starts without it, and with another one at its port neither."""
    ports = {"AAA": "1", "BBB": "2"}
    for serial, port in ports.items():
        cluster.plug(serial, port)
    cluster.wait_capacity(SERIAL, 2)
    cluster.run(talker("waits"))
    (held,) = cluster.devices_of("waits")
    mine, other = ("AAA", "BBB") if "AAA" in held else ("BBB", "AAA")
    cluster.until_heard(mine, "waits")

    began = time.monotonic()
    cluster.machine.kill()
    cluster.machine.start()
    cluster.plug(other, ports[mine])
    cluster.node.wait_ready()
    cluster.wait(lambda: cluster.unhealthy(SERIAL) == [held], "its device is missing")
    assert not cluster.is_running_again("waits")
    assert cluster.devices_of("waits") == [held]
    cluster.plug(mine, ports[other])
    cluster.wait(lambda: cluster.is_running_again("waits"), "it runs again")
    progress(f"the pod was back {time.monotonic() - began:.0f} s after the power cut")
    cluster.until_heard(mine, "waits")
    assert "waits" not in cluster.machine.heard(other)


def test_an_orderly_reboot_gives_devices_back(cluster: MachineCluster) -> None:
    """The kubelet ends pods before the machine goes: what they held is free when it is back."""
    cluster.plug("AAA", "1")
    cluster.wait_capacity(SERIAL, 1)
    cluster.run(talker("ends"))
    cluster.machine.run("systemctl reboot --no-block")
    cluster.wait(lambda: cluster.pod("ends")["status"]["phase"] in ("Failed", "Succeeded"), "the pod was ended")
    cluster.wait(lambda: not cluster.is_ready(), "the Node is not ready")
    cluster.node.wait_ready()
    cluster.wait_capacity(SERIAL, 1)
    cluster.wait(lambda: not cluster.devices_of("ends"), "nobody holds the device")
    cluster.run(talker("next"))
    cluster.until_heard("AAA", "next")
