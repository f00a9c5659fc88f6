"""How the agent is put together: each part is there, is the same for all who share it, and has its settings."""

import asyncio
import logging
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import trustme
from nodedevice_agent import __version__, metrics
from nodedevice_agent.agent import POOLS_FILE_NAME
from nodedevice_agent.checkpoint.files import agent_id
from nodedevice_agent.cli import run
from nodedevice_agent.configs.effective import Effective
from nodedevice_agent.configs.watch import ConfigWatch
from nodedevice_agent.delivery.record_only import RecordOnly
from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyPolicy, TopologyScope
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDampingLimits
from nodedevice_agent.devicemanager.resources.resource_table import ResourceTable
from nodedevice_agent.devicemanager.runtime import RuntimeHandler
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher
from nodedevice_agent.errors import AgentSettingsError, DirectoryServed
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.lease import LeaseKeeper
from nodedevice_agent.kube.pods import PodWatch
from nodedevice_agent.kube.publisher import Publisher
from nodedevice_agent.kubelet.backend import KubeletBackend, KubeletEndpoint
from nodedevice_agent.kubelet.injected_containers import InjectedContainers
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.plugins.generic.settings import GenericSettings, GroupSettings, PathSettings
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.runtime.hooked_containers import HookedContainers

from tests.fakes.failing_task import Failing
from tests.fakes.parts import misfits, one_of, parts_of
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.idle_agent import Node

DELIVERIES = ("nri", "kubelet", "none")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("has_all", [True, False], ids=["all", "least"])
async def test_each_part_begins_as_it_is_declared(delivery: str, has_all: bool, node: Node) -> None:
    more = {"plugins_registry_dir": str(node.folder / "registry")} if has_all else {"pod_resources_socket": ""}
    with node.agent(delivery=delivery, observe=has_all, **more) as agent:
        assert misfits(agent) == []
        for kind in (Publisher, PluginHost, PodWatch, LeaseKeeper, ConfigWatch, AgentHealth, KubeClient):
            one_of(agent, kind)
        assert (agent._drivers is not None) is has_all
        assert (agent._observer is not None) is (agent._watcher is not None) is has_all
        assert (agent._pod_resources is not None) is has_all
        assert (agent._nri is not None) is (delivery == "nri")
        assert isinstance(agent._delivery, KubeletBackend) is (delivery == "kubelet")


@pytest.mark.parametrize(
    ("observe", "observe_dra", "has_file", "found"),
    [
        (True, True, True, (True, True)),
        (True, True, False, (True, True)),
        (True, False, True, (False, True)),
        (False, True, True, (False, True)),
        (True, False, False, (False, False)),
        (False, True, False, (False, False)),
    ],
)
async def test_drivers_are_observed_or_what_was_shown_of_them_ends(
    observe: bool, observe_dra: bool, has_file: bool, found: tuple[bool, bool], node: Node
) -> None:
    if has_file:
        (node.folder / "state" / POOLS_FILE_NAME).write_text("[]")
    with node.agent(delivery="none", observe=observe, observe_dra=observe_dra) as agent:
        assert (agent._drivers is not None, agent._pools is not None) == found
        if agent._pools is not None:
            served = agent._pools.served
            assert served.is_off is not (observe and observe_dra)
            assert served in agent._sources
            assert agent._pools._file == node.folder / "state" / POOLS_FILE_NAME
            # the names of all are counted together
            assert served.places.others() == agent._manager.places.others() == {}


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_settings_reach_those_who_work_by_them(delivery: str, node: Node) -> None:
    given: dict[str, Any] = {
        "leases_namespace": "agents",
        "topology_policy": "restricted",
        "topology_scope": "pod",
        "numa_nodes": "0-2",
        "flapping_changes": 7,
        "flapping_window_seconds": 8.0,
        "flapping_quiet_seconds": 9.0,
        "allocate_retry": {"*": "never"},
        "allowed_host_paths": ["/srv"],
        "plugins": PluginSettings(simulated=[SimulatedSettings(resource_name="example.com/gpu", count=1)]),
        "runtime_grace_seconds": 11.0,
        "plugins_registry_dir": str(node.folder / "registry"),
    }
    with node.agent(delivery=delivery, **given) as agent:
        publisher, lease, configs = agent._publisher, one_of(agent, LeaseKeeper), one_of(agent, ConfigWatch)
        assert publisher.node_name == "n1"
        assert agent._manager.book.delivery == agent._delivery.name == delivery
        assert (lease._namespace, lease._node_name) == ("agents", "n1")
        assert lease._identity.startswith(f"{agent_id(node.folder / 'state')}_")
        assert agent._manager.table._flapping == FlapDampingLimits(7, 8.0, 9.0)
        assert Topology(TopologyPolicy.RESTRICTED, TopologyScope.POD, (0, 1, 2)) in parts_of(agent)
        assert (configs._node_name, configs._base) == ("n1", given["plugins"])
        assert (configs._allowed_host_paths, configs._file.parent) == (["/srv"], node.folder / "state")
        assert one_of(agent, PluginWatcher)._registry_dir == node.folder / "registry"


@pytest.mark.parametrize(
    ("delivery", "waits_for_runtime", "waits_for_cordons", "is_allocating"),
    [("nri", True, True, True), ("kubelet", False, True, False), ("none", False, True, True)],
)
async def test_the_device_manager_of_each_delivery(
    delivery: str, waits_for_runtime: bool, waits_for_cordons: bool, is_allocating: bool, node: Node
) -> None:
    with node.agent(delivery=delivery) as agent:
        manager = agent._manager
        assert (manager.table.is_attributed is None) is is_allocating
        assert (manager.releasing.containers is not None) is waits_for_runtime
        assert manager.table._waits_for_cordons is waits_for_cordons
        # there is no checkpoint
        assert manager.is_recovering
        assert node.built_in.delivery.by_kubelet is (delivery == "kubelet")
    value = metrics.INFO.labels(__version__, delivery, delivery)._value.get()
    assert value == 1


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_what_it_starts_with(delivery: str, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node.started(monkeypatch, delivery=delivery, observe=True) as agent:
        publisher = agent._publisher
        kinds = {"nri": NriBackend, "kubelet": KubeletBackend, "none": RecordOnly}
        assert type(publisher._delivery) is kinds[delivery]
        assert publisher._host is agent._host
        assert agent._observer is not None
        assert publisher._sources == agent._sources
        assert agent._observer.served in [getattr(source, "_served", None) for source in publisher._sources]
        assert agent._observer in agent._reader._subscribers
        socket = node.folder / "state/pod-resources/kubelet.sock"
        assert socket.is_socket()
    assert not socket.exists()


@pytest.mark.parametrize(("socket", "is_served"), [("", False), ("some/where/else.sock", True)])
async def test_pod_resources_where_the_settings_have_them(
    socket: str, is_served: bool, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(node.folder / socket) if socket else ""
    async with node.started(monkeypatch, delivery="none", observe=False, pod_resources_socket=path) as agent:
        assert (agent._pod_resources is not None) is is_served
        found = {each for each in node.folder.rglob("*.sock") if each.parent != node.folder / "plugins"}
        assert found == ({Path(path)} if is_served else set())
        assert not agent._publisher._sources


@pytest.mark.parametrize("advertises", [True, False])
async def test_without_a_delivery_devices_are_advertised_if_that_is_set(
    advertises: bool, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.started(monkeypatch, delivery="none", advertise_without_injection=advertises) as agent:
        assert one_of(agent, RecordOnly)._advertises is advertises


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_the_runtimes_plugin_is_there_with_each(
    delivery: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each, as pods that require it may come to any node; only with nri it injects."""
    async with node.started(monkeypatch, delivery=delivery, nri_index="77") as agent:
        (plugin,) = node.nri_plugins
        assert (plugin._socket, plugin._index) == (node.folder / "nri.sock", "77")
        assert (plugin._handler is agent._nri) is (delivery == "nri")
        handlers: dict[str, type[RuntimeHandler]] = {"kubelet": InjectedContainers, "none": RuntimeHandler}
        assert type(plugin._handler) is handlers.get(delivery, NriBackend)


@pytest.mark.parametrize("nvml", [None, NvmlSettings(exempt=["monitoring", "a/b"])], ids=["no GPUs", "GPUs"])
@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_what_is_configured_reaches_all(
    delivery: str, nvml: NvmlSettings | None, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = PluginSettings(
        simulated=[SimulatedSettings(resource_name="example.com/a", count=1)],
        generic=[GenericSettings("example.com/b", [GroupSettings(paths=[PathSettings("/dev/x")])])],
        nvml=nvml,
    )
    calls: list[tuple[str, Any]] = []

    def ranked(_: ResourceTable, *given: Any) -> list[Any]:
        calls.append(("ranked", given[:2]))
        return []

    def configured(_: ResourceTable, *given: Any) -> list[Any]:
        calls.append(("configured", given[2]))
        return []

    monkeypatch.setattr(ResourceTable, "ranked", ranked)
    monkeypatch.setattr(ResourceTable, "configured", configured)
    with node.agent(delivery=delivery, namespace="ours") as agent:
        one_of(agent, ConfigWatch)._apply(Effective(plugins, ranks={"example.com/b": 3}))
        assert calls == [
            ("ranked", ({"example.com/b": 3}, ["example.com/b"])),
            ("configured", ["example.com/b", "example.com/a"]),
        ]
        assert node.applied == [plugins]
        if delivery == "nri":
            hooks: list[Any] = [hooked.hook for hooked in one_of(agent, HookedContainers).hooks.all]
            assert [hook._exempt for hook in hooks] == ([] if nvml is None else [("monitoring", "a/b", "ours")])


async def test_a_registry_that_contains_the_plugin_directory_is_refused(node: Node) -> None:
    link = node.folder / "link"
    link.symlink_to(node.folder)
    for registry in (node.folder, node.folder / "plugins", link):
        named = rf"^--plugins-registry-dir {registry} contains --plugin-dir {node.folder / 'plugins'}, .* use separate"
        with (
            pytest.raises(AgentSettingsError, match=named),
            node.agent(delivery="none", plugins_registry_dir=str(registry)),
        ):
            pass
    with node.agent(delivery="none", plugins_registry_dir=str(node.folder / "registry")):
        pass


async def test_the_kubelets_state_is_read_before_plugins_are_served_and_again_when_it_is_outdated(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    events: list[str] = []
    monkeypatch.setattr(KubeletEndpoint, "run", Failing().work)
    monkeypatch.setattr(KubeletReader, "wake", lambda _: events.append("wake"))
    async with node.started(monkeypatch, delivery="kubelet") as agent:
        assert node.reads == 1
        (record,) = [found for found in caplog.records if found.message == "mirroring the kubelet's allocations"]
        assert vars(record)["path"] == str(node.folder / "kubelet")
        kubelet = agent._delivery
        assert isinstance(kubelet, KubeletBackend)
        mirror = agent._manager
        mirror.connected("example.com/gpu", 1, PluginOptions(), agent._host.now())
        agent._host.settle()
        for is_outdated in (False, True):
            mirror.attribution.is_outdated = is_outdated
            del events[:]
            kubelet.resource_changed("example.com/gpu")
            assert events == ["wake"] * is_outdated
        served = kubelet._serving["example.com/gpu"]
        kubelet.resource_forgotten("example.com/gpu")
        await asyncio.gather(served, return_exceptions=True)
        assert served.cancelled()
        kubelet.resource_forgotten("example.com/gpu")


@pytest.mark.parametrize("authentication", ["none", "token"])
async def test_metrics_are_protected_as_the_settings_have_it(
    authentication: Literal["none", "token"], node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[Any, ...]] = []

    def serve(*given: Any) -> Any:
        served.append(given)
        raise AgentSettingsError("enough")

    chain = node.folder / "tls.pem"
    trustme.CA().issue_cert("agent").private_key_and_cert_chain_pem.write_to_path(str(chain))
    monkeypatch.setattr(run, "serve", serve)
    given = node.settings(
        delivery="none", metrics_authentication=authentication, tls_certificate=str(chain), tls_key=str(chain)
    )
    with pytest.raises(AgentSettingsError, match="enough"):
        await run._run(given)
    (address, health, protection) = served[0]
    assert address == given.http_address
    waits_for = ("api server", "node", "plugin directory", "pods")
    assert [what for what in waits_for if f"{what}: not yet" not in health.ready()[1]] == []
    assert (protection.access is not None) is (authentication == "token")
    with pytest.raises(AgentSettingsError, match="belong together"):
        await run._run(msgspec.structs.replace(given, tls_key=""))


@virtual_time
async def test_a_beat_shows_whether_watches_deliver(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[str] = []
    parked: list[int] = []
    problems = iter(["the watch of pods is silent", "", ""])
    with node.agent(delivery="none") as agent:
        monkeypatch.setattr(agent._publisher, "poll_watches", lambda: next(problems))
        monkeypatch.setattr(agent._publisher, "park", lambda: parked.append(len(beats)))
        monkeypatch.setattr(node.health, "beat", lambda: beats.append(node.health.ready()[1]))
        beating = asyncio.create_task(agent._beat())
        for number in (1, 2, 3):
            await asyncio.sleep(0 if number == 1 else 5)
            assert len(beats) == number
            assert parked == [*range(1, number + 1)]
            assert ("watches: the watch of pods is silent" in node.health.ready()[1]) is (number == 1)
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


@virtual_time
async def test_a_directory_that_another_agent_uses_is_waited_for(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception] = [DirectoryServed("/p", "it answers"), DirectoryServed("/p", "it holds the lock")]
    shown: list[str] = []

    def take() -> str:
        shown.append(node.health.ready()[1])
        if failures:
            raise failures.pop()
        return "taken"

    began = asyncio.get_running_loop().time()
    assert await run._wait_for(take, node.health) == "taken"
    assert round(asyncio.get_running_loop().time() - began, 3) == 2 * run._DIRECTORY_RETRY_SECONDS
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert vars(caplog.records[0])["error"] == str(DirectoryServed("/p", "it holds the lock"))
    assert "it answers" in shown[-1]
