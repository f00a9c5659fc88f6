"""The publisher: who hears of a resource, which objects begin and end, and what a status says that is not of the device manager."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from nodedevice_agent.delivery.record_only import RecordOnly
from nodedevice_agent.devicemanager.effects import Effect
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS
from nodedevice_agent.kube import publisher as publisher_module
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.conditions import ConditionValue, condition_of
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.publisher import PODS, Publisher
from nodedevice_agent.kube.served_resources import Source
from nodedevice_api.names import Condition, Reason, node_device_name
from nodedevice_api.nodedevice import ConditionStatus, NodeDeviceStatus
from prometheus_client import REGISTRY

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, pod
from tests.unit.node_agent.kube.shown_status import MONDAY, TUESDAY
from tests.unit.node_agent.kube.status_source import ManagerOnly
from tests.unit.node_agent.kube.test_sources import FakeSource


class Begun:
    """A group of tasks that counts those that begin, and runs none."""

    def __init__(self) -> None:
        self.count = 0

    def create_task(self, work: Coroutine[Any, Any, None]) -> None:
        work.close()
        self.count += 1


class Host(ManagerOnly):
    """It keeps the effects that it is to carry out."""

    unsaved = ""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.now = lambda: scenario.now
        self.effects: list[Effect] = []

    def settle(self) -> None:
        self.effects += self.manager.settle(self.now())


class Heard(RecordOnly):
    """It notes what it hears."""

    notes = ""

    def __init__(self) -> None:
        super().__init__(advertises=True)
        self.changed: list[str] = []
        self.forgotten: list[str] = []
        self.without: tuple[str, ...] = ()

    def resource_changed(self, resource_name: str) -> None:
        self.changed.append(resource_name)

    def resource_forgotten(self, resource_name: str) -> None:
        self.forgotten.append(resource_name)

    def not_injected(self, pod_uid: str, container: str, resource_name: str) -> bool:
        return (pod_uid, container, resource_name) == self.without


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


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The objects that are to be compared with what they should be, each time by name."""
    names: list[str] = []
    monkeypatch.setattr(NodeDeviceSync, "touch", lambda sync: names.append(sync._name))
    return names


def test_stale_watches_are_shown_by_all_as_soon_as_that_changes(
    touched: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node, problems, touches = Node(Scenario.with_plugin(1)), [], []
    node.publisher.publish(GPU)
    for stale in ("c a b", "a b c", "a b c d", "", ""):
        monkeypatch.setattr(node.publisher.watches, "stale", lambda stale=stale: frozenset(stale.split()))
        touched.clear()
        problems.append(node.publisher.poll_watches())
        touches.append(len(touched))
        assert REGISTRY.get_sample_value("nodedevice_agent_watches_stale") == len(stale.split())
    three = "stale: a, b, c"
    assert problems == [three, three, f"{three}, …", "", ""]
    assert touches == [1, 0, 1, 1, 0]
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [vars(record)["watches"] for record in warnings] == [[*"abc"], [*"abcd"]]


def test_cordons_of_an_object_that_was_deleted_are_kept_and_that_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = FakeSource()
    node = Node(Scenario.with_plugin(1), sources=(source,))
    node.publisher.cordoned(GPU, "uid", {"d0": Cordon()})
    assert source.asked == [("cordoned", GPU, {"d0"})]
    assert node.host.effects
    assert not caplog.records
    for _ in range(2):
        node.publisher.cordoned(GPU, "", {})
        assert node.host.manager.resources[GPU].use.is_cordoned("d0")
        assert [vars(record)["device_ids"] for record in caplog.records] == [["d0"]]


# -- what a status says --------------------------------------------------------------------------------------------------------


def test_a_problem_of_the_disk_goes_before_one_of_the_start_and_that_before_the_backends() -> None:
    def registered(node: Node) -> tuple[str, str] | None:
        return node.condition(Condition.REGISTERED)

    node = Node(Scenario.with_plugin(1))
    assert registered(node) == (Reason.ENDPOINT_RUNNING, "the device plugin is connected")
    started = Node(Scenario.with_plugin(1), "of the start")
    for each, text in ((node, "of the backend"), (started, "of the start")):
        each.backend.notes = "of the backend"
        assert registered(each) == (Reason.CHECKPOINT_UNREADABLE, text)
        each.host.unsaved = "of the disk"
        assert registered(each) == (Reason.CHECKPOINT_NOT_WRITTEN, "of the disk")


def test_what_the_backend_does_with_devices_is_shown() -> None:
    node = Node(Scenario.with_plugin(1).run(pod("p", gpu=1)))
    injectable = condition_of(node.status(), Condition.INJECTABLE)
    assert injectable is not None
    assert injectable[:2] == ("Unknown", Reason.RUNTIME_NONE)
    for without in ((), ("p", "main", GPU)):
        node.backend.without = without
        [held] = node.status().allocations
        assert held.not_injected is bool(without)


@pytest.mark.parametrize(
    ("stale", "reason"),
    [
        ([], Reason.WATCHES_CURRENT),
        ([PODS], Reason.WATCH_STALE),
        ([node_device_name("n1", GPU)], Reason.WATCH_STALE),
        ([node_device_name("n1", NIC)], Reason.WATCHES_CURRENT),
    ],
)
def test_a_stale_watch_is_shown_where_it_matters(
    stale: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(Scenario.with_plugin(1))
    monkeypatch.setattr(node.publisher.watches, "stale", lambda: frozenset(stale))
    node.publisher.poll_watches()
    found = node.condition(Condition.WATCHES_CURRENT)
    assert found is not None
    assert found[0] == reason


BEFORE = NodeDeviceStatus(
    conditions=[
        ConditionStatus(
            type=Condition.OFFERED_TWICE, status="True", reason="Before", message="m", last_transition_time=MONDAY
        )
    ]
)


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
