"""What a container waits for before it is created, and what the backend reports, counts and logs."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits, DeviceFile
from nodedevice_agent.devicemanager.pods import Container, ContainerSettings
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.runtime import InjectionRefused, RuntimeDevice, Validator
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION, Reason
from prometheus_client import REGISTRY

from tests.fakes.background import background
from tests.fakes.runtime_handler import PATIENCE_SECONDS
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container, sandbox
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, calls, pod
from tests.unit.node_agent.runtime.backend_node import BackendNode


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
    assert creation.result().envs == {"ANSWER": "ok"}


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
    scenario.plugin([Device("line", identity=("c188:0",))], options=PluginOptions(scope=f"{BUILT_IN}test"))
    scenario.run(pod("q", gpu=1))
    backend = BackendNode(tmp_path, scenario).backend
    backend.check_files(sandbox("p"), "main", {"c1:3", "c188:1"})
    backend.check_files(sandbox("q"), "main", {"c188:0"})
    with pytest.raises(InjectionRefused, match=r"line of example\.com/gpu, which pod default/q holds"):
        backend.check_files(sandbox("p"), "main", {"c188:0"})
    before = value("containers_refused_total")
    backend.creation_refused(sandbox("p"), container("p"))
    assert value("containers_refused_total") == before + 1
    # whose name is not known yet after a restart
    backend = BackendNode(tmp_path, scenario.rebooted()).backend
    with pytest.raises(InjectionRefused, match=r"line of example\.com/gpu, which the pod with UID q holds"):
        backend.check_files(sandbox("p"), "main", {"c188:0"})


GRACE_SECONDS = 10.0


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"nodedevice_agent_{name}", labels) or 0.0


def logged(caplog: pytest.LogCaptureFixture, text: str) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if text in record.message]


@pytest.fixture(autouse=True)
def _all_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


@virtual_time
async def test_a_short_disconnection_changes_nothing_and_a_long_one_the_condition(tmp_path: Path) -> None:
    node = BackendNode(tmp_path, clock=asyncio.get_running_loop().time, runtime_grace_seconds=GRACE_SECONDS)
    async with background(node.backend.run()):
        await asyncio.sleep(GRACE_SECONDS - 1)
        assert (node.backend.is_settled, node.condition) == (False, None)
        await asyncio.sleep(2)
        # there is none of whose return it would hear
        assert node.condition == ("False", "NoRuntimeSocket")
        assert "nri.sock does not exist" in node.message
        node.backend.runtime_connected("containerd", "v2.4.2", Validator.NOT_SEEN)
        assert (node.condition, node.changes) == (("True", "RuntimeConnected"), 2)
        node.backend.runtime_disconnected("the socket is gone")
        await asyncio.sleep(GRACE_SECONDS - 1)
        # back in time
        node.backend.runtime_connected("containerd", "v2.4.2", Validator.NOT_SEEN)
        await asyncio.sleep(GRACE_SECONDS)
        assert (node.condition, node.changes) == (("True", "RuntimeConnected"), 2)
        node.backend.runtime_disconnected("the socket is gone")
        await asyncio.sleep(GRACE_SECONDS - 1)
        # which does not begin again
        node.backend.runtime_disconnected("nothing listens on the socket")
        await asyncio.sleep(2)
        assert (node.condition, node.changes) == (("False", "RuntimeDisconnected"), 3)
        assert "nothing listens" in node.message
        node.backend.runtime_disconnected("it is too long")
        assert "it is too long" in node.message


@pytest.mark.parametrize(("version", "takes_cdi"), [("v2.4.2", True), ("v1.7.0", False)])
async def test_what_the_runtime_takes_is_noted_for_plugins(version: str, takes_cdi: bool, tmp_path: Path) -> None:
    node = BackendNode(tmp_path)
    node.backend.runtime_connected("containerd", version, Validator.NOT_SEEN)
    assert node.injector.takes_cdi is takes_cdi


async def test_nothing_is_free_while_the_runtime_is_away(tmp_path: Path) -> None:
    node = BackendNode(tmp_path)
    node.backend.synchronized([], [])
    node.scenario.run(pod("p", gpu=1))
    node.backend.runtime_disconnected("the socket is gone")
    node.scenario.gone("p")
    assert node.scenario.held() == {"p/main": ("d0",)}
    node.backend.synchronized([], [])
    assert node.scenario.held() == {}


async def test_a_container_without_its_devices_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = BackendNode(tmp_path)
    node.backend.synchronized([sandbox("p")], [container("p")])
    assert logged(caplog, "runtime synchronized")[0]["containers"] == 1
    node.scenario.run(pod("p", gpu=1))
    text = "container runs without its devices; restart its pod"
    node.backend.runtime_connected("containerd", "v2.4.2", Validator.NOT_SEEN)
    node.scenario.runtime = node.backend.events
    for _ in range(2):
        assert node.condition == ("True", "DevicesNotInjected")
    (found,) = logged(caplog, text)
    assert (found["pod_uid"], found["container"], found["resource_name"]) == ("p", "main", GPU)
    assert value("containers_without_devices", resource_name=GPU) == 1
    # of a resource that was forgotten nothing is known, so it is said again
    node.backend.resource_forgotten(GPU)
    assert node.condition == ("True", "DevicesNotInjected")
    assert len(logged(caplog, text)) == 2
    node.backend.container_ended(sandbox("p"), container("p"))
    assert node.condition == ("True", "RuntimeConnected")
    assert value("containers_without_devices", resource_name=GPU) == 0


async def test_a_refusal_is_counted_with_its_reason(tmp_path: Path) -> None:
    node = BackendNode(tmp_path, RuntimeScenario())
    node.scenario.see(pod("p", gpu=1))
    before = value("containers_refused_total"), value("create_container_seconds_count")
    with pytest.raises(InjectionRefused, match=f"no device plugin has registered {GPU}"):
        await node.create("p")
    after = value("containers_refused_total"), value("create_container_seconds_count")
    assert after == (before[0] + 1, before[1] + 1)


async def test_what_is_temporary_is_waited_for(tmp_path: Path) -> None:
    node = BackendNode(tmp_path, RuntimeScenario.with_plugin(1))
    node.scenario.now = asyncio.get_running_loop().time()
    creation = asyncio.create_task(node.create("p"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not creation.done(), "the API has not shown the pod yet"
    node.scenario.run(pod("p", gpu=1))
    node.effects_done.set()
    assert (await creation).envs == {"ANSWER": "ok"}


async def test_what_settings_of_the_pod_replace_is_logged_once_for_each_container(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = BackendNode(tmp_path)
    own = Container("main", limits={GPU: 1}, settings=ContainerSettings(envs=frozenset({"ANSWER"})))
    node.scenario.run(pod("p", own))
    for _ in range(2):
        assert "ANSWER" not in (await node.create("p")).envs
    (found,) = logged(caplog, "pod settings replace edits of a device plugin")
    assert (found["pod"], found["container"], found["resource_names"]) == ("default/p", "main", [GPU])
    assert found["omitted"]


async def test_a_validation_takes_what_was_created_with_devices_and_refuses_the_rest(tmp_path: Path) -> None:
    node = BackendNode(tmp_path)
    node.scenario.run(pod("p", gpu=1))
    with pytest.raises(InjectionRefused, match="container main is being created without its devices"):
        node.backend.validate(sandbox("p", held=True), container("p"))
    await node.create("p")
    node.backend.validate(sandbox("p", held=True), container("p"))
    with pytest.raises(InjectionRefused, match="has not received pod default/q from the API server yet"):
        node.backend.validate(sandbox("q", held=True), container("q"))
    # whoever asks for nothing
    node.backend.validate(sandbox("q"), container("q"))


async def test_a_start_after_the_release_is_shown_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = BackendNode(tmp_path)
    node.backend.synchronized([], [])
    node.scenario.run(pod("p", gpu=1))
    edits = await node.create("p")
    made = container("p", annotations=edits.annotations)
    node.backend.runtime_connected("containerd", "v2.4.2", Validator.NOT_SEEN)
    node.scenario.gone("p")
    node.backend.container_ended(sandbox("p"), made)
    assert node.condition == ("True", "RuntimeConnected")
    node.backend.container_started(sandbox("p"), made)
    assert node.condition == ("True", Reason.DEVICES_IN_USE_AFTER_RELEASE)
    (found,) = logged(caplog, "container uses devices that were released; stop it")
    assert found["container_id"] == made.id
