"""How many questions the kubelet is asked, and which: all pods at once, or a few by name."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.devicemanager.pods import ClaimUse, Pod, PodClaims
from nodedevice_agent.kubelet.pod_resources import PodResources, PodResourcesRefused
from nodedevice_agent.kubelet.pod_rows import DOUBTED_SECONDS, PodRows
from nodedevice_agent.kubelet.readings import ClaimRow, HeldByPod

from tests.fakes.kubelet_answers import KubeletAnswers
from tests.unit.node_agent.devicemanager.scenario import GPU, pod

CLAIMS = PodClaims((ClaimUse("c0", "claim"),), are_prepared=True)


def claiming(name: str) -> Pod:
    return replace(pod(name), claims=CLAIMS)


def row(name: str) -> ClaimRow:
    return ClaimRow("default", name, "c0", "claim", "gpu.example.com", "node-1", "gpu-0")


class Bench:
    def __init__(self, kubelet: KubeletAnswers) -> None:
        self.kubelet = kubelet
        self.rows = PodRows()
        self.pods: dict[str, Pod] = {}

    async def read(self, now: float = 1.0) -> dict[str, int]:
        """How often it was called for this, by method."""
        self.kubelet.calls.clear()
        await self.rows.read(cast(PodResources, self.kubelet), (), self.pods, now)
        return dict(self.kubelet.calls)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(KubeletAnswers(tmp_path, monkeypatch))
    assert await made.read() == {"List": 1}
    return made


@pytest.mark.parametrize(("count", "calls"), [(4, {"Get": 4}), (5, {"List": 1})])
async def test_more_than_a_few_are_listed(bench: Bench, count: int, calls: dict[str, int]) -> None:
    names = [f"p{number}" for number in range(count)]
    bench.pods = {name: claiming(name) for name in names}
    bench.kubelet.claim_rows = tuple(row(name) for name in names)
    assert await bench.read() == calls
    assert sorted(bench.rows.claim_rows, key=lambda each: each.name) == [row(name) for name in names]


async def test_each_call_is_counted(bench: Bench) -> None:
    assert bench.rows.calls == 1
    bench.pods = {name: claiming(name) for name in "ab"}
    bench.kubelet.claim_rows = (row("a"), row("b"))
    assert (await bench.read(2.0), bench.rows.calls, bench.rows.listed_at) == ({"Get": 2}, 3, 1.0)
    bench.rows.is_list_due = True
    assert (await bench.read(3.0), bench.rows.calls, bench.rows.listed_at) == ({"List": 1}, 4, 3.0)


async def test_an_ended_pod_that_the_kubelet_has_forgotten_hides_no_other(bench: Bench) -> None:
    bench.pods = {name: claiming(name) for name in "ab"}
    bench.kubelet.claim_rows = (row("a"), row("b"))
    await bench.read()
    bench.pods, bench.kubelet.claim_rows = {}, (row("b"),)
    bench.kubelet.asked.clear()
    assert await bench.read() == {"Get": 2}
    assert (bench.kubelet.asked, bench.rows.claim_rows) == (["a", "b"], (row("b"),))


async def test_the_end_of_a_mirror_pod_shows_in_a_list(bench: Bench) -> None:
    """It is not that of its static pod."""
    bench.pods = {"mirror": replace(pod("mirror"), config_hash="0123456789abcdef0123456789abcdef")}
    assert await bench.read() == {}
    bench.pods = {}
    assert await bench.read() == {"List": 1}


async def test_all_that_a_single_pod_has_is_kept(bench: Bench) -> None:
    bench.pods, bench.kubelet.claim_rows = {"a": claiming("a")}, (row("a"),)
    bench.kubelet.rows = (PodResourcesRow("default", "a", "c0", GPU, ("d",)),)
    assert await bench.read() == {"Get": 1}
    assert (bench.rows.rows, bench.rows.claim_rows) == (bench.kubelet.rows, bench.kubelet.claim_rows)


@pytest.mark.parametrize(("seconds", "is_believed"), [(DOUBTED_SECONDS - 0.001, False), (DOUBTED_SECONDS, True)])
async def test_a_kubelet_that_lists_no_claims_is_believed_after_a_while(
    bench: Bench, seconds: float, is_believed: bool
) -> None:
    bench.pods, bench.kubelet.claim_rows = {"a": claiming("a")}, (row("a"),)
    await bench.read()
    bench.kubelet.claim_rows = ()
    for now in (10.0, 10.0 + seconds):
        bench.rows.is_list_due = True
        await bench.read(now)
    assert bench.rows.claim_rows == (() if is_believed else (row("a"),))


class TestWithoutGet:
    """A kubelet that does not answer for single pods."""

    @pytest.fixture
    async def old(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
        async def refuses(namespace: str, name: str) -> HeldByPod:
            bench.kubelet.calls["Get"] += 1
            raise PodResourcesRefused("UNIMPLEMENTED: no such method")

        monkeypatch.setattr(bench.kubelet, "get_pod", refuses)
        assert await self.comes(bench, "a") == {"Get": 1, "List": 1}
        return bench

    async def comes(self, bench: Bench, name: str) -> dict[str, int]:
        bench.pods = {**bench.pods, name: claiming(name)}
        bench.kubelet.claim_rows += (row(name),)
        return await bench.read()

    async def test_it_lists_at_each_change(self, old: Bench) -> None:
        assert await self.comes(old, "b") == {"Get": 1, "List": 1}
        assert sorted(claim.name for claim in old.rows.claim_rows) == ["a", "b"]
        assert await old.read() == {}, "nothing has changed"
