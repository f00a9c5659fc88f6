"""Nodes in a bad state: it is said, nothing is lost, and nothing is given twice."""

from dataclasses import dataclass
from functools import partial

import pytest
from nodedevice_api.names import Condition, Reason

from tests.e2e.machine.cluster import SERIAL, MachineCluster, talker
from tests.e2e.machine.observed import (
    agent_restarts,
    condition,
    kill_agent,
    wait_condition,
    wait_event,
    wait_logged,
)

_PORTS = {"AAA": "1", "BBB": "2"}
_HOUR = 3600


@dataclass(frozen=True)
class Two:
    """A pod `old` that writes to its port, and the serial of the port that is left."""

    cluster: MachineCluster
    mine: str
    other: str

    def verify_undisturbed(self) -> None:
        """The pod has its port, and nobody else has."""
        self.cluster.until_heard(self.mine, "old")
        (held,) = self.cluster.devices_of("old")
        assert self.mine in held

    def verify_next_has_the_other(self) -> None:
        self.cluster.wait_running("new")
        self.cluster.until_heard(self.other, "new")
        (held,) = self.cluster.devices_of("new")
        assert self.other in held
        assert "new" not in self.cluster.machine.heard(self.mine)


@pytest.fixture
def two(cluster: MachineCluster) -> Two:
    for serial, port in _PORTS.items():
        cluster.plug(serial, port)
    cluster.wait_capacity(SERIAL, 2)
    cluster.run(talker("old"))
    (held,) = cluster.devices_of("old")
    mine, other = ("AAA", "BBB") if "AAA" in held else ("BBB", "AAA")
    found = Two(cluster, mine, other)
    found.verify_undisturbed()
    return found


def test_a_disk_that_is_read_only_after_an_error(two: Two) -> None:
    cluster = two.cluster
    cluster.machine.run(
        "mount -o remount,errors=remount-ro / && echo a test > /sys/fs/ext4/vda/trigger_fs_error; ! touch /x 2>/dev/null"
    )
    cluster.apply(talker("new"))
    wait_event(cluster, "new", "read-only file system")
    two.verify_undisturbed()
    assert not cluster.machine.heard(two.other)
    cluster.machine.reset()
    cluster.node.wait_ready()
    cluster.wait(lambda: cluster.is_running_again("old"), "the old pod runs again")
    two.verify_undisturbed()
    two.verify_next_has_the_other()


@pytest.mark.parametrize("seconds", [_HOUR, -_HOUR], ids=["forward", "back"])
def test_a_clock_that_jumps(two: Two, seconds: int) -> None:
    cluster = two.cluster
    jump = "date -s @$(( $(date +%s) + {} )) >/dev/null"
    cluster.machine.run(jump.format(seconds))
    try:
        cluster.apply(talker("new"))
        two.verify_next_has_the_other()
        two.verify_undisturbed()
        cluster.unplug(two.mine)
        cluster.wait(lambda: bool(cluster.unhealthy(SERIAL)), "the missing port is shown")
        cluster.plug(two.mine, _PORTS[two.mine])
        cluster.wait(lambda: not cluster.unhealthy(SERIAL), "it is healthy again")
        two.verify_undisturbed()
        assert condition(cluster, Condition.AGENT_READY) == ("True", Reason.LEASE_RENEWED)
        assert cluster.is_ready()
    finally:
        cluster.machine.run(jump.format(-seconds))


def test_a_runtime_that_restarts_in_a_loop(two: Two) -> None:
    """It is there for some seconds, again and again, which is too short for a pod's start."""
    cluster = two.cluster
    before = cluster.containers("default")
    kill = "systemctl kill --kill-whom=main --signal=KILL containerd"
    cluster.machine.run(f"systemd-run --quiet --unit=loop sh -c 'for round in 1 2 3 4 5 6; do {kill}; sleep 9; done'")
    cluster.apply(talker("new"))
    wait_logged(cluster, "container runtime unreachable; retrying", "nothing listens on")
    state = partial(cluster.machine.run, "systemctl is-active loop || true")
    cluster.wait(lambda: "inactive" in state(), "the loop has ended", every_seconds=1.0)
    two.verify_undisturbed()
    two.verify_next_has_the_other()
    wait_condition(cluster, Condition.INJECTABLE, "True", Reason.RUNTIME_CONNECTED)
    assert before.items() <= cluster.containers("default").items(), "a container that ran was started again"


def test_another_program_at_the_runtimes_socket(two: Two) -> None:
    cluster = two.cluster
    restarts = agent_restarts(cluster)
    listen = "systemd-socket-activate -l /run/nri/nri.sock --accept --inetd /bin/echo 220 mail.example.com ESMTP"
    cluster.machine.run(f"rm /run/nri/nri.sock; systemd-run --quiet --unit=foreign {listen}")
    try:
        kill_agent(cluster)
        cluster.wait(lambda: agent_restarts(cluster) > restarts, "the agent was started again")
        cluster.apply(talker("new"))
        wait_event(cluster, "new", 'required plugin "nodedevice" not present')
        wait_logged(cluster, "container runtime unreachable; retrying", "another program")
        wait_condition(cluster, Condition.INJECTABLE, "False", Reason.NO_RUNTIME)
        two.verify_undisturbed()
        assert "new" not in cluster.machine.heard(two.other)
    finally:
        cluster.machine.run("systemctl stop foreign; systemctl restart containerd")
    two.verify_next_has_the_other()
    wait_condition(cluster, Condition.INJECTABLE, "True", Reason.RUNTIME_CONNECTED)
