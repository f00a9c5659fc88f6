"""What a container waits for before it is created with its devices."""

import asyncio
from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits, DeviceFile
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.runtime import InjectionRefused, RuntimeDevice
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION
from prometheus_client import REGISTRY

from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container, sandbox
from tests.unit.node_agent.devicemanager.scenario import NIC, calls, pod
from tests.unit.node_agent.runtime.backend_node import BackendNode

# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 60.0


class SlowDisk(BackendNode):
    """It writes only once it may."""

    def __init__(self, folder: Path, scenario: RuntimeScenario) -> None:
        super().__init__(folder, scenario, asyncio.get_running_loop().time)
        self.may_write = asyncio.Event()
        self.waits_for: asyncio.Queue[str] = asyncio.Queue()

    async def saved(self, pod_uid: str) -> None:
        self.waits_for.put_nowait(pod_uid)
        await self.may_write.wait()


@virtual_time
async def test_no_device_is_given_before_its_allocation_is_on_disk(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path, RuntimeScenario.with_plugin(1).run(pod("p", gpu=1)))
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        creation = tasks.create_task(disk.create("p"))
        assert await disk.waits_for.get() == "p"
        # as many turns of the loop as an answer from memory could need
        for _ in range(20):
            await asyncio.sleep(0)
        assert not creation.done()
        disk.may_write.set()
    edits = creation.result()
    assert edits is not None
    assert edits.envs == {"ANSWER": "ok"}


def refused() -> float:
    """How many containers were, as scraped."""
    return REGISTRY.get_sample_value("nodedevice_agent_containers_refused_total") or 0.0


@pytest.mark.parametrize("end", ["container_ended", "creation_refused", "a restart"])
async def test_files_count_from_the_creation_of_their_container_on(tmp_path: Path, end: str) -> None:
    """A plugin of others gives a pod the file of a built-in plugin's device: nobody else gets it before the container starts."""
    line = Device("line", identity=("c188:0",), files=(("/dev/ttyUSB0", "c188:0"),))
    scenario = RuntimeScenario()
    scenario.sync()
    scenario.plugin([line], NIC, 2, PluginOptions(scope=f"{BUILT_IN}test"))
    scenario.plugin(["d0"])
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    edits = ContainerEdits(devices=(DeviceFile("/dev/ttyUSB0", "/dev/ttyUSB0", "rw"),))
    scenario.happens("allocated", call.ticket, AllocateResponse(b"foreign", edits))
    backend = BackendNode(tmp_path, scenario).backend
    await backend.create_container(sandbox("p"), container("p"))
    assert availability.free(scenario.manager.resources[NIC]) == ("line",)
    backend.creation_adjusted(sandbox("p"), container("p"), (RuntimeDevice("/dev/ttyUSB0", "c", 188, 0),))
    assert availability.free(scenario.manager.resources[NIC]) == ()
    if end == "a restart":
        (made,) = scenario.manager.containers
        mark = ",".join(f"{name}={value}" for name, value in made.fingerprints.items())
        listed = container("p", annotations={CONTAINER_DEVICES_ANNOTATION: mark}, devices=made.devices)
        scenario = scenario.rebooted()
        scenario.plugin([line], NIC, 2, PluginOptions(scope=f"{BUILT_IN}test"))
        scenario.sync(("p", listed))
        assert availability.free(scenario.manager.resources[NIC]) == ()
        return
    getattr(backend, end)(sandbox("p"), container("p"))
    assert availability.free(scenario.manager.resources[NIC]) == ("line",)


def test_a_file_that_another_pod_holds_is_not_given(tmp_path: Path) -> None:
    """Whoever's plugin has named it."""
    scenario = RuntimeScenario()
    line = Device("line", identity=("c188:0",))
    scenario.plugin([line], options=PluginOptions(scope=f"{BUILT_IN}test"))
    scenario.run(pod("q", gpu=1))
    backend = BackendNode(tmp_path, scenario).backend
    backend.check_files(sandbox("p"), "main", {"c1:3", "c188:1"})
    backend.check_files(sandbox("q"), "main", {"c188:0"})
    with pytest.raises(InjectionRefused, match=r"line of example\.com/gpu, which pod default/q holds"):
        backend.check_files(sandbox("p"), "main", {"c188:0"})
    before = refused()
    backend.creation_refused(sandbox("p"), container("p"))
    assert refused() == before + 1
    # whose name is not known yet after a restart
    backend = BackendNode(tmp_path, scenario.rebooted()).backend
    with pytest.raises(InjectionRefused, match=r"line of example\.com/gpu, which the pod with UID q holds"):
        backend.check_files(sandbox("p"), "main", {"c188:0"})
