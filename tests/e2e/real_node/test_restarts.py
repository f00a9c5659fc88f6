"""Whatever of a node ends and comes back, in any order: who runs goes on with the devices it has, and who comes gets others."""

import os
import signal
from collections.abc import Callable

import pytest

from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod

Restart = Callable[[NodeUnderTest], None]


def _agent(of: NodeUnderTest) -> None:
    of.agent.kill()
    of.start_agent()


def _containerd(of: NodeUnderTest) -> None:
    of.node.containerd.kill()
    of.node.start_containerd()


def _kubelet(of: NodeUnderTest) -> None:
    of.node.kubelet.kill()
    of.node.start_kubelet()


def _all_three(of: NodeUnderTest) -> None:
    for process in (of.agent, of.node.kubelet, of.node.containerd):
        process.kill()
    # the agent first: what it needs is not there yet
    of.agent.start()
    of.node.start_containerd()
    of.node.start_kubelet()
    of.wait_agent()


@pytest.mark.kubelet("behaviour 41", "scenario 86", "scenario 89", "scenario 90")
@pytest.mark.parametrize("restart", [_agent, _containerd, _kubelet, _all_three], ids=lambda found: found.__name__[1:])
def test_what_runs_goes_on_and_what_comes_gets_another(our_node: NodeUnderTest, restart: Restart) -> None:
    rw = our_node.kinds["rw"]
    our_node.run(pod("before", [container("main", {rw.resource: 1})]))
    mine = our_node.seen("before").env[rw.env]
    restart(our_node)
    our_node.run(pod("after", [container("main", {rw.resource: 2})]))
    after = our_node.seen("after")
    assert mine not in after.env[rw.env].split(",")
    assert not after.shared
    assert len(our_node.starts("before")) == 1
    our_node.delete("before", "after")
    our_node.run(pod("last", [container("main", {rw.resource: 3})]))
    assert not our_node.seen("last").shared
    our_node.delete("last")


def test_a_container_that_ends_meanwhile_starts_with_the_same(nri_node: NodeUnderTest) -> None:
    """All four at once: agent, runtime, kubelet and the container itself.

    Not where the kubelet allocates: it fails a pod with an ended container that it sees before its plugin is back.
    """
    rw = nri_node.kinds["rw"]
    nri_node.run(pod("again", [container("main", {rw.resource: 1})]))
    nri_node.seen("again")
    pid = nri_node.pid_of("again", "main")
    for process in (nri_node.agent, nri_node.node.kubelet, nri_node.node.containerd):
        process.kill()
    os.kill(pid, signal.SIGKILL)
    nri_node.node.start_containerd()
    nri_node.node.start_kubelet()
    nri_node.start_agent()
    nri_node.wait_starts("again", 2)
    first, second = nri_node.starts("again")
    assert first.env[rw.env] == second.env[rw.env]
    assert not second.shared
    nri_node.delete("again")
