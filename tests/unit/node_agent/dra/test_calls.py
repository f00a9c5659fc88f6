"""How often the kubelet is called for pods with claims, on a node of 110 pods of which 20 have some."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, cast

import pytest
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.dra.holders import Holders
from nodedevice_agent.kubelet.observer import Observer
from nodedevice_agent.kubelet.served import ServedByKubelet

from tests.fakes.background import background
from tests.fakes.kubelet_answers import KubeletAnswers, read_at_once
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.dra.claimed import KEY, pod, row
from tests.unit.node_agent.kubelet.subscribers import NoClaims

# so that nothing is listed meanwhile
SECONDS: Final = 5.0
# of a reading in which one pod is asked for
ONE: Final = {"connections": 1, "Get": 1, "GetAllocatableResources": 1}
pytestmark = virtual_time


class Node:
    """As the agent composes it. is_observed: with DRA."""

    def __init__(self, kubelet: KubeletAnswers, *, is_observed: bool) -> None:
        self.kubelet = kubelet
        kubelet.write(registered={"example.com/gpu": ("a",)})
        kubelet.devices = {"example.com/gpu": {"a": ()}}
        served = ServedByKubelet(asyncio.get_running_loop().time())
        self.reader = kubelet.reader(served.pods)
        observer = Observer(self.reader, served, lambda name: None, self._capacity)
        self.holders = Holders(cast(Any, NoClaims()), self.reader.wake)
        self.observers: list[Observer | Holders] = [observer, self.holders] if is_observed else [observer]
        for each in self.observers:
            self.reader.subscribe(each)
        self.pods = [pod(f"p{number:03}", *(["claim"] if number < 20 else [])) for number in range(110)]
        kubelet.claim_rows = tuple(row(f"p{number:03}", f"gpu-{number}") for number in range(20))
        for each in self.observers:
            each.pods_synced(self.pods)

    async def _capacity(self) -> dict[str, int]:
        return {}

    def seen(self, found: Pod) -> None:
        for each in self.observers:
            each.pod_seen(found)

    def gone(self, name: str) -> None:
        for each in self.observers:
            each.pod_gone(f"uid-{name}")

    async def calls(self, seconds: float = SECONDS) -> dict[str, int]:
        """In the next seconds."""
        self.kubelet.calls.clear()
        await asyncio.sleep(seconds)
        return dict(self.kubelet.calls)

    @property
    def held(self) -> dict[str, list[str]]:
        return {each.name: each.device_ids for each in self.holders.of(KEY).allocations}


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    read_at_once(monkeypatch)
    made = Node(KubeletAnswers(tmp_path, monkeypatch), is_observed=True)
    async with background(made.reader.run()):
        await asyncio.sleep(1)
        assert len(made.held) == 20
        yield made


@pytest.mark.parametrize("is_observed", [False, True])
async def test_ten_quiet_minutes(is_observed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_at_once(monkeypatch)
    node = Node(KubeletAnswers(tmp_path, monkeypatch), is_observed=is_observed)
    async with background(node.reader.run()):
        await asyncio.sleep(585)
    assert node.kubelet.calls == {"connections": 20, "List": 20, "GetAllocatableResources": 20}


async def test_a_start_and_an_end(node: Node) -> None:
    """Each is one call for that pod, however often its status changes."""
    node.seen(pod("new", "claim", are_prepared=False))
    assert await node.calls() == {}
    node.kubelet.claim_rows += (row("new", "gpu-20"),)
    for _ in range(3):
        node.seen(pod("new", "claim"))
    assert await node.calls() == ONE
    assert node.held["new"] == ["gpu-20"]
    node.seen(pod("new", "claim", is_terminating=True))
    assert await node.calls() == {}
    node.kubelet.claim_rows = node.kubelet.claim_rows[:-1]
    node.gone("new")
    assert await node.calls() == ONE
    assert "new" not in node.held


async def test_the_end_of_one_that_has_finished_and_is_deleted_later(node: Node) -> None:
    node.kubelet.claim_rows = node.kubelet.claim_rows[1:]
    node.kubelet.without_devices = {("default", "p000")}
    node.seen(pod("p000", "claim", has_ended=True))
    assert await node.calls() == ONE
    assert "p000" not in node.held
    node.gone("p000")
    assert await node.calls() == {}


async def test_many_that_end_at_once_are_one_list(node: Node) -> None:
    node.kubelet.claim_rows = ()
    for number in range(20):
        node.gone(f"p{number:03}")
    assert await node.calls() == {"connections": 1, "List": 1, "GetAllocatableResources": 1}
    assert node.held == {}


async def test_pods_without_claims_are_nobodys_affair(node: Node) -> None:
    node.seen(pod("plain"))
    node.seen(pod("plain", is_terminating=True))
    node.gone("plain")
    node.gone("p100")
    assert await node.calls() == {}


async def test_an_end_that_the_kubelet_does_not_show_yet_is_seen_in_the_next_list(node: Node) -> None:
    """As where somebody else than the kubelet calls a pod failed."""
    node.seen(pod("p000", "claim", has_ended=True))
    assert await node.calls() == ONE
    assert [each.name for each in node.holders.of(KEY).allocations if each.releasing] == ["p000"]
    node.kubelet.claim_rows = node.kubelet.claim_rows[1:]
    await asyncio.sleep(30)
    assert "p000" not in node.held
