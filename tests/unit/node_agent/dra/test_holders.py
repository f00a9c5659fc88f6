"""Who has devices of DRA drivers, as the kubelet, the API and the claims say it one after the other."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.pods import ClaimUse, Container, ContainerKind, Pod, UnhealthyDevice
from nodedevice_agent.dra.holders import Holders, Wanted
from nodedevice_agent.dra.holdings import Claim, DeviceKey
from nodedevice_agent.kubelet.codec import MAX_CLAIM_ROWS_OF_POD
from nodedevice_agent.kubelet.readings import ClaimRow, PodReading

from tests.fakes.turns import Lines, turns
from tests.unit.node_agent.dra.claimed import DRIVER, KEY, POOL, claim, pod, reading, result, row


class Claims:
    """What was read of them, by name; those that are awaited."""

    def __init__(self) -> None:
        self.on_read: Callable[[], None] = lambda: None
        self.known: dict[str, Claim] = {}
        self.awaited: set[str] = set()
        self.asked: Wanted = {}

    def wanted(self, claims: Wanted) -> None:
        self.asked = claims

    def of(self, namespace: str, name: str, pod_uid: str) -> Claim | None:
        return self.known.get(name)

    def is_awaited(self, namespace: str, name: str, pod_uid: str) -> bool:
        return name in self.awaited


class Node:
    """holders, and what it has called for so far."""

    def __init__(self) -> None:
        self.claims = Claims()
        self.woken = self.known = 0
        self.changed: list[str] = []
        self.holders = Holders(cast(Any, self.claims), self._wake)
        self.holders.on_known = self._is_known
        self.holders.on_changed = lambda key: self.changed.append("/".join(key))

    def _wake(self) -> None:
        self.woken += 1

    def _is_known(self) -> None:
        assert self.holders.is_known
        self.known += 1

    @property
    def held(self) -> dict[str, list[str]]:
        return {each.name: each.device_ids for each in self.holders.of(KEY).allocations}

    @property
    def releasing(self) -> list[str]:
        return [each.name for each in self.holders.of(KEY).allocations if each.releasing]

    def is_asked_again(self) -> bool:
        """Whether the kubelet is, since the last time; as the reader does it."""
        found, self.holders.is_outdated, self.woken = (self.holders.is_outdated, bool(self.woken)), False, 0
        assert found[0] is found[1]
        return found[0]


def wanted(*uids: str) -> tuple[frozenset[str], frozenset[DeviceKey]]:
    return frozenset(uids), frozenset({(DRIVER, POOL, "gpu-0", "")})


@pytest.fixture
def node() -> Node:
    """Pod a has a device, pod b none."""
    made = Node()
    made.holders.pods_synced([pod("a", "claim"), pod("b")])
    made.is_asked_again()
    made.holders.pods_read(reading(row("a")))
    made.changed.clear()
    return made


def test_it_is_known_once_the_kubelet_and_the_api_have_answered_and_claims_were_tried() -> None:
    node = Node()
    assert node.holders.is_outdated
    node.claims.awaited = {"claim"}
    node.holders.pods_read(reading(row("a")))
    assert not node.holders.is_known
    node.holders.pods_synced([pod("a", "claim")])
    assert (node.holders.is_known, node.held, node.known) == (False, {}, 0)
    assert node.claims.asked == {("default", "claim"): wanted("uid-a")}
    node.claims.awaited.clear()
    node.claims.known["claim"] = claim(result(admin_access=True))
    node.claims.on_read()
    assert (node.held, node.known, node.changed) == ({"a": ["gpu-0"]}, 1, [f"{DRIVER}/{POOL}"])
    (only,) = node.holders.of(KEY).allocations
    assert only.claim is not None
    assert only.claim.devices[0].admin_access


def test_a_node_without_claims_is_known_too() -> None:
    node = Node()
    node.holders.pods_synced([pod("b")])
    node.holders.pods_read(reading())
    assert (node.holders.is_known, node.known, node.changed, node.holders.pools()) == (True, 1, [], frozenset())


@pytest.mark.parametrize("problem", ["UNAVAILABLE: no route", "UNKNOWN"])
def test_a_kubelet_that_does_not_answer_has_given_nothing_back(node: Node, problem: str) -> None:
    node.holders.pods_read(PodReading(None, None, problem))
    assert (node.held, node.changed) == ({"a": ["gpu-0"]}, [])
    first = Node()
    first.holders.pods_synced([])
    first.holders.pods_read(PodReading(None, None, problem))
    assert not first.holders.is_known


def test_what_comes_later_is_shown_once_its_claim_was_tried(node: Node) -> None:
    node.claims.awaited = {"new"}
    node.holders.pod_seen(pod("b", "new"))
    node.holders.pods_read(reading(row("a"), row("b", "gpu-1", "new")))
    assert (node.held, node.holders.is_known, node.changed) == ({"a": ["gpu-0"]}, True, [])
    node.claims.awaited.clear()
    node.claims.on_read()
    assert node.held == {"a": ["gpu-0"], "b": ["gpu-1"]}


@pytest.mark.parametrize(
    ("seen", "is_asked"),
    [
        pytest.param(pod("new"), False, id="a pod without claims"),
        pytest.param(pod("new", "claim", are_prepared=False), False, id="a pod without a sandbox"),
        pytest.param(pod("new", "claim"), True, id="a pod with a sandbox"),
        pytest.param(pod("a", "claim"), False, id="the same again"),
        pytest.param(pod("a", "claim", is_terminating=True), False, id="it is deleted, and runs yet"),
        pytest.param(pod("a", "claim", ill=[UnhealthyDevice("main", "claim", "x=0")]), False, id="a device is ill"),
        pytest.param(pod("a", "claim", "late"), True, id="a claim more"),
        pytest.param(pod("a", "claim", has_ended=True), True, id="it has ended"),
        pytest.param(pod("b", has_ended=True), False, id="one without claims has ended"),
        pytest.param(pod("gone", "claim", has_ended=True), False, id="one that has nothing has ended"),
    ],
)
def test_when_a_pod_changes_the_kubelet_is_asked_again(node: Node, seen: Pod, is_asked: bool) -> None:
    node.holders.pod_seen(seen)
    assert node.is_asked_again() is is_asked


@pytest.mark.parametrize(("gone", "is_asked"), [("uid-a", True), ("uid-b", False), ("uid-x", False)])
def test_when_a_pod_is_gone_the_kubelet_is_asked_again(node: Node, gone: str, is_asked: bool) -> None:
    node.holders.pod_gone(gone)
    assert node.is_asked_again() is is_asked


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_pod_that_has_ended_has_its_devices_until_the_kubelet_shows_them_no_more(node: Node, is_gone: bool) -> None:
    if is_gone:
        node.holders.pod_gone("uid-a")
    else:
        node.holders.pod_seen(pod("a", "claim", has_ended=True))
    assert (node.held, node.releasing) == ({"a": ["gpu-0"]}, ["a"])
    node.holders.pods_read(reading(row("a")))
    assert node.releasing == ["a"]
    node.holders.pods_read(reading())
    assert (node.held, node.holders.pools()) == ({}, frozenset())
    assert node.changed == [f"{DRIVER}/{POOL}"] * 2


def test_nothing_is_changed_without_a_change(node: Node) -> None:
    for _ in range(2):
        node.holders.pods_read(reading(row("a")))
        node.holders.pod_seen(pod("a", "claim"))
        node.holders.pods_synced([pod("a", "claim"), pod("b")])
        node.claims.on_read()
    assert node.changed == []
    assert node.known == 1


def test_health_is_a_change(node: Node) -> None:
    ill = pod("a", "claim", ill=[UnhealthyDevice("main", "claim", f"{DRIVER}/{POOL}/gpu-0", "hot")])
    node.holders.pod_seen(ill)
    assert node.holders.of(KEY).unhealthy.keys() == {"gpu-0"}
    node.holders.pod_seen(pod("a", "claim"))
    assert node.holders.of(KEY).unhealthy == {}
    assert node.changed == [f"{DRIVER}/{POOL}"] * 2


def test_only_the_pools_that_changed_are_named(node: Node) -> None:
    node.holders.pods_read(reading(row("a"), row("a", pool="other")))
    assert node.changed == [f"{DRIVER}/other"]
    assert node.holders.pools() == {KEY, (DRIVER, "other")}


def test_our_own_driver_is_not_observed(node: Node) -> None:
    node.holders.pods_read(reading(row("a"), row("a", driver="nodedevice.io")))
    assert node.holders.pools() == {KEY}
    assert node.claims.asked == {("default", "claim"): wanted("uid-a")}


OLD = ("INFO", "the kubelet does not show which devices containers have by claims; it does since Kubernetes 1.36")
MANY = ("WARNING", "containers have more devices by claims than are shown")
INIT = replace(pod("a", ClaimUse("i0", "claim")), containers=(Container("i0", ContainerKind.INIT), Container("main")))


@pytest.mark.parametrize(
    ("seen", "rows", "said"),
    [
        pytest.param(pod("a", "claim"), 0, [OLD], id="an old kubelet"),
        pytest.param(pod("a", "claim", are_prepared=False), 0, [], id="nothing is prepared"),
        pytest.param(pod("a", "claim", has_ended=True), 0, [], id="it has ended"),
        pytest.param(pod("a", "claim"), MAX_CLAIM_ROWS_OF_POD - 1, [], id="as many as a pod may have"),
        pytest.param(pod("a", "claim"), MAX_CLAIM_ROWS_OF_POD, [MANY], id="too many of a pod"),
        pytest.param(INIT, 0, [], id="an init container, which no kubelet shows"),
    ],
)
def test_what_is_said_once(seen: Pod, rows: int, said: list[tuple[str, str]], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node = Node()
    node.holders.pods_synced([seen])
    for _ in range(3):
        node.holders.pods_read(reading(*(row("a", f"gpu-{number}") for number in range(rows))))
    assert [(record.levelname, record.message) for record in caplog.records] == said


def _many(count: int) -> list[ClaimRow]:
    """Of pods of which each has four devices of a pool of its own."""
    return [row(f"p{n}", f"gpu-{i}", pool=f"pool-{n}") for n in range(count) for i in range(4)]


async def test_many_are_shown_in_steps_and_changes_meanwhile_are_not_lost() -> None:
    made = Node()
    made.holders.pods_synced([pod(f"p{n}", "claim") for n in range(1024)])
    showing = asyncio.create_task(made.holders.run())
    all_pods, without_last = (reading(*_many(count)) for count in (1024, 1023))
    with turns(Lines()) as found:
        await asyncio.sleep(0)
        made.holders.pods_read(all_pods)
        assert not made.holders.is_known
        await asyncio.sleep(0)
        # the pod is gone while the others are gone through
        made.holders.pod_gone("uid-p1023")
        await asyncio.sleep(0)
        made.holders.pods_read(without_last)
        while not made.known or (DRIVER, "pool-1023") in made.holders.pools():
            await asyncio.sleep(0)
    assert made.holders.pools() == {(DRIVER, f"pool-{n}") for n in range(1023)}
    # so few are shown at once, and nothing that is older after them
    made.holders.pods_read(reading(*_many(1000)))
    await asyncio.sleep(0)
    made.holders.pods_read(reading(*_many(1)))
    assert made.holders.pools() == {(DRIVER, "pool-0")}
    for _ in range(1000):
        await asyncio.sleep(0)
    assert made.holders.pools() == {(DRIVER, "pool-0")}
    showing.cancel()
    # a decision and what it shows, together, take twice as many
    assert found.most.cost < 100_000, found.most
