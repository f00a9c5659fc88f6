"""A node on which an agent begins without work: its tasks are idle, and nobody answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.agent import Agent
from nodedevice_agent.checkpoint.files import make_state_dir
from nodedevice_agent.configs.watch import ConfigWatch
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher
from nodedevice_agent.deviceplugin.registration_server import RegistrationServer
from nodedevice_agent.dra.claims import ClaimReader
from nodedevice_agent.dra.observer import DriverObserver
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.lease import LeaseKeeper
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.pods import PodWatch
from nodedevice_agent.kubelet.backend import KubeletBackend
from nodedevice_agent.kubelet.observer import Observer
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.lib.deviceplugin_server.built_in import BuiltInSockets
from nodedevice_agent.nri.connector import NriPlugin
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.runtime.device_numbers import DeviceNumbers
from nodedevice_agent.settings import AgentSettings

from tests.fakes.failing_task import Failing


class Node:
    """Directories of a node, and an API server that nobody asks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        entry: dict[str, Any] = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}
        entry["users"] = [{"name": "u", "user": {"token": "t"}}]
        entry["contexts"] = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
        (folder / "kc").write_text(json.dumps({**entry, "current-context": "x"}))
        for name in ("plugins", "registry", "kubelet"):
            (folder / name).mkdir()
        make_state_dir(folder / "state")
        self.health = AgentHealth("plugin directory", "node", "api server", "pods")
        self.applied: list[PluginSettings] = []
        self.built_in = BuiltInSockets()
        # of the kubelet's state
        self.reads = 0
        # those that run
        self.nri_plugins: list[NriPlugin] = []

    async def _read(self) -> None:
        self.reads += 1

    def settings(self, **given: Any) -> AgentSettings:
        directories = {
            "plugin_dir": "plugins",
            "state_dir": "state",
            "kubelet_dir": "kubelet",
            "nri_socket": "nri.sock",
        }
        paths = {name: str(self.folder / path) for name, path in directories.items()}
        return AgentSettings(**{"node_name": "n1", "kubeconfig": str(self.folder / "kc"), **paths, **given})

    @contextmanager
    def agent(self, **given: Any) -> Iterator[Agent]:
        """One that has not begun to work, with these settings."""
        settings = self.settings(**given)
        with closing(PluginDirectory.take(Path(settings.plugin_dir))) as directory:
            cluster = KubeClient.connect(Path(settings.kubeconfig))
            yield Agent(settings, directory, cluster, self.health, self.applied.append, self.built_in)

    @asynccontextmanager
    async def started(self, monkeypatch: pytest.MonkeyPatch, **given: Any) -> AsyncIterator[Agent]:
        """One whose tasks all begin, and are idle."""
        idle: list[tuple[Any, str]] = [(Agent, "_beat"), (ConfigWatch, "run"), (PluginHost, "_detect_end")]
        idle += [(NriBackend, "_watch_doubtful"), (Observer, "run"), (LeaseKeeper, "run")]
        idle += [
            (DriverObserver, "run"),
            (ClaimReader, "run"),
            (NodeDeviceSync, "run"),
            (PluginWatcher, "run"),
            (PodWatch, "run"),
            (RegistrationServer, "keep"),
        ]
        idle += [(KubeletBackend, "_watch"), (KubeletReader, "run"), (DeviceNumbers, "run")]
        for owner, method in idle:
            monkeypatch.setattr(owner, method, Failing().work)
        for_ever = Failing()

        async def connected(plugin: NriPlugin) -> None:
            self.nri_plugins.append(plugin)
            await for_ever.work()

        monkeypatch.setattr(NriPlugin, "run", connected)
        monkeypatch.setattr(LeaseKeeper, "acquire", lambda _: asyncio.sleep(0))
        monkeypatch.setattr(KubeletReader, "_read", self._read)
        with self.agent(**given) as agent:
            task = asyncio.create_task(agent.run())
            try:
                waiting = asyncio.create_task(agent.is_serving.wait())
                async with asyncio.timeout(60):
                    await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                assert not task.done(), task.exception()
                yield agent
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
