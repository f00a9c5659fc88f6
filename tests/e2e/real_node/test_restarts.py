"""Whatever of a node ends and comes back, in any order: who runs goes on with the devices it has, and who comes gets others.

A reboot is acted out: every process of the node gone at once, its disk kept, another boot id. With NRI every pod comes back and
waits for its devices. Where the kubelet allocates, it fails what it checks before the resource is registered again; so
docs/delivery.md says.
"""

import os
import signal
from collections.abc import Callable

import pytest

from tests.e2e.real_node.node_under_test import NRI, NodeUnderTest
from tests.e2e.real_node.pods import Json, container, marked, pod

Restart = Callable[[NodeUnderTest], None]


def _agent(of: NodeUnderTest) -> None:
    with of.registering_again():
        of.agent.kill()
        of.start_agent()


def _containerd(of: NodeUnderTest) -> None:
    of.node.containerd.kill()
    of.node.start_containerd()


def _kubelet(of: NodeUnderTest) -> None:
    with of.registering_again():
        of.node.kubelet.kill()
        of.node.start_kubelet()


def _all_three(of: NodeUnderTest) -> None:
    with of.registering_again():
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


def test_what_comes_back_has_a_device_of_its_own(our_node: NodeUnderTest) -> None:
    rw = our_node.kinds["rw"]
    for name in ("one", "two"):
        our_node.run(pod(name, [container("main", {rw.resource: 1})]))
        our_node.seen(name)
    boot_id = our_node.node.machine.boot_id
    our_node.reboot()
    assert our_node.node.machine.boot_id != boot_id
    back = [name for name in ("one", "two") if _comes_back(our_node, name)]
    assert back == ["one", "two"] or our_node.delivery != NRI
    given = [_given_at_last(our_node, name) for name in back]
    assert len(set(given)) == len(given)
    our_node.delete("one", "two")
    our_node.run(pod("last", [container("main", {rw.resource: 3})]))
    our_node.delete("last")


@pytest.mark.kubelet("scenario 93", "weak spot 4")
def test_plugins_that_are_late(our_node: NodeUnderTest) -> None:
    """The agent is up long before its plugin: no container starts in between."""
    rw = our_node.kinds["rw"]
    our_node.run(pod("early", [container("main", {rw.resource: 1})]))
    our_node.seen("early")
    with our_node.rebooted_without_plugins():
        our_node.run(pod("plain", [container("main")]))
        assert len(our_node.starts("early")) == 1
    assert _comes_back(our_node, "early") == (our_node.delivery == NRI)
    our_node.delete("early", "plain")
    # what failed pods had is everybody's again
    our_node.run(pod("all", [container("main", {rw.resource: 3})]))
    our_node.delete("all")


def test_a_static_pod(our_node: NodeUnderTest) -> None:
    """One that the kubelet has failed has no owner to make another: its file has to go and come again."""
    body = marked(pod("fixed", [container("main", {our_node.kinds["rw"].resource: 1})]))
    with our_node.static(body) as name:
        our_node.wait_running(name)
        our_node.seen(name)
        our_node.reboot()
        is_back = _comes_back(our_node, name)
        assert is_back or our_node.delivery != NRI
        assert not is_back or _given_at_last(our_node, name)
    with our_node.static(body) as name:
        our_node.wait_starts(name, 3 if is_back else 2)
        assert _given_at_last(our_node, name)


def _comes_back(of: NodeUnderTest, name: str) -> bool:
    """Wait until the pod has started for the second time, or is failed for want of its devices; whether it has started."""
    of.wait(name, lambda found: len(of.starts(name)) == 2 or _is_failed(found), "is back, or failed")
    return len(of.starts(name)) == 2


def _is_failed(found: Json) -> bool:
    status = found.get("status", {})
    return (status.get("phase"), status.get("reason")) == ("Failed", "UnexpectedAdmissionError")


def _given_at_last(of: NodeUnderTest, name: str) -> str:
    """The device that the only container of a pod has since its last start."""
    rw, seen = of.kinds["rw"], of.seen(name)
    assert seen.env[rw.env] in rw.files
    assert not seen.shared
    return seen.env[rw.env]
