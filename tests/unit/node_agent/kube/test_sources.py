"""Others beside the agent's own device manager that give devices out here: whose a name is, and what the publisher asks each."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest
from nodedevice_agent.delivery.record_only import RecordOnly
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.publisher import PODS, Publisher
from nodedevice_agent.kube.served_resources import Source, StatusMaker, is_taken
from nodedevice_api.names import node_device_name
from nodedevice_api.nodedevice import NodeDeviceStatus

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario
from tests.unit.node_agent.kube.status_source import ManagerOnly

NIC = "example.com/nic"


class FakeSource:
    """It has these names, and notes what it is asked."""

    def __init__(self, *names: str, watch: str = "") -> None:
        self.watch = watch
        self.resources: Mapping[str, Resource] = {name: Resource(name) for name in names}
        self.asked: list[tuple[Any, ...]] = []
        self.is_forgotten = True

    def has(self, resource_name: str) -> bool:
        return resource_name in self.resources

    def remember(self, resource_name: str, status: NodeDeviceStatus) -> None:
        self.asked.append(("remember", resource_name, status.driver))

    def cordoned(self, resource_name: str, device_ids: Collection[str]) -> None:
        self.asked.append(("cordoned", resource_name, {*device_ids}))

    def forget(self, resource_name: str) -> bool:
        self.asked.append(("forget", resource_name))
        return self.is_forgotten

    def status_maker(
        self, resource_name: str, observed: NodeDeviceStatus, wall_time: str, now: float, *, is_watch_stale: bool
    ) -> StatusMaker:
        self.asked.append(("status", resource_name, is_watch_stale))
        return StatusMaker(lambda: NodeDeviceStatus(total=7), False)


class Host(ManagerOnly):
    """Whose effects nobody carries out."""

    unsaved = ""

    def __init__(self) -> None:
        super().__init__(Scenario.with_plugin(1))
        self.now = lambda: 1.0

    def settle(self) -> None:
        pass


def publisher_of(*sources: Source) -> Publisher:
    made = Publisher(cast(KubeClient, None), "n1")
    made.start(cast(asyncio.TaskGroup, None), Host(), RecordOnly(advertises=True), sources)
    made.are_pods_known = True
    return made


async def test_the_first_source_that_has_a_name_says_what_is_shown() -> None:
    first, second = FakeSource(NIC), FakeSource(NIC, "example.com/other")
    publisher = publisher_of(first, second)
    for name, source in ((NIC, first), ("example.com/other", second)):
        make = publisher.status_maker(name, NodeDeviceStatus(), "now")
        assert make is not None
        assert make.made().total == 7
        assert source.asked == [("status", name, False)]
    own = publisher.status_maker(GPU, NodeDeviceStatus(), "now")
    assert own is not None
    assert own.made().total == 1


@pytest.mark.parametrize(
    ("stale", "is_stale"),
    [([], False), ([PODS], True), (["slices"], True), ([node_device_name("n1", NIC)], True), (["other"], False)],
)
async def test_a_stale_watch_is_shown_by_what_depends_on_it(
    stale: list[str], is_stale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FakeSource(NIC, watch="slices")
    publisher = publisher_of(FakeSource(), source)
    monkeypatch.setattr(publisher.watches, "stale", lambda: frozenset(stale))
    assert publisher.poll_watches() == (f"stale: {stale[0]}" if stale else "")
    publisher.status_maker(NIC, NodeDeviceStatus(), "now")
    assert source.asked == [("status", NIC, is_stale)]


async def test_all_are_asked_whether_they_forget_and_hear_of_cordons_and_of_what_was_before() -> None:
    sources = FakeSource(), FakeSource()
    publisher = publisher_of(*sources)
    sources[0].is_forgotten = False
    assert not publisher.forget(NIC)
    publisher.cordoned(NIC, "uid", {})
    publisher.recovered(NIC, NodeDeviceStatus(driver="gpu.example.com"))
    for source in sources:
        assert source.asked == [("forget", NIC), ("cordoned", NIC, set()), ("remember", NIC, "gpu.example.com")]
    sources[0].is_forgotten = True
    assert publisher.forget(NIC)


def test_a_name_is_taken_while_its_devices_are_given_out_or_held_or_its_plugin_is_awaited() -> None:
    resource = Resource(NIC)
    known = [{}, {NIC: resource}]
    assert not is_taken(NIC, known)
    resource.connect(1, PluginOptions())
    assert not is_taken(NIC, known)
    resource.is_live = True
    assert is_taken(NIC, known)
    assert not is_taken(GPU, known)
    resource.is_live = False
    resource.use.holders["d"] = "uid"
    assert is_taken(NIC, known)
    resource.use.holders.clear()
    resource.presence.restored(0.0, 5.0, is_live=False)
    assert is_taken(NIC, known)
