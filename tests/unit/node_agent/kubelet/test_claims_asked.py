"""For which pods with claims the kubelet is asked again, and when: no checkpoint says that their devices have changed."""

from functools import partial
from typing import Final

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.devicemanager.pods import ClaimUse, Pod, PodClaims, UnhealthyDevice
from nodedevice_agent.kubelet.pod_rows import DOUBTED_SECONDS
from nodedevice_agent.kubelet.readings import Pace

from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.devicemanager.scenario import GPU, pod
from tests.unit.node_agent.dra import claimed
from tests.unit.node_agent.kubelet.reader_node import Node, Recorder

row: Final = partial(claimed.row, container="c0")
USES: Final = (ClaimUse("c0", "claim"),)
BOUND, PREPARED = PodClaims(USES), PodClaims(USES, are_prepared=True)


def claiming(name: str, claims: PodClaims = PREPARED, uid: str = "") -> Pod:
    return replace(pod(uid or name), name=name, claims=claims)


def shown(node: Node) -> list[str]:
    return sorted(f"{each.name} {each.device}" for each in node.recorded.pods[-1].claim_rows)


async def read(node: Node) -> dict[str, int]:
    """Returns how often Get and List were called for it."""
    node.kubelet.calls.clear()
    node.recorded.is_outdated = True
    await node.reader.read()
    return {name: count for name, count in node.kubelet.calls.items() if name in ("Get", "List")}


async def listed(node: Node) -> list[str]:
    """As when the next list is due."""
    node.recorded.pace = Pace(list_seconds=0.0)
    assert await read(node) == {"List": 1}
    node.recorded.pace = Recorder.pace
    return shown(node)


@pytest.fixture
async def claims(node: Node) -> Node:
    """It has listed 110 pods, of which 20 have claims."""
    for number in range(110):
        name = f"p{number:03}"
        node.pods[name] = claiming(name) if number < 20 else pod(name)
    node.pods |= {"one": pod("one", gpu=1), "two": pod("two", gpu=1)}
    node.kubelet.claim_rows = tuple(row(f"p{number:03}") for number in range(20))
    assert await read(node) == {"List": 1}
    return node


async def test_a_start_is_one_get_once_the_claims_are_prepared(claims: Node) -> None:
    claims.pods["new"] = claiming("new", BOUND)
    assert await read(claims) == {}
    claims.pods["new"] = claiming("new")
    claims.kubelet.claim_rows += (row("new"),)
    assert await read(claims) == {"Get": 1}
    assert claims.kubelet.asked == ["new"]
    assert "new gpu-0" in shown(claims)
    # a container has started, or its health has changed
    claims.pods["new"] = claiming("new", PodClaims(USES, True, (UnhealthyDevice("c0", "claim", "x=a"),)))
    assert await read(claims) == {}


@pytest.mark.parametrize("is_known", [False, True], ids=["the kubelet has it no more", "the kubelet has it yet"])
async def test_an_end_is_one_get(claims: Node, is_known: bool) -> None:
    del claims.pods["p000"]
    claims.kubelet.claim_rows = claims.kubelet.claim_rows[1:]
    claims.kubelet.without_devices = {("default", "p000")} if is_known else set()
    assert await read(claims) == {"Get": 1}
    assert claims.kubelet.asked == ["p000"]
    assert len(shown(claims)) == 19
    assert await read(claims) == {}


async def test_devices_of_a_plugin_are_free_as_their_pod_ends_whatever_the_kubelet_remembers(claims: Node) -> None:
    claims.kubelet.rows += (PodResourcesRow("default", "p000", "c0", GPU, ("c",)),)
    await listed(claims)
    del claims.pods["p000"]
    assert await read(claims) == {"Get": 1}
    assert [each.name for each in claims.recorded.pods[-1].rows or ()] == ["one"]
    assert "p000 gpu-0" in shown(claims)


async def test_pods_without_claims_cost_nothing(claims: Node) -> None:
    claims.pods["new"] = pod("new")
    del claims.pods["p100"]
    claims.pods["p101"] = replace(pod("p101"), is_terminating=True)
    assert await read(claims) == {}
    assert len(shown(claims)) == 20


async def test_another_sandbox_is_another_preparation(claims: Node) -> None:
    claims.pods["p000"] = claiming("p000", BOUND)
    assert await read(claims) == {}
    claims.pods["p000"] = claiming("p000")
    claims.kubelet.claim_rows = (row("p000", "gpu-1"), *claims.kubelet.claim_rows[1:])
    assert await read(claims) == {"Get": 1}
    assert "p000 gpu-1" in shown(claims)


async def test_a_claim_that_is_made_late_is_asked_for(claims: Node) -> None:
    """Its name comes to the pod's status by itself."""
    claims.pods["p000"] = claiming("p000", PodClaims((*USES, ClaimUse("c0", "late")), are_prepared=True))
    assert await read(claims) == {"Get": 1}


@pytest.mark.parametrize(("count", "calls"), [(4, {"Get": 4}), (5, {"List": 1})])
async def test_more_than_a_few_are_listed(claims: Node, count: int, calls: dict[str, int]) -> None:
    for number in range(count):
        claims.pods[f"new{number}"] = claiming(f"new{number}")
        claims.kubelet.claim_rows += (row(f"new{number}"),)
    assert await read(claims) == calls
    assert len(shown(claims)) == 20 + count


async def test_the_end_of_a_mirror_pod_shows_in_a_list(claims: Node) -> None:
    """It is not that of its static pod."""
    claims.pods["mirror"] = replace(pod("mirror"), config_hash="0123456789abcdef0123456789abcdef")
    assert await read(claims) == {}
    del claims.pods["mirror"]
    assert await read(claims) == {"List": 1}


async def test_a_kubelet_that_does_not_answer_for_the_pod_lists_all(claims: Node) -> None:
    claims.pods["new"] = claiming("new")
    assert await read(claims) == {"Get": 1, "List": 1}
    assert len(shown(claims)) == 20


async def test_it_is_not_get_that_a_kubelet_lacks_which_has_just_started(claims: Node) -> None:
    """It does not know its pods yet."""
    socket = claims.kubelet.directory.pod_resources
    socket.parent.mkdir(exist_ok=True)
    socket.touch()
    before = shown(claims)
    claims.kubelet.claim_rows = ()
    for late in ("late", "later"):
        claims.pods["p000"] = claiming("p000", PodClaims((*USES, ClaimUse("c0", late)), are_prepared=True))
        assert await read(claims) == {"Get": 1, "List": 1}
        assert shown(claims) == before


@virtual_time
async def test_a_pod_with_a_sandbox_keeps_its_devices_though_the_kubelet_lists_none(claims: Node) -> None:
    rows, before = claims.kubelet.claim_rows, shown(claims)
    claims.kubelet.claim_rows = ()
    assert await listed(claims) == before
    # each reading is by a thread that the loop's clock does not wait for
    await later(DOUBTED_SECONDS / 2)
    assert await listed(claims) == before
    # after a while it is believed
    await later(DOUBTED_SECONDS / 2)
    assert await listed(claims) == []
    claims.kubelet.claim_rows = rows
    assert await listed(claims) == before
    claims.kubelet.claim_rows = rows[1:]
    assert await listed(claims) == before
    claims.pods["p001"] = claiming("p001", PodClaims((*USES, ClaimUse("c0", "late")), are_prepared=True))
    assert await read(claims) == {"Get": 1}


@virtual_time
async def test_doubts_begin_anew_with_each_answer(claims: Node) -> None:
    rows, before = claims.kubelet.claim_rows, shown(claims)
    for _ in range(3):
        claims.kubelet.claim_rows = ()
        assert await listed(claims) == before
        await later(DOUBTED_SECONDS - 1)
        claims.kubelet.claim_rows = rows
        assert await listed(claims) == before


async def test_of_a_pod_that_has_no_sandbox_or_ended_the_kubelet_is_believed(claims: Node) -> None:
    claims.kubelet.claim_rows = claims.kubelet.claim_rows[4:]
    claims.pods["p000"] = claiming("p000", BOUND)
    del claims.pods["p001"]
    del claims.pods["p002"]
    claims.pods["other"] = claiming("p002", uid="other")
    assert [each for each in await listed(claims) if each < "p004"] == ["p003 gpu-0"]


async def test_devices_of_a_plugin_are_as_they_are_listed(claims: Node) -> None:
    claims.kubelet.claim_rows = ()
    claims.kubelet.rows = (PodResourcesRow("default", "p000", "c0", GPU, ("c",)),)
    assert "p000 gpu-0" in await listed(claims)
    assert [each.name for each in claims.recorded.pods[-1].rows or ()] == ["p000"]
