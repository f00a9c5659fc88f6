"""Who hears of this node's pods, and what is recovered of a lost checkpoint before anybody does."""

import asyncio
from collections.abc import Iterable
from typing import cast

import msgspec
import pytest
from nodedevice_agent.delivery.record_only import RecordOnly
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.cordons import Cordon, Cordons
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.informer import Watches
from nodedevice_agent.kube.pod_objects import SeenPod, seen
from nodedevice_agent.kube.pods import PodWatch, recover_checkpoint
from nodedevice_agent.kube.publisher import PODS, Publisher

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario
from tests.unit.node_agent.kube.status_source import FakeSource, Host
from tests.unit.node_agent.kube.test_pods import LostCheckpoint, an_object, container
from tests.unit.node_agent.kube.test_pods import pod as pod_object


class Observer:
    """Somebody else who is notified of pods: by their names, or their UIDs once they are gone."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[str]]] = []

    def pods_synced(self, pods: Iterable[Pod]) -> None:
        self.heard.append(("synced", [pod.name for pod in pods]))

    def pod_seen(self, pod: Pod) -> None:
        self.heard.append(("seen", [pod.name]))

    def pod_gone(self, pod_uid: str) -> None:
        self.heard.append(("gone", [pod_uid]))


class Node:
    """What a watch of pods is made with. followed: what it follows in the end."""

    def __init__(self, scenario: Scenario, cluster: LostCheckpoint | None = None) -> None:
        self.host, self.health, self.observer = Host(scenario), AgentHealth(PODS), Observer()
        self.source = FakeSource()
        self.publisher = Publisher(cast(KubeClient, cluster), "n1")
        self.publisher.watches = cast(Watches, self)
        self.publisher.start(cast(asyncio.TaskGroup, None), self.host, RecordOnly(), [self.source])
        self.watch = PodWatch(self.host, self.publisher, self.health, [self.observer])
        self.followed: list[tuple[str, dict[str, str]]] = []

    async def follow(self, name: str, kind: object, fields: dict[str, str], *_: object, **options: object) -> None:
        assert not self.host.manager.is_recovering
        self.followed.append((name, fields))


def running(uid: str) -> SeenPod:
    metadata = {"name": f"pod-{uid}", "namespace": "n", "uid": uid} if uid else {"name": "pod"}
    return seen(pod_object({"containers": [container("main", {GPU: "1"})]}, metadata=metadata))


def test_everybody_hears_of_pods() -> None:
    node = Node(Scenario.with_plugin(2))
    assert not node.health.ready()[0]
    assert not node.publisher.are_pods_known
    node.watch.synced([running("a"), running("b")], 7)
    assert node.health.ready()[0]
    assert node.publisher.are_pods_known
    assert {*node.host.manager.pods} == {"a", "b"}
    node.watch.updated(running("c"))
    node.watch.deleted(running("a"))
    assert {*node.host.manager.pods} == {"b", "c"}
    node.watch.deleted(running(""))
    assert node.observer.heard == [("synced", ["pod-a", "pod-b"]), ("seen", ["pod-c"]), ("gone", ["a"]), ("gone", [""])]


HELD = {"podUID": "u", "container": "c", "deviceIDs": ["d0"], "since": "2026-01-05T12:00:00Z"}


@pytest.mark.parametrize("has_any", [True, False])
async def test_a_lost_checkpoint_is_recovered_before_pods_are_watched(
    has_any: bool, caplog: pytest.LogCaptureFixture
) -> None:
    of_driver = an_object("gpu.example.com/x", agent={"servedBy": "dra"}, driver="gpu.example.com")
    cluster = LostCheckpoint(*[an_object(GPU, allocations=[HELD]), of_driver] * has_any)
    node = Node(Scenario(is_recovering=True), cluster)
    await node.watch.run()
    assert [each.pod_uid for each in node.host.manager.book.of_resource(GPU)] == ["u"] * has_any
    assert node.source.asked == [("remember", "gpu.example.com/x", "gpu.example.com")] * has_any
    assert node.followed == [(PODS, {"spec.nodeName": "n1"})]
    assert [record.message for record in caplog.records] == ["allocations recovered from the API"] * has_any


async def test_nothing_is_asked_where_there_is_a_checkpoint() -> None:
    node = Node(Scenario.with_plugin(1))
    await node.watch.run()
    assert len(node.followed) == 1


async def test_all_that_an_object_says_is_recovered() -> None:
    """The NUMA nodes, too: of whole devices, of parts by those of their parents, and of a part by its own if it has some."""
    devices = [{"id": f"{name}", "numaNodes": [node]} for name, node in (("d0", 0), ("a", 1), ("a-2", 2))]
    parts = [{"parent": "a", "parts": 3, "numbers": "1-2,5"}, {"parent": "b", "parts": 1, "numbers": "7"}]
    of_parts = {"podUID": "v", "container": "c", "parts": parts}
    status = {"devices": devices, "allocations": [HELD, of_parts], "rememberedCordons": [{"id": "d0"}, {"id": "d1"}]}
    body = an_object(GPU, **status)
    body["spec"]["cordonedDevices"] = [{"id": "d0", "reason": "fan", "by": "alice"}]
    found = await recover_checkpoint(LostCheckpoint(body, an_object(NIC)), "n1")
    assert [*found.allocations] == [
        Allocation("u", "c", GPU, {0: ("d0",)}, None, since=1_767_614_400),
        Allocation("v", "c", GPU, {-1: ("b-7",), 1: ("a-1", "a-5"), 2: ("a-2",)}, None),
    ]
    # also that it has none
    assert found.registered == {GPU: (), NIC: ()}
    assert found.cordons == {GPU: Cordons(f"uid of {GPU}", {"d0": Cordon("fan", "alice")}, {"d1": Cordon()})}


async def test_an_object_without_a_resource_name_is_logged_and_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    status = {"allocations": [HELD], "allocationsOmitted": 3, "rememberedCordons": [{"id": "d0"}]}
    found = await recover_checkpoint(LostCheckpoint({"metadata": {"name": "x"}, "status": status}), "n1")
    assert msgspec.structs.asdict(found) == msgspec.structs.asdict(await recover_checkpoint(LostCheckpoint(), "n1"))
    [line] = caplog.records
    assert line.message.startswith("invalid NodeDevice without a resource name")
    assert vars(line)["nodedevice"] == "x"
