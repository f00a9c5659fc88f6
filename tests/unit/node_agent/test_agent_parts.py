"""What the parts of an agent know of one another, and what it begins with after a restart."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from nodedevice_agent.agent import POOLS_FILE_NAME
from nodedevice_agent.checkpoint.files import FILE_NAME
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.configs.watch import ConfigWatch
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, PluginSocket
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.dra.observer import DriverObserver
from nodedevice_agent.kube.lease import LeaseKeeper
from nodedevice_agent.kube.pods import PodWatch
from nodedevice_agent.kube.served_resources import ServedStatus
from nodedevice_agent.kubelet.backend import KubeletBackend
from nodedevice_agent.kubelet.observer import Observer
from nodedevice_agent.lib.filesystem import boot_id
from nodedevice_agent.offered_twice.host import HostReader
from nodedevice_agent.offered_twice.node_sources import NodeSources
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.parts import one_of
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, held_by
from tests.unit.node_agent.idle_agent import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def with_checkpoint(node: Node, checkpoint: Checkpoint) -> None:
    (node.folder / "state" / FILE_NAME).write_text(encode(checkpoint))


RESPONSE = api_pb2.ContainerAllocateResponse(envs={"A": "b"}).SerializeToString()
HELD = Checkpoint((held_by("p", "d0", response=RESPONSE),), {GPU: ("d0",)}, boot_id())


# -- what it begins with -------------------------------------------------------------------------------------------------------


async def test_with_a_checkpoint_nothing_is_recovered_and_what_was_connected_is_expected(node: Node) -> None:
    sockets = (PluginSocket(GPU, "gpu.sock"),)
    with_checkpoint(node, structs.replace(HELD, sockets=sockets))
    with node.agent(delivery="nri") as agent:
        assert not agent._manager.is_recovering
        assert [*agent._manager.resources] == [GPU]
        [held] = agent._manager.book.of_resource(GPU)
        assert held.response == RESPONSE
        assert agent._host._were_connected == sockets
        assert agent._publisher._notes == ""


async def test_allocations_of_an_earlier_release_keep_the_delivery_of_the_first_start(node: Node) -> None:
    with_checkpoint(node, HELD)
    for delivery in ("nri", "kubelet"):
        with node.agent(delivery=delivery) as agent:
            assert [allocation.delivery for allocation in agent._manager.book] == ["nri"]
            with_checkpoint(node, structs.replace(agent._manager.checkpoint(), boot_id=boot_id()))


async def test_one_that_cannot_be_read_is_shown_as_a_problem(node: Node) -> None:
    (node.folder / "state" / FILE_NAME).write_text("{")
    with node.agent(delivery="nri") as agent:
        assert agent._manager.is_recovering
        assert agent._publisher._notes.startswith("invalid checkpoint (")
        assert agent._host._were_connected == ()


@pytest.mark.parametrize(("is_built_in", "response"), [(True, None), (False, RESPONSE)])
async def test_after_a_boot_a_built_in_plugin_is_asked_again_for_what_it_has_answered(
    is_built_in: bool, response: bytes | None, node: Node
) -> None:
    with_checkpoint(node, structs.replace(HELD, boot_id="of another boot"))
    plugins = PluginSettings(simulated=[SimulatedSettings(resource_name=GPU if is_built_in else NIC, count=1)])
    with node.agent(delivery="nri", plugins=plugins) as agent:
        [held] = agent._manager.book.of_resource(GPU)
        assert held.response == response


async def test_what_is_known_from_before_is_published_at_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with_checkpoint(node, HELD)
    async with node.started(monkeypatch, delivery="none", observe=False) as agent:
        assert [*agent._publisher._objects] == [GPU]


async def test_what_is_decided_at_the_end_is_on_disk_when_it_has_ended(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: list[bool] = []
    async with node.started(monkeypatch, delivery="none", observe=False) as agent:
        drain = agent._host.drain

        async def noted() -> None:
            await drain()
            drained.append(True)

        monkeypatch.setattr(agent._host, "drain", noted)
        assert not drained
    assert drained


# -- who knows whom ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observe", [True, False])
async def test_pods_are_seen_by_all_who_ask_whose_devices_they_have(observe: bool, node: Node) -> None:
    with node.agent(delivery="nri", observe=observe) as agent:
        observers = one_of(agent, PodWatch)._observers
        if agent._observer is None or agent._drivers is None:
            assert not observe
            assert observers == []
            assert agent._reader._pods is agent._manager.pods
        else:
            assert observers == [agent._observer, agent._drivers.holders]
            # also those that the kubelet alone has started
            assert agent._reader._pods is agent._observer.served.pods
            assert [type(source) for source in agent._sources] == [ServedStatus, type(agent._drivers.served)]
            assert {agent._observer, agent._drivers.holders} <= {*agent._reader._subscribers}


OBSERVED = pytest.mark.parametrize(
    ("observe", "observe_dra"),
    [(True, True), (True, False), (False, True)],
    ids=["all", "drivers not any more", "neither any more"],
)


@OBSERVED
async def test_the_names_of_all_count_together(observe: bool, observe_dra: bool, node: Node) -> None:
    (node.folder / "state" / POOLS_FILE_NAME).write_text("[]")
    with node.agent(delivery="nri", observe=observe, observe_dra=observe_dra) as agent:
        assert agent._pools is not None
        kubelets = [agent._observer.served.manager] if agent._observer is not None else []
        every: list[Any] = [agent._manager, *kubelets, agent._pools.served]
        for number, owner in enumerate(every):
            name = f"example.com/r{number}"
            owner.resources[name] = Resource(name)
            assert [name in each.places.others() for each in every] == [each is not owner for each in every]


@OBSERVED
async def test_one_of_ours_displaces_those_of_others(
    observe: bool, observe_dra: bool, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node.folder / "state" / POOLS_FILE_NAME).write_text("[]")
    displaced: list[str] = []
    for kind in (Observer, DriverObserver):
        monkeypatch.setattr(kind, "displace", lambda self, names, by: displaced.append(type(self).__name__))
    with node.agent(delivery="nri", observe=observe, observe_dra=observe_dra) as agent:
        agent._manager.places.displace_others(["example.com/a"], "example.com/b")
    assert displaced == ["Observer"] * observe + ["DriverObserver"]


@OBSERVED
async def test_a_name_that_is_given_out_in_another_way_is_no_drivers(
    observe: bool, observe_dra: bool, node: Node
) -> None:
    (node.folder / "state" / POOLS_FILE_NAME).write_text("[]")
    with node.agent(delivery="nri", observe=observe, observe_dra=observe_dra) as agent:
        assert agent._pools is not None
        is_taken = agent._pools.served._is_taken
        kubelets = [agent._observer.served.manager] if agent._observer is not None else []
        for owner in (agent._manager, *kubelets):
            held = Resource(GPU)
            held.use.holders["d0"] = "uid"
            assert not is_taken(GPU)
            owner.resources[GPU] = held
            assert is_taken(GPU)
            del owner.resources[GPU]


async def test_what_is_offered_twice_is_compared_of_all(node: Node) -> None:
    plugins = PluginSettings(host_root="/host")
    with node.agent(delivery="nri", observe=True, plugins=plugins) as agent:
        compared, sources = agent._offered_twice, one_of(agent, NodeSources)
        assert agent._publisher.offered_twice is compared
        assert compared._on_change == agent._publisher.refresh
        assert one_of(compared, NodeSources) is sources
        assert one_of(agent, HostReader)._root == "/host"
        assert (sources._manager, sources._kubelet, sources._drivers) == (
            agent._manager,
            agent._observer,
            agent._drivers,
        )
        assert sources._kubelets is agent._sources[0]
        assert sources._now == agent._host.now


async def test_a_problem_of_the_plugin_directory_is_shown_in_readyz(node: Node) -> None:
    with node.agent(delivery="nri") as agent:
        for problem in ("", "it is gone"):
            agent._host._on_problem(problem)
            assert ("plugin directory: it is gone" in node.health.ready()[1]) is bool(problem)


async def test_what_becomes_of_configurations_is_in_the_lease(node: Node) -> None:
    with node.agent(delivery="nri") as agent:
        lease, configs = one_of(agent, LeaseKeeper), one_of(agent, ConfigWatch)
        assert configs._publish == lease.report_configs


async def test_a_backend_reads_the_same_kubelet_and_publishes_by_the_same_publisher(node: Node) -> None:
    with node.agent(delivery="nri") as agent:
        nri = one_of(agent, NriBackend)
        assert nri._on_change == agent._publisher.refresh_all
        assert nri._kubelet in agent._reader._subscribers
    with node.agent(delivery="kubelet", runtime_grace_seconds=11.0) as agent:
        kubelet = one_of(agent, KubeletBackend)
        assert (kubelet._reader, kubelet.host, kubelet.manager) == (agent._reader, agent._host, agent._manager)
        assert (kubelet.on_condition, kubelet.grace_seconds) == (agent._publisher.refresh, 11.0)
