"""Without the agent no container starts that asked for a device; those that ask for nothing do not notice.

Where no policy marks pods, the runtime can require the agent for every container of the node but for those that are excepted.
Injectable shows whether the runtime holds containers back while the agent is away, as the runtime itself reports it.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from nodedevice_api.names import REQUIRED_PLUGINS_ANNOTATION, Condition, Reason

from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import Json, container, pod

Away = Callable[[NodeUnderTest], AbstractContextManager[None]]


@contextmanager
def _killed(of: NodeUnderTest) -> Iterator[None]:
    of.agent.kill()
    try:
        yield
    finally:
        of.start_agent()


@contextmanager
def _stopped(of: NodeUnderTest) -> Iterator[None]:
    """Alive, and silent."""
    of.agent.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        of.agent.signal(signal.SIGCONT)


@pytest.mark.kubelet("weak spot 27")
@pytest.mark.parametrize("away", [_killed, _stopped], ids=["killed", "stopped"])
def test_no_container_starts_without_its_device(nri_node: NodeUnderTest, away: Away) -> None:
    rw = nri_node.kinds["rw"]
    with away(nri_node):
        nri_node.create(pod("asks", [container("main", {rw.resource: 1})]))
        plain = nri_node.run(pod("plain", [container("main")]))
        assert REQUIRED_PLUGINS_ANNOTATION not in plain["metadata"].get("annotations", {})
        nri_node.wait_refused("asks")
        assert not nri_node.starts("asks")
    # the kubelet tries again by itself
    nri_node.wait_running("asks")
    assert nri_node.seen("asks").env[rw.env] in rw.files
    assert len(nri_node.starts("asks")) == 1
    nri_node.delete("asks", "plain")


@pytest.mark.parametrize("away", [_killed, _stopped], ids=["killed", "stopped"])
def test_by_way_of_the_kubelet_neither(kubelet_node: NodeUnderTest, away: Away) -> None:
    """What becomes of the pod is the kubelet's decision; a stopped agent holds up all of its new pods, as any plugin would."""
    rw = kubelet_node.kinds["rw"]
    with away(kubelet_node):
        kubelet_node.create(pod("asks", [container("main", {rw.resource: 1})]))
        kubelet_node.wait("asks", _is_decided, "is with the kubelet, or cannot be placed")
        assert not kubelet_node.starts("asks")
    kubelet_node.wait_advertised()
    kubelet_node.delete("asks")
    assert all(rw.env in seen.env for seen in kubelet_node.starts("asks"))


def _is_decided(found: Json) -> bool:
    status = found.get("status", {})
    return status.get("phase") == "Failed" or any(
        condition["type"] == "PodScheduled" for condition in status.get("conditions", [])
    )


_TABLE = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\n"
_EXCEPTED = "tolerate-missing-plugins.noderesource.dev"
_OF_ALL = f"""\
required_plugins = [ "nodedevice" ]
tolerate_missing_plugins_annotation = "{_EXCEPTED}"
"""


def test_nothing_but_what_is_excepted_starts_while_the_agent_is_away(nri_node: NodeUnderTest) -> None:
    rw = nri_node.kinds["rw"]
    excepted = pod("excepted", [container("main")])
    excepted["metadata"]["annotations"] = {_EXCEPTED: "true"}
    with nri_node.containerd_with(_TABLE, _TABLE + _OF_ALL):
        nri_node.agent.kill()
        nri_node.run(excepted)
        nri_node.create(pod("plain", [container("main")]))
        # no policy has marked it
        with nri_node.static(pod("asks", [container("main", {rw.resource: 1})])) as asking:
            for name in ("plain", asking):
                nri_node.wait_refused(name)
                assert not nri_node.starts(name)
        nri_node.start_agent()
        nri_node.wait_running_nudged("plain")
        nri_node.delete("excepted", "plain")


_ON = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n"


def test_whether_it_is_on_and_that_it_was_switched_off(nri_node: NodeUnderTest) -> None:
    _wait_reported_after_a_container(nri_node, Reason.RUNTIME_CONNECTED, "is on")
    with nri_node.containerd_with(_ON, _ON.replace("true", "false")):
        _wait_reported_after_a_container(nri_node, Reason.NO_VALIDATOR, "enable it as docs/install.md shows")
    _wait_reported_after_a_container(nri_node, Reason.RUNTIME_CONNECTED, "is on")


def _wait_reported_after_a_container(of: NodeUnderTest, reason: str, end: str) -> None:
    """Of a pod that asks for nothing."""
    of.run(pod("plain", [container("main")]))

    def is_reported() -> bool:
        found = of.condition(of.kinds["rw"].resource, Condition.INJECTABLE)
        return bool(found["status"] == "True" and found["reason"] == reason and found["message"].endswith(end))

    of.until(is_reported, f"Injectable: {reason}, … {end}")
    of.delete("plain")
