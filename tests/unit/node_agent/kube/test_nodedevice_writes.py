"""What is written of one NodeDevice, and what of that another client has changed: visit by visit, without a watch."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, cast

import pytest
from msgspec import to_builtins
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.objects import NodeDeviceObject, OwnedMetadata
from nodedevice_agent.kube.served_resources import StatusMaker
from nodedevice_agent.kube.write_budget import AGENT_WRITES_AT_ONCE
from nodedevice_api.names import node_device_name
from nodedevice_api.nodedevice import NodeDeviceStatus
from nodedevice_kube.api_errors import NotFound, Unavailable
from prometheus_client import REGISTRY

from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.kube.one_object import GPU, PATIENCE_SECONDS, FakeCluster, published
from tests.unit.node_agent.kube.one_object import cluster as cluster
from tests.unit.node_agent.kube.status_source import FixedStatus
from tests.unit.node_agent.kube.test_contention import RESTORED

NAME = node_device_name("n1", GPU)
OWNER = {"kind": "Node", "name": "n1"}
CREATE = ("create", ("n1", "uid"), GPU)


def an_object(total: int | None, version: int = 10, *owners: dict[str, str], **more: Any) -> NodeDeviceObject:
    """total: what its status says; None for one without a status."""
    metadata = OwnedMetadata(
        name=NAME, uid="u", resourceVersion=str(version), ownerReferences=[*owners] if owners else [OWNER]
    )
    status = {} if total is None else to_builtins(NodeDeviceStatus(total=total))
    return NodeDeviceObject(metadata=metadata, status=status, **more)


class Objects(FakeCluster):
    """requests: what was written. missing: of how many writes the object is gone when they come."""

    def __init__(self, found: NodeDeviceObject | None) -> None:
        super().__init__()
        self.found = found
        self.requests: list[tuple[Any, ...]] = []
        self.missing = 0

    async def create_node_device(self, node: tuple[str, str], resource_name: str) -> NodeDeviceObject:
        self.requests.append(("create", node, resource_name))
        return await super().create_node_device(node, resource_name)

    async def apply_status(self, name: str, status: dict[str, Any]) -> NodeDeviceObject:
        self.requests.append(("status", name, status["total"]))
        if self.missing:
            self.missing -= 1
            raise NotFound("writing", "x", "no such object", 404)
        await super().apply_status(name, status)
        self.found = an_object(status["total"], 50)
        return self.found


class Visited(FixedStatus):
    """Of an object that is visited. cordons: the UID, and the devices in the spec."""

    def __init__(self, objects: FakeCluster, total: int = 1) -> None:
        super().__init__(cast(KubeClient, objects), total=total)
        self.cordons: list[tuple[str, set[str]]] = []
        self.is_forgotten = False
        # statuses so far
        self.made = 0

    def status_maker(self, resource_name: str, observed: NodeDeviceStatus, wall_time: str) -> StatusMaker:
        self.made += 1
        return super().status_maker(resource_name, observed, wall_time)

    def is_parked(self, resource_name: str) -> bool:
        return True

    def forget(self, resource_name: str) -> bool:
        return self.is_forgotten

    def cordoned(self, resource_name: str, uid: str, in_spec: Mapping[str, Cordon]) -> None:
        self.cordons.append((uid, {*in_spec}))


def edits(caplog: pytest.LogCaptureFixture) -> int:
    """How many of another client were seen."""
    return [record.message for record in caplog.records].count(RESTORED)


def published_count() -> float:
    return REGISTRY.get_sample_value("nodedevice_agent_publish_seconds_count") or 0.0


# -- what is written -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "requests", "event"),
    [
        pytest.param(None, [CREATE, ("status", NAME, 1)], "NodeDevice created", id="none"),
        pytest.param(an_object(None), [("status", NAME, 1)], None, id="one without a status"),
        pytest.param(an_object(7), [("status", NAME, 1)], None, id="another status"),
        pytest.param(an_object(1), [], None, id="as it is"),
        pytest.param(an_object(1, 10, {"kind": "Pod", "name": "n1"}, OWNER), [], None, id="two owners"),
        *(
            pytest.param(
                an_object(1, 10, owner),
                [CREATE, ("status", NAME, 1)],
                "NodeDevice owner reference restored",
                id=f"of another {owner['kind']}",
            )
            for owner in ({"kind": "Node", "name": "n2"}, {"kind": "Pod", "name": "n1"})
        ),
    ],
)
async def test_only_what_differs_is_written(
    found: NodeDeviceObject | None,
    requests: list[tuple[Any, ...]],
    event: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    objects = Objects(found)
    sync = NodeDeviceSync(Visited(objects), GPU)
    for _ in range(2):
        # the second time all is as it should be
        await sync.visit()
        assert objects.requests == requests
    assert [record.message for record in caplog.records] == ([event] if event else [])


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["needed", "its plugin is gone"])
async def test_one_that_is_deleted_a_moment_before_is_created_again_if_it_is_needed(is_forgotten: bool) -> None:
    objects = Objects(an_object(7))
    objects.missing = 1
    source = Visited(objects)
    source.is_forgotten = is_forgotten
    await NodeDeviceSync(source, GPU).visit()
    status = ("status", NAME, 1)
    assert objects.requests == ([status] if is_forgotten else [status, CREATE, status])


async def test_cordons_are_those_of_the_object_and_none_without_one() -> None:
    source = Visited(FakeCluster())
    sync = NodeDeviceSync(source, GPU)
    spec = {"cordonedDevices": [{"id": "d0"}]}
    sync.synced([an_object(1, spec=spec)], 10)
    sync.updated(NodeDeviceObject(spec=spec))
    sync.deleted(an_object(1, spec=spec))
    assert source.cordons == [("u", {"d0"}), ("", {"d0"}), ("", set())]


@virtual_time
@pytest.mark.usefixtures("cluster")
async def test_what_others_write_beside_ours_asks_for_no_other_status(caplog: pytest.LogCaptureFixture) -> None:
    source = Visited(Objects(an_object(7)))
    sync = NodeDeviceSync(source, GPU)
    async with background(sync.run()):
        await all_is_done()
        beside = an_object(1, 51)
        beside.status["conditions"] = [{"type": "Ready", "status": "True"}]
        sync.updated(beside)
        await asyncio.sleep(1)
        assert (source.made, sync.is_settled, edits(caplog)) == (1, True, 0)
        for found in (an_object(2, 52), an_object(1, 53, {"kind": "Pod", "name": "n1"})):
            sync.updated(found)
            assert not sync.is_settled
            await asyncio.sleep(1)
        assert (source.made, edits(caplog)) == (4, 1)


class Registering(Objects):
    """While the object is created, its plugin lists another device, and a pod gets it."""

    def __init__(self) -> None:
        super().__init__(None)
        self.source: Unsaved

    async def create_node_device(self, node: tuple[str, str], resource_name: str) -> NodeDeviceObject:
        self.source.status, self.source.is_on_disk = NodeDeviceStatus(total=4), False
        return await super().create_node_device(node, resource_name)


class Unsaved(Visited):
    """is_on_disk: whether all that is shown is; it is once that was waited for."""

    is_on_disk = True

    async def saved(self) -> None:
        self.is_on_disk = True

    def status_maker(self, resource_name: str, observed: NodeDeviceStatus, wall_time: str) -> StatusMaker:
        assert self.is_on_disk
        return super().status_maker(resource_name, observed, wall_time)


async def test_the_first_status_has_what_came_while_the_object_was_created() -> None:
    objects = Registering()
    objects.source = Unsaved(objects)
    await NodeDeviceSync(objects.source, GPU).visit()
    assert objects.requests == [CREATE, ("status", NAME, 4)]


# -- when it is written --------------------------------------------------------------------------------------------------------


def use_up_the_budget(source: FixedStatus) -> None:
    others = [source.writes.share(lambda: None) for _ in range(AGENT_WRITES_AT_ONCE)]
    assert all(source.writes.may_write(other, is_loss=True) for other in others)


async def all_is_done() -> None:
    """What can be done at once."""
    for _ in range(100):
        await asyncio.sleep(0)


@virtual_time
async def test_a_visit_whose_turn_it_is_not_writes_nothing_and_waits_for_none() -> None:
    objects = Objects(an_object(7))
    source = Visited(objects)
    use_up_the_budget(source)
    sync = NodeDeviceSync(source, GPU)
    await sync.visit()
    assert not objects.requests
    assert not source.writes.is_waiting(sync._share)


@virtual_time
@pytest.mark.usefixtures("cluster")
async def test_what_is_as_it_should_be_again_before_its_turn_is_not_written() -> None:
    objects, before = Objects(an_object(7)), published_count()
    source = Visited(objects)
    use_up_the_budget(source)
    sync = NodeDeviceSync(source, GPU)
    sync.touch()
    async with background(sync.run()):
        await all_is_done()
        assert source.writes.is_waiting(sync._share)
        source.status = NodeDeviceStatus(total=7)
        sync.touch()
        await all_is_done()
        assert not source.writes.is_waiting(sync._share)
    assert not objects.requests
    assert published_count() == before


async def test_it_is_settled_once_it_is_read_and_nothing_is_left_to_be_written(cluster: FakeCluster) -> None:
    assert not NodeDeviceSync(Visited(cluster), GPU).is_settled
    async with asyncio.timeout(PATIENCE_SECONDS), published(cluster) as made:
        assert not made.is_settled
        await cluster.until_attempts(1)
        while not made.is_settled:
            await asyncio.sleep(0)
        made.touch()
        assert not made.is_settled


@virtual_time
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(("found", "made"), [(None, 2), (an_object(7), 1)], ids=["created", "written"])
async def test_the_event_of_a_write_of_ours_asks_for_no_other_status(found: NodeDeviceObject | None, made: int) -> None:
    """Its response has shown all of it: cordons, too. An event after it does."""
    objects = Objects(found)
    source = Visited(objects)
    sync = NodeDeviceSync(source, GPU)
    async with background(sync.run()):
        await all_is_done()
        assert (objects.requests[-1], source.made, sync.is_settled) == (("status", NAME, 1), made, True)
        assert source.cordons[-1] == ("u", set())
        sync.updated(an_object(1, 50, spec={"cordonedDevices": [{"id": "d0"}]}))
        await all_is_done()
        assert (source.made, source.cordons[-1]) == (made, ("u", set()))
        sync.updated(an_object(1, 51, spec={"cordonedDevices": [{"id": "d0"}]}))
        await asyncio.sleep(1)
        assert (source.made, source.cordons[-1]) == (made + 1, ("u", {"d0"}))


# -- what another client has written -------------------------------------------------------------------------------------------


async def test_an_edit_is_counted_once_until_it_is_undone(caplog: pytest.LogCaptureFixture) -> None:
    """Also of a status that was there before this agent."""
    objects = Objects(an_object(1))
    sync = NodeDeviceSync(Visited(objects), GPU)
    await sync.visit()
    for total in (7, 8):
        sync.updated(an_object(total))
        assert edits(caplog) == 1
    objects.found = an_object(8)
    await sync.visit()
    assert (objects.requests, edits(caplog)) == ([("status", NAME, 1)], 1)
    assert sync.known_version == 50
    # of before that write
    sync.updated(an_object(9, 49))
    assert edits(caplog) == 1
    sync.updated(an_object(9, 51))
    assert edits(caplog) == 2


async def test_what_is_no_edit(caplog: pytest.LogCaptureFixture) -> None:
    sync = NodeDeviceSync(Visited(Objects(an_object(7))), GPU)
    assert sync.known_version == 0
    # what there was before the first write
    await sync.visit()
    # the object is new, and then another one
    sync.updated(an_object(None, 60))
    sync.deleted(an_object(None, 60))
    sync.updated(an_object(7, 61))
    assert edits(caplog) == 0


@pytest.mark.parametrize(
    ("total", "is_edit"), [(0, False), (1, True), (2, False), (3, False), (4, False), (5, False), (6, True)]
)
async def test_writes_of_ours_that_are_seen_late_are_no_edits(
    total: int, is_edit: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a response any of them may have been stored; the last few are known."""
    objects = Objects(an_object(0))
    source = Visited(objects, 0)
    sync = NodeDeviceSync(source, GPU)
    await sync.visit()
    objects.fails = Unavailable("writing", "x", "no answer")
    for sent in range(1, 6):
        source.status = NodeDeviceStatus(total=sent)
        await sync.visit()
    assert [written for *_, written in objects.requests] == [1, 2, 3, 4, 5]
    sync.updated(an_object(5))
    assert edits(caplog) == 0
    sync.updated(an_object(total))
    assert edits(caplog) == is_edit
