"""Serial ports that come back under other names of the kernel, to pods that run on."""

from functools import partial

from nodedevice_api.names import Condition, Reason

from tests.e2e.chart.cluster import Json
from tests.e2e.machine.cluster import BY_ID, SELECTED, SERIAL, MachineCluster, talker, two_talkers
from tests.e2e.machine.observed import NOT_THERE, wait_condition, wait_event, wait_logged


def test_a_port_is_pulled_out_while_a_program_has_it_open(cluster: MachineCluster) -> None:
    """The program ends by it; its container starts again when the port is back, wherever it is plugged in."""
    cluster.plug("AAA", "1")
    cluster.wait_capacity(SERIAL, 1)
    cluster.run(_holds_open(talker("keeps")))
    cluster.until_heard("AAA", "keeps")
    held = cluster.devices_of("keeps")
    cluster.unplug("AAA")
    wait_event(cluster, "keeps", NOT_THERE)
    cluster.machine.run("systemctl daemon-reload")
    # takes the kernel's name of the one before
    cluster.plug("BBB", "1")
    cluster.plug("AAA", "2")
    cluster.until_heard("AAA", "keeps")
    assert cluster.devices_of("keeps") == held
    assert "keeps" not in cluster.machine.heard("BBB")


def test_ports_that_come_back_in_another_order(cluster: MachineCluster) -> None:
    """As behind a hub that loses its power: it is said of containers that have the other's number, and the next have their own."""
    _come_back_in_another_order(cluster, SERIAL)


def test_selected_ports_that_come_back_in_another_order(selecting_cluster: MachineCluster) -> None:
    """The same, selected by their vendor: containers have them under the kernel's names."""
    _come_back_in_another_order(selecting_cluster, SELECTED)


def _come_back_in_another_order(cluster: MachineCluster, resource: str) -> None:
    ports = {"AAA": "1", "BBB": "2"}
    serial_of = two_talkers(cluster, ports, resource)
    held = {name: cluster.devices_of(name, resource) for name in serial_of}
    before = cluster.kernel_names()
    for serial in ports:
        cluster.unplug(serial)
    cluster.wait(lambda: len(cluster.unhealthy(resource)) == 2, "both are missing")
    for serial in reversed(ports):
        cluster.plug_named(serial, ports[serial])
    assert cluster.kernel_names() == dict(zip(before, reversed(before.values()), strict=True))
    wait_condition(cluster, Condition.INJECTABLE, "True", Reason.DEVICES_RENUMBERED, resource)
    wait_logged(cluster, "device file of a container is not its device's any more", resource)

    cluster.machine.run("kill -9 $(pgrep -f 'do for port in')")
    for name in held:
        cluster.wait(partial(cluster.is_running_again, name), f"pod {name} runs again")
    wait_condition(cluster, Condition.INJECTABLE, "True", Reason.RUNTIME_CONNECTED, resource)
    for name, serial in serial_of.items():
        (other,) = {*ports} - {serial}
        cluster.machine.heard(other)
        cluster.until_heard(serial, name)
        assert name not in cluster.machine.heard(other)
        assert cluster.devices_of(name, resource) == held[name]


def _holds_open(pod: Json) -> Json:
    script = f'for port in {BY_ID}/*; do exec 3<>"$port"; done; while echo "$NAME" >&3; do sleep 0.5; done; exit 1'
    (container,) = pod["spec"]["containers"]
    container["command"] = ["/bin/sh", "-c", script]
    return pod
