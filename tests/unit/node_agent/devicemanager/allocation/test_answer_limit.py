"""How much of plugins' answers a node keeps: what is refused, where that is shown, and what makes room."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from nodedevice_agent.devicemanager.allocation import answer_limit
from nodedevice_agent.devicemanager.container_edits import ContainerEdits, ContainerMount, DeviceFile
from nodedevice_agent.devicemanager.pods import Container
from nodedevice_agent.devicemanager.records.allocations import kept_octets
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.deviceplugin.codec import with_edits
from nodedevice_api.names import Reason
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, app, calls, held_by, pod, response

OTHER = "example.org/gpu"
# of one of these answers: b"ok", a variable and a device file
EACH = kept_octets(b"ok", response(b"ok").edits)


@pytest.fixture(autouse=True)
def _bounds() -> Iterator[None]:
    with patch.multiple(answer_limit, MAX_OCTETS=4 * EACH, MAX_OCTETS_OF_DOMAIN=3 * EACH):
        yield


def pods(scenario: Scenario, count: int) -> list[str]:
    """So many come; those that have their devices."""
    for number in range(count):
        scenario.run(pod(f"p{number}", gpu=1))
    return sorted(key.partition("/")[0] for key in scenario.held())


def test_what_exceeds_it_is_refused_and_the_pod_says_why_until_there_is_room() -> None:
    scenario = Scenario.with_plugin(8)
    assert pods(scenario, 5) == ["p0", "p1", "p2"]
    assert scenario.reasons() == {"p3": Reason.ALLOCATE_FAILED, "p4": Reason.ALLOCATE_FAILED}
    (message, _) = (pending.message for pending in scenario.manager.pending(GPU))
    assert message.startswith("the responses of plugins of example.com take 0 MiB on this node, which is the limit")
    # nothing is reserved for those that wait
    assert (scenario.snapshot().available, scenario.snapshot().allocated) == (5, 3)
    scenario.answer_all([*scenario.gone("p1"), *scenario.passes(60)])
    assert sorted(scenario.held()) == ["p0/main", "p2/main", "p3/main"]


def test_it_counts_by_domain_and_in_all() -> None:
    scenario = Scenario.with_plugin(8, nics=["n0", "n1"])
    scenario.plugin(8, OTHER, 3)
    scenario.run(pod("p0", gpu=1), pod("p1", nic=1), pod("p2", gpu=1), pod("p3", nic=1))
    assert (sorted(scenario.held()), sorted(scenario.held(NIC))) == (["p0/main", "p2/main"], ["p1/main"])
    scenario.run(*(pod(uid, Container("main", limits={OTHER: 1})) for uid in ("q0", "q1")))
    # one of another domain, and then there are as many as all may have
    assert sorted(scenario.held(OTHER)) == ["q0/main"]
    (pending,) = scenario.manager.pending(OTHER)
    assert pending.message.startswith("the responses of device plugins take")


def test_answers_of_a_pod_whose_containers_have_not_all_theirs_count() -> None:
    scenario = Scenario.with_plugin(8).run(pod("p", *(app(f"c{number}") for number in range(4))))
    assert (scenario.held(), scenario.reasons()) == ({}, {"p": Reason.ALLOCATE_FAILED})
    scenario.run(pod("q", *(app(f"c{number}") for number in range(3))))
    assert len(scenario.held()) == 3


def test_a_lost_answer_counts_when_it_comes_again() -> None:
    scenario = Scenario(Checkpoint(tuple(held_by(f"p{n}", f"d{n}", response=None) for n in range(5))))
    effects = scenario.plugin(8)
    scenario.happens("pod_events.synced", [pod(f"p{n}", gpu=1) for n in range(5)])
    assert len(calls(effects)) == 5
    scenario.answer_all(effects)
    answered = [allocation.pod_uid for allocation in scenario.manager.book if allocation.response is not None]
    assert (len(answered), len(scenario.held())) == (3, 5)
    # each is counted once, whatever happened to it: there is room for all others, and one more
    for uid in answered:
        scenario.gone(uid)
    scenario.answer_all(scenario.passes(60))
    assert all(allocation.response is not None for allocation in scenario.manager.book)
    assert len(pods(scenario, 2)) == 3


def test_a_checkpoint_with_more_loses_the_rest_of_its_answers() -> None:
    """Of an earlier agent, which would take more memory at each start."""
    answer = api_pb2.ContainerAllocateResponse(envs={"A": "b"}).SerializeToString()
    each = kept_octets(answer, ContainerEdits({"A": "b"}))
    with patch.multiple(answer_limit, MAX_OCTETS=3 * each, MAX_OCTETS_OF_DOMAIN=2 * each):
        names = (GPU, GPU, GPU, OTHER, OTHER)
        stored = tuple(held_by(f"p{n}", f"d{n}", name=name, response=answer) for n, name in enumerate(names))
        read = with_edits(Checkpoint(stored)).allocations
    for field in ("response", "edits"):
        assert [getattr(a, field) is not None for a in read] == [True, True, False, True, False]
    assert [allocation.device_ids for allocation in read] == [allocation.device_ids for allocation in stored]


@pytest.mark.parametrize(
    "edits",
    [
        pytest.param(ContainerEdits({"A": ""}), id="variable"),
        pytest.param(ContainerEdits(mounts=(ContainerMount("/a", "/b", False),)), id="mount"),
        pytest.param(ContainerEdits(devices=(DeviceFile("/a", "/b", "r"),)), id="device"),
        pytest.param(ContainerEdits(annotations={"a": ""}), id="annotation"),
        pytest.param(ContainerEdits(cdi_devices=("a/b=c",)), id="CDI device"),
    ],
)
def test_all_that_an_answer_is_made_of_counts(edits: ContainerEdits) -> None:
    assert kept_octets(b"12", edits) == kept_octets(b"12", None) + 200 == 204
    assert kept_octets(None, None) == 0
