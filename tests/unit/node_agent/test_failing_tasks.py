"""A task that is for showing, or for one plugin, fails, whatever it raises: the agent goes on, and the task is run again.

One that is vital ends the agent, in a sentence that names it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from nodedevice_agent.agent import Agent
from nodedevice_agent.cli import run
from nodedevice_agent.configs.watch import ConfigWatch
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher, _RegistrySocket
from nodedevice_agent.deviceplugin.registration_server import RegistrationServer
from nodedevice_agent.dra.claims import ClaimReader
from nodedevice_agent.dra.holders import Holders
from nodedevice_agent.dra.observer import DriverObserver
from nodedevice_agent.errors import TaskEnded
from nodedevice_agent.kube.lease import LeaseKeeper
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.pods import PodWatch
from nodedevice_agent.kubelet.backend import KubeletBackend, KubeletEndpoint
from nodedevice_agent.kubelet.observer import Observer
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.lib import memory
from nodedevice_agent.nri.connector import NriPlugin
from nodedevice_agent.offered_twice.watch import OfferedTwice
from nodedevice_agent.plugins.run import PluginRunner
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.runtime.device_numbers import DeviceNumbers
from nodedevice_agent.runtime.kubelet_pods import KubeletPods
from nodedevice_agent.settings import AgentSettings
from nodedevice_common import tasks

from tests.fakes.failing_task import FAILURES, Failing
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.unit.test_tasks import RETRIED, VITAL

GPU: Final = "example.com/gpu"
# the task, what it runs, and with which delivery
NRI: Final[dict[str, tuple[Any, str]]] = {
    "beat": (Agent, "_beat"),
    "configs": (ConfigWatch, "run"),
    "device manager": (PluginHost, "_detect_end"),
    "device numbers": (DeviceNumbers, "run"),
    "dra claims": (ClaimReader, "run"),
    "dra holders": (Holders, "run"),
    "dra slices": (DriverObserver, "run"),
    "ends of containers": (NriBackend, "_watch_doubtful"),
    "kubelet observer": (Observer, "run"),
    "kubelet state": (KubeletReader, "run"),
    "lease": (LeaseKeeper, "run"),
    "memory": (memory, "release"),
    "offered twice": (OfferedTwice, "run"),
    "node": (run, "_check_node"),
    "nodedevice": (NodeDeviceSync, "run"),
    "nri": (NriPlugin, "run"),
    "plugin registry": (PluginWatcher, "run"),
    "plugins": (PluginRunner, "run"),
    "pods": (PodWatch, "run"),
    "pods of the kubelet": (KubeletPods, "leave_all"),
    "registration socket": (RegistrationServer, "keep"),
}
KUBELET: Final[dict[str, tuple[Any, str]]] = {
    "files of the kubelet": (KubeletBackend, "_watch"),
    "kubelet endpoint": (KubeletEndpoint, "run"),
}
# a part of the one before, or tried below
ELSEWHERE: Final = {
    *("agent", "holdings", "plugin", "plugin connection", "registry socket"),
    # where there are nine names: its visits are apart, see kube/test_parked.py
    "parked nodedevices",
}


def settings(folder: Path, delivery: Literal["nri", "kubelet"]) -> AgentSettings:
    entry: dict[str, Any] = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}
    entry["users"] = [{"name": "u", "user": {"token": "t"}}]
    entry["contexts"] = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    (folder / "kc").write_text(json.dumps({**entry, "current-context": "x"}))
    for name in ("p", "r", "k"):
        (folder / name).mkdir()
    return AgentSettings(
        node_name="n1",
        kubeconfig=str(folder / "kc"),
        http_address="127.0.0.1:0",
        plugin_dir=str(folder / "p"),
        state_dir=str(folder / "s"),
        kubelet_dir=str(folder / "k"),
        plugins_registry_dir=str(folder / "r"),
        nri_socket=str(folder / "nri.sock"),
        delivery=delivery,
        observe=True,
    )


async def _first(event: asyncio.Event, task: asyncio.Task[None]) -> None:
    """Until the event, or the end of the task; a minute ends a hang."""
    waiting = asyncio.create_task(event.wait())
    async with asyncio.timeout(60):
        await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


@asynccontextmanager
async def running(
    failing: str, failures: Sequence[Exception], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Failing, asyncio.Task[None]]]:
    """The whole agent, with this one of its tasks failing and all others idle, and a device plugin."""
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)
    bad, given = Failing(*failures), settings(folder, "kubelet" if failing in KUBELET else "nri")
    for name, (owner, method) in {**NRI, **(KUBELET if failing in KUBELET else {})}.items():
        work = bad if name == failing else Failing()
        monkeypatch.setattr(owner, method, work.work)
    monkeypatch.setattr(LeaseKeeper, "acquire", lambda _: asyncio.sleep(0))
    monkeypatch.setattr(KubeletReader, "_read", lambda _: asyncio.sleep(0))
    agents: list[Agent] = []
    made = Agent.__init__

    def init(agent: Agent, *given: Any) -> None:
        made(agent, *given)
        agents.append(agent)

    monkeypatch.setattr(Agent, "__init__", init)
    plugin = FakePlugin(GPU, {"d0": FakeDevice()})
    task = asyncio.create_task(run._run(given))
    try:
        while not (agents or task.done()):
            await asyncio.sleep(0)
        if agents:
            await _first(agents[0].is_serving, task)
        if failing in RETRIED["agent"]:
            await plugin.join(folder / "p")
        yield bad, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await plugin.stop()


@pytest.mark.parametrize("name", sorted(RETRIED["agent"] - ELSEWHERE))
async def test_what_is_shown_is_run_again_and_ends_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(name, FAILURES, tmp_path, monkeypatch) as (bad, task):
        await _first(bad.is_well, task)
        assert not task.done()
        assert bad.times == len(FAILURES) + 1
        assert any(problem.startswith(name) for problem in tasks.problems())
        # one of many says which one it is
        assert (GPU in "".join(tasks.problems())) is (name in ("nodedevice", "kubelet endpoint"))
    assert tasks.problems() == ()


@pytest.mark.parametrize("name", sorted(VITAL["agent"].keys() - ELSEWHERE))
async def test_what_is_vital_ends_the_agent_in_a_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(name, FAILURES[:1], tmp_path, monkeypatch) as (_, task):
        async with asyncio.timeout(60):
            await asyncio.wait([task])
        ended = tasks.innermost(task.exception() or AssertionError())
    assert isinstance(ended, TaskEnded)
    text = str(ended)
    assert text.startswith(f"the task {name} has ended (OSError: ")
    assert text.endswith("which is a bug: report it with the log; exiting for a restart")
    assert "\n" not in text


def test_every_task_is_tried() -> None:
    assert NRI.keys() | KUBELET.keys() | ELSEWHERE == VITAL["agent"].keys() | RETRIED["agent"]


async def test_one_socket_of_the_registry_keeps_no_other_from_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)
    bad, good = Failing(*FAILURES), Failing()

    async def chosen(socket: _RegistrySocket) -> None:
        await (bad if socket._path.name == "bad.sock" else good).work()

    monkeypatch.setattr(_RegistrySocket, "run", chosen)
    host: Any = type("Host", (), {"directory": type("D", (), {"path": tmp_path})})
    watcher = PluginWatcher(tmp_path, host)
    present: Callable[..., Any] = dict
    monkeypatch.setattr(
        "nodedevice_agent.deviceplugin.plugin_watcher._sockets",
        lambda _: present({tmp_path / f"{name}.sock": None for name in ("bad", "good")}).items(),
    )
    task = asyncio.create_task(watcher.run())
    await _first(bad.is_well, task)
    assert (task.done(), bad.times, good.times) == (False, 6, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_plugin_that_fails_or_takes_no_settings_is_started_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_failing", {})
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)
    bad, good = Failing(*FAILURES), Failing()

    async def serve(source: Any, *_: object, **__: object) -> None:
        await (bad if source.resource_name == "example.com/bad" else good).work()

    monkeypatch.setattr("nodedevice_agent.plugins.run.serve", serve)
    names = ("example.com/bad", "example.com/good")
    runner = PluginRunner(tmp_path, tmp_path)
    runner.apply(PluginSettings(simulated=[SimulatedSettings(resource_name=name, count=1) for name in names]))
    task = asyncio.create_task(runner.run())
    await _first(bad.is_well, task)
    assert (task.done(), bad.times, good.times) == (False, 6, 1)

    def take(running: Any, plugin: Any) -> bool:
        if plugin.settings.resource_name == "example.com/bad":
            raise FAILURES[1]
        return True

    monkeypatch.setattr("nodedevice_agent.plugins.run.Node.take", take)
    bad.is_well.clear()
    runner.apply(PluginSettings(simulated=[SimulatedSettings(resource_name=name, count=2) for name in names]))
    await _first(bad.is_well, task)
    assert (task.done(), bad.times, good.times) == (False, 7, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
