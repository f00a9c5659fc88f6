"""How an agent starts: with which state, what it serves, and which settings it refuses."""

import asyncio
from pathlib import Path

import pytest
from msgspec import structs
from nodedevice_agent.agent import device_manager, restored
from nodedevice_agent.checkpoint.files import FILE_NAME
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.cli import run
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.lib.filesystem import boot_id
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.settings import AgentSettings, read_topology
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, held_by, pod
from tests.unit.node_agent.idle_agent import running, settings

RESPONSE = api_pb2.ContainerAllocateResponse(envs={"A": "b"}).SerializeToString()
HELD = Checkpoint((held_by("p", "d0", response=RESPONSE),), {GPU: ("d0",)}, boot_id())


def with_checkpoint(given: AgentSettings, content: str) -> AgentSettings:
    Path(given.state_dir, FILE_NAME).write_text(content)
    return given


@pytest.mark.parametrize(
    ("boot", "own", "response"),
    [
        pytest.param(boot_id(), GPU, RESPONSE, id="same boot"),
        pytest.param("another", NIC, RESPONSE, id="another boot"),
        # device files have other numbers now
        pytest.param("another", GPU, None, id="another boot, built-in plugin"),
    ],
)
def test_allocations_survive_and_outdated_responses_do_not(
    tmp_path: Path, boot: str, own: str, response: bytes | None
) -> None:
    plugins = PluginSettings(simulated=[SimulatedSettings(resource_name=own, count=1)])
    given = with_checkpoint(settings(tmp_path, plugins=plugins), encode(structs.replace(HELD, boot_id=boot)))
    checkpoint, problem = restored(given)
    assert checkpoint is not None
    [held] = checkpoint.allocations
    assert (held.device_ids, held.response, problem) == (("d0",), response, "")


def test_an_unreadable_checkpoint_is_a_problem_to_show(tmp_path: Path) -> None:
    checkpoint, problem = restored(with_checkpoint(settings(tmp_path), "{"))
    assert checkpoint is None
    assert problem.startswith("invalid checkpoint (")


def manager_of(given: AgentSettings, checkpoint: Checkpoint | None) -> Scenario:
    """The agent's device manager with these settings, in a scenario with two GPUs, one near each NUMA node."""
    scenario = Scenario()
    scenario.now = asyncio.get_running_loop().time()
    topology = read_topology(given.topology_policy, given.topology_scope, given.numa_nodes)
    scenario.manager = device_manager(given, topology, checkpoint)
    scenario.plugin([Device("d0", numa_nodes=(0,)), Device("d1", numa_nodes=(1,))])
    scenario.happens("table.cordoned", GPU, "object", {})
    return scenario


@pytest.mark.parametrize(
    ("delivery", "allocated", "releasing"), [("nri", 1, 1), ("none", 1, 0), ("kubelet", 0, 0)], ids=str
)
async def test_who_allocates_and_when_a_device_is_free_again(
    tmp_path: Path, delivery: str, allocated: int, releasing: int
) -> None:
    """With nri when the container has ended, with none when the pod is gone; the kubelet allocates by itself."""
    scenario = manager_of(settings(tmp_path, delivery=delivery), Checkpoint()).run(pod("p", gpu=1))
    assert len(scenario.held()) == allocated
    scenario.gone("p")
    assert scenario.snapshot().releasing == releasing


async def test_without_a_checkpoint_nothing_is_allocated_before_the_api_is_read(tmp_path: Path) -> None:
    scenario = manager_of(settings(tmp_path, delivery="none"), None).run(pod("p", gpu=1))
    assert scenario.held() == {}
    scenario.answer_all(scenario.happens("recovered", Checkpoint()))
    assert len(scenario.held()) == 1


async def test_the_topology_policy_is_that_of_the_settings(tmp_path: Path) -> None:
    given = settings(tmp_path, delivery="none", topology_policy="single-numa-node", numa_nodes="0-1")
    scenario = manager_of(given, Checkpoint()).run(pod("p", gpu=2))
    assert scenario.reasons() == {"p": "TopologyAffinity"}


@pytest.mark.parametrize(
    ("given", "socket"),
    [(None, "s/pod-resources/kubelet.sock"), ("", ""), ("elsewhere/a.sock", "elsewhere/a.sock")],
    ids=["default", "off", "elsewhere"],
)
async def test_pod_resources_are_served_where_the_settings_say(
    given: str | None, socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / given) if given else given
    async with running(settings(tmp_path, delivery="none", pod_resources_socket=path), monkeypatch):
        served = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.sock")} - {"p/kubelet.sock"}
        assert served == ({socket} if socket else set())
    assert [path for path in tmp_path.rglob("*.sock") if path.is_socket()] == []


@pytest.mark.parametrize("registry", [".", "p", "link"])
async def test_a_registry_that_contains_the_plugin_directory_is_refused(registry: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    given = settings(tmp_path, plugins_registry_dir=str(tmp_path / registry))
    named = rf"^--plugins-registry-dir {tmp_path / registry} contains --plugin-dir {given.plugin_dir}, .* use separate"
    with pytest.raises(AgentSettingsError, match=named):
        await run._run(given)
