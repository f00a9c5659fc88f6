"""The publisher: who hears of a resource, which objects begin and end, and what a status says that is not of the device manager."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from nodedevice_agent.delivery.record_only import RecordOnly
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.kube import publisher as publisher_module
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.conditions import ConditionValue, condition_of
from nodedevice_agent.kube.publisher import PODS, Publisher
from nodedevice_agent.kube.served_resources import Source, is_taken
from nodedevice_api.names import Condition, Reason, node_device_name
from nodedevice_api.nodedevice import ConditionStatus, NodeDeviceStatus
from prometheus_client import REGISTRY

from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario
from tests.unit.node_agent.kube.one_object import FakeCluster
from tests.unit.node_agent.kube.shown_status import MONDAY, TUESDAY
from tests.unit.node_agent.kube.status_source import FakeSource, FixedStatus, Host


class Begun:
    """A group of tasks that counts those that begin, and runs none."""

    def __init__(self) -> None:
        self.count = 0

    def create_task(self, work: Coroutine[Any, Any, None]) -> None:
        work.close()
        self.count += 1


class Heard(RecordOnly):
    """It notes what it hears."""

    notes = ""

    def __init__(self) -> None:
        super().__init__(advertises=True)
        self.changed: list[str] = []
        self.forgotten: list[str] = []

    def resource_changed(self, resource_name: str) -> None:
        self.changed.append(resource_name)

    def resource_forgotten(self, resource_name: str) -> None:
        self.forgotten.append(resource_name)


class Compared:
    """Which devices are offered twice: the same of every resource."""

    def __init__(self, found: ConditionValue | None = None, *, is_known: bool = True) -> None:
        self.conditions = {} if found is None else {GPU: found}
        self.is_known = is_known
        self.is_changed = asyncio.Event()


class Node:
    """A publisher and those around it."""

    def __init__(self, scenario: Scenario, notes: str = "", sources: tuple[Source, ...] = ()) -> None:
        self.host, self.backend, self.begun = Host(scenario), Heard(), Begun()
        self.publisher = Publisher(cast(KubeClient, None), "n1", notes)
        self.publisher.start(cast(asyncio.TaskGroup, self.begun), self.host, self.backend, sources)

    def status(self, observed: NodeDeviceStatus | None = None, name: str = GPU) -> NodeDeviceStatus:
        self.publisher.are_pods_known = True
        found = self.publisher.status_maker(name, observed or NodeDeviceStatus(), TUESDAY)
        assert found is not None
        return found.made()

    def condition(self, kind: str, observed: NodeDeviceStatus | None = None) -> tuple[str, str] | None:
        """Reason and message."""
        found = condition_of(self.status(observed), kind)
        return None if found is None else found[1:]


def gone(*names: str) -> Scenario:
    scenario = Scenario()
    for endpoint, name in enumerate(names, start=1):
        scenario.plugin(1, name, endpoint)
        scenario.disconnect(name, endpoint)
    scenario.passes(STOP_GRACE_PERIOD_SECONDS)
    return scenario


# -- who hears of it -----------------------------------------------------------------------------------------------------------


def test_the_backend_hears_of_what_is_ours_and_the_comparison_of_all() -> None:
    node = Node(Scenario.with_plugin(1))
    node.publisher.offered_twice = compared = Compared()
    for publish in (node.publisher.publish_served, node.publisher.publish):
        publish(GPU)
        assert compared.is_changed.is_set()
        compared.is_changed.clear()
    assert node.backend.changed == [GPU]


def test_the_backend_hears_once_that_a_resource_is_forgotten_and_not_of_one_that_it_never_knew() -> None:
    source = FakeSource(NIC)
    node = Node(gone(GPU), sources=(source,))
    assert node.publisher.forget(NIC)
    assert node.backend.forgotten == []
    for _ in range(2):
        assert node.publisher.forget(GPU)
        assert node.backend.forgotten == [GPU]


def test_one_that_is_forgotten_while_it_waits_for_room_never_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "MAX_NAMES", 1)
    node = Node(gone(GPU, NIC))
    for name in (GPU, NIC):
        node.publisher.publish(name)
    assert node.begun.count == 1
    for name in (NIC, GPU):
        assert node.publisher.forget(name)
    assert node.begun.count == 1


@virtual_time
async def test_stale_watches_are_shown_by_all_as_soon_as_that_changes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, problems, stale = FakeCluster(), list[str](), set[str]()
    publisher = FixedStatus(cast(KubeClient, cluster), total=1)
    monkeypatch.setattr(publisher.watches, "stale", lambda: frozenset(stale))
    async with asyncio.TaskGroup() as tasks:
        publisher.start(tasks, Host(gone(GPU)), RecordOnly())
        publisher.publish(GPU)
        changes = [("c a b", True), ("a b c", False), ("a b c d", True), ("", True), ("", False)]
        for number, (names, is_change) in enumerate(changes):
            await asyncio.sleep(1)
            before, stale = cluster.attempts, {*names.split()}
            publisher.status = NodeDeviceStatus(total=100 + number)
            problems.append(publisher.poll_watches())
            assert REGISTRY.get_sample_value("nodedevice_agent_watches_stale") == len(stale)
            await asyncio.sleep(1)
            assert cluster.attempts - before == is_change
        cluster.delete()
    three = "stale: a, b, c"
    assert problems == [three, three, f"{three}, …", "", ""]
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [vars(record)["watches"] for record in warnings] == [[*"abc"], [*"abcd"]]


def test_the_first_source_that_has_a_name_says_what_is_shown() -> None:
    first, second = FakeSource(NIC), FakeSource(NIC, "example.com/other")
    node = Node(Scenario.with_plugin(1), sources=(first, second))
    for name, source in ((NIC, first), ("example.com/other", second)):
        assert node.status(name=name).total == 7
        assert source.asked == [("status", name, False)]
    assert node.status().total == 1


def test_all_are_asked_whether_they_forget_and_hear_of_cordons_and_of_what_was_before() -> None:
    sources = FakeSource(), FakeSource()
    publisher = Node(Scenario.with_plugin(1), sources=sources).publisher
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


# -- what a status says --------------------------------------------------------------------------------------------------------


def test_a_problem_of_the_disk_goes_before_one_of_the_start_and_that_before_the_backends() -> None:
    node = Node(Scenario.with_plugin(1))
    assert node.condition(Condition.REGISTERED) == (Reason.ENDPOINT_RUNNING, "the device plugin is connected")
    started = Node(Scenario.with_plugin(1), "of the start")
    for each, text in ((node, "of the backend"), (started, "of the start")):
        each.backend.notes = "of the backend"
        assert each.condition(Condition.REGISTERED) == (Reason.CHECKPOINT_UNREADABLE, text)
        each.host.unsaved = "of the disk"
        assert each.condition(Condition.REGISTERED) == (Reason.CHECKPOINT_NOT_WRITTEN, "of the disk")


@pytest.mark.parametrize(
    ("name", "stale", "is_stale"),
    [
        (GPU, [], False),
        (GPU, [PODS], True),
        (GPU, [node_device_name("n1", GPU)], True),
        (GPU, [node_device_name("n1", NIC)], False),
        (GPU, ["slices"], False),
        (NIC, [PODS], True),
        (NIC, ["slices"], True),
        (NIC, ["other"], False),
    ],
)
def test_a_stale_watch_is_shown_where_it_matters(
    name: str, stale: list[str], is_stale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FakeSource(NIC, watch="slices")
    node = Node(Scenario.with_plugin(1), sources=(source,))
    monkeypatch.setattr(node.publisher.watches, "stale", lambda: frozenset(stale))
    node.publisher.poll_watches()
    if name == NIC:
        node.status(name=NIC)
        assert source.asked == [("status", NIC, is_stale)]
        return
    found = node.condition(Condition.WATCHES_CURRENT)
    assert found is not None
    assert found[0] == (Reason.WATCH_STALE if is_stale else Reason.WATCHES_CURRENT)


OFFERED = ConditionStatus(type=Condition.OFFERED_TWICE, status="True", reason="Before", last_transition_time=MONDAY)
BEFORE = NodeDeviceStatus(conditions=[OFFERED])


@pytest.mark.parametrize(
    ("compared", "observed", "shown"),
    [
        pytest.param(None, BEFORE, None, id="nobody compares"),
        pytest.param(Compared(), BEFORE, None, id="none any more"),
        pytest.param(Compared(("True", "Now", "n")), BEFORE, ("Now", MONDAY), id="another one"),
        pytest.param(Compared(("True", "Now", "n")), NodeDeviceStatus(), ("Now", TUESDAY), id="some"),
        pytest.param(Compared(is_known=False), BEFORE, ("Before", MONDAY), id="not known yet"),
        pytest.param(Compared(("True", "Now", "n"), is_known=False), BEFORE, ("Now", MONDAY), id="known of this one"),
        pytest.param(Compared(is_known=False), NodeDeviceStatus(), None, id="not known, and none before"),
    ],
)
def test_what_is_offered_twice_is_shown(
    compared: Compared | None, observed: NodeDeviceStatus, shown: tuple[str, str] | None
) -> None:
    """Until it is known it stays as it was published before this agent started."""
    node = Node(Scenario.with_plugin(1))
    node.publisher.offered_twice = compared
    found = {each.type: each for each in node.status(observed).conditions}.get(Condition.OFFERED_TWICE)
    assert (None if found is None else (found.reason, found.last_transition_time)) == shown
