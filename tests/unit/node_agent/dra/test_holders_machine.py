"""Random starts and ends of pods with claims: what is shown is what the kubelet shows, by the API's pods, after each of them."""

import asyncio
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from nodedevice_agent.devicemanager.pods import ClaimUse, Pod
from nodedevice_agent.dra import claims
from nodedevice_agent.dra.claims import ClaimReader
from nodedevice_agent.dra.holders import Holders
from nodedevice_agent.dra.holdings import Claim, Result
from nodedevice_agent.kubelet.readings import ClaimRow, Pace, Subscriber
from nodedevice_kube.api_errors import NotFound

from tests.examples import examples
from tests.fakes.background import background
from tests.fakes.kubelet_answers import KubeletAnswers, read_at_once
from tests.unit.node_agent.dra.claimed import DRIVER, POOL, pod

NAMES: Final = tuple("abc")
CLAIMS: Final = ("own", "shared", "late")
SHARE: Final = "5d4e2f9c-0000-4000-8000-000000000000"
Row = tuple[str, str, str, str, tuple[str, ...], bool]


class Kubelet:
    """A cluster in words: pods of the API, what the kubelet shows of them, and the claims.

    pods: those of the API, by name. shown: of which the kubelet has prepared claims, also those that the API does not have.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.uids = count()
        self.pods: dict[str, Pod] = {}
        self.shown: dict[str, Pod] = {}
        self.claims: dict[str, Claim] = {}

    def bound(self, name: str) -> Pod:
        names = self.random.sample(CLAIMS, self.random.randint(0, 3))
        uses = [ClaimUse(container, self._claim(each, name)) for each in names for container in self._containers()]
        return pod(name, *uses, uid=f"uid-{next(self.uids)}", are_prepared=False)

    def _containers(self) -> list[str]:
        return self.random.sample(["main", "side"], self.random.randint(1, 2))

    def _claim(self, word: str, name: str) -> str:
        """A claim of the pod's own is another one each time; a shared one is there until nobody has it."""
        claim = word if word == "shared" else f"{name}-{word}-{next(self.uids)}"
        if claim not in self.claims or not any(claim in _claims(each) for each in self.pods.values()):
            devices = self.random.sample(range(8), self.random.randint(1, 3))
            results = [
                Result("r", DRIVER, POOL, f"gpu-{i}", self.random.choice(["", SHARE]), self.random.random() < 0.2)
                for i in devices
            ]
            self.claims[claim] = Claim(f"claim-{next(self.uids)}", tuple(results))
        return claim

    def rows(self) -> tuple[ClaimRow, ...]:
        return tuple(
            ClaimRow("default", each.name, use.container, use.claim, *result.key)
            for each in self.shown.values()
            for use in (each.claims.uses if each.claims is not None else ())
            for result in self.claims[use.claim].results
        )

    def expected(self) -> list[Row]:
        found: dict[tuple[str, str, str], set[str]] = {}
        for row in self.rows():
            found.setdefault((self.shown[row.name].uid, row.container, row.claim), set()).add(row.device)
        unfinished = {each.uid for each in self.pods.values() if not each.has_ended}
        uid_of = {name: claim.uid for name, claim in self.claims.items()}
        return [
            (*key, uid_of[key[2]], tuple(sorted(ids)), key[0] not in unfinished) for key, ids in sorted(found.items())
        ]


def _claims(found: Pod) -> set[str]:
    return {use.claim for use in found.claims.uses} if found.claims is not None else set()


class Lister(Subscriber):
    """Makes a list of all pods due."""

    pace = Pace()


class Agent:
    """Reader, claims and holders of an agent that starts now."""

    def __init__(self, cluster: Kubelet, answers: KubeletAnswers) -> None:
        self.cluster, self.answers = cluster, answers
        # the API's unfinished pods, as another subscriber keeps them
        self.pods: dict[str, Pod] = {}
        self.reader = answers.reader(self.pods)
        self.claims = ClaimReader(self._get)
        self.holders = Holders(self.claims, self.reader.wake)
        self.reader.subscribe(self.holders)
        self.lister = Lister()
        self.reader.subscribe(self.lister)
        self.synced()

    async def _get(self, namespace: str, name: str) -> Claim:
        if name not in self.cluster.claims:
            raise NotFound("reading", "x", "no such claim", 404)
        return self.cluster.claims[name]

    def synced(self) -> None:
        self.pods.clear()
        self.pods.update({each.uid: each for each in self.cluster.pods.values() if not each.has_ended})
        self.holders.pods_synced(list(self.cluster.pods.values()))

    def seen(self, found: Pod) -> None:
        if found.has_ended:
            self.pods.pop(found.uid, None)
        else:
            self.pods[found.uid] = found
        self.holders.pod_seen(found)

    def gone(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.holders.pod_gone(uid)

    async def settle(self) -> None:
        self.answers.claim_rows = self.cluster.rows()
        held = {(row.namespace, row.name) for row in self.answers.claim_rows}
        known = {("default", name) for name in [*self.cluster.pods, *self.cluster.shown]}
        self.answers.without_devices = known - held
        while self.holders.is_outdated:
            await self.reader.read()
        self.lister.pace = Pace()
        async with asyncio.timeout(60):
            while any(entry.is_wanted for entry in self.claims._entries.values()):
                await asyncio.sleep(0)

    def shown(self) -> list[Row]:
        return [
            (each.pod_uid, each.container, each.claim.name, each.claim.uid, tuple(each.device_ids), each.releasing)
            for each in self.holders.of((DRIVER, POOL)).allocations
            if each.claim is not None
        ]


def starts(agent: Agent, name: str) -> None:
    """Bound, prepared, and then with a sandbox."""
    cluster = agent.cluster
    if name in cluster.shown:
        return
    if name not in cluster.pods or cluster.pods[name].has_ended:
        is_bound(agent, name)
    found = cluster.pods[name]
    if found.claims is not None:
        found = replace(found, claims=type(found.claims)(found.claims.uses, are_prepared=True))
    cluster.pods[name] = cluster.shown[name] = found
    agent.seen(found)


def is_bound(agent: Agent, name: str) -> None:
    if name in agent.cluster.shown:
        return
    is_deleted(agent, name)
    agent.cluster.pods[name] = agent.cluster.bound(name)
    agent.seen(agent.cluster.pods[name])


def is_deleted(agent: Agent, name: str) -> None:
    """Its claims were given back before."""
    agent.cluster.shown.pop(name, None)
    if name in agent.cluster.pods:
        agent.gone(agent.cluster.pods.pop(name).uid)


def finishes(agent: Agent, name: str) -> None:
    agent.cluster.shown.pop(name, None)
    fails(agent, name)


def fails(agent: Agent, name: str) -> None:
    """By somebody else than the kubelet, which still has its containers."""
    if name in agent.cluster.pods:
        found = agent.cluster.pods[name] = replace(agent.cluster.pods[name], has_ended=True)
        agent.seen(found)


def is_given_back(agent: Agent, name: str) -> None:
    """Nothing shows that but the next list."""
    found = agent.cluster.pods.get(name)
    if name in agent.cluster.shown and (found is None or found.has_ended):
        del agent.cluster.shown[name]
    agent.lister.pace = Pace(list_seconds=0.0)
    agent.holders.is_outdated = True


def comes_back_by_that_name(agent: Agent, name: str) -> None:
    is_deleted(agent, name)
    starts(agent, name)


def changes(agent: Agent, name: str) -> None:
    """In what nobody here minds."""
    if name in agent.cluster.pods:
        found = agent.cluster.pods[name] = replace(agent.cluster.pods[name], is_terminating=True)
        agent.seen(found)


def all_are_listed(agent: Agent, name: str) -> None:
    agent.synced()


def a_deletion_is_missed(agent: Agent, name: str) -> None:
    """The watch has ended, and the next list shows it."""
    agent.cluster.shown.pop(name, None)
    agent.cluster.pods.pop(name, None)
    agent.synced()


Event = Callable[[Agent, str], None]
EVENTS: Final[list[Event]] = [
    *(starts, is_bound, is_deleted, finishes, fails, is_given_back, comes_back_by_that_name, changes, all_are_listed),
    a_deletion_is_missed,
]


# what has happened says more than the shortest way to it, which takes minutes to find
@settings(max_examples=examples(100), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    events=st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(NAMES)), min_size=30, max_size=60),
    seed=st.integers(0, 999),
)
def test_what_is_shown_is_the_kubelets(events: list[tuple[Event, str]], seed: int) -> None:
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        read_at_once(patched)
        patched.setattr(claims, "AT_ONCE", 10_000)
        asyncio.run(_run(KubeletAnswers(Path(folder), patched), Kubelet(Random(seed)), events))


async def _run(answers: KubeletAnswers, cluster: Kubelet, events: list[tuple[Event, str]]) -> None:
    answers.write()
    agent = Agent(cluster, answers)
    async with background(agent.claims.run()):
        await agent.settle()
        for event, name in events:
            event(agent, name)
            await agent.settle()
            assert agent.shown() == cluster.expected(), event.__name__
        # an agent that starts now shows the same, but for pods that were deleted before it started
        other = Agent(cluster, answers)
        async with background(other.claims.run()):
            await other.settle()
            in_api = {each.uid for each in cluster.pods.values()}
            assert other.shown() == [row for row in agent.shown() if row[0] in in_api]
