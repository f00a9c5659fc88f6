"""A refusal that a watch brings is shown at once, and many at once in one write."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from nodedevice_api.names import ConfigReason
from nodedevice_common import tasks
from nodedevice_kube.api_errors import ApiError, NotFound, NotLeading, Unavailable
from nodedevice_operator.configs.controller import ConfigController, ConfigsApi, refusing_leases
from nodedevice_operator.configs.status import STATES
from nodedevice_operator.informers.store import Store
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.refusing_lease import RefusingLease
from nodedevice_operator.objects.unwatched import LeaseRecord

from tests.fakes.operator.collaborators import open_fence, running
from tests.fakes.virtual_time import virtual_time

NODES = 5000
MISTAKE = "Object contains unknown field `pollSecond` - at `$.nvml`; did you mean pollSeconds?"


class Written(ConfigsApi):
    """The statuses that are written, each after an event. failures: of the next writes of a name."""

    def __init__(self) -> None:
        self.statuses: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str]] = []
        self.failures: dict[str, list[Exception]] = {}
        self.existing = frozenset("u")
        self._new = asyncio.Event()

    async def write_status(self, name: str, uid: str, status: Mapping[str, Any]) -> None:
        self.asked.append((name, uid))
        if self.failures.get(name):
            raise self.failures[name].pop(0)
        self.statuses.append(dict(status))
        self._new.set()

    async def uids(self) -> frozenset[str]:
        return self.existing

    async def next(self) -> dict[str, Any]:
        """The next status; earlier ones that nobody waited for count no more."""
        self._new.clear()
        await self._new.wait()
        return self.statuses[-1]

    def accepted(self) -> tuple[str, str]:
        [found] = [each for each in self.statuses[-1]["conditions"] if each["type"] == "Accepted"]
        return found["status"], found["message"]


class Bench:
    def __init__(self) -> None:
        self.api = Written()
        self.leases: Store[tuple[str, str], RefusingLease] = Store()
        self.controller = ConfigController(self.api, open_fence(), self.leases)

    def configure(self, generation: int, uid: str = "u", **status: Any) -> None:
        self.controller.seen("gpus", uid, generation, status)

    def refuses(self, node: str, generation: int = 1, version: int = 10) -> None:
        self.leases.update(RefusingLease(("agents", node), node, version, node, report(generation, MISTAKE)))

    def polled(self, *nodes: str, generation: int = 1, version: int = 5, refusal: str = "") -> None:
        lease = LeaseRecord("now", 60, version=version, configs=report(generation, refusal))
        self.controller.leases_are(dict.fromkeys(nodes, lease))


def report(generation: int, refusal: str = "") -> str:
    return json.dumps({"gpus": {"generation": generation} | ({"refusal": refusal} if refusal else {})})


@virtual_time
async def test_a_refusal_is_shown_within_a_second_and_counts_no_more_once_it_is_corrected() -> None:
    bench, clock = Bench(), asyncio.get_running_loop().time
    async with running(bench.controller.work()):
        bench.configure(1)
        await bench.api.next()
        began = clock()
        bench.refuses("node-a")
        await bench.api.next()
        assert clock() - began < 1
        assert bench.api.accepted() == ("False", f"node-a: {MISTAKE}")
        bench.configure(2)
        await bench.api.next()
    assert bench.api.accepted()[0] == "Unknown"


@virtual_time
async def test_all_nodes_of_a_fleet_at_once_are_one_write_that_names_three() -> None:
    bench = Bench()
    async with running(bench.controller.work()):
        bench.configure(1)
        await bench.api.next()
        for number in range(NODES):
            bench.refuses(f"node-{number:04}")
        status = await bench.api.next()
        # whatever else they had to write would be written by now
        await asyncio.sleep(60)
    assert status["nodes"] == {"selected": NODES, "accepted": 0, "refused": NODES}
    assert bench.api.accepted()[1] == f"node-0000, node-0001, node-0002 and 4997 more: {MISTAKE}"
    assert [each["nodes"] for each in status["refusals"]] == [NODES]
    assert len(bench.api.statuses) == 2


@virtual_time
async def test_those_that_come_one_by_one_are_a_few_writes() -> None:
    """As agents are answered by a busy API server: 250 a second."""
    bench = Bench()
    async with running(bench.controller.work()):
        bench.configure(1)
        await bench.api.next()
        for number in range(NODES):
            bench.refuses(f"node-{number:04}")
            await asyncio.sleep(0.004)
        await asyncio.sleep(10)
    assert bench.api.statuses[-1]["nodes"]["refused"] == NODES
    assert len(bench.api.statuses) < 15


@virtual_time
@pytest.mark.parametrize(("nodes", "seconds"), [(3, 0.1), (2000, 2.0), (3 * NODES, 5.0)])
async def test_one_edit_after_another_is_answered_the_sooner_the_fewer_agents_watch(nodes: int, seconds: float) -> None:
    bench, clock = Bench(), asyncio.get_running_loop().time
    took = []
    async with running(bench.controller.work()):
        bench.polled(*(f"node-{number:04}" for number in range(nodes)))
        for generation in range(1, 12):
            began = clock()
            bench.configure(generation)
            await bench.api.next()
            took.append(round(clock() - began, 1))
            await asyncio.sleep(0.05)
    assert max(took) == took[-1] == seconds


@virtual_time
async def test_what_was_written_is_no_change_when_it_comes_back() -> None:
    bench = Bench()
    async with running(bench.controller.work()):
        bench.configure(1)
        bench.refuses("node-a")
        status = await bench.api.next()
        bench.configure(1, **status)
        # nor is a renewal without news
        bench.refuses("node-a", version=11)
        await asyncio.sleep(10)
        assert len(bench.api.statuses) == 1
        # somebody else's write is
        bench.configure(1, **status | {"nodes": {"selected": 7}})
        assert (await bench.api.next())["nodes"] == status["nodes"]


@virtual_time
async def test_the_newer_of_poll_and_watch_counts() -> None:
    bench = Bench()
    async with running(bench.controller.work()):
        bench.configure(1)
        bench.polled("node-a", "node-b")
        await bench.api.next()
        bench.refuses("node-a")
        await bench.api.next()
        # by an API server that lags behind
        bench.polled("node-a", "node-b")
        await asyncio.sleep(10)
        assert bench.api.statuses[-1]["nodes"] == {"selected": 2, "accepted": 1, "refused": 1}
        # by a watch that does
        bench.polled("node-a", "node-b", version=20)
        await bench.api.next()
    assert bench.api.statuses[-1]["nodes"] == {"selected": 2, "accepted": 2, "refused": 0}


def test_only_leases_of_agents_that_refuse_are_watched() -> None:
    kind = refusing_leases("agents")
    assert kind.path == "/apis/coordination.k8s.io/v1/namespaces/agents/leases"
    assert kind.query == {"labelSelector": "nodedevice.io/config-refused"}


@virtual_time
async def test_one_that_cannot_be_reconciled_keeps_no_other_from_its_status() -> None:
    bench = Bench()
    bench.api.failures = {"a-bad": [RecursionError()] * 100}
    for name in ("a-bad", "b-good", "c-good"):
        bench.controller.seen(name, name, 1, {})
    async with running(bench.controller.work()):
        await asyncio.sleep(60)
    assert len(bench.api.statuses) == 2
    assert tasks.problems() == ("config status a-bad fails and is tried again: RecursionError",)


@pytest.mark.parametrize(
    ("failure", "writes", "is_logged"),
    [
        pytest.param(NotFound("patch", "nodedeviceconfigs/status", "gone", 404), 1, False, id="deleted"),
        pytest.param(NotLeading("patch", "nodedeviceconfigs/status", "no lead"), 2, False, id="without the lead"),
        pytest.param(Unavailable("patch", "nodedeviceconfigs/status", "busy", 503), 2, True, id="busy"),
    ],
)
@virtual_time
async def test_a_status_that_could_not_be_written_is_written_at_the_next_change(
    failure: ApiError, writes: int, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.api.failures = {"gpus": [failure]}
    bench.configure(1)
    async with running(bench.controller.work()):
        await asyncio.sleep(100)
        assert bench.api.asked == [("gpus", "u")]
        bench.polled("n1")
        await asyncio.sleep(100)
    assert bench.api.asked == [("gpus", "u")] * writes
    found = [vars(record) for record in caplog.records if "status of a configuration not written" in record.message]
    assert [(record["config"], record["error"]) for record in found] == ([("gpus", str(failure))] if is_logged else [])


@virtual_time
async def test_what_is_gone_is_written_no_more() -> None:
    bench = Bench()
    bench.configure(1)
    async with running(bench.controller.work()):
        await asyncio.sleep(100)
        assert len(bench.api.statuses) == 1
        # while kopf did not watch
        bench.api.existing = frozenset()
        await asyncio.sleep(300)
        bench.polled("n0")
        await asyncio.sleep(100)
        bench.configure(1)
        bench.controller.gone("gpus", "u")
        bench.polled("n1")
        await asyncio.sleep(100)
        bench.configure(1)
        bench.controller.all_gone()
        bench.polled("n2")
        await asyncio.sleep(100)
    assert len(bench.api.statuses) == 1


@virtual_time
async def test_without_the_lead_nothing_is_decided() -> None:
    bench = Bench()
    bench.controller.fence = WriteFence()
    bench.configure(1)
    async with running(bench.controller.work()):
        await asyncio.sleep(100)
        assert bench.api.statuses == []
        bench.controller.fence.open_for_good()
        bench.polled("n1")
        await asyncio.sleep(100)
    assert len(bench.api.statuses) == 1


def test_configurations_are_counted_by_state() -> None:
    def counted() -> dict[str, float]:
        [family] = bench.controller.collect()
        assert [each.labels["state"] for each in family.samples] == list(STATES)
        return {each.labels["state"]: each.value for each in family.samples if each.value}

    bench = Bench()
    assert counted() == {}
    bench.configure(1)
    assert counted() == {"pending": 1}
    conditions = [{"type": "Accepted", "status": "False", "reason": ConfigReason.REFUSED}]
    bench.configure(1, observedGeneration=1, conditions=conditions)
    assert counted() == {"refused": 1}
    bench.controller.gone("gpus", "an earlier object of that name")
    assert counted() == {"refused": 1}
    bench.controller.gone("gpus", "u")
    assert counted() == {}
