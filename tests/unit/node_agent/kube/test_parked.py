"""NodeDevices of names that are gone and unneeded: visited now and then, and watched again before anything is given out."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from nodedevice_agent.delivery.record_only import RecordOnly
from nodedevice_agent.devicemanager.effects import Effect
from nodedevice_agent.devicemanager.pods import Container
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS
from nodedevice_agent.kube import publisher as publisher_module
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.parked import VISIT_SECONDS
from nodedevice_agent.kube.publisher import Publisher
from nodedevice_api.names import node_device_name
from nodedevice_kube.api_errors import Unavailable
from prometheus_client import generate_latest

from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.devicemanager.scenario import Scenario, happen, pod, published
from tests.unit.node_agent.kube import status_source
from tests.unit.node_agent.kube.one_object import FakeCluster
from tests.unit.node_agent.kube.test_to_park import LAST, NAMES, gone

# each is visited once in it, and what that shows is done
A_ROUND = VISIT_SECONDS + 2


class Host(status_source.Host):
    """It publishes what changes, and does nothing else."""

    def __init__(self, scenario: Scenario, publisher: Publisher) -> None:
        super().__init__(scenario)
        self.publisher = publisher
        began = asyncio.get_running_loop().time() - scenario.now
        self.now = lambda: asyncio.get_running_loop().time() - began

    async def saved(self, pod_uid: str | None = None) -> None:
        """Nothing is ever unsaved."""

    def settle(self) -> None:
        self.publish(self.manager.settle(self.now()))

    def publish(self, effects: Iterable[Effect]) -> None:
        for name in sorted(published(effects)):
            self.publisher.publish(name)


class Node:
    """A publisher of the objects of that scenario, which are there."""

    def __init__(self, scenario: Scenario, tasks: asyncio.TaskGroup) -> None:
        self.scenario, self.cluster, self.group = scenario, FakeCluster(None), tasks
        for name in NAMES:
            self.cluster.write(node_device_name("n1", name))
        self.publisher = Publisher(cast(KubeClient, self.cluster), "n1", clock=asyncio.get_running_loop().time)
        self.publisher.are_pods_known = True
        self.host = Host(scenario, self.publisher)
        self.tasks: list[asyncio.Task[Any]] = []
        self.publisher.start(cast(asyncio.TaskGroup, self), self.host, RecordOnly())
        for name in scenario.manager.resources:
            self.publisher.publish(name)

    def create_task(self, work: Coroutine[Any, Any, Any]) -> None:
        self.tasks.append(self.group.create_task(work))

    def happens(self, event: str, *args: Any) -> None:
        """Any event of the manager by its name, whose effects are published."""
        self.host.publish(happen(self.scenario.manager, event, *args, now=self.host.now()))

    def serve(self, name: str) -> None:
        """Its plugin is back, with a device."""
        self.happens("connected", name, 99, PluginOptions())
        self.happens("listed", name, 99, accept([Device("d0")]))

    def requests_of(self, name: str) -> list[str]:
        return [verb for verb, of in self.cluster.reads if of == node_device_name("n1", name)]

    def is_watched(self, name: str) -> bool:
        return node_device_name("n1", name) in self.cluster.open


@asynccontextmanager
async def watching() -> AsyncIterator[Node]:
    """Whose names are gone; their objects are all watched still."""
    async with asyncio.TaskGroup() as tasks:
        made = Node(gone(waits_for_cordons=True), tasks)
        await later(5)
        assert all(made.is_watched(name) for name in NAMES)
        yield made
        for task in made.tasks:
            task.cancel()


@asynccontextmanager
async def node() -> AsyncIterator[Node]:
    """The same, parked by now."""
    async with watching() as made:
        made.publisher.park()
        await later(1)
        made.cluster.reads.clear()
        yield made


@virtual_time
async def test_what_is_parked_has_no_watch_and_is_read_now_and_then() -> None:
    async with node() as made:
        assert [name for name in NAMES if made.is_watched(name)] == []
        assert [made.publisher.has_parked(), made.publisher.has_parked()] == [True, False]
        made.publisher.park()
        await asyncio.sleep(10 * VISIT_SECONDS)
        assert 9 <= len(made.requests_of(LAST)) <= 10
        assert {*made.requests_of(LAST)} == {"list"}


@virtual_time
async def test_it_has_no_metrics_and_has_them_again_once_it_is_served() -> None:
    async with watching() as made:
        made.serve(NAMES[0])
        made.publisher.park()
        for seconds in (1, A_ROUND):
            await asyncio.sleep(seconds)
            assert f'resource_name="{NAMES[0]}"' in generate_latest().decode()
            assert f'resource_name="{LAST}"' not in generate_latest().decode()
        made.serve(LAST)
        await asyncio.sleep(1)
        assert f'resource_name="{LAST}"' in generate_latest().decode()


@virtual_time
async def test_parked_ones_count_among_those_of_which_there_are_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "MAX_NAMES", len(NAMES))
    new = "example.com/new"
    async with node() as made:
        made.cluster.write(node_device_name("n1", new))
        made.happens("connected", new, 99, PluginOptions())
        await asyncio.sleep(STOP_GRACE_PERIOD_SECONDS)
        made.happens("tick")
        assert not made.is_watched(new)
        del made.cluster.objects[node_device_name("n1", LAST)]
        await asyncio.sleep(A_ROUND)
        assert made.is_watched(new)


@virtual_time
async def test_visits_undo_edits_write_changes_and_notice_deletions() -> None:
    async with node() as made:
        name = node_device_name("n1", LAST)
        status = made.cluster.objects[name].status
        made.cluster.write(name, {**status, "total": 17})
        await asyncio.sleep(A_ROUND)
        assert made.cluster.objects[name].status == status
        await asyncio.sleep(STOP_GRACE_PERIOD_SECONDS)
        made.happens("tick")
        await asyncio.sleep(A_ROUND)
        conditions = made.cluster.objects[name].status["conditions"]
        (registered,) = (each for each in conditions if each["type"] == "Registered")
        assert registered["reason"] == "EndpointGone"
        assert not made.is_watched(LAST)
        del made.cluster.objects[name]
        await asyncio.sleep(A_ROUND)
        assert LAST not in made.scenario.manager.resources


@virtual_time
@pytest.mark.parametrize("cordoned", [[], [{"id": "d0", "reason": "broken"}]], ids=["no cordon", "a cordon"])
async def test_cordons_from_before_its_plugin_came_back_are_known_before_anything_is_allocated(
    cordoned: list[dict[str, str]],
) -> None:
    async with node() as made:
        made.cluster.write(node_device_name("n1", LAST), cordonedDevices=cordoned)
        made.cluster.is_up.clear()
        made.serve(LAST)
        made.happens("pod_events.seen", pod("u", Container("c", limits={LAST: 1})))
        await asyncio.sleep(1)
        assert made.requests_of(LAST) == ["list"]
        assert made.scenario.manager.allocator.in_progress == {}
        made.cluster.is_up.set()
        await asyncio.sleep(1)
        assert made.is_watched(LAST)
        assert ("u" in made.scenario.manager.allocator.in_progress) is not bool(cordoned)


@virtual_time
async def test_a_cordon_on_it_is_known_at_the_first_visit_that_is_answered_and_then_it_is_watched() -> None:
    async with node() as made:
        made.cluster.list_fails = Unavailable("listing", "x", "no answer")
        made.cluster.write(node_device_name("n1", LAST), cordonedDevices=[{"id": "d0", "reason": "broken"}])
        await asyncio.sleep(3 * A_ROUND)
        assert made.publisher.is_parked(LAST)
        made.cluster.list_fails = None
        await asyncio.sleep(A_ROUND)
        assert made.scenario.manager.resources[LAST].use.cordons == {"d0"}
        made.publisher.park()
        await asyncio.sleep(1)
        assert made.is_watched(LAST)
